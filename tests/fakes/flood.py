"""A server on a real loopback socket whose answers have no end, or are larger than anybody wants.

    async with Flood("chunks") as flood:
        provider = create_provider("open_source", base_url=f"{flood.url}/v1", model="local",
        max_answer_mb=1)
        flood.requests, flood.sent_bytes

Each kind of answer ends by itself after `most` bytes, so that a client without a bound survives it.
`sent` counts what the server could get rid of, which includes what the system's buffers hold: some
megabytes.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from functools import cache
from itertools import chain, repeat
from typing import Self

MEGABYTE = 1_000_000
BLOCK = b"x" * 65_536


def _head(*lines: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"content-type: {kind}", *lines, "", ""]).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(body: bytes, *lines: str) -> list[bytes]:
    return [_head(f"content-length: {len(body)}", *lines), body]


@cache
def gzip_spaces(size: int) -> bytes:
    """Return a JSON text of so many bytes, nearly all of them spaces, as gzip packs it: a
    thousandth of that.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    blocks = [packer.compress(b" " * MEGABYTE) for _ in range(size // MEGABYTE)]
    return b"".join([*blocks, packer.compress(b"{}"), packer.flush()])


def answers(kind: str, most: int) -> Iterator[bytes]:
    """Yield one answer in the pieces in which it is sent, until its connection is closed or `most`
    bytes are gone.
    """
    chunked_header, stream_type = "transfer-encoding: chunked", "text/event-stream"
    beginning = b'{"id": "1", "choices": [{"message": {"role": "assistant", "content": "'
    blocks = repeat(_chunk(BLOCK))
    match kind:
        case "chunks":
            return chain([_head(chunked_header), _chunk(beginning)], blocks)
        case "to the end of the connection":
            return chain([_head("connection: close"), beginning], repeat(BLOCK))
        case "a huge length":
            return chain([_head(f"content-length: {10**12}"), beginning], repeat(BLOCK))
        case "a length of many digits":
            return chain([_head(f"content-length: {'9' * 18}"), beginning], repeat(BLOCK))
        case "an error":
            return chain([_head(chunked_header, status="500 Internal Server Error")], blocks)
        case "packed":
            return iter(_whole(gzip_spaces(most), "content-encoding: gzip"))
        case "a packed error":
            body = gzip_spaces(most)
            head = _head(
                f"content-length: {len(body)}", "content-encoding: gzip", status="400 Bad Request"
            )
            return iter([head, body])
        case "packed to nothing":  # empty blocks of gzip, which unpack to not one byte
            empty = zlib.compressobj(0, zlib.DEFLATED, zlib.MAX_WBITS | 16)
            begin = empty.compress(b"{") + empty.flush(zlib.Z_SYNC_FLUSH)
            nothing = _chunk(b"\x00\x00\x00\xff\xff" * 13_000)
            return chain(
                [_head(chunked_header, "content-encoding: gzip"), _chunk(begin)], repeat(nothing)
            )
        case "one line":
            return chain(
                [_head(chunked_header, kind=stream_type), _chunk(b"data: " + beginning)], blocks
            )
        case "tiny events":
            events = (
                b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}], "type": "ping"}\n\n'
                * 800
            )
            return chain([_head(chunked_header, kind=stream_type)], repeat(_chunk(events)))
        case "comments":
            return chain(
                [_head(chunked_header, kind=stream_type)],
                repeat(_chunk(b": keep-alive\n\n" * 4_000)),
            )
        case "headers":
            return chain([b"HTTP/1.1 200 OK\r\n"], repeat(b"x-more: " + b"x" * 1000 + b"\r\n"))
        case "interim answers":
            return repeat(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 500)
        case "trailers":
            return chain(
                [_head(chunked_header), b"2\r\n{}\r\n0\r\n"],
                repeat(b"x-more: " + b"x" * 1000 + b"\r\n"),
            )
        case "extensions of chunks":
            return chain([_head(chunked_header)], repeat(b"1;" + b"x" * 60_000 + b"\r\n{\r\n"))
        case "deep":
            return iter(_whole(b"[" * most))
        case "many values":
            return iter(_whole(b'{"choices": [' + b"[]," * (most // 3) + b"[]]}"))
        case "a long number":
            return iter(_whole(b'{"choices": ' + b"1" * most + b"}"))
        case "a text":
            content = "All is well. " * (most // 13)
            body = {
                "id": "1",
                "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
            }
            return iter(_whole(json.dumps(body).encode()))
    raise ValueError(kind)


class Flood:
    """The server, living in the event loop of its test; `most` are the bytes after which it ends an
    answer itself.
    """

    def __init__(self, kind: str, *, most: int = 64 * MEGABYTE) -> None:
        self.kind, self.most = kind, most
        self.requests = 0
        """How often a model was asked; who asks for the list of models, as the doctor does, is not
        counted.
        """
        self.sent_bytes = 0
        """Bytes of the last answer that the server could get rid of."""
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async for method in _methods(reader):
                self.requests += method == "post"
                self.sent_bytes = 0
                for piece in answers(self.kind, self.most):
                    writer.write(piece)
                    await writer.drain()
                    self.sent_bytes += len(piece)
                    if self.sent_bytes >= 1.2 * self.most:
                        return
        except OSError:
            pass  # the client has closed the connection, which is what it should do
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


async def _methods(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the method of each request on a connection, in small letters."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next(
            (int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0
        )
        await reader.readexactly(length)
        yield lines[0].partition(" ")[0]
