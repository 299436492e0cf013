"""Log lines for systemd's journal, with fields to search by: `journalctl
AGENTD_ROUTINE=daily-report`.

The native protocol, without a library: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/. One datagram is
one line; what is too large for a datagram goes as a sealed file in memory, whose descriptor is sent
instead.
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Mapping
from typing import IO, Any

SOCKET = "/run/systemd/journal/socket"
# As syslog counts: what `journalctl -p warning` compares with.
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
MAX_NAME_LENGTH = 64  # characters; a longer one makes the journal drop the field
SEND_TIMEOUT = 0.2  # seconds that a line waits for a busy journal; the log file has the line anyway
_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    if hasattr(fcntl, "F_SEAL_SEAL")
    else 0
)


def is_journal_stream(stream: IO[str], env: Mapping[str, str]) -> bool:
    """Tell whether a stream is connected to the journal: $JOURNAL_STREAM has its device and
    inode.
    """
    try:
        device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
        status = os.fstat(stream.fileno())
        return (status.st_dev, status.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):  # no such variable, or a stream without a descriptor
        return False


def fields_of(record: Mapping[str, Any], message: str) -> dict[str, str]:
    """Return a log record as the journal's fields; `message` is the line for people."""
    fields = {
        "MESSAGE": message,
        "PRIORITY": str(PRIORITIES.get(str(record.get("level")), 6)),
        "SYSLOG_IDENTIFIER": "agentd",
    }
    for key, value in record.items():
        # The journal has its own time and the priority; the exception is in the message.
        if value is None or key in ("at", "level", "exception"):
            continue
        name = "AGENTD_" + re.sub(r"[^A-Z0-9_]", "_", key.upper())
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, default=str)
        fields[name[:MAX_NAME_LENGTH]] = value
    return fields


def encode_fields(fields: Mapping[str, str]) -> bytes:
    """Return fields as a datagram: a value of several lines has its length before it."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="replace")
        if b"\n" in value:
            parts.append(b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(value)), value))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), value))
    return b"".join(parts)


class JournalSocket:
    """A connection to systemd's journal, opened with the first line. Not safe between threads."""

    def __init__(self, path: str = SOCKET, *, redact: Callable[[str], str] = str) -> None:
        self._path, self._redact = path, redact
        self._socket: socket.socket | None = None
        self._timeout = SEND_TIMEOUT

    def send(self, record: Mapping[str, Any], message: str) -> bool:
        """Send a record; return False if the journal does not take it."""
        data = encode_fields(
            {name: self._redact(text) for name, text in fields_of(record, message).items()}
        )
        try:
            if self._socket is None:
                self._socket = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
                )
            # After a line that the journal did not take in time, no line waits until one was taken:
            # the daemon must not stand still for its log.
            self._socket.settimeout(self._timeout)
            self._timeout = 0.0
            self._deliver(self._socket, data)
            self._timeout = SEND_TIMEOUT
        except OSError:
            return False
        return True

    def _deliver(self, channel: socket.socket, data: bytes) -> None:
        """Send a datagram, or a sealed file with its content if it is too large for one."""
        try:
            channel.sendto(data, self._path)
        except OSError as error:
            if error.errno not in _TOO_LARGE or not hasattr(os, "memfd_create"):
                raise
            descriptor = os.memfd_create("agentd-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                with open(descriptor, "wb", closefd=False) as memory:
                    memory.write(data)
                # The journal takes only a file that nobody can change any more.
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
                channel.sendmsg([], [rights], 0, self._path)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
