"""Today: whether all is well, the newest report, and what ran, runs and is due until tomorrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from daemon.cli.call import quote
from daemon.cli.render import humanize
from daemon.models import FAILURES, Status
from daemon.plurals import pluralize
from daemon.web.attention import without_approvals
from daemon.web.charts import ChartPoint, make_hour_labels, make_time_line, percent_between
from daemon.web.queries import request_items
from daemon.web.rendering import run_kind

if TYPE_CHECKING:
    from daemon.cli.client import Client

    Context = dict[str, Any]

MAX_SLOTS = 3000  # on the time line; a minutely routine has 1,440 a day
MAX_RUNS = 5000  # of today
MAX_COUNTED = 1000  # deliveries, approvals: all that one answer of the daemon has room for


class AttentionItem(NamedTuple):
    """Something that a person should look at, and where."""

    text: str
    href: str
    is_question: bool = False
    """Nothing is wrong: a call waits for an answer."""


class RoutineStarts(NamedTuple):
    """When a routine is due on one day, and how often."""

    routine: str
    first: datetime
    last: datetime
    start_count: int


def show_today(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show whether all is well, the newest report, and today and tomorrow on a time line."""
    status = client.request("GET", "/v1/status?counts=false")
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
        point = _make_slot_point(slot, kind_by_run, begin, zone)
        points.setdefault(slot["routine"], []).append(point)
    for routine, at in starts:
        point = ChartPoint(at, "due", f"{at:%a %H:%M %Z} due")
        points.setdefault(routine, []).append(point)
    runs_of_today = [run for run in runs if datetime.fromisoformat(run["created"]) >= begin]
    failures = Counter(run["routine"] for run in runs_of_today if run_kind(run) in FAILURES)
    known_names = find_known_routines(status["incidents"])
    failing_names = find_failing_routines(runs_of_today)
    failed_deliveries, approvals = (
        client.request("GET", f"/v1/{path}&limit={MAX_COUNTED}")["items"]
        for path in ("deliveries?status=failed", "approvals?status=pending")
    )
    attention_items = find_attention_items(status, failing_names, len(failed_deliveries), approvals)
    zone_name = f"{now:%Z}"
    return "today.html", {
        "title": "Today: " + ("all is well" if not attention_items else attention_items[0].text),
        "status": status,
        "attention_items": attention_items,
        "incidents": without_approvals(status["incidents"]),
        "report": _request_newest_report(client, runs),
        "lines": [
            (routine, make_time_line(points[routine], begin, end)) for routine in sorted(points)
        ],
        "hours": make_hour_labels(begin, end),
        "now": percent_between(now, begin, end),
        "begin": begin.isoformat(),
        "end": end.isoformat(),
        "zone": zone_name if zone_name in status["zone"] else f"{status['zone']} ({zone_name})",
        "latest": runs[:8],
        "failures": [
            (name, count) for name, count in failures.most_common() if name in failing_names
        ][:8],
        "known": known_names,
        "past_failures": [
            (name, count) for name, count in failures.most_common() if name not in failing_names
        ][:8],
        "undelivered": failed_deliveries,
        "approvals": approvals,
        "starts_by_day": [
            ("Still today", group_starts(starts, now.date())),
            (f"Tomorrow, {tomorrow:%A %d %B}", group_starts(starts, tomorrow)),
        ],
    }


def find_failing_routines(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the routines whose last run that ended did not succeed, of runs from the newest on.

    A run that was cancelled or skipped tells nothing of whether its routine works again.
    """
    last_kinds: dict[str, str] = {}
    for run in runs:
        if run["ended"] and run["status"] not in (Status.CANCELLED, Status.SKIPPED):
            last_kinds.setdefault(run["routine"], run_kind(run))
    return [routine for routine, kind in last_kinds.items() if kind in FAILURES]


def find_known_routines(incidents: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the routines whose incident a person has acknowledged."""
    return {
        incident["subject"].removeprefix("routine ")
        for incident in incidents
        if incident["acked"] and incident["subject"].startswith("routine ")
    }


def find_attention_items(
    status: Mapping[str, Any],
    failing_names: Sequence[str],
    undelivered_count: int,
    approvals: Sequence[Mapping[str, Any]],
) -> list[AttentionItem]:
    """Return what a person should look at, the worst first; what a person knows of is left out.

    `status` is the daemon's, with its open incidents.
    """
    known_names = find_known_routines(status["incidents"])
    failing_names = [routine for routine in failing_names if routine not in known_names]
    incidents = [
        incident for incident in without_approvals(status["incidents"]) if not incident["acked"]
    ]
    faulty_count = status["routines"]["invalid"] + status["routines"]["kept"]
    items = []
    if failing_names:
        filters = (
            f"?routine={quote(failing_names[0])}" if len(failing_names) == 1 else "?status=failed"
        )
        items.append(
            AttentionItem(f"{pluralize(len(failing_names), 'routine')} failed", f"/runs{filters}")
        )
    if incidents:
        verb = "is" if len(incidents) == 1 else "are"
        text = f"{pluralize(len(incidents), 'incident')} {verb} open"
        items.append(AttentionItem(text, "/deliveries"))
    if undelivered_count:
        text = f"{pluralize(undelivered_count, 'report')} did not arrive"
        items.append(AttentionItem(text, "/deliveries?status=failed"))
    if faulty_count:
        verb = "has a fault" if faulty_count == 1 else "have faults"
        items.append(AttentionItem(f"{pluralize(faulty_count, 'routine')} {verb}", "/routines"))
    if status["fault"]:
        items.append(AttentionItem("the last reload changed nothing", "#fault"))
    if approvals:
        verb = "waits" if len(approvals) == 1 else "wait"
        text = f"{pluralize(len(approvals), 'call')} {verb} for your word"
        items.append(AttentionItem(text, "/approvals", is_question=True))
    return items


def _request_newest_report(client: Client, runs: Sequence[Mapping[str, Any]]) -> Context | None:
    """Return the newest run that succeeded with something to report; `runs` are the newest ones."""
    runs_with_report = [run for run in runs if _has_report(run)]
    if not runs_with_report:
        older = client.request("GET", "/v1/runs?status=succeeded&limit=200")["items"]
        runs_with_report = [run for run in older if _has_report(run)]
    if not runs_with_report:
        return None
    report: Context = client.request("GET", f"/v1/runs/{quote(runs_with_report[0]['id'])}")
    return report


def _has_report(run: Mapping[str, Any]) -> bool:
    return run_kind(run) == "succeeded" and bool(run["headline"])


def group_starts(starts: Iterable[tuple[str, datetime]], day: date) -> list[RoutineStarts]:
    """Return the starts of one day by routine, the earliest first."""
    moments_by_routine: dict[str, list[datetime]] = {}
    for routine, at in sorted(starts, key=lambda start: start[1].astimezone(UTC)):
        if at.date() == day:
            moments_by_routine.setdefault(routine, []).append(at)
    return [
        RoutineStarts(routine, first=moments[0], last=moments[-1], start_count=len(moments))
        for routine, moments in moments_by_routine.items()
    ]


def _make_slot_point(
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
