"""Today and tomorrow: what ran, what runs, what is due, and what a person should see first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from daemon.cli.call import quote
from daemon.cli.render import humanize
from daemon.web.charts import ChartPoint, hour_labels, percent_between, time_line
from daemon.web.queries import request_items
from daemon.web.rendering import run_kind

if TYPE_CHECKING:
    from daemon.cli.client import Client

    Context = dict[str, Any]

MAX_SLOTS = 3000  # on the time line; a minutely routine has 1,440 a day
MAX_RUNS = 5000  # of today
FAILURES = ("failed", "timed_out", "interrupted")


class RoutineStarts(NamedTuple):
    """When a routine is due on one day, and how often."""

    routine: str
    first: datetime
    last: datetime
    start_count: int


def today(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Today and tomorrow on a time line, what is wrong, and what comes."""
    status = client.request("GET", "/v1/status")
    zone = ZoneInfo(status["zone"])
    now = datetime.now(zone)
    tomorrow = now.date() + timedelta(days=1)
    begin = datetime.combine(now.date(), time(), zone)
    end = datetime.combine(now.date() + timedelta(days=2), time(), zone)
    slots = request_items(
        client, f"/v1/slots?since={quote(begin.isoformat())}&limit=1000", MAX_SLOTS
    )
    runs = request_items(client, "/v1/runs?limit=200", MAX_RUNS, since=begin)
    starts = [
        (start["routine"], _parse_instant(start["at"], zone))
        for start in request_items(client, "/v1/next?days=2&count=1000", MAX_SLOTS)
    ]
    starts = [(routine, at) for routine, at in starts if at < end]

    kind_by_run = {run["id"]: run_kind(run) for run in runs}
    points: dict[str, list[ChartPoint]] = {}
    for slot in slots:
        point = _slot_point(slot, kind_by_run, begin, zone)
        points.setdefault(slot["routine"], []).append(point)
    for routine, at in starts:
        point = ChartPoint(at, "due", f"{at:%a %H:%M %Z} due")
        points.setdefault(routine, []).append(point)
    failures = Counter(
        run["routine"]
        for run in runs
        if run_kind(run) in FAILURES and datetime.fromisoformat(run["created"]) >= begin
    )
    zone_name = f"{now:%Z}"
    return "today.html", {
        "title": "Today",
        "status": status,
        "lines": [(routine, time_line(points[routine], begin, end)) for routine in sorted(points)],
        "hours": hour_labels(begin, end),
        "now": percent_between(now, begin, end),
        "zone": zone_name if zone_name in status["zone"] else f"{status['zone']} ({zone_name})",
        "latest": runs[:8],
        "failures": failures.most_common(8),
        "undelivered": client.request("GET", "/v1/deliveries?status=failed&limit=5")["items"],
        "approvals": client.request("GET", "/v1/approvals?status=pending&limit=50")["items"],
        "starts_by_day": [
            ("Still today", group_starts(starts, now.date())),
            (f"Tomorrow, {tomorrow:%A %d %B}", group_starts(starts, tomorrow)),
        ],
    }


def group_starts(starts: Iterable[tuple[str, datetime]], day: date) -> list[RoutineStarts]:
    """Return the starts of one day by routine, the earliest first."""
    times: dict[str, list[datetime]] = {}
    for routine, at in sorted(starts, key=lambda start: start[1]):
        if at.date() == day:
            times.setdefault(routine, []).append(at)
    return [
        RoutineStarts(routine, first=at[0], last=at[-1], start_count=len(at))
        for routine, at in times.items()
    ]


def _slot_point(
    slot: Mapping[str, Any], kind_by_run: Mapping[str, str], begin: datetime, zone: ZoneInfo
) -> ChartPoint:
    """Return a slot, or several in a row with the same outcome, as a point with a link."""
    kind = kind_by_run.get(slot["run"], slot["outcome"])
    at = _parse_instant(slot["first"], zone)
    label = f"{at:%H:%M %Z} {humanize(kind)}"
    if slot["reason"]:
        label += f", {humanize(slot['reason'])}"
    if slot["count"] > 1:
        label += f" ({slot['count']} slots)"
    href = f"/runs/{slot['run']}" if slot["run"] else f"/routines/{quote(slot['routine'])}"
    return ChartPoint(max(at, begin), kind, label, href)


def _parse_instant(iso: str, zone: ZoneInfo) -> datetime:
    return datetime.fromisoformat(iso).astimezone(zone)
