"""What systemd knows of faults: failed units and recent errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from daemon.models import Json
from daemon.plurals import pluralize
from daemon.tools.builtin.sysinfo.machine import Files
from daemon.tools.builtin.sysinfo.programs import FactUnavailable, RunProgram
from daemon.tools.builtin.sysinfo.words import format_moment, shorten

NO_FAILED_UNITS = "no unit has failed"
NO_ERRORS = "none in the last 24 hours"
_WINDOW = timedelta(hours=24)
_MAX_ENTRIES = 2000  # the newest ones; the journal may hold millions
_MAX_KINDS = 20
_UNIT_LINE = re.compile(
    r"^[●*\s]*(?P<unit>\S+\.\w+)\s+\S+\s+\S+\s+(?P<sub>\S+)\s*(?P<description>.*)$"
)
# Units of removable disks: the label that a stranger gave one is in their name and description.
_REMOVABLE = re.compile(r"((?:run-)?media-).*(\.(?:mount|automount))", re.DOTALL)


async def read_failed_units(files: Files, run_program: RunProgram) -> list[Json] | str:
    """Return the failed units of the system, or NO_FAILED_UNITS. Raises FactUnavailable."""
    if not files.exists("run/systemd/system"):  # the test of sd_booted(3)
        raise FactUnavailable("systemd is not running here")
    # systemd before 246 ignores --output=json for lists of units and prints the plain lines
    output = await run_program(
        ["systemctl", "--failed", "--output=json", "--plain", "--no-legend", "--no-pager"], 10
    )
    if output.code:
        raise FactUnavailable(f"systemctl gave no list: {output.complaint}")
    return parse_failed_units(output.text) or NO_FAILED_UNITS


def parse_failed_units(text: str) -> list[Json]:
    """Read what `systemctl --failed` printed, as JSON or as plain lines."""
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        entries = [match.groupdict() for match in map(_UNIT_LINE.match, text.splitlines()) if match]
    units: list[Json] = []
    for entry in entries:
        name, description = entry["unit"], shorten(entry["description"], 80)
        if match := _REMOVABLE.fullmatch(name):
            name, description = f"{match[1]}…{match[2]}", "a removable disk"
        units.append(
            {"unit": name, "state": entry.get("sub", "failed"), "description": description}
        )
    return units


async def read_errors(
    files: Files,
    run_program: RunProgram,
    now: datetime,
    *,
    readable: Callable[[Path], bool] = lambda path: os.access(path, os.R_OK),
) -> list[Json] | str:
    """Return the errors in the system's journal of the last 24 hours, grouped and counted, or
    NO_ERRORS. Raises FactUnavailable.
    """
    _check_journal(files, readable)
    output = await run_program(
        [
            "journalctl",
            "--priority=err",
            f"--since=@{int((now - _WINDOW).timestamp())}",
            f"--lines={_MAX_ENTRIES}",
            "--output=json",
            "--output-fields=MESSAGE,SYSLOG_IDENTIFIER,_SYSTEMD_UNIT,_COMM",
            "--quiet",
            "--no-pager",
        ],
        20,
    )
    if output.code:
        raise FactUnavailable(f"journalctl gave no list: {output.complaint}")
    return group_errors(parse_journal(output.text, now)) or NO_ERRORS


def _check_journal(files: Files, readable: Callable[[Path], bool]) -> None:
    """Raise FactUnavailable unless the journal of the *system* can be read.

    Without the right to it journalctl shows the caller's own messages and succeeds, which would
    read as "no errors".
    """
    journals = [
        path
        for folder in ("var/log/journal", "run/log/journal")
        for path in (files.root / folder).glob("*/system*.journal")
    ]
    if not journals and not files.exists("run/systemd/system"):
        raise FactUnavailable("there is no systemd journal here")
    if not any(readable(path) for path in journals):
        raise FactUnavailable(
            "the system's journal is not readable for this user; adding it to the group "
            "systemd-journal helps"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class JournaldError:
    """One error in the journal."""

    at: datetime
    source: str
    message: str


def parse_journal(text: str, now: datetime) -> Iterable[JournaldError]:
    """Read `journalctl --output=json`, one object a line; a broken line is passed over."""
    for line in text.split("\n"):
        try:
            fields = json.loads(line)
            microseconds = int(fields["__REALTIME_TIMESTAMP"])
        except (ValueError, KeyError, TypeError):
            continue
        unit = _text(fields.get("_SYSTEMD_UNIT"))
        source = (
            _text(fields.get("SYSLOG_IDENTIFIER"))
            or unit
            or _text(fields.get("_COMM"))
            or "unknown"
        )
        yield JournaldError(
            at=datetime.fromtimestamp(microseconds / 1_000_000, tz=now.tzinfo),
            source=shorten(source, 40),
            message=shorten(_text(fields.get("MESSAGE")), 160) or "(no text)",
        )


def _text(field: Any) -> str:
    """Return a field as text: journald sends bytes that are no UTF-8 as numbers, a repeated field
    as a list.
    """
    if isinstance(field, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in field):
        return bytes(field).decode(errors="replace")
    if isinstance(field, list):
        return " ".join(_text(part) for part in field)
    return field if isinstance(field, str) else ""


def group_errors(entries: Iterable[JournaldError]) -> list[Json]:
    """Return one row per kind of error, most frequent first; the rarest beyond a limit share the
    last row.
    """
    groups: dict[tuple[str, str], list[JournaldError]] = {}
    for entry in entries:
        groups.setdefault((entry.source, strip_variable_parts(entry.message)), []).append(entry)
    kinds = sorted(
        groups.values(), key=lambda group: (-len(group), group[0].source, group[0].message)
    )
    rows = [
        _make_row(group, max(group, key=lambda entry: entry.at)) for group in kinds[:_MAX_KINDS]
    ]
    if other_kinds := kinds[_MAX_KINDS:]:
        other_entries = [entry for group in other_kinds for entry in group]
        summary = JournaldError(
            at=max(entry.at for entry in other_entries),
            source="others",
            message=pluralize(len(other_kinds), "more kind"),
        )
        rows.append(_make_row(other_entries, summary))
    return rows


def _make_row(group: list[JournaldError], entry: JournaldError) -> Json:
    return {
        "count": len(group),
        "source": entry.source,
        "message": entry.message,
        "last": format_moment(entry.at),
    }


def strip_variable_parts(message: str) -> str:
    """Return a message with `#` for what differs each time: numbers, addresses, ids."""
    return re.sub(r"\b(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*\b", "#", message)
