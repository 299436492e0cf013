"""The connections to MCP servers, with limits to what a server may send.

The SDK collects a line of a server's stdout for as long as it does not end, and answers each
request of a server in a task of its own. So servers over pipes are started and read here, and both
kinds of connections pass on only a few requests of the server at a time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

import anyio
import anyio.lowlevel
import structlog
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from daemon.definitions.words import shorten
from daemon.system.http_body import parse_json

log = structlog.get_logger()

# Bytes of a message of a server, unpacked. Parsed, one of many small parts takes thirty times that.
MAX_MESSAGE = 4_000_000
# Requests of a server that are answered at a time; none is needed for more than to ask whether we
# are there.
MAX_REQUESTS = 20
_READ_BYTES = 65_536
_MAX_SHOWN = 200  # characters of a line that is no message
# The id of an answer that cannot be parsed stands near its beginning or its end.
_EDGE_BYTES = 200
_ID = re.compile(rb'"id"\s*:\s*"?([\w.-]{1,100})')
# Seconds that a server has to end once its stdin is closed, and then after each signal.
_END_TIMEOUT = 2.0
_POLL_SECONDS = 0.01

Message = SessionMessage | Exception
Streams = tuple[Any, Any]  # of the SDK: one to read, one to write


class StdioServer(NamedTuple):
    """How a server over pipes is started."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    """Added to the few variables that the SDK hands on."""
    cwd: str | None
    stderr: IO[str]


@asynccontextmanager
async def open_limited(transport: AbstractAsyncContextManager[Streams]) -> AsyncGenerator[Streams]:
    """Open a transport of the SDK; requests of the server beyond `MAX_REQUESTS` that wait for an
    answer are dropped.
    """
    async with transport as (read_stream, write_stream):
        unanswered_ids = set[str | int]()
        yield (
            _LimitedReadStream(read_stream, unanswered_ids),
            _NotingWriteStream(write_stream, unanswered_ids),
        )


@asynccontextmanager
async def open_stdio(server: StdioServer) -> AsyncGenerator[Streams]:
    """Start a server and talk with it over its stdin and stdout; at the end it is stopped, with all
    that it started.

    A line of more than `MAX_MESSAGE` bytes ends the connection. Raises OSError if the server cannot
    be started.
    """
    process = subprocess.Popen(  # noqa: ASYNC220  it returns once the program is started
        server.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=server.stderr,
        env={**get_default_environment(), **server.env},
        cwd=server.cwd,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101  it is a pipe
    assert process.stdout is not None  # noqa: S101  it is a pipe
    stdin, stdout = process.stdin, process.stdout
    os.set_blocking(stdin.fileno(), False)
    os.set_blocking(stdout.fileno(), False)
    to_client, from_server = anyio.create_memory_object_stream[Message](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    lines = _Lines(server.name)

    async def read() -> None:
        async with to_client:
            async for line in _read_lines(stdout, server.name):
                message = lines.parse(line)
                if message is None:
                    await anyio.lowlevel.checkpoint()
                    continue
                try:
                    await to_client.send(SessionMessage(message))
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    return  # nobody listens any more

    async def write() -> None:
        try:
            async with from_client:
                async for message in from_client:
                    lines.note_sent(message.message)
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await _write(stdin, text.encode() + b"\n")
        except OSError:
            await to_client.aclose()  # else a request would wait for its answer forever

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield from_server, to_server
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await _stop(process)
                stdout.close()
                for stream in (to_client, from_server, to_server, from_client):
                    await stream.aclose()


class _Lines:
    """What the lines of a server say.

    The specification allows it nothing but messages on its stdout, and the SDK drops what is none.
    But programs greet, npm prints notices, and some log there, so such lines do no harm. Only one
    that was meant as an answer fails the request, which would otherwise wait for its whole time.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._waiting: dict[str, RequestId] = {}
        """The ids of requests that have no answer yet, by their texts: some servers make texts of
        numbers.
        """
        self._is_told = False

    def note_sent(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._waiting[str(message.id)] = message.id
        elif (
            isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled"
        ):
            self._waiting.pop(str((message.params or {}).get("requestId")), None)

    def parse(self, line: bytes) -> JSONRPCMessage | None:
        """Return the message of a line; an error in the place of an answer that is none, and None
        for any other line.
        """
        if not line.strip():
            return None
        reason = "no JSON object"
        if line.lstrip().startswith(b"{"):
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                fault = error.errors(include_url=False, include_context=False)[0]
                is_json = fault["type"] != "json_invalid"
                reason = "no message of JSON-RPC 2.0" if is_json else fault["msg"]
            else:
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._waiting.pop(str(message.id), None)
                return message
        beginning = shorten(line[:_MAX_SHOWN].decode(errors="replace"), _MAX_SHOWN)
        if not self._is_told:
            self._is_told = True
            log.warning("mcp.no_message", server=self._server, line=beginning, error=reason)
        id_ = self._find_request(line)
        if id_ is None:
            return None
        del self._waiting[str(id_)]
        problem = f"its answer is no message of MCP ({reason}); it begins with {beginning}"
        return JSONRPCError(
            jsonrpc="2.0", id=id_, error=ErrorData(code=PARSE_ERROR, message=problem)
        )

    def _find_request(self, line: bytes) -> RequestId | None:
        """Return the id of the request that a line without a message was to answer; None if it was
        meant for something else.
        """
        if not line.lstrip().startswith(b"{"):
            return None
        try:
            value = parse_json(line)
        except (ValueError, RecursionError):
            pass
        else:
            is_answer = "jsonrpc" in value and "method" not in value
            return self._waiting.get(str(value.get("id"))) if is_answer else None
        start, end = line[:_EDGE_BYTES], line[-_EDGE_BYTES:]
        if b'"method"' in start or not (b'"jsonrpc"' in start or b'"jsonrpc"' in end):
            return None
        texts = {match[1].decode() for part in (start, end) for match in _ID.finditer(part)}
        ids = [self._waiting[text] for text in texts if text in self._waiting]
        return ids[0] if len(ids) == 1 else None


async def _read_lines(stdout: IO[bytes], server: str) -> AsyncIterator[bytes]:
    """Yield the lines of a server until it closes its stdout, or one is too long."""
    line = bytearray()
    while True:
        await anyio.wait_readable(stdout)
        try:
            chunk = os.read(stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            continue
        if not chunk:
            return
        *line_ends, line_begin = chunk.split(b"\n")
        for line_end in line_ends:
            line += line_end
            yield bytes(line)
            line.clear()
        line += line_begin
        if len(line) > MAX_MESSAGE:
            log.warning("mcp.message_too_long", server=server, limit=MAX_MESSAGE)
            return


async def _write(stdin: IO[bytes], data: bytes) -> None:
    unwritten_data = memoryview(data)
    while unwritten_data:
        await anyio.wait_writable(stdin)
        try:
            unwritten_data = unwritten_data[os.write(stdin.fileno(), unwritten_data) :]
        except BlockingIOError:
            continue


async def _stop(process: subprocess.Popen[bytes]) -> None:
    """Close the stdin of a server, at which it should end; else end it and all of its group."""
    assert process.stdin is not None  # noqa: S101  it is a pipe
    with suppress(OSError):
        process.stdin.close()
    for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
        if signal_number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal_number)
        with anyio.move_on_after(_END_TIMEOUT):
            while not _has_ended(process, with_group=signal_number is not None):  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
            return


def _has_ended(process: subprocess.Popen[bytes], *, with_group: bool) -> bool:
    """Return whether a server has ended, `with_group`: and all of its group. What it has written
    meanwhile is thrown away, as one that waits to write more does not see that its stdin is closed.
    """
    assert process.stdout is not None  # noqa: S101  it is a pipe
    with suppress(BlockingIOError):
        os.read(process.stdout.fileno(), _READ_BYTES)
    if process.poll() is None:
        return False
    if not with_group:
        return True
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


class _NotedStream:
    """A stream of the SDK, and the ids of the requests of its server that are not answered yet."""

    def __init__(self, stream: Any, unanswered_ids: set[str | int]) -> None:
        self._stream, self._unanswered_ids = stream, unanswered_ids

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        is_handled: bool | None = await self._stream.__aexit__(kind, error, traceback)
        return is_handled


class _LimitedReadStream(_NotedStream):
    """The messages of a server, without the requests that are too many."""

    @property
    def last_context(self) -> Any:
        """The context variables of the sender of the last message, where the SDK notes them."""
        return getattr(self._stream, "last_context", None)

    def _accept(self, item: Message) -> bool:
        """Return whether a message is passed on, and note the id of a request."""
        if isinstance(item, Exception):
            return True
        message = item.message
        if isinstance(message, JSONRPCRequest):
            if len(self._unanswered_ids) >= MAX_REQUESTS or message.id in self._unanswered_ids:
                return False
            self._unanswered_ids.add(message.id)
        elif (
            isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled"
        ):
            id_ = (message.params or {}).get("requestId")
            if isinstance(id_, str | int):  # a request that is called off gets no answer
                self._unanswered_ids.discard(id_)
        elif isinstance(message, JSONRPCResponse):
            _remove_output_schemas(message.result)
        return True

    async def receive(self) -> Message:
        while True:
            item: Message = await self._stream.receive()
            if self._accept(item):
                return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _remove_output_schemas(result: dict[str, Any]) -> None:
    """Have a list of tools say nothing of what they answer.

    The SDK would hold each answer against that, here and now, and a pattern in it may take forever.
    We use no such promise of a server.
    """
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)


class _NotingWriteStream(_NotedStream):
    """What is sent to a server; notes which of its requests are answered."""

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._unanswered_ids.discard(message.id)
