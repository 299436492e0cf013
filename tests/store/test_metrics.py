"""What the journal adds to the metrics: tokens and dollars of all calls to models."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

from daemon.models import Run, Status, Usage
from daemon.store.database import Work
from daemon.store.history import _LAST_SUCCESSES
from daemon.store.records import CallOutcome, ModelCall
from daemon.store.run_rows import select_last
from tests.store.conftest import Ledger, in_a_file

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def call(
    run: Run,
    outcome: CallOutcome,
    tokens: int,
    cost: int | None = None,
    at: datetime = MIDNIGHT,
) -> ModelCall:
    return ModelCall(
        at=at,
        run=run.id,
        routine=run.routine,
        provider="p",
        model="m",
        outcome=outcome,
        usage=Usage(input=tokens, output=1),
        cost=cost,
    )


async def tokens_of(ledger: Ledger) -> int:
    metrics = await ledger.journal.history.get_metrics()
    return metrics.tokens.get(("p", "m", "input"), 0)


async def test_each_call_is_counted_once_however_often_metrics_are_read(ledger: Ledger) -> None:
    spending, run = ledger.journal.spending, await ledger.start_run()
    assert await tokens_of(ledger) == 0
    await spending.record(call(run, CallOutcome.ANSWERED, 100, cost=7_000_000_000))
    assert await tokens_of(ledger) == 100
    assert await tokens_of(ledger) == 100
    await spending.record(call(run, CallOutcome.FAILED, 20))
    assert await tokens_of(ledger) == 120
    assert (await ledger.journal.history.get_metrics()).cost == {("p", "m"): 7.0}


async def test_a_call_under_way_counts_with_what_it_used_once_it_has_ended(ledger: Ledger) -> None:
    spending, run = ledger.journal.spending, await ledger.start_run()
    reservation = await spending.reserve(call(run, CallOutcome.ASKED, 1000))
    await spending.record(call(run, CallOutcome.ANSWERED, 5))
    assert await tokens_of(ledger) == 5, "a counter that falls is one that began anew"
    await spending.record(call(run, CallOutcome.ANSWERED, 300), reservation)
    assert await tokens_of(ledger) == 305


async def test_calls_of_a_process_that_died_count_with_the_most_they_can_have_used(
    ledger: Ledger,
) -> None:
    spending, run = ledger.journal.spending, await ledger.queue_run()
    await spending.reserve(call(run, CallOutcome.ASKED, 1000))
    await spending.record(call(run, CallOutcome.ANSWERED, 5))
    assert await tokens_of(ledger) == 1005
    assert await tokens_of(ledger) == 1005


async def test_a_call_of_no_run_counts_with_what_it_used_once_it_has_ended(ledger: Ledger) -> None:
    spending = ledger.journal.spending
    no_run, now = replace(await ledger.queue_run(), id=""), ledger.clock.now()
    reservation = await spending.reserve(call(no_run, CallOutcome.ASKED, 1000, at=now))
    assert await tokens_of(ledger) == 0, "a counter that falls is one that began anew"
    assert await spending.get_totals(now) == (0, 0, 0, 1001)
    await spending.record(call(no_run, CallOutcome.ANSWERED, 300, at=now), reservation)
    assert await tokens_of(ledger) == 300
    assert await spending.get_totals(now) == (0, 301, 0, 0)


async def test_a_call_of_no_run_whose_process_died_counts_with_the_most_it_can_have_used(
    ledger: Ledger,
) -> None:
    no_run, now = replace(await ledger.queue_run(), id=""), ledger.clock.now()
    await ledger.journal.spending.reserve(call(no_run, CallOutcome.ASKED, 1000, at=now))
    assert await tokens_of(ledger) == 0
    ledger.clock.advance(minutes=3)
    assert await tokens_of(ledger) == 1000
    assert await tokens_of(ledger) == 1000


@in_a_file
async def test_the_last_success_of_a_routine_costs_the_same_however_often_others_succeed(
    ledger: Ledger,
) -> None:
    async def end_run(routine: str, status: Status) -> None:
        await ledger.journal.runs.end((await ledger.start_run(routine)).to(status))

    def count_instructions(connection: sqlite3.Connection, work: Work[object]) -> int:
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        connection.set_progress_handler(tick, 10)  # of SQLite's virtual machine
        work(connection)
        connection.set_progress_handler(None, 0)
        return ticks

    works: list[Work[object]] = [
        select_last("broken", [Status.SUCCEEDED]),
        lambda connection: connection.execute(_LAST_SUCCESSES).fetchall(),
    ]
    await end_run("broken", Status.SUCCEEDED)
    counts = []
    for runs in (10, 200):
        await end_run("broken", Status.FAILED)
        for _ in range(runs):
            await end_run("daily", Status.SUCCEEDED)
        counts.append(
            [
                await ledger.db.read(
                    lambda connection, work=work: count_instructions(connection, work)
                )
                for work in works
            ]
        )
    assert all(later < 2 * earlier + 10 for earlier, later in zip(*counts, strict=True)), counts
