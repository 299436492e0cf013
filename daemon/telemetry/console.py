"""Log events as short lines for a person at a terminal: what runs, reports and files did.

    13:06:02 ✓ daily-report 1.6 s → reports/daily-report/2026-11-22.md

Events of level info have a line if they are in the tables below; warnings and errors always have
one. The log file has all events, with all their fields.
"""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from daemon.durations import duration_in_words

if TYPE_CHECKING:
    from daemon.telemetry.redaction import Secrets

Record: TypeAlias = Mapping[str, Any]

_RED, _GREEN, _YELLOW, _BLUE, _DIM, _PLAIN = (
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[34m",
    "\x1b[2m",
    "\x1b[0m",
)
# Signs by what they mean, with their colour, and what stands for them outside of UTF-8: as
# `agentctl list` shows them.
_SIGNS = {
    "started": ("»", ">", _BLUE),
    "succeeded": ("✓", "+", _GREEN),
    "delivered": ("→", ">", _GREEN),
    "waiting": ("⏸", "=", _YELLOW),
    "notice": ("-", "-", _DIM),
    "skipped": ("-", "-", _DIM),
    "cancelled": ("-", "-", _YELLOW),
    "warning": ("!", "!", _YELLOW),
    "failed": ("✗", "x", _RED),
    "timed_out": ("✗", "x", _RED),
    "interrupted": ("✗", "x", _RED),
}
# What a warning is about, in the first of its fields that it has.
_DETAIL_KEYS = ("detail", "error", "problem", "fault", "reason", "message", "why")
# What is said of a run's start; nothing for one by its schedule.
_TRIGGERS = {"cron": "", "every": "", "at": "", "manual": "by hand", "once": "by hand"}
# Faults of routines: the banner lists those that are there at the start.
_BANNER_EVENTS = frozenset({"routine.invalid"})
# Events whose lines take more than the record itself.
_EVENTS_WITH_STATE = frozenset(
    {"run.started", "run.finished", "delivery.arrived", "doctor.found", "report.written"}
)
DEFAULT_WIDTH = 80
# Seconds. A report for a file is there within milliseconds; a mail may take longer, and then has a
# line of its own.
DELIVERY_WAIT = 1.0
# Behind `13:06:02 ✓ `.
_INDENT = " " * 11


class EventConsole:
    """Writes log records to a terminal as lines for a person; safe to use from any thread.

    The line of a run that succeeded waits a second for its delivery, to say where the report is.
    Infos and warnings wait until `begin`, as the banner comes first.
    """

    def __init__(
        self,
        stream: IO[str],
        secrets: Secrets,
        *,
        colour: bool,
        workspace: Path | None = None,
        agentctl: str = "agentctl",
        delivery_wait: float = DELIVERY_WAIT,
        is_live: bool = True,
    ) -> None:
        """`agentctl`: the command by which a person at the terminal reaches it; `workspace`: paths
        of reports are shown relative to it; `delivery_wait` is in seconds. Without `is_live` the
        records are of the past, and only the times in them count.
        """
        self._stream, self._secrets, self._colour = stream, secrets, colour
        self._has_unicode = "utf" in (getattr(stream, "encoding", None) or "").lower()
        self._workspace, self._agentctl = workspace, agentctl
        self._delivery_wait, self._is_live = delivery_wait, is_live
        self._start_times: dict[str, datetime] = {}
        """When each run under way started, by its id."""
        self._unwritten_successes: dict[str, tuple[datetime, str]] = {}
        """By run id, when a run succeeded, and the text of its line, which waits for a delivery."""
        self._timers: dict[str, threading.Timer] = {}
        self._doctor_notes = 0
        self._is_stopping = False
        self._early_records: list[Record] | None = []
        """The records before the banner; None behind it."""
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Write the lines that waited for the banner; from now on none does."""
        with self._lock:
            early_records, self._early_records = self._early_records or [], None
            for record in early_records:
                if record["event"] not in _BANNER_EVENTS:
                    self.write(record)

    def write(self, record: Record) -> None:
        """Write the line of a record, if it has one."""
        with self._lock:
            if self._early_records is not None and record["level"] in ("debug", "info", "warning"):
                self._early_records.append(record)
                return
            for line in self._lines_of(record):
                self._write_line(line)

    def close(self) -> None:
        """Write the lines that still wait."""
        self.begin()
        self.write_waiting()
        with self._lock:
            if self._is_stopping and self._is_live:
                self._write_line(self._format(datetime.now().astimezone(), "notice", "stopped"))
                self._is_stopping = False

    def write_waiting(self) -> None:
        """Write the lines of runs that wait for a delivery."""
        with self._lock:
            for run in list(self._unwritten_successes):
                self._write_success(run)

    def has_line(self, record: Record) -> bool:
        """Return whether a record has a line, by itself or together with a later one."""
        if record["event"] == "doctor.found" and record["state"] != "fail":
            return False
        return record["event"] in _EVENTS_WITH_STATE or bool(self._describe(record)[1])

    def _lines_of(self, record: Record) -> list[str]:
        event, at = str(record["event"]), datetime.fromisoformat(record["at"]).astimezone()
        for run, (end, _) in list(self._unwritten_successes.items()):
            if (at - end).total_seconds() > self._delivery_wait:
                self._write_success(run)
        if event == "run.started":
            self._start_times[record["run"]] = at
        elif event == "run.finished":
            return self._end_run(record, at)
        elif event == "delivery.arrived":
            return [self._format_arrival(record, at)]
        elif event in ("run.suspended", "run.waiting", "run.fenced"):
            self._start_times.pop(str(record.get("run")), None)
        elif event == "daemon.stopping":
            self._is_stopping = True
        elif event == "doctor.found" and record["state"] != "fail":
            self._doctor_notes += 1
            return []
        elif event == "report.written":  # the person has asked for it in the log
            heading = ": ".join(filter(None, (str(record["routine"]), str(record["title"]))))
            title = self._format(at, "delivered", heading)
            text = self._secrets.redact(str(record["text"]))
            return [title, *map(_escape, text.splitlines())]
        meaning, text = self._describe(record)
        return [self._format(at, meaning, text)] if text else []

    def _format_arrival(self, record: Record, at: datetime) -> str:
        arrow = "→" if self._has_unicode else "->"
        _, text = self._unwritten_successes.pop(record["run"], (at, ""))
        if timer := self._timers.pop(record["run"], None):
            timer.cancel()
        if text:
            return self._format(at, "succeeded", f"{text} {arrow} {self._target(record)}")
        return self._format(at, "delivered", f"{_name_of(record)} {arrow} {self._target(record)}")

    def _write_success(self, run: str) -> None:
        """Write the line of a run that succeeded without waiting for its delivery any longer."""
        with self._lock:
            if timer := self._timers.pop(run, None):
                timer.cancel()
            if run in self._unwritten_successes:
                at, text = self._unwritten_successes.pop(run)
                self._write_line(self._format(at, "succeeded", text))

    def _write_line(self, text: str) -> None:
        try:
            self._stream.write(self._secrets.redact(text) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # the terminal is gone (a closed window): the file still has the event
            return

    def _end_run(self, record: Record, at: datetime) -> list[str]:
        start = self._start_times.pop(record["run"], None)
        text, status = str(record["routine"]), str(record["status"])
        if start and status not in ("skipped", "cancelled"):
            text += f" {duration_in_words((at - start).total_seconds())}"
        if status == "succeeded" and not record.get("silent"):
            self._unwritten_successes[record["run"]] = at, text
            if not self._is_live:
                return []
            timer = threading.Timer(self._delivery_wait, self._write_success, [record["run"]])
            timer.daemon = True
            self._timers[record["run"]] = timer
            timer.start()
            return []
        if status == "succeeded":
            return [self._format(at, status, f"{text}, nothing to report")]
        text += f" {status.replace('_', ' ')}"
        if record.get("detail"):
            text += f": {record['detail']}"
        if status in ("failed", "timed_out", "interrupted"):
            text += f"; {self._agentctl} inspect {str(record['run'])[-8:]}"
        return [self._format(at, status, text)]

    def _target(self, record: Record) -> str:
        """Return where a report went: a path in the workspace, or the target's name."""
        path = Path(str(record["receipt"]))
        if record["target"] == "file" and self._workspace and path.is_relative_to(self._workspace):
            return str(path.relative_to(self._workspace))
        return str(path if record["target"] == "file" else record["target"])

    def _describe(self, record: Record) -> tuple[str, str]:
        """Return what an event means, and its text; no text for an event that has no line."""
        event, name = str(record["event"]), _name_of(record)
        match event:
            case "run.started":
                trigger = str(record["trigger"])
                reasons = [_TRIGGERS.get(trigger, trigger.replace("_", " "))]
                if record["attempt"] > 1:
                    reasons.append(f"attempt {record['attempt']}")
                reason = ", ".join(filter(None, reasons))
                return "started", f"{name} started" + (f" ({reason})" if reason else "")
            case "run.waiting":
                return "waiting", (
                    f"{name} waits for your word on {record['tools']}: {self._agentctl} approvals"
                )
            case "run.retry_scheduled":
                until = _local_time(record["until"])
                return "warning", f"{name} put off until {until}: {record['detail']}"
            case "run.suspended":
                return "notice", f"{name} suspended; it goes on at the next start"
            case "delivery.retry_scheduled":
                retry_time = _local_time(record["again"])
                return "warning", (
                    f"{name} not delivered to {record['target']}, again at {retry_time}: "
                    f"{record['error']}"
                )
            case "delivery.left_out":
                return "notice", (
                    f"{name} not delivered to {record['target']}, now or later: {record['reason']}"
                )
            case "delivery.failed":
                return "failed", f"{name} not delivered to {record['target']}: {record['error']}"
            case "approval.reminded":
                until = _local_time(record["until"])
                return "waiting", (
                    f"{name} still waits for your word on {record['tool']}, until {until}: "
                    f"{self._agentctl} approvals"
                )
            case "approval.expired":
                return "warning", (
                    f"{name}: nobody allowed {record['tool']} in time; it goes on without"
                )
            case "approval.given" | "approval.refused":
                word = "allowed" if event == "approval.given" else "refused"
                return "notice", f"{name}: {record['tool']} {word} by {record['by']}"
            case "definitions.reloaded":
                changes = [
                    f"{word} {', '.join(record[word])}"
                    for word in ("added", "changed", "removed")
                    if record.get(word)
                ]
                if files := record.get("files"):
                    changes.append(f"{', '.join(files)} in force")
                return "succeeded", f"files read again: {'; '.join(changes) or 'config or policy'}"
            case "definitions.kept":
                faults = record.get("faults") or [record.get("fault")]
                return "failed", (
                    f"files read again, and not taken over: {'; '.join(map(str, faults))}"
                )
            case "routine.invalid":
                return "failed", str(record["fault"])
            case "tools.reloaded":
                return "succeeded", f"tools read again: {', '.join(record['tools'])}"
            case "routine.paused":
                return "waiting", (
                    f"{name} paused: {record['why']}; {self._agentctl} resume {name}"
                )
            case "routine.resumed":
                return "started", f"{name} goes on: its pause is over"
            case "slot.missed" | "slot.skipped":
                return _describe_slots(record)
            case "database.upgraded":
                return "notice", (
                    f"the database is upgraded from schema {record['was']} to {record['schema']}; "
                    f"a copy of before is {record['copy']}"
                )
            case "store.accepted":
                return "succeeded", "the database can be written again"
            case "database.back":
                return "succeeded", f"the database is back: {record['database']}"
            case "zone.changed":
                return "notice", f"the time zone is {record['now']} now"
            case "engine.clock_set":
                return "notice", "the clock was set: the next starts are worked out anew"
            case "doctor.found":
                fix = f"; {record['fix']}" if record.get("fix") else ""
                return "failed", f"{record['check']}: {record['found']}{fix}"
            case "doctor.looked":
                if not self._doctor_notes:
                    return "notice", ""
                return "notice", f"{self._agentctl} doctor has notes on this installation"
            case "daemon.stopping":
                runs = record.get("runs")
                if not runs:
                    return "notice", "stopping"
                count = "1 run ends" if runs == 1 else f"{runs} runs end"
                return "notice", f"stopping once {count}; Ctrl-C again does not wait"
            case _ if record["level"] in ("warning", "error", "critical"):
                return self._describe_warning(record)
        return "notice", ""

    def _describe_warning(self, record: Record) -> tuple[str, str]:
        """Return a warning or an error that has no text of its own, in the words of its event."""
        subject = record.get("routine") or record.get("logger") or ""
        words = str(record["event"]).replace(".", " ").replace("_", " ")
        if record["event"] == "library.logged":
            words = ""
        parts = [str(subject), words]
        for key in _DETAIL_KEYS:
            if record.get(key):
                parts.append(str(record[key]))
                break
        text = ": ".join(filter(None, parts))
        if record.get("exception"):
            text += f"; {self._agentctl} logs has the traceback"
        return "warning" if record["level"] == "warning" else "failed", text

    def _format(self, at: datetime, meaning: str, text: str) -> str:
        """Return one line, wrapped at words where it is wider than the terminal."""
        sign, ascii_sign, colour = _SIGNS[meaning]
        sign = sign if self._has_unicode else ascii_sign
        # before blanks are joined, signs escaped and lines wrapped: each would change a secret
        text = self._secrets.redact(text)
        lines = textwrap.wrap(
            _escape(" ".join(text.split())),
            max(20, self._width() - len(_INDENT)),
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = f"\n{_INDENT}".join(lines)
        if self._colour:
            return f"{_DIM}{at:%H:%M:%S}{_PLAIN} {colour}{sign}{_PLAIN} {text}"
        return f"{at:%H:%M:%S} {sign} {text}"

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or DEFAULT_WIDTH
        except (OSError, ValueError):
            return DEFAULT_WIDTH


def _escape(text: str) -> str:
    """Return text such that a terminal shows it, and does not obey it."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _name_of(record: Record) -> str:
    """Return the routine that a record is about; for a notice of no routine, its kind in words."""
    return str(record.get("routine") or str(record.get("notice") or "").replace(".", " "))


def _describe_slots(record: Record) -> tuple[str, str]:
    """Return the text for slots of a routine that did not become runs."""
    outcome, count = str(record["event"]).removeprefix("slot."), record.get("count", 1)
    if count > 1:
        text, link = f"{record['routine']} {outcome} {count} starts", ", the last on"
    else:
        text, link = f"{record['routine']} {outcome} a start", " of"
    if record.get("last"):
        text += f"{link} {_local_time(record['last'], days=True)}"
    text += f": {str(record['reason']).replace('_', ' ')}"
    return ("warning" if outcome == "missed" else "skipped"), text


def _local_time(moment: object, *, days: bool = False) -> str:
    """Return the local time of a moment in ISO 8601, with `days` also its day."""
    try:
        local = datetime.fromisoformat(str(moment)).astimezone()
    except ValueError:
        return str(moment)
    return local.strftime("%a %H:%M" if days else "%H:%M:%S")
