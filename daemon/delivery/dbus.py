"""As much D-Bus as a notification takes: call a method of the session bus and read its answer.

https://dbus.freedesktop.org/doc/dbus-specification.html. Little-endian, no file descriptors, and of the types only
those that notifications use: s u i b, as, a{sv}.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

_CALL, _RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY, _DESTINATION, _SENDER, _SIGNATURE = range(1, 9)
# Longer answers are none to what we ask.
_LONGEST = 1 << 20


class BusError(Exception):
    """The bus, or who was called on it, refused."""


def session_address(env: Mapping[str, str], uid: int) -> str | None:
    """Return where the session bus of a user listens, if there is a sign of one."""
    if address := env.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    folder = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    return f"unix:path={folder}/bus" if os.path.exists(f"{folder}/bus") else None  # noqa: PTH110 - no Path for a probe


class Bus:
    """One connection to a bus."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._serial = reader, writer, 0

    @classmethod
    async def connect(cls, address: str) -> Bus:
        """Connect and say hello; OSError or BusError."""
        bus = cls(*await _open(address))
        try:
            await bus._authenticate()
            await bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
        except BaseException:
            bus.close()
            raise
        return bus

    def close(self) -> None:
        self._writer.close()

    async def call(self, to: str, path: str, interface: str, member: str, signature: str = "", *values: Any) -> Any:
        """Call a method and return the first value of its answer, None without one; BusError if it refuses."""
        self._serial += 1
        body = _Writer()
        for each, value in zip(_split(signature), values, strict=True):
            body.put(each, value)
        fields = [(_PATH, "o", path), (_INTERFACE, "s", interface), (_MEMBER, "s", member), (_DESTINATION, "s", to)]
        fields += [(_SIGNATURE, "g", signature)] if signature else []
        self._writer.write(_message(self._serial, fields, bytes(body.data)))
        await self._writer.drain()
        while True:
            kind, told, answer = await self._read()
            if told.get(_REPLY) != self._serial or kind not in (_RETURN, _ERROR):
                continue  # a signal, such as the name we were given
            if kind == _ERROR:
                raise BusError(f"{told.get(_ERROR_NAME)}: {answer}" if answer else str(told.get(_ERROR_NAME)))
            return answer

    async def _authenticate(self) -> None:
        uid = str(os.getuid()).encode().hex()
        self._writer.write(b"\0AUTH EXTERNAL " + uid.encode() + b"\r\n")
        await self._writer.drain()
        answer = await self._reader.readline()
        if not answer.startswith(b"OK"):
            raise BusError(f"it does not let us in ({answer.decode(errors='replace').strip() or 'no answer'})")
        self._writer.write(b"BEGIN\r\n")

    async def _read(self) -> tuple[int, dict[int, Any], Any]:
        """Return the kind of the next message, its fields and the first value of its body."""
        try:
            head = await self._reader.readexactly(16)
            order = {b"l": "<", b"B": ">"}.get(head[:1], "")
            if not order:
                raise BusError("it speaks another language")
            (size,), (length,) = (struct.unpack_from(f"{order}I", head, at) for at in (4, 12))
            if size > _LONGEST or length > _LONGEST:
                raise BusError("an answer is longer than any to what was asked")
            fields = _Reader(order, await self._reader.readexactly(length + -length % 8)).fields(length)
            body = await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise BusError("the connection was closed") from None
        kinds = _split(fields.get(_SIGNATURE, ""))
        with suppress(struct.error, IndexError, UnicodeDecodeError):
            return head[1], fields, _Reader(order, body).get(kinds[0]) if kinds else None
        return head[1], fields, None


async def _open(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address of a list that is a Unix socket and answers."""
    trouble: OSError = FileNotFoundError(f"no Unix socket in {address!r}")
    for one in address.split(";"):
        transport, _, rest = one.partition(":")
        keys = dict(pair.split("=", 1) for pair in rest.split(",") if "=" in pair)
        place = keys.get("path") or ("abstract" in keys and f"\0{keys['abstract']}") or ""
        if transport != "unix" or not place:
            continue
        try:
            return await asyncio.open_unix_connection(unquote(place))
        except OSError as error:
            trouble = error
    raise trouble


def _split(signature: str) -> list[str]:
    """Return the single types of a signature of those we know."""
    kinds, rest = [], signature
    while rest:
        kind = "a{sv}" if rest.startswith("a{sv}") else rest[:2] if rest.startswith("a") else rest[0]
        kinds.append(kind)
        rest = rest[len(kind) :]
    return kinds


def _message(serial: int, fields: list[tuple[int, str, str]], body: bytes) -> bytes:
    head = _Writer()
    for code, kind, value in fields:
        head.align(8)
        head.data += bytes([code])
        head.put("g", kind)
        head.put(kind, value)
    start = struct.pack("<cBBBIII", b"l", _CALL, 0, 1, len(body), serial, len(head.data))
    return start + bytes(head.data) + bytes(-len(head.data) % 8) + body


class _Writer:
    """Puts values one after another, each where it belongs."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, to: int) -> None:
        self.data += bytes(-len(self.data) % to)

    def put(self, kind: str, value: Any) -> None:
        match kind:
            case "u" | "i":
                self.align(4)
                self.data += struct.pack("<I" if kind == "u" else "<i", value)
            case "y":
                self.data += bytes([value])
            case "s" | "o":
                text = value.replace("\0", "").encode(errors="replace")
                self.put("u", len(text))
                self.data += text + b"\0"
            case "g":
                self.data += bytes([len(value)]) + value.encode() + b"\0"
            case "as" | "a{sv}":
                self._array(kind, value)
            case _:
                raise ValueError(f"no type {kind} here")

    def _array(self, kind: str, values: Any) -> None:
        self.put("u", 0)
        at = len(self.data) - 4
        if kind == "a{sv}":
            self.align(8)
        begin = len(self.data)
        for each in values:
            if kind == "as":
                self.put("s", each)
                continue
            variant, value = values[each]
            self.align(8)
            self.put("s", each)
            self.put("g", variant)
            self.put(variant, value)
        struct.pack_into("<I", self.data, at, len(self.data) - begin)


class _Reader:
    """Takes values one after another."""

    def __init__(self, order: str, data: bytes) -> None:
        self._order, self._data, self._at = order, data, 0

    def _align(self, to: int) -> None:
        self._at += -self._at % to

    def get(self, kind: str) -> Any:
        match kind:
            case "u" | "i" | "b":
                self._align(4)
                self._at += 4
                return struct.unpack_from(self._order + ("i" if kind == "i" else "I"), self._data, self._at - 4)[0]
            case "s" | "o":
                return self._text(self.get("u"))
            case "g":
                self._at += 1
                return self._text(self._data[self._at - 1])
            case "as":
                size = self.get("u")
                end = self._at + size
                found = []
                while self._at < end:
                    found.append(self.get("s"))
                return found
        return None  # of other types nothing is asked

    def _text(self, size: int) -> str:
        begin, self._at = self._at, self._at + size + 1
        return self._data[begin : begin + size].decode()

    def fields(self, length: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        while self._at < length:
            self._align(8)
            code = self._data[self._at]
            self._at += 1
            found[code] = self.get(self.get("g"))
        return found
