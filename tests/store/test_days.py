"""Counts of runs and slots per routine and day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from daemon.models import Outcome, Reason, Status, Usage
from tests.store.conftest import START, Ledger

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
EDGES = [MIDNIGHT + timedelta(days=number) for number in range(-2, 3)]
TODAY = 2


async def test_runs_of_a_day_are_counted_by_outcome_with_silent_runs_apart(ledger: Ledger) -> None:
    for status, silent in (
        (Status.SUCCEEDED, False),
        (Status.SUCCEEDED, True),
        (Status.FAILED, False),
    ):
        run = await ledger.start_run()
        ended_run = run.to(
            status, ended=ledger.clock.now(), silent=silent, usage=Usage(input=10, output=2)
        )
        await ledger.journal.runs.end(ended_run)
    await ledger.start_run()  # one that is not over is no outcome yet
    (day,) = await ledger.journal.history.get_days(EDGES)
    assert (day.routine, day.day) == ("daily", TODAY)
    assert day.outcomes == {"succeeded": 1, "silent": 1, "failed": 1}
    assert day.tokens == {"input": 30, "output": 6}


async def test_a_row_of_many_missed_slots_is_counted_on_each_of_its_days(ledger: Ledger) -> None:
    first, last = MIDNIGHT - timedelta(hours=36), MIDNIGHT + timedelta(hours=7)
    await ledger.journal.slots.account(
        "minutely", first=first, last=last, count=7, outcome=Outcome.MISSED, reason=Reason.DOWN
    )
    days = await ledger.journal.history.get_days(EDGES)
    assert [(day.day, day.outcomes["missed"]) for day in days] == [(0, 2), (1, 4), (2, 1)]


async def test_a_row_of_weekly_slots_is_counted_on_the_days_of_these_slots_only(
    ledger: Ledger,
) -> None:
    await ledger.journal.slots.account(
        "weekly",
        first=START - timedelta(weeks=2),
        last=START,
        count=3,
        outcome=Outcome.SKIPPED,
        reason=Reason.PAUSED,
    )
    edges = [MIDNIGHT + timedelta(days=number) for number in range(-20, 3)]
    days = await ledger.journal.history.get_days(edges)
    assert [(day.day, day.outcomes["skipped"]) for day in days] == [(6, 1), (13, 1), (20, 1)]


async def test_the_time_of_a_run_is_that_of_its_attempts_or_from_its_start_to_its_end(
    ledger: Ledger,
) -> None:
    usage = Usage(input=10, output=2)
    once = await ledger.start_run()
    ledger.clock.advance(seconds=7)
    ended = ledger.clock.now()
    await ledger.journal.runs.end(once.to(Status.SUCCEEDED, ended=ended, usage=usage))
    interrupted = await ledger.start_run()
    await ledger.journal.runs.suspend(interrupted)
    ledger.clock.advance(hours=1)
    interrupted = await ledger.journal.runs.claim(interrupted.id, owner="me")
    assert interrupted is not None
    ended = ledger.clock.now()
    await ledger.journal.runs.end(interrupted.to(Status.SUCCEEDED, ended=ended, active=20.0))
    gated = await ledger.start_run()
    await ledger.journal.runs.end(gated.to(Status.SKIPPED, ended=ledger.clock.now()))
    usage_by_routine = await ledger.journal.history.get_usage_of_runs(["daily"])
    assert usage_by_routine == {"daily": [(0, 0.0, 0.0), (0, 20.0, 0.0), (12, 7.0, 0.0)]}


async def test_runs_outside_the_days_are_not_counted(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED, ended=ledger.clock.now()))
    later = [START + timedelta(days=number) for number in (1, 2)]
    earlier = [START - timedelta(days=number) for number in (2, 1)]
    assert await ledger.journal.history.get_days(later) == []
    assert await ledger.journal.history.get_days(earlier) == []
