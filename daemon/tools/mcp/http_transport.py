"""The connection to an MCP server over HTTP, with limits to what the server may cost.

The SDK opens streams again as fast as a server closes them, reads the answer to a call that was
given up for as long as it goes on, and waits at the end for the answer to its goodbye.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from http.cookiejar import Cookie, CookieJar

import httpx2

from daemon.system.http_body import BodyDamaged, BodyTooLarge, limit_body

# Seconds that a server is given to say that it has heard of the end of its session, and of a
# message that has no answer: the SDK sends nothing else meanwhile.
END_TIMEOUT, HEARD_TIMEOUT = 1.0, 10.0
# Seconds before an answer that broke off is asked for again; the server may ask for more.
RESUME_SECONDS = 1.0
# Times that the answers to calls under way are asked for again.
MAX_RESUMED = 100
MAX_COOKIES, MAX_COOKIE_CHARACTERS = 50, 4_096


class McpHttpTransport(httpx2.AsyncBaseTransport):
    """Send what the SDK sends to a server through another transport.

    Of each answer at most `limit` bytes are read, four times as many of a stream of events, for
    `time_limit` seconds at most, and no longer than its call is waited for. What is more ends the
    call that it answers, and not the connection.
    """

    def __init__(
        self, transport: httpx2.AsyncBaseTransport, *, limit: int, time_limit: float
    ) -> None:
        self._transport, self._limit, self._time_limit = transport, limit, time_limit
        self._deadlines: dict[str | int, _Deadline] = {}
        """Those of the answers to requests of MCP, by the id of the request."""
        self._resumed_streams = 0
        """Streams of answers that were asked for again. The SDK closes those of a call together,
        once the call has ended.
        """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        is_resumed = request.method == "GET"
        if is_resumed:
            if "last-event-id" not in request.headers:
                # The stream of what a server says unasked. None of it is used, so a server without
                # such a stream is played.
                return httpx2.Response(405)
            if self._resumed_streams >= MAX_RESUMED:
                return httpx2.Response(503)
            await asyncio.sleep(RESUME_SECONDS)
        message = json.loads(request.content) if request.method == "POST" else {}
        id_: str | int | None = message.get("id") if "method" in message else None
        if request.method == "DELETE":
            seconds = END_TIMEOUT
        elif request.method == "POST" and id_ is None:
            seconds = HEARD_TIMEOUT
        else:
            seconds = self._time_limit
        deadline = _Deadline(seconds)
        if id_ is not None:
            self._deadlines[id_] = deadline
        if message.get("method") == "notifications/cancelled" and (
            cancelled_deadline := self._deadlines.get(message["params"]["requestId"])
        ):
            cancelled_deadline.end()

        def end() -> None:
            self._resumed_streams -= is_resumed
            if id_ is not None and self._deadlines.get(id_) is deadline:
                del self._deadlines[id_]

        self._resumed_streams += is_resumed
        try:
            async with deadline.limit():
                response = await self._transport.handle_async_request(request)
        except TimeoutError:
            end()
            return httpx2.Response(504)  # an error would end the connection, with all its calls
        except BaseException:
            end()
            raise
        headers = response.headers.copy()
        # httpx2 would take any codec of Python that a server names. _BoundedStream unpacks.
        if "content-type" in headers:
            kind = headers["content-type"].partition(";")[0]
            headers["content-type"] = f"{kind}; charset=utf-8"
        for name in ("content-encoding", "content-length"):
            headers.pop(name, None)
        return httpx2.Response(
            status_code=response.status_code,
            headers=headers,
            stream=_BoundedStream(response, self._limit, deadline, end),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Deadline:
    """Until when an answer is waited for."""

    def __init__(self, seconds: float) -> None:
        self._at = asyncio.get_running_loop().time() + seconds
        self._clock: asyncio.Timeout | None = None

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Raise TimeoutError inside at the deadline."""
        async with asyncio.timeout_at(self._at) as self._clock:
            try:
                yield
            finally:
                self._clock = None

    def end(self) -> None:
        """Bring the deadline forward to now."""
        self._at = asyncio.get_running_loop().time()
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(self._at)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer; `end` is called once it is closed."""

    def __init__(
        self, response: httpx2.Response, limit: int, deadline: _Deadline, end: Callable[[], None]
    ) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  of an asynchronous client
        self._stream, self._headers = response.stream, response.headers
        self._limit, self._deadline, self._end = limit, deadline, end
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(limit_body(self._stream, self._headers, self._limit)) as pieces:
            while True:
                try:
                    async with self._deadline.limit():
                        piece = await anext(pieces, None)
                except TimeoutError:
                    raise self._error("it did not end within the time limit") from None
                except (BodyTooLarge, BodyDamaged) as error:
                    raise self._error(str(error)) from error
                if piece is None:
                    return
                yield piece

    def _error(self, reason: str) -> Exception:
        """Return the error by which the SDK ends the call that is answered; any other would end the
        connection, or have it ask for the answer again.
        """
        is_stream = self._headers.get("content-type", "").startswith("text/event-stream")
        return httpx2.SSEError(reason) if is_stream else httpx2.StreamError(reason)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._end()
        await self._stream.aclose()


class FewCookies(CookieJar):
    """The cookies of one server, which may set new ones with each answer: they do not pile up."""

    def set_cookie(self, cookie: Cookie) -> None:
        if len(cookie.name) + len(cookie.value or "") > MAX_COOKIE_CHARACTERS:
            return
        if len(self) >= MAX_COOKIES:
            self.clear()
        super().set_cookie(cookie)
