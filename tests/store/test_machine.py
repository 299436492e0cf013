"""Any order of moves, with crashes: no acknowledged step is lost, no stale owner writes, no slot is given twice.

A crash is an image: while the writer stands still, the files are copied as kill -9 would leave them, and life goes on
from the copy. What was submitted but not acknowledged by then may or may not be in it; nothing else may differ.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from daemon.errors import Fenced, Refused
from daemon.models import Outcome, Reason, Run, Status
from daemon.store import Database
from tests.store.conftest import START, Clock, Ledger, step

T = TypeVar("T")

ROUTINES = st.sampled_from(["a", "b"])
MINUTES = st.integers(0, 12)
SHM = Path("/dev/shm")


class JournalMachine(RuleBasedStateMachine):
    """The journal beside a model of it, made of dicts."""

    hands: Bundle[Run] = Bundle("hands")
    """Runs as somebody holds them; most are stale."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        # in memory where there is such a place: hundreds of commits here wait for a disk that this test does not doubt
        self.folder = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.images = 0
        self.clock = Clock(START + timedelta(days=1))
        self.slots: dict[tuple[str, int], str] = {}
        self.steps: dict[str, list[int]] = {}
        self.status: dict[str, Status] = {}
        self.fence: dict[str, int] = {}
        self.deliveries: set[str] = set()
        self.number = 0
        self.open()

    def wait(self, call: Callable[[], Awaitable[T]]) -> T:
        async def awaited() -> T:
            return await call()

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.wait(lambda: self.db.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def open(self) -> None:
        self.images += 1
        path = self.folder / str(self.images) / "agentd.db"
        path.parent.mkdir(exist_ok=True)
        self.db = self.wait(lambda: Database.open(path))
        self.journal = Ledger(self.db, self.clock).journal

    def owns(self, run: Run) -> bool:
        return self.status[run.id] is Status.RUNNING and self.fence[run.id] == run.fence

    # --- slots

    @rule(target=hands, routine=ROUTINES, minutes=st.lists(MINUTES, min_size=1, max_size=3))
    def claim(self, routine: str, minutes: list[int]) -> Any:
        ledger = Ledger(self.db, self.clock)
        claims = [ledger.claim(routine, slot=START + timedelta(minutes=at)) for at in minutes]
        given = self.wait(lambda: self.journal.open_slots(claims))
        for at, run in zip(minutes, given, strict=True):
            assert (run is None) == ((routine, at) in self.slots)
            if run is not None:
                self.slots[routine, at] = run.id
                self.steps[run.id], self.status[run.id], self.fence[run.id] = [], run.status, run.fence
        return multiple(*(run for run in given if run))

    @rule(
        routine=ROUTINES, first=MINUTES, count=st.integers(1, 3), reason=st.sampled_from([Reason.DOWN, Reason.PAUSED])
    )
    def account(self, routine: str, first: int, count: int, reason: Reason) -> None:
        """As the engine does it: what follows the last slot that is accounted for."""
        first = max([first, *(at + 1 for name, at in self.slots if name == routine)])
        wanted = range(first, first + count)
        stretch = {"first": START + timedelta(minutes=first), "last": START + timedelta(minutes=wanted[-1])}
        for _ in range(2):
            self.wait(
                lambda: self.journal.account(routine, **stretch, count=count, outcome=Outcome.MISSED, reason=reason)
            )
        self.slots |= {(routine, at): "missed" for at in wanted}

    # --- runs

    @rule(target=hands, run=hands)
    def take(self, run: Run) -> Any:
        taken = self.wait(lambda: self.journal.take(run.id, owner="me"))
        assert (taken is not None) == (self.status[run.id] is Status.QUEUED)
        if taken is None:
            return multiple()
        assert taken.fence > self.fence[run.id]
        self.status[run.id], self.fence[run.id] = Status.RUNNING, taken.fence
        return taken

    @rule(run=hands, durable=st.booleans(), several=st.integers(1, 3))
    def append(self, run: Run, durable: bool, several: int) -> None:
        steps = [step(number=self.number + i) for i in range(several)]
        self.number += several
        if self.owns(run):
            self.wait(lambda: self.journal.append(run, *steps, durable=durable))
            self.steps[run.id] += [given.body["number"] for given in steps]
        else:
            with pytest.raises(Fenced):
                self.wait(lambda: self.journal.append(run, *steps))

    @rule(target=hands, run=hands)
    def suspend(self, run: Run) -> Any:
        if run.status is not Status.RUNNING:
            return multiple()
        if self.owns(run):
            suspended = self.wait(lambda: self.journal.suspend(run))
            self.status[run.id], self.fence[run.id] = Status.QUEUED, suspended.fence
            return suspended
        with pytest.raises(Fenced):
            self.wait(lambda: self.journal.suspend(run))
        return multiple()

    @rule(run=hands, status=st.sampled_from([Status.SUCCEEDED, Status.FAILED, Status.INTERRUPTED]))
    def end(self, run: Run, status: Status) -> None:
        if run.status is not Status.RUNNING:
            return
        if self.owns(run):
            self.wait(lambda: self.journal.end(run.to(status), [("file", {})]))
            self.status[run.id] = status
            self.deliveries.add(run.id)
        else:
            with pytest.raises(Fenced):
                self.wait(lambda: self.journal.end(run.to(status), [("file", {})]))

    @rule(run=hands)
    def cancel(self, run: Run) -> None:
        if self.status[run.id].ended:
            with pytest.raises(Refused):
                self.wait(lambda: self.journal.request_cancel(run.id))
            return
        asked = self.wait(lambda: self.journal.request_cancel(run.id))
        assert asked.cancel
        assert asked.status is (Status.RUNNING if self.status[run.id] is Status.RUNNING else Status.CANCELLED)
        self.status[run.id], self.fence[run.id] = asked.status, asked.fence

    # --- the end of a process

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Die with some steps on their way, and come back."""
        living = [run_id for run_id, status in self.status.items() if status is Status.RUNNING]
        flying = data.draw(st.lists(st.sampled_from(living), max_size=3)) if living else []
        self.wait(lambda: self.die(flying))
        self.open()
        self.recover()

    async def die(self, flying: list[str]) -> None:
        entered, leave = threading.Event(), threading.Event()

        def stand(connection: object) -> None:
            entered.set()
            leave.wait()

        standing = self.db.submit(stand)
        await asyncio.to_thread(entered.wait)
        lost = [self.journal.append(await self.journal.get(run_id), step(number=-1)) for run_id in flying]
        source = self.db.path.parent
        shutil.copytree(source, source.with_name(str(self.images + 1)), ignore=shutil.ignore_patterns("*-shm"))
        leave.set()
        await asyncio.gather(standing, *lost)
        await self.db.close()

    def recover(self) -> None:
        left = self.wait(lambda: self.journal.recover("me"))
        for run_id, status in self.status.items():
            if status is Status.RUNNING:
                self.status[run_id] = Status.QUEUED
        assert {run.id for run in left} == {run_id for run_id, status in self.status.items() if status is Status.QUEUED}
        for run in left:
            assert run.fence >= self.fence[run.id]
            self.fence[run.id] = run.fence

    # --- what holds at any time

    @invariant()
    def the_record_is_what_was_acknowledged(self) -> None:
        self.wait(self.compare)

    async def compare(self) -> None:
        runs = {run.id: run for run in await self.journal.runs(limit=1_000)}
        assert {run_id: run.status for run_id, run in runs.items()} == self.status
        assert {run_id: run.fence for run_id, run in runs.items()} == self.fence
        for run_id, expected in self.steps.items():
            kept = await self.journal.steps(run_id)
            assert [found.body["number"] for found in kept] == expected
            assert [found.seq for found in kept] == list(range(len(expected)))
        rows = await self.journal.slots(limit=1_000)
        assert sum(row.count for row in rows) == len(self.slots)
        assert {row.run for row in rows if row.run} == set(runs)
        assert sorted(delivery.run for delivery in await self.journal.deliveries(limit=1_000)) == sorted(
            self.deliveries
        )


JournalMachine.TestCase.settings = settings(
    deadline=None,
    derandomize=True,
    max_examples=40,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
TestJournal = JournalMachine.TestCase
