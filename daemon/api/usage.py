"""Usage: what calls to models cost, and where the caps stand."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from daemon.api.binding import RouteRow, WholeNumber
from daemon.api.context import ApiContext
from daemon.api.schemas import Page, UsageView, iso, view_of_usage
from daemon.store.records import ModelCall, SpendingTotal
from daemon.system.clock import midnight

NANO = 1_000_000_000  # amounts are kept in billionths of a dollar

Days = Annotated[int, Field(ge=1, le=3660), WholeNumber]
DaysBack = Annotated[int, Field(ge=1, le=400), WholeNumber]


class GroupBy(StrEnum):
    """What to sum calls by."""

    ROUTINE = "routine"
    MODEL = "model"
    DAY = "day"


class SumView(TypedDict):
    """What some calls came to."""

    key: str
    """The routine, model or day that they are summed by; empty for the total."""
    calls: int
    """How many calls there were."""
    failed: int
    """Of these, how many gave no answer."""
    input: int
    """Tokens sent, cached parts included."""
    cache_read: int
    """Of `input`, tokens that the vendor read from its cache."""
    cache_write: int
    """Of `input`, tokens that the vendor wrote to its cache."""
    output: int
    """Tokens answered, reasoning included."""
    reasoning: int
    """Of `output`, tokens of reasoning."""
    usd: float
    """Dollars."""
    unpriced: int
    """Of these, how many have no known price and are not in `usd`."""


class CapView(TypedDict):
    """A limit of [budget] or of a routine's, and where it stands."""

    rule: str
    """The key and its value, such as `[budget] day = 5`."""
    routine: str | None
    """The routine whose limit it is; null for one of config.toml."""
    period: str
    """day or month"""
    unit: str
    """usd or tokens"""
    limit: float
    """How much may be used in the period."""
    spent: float
    """Without calls under way."""


class SpendingView(TypedDict):
    """What calls to models cost."""

    by: str
    """What the calls are summed by: routine, model or day."""
    since: str
    """The beginning of the first day that counts."""
    items: list[SumView]
    """One sum for each routine, model or day."""
    total: SumView
    """The sum of all of them."""
    caps: list[CapView]
    """Where the caps of config.toml and of routines stand."""


class DaySumView(SumView):
    """What the calls of one routine on one day came to."""

    day: str
    """The date, in the daemon's zone."""
    routine: str
    """The name of the routine."""


class CallView(TypedDict):
    """One call of a run to a model."""

    at: str
    """When the model was asked."""
    provider: str
    """The provider that was asked."""
    model: str
    """The model that was asked."""
    outcome: str
    """answered, failed (nothing to pay), unknown (it broke off; the most it can come to) or asked
    (under way)
    """
    usage: UsageView
    """The tokens of the call."""
    usd: float | None
    """Null where nobody knows the price."""


async def show_usage(
    api: ApiContext, *, by: GroupBy = GroupBy.ROUTINE, days: Days = 30
) -> SpendingView:
    """Return the sums of the calls to models of the last days, by routine, model or day, and how
    much of each cap is spent.
    """
    zone = api.settings.zone
    since = midnight(api.clock.now(), zone) - timedelta(days=days - 1)
    sums = await api.journal.spending.sum_by(by, since=since, zone=zone)
    return SpendingView(
        by=by.value,
        since=iso(since),
        items=[_view_of_total(total) for total in sums],
        total=_view_of_total(SpendingTotal.of("", sums)),
        caps=await _load_cap_views(api),
    )


async def list_usage_by_day(api: ApiContext, *, days: DaysBack = 30) -> Page[DaySumView]:
    """Return the sums of the calls to models by day and routine, for so many days up to today."""
    zone = api.settings.zone
    today = api.clock.now().astimezone(zone).date()
    # one more than days: the end of the last day
    dates = [today + timedelta(days=number - days + 1) for number in range(days + 1)]
    totals_by_day = await api.journal.spending.sum_by_day(
        [datetime.combine(date, time(), zone) for date in dates]
    )
    items = [
        DaySumView(**_view_of_total(total), day=date.isoformat(), routine=total.key)
        for date, totals in zip(dates, totals_by_day, strict=False)
        for total in totals
    ]
    return Page(items=items, next=None)


async def list_calls(api: ApiContext, *, id: str) -> Page[CallView]:  # noqa: A002 - the name in the path
    """List a run's calls to models in their order, those without an answer too, and what each
    cost.
    """
    run = await api.journal.runs.get(id)
    calls = await api.journal.spending.find_calls(run.id)
    return Page(items=[_view_of_call(call) for call in calls], next=None)


def _view_of_call(call: ModelCall) -> CallView:
    return CallView(
        at=iso(call.at),
        provider=call.provider,
        model=call.model,
        outcome=call.outcome.value,
        usage=view_of_usage(call.usage),
        usd=None if call.cost is None else call.cost / NANO,
    )


async def _load_cap_views(api: ApiContext) -> list[CapView]:
    """Return the caps of the config and of routines, and what was spent of each."""
    views = []
    for name, cap in await api.budget_ledger.list_caps(api.engine.routines.values()):
        unit, spent, limit = "tokens", float(cap.total.tokens), float(cap.limit)
        if cap.is_money:
            unit, spent, limit = "usd", cap.total.cost / NANO, cap.limit / NANO
        views.append(
            CapView(
                rule=cap.setting,
                routine=name,
                period=cap.period,
                unit=unit,
                limit=limit,
                spent=spent,
            )
        )
    return views


def _view_of_total(total: SpendingTotal) -> SumView:
    usage = total.usage
    return SumView(
        key=total.key,
        calls=total.calls,
        failed=total.failed,
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        output=usage.output,
        reasoning=usage.reasoning,
        usd=total.cost / NANO,
        unpriced=total.unpriced,
    )


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/usage", show_usage),
    ("GET", "/v1/usage/days", list_usage_by_day),
    ("GET", "/v1/runs/{id}/calls", list_calls),
)
