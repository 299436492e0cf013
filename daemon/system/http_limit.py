"""Limit the size of responses that an SDK reads through its httpx2 client.

Responses that this program reads itself are limited by http_body.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2

from daemon.system.http_body import limited


def limit_response(response: httpx2.Response, limit: int) -> None:
    """Let at most `limit` bytes of the body be read, packed or unpacked; for an event hook on
    responses.

    A reader of more gets the errors of `http_body.limited`. The bodies of error responses, which
    SDKs read too, are limited in the same way.
    """
    response.stream = _LimitedStream(response, limit)
    # _LimitedStream unpacks the body.
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, limit: int) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  of an asynchronous client
        self._stream, self._headers, self._limit = response.stream, response.headers.copy(), limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(limited(self._stream, self._headers, self._limit)) as pieces:
            async for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
