"""An MCP server over pipes that answers with the lines of a file as they stand: the first is its
list of tools, the others are results of calls, one after the other.
"""

import json
import sys
from pathlib import Path

INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "answers", "version": "1"},
}


def main() -> None:
    tools, *results = Path(sys.argv[1]).read_bytes().split(b"\n")
    remaining = iter(results)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        match request["method"]:
            case "initialize":
                answer = json.dumps(INITIALIZED).encode()
            case "tools/list":
                answer = tools
            case "tools/call":
                answer = next(remaining, b"null")
            case _:
                answer = b"{}"
        head = b'{"jsonrpc": "2.0", "id": %d, "result": ' % request["id"]
        sys.stdout.buffer.write(head + answer + b"}\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
