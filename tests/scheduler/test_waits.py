"""Despite any clock change, no run, delivery, approval request, pause or incident waits longer than
intended.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from freezegun.api import FrozenDateTimeFactory
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import daemon.store.tables  # noqa: F401  # its models cannot be built while freezegun replaces datetime
from daemon.errors import Refused
from daemon.models import ApprovalRequest, Run, Status
from daemon.scheduler.engine import RoutineEngine
from daemon.scheduler.run_queue import LocalRunQueue
from daemon.store.database import Database
from daemon.store.incidents import IncidentSettings
from daemon.store.journal import Journal
from daemon.system.clock import SystemClock
from tests.empty_database import copy_empty_database
from tests.engine_harness import OURS, FakeEventLoop, at, folder_contents, routine
from tests.properties import scaled_settings

SHM = Path("/dev/shm")
DAY = timedelta(days=1)
ROUTINES = tuple(
    routine(name, {"cron": "0 9 * * *", "catch_up": "none"}) for name in ("a", "b", "c")
)
NAMES = st.sampled_from(["a", "b", "c"])
AHEAD = st.sampled_from([timedelta(hours=1), 3 * DAY, 20 * 365 * DAY])
WAITS = st.integers(1, 20 * 3600).map(lambda seconds: timedelta(seconds=seconds))


class Machine:
    """A journal, an engine and an executor as a daemon has them; runs wait or ask once, then they
    succeed.
    """

    def __init__(self, folder: Path, time: FrozenDateTimeFactory) -> None:
        self.folder, self.time = folder, time
        self.first_waits: dict[str, timedelta | None] = {}
        """By routines whose next run does not succeed at once: how long it is put off; None: it
        asks a person.
        """
        self.finished_ids: set[str] = set()
        self.db: Database | None = None

    async def boot(self) -> None:
        self.event_loop = FakeEventLoop()
        clock = SystemClock()
        self.db = await Database.open(copy_empty_database(self.folder / "agentd.db"))
        self.journal = Journal(self.db, clock=clock.now)
        await self.journal.move_waits()
        self.executor = LocalRunQueue(self.live, max_concurrent=4, clock=clock)
        self.engine = RoutineEngine(
            journal=self.journal,
            submit=self.executor.submit,
            cancel=self.journal.runs.request_cancel,
            clock=clock,
            zone="UTC",
            event_loop=self.event_loop,
            machine="box",
            host="box",
            workspace=self.folder / "workspace",
            on_waits_moved=self.executor.rebuild_order,
        )
        self.executor.hold_parked(
            run for run in await self.journal.runs.find_active() if run.status is Status.WAITING
        )
        await self.executor.submit_all(await self.journal.runs.recover("me"))
        await self.engine.start(folder_contents(*ROUTINES))
        await self.quiet()

    async def live(self, run_id: str) -> Run | None:
        run = await self.journal.runs.claim(run_id, owner="me")
        if run is None:
            return None
        if run.routine in self.first_waits:
            wait = self.first_waits.pop(run.routine)
            if wait is not None:
                return await self.journal.runs.suspend(
                    run, not_before=datetime.now(UTC) + wait, detail="busy"
                )
            approval_request = ApprovalRequest(
                call_id="1", tool="shell", request={}, digest=run_id, rule="rule"
            )
            return await self.journal.approvals.park(
                run, [approval_request], timeout=DAY, detail="waits"
            )
        end = run.to(Status.SUCCEEDED, ended=datetime.now(UTC), report="said")
        end = await self.journal.runs.end(end, [("hook", {})])
        self.finished_ids.add(run_id)
        return end

    async def crash(self) -> None:
        """kill -9; what was committed stays."""
        if self.db:
            self.event_loop = FakeEventLoop()
            await self.executor.stop(0)
            self.engine._triggers.close()
            await self.quiet()
            await self.db.close()
            self.db = None

    async def quiet(self) -> None:
        """Let the loop turn until everything that was rung for is done."""
        for _ in range(6):
            await asyncio.sleep(0)
            tasks = [
                task
                for task in asyncio.all_tasks()
                if task.get_name() in OURS or "run " in task.get_name()
            ]
            await asyncio.gather(*tasks)

    async def ring(self) -> None:
        """Do what is due at this moment, as APScheduler, the executor, outbox and approvals of a
        daemon do.
        """
        self.executor.start_due()
        await self.quiet()
        if (timer_ends := self.event_loop.timer_ends) and timer_ends <= datetime.now(UTC):
            self.event_loop.end_timer()
            await self.quiet()
        for run in await self.journal.approvals.expire():
            await self.executor.submit(run)
        await self.quiet()

    async def set_clock(self, moment: datetime) -> None:
        self.time.move_to(moment)
        self.executor.start_due()
        self.engine.handle_clock_change()
        await self.quiet()
        await self.ring()


@pytest.fixture
async def machine(tmp_path: Path, time: FrozenDateTimeFactory) -> Any:
    new_machine = Machine(tmp_path, time)
    await new_machine.boot()
    yield new_machine
    await new_machine.engine.stop()
    await new_machine.crash()


async def test_a_reminder_and_a_cool_down_are_counted_from_now_once_a_clock_that_was_ahead_is_set_back(  # noqa: E501
    machine: Machine,
) -> None:
    journal = machine.journal
    journal.incidents.settings = IncidentSettings(
        remind=timedelta(hours=24), cool_down=timedelta(hours=1), to=("phone",)
    )
    await machine.set_clock(at("2046-01-01T08:00"))
    await journal.incidents.report("provider a", "it is down")
    await journal.incidents.report("provider b", "it is down")
    await journal.incidents.resolve("provider b")
    await machine.set_clock(at("01 08:00"))
    deliveries = len(await journal.outbox.find())
    machine.time.move_to(at("02 09:00"))
    await journal.incidents.report("provider a", "it is down")
    await journal.incidents.report("provider b", "it is down")
    assert len(await journal.outbox.find()) == deliveries + 2, (
        "one is reminded of, the other one is a new incident"
    )


async def test_spending_recorded_with_a_clock_ahead_counts_once(machine: Machine) -> None:
    await machine.set_clock(at("2046-01-01T08:00"))
    stamp = int(datetime.now(UTC).timestamp() * 1_000_000)
    await machine.journal._db.write(
        lambda connection: connection.execute(
            "INSERT INTO spending (run_id, routine, provider, model, at, outcome, input, output)"
            " VALUES ('r', 'a', 'p', 'm', ?, 'answered', 10, 5)",
            (stamp,),
        )
    )
    await machine.set_clock(at("01 08:00"))
    today, tomorrow = at("01 00:00"), at("02 00:00")
    assert (await machine.journal.spending.get_totals_by_routine(today))["a"][1] == 15
    assert await machine.journal.spending.get_totals_by_routine(tomorrow) == {}


async def test_a_wait_written_just_after_a_clock_was_set_back_is_moved_soon(
    machine: Machine,
) -> None:
    ahead, back = at("2046-01-01T08:00"), at("01 08:00")
    await machine.set_clock(ahead)
    await machine.engine.run_now("a")
    await machine.ring()
    await machine.set_clock(back)
    stamp = int(ahead.timestamp() * 1_000_000)
    # as of a run that took the time of its end before the clock was set
    await machine.journal._db.write(
        lambda connection: connection.execute(
            "UPDATE outbox SET next_at = ?, waits_since = ?", (stamp, stamp)
        )
    )
    assert await machine.journal.outbox.get_next_due() == ahead
    await machine.engine._move_late_waits()
    assert await machine.journal.outbox.get_next_due() == back


async def test_a_digest_comes_again_after_a_clock_that_was_ahead_is_set_back(
    machine: Machine,
) -> None:
    await machine.journal.outbox.add_digest([], "", "", until=at("2046-01-01T07:00"), zone="UTC")
    await machine.set_clock(at("01 09:00"))
    assert await machine.journal.outbox.get_digest_mark() == at("01 09:00")


async def test_waits_of_older_versions_without_a_start_last_a_day_at_most(
    machine: Machine,
) -> None:
    machine.first_waits = {"a": timedelta(minutes=5)}
    run = await machine.engine.run_now("a")
    await machine.quiet()
    assert run.id not in machine.finished_ids
    await machine.journal._db.write(
        lambda connection: connection.execute(
            "UPDATE run SET not_before = not_before + 90000000000, waits_since = NULL"
        )
    )
    await machine.crash()
    await machine.boot()
    assert run.id in machine.finished_ids


class Clocks(RuleBasedStateMachine):
    """A machine whose clock is set at random, and beside it how much time has really passed."""

    frozen_time: FrozenDateTimeFactory

    def __init__(self) -> None:
        super().__init__()
        self.frozen_time.move_to(at("01 08:00"))
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.machine = Machine(self.folder, self.frozen_time)
        self.elapsed = timedelta()
        """Time that no clock can be set back by."""
        self.waits: dict[str, tuple[timedelta, timedelta]] = {}
        """What waits: until when by that time, and how long."""
        self.up, self.was_set = True, False
        self.do(self.machine.boot())

    def teardown(self) -> None:
        try:
            if self.up:
                self.runner.run(self.machine.engine.stop())
            self.runner.run(self.machine.crash())
            self.runner.close()
        finally:
            shutil.rmtree(self.folder)

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        async def do_and_check() -> None:
            await work
            await self.check()

        self.runner.run(do_and_check())

    async def check(self) -> None:
        """Whatever has waited as long as it was to waits no more; no slot has two runs."""
        if not self.up:
            return
        journal = self.machine.journal
        due = {
            f"delivery {delivery.id}"
            for delivery in await journal.outbox.find_due(datetime.now(UTC))
        }
        late = {name for name, (until, _) in self.waits.items() if until <= self.elapsed}
        states = self.machine.engine.states
        over = {f"run {run}" for run in self.machine.finished_ids}
        over |= {
            f"pause {name}"
            for name, state in states.items()
            if not state.is_paused(datetime.now(UTC))
        }
        over |= due
        assert late <= over, (
            f"{late - over} should be over after {self.elapsed}, at {datetime.now(UTC)}"
        )
        for name in over & self.waits.keys():
            del self.waits[name]
        runs = [
            (run.routine, run.slot)
            for run in await journal.runs.find(limit=1000)
            if run.trigger == "cron"
        ]
        assert len(runs) == len(set(runs))

    def begin_anew(self) -> None:
        """A clock that is set back may let what waits begin anew, and never more than that."""
        self.waits = {name: (self.elapsed + wait, wait) for name, (_, wait) in self.waits.items()}

    # --- what begins to wait

    def start(self, name: str, wait: timedelta | None) -> str | None:
        async def work() -> str | None:
            self.machine.first_waits[name] = wait
            try:
                run = await self.machine.engine.run_now(name)
            except Refused:
                del self.machine.first_waits[name]
                return None
            await self.machine.quiet()
            return run.id

        return self.runner.run(work())

    @precondition(lambda self: self.up)
    @rule(name=NAMES, wait=WAITS)
    def put_a_run_off(self, name: str, wait: timedelta) -> None:
        if run := self.start(name, wait):
            self.waits[f"run {run}"] = (self.elapsed + wait, wait)

    @precondition(lambda self: self.up)
    @rule(name=NAMES)
    def ask_a_person(self, name: str) -> None:
        if run := self.start(name, None):
            self.waits[f"run {run}"] = (self.elapsed + DAY, DAY)

    @precondition(lambda self: self.up)
    @rule(wait=WAITS)
    def put_a_delivery_off(self, wait: timedelta) -> None:
        async def work() -> int | None:
            for delivery in await self.machine.journal.outbox.find_due(datetime.now(UTC)):
                await self.machine.journal.outbox.mark_failed(
                    delivery.id, "no", datetime.now(UTC) + wait
                )
                return delivery.id
            return None

        if (delivery := self.runner.run(work())) is not None:
            self.waits[f"delivery {delivery}"] = (self.elapsed + wait, wait)

    @precondition(lambda self: self.up)
    @rule(name=NAMES, wait=WAITS)
    def pause(self, name: str, wait: timedelta) -> None:
        self.do(self.machine.engine.pause(name, length=wait))
        self.waits[f"pause {name}"] = (self.elapsed + wait, wait)

    # --- what time and clocks do

    @rule(minutes=st.integers(1, 600))
    def pass_time(self, minutes: int) -> None:
        goal = self.elapsed + timedelta(minutes=minutes)
        while self.elapsed < goal:
            now = datetime.now(UTC)
            steps = [goal, *(until for until, _ in self.waits.values())]
            if self.up and (timer_ends := self.machine.event_loop.timer_ends) and timer_ends > now:
                steps.append(self.elapsed + (timer_ends - now))
            step = min(moment for moment in steps if moment > self.elapsed) - self.elapsed
            self.elapsed += step
            self.frozen_time.move_to(now + step)
            if self.up:
                self.do(self.machine.ring())

    @rule(
        ahead=st.one_of(
            st.integers(-400, 400).map(lambda minutes: timedelta(minutes=minutes)),
            st.sampled_from([-20 * 365 * DAY, -3 * DAY, 3 * DAY, 20 * 365 * DAY]),
        )
    )
    def set_the_clock(self, ahead: timedelta) -> None:
        self.move(ahead)

    @rule()
    def set_the_clock_right(self) -> None:
        self.move(at("01 08:00") + self.elapsed - datetime.now(UTC))

    def move(self, ahead: timedelta) -> None:
        moment = datetime.now(UTC) + ahead
        if not at("1980-01-01T00:00") < moment < at("2100-01-01T00:00"):
            return
        self.begin_anew()
        if self.up:
            self.do(self.machine.set_clock(moment))
        else:
            self.frozen_time.move_to(moment)
            self.was_set = True

    @precondition(lambda self: self.up)
    @rule(
        name=NAMES,
        wait=WAITS,
        ahead=AHEAD,
        kind=st.sampled_from(["run", "question", "pause"]),
        down=st.booleans(),
    )
    def be_ahead_for_a_while(
        self, name: str, wait: timedelta, ahead: timedelta, kind: str, down: bool
    ) -> None:
        """What machines do whose clock is set by the network some time after the start."""
        self.move(ahead)
        if kind == "run":
            self.put_a_run_off(name, wait)
        elif kind == "question":
            self.ask_a_person(name)
        else:
            self.pause(name, wait)
        if down:
            self.die()
        self.set_the_clock_right()
        if down:
            self.come_back()
        self.pass_time(
            1 + max((wait, DAY) if kind == "question" else (wait,)) // timedelta(minutes=1)
        )

    @precondition(lambda self: self.up)
    @rule()
    def die(self) -> None:
        self.runner.run(self.machine.crash())
        self.up = False

    @precondition(lambda self: not self.up)
    @rule()
    def come_back(self) -> None:
        if self.was_set:  # which it notices only now
            self.begin_anew()
        self.up, self.was_set = True, False
        self.do(self.machine.boot())


@pytest.mark.timeout(300)
def test_no_wait_grows_through_any_clock_changes(
    time: FrozenDateTimeFactory,
) -> None:
    clocks = type("Clocks", (Clocks,), {"frozen_time": time})
    options = scaled_settings(15, steps=12)
    run_state_machine_as_test(clocks, settings=options)
