"""Any order of moves, with crashes: no acknowledged step is lost, no stale owner writes, no slot is
given twice.

A crash is an image: while the writer stands still, the files are copied as kill -9 would leave
them, and life goes on from the copy. Steps that were submitted but not acknowledged by then are
gone; nothing else may be.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule

from daemon.errors import Fenced, Refused
from daemon.models import Outcome, Reason, Run, Status
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database
from tests.properties import scaled_settings
from tests.store.conftest import START, Ledger, step

T = TypeVar("T")

ROUTINES = st.sampled_from(["a", "b"])
MINUTES = st.integers(0, 8)
ENDS = st.sampled_from([Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED])
SHM = Path("/dev/shm")
CLOCK = FakeClock(START + timedelta(days=1))


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


class JournalMachine(RuleBasedStateMachine):
    """The journal beside a model of it, made of dicts."""

    runs: Bundle[str] = Bundle("runs")
    holders: Bundle[tuple[Journal, Run]] = Bundle("holders")
    """Runs and who once took them; most have been taken over since."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        # in memory where there is such a place: hundreds of commits would wait for a disk that this
        # test does not doubt
        self.folder = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.lives = 0
        self.slots: dict[tuple[str, int], str] = {}
        self.steps: dict[str, list[int]] = {}
        self.status: dict[str, Status] = {}
        self.fence: dict[str, int] = {}
        self.delivery_keys: set[str] = set()
        self.number = 0
        self.open()

    def open(self) -> None:
        self.lives += 1
        path = self.folder / str(self.lives) / "agentd.db"
        path.parent.mkdir(exist_ok=True)
        self.db = self.wait(lambda: Database.open(copy_empty_database(path)))
        self.journal = Journal(self.db, clock=CLOCK.now)

    def wait(self, call: Callable[[], Awaitable[T]]) -> T:
        async def call_and_wait() -> T:
            return await call()

        return self.runner.run(call_and_wait())

    def teardown(self) -> None:
        try:
            self.wait(self.compare)
        finally:
            self.wait(self.db.close)
            self.runner.close()
            shutil.rmtree(self.folder)

    def alive(self, holder: tuple[Journal, Run]) -> tuple[Journal, Run]:
        """Return the holder; one who died in a crash is heard as if the next process had got hold
        of its run.
        """
        journal, run = holder
        return (journal if journal._db is self.db else self.journal), run

    def is_owned(self, run: Run) -> bool:
        return self.status[run.id] is Status.RUNNING and self.fence[run.id] == run.fence

    # --- slots

    @rule(target=runs, routine=ROUTINES, minutes=st.lists(MINUTES, min_size=1, max_size=3))
    def claim(self, routine: str, minutes: list[int]) -> Any:
        ledger = Ledger(self.db, FakeClock(START))
        claims = [ledger.claim(routine, slot=at(minute)) for minute in minutes]
        opened_runs = self.wait(lambda: self.journal.slots.claim(claims))
        for minute, run in zip(minutes, opened_runs, strict=True):
            assert (run is None) == ((routine, minute) in self.slots)
            if run is not None:
                self.slots[routine, minute] = run.id
                self.steps[run.id], self.status[run.id], self.fence[run.id] = (
                    [],
                    run.status,
                    run.fence,
                )
        return multiple(*(run.id for run in opened_runs if run))

    @rule(routine=ROUTINES, count=st.integers(1, 3), reason=st.sampled_from(list(Reason)))
    def account(self, routine: str, count: int, reason: Reason) -> None:
        """Account for what follows the last slot that is accounted for, as the engine does; a
        second time for luck.
        """
        first = max((minute for name, minute in self.slots if name == routine), default=-1) + 1
        last = first + count - 1
        for _ in range(2):
            self.wait(
                lambda: self.journal.slots.account(
                    routine,
                    first=at(first),
                    last=at(last),
                    count=count,
                    outcome=Outcome.MISSED,
                    reason=reason,
                )
            )
        self.slots |= {(routine, minute): "missed" for minute in range(first, last + 1)}

    # --- runs

    @rule(target=holders, run_id=runs)
    def take(self, run_id: str) -> Any:
        run = self.wait(lambda: self.journal.runs.claim(run_id, owner="me"))
        assert (run is not None) == (self.status[run_id] is Status.QUEUED)
        if run is None:
            return multiple()
        assert run.fence > self.fence[run_id]
        self.status[run_id], self.fence[run_id] = Status.RUNNING, run.fence
        return self.journal, run

    @rule(target=holders, run_id=runs, stepping=st.booleans())
    def begin(self, run_id: str, stepping: bool) -> Any:
        """Take a run without waiting; what is written behind that is kept only with it."""

        async def begin_run() -> Run | None:
            run = self.journal.runs.claim_lazily(run_id, owner="me")
            if run and stepping:
                await self.journal.runs.append(run, step(number=self.number))
            elif run:
                await self.journal.runs.confirm_claim(run)
            return run

        run = self.wait(begin_run)
        if run is None:
            return multiple()
        assert self.status[run_id] is Status.QUEUED
        assert run.fence > self.fence[run_id]
        self.status[run_id], self.fence[run_id] = Status.RUNNING, run.fence
        if stepping:
            self.steps[run_id].append(self.number)
            self.number += 1
        return self.journal, run

    @rule(holder=holders, durable=st.booleans(), count=st.integers(1, 3))
    def append(self, holder: tuple[Journal, Run], durable: bool, count: int) -> None:
        journal, run = self.alive(holder)
        numbers = range(self.number, self.number + count)
        self.number += count
        steps = [step(number=number) for number in numbers]
        if self.is_owned(run):
            self.wait(lambda: journal.runs.append(run, *steps, durable=durable))
            self.steps[run.id] += numbers
        else:
            with pytest.raises(Fenced):
                self.wait(lambda: journal.runs.append(run, *steps, durable=durable))

    @rule(target=holders, holder=holders, again=st.booleans())
    def suspend(self, holder: tuple[Journal, Run], again: bool) -> Any:
        journal, run = self.alive(holder)
        if not self.is_owned(run):
            with pytest.raises(Fenced):
                self.wait(lambda: journal.runs.suspend(run))
            return multiple()
        queued_run = self.wait(lambda: journal.runs.suspend(run))
        assert queued_run.fence > run.fence
        self.status[run.id], self.fence[run.id] = Status.QUEUED, queued_run.fence
        return self.take(run.id) if again else multiple()

    @rule(holder=holders, status=ENDS)
    def end(self, holder: tuple[Journal, Run], status: Status) -> None:
        journal, run = self.alive(holder)
        if self.is_owned(run):
            self.wait(lambda: journal.runs.end(run.to(status), [("file", {})]))
            self.status[run.id] = status
            self.delivery_keys.add(run.id)
        else:
            with pytest.raises(Fenced):
                self.wait(lambda: journal.runs.end(run.to(status), [("file", {})]))

    @rule(run_id=runs)
    def cancel(self, run_id: str) -> None:
        if self.status[run_id].has_ended:
            with pytest.raises(Refused):
                self.wait(lambda: self.journal.runs.request_cancel(run_id))
            return
        run = self.wait(lambda: self.journal.runs.request_cancel(run_id))
        assert run.cancel
        assert run.status is (
            Status.RUNNING if self.status[run_id] is Status.RUNNING else Status.CANCELLED
        )
        self.status[run_id], self.fence[run_id] = run.status, run.fence

    # --- the end of a process, and the next one

    @rule()
    def supersede(self) -> None:
        """Take all runs from a process that only seems dead: it may still try to write."""
        self.journal = Journal(self.db, clock=CLOCK.now)
        self.recover()

    def recover(self) -> None:
        recovered_runs = self.wait(lambda: self.journal.runs.recover("me"))
        for run_id, status in self.status.items():
            if status is Status.RUNNING:
                self.status[run_id] = Status.QUEUED
        assert {run.id for run in recovered_runs} == {
            run_id for run_id, status in self.status.items() if status is Status.QUEUED
        }
        self.fence |= {run.id: run.fence for run in recovered_runs}

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.wait(self.compare)
        running_ids = [run_id for run_id, status in self.status.items() if status is Status.RUNNING]
        flying = (
            data.draw(st.lists(st.sampled_from(running_ids), max_size=3)) if running_ids else []
        )
        self.wait(lambda: self.die(flying))
        self.open()
        self.recover()

    async def die(self, flying: list[str]) -> None:
        """Copy the files while steps are on their way, then let the old process go."""
        is_blocked, may_leave = threading.Event(), threading.Event()

        def stand(connection: object) -> None:
            is_blocked.set()
            may_leave.wait()

        writes = [self.db.submit(stand)]
        await asyncio.to_thread(is_blocked.wait)
        steps = [
            self.journal.runs.append(await self.journal.runs.get(run_id), step(number=-1))
            for run_id in flying
        ]
        folder = self.db.path.parent
        shutil.copytree(
            folder, folder.with_name(str(self.lives + 1)), ignore=shutil.ignore_patterns("*-shm")
        )
        may_leave.set()
        await asyncio.gather(*writes, *steps)
        await self.db.close()

    async def compare(self) -> None:
        """Hold the record against the model."""
        runs = {run.id: run for run in await self.journal.runs.find(limit=1_000)}
        assert {run_id: run.status for run_id, run in runs.items()} == self.status
        assert {run_id: run.fence for run_id, run in runs.items()} == self.fence
        for run_id, expected in self.steps.items():
            steps = await self.journal.runs.get_steps(run_id)
            assert [step.body["number"] for step in steps] == expected
            assert [step.seq for step in steps] == list(range(len(expected)))
        rows = await self.journal.slots.find(limit=1_000)
        assert sum(row.count for row in rows) == len(self.slots)
        assert {row.run for row in rows if row.run} == set(runs)
        assert sorted(
            delivery.run for delivery in await self.journal.outbox.find(limit=1_000)
        ) == sorted(self.delivery_keys)


JournalMachine.TestCase.settings = scaled_settings(60, steps=40)
TestJournal = JournalMachine.TestCase
