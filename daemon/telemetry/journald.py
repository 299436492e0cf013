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
PATIENCE = 0.2  # seconds that a line waits for a journal that is busy; the log file has it anyway
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
        about = os.fstat(stream.fileno())
        return (about.st_dev, about.st_ino) == (int(device), int(inode))
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
        if value is None or key in (
            "at",
            "level",
            "exception",
        ):  # said by the journal itself, or in the message
            continue
        name = "AGENTD_" + re.sub(r"[^A-Z0-9_]", "_", key.upper())
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        fields[name[:MAX_NAME_LENGTH]] = text
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


class Journald:
    """A socket to the journal, opened with the first line."""

    def __init__(self, path: str = SOCKET, *, redact: Callable[[str], str] = str) -> None:
        self._path, self._redact = path, redact
        self._socket: socket.socket | None = None
        self._patience = PATIENCE

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
            # one that was too busy for the line before is not waited for: the daemon must not stand
            # still for its log
            self._socket.settimeout(self._patience)
            self._patience = 0.0
            self._deliver(self._socket, data)
            self._patience = PATIENCE
        except OSError:
            return False
        return True

    def _deliver(self, channel: socket.socket, data: bytes) -> None:
        try:
            channel.sendto(data, self._path)
        except OSError as error:
            if error.errno not in _TOO_LARGE or not hasattr(os, "memfd_create"):
                raise
            file = os.memfd_create("agentd-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                with open(file, "wb", closefd=False) as memory:
                    memory.write(data)
                fcntl.fcntl(
                    file, fcntl.F_ADD_SEALS, _SEALS
                )  # the journal takes only what can change no more
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))
                channel.sendmsg([], [rights], 0, self._path)
            finally:
                os.close(file)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
