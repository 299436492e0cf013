"""All MCP servers of config.toml, and their tools in the registry."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from daemon.errors import ToolFailed
from daemon.tools.mcp.server import McpServer, McpTool

if TYPE_CHECKING:
    from daemon.definitions.config.tables import McpConfig
    from daemon.tools.registry import FunctionRegistry

log = structlog.get_logger()

NAME_SEPARATOR = "__"
# What one server may put into the prompts of runs. The largest of the reference servers offers some
# 30 tools with 20,000 characters.
MAX_TOOLS = 100
MAX_DESCRIPTION_CHARACTERS = 4_000
MAX_SCHEMA_CHARACTERS = 20_000
MAX_CHARACTERS_OF_SERVER = 200_000


class Servers:
    """Asks servers what they offer when a run first names their tools, and registers that."""

    def __init__(
        self,
        configs: Mapping[str, McpConfig],
        registry: FunctionRegistry,
        *,
        secrets: Mapping[str, str | None],
    ) -> None:
        self._servers = {
            name: McpServer(name, config, secret=secrets.get(name))
            for name, config in configs.items()
        }
        self._configs, self._registry = configs, registry
        self._listed_servers: set[str] = set()
        self._list_lock = asyncio.Lock()

    async def register_tools(self, patterns: Iterable[str]) -> None:
        """Register the tools of each server that these names or patterns may mean, once per server.

        A server that does not answer is logged, and asked again by the next run.
        """
        if not self._servers:
            return
        required_servers = {
            pattern.partition(NAME_SEPARATOR)[0]
            for pattern in patterns
            if NAME_SEPARATOR in pattern
        } & set(self._servers)
        if required_servers <= self._listed_servers:
            return
        async with self._list_lock:
            await asyncio.gather(
                *(
                    self._update_tools(self._servers[name])
                    for name in required_servers - self._listed_servers
                )
            )

    def untrusted_tools(self, names: Iterable[str]) -> list[str]:
        """Return which of these tools are described by a server that the config does not trust."""
        return [
            name
            for name in names
            if (config := self._configs.get(name.partition(NAME_SEPARATOR)[0]))
            and NAME_SEPARATOR in name
            and not config.trusted
        ]

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _update_tools(self, server: McpServer) -> None:
        try:
            tools = await server.tools()
        except ToolFailed as error:
            # it is asked again by the next run
            log.warning("mcp.not_there", server=server.name, error=str(error))
            return
        registered, characters = 0, 0
        for index, tool in enumerate(tools):
            schema = json.dumps(tool.parameters)
            characters += len(tool.description[:MAX_DESCRIPTION_CHARACTERS]) + len(schema)
            if registered == MAX_TOOLS or characters > MAX_CHARACTERS_OF_SERVER:
                log.warning(
                    "mcp.tools_left_out",
                    server=server.name,
                    tools=len(tools) - index,
                    error=f"of one server {MAX_TOOLS} tools with {MAX_CHARACTERS_OF_SERVER} "
                    "characters are offered",
                )
                break
            problem = await asyncio.to_thread(self._find_problem, server.name, tool, schema)
            problem = problem or self._register(server, tool)
            if problem:
                log.warning(
                    "mcp.tool_skipped", server=server.name, tool=tool.name[:100], error=problem
                )
            else:
                registered += 1
        self._listed_servers.add(server.name)
        log.info("mcp.listed", server=server.name, tools=len(tools))

    def _find_problem(self, server: str, tool: McpTool, schema: str) -> str:
        """Say why a tool is not offered to anybody for its description; empty if it is."""
        if len(schema) > MAX_SCHEMA_CHARACTERS:
            return f"its schema has {len(schema)} characters, more than {MAX_SCHEMA_CHARACTERS}"
        if self._configs[server].trusted:
            return ""
        from daemon.injection.check import Block, examine  # a start can do without it

        finding = examine(f"{tool.description[:MAX_DESCRIPTION_CHARACTERS]}\n{schema}")
        if isinstance(finding, Block):
            return f"its description gives orders: {finding.reason}"
        return ""

    def _register(self, server: McpServer, tool: McpTool) -> str:
        """Register a tool; say why that cannot be, or return an empty text."""
        name = f"{server.name}{NAME_SEPARATOR}{re.sub(r'[^A-Za-z0-9_-]', '_', tool.name)}"

        async def call(**arguments: Any) -> Any:
            return await server.call(tool.name, arguments)

        try:
            self._registry.register(
                name,
                tool.description[:MAX_DESCRIPTION_CHARACTERS] or tool.name,
                call,
                tool.parameters,
            )
        except (ValueError, TypeError) as error:
            return str(error)
        return ""
