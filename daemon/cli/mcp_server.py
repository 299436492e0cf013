"""`agentctl mcp serve`: an MCP server on stdin and stdout, for coding agents and editors.

Whoever starts it has the rights that the socket gives to that user, as with every other verb. It
needs no daemon to start: each call of a tool connects anew, and says so if none answers.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

from daemon import __version__
from daemon.cli.call import DONE, NOT_SUCCEEDED, Call
from daemon.cli.client import ApiError, ConnectionLost, Unreachable
from daemon.cli.mcp_tools import (
    NOTE,
    TOOLS,
    InvalidArgument,
    call_tool,
    describe_failure,
    has_strangers_words,
)

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext
    from mcp.types import CallToolRequestParams, CallToolResult

INSTRUCTIONS = (
    "agentd runs the routines of this user on a schedule, each by a model with tools. Ask `status` "
    "what is wrong, `list` for the routines, `report` for what one found, `inspect` for what a run "
    f"did, `why` for why it did not run. {NOTE}"
)


def serve(call: Call) -> int:
    """Serve the tools until stdin is closed."""
    try:
        from mcp.server.stdio import stdio_server
    except ImportError:
        call.err.write_line("agentctl: an MCP server needs: pip install 'agentd-routines[mcp]'")
        return NOT_SUCCEEDED
    server = _create_server(call.socket)

    async def serve_streams() -> None:
        async with stdio_server() as (requests, answers):
            await server.run(requests, answers, server.create_initialization_options())

    # a thread waits for the next line of stdin, which Python's own Ctrl-C would wait for as well
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(serve_streams())
    return DONE


def _create_server(socket: str | None) -> Server[Any]:
    from mcp.server import Server
    from mcp.types import ListToolsResult, PaginatedRequestParams, Tool, ToolAnnotations

    async def list_tools(
        _context: ServerRequestContext[Any], _page: PaginatedRequestParams | None
    ) -> ListToolsResult:
        tools = [
            Tool(
                name=name,
                description=tool.description,
                input_schema=tool.schema,
                annotations=ToolAnnotations(
                    read_only_hint=tool.is_read_only,
                    destructive_hint=not tool.is_read_only,
                    open_world_hint=not tool.is_read_only,
                ),
            )
            for name, tool in TOOLS.items()
        ]
        return ListToolsResult(tools=tools)

    async def answer(
        _context: ServerRequestContext[Any], request: CallToolRequestParams
    ) -> CallToolResult:
        return await _answer(socket, request)

    return Server(
        "agentd",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=answer,
    )


async def _answer(socket: str | None, request: CallToolRequestParams) -> CallToolResult:
    """Call a tool on a thread; what goes wrong there is its result, in one sentence."""
    from mcp.types import CallToolResult, TextContent

    try:
        call = call_tool(socket, request.name, request.arguments or {})
        try:
            await asyncio.to_thread(getattr, call, "client")  # connected, it can be closed
            answer = await asyncio.to_thread(TOOLS[request.name].function, call)
        finally:
            # the thread of a cancelled request waits for an answer until this
            call.close()
    except (Unreachable, ConnectionLost, ApiError, InvalidArgument) as error:
        text = TextContent(type="text", text=describe_failure(error))
        return CallToolResult(content=[text], is_error=True)
    if has_strangers_words(answer):
        answer = {"note": NOTE, **answer}
    text = TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=answer)
