"""The one client of the control API: HTTP/1.1 with JSON over a Unix socket.

Every `agentctl` starts with this module, so it imports next to nothing.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# For one answer: a reload of ten thousand files takes a few seconds.
TIMEOUT_SECONDS = 60.0
STREAM_TICK_SECONDS = 1.0
# Why no daemon could be reached at a path, by the error number of connect().
CONNECT_ERRORS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.ECONNREFUSED: "a daemon was here, but nobody listens any more",
    errno.EACCES: "you may not open it",
    errno.ENOTSOCK: "is not a socket",
    errno.EAGAIN: "a daemon is here but does not answer",
}


class Unreachable(Exception):
    """No daemon answers at any of the paths in `attempts`, each with the reason."""

    def __init__(self, *attempts: tuple[str, str]) -> None:
        self.attempts = attempts
        super().__init__(attempts)


class ConnectionLost(Exception):
    """The daemon went away in the middle of an answer."""


class ApiError(Exception):
    """The daemon answered with an error (RFC 9457): HTTP status, JSON body and its `code`."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.body = status, body
        self.code = str(body.get("code", ""))
        super().__init__(body.get("detail") or body.get("title") or f"HTTP status {status}")


class Client:
    """A client of the daemon behind one socket, with a connection per request.

    A daemon of another user is refused unless it `is_trusted`: the user named its socket, or the
    socket is in the folder that only root can make.
    """

    def __init__(self, socket_path: str, *, is_trusted: bool = False) -> None:
        self.socket_path, self.is_trusted = (
            socket_path,
            is_trusted or socket_path.startswith("/run/agentd/"),
        )
        self.version = ""
        """The version of the daemon, known after the first answer."""
        self._idle_connection: socket.socket | None = None
        """A connection that no request has used yet."""
        self._connection: socket.socket | None = None
        """The connection of the latest request."""
        self._is_closed = False

    @classmethod
    def open(cls, socket_path: str, *, is_trusted: bool = False) -> Client:
        """Return a client that has connected; raise Unreachable if there is no daemon."""
        client = cls(socket_path, is_trusted=is_trusted)
        client._idle_connection = client.connect()
        return client

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the JSON answer; raise Unreachable, ConnectionLost, or ApiError if refused."""
        return _parse_json(self.request_text(method, path, body, headers))

    def request_text(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Return the body of the answer as text; raise what `request` raises."""
        connection = self._send(method, path, body, headers)
        try:
            answer = _HttpAnswer(connection)
            text = answer.read_body().decode()
        finally:
            connection.close()
        self.version = answer.headers.get("agentd-version", "")
        if answer.status >= 400:
            is_json = "json" in answer.headers.get("content-type", "")
            raise ApiError(answer.status, _parse_json(text) if is_json else {})
        return text

    def stream(self, path: str, on_idle: Callable[[], None] | None = None) -> Iterator[Any]:
        """Begin a stream of server-sent events and return its events, until it ends.

        Nothing that happens after the call is missed. `on_idle` is called whenever a second has
        passed without an event.
        """
        connection = self._send("GET", path, None)
        try:
            answer = _HttpAnswer(connection)
            if answer.status >= 400:
                raise ApiError(answer.status, _parse_json(answer.read_body().decode()))
        except BaseException:
            connection.close()
            raise
        connection.settimeout(STREAM_TICK_SECONDS if on_idle else None)
        return self._events(connection, answer, on_idle)

    def _events(
        self, connection: socket.socket, answer: _HttpAnswer, on_idle: Callable[[], None] | None
    ) -> Iterator[Any]:
        try:
            for chunk in answer.read_chunks(on_idle):
                # not splitlines(), for which U+2028 and others within a text end a line, too
                for line in chunk.split(b"\n"):
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])
        finally:
            connection.close()

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
    ) -> socket.socket:
        connection, self._idle_connection = self._idle_connection or self.connect(), None
        self._connection = connection
        if self._is_closed:
            connection.close()
            raise ConnectionLost("the client was closed")
        data = json.dumps(body).encode() if body is not None else b""
        lines = [f"{name}: {value}\r\n" for name, value in (headers or {}).items()]
        head = (
            f"{method} {path} HTTP/1.1\r\n"
            "Host: agentd\r\n"
            "Connection: close\r\n"
            f"{''.join(lines)}"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        try:
            connection.sendall(head.encode() + data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a body that is too long is answered before its end; without an answer, reading
            # finds the connection closed
        except OSError as error:
            connection.close()
            raise ConnectionLost(self.socket_path) from error
        return connection

    def close(self) -> None:
        """End the answer under way, from any thread, and refuse further requests.

        A thread that waits for an answer gets ConnectionLost.
        """
        self._is_closed = True
        if self._idle_connection is not None:
            self._idle_connection.close()
            self._idle_connection = None
        if self._connection is not None:
            with suppress(OSError):  # it has been closed
                self._connection.shutdown(socket.SHUT_RDWR)

    def connect(self) -> socket.socket:
        """Open a connection; raise Unreachable if no daemon, or another user's, listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            connection.connect(self.socket_path)
        except OSError as error:
            connection.close()
            if error.errno is None:  # Python refuses "AF_UNIX path too long" before the kernel
                reason = "the path is too long for a socket"
            else:
                reason = CONNECT_ERRORS.get(error.errno, str(error.strerror))
            # Linux answers ECONNREFUSED for whatever is no socket.
            if error.errno == errno.ECONNREFUSED and (kind := _kind_of_file(self.socket_path)):
                reason = f"is {kind}, not a socket"
            raise Unreachable((self.socket_path, reason)) from None
        if not self.is_trusted and (uid := _foreign_uid(connection)) is not None:
            connection.close()
            reason = f"the daemon there belongs to another user (uid {uid})"
            raise Unreachable((self.socket_path, reason))
        return connection


def open_first(paths: Iterable[str], *, is_trusted: bool = False) -> Client:
    """Return a client for the first path where a daemon answers.

    Raise Unreachable with all paths that were tried.
    """
    attempts: list[tuple[str, str]] = []
    for socket_path in paths:
        try:
            return Client.open(socket_path, is_trusted=is_trusted)
        except Unreachable as error:
            attempts += error.attempts
    raise Unreachable(*attempts)


def _kind_of_file(path: str) -> str:
    """Return what is at a path, in words; empty for a socket, or if that is not known."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib takes 10 ms to import
    except OSError:
        return ""
    if stat.S_ISSOCK(mode):
        return ""
    return "a folder" if stat.S_ISDIR(mode) else "a file"


def _foreign_uid(connection: socket.socket) -> int | None:
    """Return the uid of a server that is neither ours nor root's, else None.

    Always None if we are root, or off Linux, which alone has SO_PEERCRED (unix(7)).
    """
    own_uid = os.geteuid()
    if own_uid == 0 or sys.platform != "linux":
        return None
    _pid, uid, _gid = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return uid if uid not in (own_uid, 0) else None


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ConnectionLost("what came back is not JSON") from None


class _HttpAnswer:
    """The status and headers of an HTTP answer, whose body is read from the socket on demand."""

    def __init__(self, connection: socket.socket) -> None:
        # no bytes: of these each piece that comes would copy all that came before
        self._connection, self._buffer = connection, bytearray()
        status_line, *lines = self._read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        _, _, status = status_line.partition(" ")
        if not (status_line.startswith("HTTP/") and status[:3].isdecimal()):
            raise ConnectionLost("what came back is not HTTP")
        self.status = int(status[:3])
        self.headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def read_body(self) -> bytes:
        """Return the whole body."""
        if "content-length" in self.headers:
            return self._read_exactly(int(self.headers["content-length"]))
        return b"".join(self.read_chunks(None))

    def read_chunks(self, on_idle: Callable[[], None] | None) -> Iterator[bytes]:
        """Yield the chunks of a body in chunked transfer coding (RFC 9112, 7.1)."""
        while size := int(self._read_until(b"\r\n", on_idle).split(b";")[0], 16):
            yield self._read_exactly(size, on_idle)
            self._read_until(b"\r\n", on_idle)

    def _read_until(self, delimiter: bytes, on_idle: Callable[[], None] | None = None) -> bytes:
        while (end := self._buffer.find(delimiter)) < 0:
            self._receive(on_idle)
        data = bytes(self._buffer[:end])
        del self._buffer[: end + len(delimiter)]
        return data

    def _read_exactly(self, size: int, on_idle: Callable[[], None] | None = None) -> bytes:
        while len(self._buffer) < size:
            self._receive(on_idle)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _receive(self, on_idle: Callable[[], None] | None) -> None:
        try:
            data = self._connection.recv(65536)
        except TimeoutError:
            if on_idle is None:
                raise ConnectionLost(f"no answer within {TIMEOUT_SECONDS:g} s") from None
            on_idle()
            return
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from error
        if not data:
            raise ConnectionLost("the connection was closed")
        self._buffer += data
