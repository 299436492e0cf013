"""Who waits for whom at the slot ledger."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from daemon.models import Status
from daemon.scheduler.slot_ledger import SlotLedger
from daemon.system.clock import SystemClock
from tests.engine_harness import EngineHarness, routine


@pytest.fixture
async def ledger(harness: EngineHarness) -> SlotLedger:
    """A ledger without routines, on the journal of the harness."""
    await harness.boot(routine())
    return SlotLedger(
        journal=harness.journal,
        submit=harness.submit,
        cancel=harness.cancel,
        clock=SystemClock(),
        zone="UTC",
        machine="box",
        host="box-1.example.org",
    )


class Holder:
    """A task that holds a lock of the ledger until it is told to leave."""

    def __init__(self, lock: object) -> None:
        self._leave = asyncio.Event()
        self.holds = False
        self._task = asyncio.create_task(self._hold(lock))

    async def _hold(self, lock: object) -> None:
        async with lock:  # type: ignore[attr-defined]
            self.holds = True
            await self._leave.wait()
        self.holds = False

    async def leave(self) -> None:
        self._leave.set()
        await self._task
        await turn_loop()


async def turn_loop() -> None:
    """Let every task go on that has not to wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_shared_locks_do_not_wait_for_each_other_and_the_exclusive_lock_waits_for_all(
    ledger: SlotLedger,
) -> None:
    sharers = [Holder(ledger.lock_shared()) for _ in range(3)]
    await turn_loop()
    assert [sharer.holds for sharer in sharers] == [True] * 3
    owner = Holder(ledger.lock())
    for sharer in sharers:
        await turn_loop()
        assert not owner.holds
        await sharer.leave()
    assert owner.holds


async def test_holders_of_the_shared_lock_wait_for_the_lock(ledger: SlotLedger) -> None:
    for _ in range(2):
        owner = Holder(ledger.lock())
        await turn_loop()
        sharers = [Holder(ledger.lock_shared()) for _ in range(2)]
        await turn_loop()
        assert owner.holds
        assert [sharer.holds for sharer in sharers] == [False, False]
        await owner.leave()
        assert [sharer.holds for sharer in sharers] == [True, True]
        for sharer in sharers:
            await sharer.leave()


async def test_a_run_that_ended_well_does_not_wait_for_claims_under_way(
    harness: EngineHarness, ledger: SlotLedger
) -> None:
    queued_run, now = await harness.engine.run_now("daily"), datetime.now(UTC)
    run = queued_run.to(Status.RUNNING, started=now)
    async with ledger.lock():
        success = asyncio.create_task(ledger.record_end(run.to(Status.SUCCEEDED, ended=now)))
        failure = asyncio.create_task(ledger.record_end(run.to(Status.FAILED, ended=now)))
        await turn_loop()
        assert success.done()
        assert not failure.done()
    await failure
