"""Today and tomorrow: what ran, what runs, what is due, and what a person should look at first."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from daemon.cli.call import quote
from daemon.web import charts
from daemon.web.charts import ChartPoint
from daemon.web.queries import all_of
from daemon.web.rendering import kind_of, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.cli.client import Client

    Context = dict[str, Any]

MOST_SLOTS = 3000  # on the time line; a minutely routine has 1,440 a day
MOST_RUNS = 5000  # of today
BAD = ("failed", "timed_out", "interrupted")


class Coming(NamedTuple):
    """When a routine is due on one day."""

    routine: str
    first: datetime
    last: datetime
    times: int


def today(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Today and tomorrow on a time line, what is wrong, and what comes."""
    status = client.request("GET", "/v1/status")
    zone = ZoneInfo(status["zone"])
    now = datetime.now(zone)
    begin, end = midnight(now.date(), zone), midnight(now.date() + timedelta(days=2), zone)
    slots = all_of(client, f"/v1/slots?since={quote(begin.isoformat())}&limit=1000", MOST_SLOTS)
    runs = all_of(client, "/v1/runs?limit=200", MOST_RUNS, lambda run: not _since(run, begin))
    of_today = [run for run in runs if _since(run, begin)]
    fires = [
        (fire["routine"], _local(fire["at"], zone))
        for fire in all_of(client, "/v1/next?days=2&count=1000", MOST_SLOTS)
        if _local(fire["at"], zone) < end
    ]
    rows: dict[str, list[ChartPoint]] = {}
    kinds = {run["id"]: kind_of(run) for run in runs}
    for slot in slots:
        rows.setdefault(slot["routine"], []).append(_moment(slot, kinds, begin, zone))
    for routine, at in fires:
        rows.setdefault(routine, []).append(ChartPoint(at, "due", f"{at:%a %H:%M %Z} due", ""))
    tomorrow = now.date() + timedelta(days=1)
    return "today.html", {
        "title": "Today",
        "status": status,
        "lines": [
            (name, charts.time_line(moments, begin, end)) for name, moments in sorted(rows.items())
        ],
        "hours": charts.hours(begin, end),
        "now": charts.place(now, begin, end),
        "zone": f"{now:%Z}" if f"{now:%Z}" in status["zone"] else f"{status['zone']} ({now:%Z})",
        "latest": runs[:8],
        "failed": Counter(run["routine"] for run in of_today if kind_of(run) in BAD).most_common(8),
        "undelivered": client.request("GET", "/v1/deliveries?status=failed&limit=5")["items"],
        "waiting": client.request("GET", "/v1/approvals?status=pending&limit=50")["items"],
        "coming": [
            ("Still today", coming(fires, now.date())),
            (f"Tomorrow, {tomorrow:%A %d %B}", coming(fires, tomorrow)),
        ],
    }


def coming(fires: Iterable[tuple[str, datetime]], day: date) -> list[Coming]:
    """Return a line per routine that is due on a day, the earliest first."""
    found: dict[str, Coming] = {}
    for routine, at in sorted(fires, key=lambda fire: fire[1]):
        if at.date() == day:
            known = found.get(routine)
            found[routine] = Coming(
                routine, known.first if known else at, at, known.times + 1 if known else 1
            )
    return list(found.values())


def midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone)


def _moment(
    slot: Mapping[str, Any], kinds: Mapping[str, str], begin: datetime, zone: ZoneInfo
) -> ChartPoint:
    kind = kinds.get(slot["run"], slot["outcome"])
    at = _local(slot["first"], zone)
    said = words(kind) + (f", {words(slot['reason'])}" if slot["reason"] else "")
    more = f" ({slot['count']} slots)" if slot["count"] > 1 else ""
    href = f"/runs/{slot['run']}" if slot["run"] else f"/routines/{quote(slot['routine'])}"
    return ChartPoint(max(at, begin), kind, f"{at:%H:%M %Z} {said}{more}", href)


def _local(iso: str, zone: ZoneInfo) -> datetime:
    return datetime.fromisoformat(iso).astimezone(zone)


def _since(run: Mapping[str, Any], begin: datetime) -> bool:
    return datetime.fromisoformat(run["created"]) >= begin
