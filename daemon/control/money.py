"""What models were paid, as the API tells it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

from typing_extensions import TypedDict

from daemon.control.binding import Between
from daemon.control.surface import Surface
from daemon.control.views import iso
from daemon.store.spending import Sum

NANO = 1_000_000_000  # amounts are kept in billionths of a dollar

Days = Annotated[int, Between(1, 3660)]


class By(StrEnum):
    """What to sum calls by."""

    ROUTINE = "routine"
    MODEL = "model"
    DAY = "day"


class SumView(TypedDict):
    """What some calls came to."""

    key: str
    calls: int
    failed: int
    """Of these, how many gave no answer."""
    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int
    usd: float
    unpriced: int
    """Of these, how many have no known price and are not in `usd`."""


class CapView(TypedDict):
    """A limit of [budget] or of a routine's, and where it stands."""

    rule: str
    routine: str | None
    unit: str
    """usd or tokens"""
    limit: float
    spent: float
    """Without calls under way."""


class UsageView(TypedDict):
    """What models were paid."""

    by: str
    since: str
    items: list[SumView]
    total: SumView
    caps: list[CapView]


async def show_usage(surface: Surface, *, by: By = By.ROUTINE, days: Days = 30) -> UsageView:
    """Sum up the calls to models of the last days, by routine, model or day, and tell where the caps stand."""
    zone = ZoneInfo(surface.process()["zone"])
    today = surface.clock().astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=days - 1)
    sums = await surface.journal.sums(by, since=since, zone=zone)
    return UsageView(
        by=by.value,
        since=iso(since),
        items=[_view(each) for each in sums],
        total=_view(Sum.of("", sums)),
        caps=await _caps(surface),
    )


async def _caps(surface: Surface) -> list[CapView]:
    if surface.purse is None:
        return []
    found = []
    for name, cap in await surface.purse.standing(surface.engine.routines.values()):
        spent = (cap.tally.cost if cap.dollars else cap.tally.tokens) / (NANO if cap.dollars else 1)
        limit = cap.limit / (NANO if cap.dollars else 1)
        unit = "usd" if cap.dollars else "tokens"
        found.append(CapView(rule=cap.rule, routine=name, unit=unit, limit=limit, spent=spent))
    return found


def _view(found: Sum) -> SumView:
    usage = found.usage
    return SumView(
        key=found.key,
        calls=found.calls,
        failed=found.failed,
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        output=usage.output,
        reasoning=usage.reasoning,
        usd=found.cost / NANO,
        unpriced=found.unpriced,
    )
