"""Structured logs: one JSON line per event to a rotated file, and a line for people to the console;
secrets are redacted.

Where the console is systemd's journal, it gets fields instead of a line with colours
(`journald.py`).

Packages log by `structlog.get_logger()`; event names are `package.past_tense` (`run.finished`) with
plain fields. `run`, `routine` and `slot` are bound once, in `runs/run.py`, by
`structlog.contextvars.bound_contextvars`. What libraries say through the standard `logging` goes
the same way, from `warning` up.

A line that somebody outside can cause as often as they like is logged with `counted=`, a text that
is equal for lines of one kind. One line of a kind is written a minute, and the next one has the
number of those left out (`repeated`). All lines of libraries are counted. Other warnings and errors
are counted once BURST lines of the same event, routine and place in the code came in a minute.
So a fault that repeats itself without end does not push the log of the last day out of its files.

structlog is imported by `configure` only, as `agentctl logs` needs no more than `format_line`.
"""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from daemon.errors import ConfigError, Fault
from daemon.telemetry.journald import SOCKET, JournalSocket, is_journal_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from pathlib import Path

    from daemon.telemetry.console import EventConsole
    from daemon.telemetry.redaction import Secrets

LEVELS = ("debug", "info", "warning", "error", "critical")
# A line takes some 200 bytes: 10 MB hold about 8,000 runs.
MAX_BYTES = 10_000_000
KEEP = 5  # rotated files beside the current one
# Seconds in which one counted line of a kind is written, and how many kinds are told apart.
REPEAT_INTERVAL = 60.0
MAX_KINDS = 500
# Warnings and errors of one kind that are written in a minute before they are counted.
BURST = 20
# How many kinds of them are told apart: each may be of another routine.
MAX_BURST_KINDS = 5000

_COLOURS = {
    "debug": "\x1b[2m",
    "info": "\x1b[32m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[1;31m",
}
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
# Keys of the run, which stand behind the event's name.
_LEADING_KEYS = ("routine", "run", "slot")
_FAULTS = frozenset({"warning", "error", "critical"})
_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")
# Shown at the front of a line, or below it, and not as `key=value`.
_KEYS_WITHOUT_NAME = frozenset({"at", "level", "event", "exception"})


def configure(
    *,
    level: str,
    console: bool,
    file: Path | None,
    secrets: Secrets,
    max_bytes: int = MAX_BYTES,
    keep: int = KEEP,
    env: Mapping[str, str] | None = None,
    journal: str = SOCKET,
    monotonic: Callable[[], float] = time.monotonic,
    event_console: EventConsole | None = None,
) -> None:
    """Send all logs of this process to `file` and, with `console`, to stderr; may be called again
    to change that. `keep` is the number of rotated files that are kept.

    `env` tells whether stderr is systemd's journal, which listens on `journal`. With an
    `event_console`, that writes the lines for the console; it stays open over another call.
    """
    import structlog

    if level not in LEVELS:
        message = f"log level {level!r} is none of {', '.join(LEVELS)}"
        raise ValueError(message)
    threshold = getattr(logging, level.upper())
    output = _Output(
        secrets,
        file=_RotatedFile(file, max_bytes=max_bytes, keep=keep) if file else None,
        console=sys.stderr if console else None,
        journal=JournalSocket(journal, redact=secrets.redact)
        if console and is_journal_stream(sys.stderr, env or {})
        else None,
        repeats=RepeatedLines(monotonic),
        event_console=event_console,
    )
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _make_record],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: output,
        # a logger that is cached would keep the level and file of its first use over a reload
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for old_handler in [
        handler for handler in root.handlers if isinstance(handler, _LibraryHandler)
    ]:
        root.removeHandler(old_handler)
        old_handler.output.close()
    root.addHandler(_LibraryHandler(output, level=max(threshold, logging.WARNING)))


def is_level_enabled(level: int) -> bool:
    """Tell whether lines of a level are written, without making a logger."""
    import structlog

    wrapper = structlog.get_config()["wrapper_class"]
    try:
        return bool(wrapper.is_enabled_for(None, level))
    except AttributeError:
        # A program that uses us as a library may log by another class, which decides for itself.
        return True


def wants_colour(stream: IO[str]) -> bool:
    """Tell whether text for this stream may carry colour (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def format_line(record: dict[str, Any], *, colour: bool) -> str:
    """Return one log record as a line for a person, in local time; a traceback follows on lines of
    its own.
    """
    dim, bold, reset = (_DIM, _BOLD, _PLAIN) if colour else ("", "", "")
    level = str(record.get("level", "info"))
    level_colour = _COLOURS.get(level, "") if colour else ""
    text = _format_fields(record, dim, bold, reset)
    return f"{dim}{_local_time(record.get('at'))}{reset} {level_colour}{level:<8}{reset} {text}"


def _format_fields(
    record: Mapping[str, Any], dim: str = "", bold: str = "", reset: str = ""
) -> str:
    """Return event, fields and traceback of a record, without time and level."""
    fields = "".join(
        f" {dim}{key}={reset}{_format_value(value)}"
        for key, value in record.items()
        if key not in _KEYS_WITHOUT_NAME and value is not None
    )
    event = _escape_unprintable(str(record.get("event", "")))
    text = f"{bold}{event}{reset}{fields}"
    if record.get("exception"):
        text += "\n" + _escape_unprintable(str(record["exception"]))
    return text


def _local_time(at: object) -> str:
    try:
        return datetime.fromisoformat(str(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return str(at or "")


def _format_value(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable():
        needs_quotes = any(mark in value for mark in ' "=')
        if not needs_quotes:
            return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    # The result of a tool may hold escape sequences: a terminal must show them, not obey them.
    return text if text.isprintable() else json.dumps(value, default=str)


def _escape_unprintable(text: str) -> str:
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )


def _format_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _make_record(
    _logger: object, method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[MutableMapping[str, Any]], dict[str, Any]]:
    """Make the record of an event, as the last processor of structlog: the arguments for _Output.

    Time, level, event and the keys of _LEADING_KEYS come first; `exc_info` becomes text. Raises
    DropEvent for an event of a replay: it was logged when the run was recorded.
    """
    if "replay" in event:
        from structlog import DropEvent

        raise DropEvent
    level = {"exception": "error", "warn": "warning"}.get(method, method)
    record = {
        "at": _format_time(datetime.now(UTC)),
        "level": level,
        "event": event.pop("event", ""),
    }
    for key in _LEADING_KEYS:
        if key in event:
            record[key] = event.pop(key)
    exc_info = event.pop("exc_info", None)
    if exc_info is True:
        exc_info = sys.exc_info()
    error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if "counted" in event:  # by `_Output`, within its event
        event["counted"] = f"{record['event']} {event['counted']}"
    elif level in _FAULTS:
        place = _place_of(error) if isinstance(error, BaseException) else ""
        event["burst"] = f"{record['event']} {record.get('routine', '')} {place}"
    record.update(event)
    if isinstance(error, BaseException):
        record["exception"] = _format_traceback(error)
    return (record,), {}


def _place_of(error: BaseException) -> str:
    """Return the type of an error and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    if not frames:
        return repr(type(error))
    return f"{type(error).__qualname__} {frames[0].filename}:{frames[0].lineno}"


def _format_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


class RepeatedLines:
    """Decide which counted lines are written: the first of a kind, and a minute later the last of
    those that came meanwhile, with their number.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kinds: dict[str, tuple[float, int, dict[str, Any]]] = {}
        """By kind: when its minute is over, how many lines were not written in it, and the last of
        these.
        """
        self._bursts: dict[str, tuple[float, int]] = {}
        """By kind: when its minute is over, and how many lines were written in it."""
        self._lock = threading.Lock()

    def count_burst(self, kind: str) -> bool:
        """Count a line; return whether it is one of the first BURST of its kind in this minute."""
        with self._lock:
            if kind in self._kinds:
                return False  # it goes on, and is counted
            now = self._monotonic()
            if len(self._bursts) >= MAX_BURST_KINDS:
                self._bursts = {
                    other_kind: (end, count)
                    for other_kind, (end, count) in self._bursts.items()
                    if end > now
                }
                if len(self._bursts) >= MAX_BURST_KINDS:
                    kind = ""
            end, count = self._bursts.get(kind, (0.0, 0))
            if now >= end:
                end, count = now + REPEAT_INTERVAL, 0
            self._bursts[kind] = (end, count + 1)
            return count < BURST

    def count_repeat(self, kind: str, record: dict[str, Any]) -> bool:
        """Count a line; return whether it is the first of its kind in this minute."""
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
                kind = ""  # all further kinds count as one, so that memory is bounded
            if kind in self._kinds:
                end, count, _ = self._kinds[kind]
                self._kinds[kind] = (end, count + 1, record)
                return False
            self._kinds[kind] = (self._monotonic() + REPEAT_INTERVAL, 0, record)
            return True

    def pop(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Return a line for each kind whose minute is over and that was repeated in it; another
        minute begins then.
        """
        if not self._kinds:
            return []
        with self._lock:
            now, lines = self._monotonic(), []
            due_kinds = [
                kind for kind, (end, _, _) in self._kinds.items() if everything or now >= end
            ]
            for kind in due_kinds:
                _, count, record = self._kinds.pop(kind)
                if count:
                    lines.append({**record, "repeated": count})
                    self._kinds[kind] = (now + REPEAT_INTERVAL, 0, record)
        return lines


class _Output:
    """Write records to file, journal and console; safe to use from any thread."""

    def __init__(
        self,
        secrets: Secrets,
        *,
        file: _RotatedFile | None,
        console: IO[str] | None,
        journal: JournalSocket | None,
        repeats: RepeatedLines,
        event_console: EventConsole | None = None,
    ) -> None:
        self._event_console = event_console
        self._secrets, self._file, self._console, self._journal = secrets, file, console, journal
        self._repeats = repeats
        self._colour = console is not None and wants_colour(console)
        self._encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
        self._lock = threading.Lock()

    def write(self, record: dict[str, Any]) -> None:
        """Write or count a record, after the counted ones whose minute is over."""
        for counted_record in self._repeats.pop():
            self._write(counted_record)
        kind, burst = record.pop("counted", None), record.pop("burst", None)
        if burst is not None and not self._repeats.count_burst(burst):
            kind = burst
        if kind is None or self._repeats.count_repeat(kind, record):
            self._write(record)

    def flush(self) -> None:
        """Write the records that were only counted so far."""
        for counted_record in self._repeats.pop(everything=True):
            self._write(counted_record)

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            line = self._secrets.redact(self._encode(record))
            with self._lock:
                self._file.write(line)
        if self._journal is not None:
            with self._lock:
                if self._journal.send(record, _format_fields(record)):
                    return
        if self._event_console is not None:
            self._event_console.write(record)
        elif self._console is not None:
            text = self._secrets.redact(format_line(record, colour=self._colour))
            with self._lock:
                _write_to_console(self._console, text)

    # structlog calls the method that is named like the level; the record has the level already
    debug = info = warning = warn = error = critical = fatal = exception = log = write

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
        if self._journal is not None:
            self._journal.close()


def _write_to_console(console: IO[str], text: str) -> None:
    try:
        console.write(text + "\n")
        console.flush()
    except (OSError, ValueError):
        # the terminal is gone (a closed window, a broken pipe): the file still has the line
        return


class _RotatedFile:
    """A log file: one write per line; renamed to `NAME.1` when it is full."""

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._lost_lines = 0
        self._ends_within_line = False
        """A disk without room may have taken the beginning of the last line."""
        self._fd: int | None = None
        try:
            self._ensure_open()
        except OSError as error:
            reason = f"the log cannot be written there: {error.strerror}"
            raise ConfigError(Fault(file=str(path), key="", found="", problem=reason)) from error

    def write(self, line: str) -> None:
        """Append a line. A full disk costs lines, not the daemon; how many is said when there is
        room again.
        """
        data = line.encode(errors="replace") + b"\n"
        try:
            self._make_room(len(data))
            if self._lost_lines:
                record = {
                    "at": _format_time(datetime.now(UTC)),
                    "level": "warning",
                    "event": "log.lines_lost",
                    "lines": self._lost_lines,
                }
                self._append(json.dumps(record).encode() + b"\n")
                self._lost_lines = 0
            self._append(data)
        except OSError:
            self._lost_lines += 1

    def _append(self, line: bytes) -> None:
        """Append a line, on a line of its own. Raises OSError if there is no room for all of it."""
        descriptor = self._ensure_open()
        data = b"\n" + line if self._ends_within_line else line
        self._ends_within_line = os.write(descriptor, data) < len(data)
        if self._ends_within_line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _ensure_open(self) -> int:
        if self._fd is None:
            try:
                self._fd = self._open()
            except FileNotFoundError:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = self._open()
            size = os.fstat(self._fd).st_size
            self._ends_within_line = bool(size) and os.pread(self._fd, 1, size - 1) != b"\n"
        return self._fd

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _make_room(self, size: int) -> None:
        state = os.fstat(self._ensure_open())
        if state.st_nlink == 0:  # it was removed or replaced: nobody would see further lines
            self.close()
        elif state.st_size and state.st_size + size > self._max_bytes:
            self._rotate()

    def _rotate(self) -> None:
        self.close()
        for number in range(self._keep - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        if self._keep:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        else:
            self._path.unlink()
        # Those of a time when `keep` was greater; others, such as logrotate's, are not ours. The
        # first that is not there, or that cannot be removed, ends it.
        with suppress(OSError):
            for number in itertools.count(self._keep + 1):
                self._path.with_name(f"{self._path.name}.{number}").unlink()


class _LibraryHandler(logging.Handler):
    """Write what libraries log by the standard `logging`."""

    def __init__(self, output: _Output, *, level: int) -> None:
        super().__init__(level)
        self.output = output

    def flush(self) -> None:
        """Write what was only counted so far; `logging` asks for it when the process ends."""
        self.output.flush()

    def emit(self, record: logging.LogRecord) -> None:
        place = ""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001  # arguments that do not fit are no fault of who logs here
            message = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            place = _place_of(record.exc_info[1])
        # asyncio puts objects with their numbers and addresses into its messages, one to a line
        first_line = _NUMBER.sub("#", message.partition("\n")[0])
        event: dict[str, Any] = {
            "at": _format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": "library.logged",
            "logger": record.name,
            "message": message,
            "counted": f"{record.name} {record.levelname} {first_line} {place}",
        }
        if record.exc_info and record.exc_info[1] is not None:
            event["exception"] = _format_traceback(record.exc_info[1])
        self.output.write(event)
