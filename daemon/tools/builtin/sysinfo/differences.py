"""What a person wants to know since the last report, in words.

Both sides are values that `sysinfo` returned, perhaps months and versions apart, so nothing about
their shape is trusted: a part that cannot be compared says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from daemon.models import Json
from daemon.tools.builtin.sysinfo.services import NO_ERRORS, NO_FAILED_UNITS, kind
from daemon.tools.builtin.sysinfo.words import plural

_DISK_STEP = 2  # points; less is the ordinary breathing of logs and caches
_SWAP_STEP = 10
_TIGHT = 90  # percent
_MOST = 6  # of one sort, before "and 3 more"


def changes(before: Any, after: Any) -> list[str]:
    """Return what has changed between two values of sysinfo, most urgent first."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    return [
        line
        for part, compare in _PARTS.items()
        if part in before and part in after
        for line in compare(before[part], after[part])
    ]


def _host(before: Any, after: Any) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    was, since = _since(before), _since(after)
    # the time of the boot is computed from the clock, which may have been set since; two minutes
    # are no reboot
    if was and since and (since - was).total_seconds() > 120:
        yield f"rebooted: up {after['up']}"
    for key in ("name", "system", "kernel"):
        if before.get(key) and after.get(key) and before[key] != after[key]:
            yield f"{key} {before[key]} → {after[key]}"


def _since(host: Json) -> datetime | None:
    found = re.search(r"since (\d{4}-\d\d-\d\d \d\d:\d\d)", str(host.get("up", "")))
    return datetime.fromisoformat(found[1]) if found else None


def _load(before: Any, after: Any) -> Iterator[str]:
    was, now = _percent(before, "last_15_minutes"), _percent(after, "last_15_minutes")
    if was is not None and now is not None and was <= 100 < now:
        yield f"more work than the cores can do: load {was} % → {now} % over 15 minutes"


def _memory(before: Any, after: Any) -> Iterator[str]:
    for key, name in (("used", "memory"), ("container_limit", "the container's memory")):
        was, now = _percent(before, key), _percent(after, key)
        if was is not None and now is not None and (was >= _TIGHT) != (now >= _TIGHT):
            yield f"{name} is {'tight' if now >= _TIGHT else 'no longer tight'}: {was} % → {now} %"
    was, now = _percent(before, "swap"), _percent(after, "swap")
    if was is not None and now is not None and abs(now - was) >= _SWAP_STEP:
        yield f"swap {was} % → {now} %"


def _disks(before: Any, after: Any) -> Iterator[str]:
    old, new = _by(before, "mount"), _by(after, "mount")
    if not old or not new:
        return
    for mount, row in new.items():
        if mount not in old:
            yield f"disk {mount} is new: {row.get('used')}"
            continue
        for key, name in (("used", "disk"), ("inodes", "inodes of")):
            was, now = _percent(old[mount], key), _percent(row, key)
            if was is not None and now is not None and _moved(was, now):
                left = f" ({row.get('free')} free)" if key == "used" else ""
                yield f"{name} {mount} {was} % → {now} %{left}"
        if row.get("note") and not old[mount].get("note"):
            yield f"disk {mount} has become {row['note']}"
    yield from (f"disk {mount} is gone" for mount in old if mount not in new)


def _moved(was: int, now: int) -> bool:
    return abs(now - was) >= _DISK_STEP or was < _TIGHT <= now


def _units(before: Any, after: Any) -> Iterator[str]:
    old, new = _known(before, NO_FAILED_UNITS, "unit"), _known(after, NO_FAILED_UNITS, "unit")
    if old is None or new is None:
        return
    yield from _capped(
        (f"unit {unit} has failed" for unit in new if unit not in old), "failed units"
    )
    yield from _capped(
        (f"unit {unit} is no longer failed" for unit in old if unit not in new), "recovered units"
    )


def _errors(before: Any, after: Any) -> Iterator[str]:
    if not isinstance(before, list) and before != NO_ERRORS:
        return
    seen = {_error(row) for row in _rows(before)}
    new = (row for row in _rows(after) if row.get("source") != "others" and _error(row) not in seen)
    lines = (
        f"new error of {row.get('source')}: {row.get('message')} ({_times(row.get('count'))})"
        for row in new
    )
    yield from _capped(lines, "new kinds of error")


def _error(row: Json) -> tuple[Any, str]:
    return row.get("source"), kind(str(row.get("message")))


def _times(count: Any) -> str:
    return "once" if count == 1 else f"{count} times"


def _updates(before: Any, after: Any) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    was, now = before.get("pending"), after.get("pending")
    if isinstance(was, int) and isinstance(now, int) and was != now:
        security = after.get("security")
        of_them = f", {security} of them for security" if security else ""
        yield f"{plural(now, 'update')} waiting{of_them} (was {was})"
    needed, needed_now = (
        str(side.get("reboot", "")).startswith("needed") for side in (before, after)
    )
    if needed_now and not needed:
        yield f"a reboot is {after['reboot']}"


_PARTS = {
    "host": _host,
    "units": _units,
    "disks": _disks,
    "memory": _memory,
    "load": _load,
    "errors": _errors,
    "updates": _updates,
}


def _percent(row: Any, key: str) -> int | None:
    found = re.match(r"(\d+) %", str(row.get(key, ""))) if isinstance(row, dict) else None
    return int(found[1]) if found else None


def _rows(part: Any) -> list[Json]:
    return [row for row in part if isinstance(row, dict)] if isinstance(part, list) else []


def _by(part: Any, key: str) -> dict[str, Json]:
    return {str(row[key]): row for row in _rows(part) if key in row}


def _known(part: Any, nothing: str, key: str) -> dict[str, Json] | None:
    """Return the rows by key; none if the part says that there is nothing, and no answer if it was
    not known.
    """
    return _by(part, key) if isinstance(part, list) or part == nothing else None


def _capped(lines: Iterable[str], nouns: str) -> Iterator[str]:
    every = list(lines)
    shown = (
        len(every) if len(every) <= _MOST + 1 else _MOST
    )  # "and 1 more" would cost the line that it saves
    yield from every[:shown]
    if more := len(every) - shown:
        yield f"and {more} more {nouns}"
