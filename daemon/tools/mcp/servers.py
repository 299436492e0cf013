"""All MCP servers of config.toml, and their tools in the registry."""

from __future__ import annotations

import asyncio
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

BETWEEN = "__"
# characters of a description: it is a stranger's text in every prompt that offers the tool
LONGEST = 4_000


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
        self._known_servers: set[str] = set()
        self._looking = asyncio.Lock()

    async def ready(self, patterns: Iterable[str]) -> None:
        """Have the tools registered that these names or patterns may mean; a server that is not
        there is logged.
        """
        if not self._servers:
            return
        required_servers = {
            pattern.partition(BETWEEN)[0] for pattern in patterns if BETWEEN in pattern
        } & set(self._servers)
        if required_servers <= self._known_servers:
            return
        async with self._looking:
            await asyncio.gather(
                *(
                    self._update_tools(self._servers[name])
                    for name in required_servers - self._known_servers
                )
            )

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _update_tools(self, server: McpServer) -> None:
        try:
            tools = await server.tools()
        except ToolFailed as error:
            log.warning(
                "mcp.not_there", server=server.name, error=str(error)
            )  # it is asked again by the next run
            return
        for tool in tools:
            self._register(server, tool)
        self._known_servers.add(server.name)
        log.info("mcp.listed", server=server.name, tools=len(tools))

    def _register(self, server: McpServer, tool: McpTool) -> None:
        name = f"{server.name}{BETWEEN}{re.sub(r'[^A-Za-z0-9_-]', '_', tool.name)}"

        async def call(**arguments: Any) -> Any:
            return await server.call(tool.name, arguments)

        try:
            self._registry.register(
                name, tool.description[:LONGEST] or tool.name, call, tool.parameters
            )
        except (ValueError, TypeError) as error:
            log.warning("mcp.tool_skipped", server=server.name, tool=tool.name, error=str(error))
