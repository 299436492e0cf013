"""An MCP server over stdio that needs the standard library alone, and so starts at once; the SDK's
takes a second.

    python -I -S stdio_server.py tools.json

The file holds a list of tools, each with `name` and `description`, and is read at the start; the
answer of each is "fine". What a server of the SDK does is tested with such ones, in
test_servers.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__)


def command(tools: Path) -> list[str]:
    """Return the command line of a server of these tools."""
    return [sys.executable, "-I", "-S", str(FILE), str(tools)]


def write_tools(path: Path, **descriptions: str) -> None:
    """Have a server offer these tools from its next start on."""
    tools = [{"name": name, "description": text} for name, text in descriptions.items()]
    path.write_text(json.dumps(tools))


def answer(request: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the response to a request holds besides its id."""
    method, parameters = request["method"], request.get("params", {})
    result: dict[str, Any]
    if method == "initialize":
        result = {
            "protocolVersion": parameters["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "stdio", "version": "1"},
        }
    elif method == "tools/list":
        schema = {"type": "object", "properties": {}}
        result = {"tools": [{**tool, "inputSchema": schema} for tool in tools]}
    elif method == "tools/call" and parameters["name"] in (tool["name"] for tool in tools):
        result = {"content": [{"type": "text", "text": "fine"}]}
    elif method == "ping":
        result = {}
    else:
        return {"error": {"code": -32601, "message": f"there is no {method}"}}
    return {"result": result}


def main() -> None:
    tools = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            response = {"jsonrpc": "2.0", "id": request["id"], **answer(request, tools)}
            print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
