"""A real MCP server over streamable HTTP by the SDK; prints its port: `python -m
tests.tools.mcp.web [TOKEN]`.
"""

import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("web")


@server.tool()
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@server.tool()
def leave() -> str:
    """Go away in the middle of the call."""
    os._exit(3)


def main():
    token = sys.argv[1] if len(sys.argv) > 1 else ""
    app = server.streamable_http_app()

    async def check_token(scope, receive, send):
        if (
            scope["type"] == "http"
            and token
            and (b"authorization", f"Bearer {token}".encode()) not in scope["headers"]
        ):
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await app(scope, receive, send)

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    listener.listen()  # before the port is told: who knocks now waits until the server is up
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(check_token, log_level="critical", lifespan="on")).run([listener])


if __name__ == "__main__":
    main()
