"""One MCP server: connected when it is first needed, connected again when it has gone away.

Theory of operation: the SDK's streams belong to the task that opened them, so each connection lives
in a task of its own, which does nothing but hold it open. A call that finds the connection gone
opens a new one; a call that was under way when it broke is not repeated, as nobody knows what
became of it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import tempfile
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import structlog

from daemon.definitions.words import shorten
from daemon.errors import ToolFailed
from daemon.models import Json
from daemon.system.http_body import ACCEPT_ENCODING
from daemon.system.http_client import connection_settings
from daemon.tools.mcp.accepted_tools import McpTool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

    from daemon.definitions.config.tables import McpConfig

log = structlog.get_logger()

# seconds after an answer for which a server is taken to be there without being asked
FRESH_SECONDS = 5.0
PING_TIMEOUT = 5.0  # seconds that it has for the answer to a ping
MAX_STDERR_CHARACTERS = 500  # of the end of its stderr, which an error quotes
START_TIMEOUT = 30.0  # seconds that a server is given to come up and to say what it offers
HTTP_TIMEOUT = 30.0  # seconds for a connection over HTTP and for each piece that is sent
# seconds between two pieces of an answer over HTTP: a server may hold a stream open
STREAM_TIMEOUT = 300.0
MAX_PAGES = 100  # of a list of tools: one that never ends must not hold a run up
# Tools and characters of them after which no further page of the list is asked for. No run is
# offered as many (servers.py).
MAX_LISTED_TOOLS, MAX_LISTED_CHARACTERS = 1_000, 1_000_000
MAX_ERROR_CHARACTERS = 2_000  # of a server's words for an error
MAX_STDERR_BYTES = 1_000_000  # of its stderr that are kept while it is used


class McpServer:
    """One server of config.toml; `secret` is sent as a bearer token where it is reached by HTTP."""

    def __init__(self, name: str, config: McpConfig, *, secret: str | None = None) -> None:
        self.name, self._config, self._secret = name, config, secret
        self._client: Client | None = None
        self._connection_task: asyncio.Task[None] | None = None
        self._connect_lock = asyncio.Lock()
        self._last_answer = 0.0
        """When it last answered, in the event loop's time."""
        self._stderr_file: _StderrFile | None = None
        """The stderr of the connection, while there is one."""
        self.connections = 0
        """How often it was connected: after each time it may offer something else."""

    async def tools(self) -> list[McpTool]:
        """Ask what it offers; ToolFailed if it does not answer."""
        client, tools, cursor = await self._get_client(), list[McpTool](), None
        characters = 0
        try:
            async with asyncio.timeout(START_TIMEOUT):
                for _ in range(MAX_PAGES):
                    page = await client.list_tools(cursor=cursor, cache_mode="refresh")
                    tools += [
                        McpTool(tool.name, tool.description or "", dict(tool.input_schema))
                        for tool in page.tools
                    ]
                    cursor = page.next_cursor
                    characters += len(page.model_dump_json())
                    if (
                        cursor is None
                        or len(tools) > MAX_LISTED_TOOLS
                        or characters > MAX_LISTED_CHARACTERS
                    ):
                        break
        except Exception as error:
            raise ToolFailed(
                f"the MCP server {self.name} does not say what it offers: {_describe_error(error)}"
            ) from error
        return tools

    async def call(self, tool: str, arguments: Json) -> Any:
        """Call a tool and return what it said; ToolFailed with its words if it failed."""
        client = await self._get_client()
        limit, loop = self._config.timeout.total_seconds(), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit) as clock:
                result = await client.call_tool(tool, arguments)
        except TimeoutError:
            if not clock.expired():
                raise
            raise ToolFailed(
                f"{self.name} did not answer within {limit:g} s; what came of it is unknown"
            ) from None
        except Exception as error:
            if await self._is_answering(client):
                unknown = "; what came of it is unknown" if _is_lost(error) else ""
                raise ToolFailed(f"{self.name}: {_describe_error(error)}{unknown}") from error
            await self.close()
            problem = (
                "went away during the call; what came of it is unknown, check before trying again"
            )
            raise ToolFailed(f"{self.name} {problem}") from error
        self._last_answer = loop.time()
        return _result_value(result)

    async def close(self) -> None:
        """Close the connection, if there is one; it is closed all the same if this is cancelled."""
        connection_task, self._connection_task, self._client = self._connection_task, None, None
        if connection_task is not None:
            connection_task.cancel()
            # not `await connection_task`: its CancelledError could not be told from ours
            await asyncio.wait([connection_task])

    async def _get_client(self) -> Client:
        """Return a client whose server answers, a new one if need be; ToolFailed."""
        async with self._connect_lock:
            if self._stderr_file is not None:
                self._stderr_file.trim()
            client, now = self._client, asyncio.get_running_loop().time()
            if client is not None and (
                now - self._last_answer < FRESH_SECONDS or await self._is_answering(client)
            ):
                return client
            await self.close()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._connection_task = asyncio.create_task(
                self._keep_connected(ready), name=f"MCP server {self.name}"
            )
            try:
                async with asyncio.timeout(START_TIMEOUT):
                    self._client = await asyncio.shield(ready)
            except TimeoutError:
                await self.close()
                raise ToolFailed(
                    f"the MCP server {self.name} did not come up within {START_TIMEOUT:g} s"
                ) from None
            self._last_answer = asyncio.get_running_loop().time()
            self.connections += 1
            return self._client

    async def _is_answering(self, client: Client) -> bool:
        from mcp import MCPError
        from mcp.types import METHOD_NOT_FOUND

        try:
            async with asyncio.timeout(PING_TIMEOUT):
                await client.session.send_ping()
        except MCPError as error:
            # the protocol of 2026-07-28 has no ping: who says so is there
            if error.code != METHOD_NOT_FOUND:
                return False
        except Exception:  # noqa: BLE001  one call: whatever it is, nobody is there
            return False
        self._last_answer = asyncio.get_running_loop().time()
        return True

    async def _keep_connected(self, ready: asyncio.Future[Client]) -> None:
        """Open a connection and hold it until it is no longer wanted."""
        self._stderr_file = stderr_file = _StderrFile()
        try:
            async with AsyncExitStack() as stack:
                # the SDK takes half a second to import
                client = await stack.enter_async_context(
                    await asyncio.to_thread(self._make_client, stack, stderr_file)
                )
                log.info("mcp.connected", server=self.name)
                ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001  one background task: whoever waits is told, and may try again
            reason = _describe_error(error) + (
                f"; it said: {stderr_file}" if str(stderr_file) else ""
            )
            if not ready.done():
                ready.set_exception(
                    ToolFailed(f"the MCP server {self.name} cannot be reached: {reason}")
                )
            log.warning("mcp.disconnected", server=self.name, error=reason)
        finally:
            if self._stderr_file is stderr_file:  # a new connection may have begun meanwhile
                self._stderr_file = None
            stderr_file.close()
            if not ready.done():
                ready.cancel()

    def _make_client(self, stack: AsyncExitStack, stderr_file: _StderrFile) -> Client:
        """Return a client that is not connected yet."""
        try:
            import httpx2
            from mcp import Client
            from mcp.client.streamable_http import streamable_http_client

            from daemon.tools.mcp.http_transport import FewCookies, McpHttpTransport
            from daemon.tools.mcp.transport import (
                MAX_MESSAGE,
                StdioServer,
                open_limited,
                open_stdio,
            )
        except ImportError:
            raise ToolFailed("MCP servers need `pip install agentd-routines[mcp]`") from None
        # what the SDK would log is raised as an error, too
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        config = self._config
        if config.command:
            env = config.env | {
                name: os.environ[name] for name in config.pass_env if name in os.environ
            }
            server = StdioServer(self.name, config.command, env, config.cwd, stderr_file.stream)
            return Client(open_limited(open_stdio(server)))
        headers = {"Accept-Encoding": ACCEPT_ENCODING}
        if self._secret:
            headers["Authorization"] = f"Bearer {self._secret}"
        url = str(config.url)
        client = httpx2.AsyncClient(
            transport=McpHttpTransport(
                httpx2.AsyncHTTPTransport(**connection_settings(url)),
                limit=MAX_MESSAGE,
                time_limit=max(config.timeout.total_seconds(), START_TIMEOUT) + PING_TIMEOUT,
            ),
            trust_env=False,
            headers=headers,
            cookies=FewCookies(),
            timeout=httpx2.Timeout(HTTP_TIMEOUT, read=STREAM_TIMEOUT),
        )
        stack.push_async_callback(client.aclose)
        http = streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE)
        return Client(open_limited(http))


class _StderrFile:
    """The stderr of a server; as text, its end, for the error when the server goes away."""

    def __init__(self) -> None:
        self.stream = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  closed below
        # the server writes at the end, also once the file has become shorter
        fcntl.fcntl(self.stream, fcntl.F_SETFL, os.O_APPEND)

    def __str__(self) -> str:
        size = os.fstat(self.stream.fileno()).st_size
        os.lseek(self.stream.fileno(), max(0, size - MAX_STDERR_CHARACTERS), os.SEEK_SET)
        return " ".join(
            os.read(self.stream.fileno(), MAX_STDERR_CHARACTERS).decode(errors="replace").split()
        )

    def trim(self) -> None:
        """Empty the file if it is large: a server may run and write for months."""
        if os.fstat(self.stream.fileno()).st_size > MAX_STDERR_BYTES:
            os.ftruncate(self.stream.fileno(), 0)

    def close(self) -> None:
        self.stream.close()


def _result_value(result: CallToolResult) -> Any:
    """Return what a call said: its values where there are any, else its texts."""
    texts = [_text(part) for part in result.content]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or "it failed without a word")
    if result.structured_content is not None:
        return result.structured_content
    return "\n".join(texts) or None


def _text(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type == "resource" and getattr(part.resource, "text", None):
        return str(part.resource.text)
    return f"[{part.type.replace('_', ' ')}{f' {part.uri}' if hasattr(part, 'uri') else ''}]"


def _is_lost(error: Exception) -> bool:
    """Return whether a call failed as its answer cannot be read, or never came."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED, PARSE_ERROR

    return isinstance(error, MCPError) and error.code in (CONNECTION_CLOSED, PARSE_ERROR)


def _describe_error(error: BaseException) -> str:
    """Return an error in a line; groups of them, as the SDK raises, by their first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split()) or type(error).__name__
    return shorten(text, MAX_ERROR_CHARACTERS)
