"""Despite any clock change, every slot is recorded once and none is started twice."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apscheduler.schedulers.base import STATE_PAUSED
from freezegun.api import FrozenDateTimeFactory
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from daemon.api.schedule import explain_slot
from daemon.definitions.schedule import EPOCH
from daemon.scheduler.slot_ledger import BATCH_SIZE
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.store.rows import MICROSECOND
from daemon.store.slots import SlotRepository
from daemon.system.clock import SystemClock
from tests.engine_harness import HALF_HOURLY, EngineHarness, at, routine
from tests.properties import scaled_settings

NEVER = {**HALF_HOURLY, "catch_up": "none"}
PERIOD = timedelta(minutes=30)
# Three triggers with the slots of one of half an hour, some of them of two triggers.
SEVERAL = [
    {"cron": "0 * * * *", "catch_up": "none"},
    {"cron": "30 * * * *"},
    {"every": timedelta(hours=1), "catch_up": "none"},
]
NAMES = st.sampled_from(["once", "never", "several"])
SHM = Path("/dev/shm")


async def test_slots_repeated_by_the_clock_are_recorded_around_an_existing_run(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=NEVER))
    await harness.set_clock("01 09:45")
    await harness.reach("01 10:00")
    assert await harness.rows() == ["01 08:30 to 01 09:30, 3 missed down", "01 10:00 ran"]
    await harness.set_clock("01 08:40")
    assert await harness.rows() == ["01 08:30 missed down", "01 10:00 ran"]
    await harness.set_clock("01 11:20")
    assert await harness.rows() == [
        "01 08:30 to 01 09:30, 3 missed down",
        "01 10:00 ran",
        "01 10:30 to 01 11:00, 2 missed down",
    ]


async def test_clock_jump_during_downtime_is_handled_like_one_at_run_time(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=NEVER))
    await harness.set_clock("01 09:59")
    await harness.reach("01 10:00")
    await harness.finish(*harness.submitted_runs)
    for moment in ("01 08:40", "01 10:10"):
        await harness.crash()
        harness.time.move_to(at(moment))
        await harness.boot(routine(trigger=NEVER))
    await harness.reach("01 10:30")
    assert await harness.rows() == [
        "01 08:30 to 01 09:30, 3 missed down",
        "01 10:00 ran",
        "01 10:30 ran",
    ]


async def test_paused_slots_recorded_ahead_of_the_clock_are_kept_up_to_now(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily")
    await harness.reach("01 12:10")
    await harness.engine.resume("daily")
    await harness.set_clock("01 10:10")
    await harness.reach("01 10:30")
    assert await harness.rows() == ["01 08:30 to 01 10:00, 4 skipped paused", "01 10:30 ran"]


async def test_a_slot_jumped_over_after_a_corrected_clock_is_late(
    harness: EngineHarness,
) -> None:
    harness.time.move_to(at("2031-05-05T08:00"))
    await harness.boot(routine())
    await harness.set_clock("01 08:40")
    await harness.set_clock("01 09:10")
    assert await harness.rows() == ["01 09:00 late"], "the daemon was not down"


async def test_an_unreported_clock_step_is_noticed_at_the_next_slot(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("often", {"every": timedelta(minutes=5)}), routine(trigger=NEVER))
    await harness.reach("01 08:05")
    harness.time.move_to(at("01 10:10"))
    await harness.ring()
    assert await harness.rows("daily") == ["01 08:30 to 01 10:00, 4 missed down"]
    harness.time.move_to(at("01 08:40"))
    await harness.fire("often")
    assert await harness.rows("daily") == [], "08:30 is decided about anew, with daily's next slot"
    await harness.set_clock("01 08:40")
    await harness.reach("01 09:00")
    assert await harness.rows("daily") == ["01 08:30 missed down", "01 09:00 ran"]


async def test_a_clock_set_again_during_rescheduling_leaves_no_wrong_alarm(
    harness: EngineHarness,
) -> None:
    await harness.boot(*(routine(f"r{number}") for number in range(BATCH_SIZE + 1)))
    harness.time.move_to(at("2031-05-05T08:00"))
    harness.engine.handle_clock_change()
    scheduler = harness.engine._scheduler
    while scheduler.state != STATE_PAUSED:  # between the first slice and the next
        await asyncio.sleep(0)
    await harness.set_clock("01 08:10")
    assert {job.next_run_time for job in scheduler.get_jobs()} == {at("01 09:00")}


class Killed(BaseException):
    """kill -9, as far as a test can bear it."""


class DyingSlots(SlotRepository):
    """Dies before or after it has taken back what was told of the time to come."""

    dies = ""

    async def reopen_future_slots(self, remains: Any) -> None:
        if self.dies == "before":
            raise Killed
        await super().reopen_future_slots(remains)
        if self.dies == "after":
            raise Killed


def dying_journal(database: Database, *, clock: Any, dies: str) -> Journal:
    journal = Journal(database, clock=clock)
    journal.slots = DyingSlots(database, clock=clock, runs=journal.runs)
    journal.slots.dies = dies
    return journal


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_crash_during_a_setback_loses_no_slot(harness: EngineHarness, dies: str) -> None:
    await harness.boot(routine(trigger=NEVER))
    await harness.set_clock("01 09:59")
    await harness.reach("01 10:00")
    await harness.crash()
    harness.time.move_to(at("01 08:40"))
    with suppress(Killed):
        await harness.boot(routine(trigger=NEVER), journal=partial(dying_journal, dies=dies))
    for moment in ("01 09:10", "01 10:40"):
        await harness.crash()
        harness.time.move_to(at(moment))
        await harness.boot(routine(trigger=NEVER))
    assert await harness.rows() == [
        "01 08:30 to 01 09:30, 3 missed down",
        "01 10:00 ran",
        "01 10:30 missed down",
    ]


async def test_why_ignores_slots_run_with_a_clock_ahead(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=NEVER))
    await harness.set_clock("01 09:59")
    await harness.reach("01 10:00")
    await harness.set_clock("01 08:40")
    api: Any = SimpleNamespace(
        engine=harness.engine,
        journal=harness.journal,
        clock=SystemClock(),
    )
    assert (await explain_slot(api, name="daily"))["slot"] == "2026-01-01T08:30:00.000Z"


class Upheavals(RuleBasedStateMachine):
    """Three routines, and every way in which their time can be upset; beside them, which slots
    are to be told.
    """

    frozen_time: FrozenDateTimeFactory

    def __init__(self) -> None:
        super().__init__()
        self.frozen_time.move_to(at("01 08:00"))
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.harness = EngineHarness(self.folder, self.frozen_time)
        self.routines = {
            name: routine(name, trigger)
            for name, trigger in (
                ("once", HALF_HOURLY),
                ("never", NEVER),
                ("several", SEVERAL),
            )
        }
        self.now = datetime.now(UTC)
        self.base = dict.fromkeys(self.routines, self.now)
        """Slots after it are to be told as they come."""
        self.due: dict[str, set[datetime]] = {name: set() for name in self.routines}
        self.do(self.harness.boot(*self.routines.values()))

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something, then note which slots are to be told from now on."""

        async def do_and_check() -> None:
            await work

        self.runner.run(do_and_check())
        self.now = datetime.now(UTC)
        for name, made_at in self.routines.items():
            self.base[name] = min(self.base[name], self.now)
            self.due[name] = {slot for slot in self.due[name] if slot <= self.now}
            if made_at.enabled:
                self.due[name] |= set(grid(self.base[name], self.now))

    def teardown(self) -> None:
        try:
            if self.harness.db:
                self.runner.run(self.harness.engine.stop())
                self.runner.run(self.harness.crash())
            self.runner.close()
        finally:
            shutil.rmtree(self.folder)

    # --- what happens

    @rule(minutes=st.integers(1, 150))
    def pass_time(self, minutes: int) -> None:
        self.do(self.harness.reach((self.now + timedelta(minutes=minutes)).isoformat()[:16]))

    @rule(minutes=st.integers(-400, 400))
    def set_clock(self, minutes: int) -> None:
        self.do(self.harness.set_clock((self.now + timedelta(minutes=minutes)).isoformat()[:16]))

    @rule(minutes=st.sampled_from([0, 0, 20, 70, 300, -40, -300]))
    def restart(self, minutes: int) -> None:
        async def crash_and_boot() -> None:
            await self.harness.crash()
            self.frozen_time.move_to(self.now + timedelta(minutes=minutes))
            await self.harness.boot(*self.routines.values())

        self.do(crash_and_boot())

    @rule(name=NAMES, minutes=st.none() | st.integers(1, 200))
    def pause(self, name: str, minutes: int | None) -> None:
        until = None if minutes is None else self.now + timedelta(minutes=minutes)
        self.do(self.harness.engine.pause(name, until=until))

    @rule(name=NAMES)
    def resume(self, name: str) -> None:
        self.do(self.harness.engine.resume(name))

    @rule()
    def let_runs_end(self) -> None:
        async def finish_runs() -> None:
            runs = await self.harness.journal.runs.find_active()
            # of runs that start late together the second one waits for a moment
            await self.harness.finish(
                *(run for run in runs if not run.not_before or run.not_before <= self.now)
            )

        self.do(finish_runs())

    @rule(
        name=NAMES,
        down=st.booleans(),
        zone=st.sampled_from(["UTC", "Asia/Tokyo"]),
        enabled=st.booleans(),
    )
    def edit(self, name: str, down: bool, zone: str, enabled: bool) -> None:
        """Edit a schedule without moving its slots, or turn it off and on: it begins anew."""
        old = self.routines[name]
        triggers: Any = [
            {**trigger.model_dump(exclude_none=True), "timezone": zone} for trigger in old.triggers
        ]
        self.routines[name] = new = routine(name, triggers, enabled=enabled)
        if new.schedule_key != old.schedule_key:
            self.base[name] = self.now
        self.do(
            self.harness.boot(*self.routines.values())
            if down
            else self.harness.reload(*self.routines.values())
        )

    # --- what holds

    @invariant()
    def all_is_told_once(self) -> None:
        for name, due in self.due.items():
            rows = self.runner.run(self.harness.journal.slots.find(name, limit=10_000))
            slots = [slot for row in rows for slot in grid(row.first - MICROSECOND, row.last)]
            assert len(slots) == len(set(slots)), "a slot stands in two rows"
            assert len(slots) == sum(row.count for row in rows), "a row counts wrong"
            ran = {row.first for row in rows if row.run}
            assert due <= set(slots), "a slot was lost"
            assert set(slots) - ran <= due, (
                "a slot is told of that has not come, or that never was one"
            )
        # a run that waits is submitted once more when the clock moves its wait
        runs = {run.id: run for run in self.harness.submitted_runs}
        starts = [(run.routine, run.slot) for run in runs.values()]
        assert len(starts) == len(set(starts)), "a slot was started twice"


def grid(after: datetime, until: datetime) -> list[datetime]:
    """Return the half hours after a moment and not after another."""
    first = EPOCH + ((after - EPOCH) // PERIOD + 1) * PERIOD
    return [first + number * PERIOD for number in range((until - first) // PERIOD + 1)]


def test_any_clock_changes_record_every_slot_once_and_start_none_twice(
    time: FrozenDateTimeFactory,
) -> None:
    options = scaled_settings(40, steps=25)
    run_state_machine_as_test(
        type("Machine", (Upheavals,), {"frozen_time": time}), settings=options
    )
