"""What has changed on this machine since the last report, in words.

Both values were returned by `sysinfo`, perhaps months and versions apart, so nothing about their
shape is trusted: of a part that cannot be compared, no change is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from daemon.models import Json
from daemon.plurals import pluralize
from daemon.tools.builtin.sysinfo.services import NO_ERRORS, NO_FAILED_UNITS, strip_variable_parts

_DISK_STEP = 2  # percentage points; less is the ordinary fluctuation of logs and caches
_SWAP_STEP = 10  # percentage points
_NEARLY_FULL = 90  # percent
_MAX_LINES = 6  # of one kind of change, before "and 3 more"


def changes(before: Any, after: Any) -> list[str]:
    """Return what has changed between two values of sysinfo, most urgent first."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    return [
        line
        for part, compare in _COMPARERS.items()
        if part in before and part in after
        for line in compare(before[part], after[part])
    ]


def _compare_host(before: Any, after: Any) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    previous_boot_time, boot_time = _boot_time(before), _boot_time(after)
    # the time of the boot is computed from the clock, which may have been set since; two minutes
    # are no reboot
    if previous_boot_time and boot_time and (boot_time - previous_boot_time).total_seconds() > 120:
        yield f"rebooted: up {after['up']}"
    for key in ("name", "system", "kernel"):
        if before.get(key) and after.get(key) and before[key] != after[key]:
            yield f"{key} {before[key]} → {after[key]}"


def _boot_time(host: Json) -> datetime | None:
    match = re.search(r"since (\d{4}-\d\d-\d\d \d\d:\d\d)", str(host.get("up", "")))
    return datetime.fromisoformat(match[1]) if match else None


def _compare_load(before: Any, after: Any) -> Iterator[str]:
    old, new = _percent(before, "last_15_minutes"), _percent(after, "last_15_minutes")
    if old is not None and new is not None and old <= 100 < new:
        yield f"more work than the cores can do: load {old} % → {new} % over 15 minutes"


def _compare_memory(before: Any, after: Any) -> Iterator[str]:
    for key, name in (("used", "memory"), ("container_limit", "the container's memory")):
        old, new = _percent(before, key), _percent(after, key)
        if old is not None and new is not None and (old >= _NEARLY_FULL) != (new >= _NEARLY_FULL):
            state = "tight" if new >= _NEARLY_FULL else "no longer tight"
            yield f"{name} is {state}: {old} % → {new} %"
    old, new = _percent(before, "swap"), _percent(after, "swap")
    if old is not None and new is not None and abs(new - old) >= _SWAP_STEP:
        yield f"swap {old} % → {new} %"


def _compare_disks(before: Any, after: Any) -> Iterator[str]:
    old_disks, new_disks = _index_rows(before, "mount"), _index_rows(after, "mount")
    if not old_disks or not new_disks:
        return
    for mount, row in new_disks.items():
        if mount not in old_disks:
            yield f"disk {mount} is new: {row.get('used')}"
            continue
        for key, name in (("used", "disk"), ("inodes", "inodes of")):
            old, new = _percent(old_disks[mount], key), _percent(row, key)
            if old is not None and new is not None and _has_moved(old, new):
                free_space = f" ({row.get('free')} free)" if key == "used" else ""
                yield f"{name} {mount} {old} % → {new} %{free_space}"
        if row.get("note") and not old_disks[mount].get("note"):
            yield f"disk {mount} has become {row['note']}"
    yield from (f"disk {mount} is gone" for mount in old_disks if mount not in new_disks)


def _has_moved(old: int, new: int) -> bool:
    return abs(new - old) >= _DISK_STEP or old < _NEARLY_FULL <= new


def _compare_units(before: Any, after: Any) -> Iterator[str]:
    old_units, new_units = (
        _index_rows_or_none(before, NO_FAILED_UNITS, "unit"),
        _index_rows_or_none(after, NO_FAILED_UNITS, "unit"),
    )
    if old_units is None or new_units is None:
        return
    yield from _cap_lines(
        (f"unit {unit} has failed" for unit in new_units if unit not in old_units), "failed units"
    )
    yield from _cap_lines(
        (f"unit {unit} is no longer failed" for unit in old_units if unit not in new_units),
        "recovered units",
    )


def _compare_errors(before: Any, after: Any) -> Iterator[str]:
    if not isinstance(before, list) and before != NO_ERRORS:
        return
    old_errors = {_error_key(row) for row in _rows(before)}
    new_errors = [
        row
        for row in _rows(after)
        if row.get("source") != "others" and _error_key(row) not in old_errors
    ]
    lines = []
    for row in new_errors:
        count = _format_count(row.get("count"))
        lines.append(f"new error of {row.get('source')}: {row.get('message')} ({count})")
    yield from _cap_lines(lines, "new kinds of error")


def _error_key(row: Json) -> tuple[Any, str]:
    return row.get("source"), strip_variable_parts(str(row.get("message")))


def _format_count(count: Any) -> str:
    return "once" if count == 1 else f"{count} times"


def _compare_updates(before: Any, after: Any) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    old, new = before.get("pending"), after.get("pending")
    if isinstance(old, int) and isinstance(new, int) and old != new:
        security = after.get("security")
        security_part = f", {security} of them for security" if security else ""
        yield f"{pluralize(new, 'update')} waiting{security_part} (was {old})"
    if _needs_reboot(after) and not _needs_reboot(before):
        yield f"a reboot is {after['reboot']}"


def _needs_reboot(updates: Json) -> bool:
    return str(updates.get("reboot", "")).startswith("needed")


_COMPARERS = {
    "host": _compare_host,
    "units": _compare_units,
    "disks": _compare_disks,
    "memory": _compare_memory,
    "load": _compare_load,
    "errors": _compare_errors,
    "updates": _compare_updates,
}


def _percent(row: Any, key: str) -> int | None:
    match = re.match(r"(\d+) %", str(row.get(key, ""))) if isinstance(row, dict) else None
    return int(match[1]) if match else None


def _rows(part: Any) -> list[Json]:
    return [row for row in part if isinstance(row, dict)] if isinstance(part, list) else []


def _index_rows(part: Any, key: str) -> dict[str, Json]:
    return {str(row[key]): row for row in _rows(part) if key in row}


def _index_rows_or_none(part: Any, empty_text: str, key: str) -> dict[str, Json] | None:
    """Return the rows by key: no rows if the part says that there is nothing, None if the part was
    not known.
    """
    return _index_rows(part, key) if isinstance(part, list) or part == empty_text else None


def _cap_lines(lines: Iterable[str], nouns: str) -> Iterator[str]:
    """Yield the first _MAX_LINES lines, and how many more there are, named by `nouns`."""
    all_lines = list(lines)
    count = len(all_lines)
    if count > _MAX_LINES + 1:  # "and 1 more" would cost the line that it saves
        count = _MAX_LINES
    yield from all_lines[:count]
    if excess := len(all_lines) - count:
        yield f"and {excess} more {nouns}"
