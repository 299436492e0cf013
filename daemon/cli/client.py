"""The one client of the control API: a socket and JSON.

It starts with every `agentctl`, so it imports next to nothing.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

PATIENCE = 60.0  # seconds for one answer: a reload of ten thousand files takes a few
# What connecting may come to, in words for the person who looked there.
NOT_THERE = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.ECONNREFUSED: "a daemon was here, but nobody listens any more",
    errno.EACCES: "you may not open it",
    errno.ENOTSOCK: "is not a socket",
    errno.EAGAIN: "a daemon is here but does not answer",
}


class Unreachable(Exception):
    """No daemon answers at any of the places looked at: path and why."""

    def __init__(self, *tried: tuple[str, str]) -> None:
        self.tried = tried
        super().__init__(tried)


class Lost(Exception):
    """The daemon went away in the middle of an answer."""


class Problem(Exception):
    """The daemon answered that it cannot do it."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.body = status, body
        self.code = str(body.get("code", ""))
        super().__init__(body.get("detail") or body.get("title") or f"HTTP status {status}")


class Client:
    """Speaks to the daemon behind one socket; a connection per request.

    A daemon of another user is a stranger, unless the user named its socket, or root has made its
    folder.
    """

    def __init__(self, path: str, *, named: bool = False) -> None:
        self.path, self.is_trusted = path, named or path.startswith("/run/agentd/")
        self.version = ""
        """The daemon's, known after the first answer."""
        self._spare: socket.socket | None = None
        """A connection that is open already."""
        self._connection: socket.socket | None = None
        """Of the last request."""
        self._has_hung_up = False

    @classmethod
    def at(cls, path: str, *, named: bool = False) -> Client:
        """Return a client that has got through once; Unreachable if there is no daemon."""
        client = cls(path, named=named)
        client._spare = client.connect()
        return client

    def ask(self, method: str, target: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer. Unreachable, Lost, or Problem if the daemon says no."""
        return _json_of(self.text(method, target, body))

    def text(self, method: str, target: str, body: Mapping[str, Any] | None = None) -> str:
        """Return the answer as it came."""
        connection = self._request(method, target, body)
        try:
            answer = _Answer(connection)
            text = answer.rest().decode()
        finally:
            connection.close()
        self.version = answer.headers.get("agentd-version", "")
        if answer.status >= 400:
            raise Problem(
                answer.status,
                _json_of(text) if "json" in answer.headers.get("content-type", "") else {},
            )
        return text

    def stream(self, target: str, tick: Callable[[], None] | None = None) -> Iterator[Any]:
        """Yield the events of a stream until it ends; `tick` is called whenever a second has passed
        without one.
        """
        connection = self._request("GET", target, None)
        try:
            answer = _Answer(connection)
            if answer.status >= 400:
                raise Problem(answer.status, _json_of(answer.rest().decode()))
            connection.settimeout(1.0 if tick else None)
            for frame in answer.frames(tick):
                for line in frame.decode().splitlines():
                    if line.startswith("data: "):
                        yield json.loads(line[6:])
        finally:
            connection.close()

    def _request(self, method: str, target: str, body: Mapping[str, Any] | None) -> socket.socket:
        connection, self._spare = self._spare or self.connect(), None
        self._connection = connection
        if self._has_hung_up:
            connection.close()
            raise Lost("the client has hung up")
        data = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: agentd\r\nConnection: close\r\nContent-Length: "
            f"{len(data)}\r\n\r\n"
        )
        try:
            connection.sendall(head.encode() + data)
        except OSError as error:
            connection.close()
            raise Lost(self.path) from error
        return connection

    def hang_up(self) -> None:
        """End the answer under way, from any thread, and refuse more requests: whoever waits for
        one gets Lost.
        """
        self._has_hung_up = True
        if self._connection is not None:
            with suppress(OSError):  # it has been closed
                self._connection.shutdown(socket.SHUT_RDWR)

    def connect(self) -> socket.socket:
        """Open a connection; Unreachable if there is no daemon, or one of a stranger."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(self.path)
        except OSError as error:
            connection.close()
            long = (
                error.errno is None
            )  # "AF_UNIX path too long" is refused before the kernel is asked
            why = (
                "the path is too long for a socket"
                if long
                else NOT_THERE.get(error.errno or 0, str(error.strerror))
            )
            raise Unreachable((self.path, why)) from None
        if not self.is_trusted and (stranger := _stranger(connection)) is not None:
            connection.close()
            raise Unreachable(
                (self.path, f"the daemon there belongs to another user (uid {stranger})")
            )
        return connection


def find(places: Iterable[str], *, named: bool = False) -> Client:
    """Return a client for the first place where a daemon answers.

    Unreachable names all that were tried.
    """
    tried: list[tuple[str, str]] = []
    for place in places:
        try:
            return Client.at(place, named=named)
        except Unreachable as error:
            tried += error.tried
    raise Unreachable(*tried)


def _stranger(connection: socket.socket) -> int | None:
    """Return the uid of a server that is neither ours nor root's; root may speak to anybody's."""
    own = os.geteuid()
    if own == 0 or sys.platform != "linux":
        return None
    _pid, uid, _gid = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return uid if uid not in (own, 0) else None


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Lost("what came back is not JSON") from None


class _Answer:
    """An HTTP answer, read as far as it has been asked for."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer = connection, b""
        first, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        self.status = int(first.split(" ", 2)[1])
        self.headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def rest(self) -> bytes:
        """Return the whole body."""
        if "content-length" in self.headers:
            return self._exactly(int(self.headers["content-length"]))
        return b"".join(self.frames(None))

    def frames(self, tick: Callable[[], None] | None) -> Iterator[bytes]:
        """Yield the chunks of a body whose end is not known yet (RFC 9112, 7.1)."""
        while size := int(self._until(b"\r\n", tick).split(b";")[0], 16):
            yield self._exactly(size)
            self._until(b"\r\n")

    def _until(self, mark: bytes, tick: Callable[[], None] | None = None) -> bytes:
        while mark not in self._buffer:
            self._more(tick)
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more(None)
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _more(self, tick: Callable[[], None] | None) -> None:
        try:
            data = self._connection.recv(65536)
        except TimeoutError:
            if tick is None:
                raise Lost(f"no answer within {PATIENCE:g} s") from None
            tick()
            return
        except OSError as error:
            raise Lost(str(error)) from error
        if not data:
            raise Lost("the connection was closed")
        self._buffer += data
