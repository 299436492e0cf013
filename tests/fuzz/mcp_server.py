"""An MCP server over stdio that answers what a file says, whether it is MCP or not.

    python -I -S mcp_server.py answers.json

The file holds a list of objects with the keys `tools` and `call`: the results of `tools/list` and
of `tools/call` as JSON text. They are used in turn, one pair after each list.
"""

from __future__ import annotations

import json
import sys
from itertools import cycle
from pathlib import Path
from typing import TextIO

INITIALIZED = '{"protocolVersion": %s, "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}'  # noqa: E501


def main(output: TextIO) -> None:
    answers = cycle(json.loads(Path(sys.argv[1]).read_text()))
    current = {"tools": '{"tools": []}', "call": "{}"}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        match request["method"]:
            case "initialize":
                result = INITIALIZED % json.dumps(request["params"]["protocolVersion"])
            case "tools/list":
                current = next(answers)
                result = current["tools"]
            case "tools/call":
                result = current["call"]
            case _:
                result = "{}"
        output.write(
            f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, "result": {result}}}\n'
        )
        output.flush()


if __name__ == "__main__":
    main(sys.stdout)
