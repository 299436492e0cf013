"""All MCP servers of config.toml, and their tools in the registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from daemon.errors import NotFound, ToolFailed
from daemon.tools.mcp.accepted_tools import AcceptedTools, McpTool, ServerTools, clean_name
from daemon.tools.mcp.server import McpServer
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.definitions.config.tables import McpConfig

log = structlog.get_logger()

NAME_SEPARATOR = "__"
# What one server may put into the prompts of runs. The largest of the reference servers offers some
# 30 tools with 20,000 characters.
MAX_TOOLS = 100
MAX_NAME_CHARACTERS = 200
MAX_DESCRIPTION_CHARACTERS = 4_000
MAX_SCHEMA_CHARACTERS = 20_000
MAX_CHARACTERS_OF_SERVER = 200_000
# Seconds after which a server is asked again what it offers, when a run needs its tools.
LISTING_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a server has offered, and the registry of what was registered of that."""

    tools: ServerTools
    functions: FunctionRegistry
    connection: int
    """The number of the server's connection then."""
    at: float
    """In the event loop's time."""


class Servers:
    """Asks servers what they offer when a run names their tools, and registers that."""

    def __init__(
        self,
        configs: Mapping[str, McpConfig],
        registry: FunctionRegistry,
        *,
        secrets: Mapping[str, str | None],
        accepted_tools: AcceptedTools,
    ) -> None:
        self._servers = {
            name: McpServer(name, config, secret=secrets.get(name))
            for name, config in configs.items()
        }
        self._configs, self._registry = configs, registry
        self._accepted_tools = accepted_tools
        self._listings: dict[str, _Listing] = {}
        # one for each: whoever needs a server does not wait for a slow one that it does not need
        self._list_locks = {name: asyncio.Lock() for name in configs}

    @property
    def configs(self) -> Mapping[str, McpConfig]:
        """The servers of the config, by name."""
        return self._configs

    async def register_tools(self, patterns: Iterable[str]) -> None:
        """Register the tools of each server that these names or patterns may mean, as the server
        offers them now.

        A server is asked when it has not been asked by this process, was connected anew, or was
        asked more than `LISTING_SECONDS` ago. One that does not answer is logged, and asked again
        by the next run.
        """
        if not self._servers:
            return
        required_servers = {
            pattern.partition(NAME_SEPARATOR)[0]
            for pattern in patterns
            if NAME_SEPARATOR in pattern
        } & set(self._servers)
        if not required_servers:
            return
        await asyncio.gather(*(self._refresh(name) for name in required_servers))

    async def _refresh(self, name: str) -> None:
        """Register the tools of a server, if it is to be asked; else see whether a change of them
        was accepted.
        """
        async with self._list_locks[name]:
            listing = self._listings.get(name)
            if listing is not None and listing.tools.has_changed:
                # a person may have accepted the change, through another process on the database
                tools = await self._accepted_tools.get(name)
                if tools is not None and tools.offered == listing.tools.offered:
                    self._listings[name] = replace(listing, tools=tools)
            if self._is_old(name):
                await self._update_tools(self._servers[name])

    def untrusted_tools(self, names: Iterable[str]) -> list[str]:
        """Return which of these tools are described by strangers: by a server that the config does
        not trust, or in words that nobody has accepted yet.
        """
        changed_names = {
            _registered_name(listing.tools.server, name)
            for listing in self._listings.values()
            for name in listing.tools.changed_names
        }
        return [
            name
            for name in names
            if NAME_SEPARATOR in name
            and (config := self._configs.get(name.partition(NAME_SEPARATOR)[0]))
            and (not config.trusted or name in changed_names)
        ]

    async def get_tools(self, server: str) -> ServerTools | None:
        """Return what is known of a server; None if it was never asked. Raises NotFound."""
        self._check_exists(server)
        return await self._accepted_tools.get(server)

    async def accept(self, server: str, digest: str) -> ServerTools:
        """Accept what a server offers; raises NotFound, and Refused if it is not `digest`."""
        self._check_exists(server)
        async with self._list_locks[server]:
            tools = await self._accepted_tools.accept(server, digest)
            listing = self._listings.get(server)
            if listing is not None:
                self._listings[server] = replace(listing, tools=tools)
        return tools

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def _check_exists(self, server: str) -> None:
        if server not in self._configs:
            raise NotFound(f"config.toml has no MCP server {server!r}; `agentctl mcp` lists them")

    def _is_old(self, server: str) -> bool:
        listing = self._listings.get(server)
        return (
            listing is None
            or listing.connection != self._servers[server].connections
            or asyncio.get_running_loop().time() - listing.at > LISTING_SECONDS
        )

    async def _update_tools(self, server: McpServer) -> None:
        name, at = server.name, asyncio.get_running_loop().time()
        try:
            all_tools = await server.tools()
        except ToolFailed as error:
            # it is asked again by the next run
            log.warning("mcp.not_there", server=name, error=str(error))
            return
        connection, earlier_listing = server.connections, self._listings.get(name)
        tools = _within_limits(name, all_tools)
        if earlier_listing is not None and tools == list(earlier_listing.tools.offered):
            self._listings[name] = replace(earlier_listing, connection=connection, at=at)
            return
        functions, problems = FunctionRegistry(), dict[str, str]()
        for tool in tools:
            problem = await asyncio.to_thread(self._find_problem, name, tool)
            problem = problem or _register(functions, server, tool)
            if problem:
                problems[tool.name] = problem
                log.warning("mcp.tool_skipped", server=name, tool=tool.name, error=problem)
        recorded_tools = await self._accepted_tools.record(name, tools, problems)
        self._registry.replace(
            earlier_listing.functions if earlier_listing else FunctionRegistry(), functions
        )
        self._listings[name] = _Listing(recorded_tools, functions, connection, at)
        log.info("mcp.listed", server=name, tools=len(all_tools))

    def _find_problem(self, server: str, tool: McpTool) -> str:
        """Say why a tool is not offered to anybody for its description; empty if it is."""
        schema = json.dumps(tool.parameters)
        if len(schema) > MAX_SCHEMA_CHARACTERS:
            return f"its schema has {len(schema)} characters, more than {MAX_SCHEMA_CHARACTERS}"
        if self._registry.has_function(name := _registered_name(server, tool.name)) and (
            server not in self._listings or not self._listings[server].functions.has_function(name)
        ):
            return f"there is already a tool called {name}"
        if self._configs[server].trusted:
            return ""
        from daemon.injection.check import Block, examine  # a start can do without it

        finding = examine(f"{tool.description}\n{schema}")
        if isinstance(finding, Block):
            return f"its description gives orders: {finding.reason}"
        return ""


def _within_limits(server: str, tools: Sequence[McpTool]) -> list[McpTool]:
    """Return the first tools that fit the limits of one server, with descriptions cut.

    Those that are skipped count, too: each costs a line of the log.
    """
    kept_tools, names, characters = list[McpTool](), set[str](), 0
    for index, tool in enumerate(tools):
        if index == MAX_TOOLS:
            _log_left_out(server, len(tools) - index)
            break
        if len(tool.name) > MAX_NAME_CHARACTERS or tool.name in names:
            problem = "its name is too long, or that of another tool"
            log.warning("mcp.tool_skipped", server=server, tool=tool.name[:100], error=problem)
            continue
        try:
            schema = json.dumps(tool.parameters)
        except (ValueError, RecursionError) as error:
            log.warning("mcp.tool_skipped", server=server, tool=tool.name, error=str(error))
            continue
        tool = tool._replace(description=tool.description[:MAX_DESCRIPTION_CHARACTERS])
        characters += len(tool.name) + len(tool.description) + len(schema)
        if characters > MAX_CHARACTERS_OF_SERVER:
            _log_left_out(server, len(tools) - index)
            break
        kept_tools.append(tool)
        names.add(tool.name)
    return kept_tools


def _log_left_out(server: str, count: int) -> None:
    log.warning(
        "mcp.tools_left_out",
        server=server,
        tools=count,
        error=f"of one server {MAX_TOOLS} tools with {MAX_CHARACTERS_OF_SERVER} "
        "characters are offered",
    )


def _registered_name(server: str, tool: str) -> str:
    """Return the name by which runs call a tool of a server."""
    return f"{server}{NAME_SEPARATOR}{clean_name(tool)}"


def _register(functions: FunctionRegistry, server: McpServer, tool: McpTool) -> str:
    """Register a tool; say why that cannot be, or return an empty text."""

    async def call(**arguments: Any) -> Any:
        return await server.call(tool.name, arguments)

    try:
        functions.register(
            _registered_name(server.name, tool.name),
            tool.description or tool.name,
            call,
            tool.parameters,
        )
    except (ValueError, TypeError) as error:
        return str(error)
    return ""
