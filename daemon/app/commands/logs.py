"""`agentctl logs`: shows the log file, with a daemon or without, filtered, and follows it."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from daemon.cli.call import Call, start_command
from daemon.cli.client import Unreachable
from daemon.cli.parser import Parser, positive_number
from daemon.cli.times import parse_time
from daemon.definitions.paths import find_state, user_home
from daemon.durations import parse_duration
from daemon.telemetry.log import LEVELS, format_line, wants_colour

if TYPE_CHECKING:
    from daemon.system.watch import DirectoryWatcher

DEFAULT_LINES = 50  # where neither a number nor a time is given: about a screen


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFilter:
    """Which records to show."""

    routine: str | None = None
    run: str | None = None
    level: str = "debug"
    since: datetime | None = None
    has_line: Callable[[dict[str, Any]], bool] | None = None
    """Whether a record is shown at all; all are if left out."""

    def __call__(self, line: str) -> dict[str, Any] | None:
        """Return the record of a line, if it passes the filter."""
        # The text is searched before it is parsed, as parsing takes ten times as long.
        if (self.routine and self.routine not in line) or (self.run and self.run not in line):
            return None
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if not isinstance(record, dict) or (self.routine and record.get("routine") != self.routine):
            return None
        if self.run and not str(record.get("run", "")).endswith(self.run):
            return None
        level = record.get("level")
        if level in LEVELS and LEVELS.index(level) < LEVELS.index(self.level):
            return None
        if self.since and _time_of(record) < self.since:
            return None
        return record if self.has_line is None or self.has_line(record) else None


def _time_of(record: dict[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(str(record.get("at")))
    except ValueError:
        return datetime.now(UTC)  # a line without a time is shown rather than lost


def parse_since(text: str, now: datetime) -> datetime:
    """Return the moment that `1h`, `2d12h`, `20 minutes`, `yesterday`, `mon 09:00`, `2026-11-20` or
    `2026-11-20T08:30` means; ValueError otherwise, also for a moment after `now`.
    """
    if (duration := parse_duration(text)) is not None:
        return now - duration
    try:
        since = parse_time(text, now)
    except ValueError as error:
        raise ValueError(f"{error}, or a length of time such as 1h") from None
    if since > now:
        raise ValueError(f"{text!r} has yet to come; name an earlier moment")
    return since


def logs(call: Call) -> int:
    """Show the log for `agentctl logs`, with a daemon and without."""
    file = None
    if not any(
        word == "--state" or word.startswith("--state=") or word in ("-h", "--help")
        for word in call.rest
    ):
        # without a daemon, `main` takes the path that a daemon started here would write to
        with suppress(Unreachable):
            file = Path(call.client.request("GET", "/v1/status")["log"])
    return main(call.rest, file)


def main(arguments: Sequence[str], file: Path | None = None) -> int:
    """Show the log as the arguments ask and return the exit code; `file` is the log that a running
    daemon named.
    """
    options = _parser().parse_args(arguments)
    if file is None:
        state = options.state or find_state(os.environ, user_home(), uid=os.getuid())
        file = state / "logs" / "agentd.jsonl"
    try:
        since = parse_since(options.since, datetime.now().astimezone()) if options.since else None
    except ValueError as error:
        sys.stderr.write(f"agentctl: --since: {error}\n")
        return 2
    log_filter = LogFilter(
        routine=options.routine, run=options.run, level=options.level, since=since
    )
    try:
        return _show(options, file, log_filter)
    except OSError as error:
        if error.filename is None:  # a closed pipe
            raise
        sys.stderr.write(
            f"agentctl: {os.fsdecode(error.filename)} cannot be read: {error.strerror}; name the "
            "daemon's state folder with --state, as the user it runs as\n"
        )
        return 5


def _exists(file: Path) -> bool:
    """Tell whether there is a file. Raises OSError if nobody may look, where `Path.exists` says no
    since Python 3.14.
    """
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _show(options: argparse.Namespace, file: Path, log_filter: LogFilter) -> int:
    """Show the records that pass the filter; return the exit code. Raises OSError."""
    if not _exists(file) and not options.follow:
        sys.stderr.write(
            f"agentctl: there is no log at {file}; has agentd run here? (--state DIR names another "
            "place)\n"
            f"Start it with: {start_command()}\n"
        )
        return 4
    printer = None
    show = _print_raw if options.json else _make_printer(sys.stdout)
    if sys.stdout.isatty() and not (options.json or options.long):
        printer = _ShortPrinter(sys.stdout, file, is_live=options.follow)
        log_filter, show = replace(log_filter, has_line=printer.has_line), printer.show
    number = options.lines
    if number is None and not log_filter.since:
        number = DEFAULT_LINES
    if not options.follow:
        records = last_records(_lines_newest_first(file), log_filter, number)
        for line, record in records:
            show(line, record)
        if printer:
            printer.close()
        if not records:
            hint = "; --long shows also what has no short line" if printer else ""
            sys.stderr.write(f"agentctl: no line of {file} fits{hint}\n")
        return 0
    import structlog

    # stdout is for the lines of the log
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        asyncio.run(follow(file, log_filter, number, show))
    except KeyboardInterrupt:
        return 130
    finally:
        if printer:
            printer.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="agentctl logs",
        description="Show the log, with a daemon and without.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )
    parser.add_argument(
        "-n",
        "--lines",
        type=positive_number,
        metavar="N",
        help=f"how many; default {DEFAULT_LINES}, or all --since",
    )
    parser.add_argument("--routine", metavar="NAME", help="of one routine")
    parser.add_argument("--run", metavar="ID", help="of one run; the end of its id is enough")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="from this level on")
    parser.add_argument(
        "--since", metavar="TIME", help="like 1h, yesterday, mon 09:00 or 2026-11-20T08:30"
    )
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="the state folder whose log is meant"
    )
    parser.add_argument(
        "--long",
        action="store_true",
        help="each event with all its fields, which a terminal shows as short lines only",
    )
    parser.add_argument("--json", action="store_true", help="the lines as they are")
    return parser


def _print_raw(line: str, _record: dict[str, Any]) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _make_printer(stream: IO[str]) -> Callable[[str, dict[str, Any]], None]:
    colour = wants_colour(stream)

    def show(_line: str, record: dict[str, Any]) -> None:
        stream.write(format_line(record, colour=colour) + "\n")
        stream.flush()

    return show


class _ShortPrinter:
    """Prints records as the daemon shows them at its own terminal, below the day where that is not
    today.
    """

    def __init__(self, stream: IO[str], file: Path, *, is_live: bool) -> None:
        from daemon.cli.call import agentctl_command
        from daemon.telemetry.console import EventConsole
        from daemon.telemetry.redaction import Secrets

        self._stream, self._colour = stream, wants_colour(stream)
        self._day = datetime.now().astimezone().date()
        self._console = EventConsole(
            stream,
            Secrets(),  # the log has none
            colour=self._colour,
            workspace=file.parent.parent / "workspace",
            agentctl=agentctl_command(),
            is_live=is_live,
        )
        self._console.begin()

    def has_line(self, record: dict[str, Any]) -> bool:
        try:
            return self._console.has_line(record)
        except (KeyError, TypeError, ValueError):  # of a version with other fields
            return True

    def show(self, _line: str, record: dict[str, Any]) -> None:
        day = _time_of(record).astimezone().date()
        if day != self._day:
            self._day = day
            self._console.write_waiting()
            self._stream.write(f"{day:%A %d %B %Y}\n")
        try:
            self._console.write(record)
        except (KeyError, TypeError, ValueError):
            self._stream.write(format_line(record, colour=self._colour) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._console.close()


def last_records(
    lines: Iterable[str], log_filter: LogFilter, number: int | None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the last matching records, oldest first, of lines that come newest first."""
    records: deque[tuple[str, dict[str, Any]]] = deque()
    for line in lines:
        record = log_filter(line)
        if record is not None:
            records.appendleft((line, record))
            if number is not None and len(records) >= number:
                break
        elif log_filter.since and _is_before(line, log_filter.since):
            break
    return list(records)


def _is_before(line: str, since: datetime) -> bool:
    try:
        return _time_of(json.loads(line)) < since
    except (ValueError, AttributeError):
        return False


def _lines_newest_first(file: Path, newest: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the lines of the log and of its rotated files, newest first; each file is opened when
    its first line is needed.

    `newest` are the lines of the log itself, if they have been read already.
    """
    yield from reversed(_read(file) if newest is None else newest)
    for number in itertools.count(1):
        path = file.with_name(f"{file.name}.{number}")
        if not path.exists():
            return
        yield from reversed(_read(path))


def _read(path: Path) -> list[str]:
    # not splitlines: what a record holds may have other characters that end a line
    text = path.read_text("utf-8", errors="replace") if path.exists() else ""
    return text.removesuffix("\n").split("\n") if text else []


async def follow(
    file: Path,
    log_filter: LogFilter,
    number: int | None,
    show: Callable[[str, dict[str, Any]], None],
    *,
    directory_watcher: DirectoryWatcher | None = None,
) -> None:
    """Show the last records, then each new one as it is written, over rotations, until
    cancelled.
    """
    from daemon.system.watch import DirectoryWatcher  # here, as only those who follow need it

    change = asyncio.Event()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # where the system cannot watch files, the log is polled each second
    directory_watcher = directory_watcher or DirectoryWatcher(check_every=1.0)
    subscription = directory_watcher.subscribe([file.parent], lambda _: change.set())
    tail = Tail(file)

    def show_new_lines() -> None:
        for line in tail.read_new_lines():
            record = log_filter(line)
            if record is not None:
                show(line, record)

    try:
        for line, record in last_records(
            _lines_newest_first(file, tail.read_new_lines()), log_filter, number
        ):
            show(line, record)
        while True:
            await change.wait()
            change.clear()
            show_new_lines()
    except asyncio.CancelledError:
        # changes are noticed a second or two later: show also what was written just before Ctrl-C
        show_new_lines()
        raise
    finally:
        subscription.close()
        tail.close()


class Tail:
    """Reads new lines of a file that grows, and may be rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._partial_line = b""

    def read_new_lines(self) -> list[str]:
        """Return the whole lines written since the last call."""
        lines = self._lines()
        if self._file is not None and self._is_replaced():
            self.close()
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
            lines += self._lines()
        return lines

    def _lines(self) -> list[str]:
        if self._file is None:
            return []
        *lines, self._partial_line = (self._partial_line + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _is_replaced(self) -> bool:
        assert self._file is not None  # noqa: S101 - asked only with a file open
        try:
            status_at_path = self._path.stat()
        except FileNotFoundError:
            return True
        return not os.path.samestat(status_at_path, os.fstat(self._file.fileno()))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._partial_line = None, b""
