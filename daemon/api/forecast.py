"""Forecasts: what the coming days will take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from daemon.api.binding import RouteRow, WholeNumber
from daemon.api.context import ApiContext
from daemon.api.schemas import ExpectedUsageView, ForecastView, RangeView, iso

if TYPE_CHECKING:
    from datetime import date, datetime

    from daemon.definitions.routines.routine import Routine
    from daemon.scheduler.forecast import ExpectedUsage, UsageRange

Days = Annotated[int, Field(ge=1, le=366), WholeNumber]
# Starts of one routine that are counted; those beyond are left out.
MAX_STARTS = 5000
# Starts that are found before other tasks get the event loop: each takes up to some 100 µs, where a
# schedule has hours, a zone and days without starts.
STARTS_AT_ONCE = 10


async def show_forecast(api: ApiContext, *, days: Days = 30) -> ForecastView:
    """Return what the coming days are likely to use, by the last hundred runs of each routine."""
    # here, as the start of the daemon needs none of it
    from daemon.scheduler.forecast import RunUsage, forecast

    until = api.clock.now() + timedelta(days=days)
    starts, paced_routines = {}, []
    routines = dict(api.engine.routines)  # a reload may take some away meanwhile
    for name in sorted(routines):
        starts[name] = await _find_starts(api, name, until)
        if (pace := routines[name].pace) and starts[name]:
            shortest, longest = pace
            first = api.engine.paced_start(name) or starts[name][0]
            # Only the next start is known. If each later wait is the longest, there are the fewest
            # starts; if each is the shortest, the most.
            further_count = min((until - first) // longest, MAX_STARTS)
            most = len(starts[name]) + (until - first) // shortest
            starts[name] = sorted(
                [
                    *starts[name],
                    *(first + longest * number for number in range(1, further_count + 1)),
                ]
            )
            paced_routines.append({"routine": name, "fewest": len(starts[name]), "most": most})
    usage = await api.journal.history.get_usage_of_runs(
        [name for name, moments in starts.items() if moments]
    )
    history = {
        name: [
            RunUsage(tokens=tokens, seconds=seconds, dollars=dollars)
            for tokens, seconds, dollars in runs
        ]
        for name, runs in usage.items()
    }
    expectation = await asyncio.to_thread(forecast, starts, history, api.settings.zone)
    view = ForecastView(
        days=[
            _view_of_usage(day.isoformat(), expected_usage)
            for day, expected_usage in expectation.days.items()
        ],
        routines=[
            _view_of_usage(name, expected_usage)
            for name, expected_usage in expectation.routines.items()
        ],
        unknown=list(expectation.unknown),
        without_model=[
            name
            for name, runs in history.items()
            if runs and not any(run.tokens for run in runs) and _asks_model(api, routines[name])
        ],
        collisions=[
            {"at": iso(at), "routines": list(names)} for at, names in expectation.collisions
        ],
        collided=expectation.collision_count,
        nights=[
            {
                "day": day.isoformat(),
                "minutes": int(change.total_seconds() // 60),
                "routines": list(names),
            }
            for day, change, names in expectation.nights
        ],
        breaches=_find_breaches(api, expectation.days),
        total=_view_of_usage("total", expectation.total),
    )
    if paced_routines:
        view["paced"] = paced_routines
    return view


async def _find_starts(api: ApiContext, name: str, until: datetime) -> list[datetime]:
    """Return the starts of a routine up to a moment, at most MAX_STARTS; none if it is gone."""
    starts: list[datetime] = []
    while len(starts) < MAX_STARTS and name in api.engine.routines:
        after = starts[-1] if starts else None
        slots = api.engine.next_slots(name, STARTS_AT_ONCE, after=after)
        starts += [slot for slot in slots if slot <= until]
        await asyncio.sleep(0)
        if len(slots) < STARTS_AT_ONCE or slots[-1] > until:
            break
    return starts[:MAX_STARTS]


def _asks_model(api: ApiContext, routine: Routine) -> bool:
    """Return whether the runs of a routine would ask a model now."""
    config, run = api.settings.config, routine.run
    provider = run.provider or config.provider
    return run.asks_model and config.provider_config(provider).kind != "offline"


def _find_breaches(api: ApiContext, days: Mapping[date, ExpectedUsage]) -> list[dict[str, Any]]:
    """Return the caps of config.toml that are likely to be reached, and when."""
    from daemon.scheduler.forecast import UsageRange

    budget = api.settings.config.budget
    breaches: list[dict[str, Any]] = []
    months: dict[str, UsageRange] = {}
    for day, expected_usage in days.items():
        month = day.isoformat()[:7]
        so_far = months.get(month, UsageRange(p50=0, p95=0))
        months[month] = UsageRange(
            p50=so_far.p50 + expected_usage.dollars.p50, p95=so_far.p95 + expected_usage.dollars.p95
        )
        for cap, limit, usage in (
            ("day", budget.day, expected_usage.dollars),
            ("month", budget.month, months[month]),
        ):
            if limit is None or usage.p95 <= limit:
                continue
            if any(breach["cap"] == cap for breach in breaches):
                continue  # only the first day on which a cap is reached
            likely = usage.p50 > limit
            breaches.append({"cap": cap, "day": day.isoformat(), "limit": limit, "likely": likely})
    return breaches


def _view_of_usage(key: str, expected_usage: ExpectedUsage) -> ExpectedUsageView:
    return ExpectedUsageView(
        key=key,
        starts=expected_usage.starts,
        tokens=_view_of_range(expected_usage.tokens),
        usd=_view_of_range(expected_usage.dollars),
        seconds=_view_of_range(expected_usage.seconds),
    )


def _view_of_range(usage: UsageRange) -> RangeView:
    return RangeView(p50=round(usage.p50, 6), p95=round(usage.p95, 6))


ROUTES: tuple[RouteRow, ...] = (("GET", "/v1/forecast", show_forecast),)
