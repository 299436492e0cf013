"""What MCP servers offer, and that a person accepts it."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.schemas import iso

if TYPE_CHECKING:
    from daemon.tools.mcp.accepted_tools import ServerTools


class McpToolView(TypedDict):
    """One tool of an MCP server, in the server's own words."""

    name: str
    """The name that the server gives it."""
    state: str
    """Against what was accepted: `accepted`, `new`, `changed` or `removed`."""
    description: str
    """The description as it is offered now; of a removed tool, the one that was accepted."""
    parameters: dict[str, Any]
    """The JSON Schema of its arguments as it is offered now; of a removed tool, the accepted one.
    """
    accepted_description: str | None
    """Of a changed tool, the description that was accepted."""
    accepted_parameters: dict[str, Any] | None
    """Of a changed tool, the JSON Schema that was accepted."""
    left_out: str
    """Why no run is offered it; empty if runs are."""


class McpServerView(TypedDict):
    """One MCP server of config.toml."""

    name: str
    """The name of its table in config.toml."""
    source: str
    """The command that starts it, or its address."""
    trusted: bool
    """Whether descriptions of its tools are taken as your own words: `trusted` in config.toml."""
    offered_at: str | None
    """When what it offers was last seen to change, or first seen; null if it was never asked."""
    accepted_at: str | None
    """When its tools were accepted last; null if it was never asked."""
    changed: bool
    """Whether it offers something else than was accepted."""
    digest: str
    """What `accept` takes; empty if it was never asked."""
    tools: list[McpToolView]
    """What it offers now, then what it offered when it was accepted and does no more."""


class McpServerList(TypedDict):
    """The MCP servers of config.toml, by name."""

    items: list[McpServerView]
    """One for each server, by name."""


async def list_servers(api: ApiContext) -> McpServerList:
    """List the MCP servers with the tools that each offered when a run last asked it, and what has
    changed since they were accepted. No server is started or asked.
    """
    names = sorted(api.mcp_servers.configs)
    tools = await asyncio.gather(*(api.mcp_servers.get_tools(name) for name in names))
    return McpServerList(
        items=[
            _view_of_server(api, name, server_tools)
            for name, server_tools in zip(names, tools, strict=True)
        ]
    )


async def accept_tools(api: ApiContext, *, name: str, digest: str) -> McpServerView:
    """Accept the tools of an MCP server: `digest` says which, so that tools that have changed
    meanwhile are refused.
    """
    return _view_of_server(api, name, await api.mcp_servers.accept(name, digest))


def _view_of_server(api: ApiContext, name: str, tools: ServerTools | None) -> McpServerView:
    config = api.mcp_servers.configs[name]
    return McpServerView(
        name=name,
        source=shlex.join(config.command) if config.command else str(config.url),
        trusted=config.trusted,
        offered_at=iso(tools.offered_at) if tools else None,
        accepted_at=iso(tools.accepted_at) if tools else None,
        changed=tools is not None and tools.has_changed,
        digest=tools.digest if tools else "",
        tools=_views_of_tools(tools) if tools else [],
    )


def _views_of_tools(tools: ServerTools) -> list[McpToolView]:
    accepted_tools, views = {tool.name: tool for tool in tools.accepted}, []
    for tool in tools.offered:
        accepted_tool = accepted_tools.get(tool.name)
        is_changed = accepted_tool is not None and accepted_tool != tool
        views.append(
            McpToolView(
                name=tool.name,
                state="new" if accepted_tool is None else "changed" if is_changed else "accepted",
                description=tool.description,
                parameters=tool.parameters,
                accepted_description=accepted_tool.description
                if accepted_tool and is_changed
                else None,
                accepted_parameters=accepted_tool.parameters
                if accepted_tool and is_changed
                else None,
                left_out=tools.problems.get(tool.name, ""),
            )
        )
    removed_views = [
        McpToolView(
            name=name,
            state="removed",
            description=accepted_tools[name].description,
            parameters=accepted_tools[name].parameters,
            accepted_description=None,
            accepted_parameters=None,
            left_out="",
        )
        for name in tools.removed_names
    ]
    return [*views, *removed_views]


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/mcp", list_servers),
    ("POST", "/v1/mcp/{name}/accept", accept_tools),
)
