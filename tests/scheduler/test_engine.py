"""The engine on a real journal: every slot is started once or accounted for, despite clock changes
and kills.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.definitions.routines.routine import Routine
from daemon.errors import ConfigError, Fault, NotFound, Refused, StoreFull
from daemon.models import Run, Status
from daemon.scheduler.engine import RoutineEngine
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal, SlotRange
from daemon.store.key_values import KeyValueRepository
from daemon.store.routines import RoutineRepository
from daemon.store.runs import RunRepository
from daemon.store.slots import SlotRepository
from daemon.system.clock import SystemClock
from tests.engine_harness import (
    HALF_HOURLY,
    NINE,
    EngineHarness,
    at,
    fire,
    folder_contents,
    routine,
)

# --- outages


async def test_a_slot_starts_one_run_at_its_instant(harness: EngineHarness) -> None:
    await harness.boot(routine())
    assert harness.next_start == at("01 09:00")
    await harness.reach("01 12:00")
    assert await harness.rows() == ["01 09:00 ran"]
    (run,) = harness.submitted_runs
    assert (run.trigger, run.goal, run.status) == ("cron", "say daily", Status.QUEUED)
    assert (
        Routine.restore(await harness.journal.runs.get_definition(run.definition)).run.prompt
        == "say daily"
    )
    assert harness.next_start == at("02 09:00")


async def test_a_new_routine_does_not_run_earlier_slots(harness: EngineHarness) -> None:
    await harness.reach("01 10:00")
    await harness.boot(routine())
    assert await harness.rows() == []


async def test_a_restart_in_the_same_minute_repeats_no_slot(harness: EngineHarness) -> None:
    await harness.boot(routine())
    await harness.reach("01 09:00:20")
    await harness.finish(*harness.submitted_runs)
    await harness.boot(routine())
    assert harness.starts == ["daily 01 09:00"]


async def test_after_three_days_down_the_latest_slot_runs_and_the_others_are_missed(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine())
    await harness.crash()
    await harness.reach("03 13:00")
    await harness.boot(routine())
    assert await harness.rows() == ["01 09:00 to 02 09:00, 2 missed down", "03 09:00 caught_up"]
    (row, *_) = await harness.journal.slots.find()
    assert row.lateness == 4 * 3600
    await harness.boot(routine())
    await harness.fire("daily")
    assert harness.starts == ["daily 03 09:00"], "a second restart starts nothing"


async def test_a_slot_later_than_catch_up_is_missed(harness: EngineHarness) -> None:
    await harness.boot(routine())
    await harness.crash()
    await harness.reach("03 08:30")
    await harness.boot(routine())
    await harness.reach("03 09:00")
    assert await harness.rows() == ["01 09:00 to 02 09:00, 2 missed down", "03 09:00 ran"]


async def test_missed_slots_of_several_downtimes_share_a_row(harness: EngineHarness) -> None:
    never = routine(trigger={**NINE, "catch_up": "none"})
    await harness.boot(never)
    for day in ("02", "04", "05"):
        await harness.crash()
        await harness.reach(f"{day} 12:00")
        await harness.boot(never)
    assert await harness.rows() == ["01 09:00 to 05 09:00, 5 missed down"]


async def test_three_months_of_secondly_slots_are_recorded_in_one_row(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("pulse", {"every": timedelta(seconds=1)}))
    await harness.crash()
    await harness.reach("2026-04-01T08:00")
    await harness.boot(routine("pulse", {"every": timedelta(seconds=1)}))
    missed_slot, ran = reversed(await harness.journal.slots.find())
    assert missed_slot.count == 90 * 86_400 - 1
    assert ran.last == at("2026-04-01T08:00")


async def test_a_suspended_machine_runs_the_slot_late_when_it_wakes(harness: EngineHarness) -> None:
    await harness.boot(routine())
    await harness.set_clock("01 13:00")
    assert await harness.rows() == ["01 09:00 late"]
    assert harness.next_start == at("02 09:00")


async def test_a_clock_set_back_does_not_run_the_same_morning_twice(harness: EngineHarness) -> None:
    await harness.boot(routine())
    await harness.reach("01 10:00")
    await harness.finish(*harness.submitted_runs)
    await harness.set_clock("01 05:00")
    assert harness.next_start == at("01 09:00")
    await harness.reach("02 10:00")
    assert await harness.rows() == ["01 09:00 ran", "02 09:00 ran"]


@pytest.mark.parametrize("restart", [True, False])
async def test_a_clock_of_2031_does_not_mute_the_routine_for_years(
    harness: EngineHarness, restart: bool
) -> None:
    await harness.reach("2031-05-05T08:00")
    await harness.boot(routine())
    await harness.reach("2031-05-05T09:00")
    await harness.finish(*harness.submitted_runs)
    if restart:
        await harness.crash()
        harness.time.move_to(at("01 08:00"))
        await harness.boot(routine())
    else:
        await harness.set_clock("01 08:00")
    await harness.reach("01 10:00")
    assert harness.starts == ["daily 05 09:00", "daily 01 09:00"]


async def test_an_edited_schedule_fires_no_phantom_and_an_edited_prompt_loses_no_slot(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine())
    await harness.crash()
    await harness.reach("01 10:00")
    await harness.boot(routine(trigger={"cron": "30 9 * * *"}))
    assert await harness.rows() == []
    await harness.crash()
    await harness.reach("02 10:00")
    await harness.boot(routine(trigger={"cron": "30 9 * * *"}, run={"prompt": "something else"}))
    assert harness.starts == ["daily 02 09:30"]
    assert harness.submitted_runs[0].goal == "something else"


@pytest.mark.parametrize(
    ("cron", "zone", "evening", "slot"),
    [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00",
            "daily 29 01:00",
        ),  # in the gap: at 03:00
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00",
            "daily 01 05:30",
        ),  # in the overlap: the first time
    ],
)
async def test_a_clock_change_starts_a_nightly_slot_once(
    harness: EngineHarness, cron: str, zone: str, evening: str, slot: str
) -> None:
    await harness.reach(evening)
    await harness.boot(routine(trigger={"cron": cron}), zone=zone)
    await harness.reach((at(evening) + timedelta(days=1)).isoformat()[:16])
    assert harness.starts == [slot]


class Killed(BaseException):
    """kill -9, as far as a test can bear it."""


class DyingSlots(SlotRepository):
    """Dies once, before or after a write of the ledger has been committed."""

    dies: Sequence[str] = ()

    async def account(self, *args: Any, **more: Any) -> list[SlotRange]:
        self.maybe("before account")
        new = await super().account(*args, **more)
        self.maybe("after account")
        return new

    async def claim(self, claims: Sequence[Claim]) -> list[Run | None]:
        self.maybe("before open")
        runs = await super().claim(claims)
        self.maybe("after open")
        return runs

    def maybe(self, where: str) -> None:
        if where in self.dies:
            raise Killed(where)


def dying_journal(database: Database, *, clock: Any, dies: Sequence[str]) -> Journal:
    journal = Journal(database, clock=clock)
    journal.slots = DyingSlots(database, clock=clock, runs=journal.runs)
    journal.slots.dies = dies
    return journal


@pytest.mark.parametrize("where", ["before account", "after account", "before open", "after open"])
async def test_a_kill_between_any_two_writes_loses_and_repeats_no_slot(
    harness: EngineHarness, where: str
) -> None:
    await harness.boot(routine())
    await harness.crash()
    await harness.reach("03 13:00")
    with suppress(Killed):
        await harness.boot(routine(), journal=partial(dying_journal, dies=[where]))
    await harness.boot(routine())
    assert await harness.rows() == ["01 09:00 to 02 09:00, 2 missed down", "03 09:00 caught_up"]
    # passed to the run queue by whoever recovers queued runs, if it was not by us
    (run,) = await harness.journal.runs.find_active()
    assert run.slot == at("03 09:00")


# --- ringing


async def test_extra_alarm_changes_nothing(harness: EngineHarness) -> None:
    await harness.boot(routine())
    await harness.reach("01 09:00")
    await harness.ring()
    await harness.set_clock("01 09:00:01")
    await harness.fire("daily")
    assert harness.starts == ["daily 01 09:00"]


async def test_a_thousand_routines_due_at_once_all_start(harness: EngineHarness) -> None:
    await harness.boot(*(routine(f"r{n:04}") for n in range(1000)))
    await harness.reach("01 09:00")
    assert len({run.routine for run in harness.submitted_runs}) == 1000
    assert harness.next_start == at("02 09:00")


async def test_routines_due_together_share_one_query_of_active_runs(
    harness: EngineHarness,
) -> None:
    looks: list[int] = []

    class Watched(RunRepository):
        async def get_active_ids(self) -> dict[str, tuple[str, ...]]:
            active_ids = await super().get_active_ids()
            looks.append(len(active_ids))
            return active_ids

    def watched_journal(database: Database, *, clock: Any) -> Journal:
        journal = Journal(database, clock=clock)
        journal.runs = Watched(database, clock=clock, incidents=journal.incidents)
        return journal

    await harness.boot(*(routine(f"r{n:04}") for n in range(600)), journal=watched_journal)
    await harness.reach("01 09:00")
    await harness.finish(harness.submitted_runs[0])
    looks.clear()
    await harness.reach("02 09:00")
    assert harness.starts[600:] == ["r0000 02 09:00"]
    assert await harness.rows("r0001") == ["01 09:00 ran", "02 09:00 skipped overlap"]
    assert len(looks) < 10, f"each look costs more the more runs wait: {looks}"


async def test_a_routine_that_shares_its_schedule_keeps_its_own_floor(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("early"))
    await harness.reach("01 12:00")
    await harness.engine.pause("early")
    await harness.reload(routine("early"), routine("late"), routine("other", run={"prompt": "x"}))
    await harness.reach("02 12:00")
    assert await harness.rows("early") == ["01 09:00 ran", "02 09:00 skipped paused"]
    assert await harness.rows("late") == ["02 09:00 ran"]
    assert harness.starts == ["early 01 09:00", "late 02 09:00", "other 02 09:00"]


async def test_a_spread_delays_the_start_and_keeps_the_slot(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger={**NINE, "spread": "10m"}))
    start = harness.next_start
    assert start
    assert at("01 09:00") < start < at("01 09:10")
    await harness.reach("01 09:10")
    assert await harness.rows() == ["01 09:00 ran"]
    assert harness.engine.next_slots("daily", 1) == [at("02 09:00")]


async def test_one_time_slot_starts_once(harness: EngineHarness) -> None:
    once = routine(trigger={"at": at("01 09:00")})
    await harness.boot(once)
    await harness.reach("01 09:00")
    assert harness.next_start is None
    await harness.finish(*harness.submitted_runs)
    await harness.boot(once)
    assert harness.starts == ["daily 01 09:00"]
    assert harness.engine.next_slots("daily") == []


async def test_a_slot_starts_with_the_real_clock(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "agentd.db")
    submissions: asyncio.Queue[Run] = asyncio.Queue()
    clock = SystemClock()
    engine = RoutineEngine(
        journal=Journal(db, clock=clock.now),
        submit=submissions.put,
        cancel=submissions.put,
        clock=clock,
        zone="UTC",
    )
    await engine.start(folder_contents(routine("pulse", {"every": timedelta(seconds=1)})))
    async with asyncio.timeout(60):
        run = await submissions.get()
    assert run.created >= run.slot
    await engine.stop()
    await db.close()


class FullDisk(SlotRepository):
    full = False

    async def claim(self, claims: Sequence[Claim]) -> list[Run | None]:
        if self.full:
            raise StoreFull("the disk is full")
        return await super().claim(claims)


def journal_on_full_disk(database: Database, *, clock: Any) -> Journal:
    journal = Journal(database, clock=clock)
    journal.slots = FullDisk(database, clock=clock, runs=journal.runs)
    return journal


async def test_a_full_disk_loses_no_slot(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(), journal=journal_on_full_disk)
    slots = harness.journal.slots
    assert isinstance(slots, FullDisk)
    slots.full = True
    await harness.reach("01 09:00")
    assert harness.starts == []
    slots.full = False
    await harness.set_clock("01 09:05")
    assert await harness.rows() == ["01 09:00 late disk_full"]


async def test_slots_that_a_full_disk_refused_are_missed_for_that_reason(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.crash()
    await harness.reach("01 08:45")
    await harness.boot(routine(trigger=HALF_HOURLY), journal=journal_on_full_disk)
    slots = harness.journal.slots
    assert isinstance(slots, FullDisk)
    await harness.finish(*harness.submitted_runs)
    slots.full = True
    await harness.reach("01 10:10")
    assert len(harness.starts) == 1, "what was missed while it was down was caught up"
    slots.full = False
    await harness.reach("01 10:30")
    assert await harness.rows() == [
        "01 08:30 caught_up",
        "01 09:00 to 01 10:00, 3 missed disk_full",
        "01 10:30 ran",
    ]


async def test_stopped_engine_sets_no_alarm_and_may_be_stopped_again(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine())
    await harness.engine.stop()
    await harness.engine.stop()
    assert harness.next_start is None
    harness.time.move_to(at("01 09:00"))
    await harness.quiet()
    assert harness.starts == []


# --- why a slot does not start


async def test_slots_of_a_paused_routine_are_skipped_and_recorded(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily")
    await harness.engine.pause("daily")
    assert harness.engine.states["daily"].paused
    await harness.reach("01 09:10")
    await harness.crash()
    await harness.reach("01 10:10")
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.reach("01 10:40")
    await harness.engine.resume("daily")
    assert await harness.rows() == ["01 08:30 to 01 10:30, 5 skipped paused"]
    await harness.reach("01 11:00")
    assert harness.starts == ["daily 01 11:00"]


async def test_resuming_a_routine_that_is_not_paused_loses_no_slot(harness: EngineHarness) -> None:
    await harness.boot(routine())
    harness.time.move_to(at("01 09:00"))
    await harness.engine.resume("daily")
    assert harness.starts == ["daily 01 09:00"]


async def test_a_slot_waiting_for_its_spread_at_the_end_of_a_pause_is_recorded(
    harness: EngineHarness,
) -> None:
    spread = routine(trigger={**NINE, "spread": "10m"})
    await harness.boot(spread)
    await harness.engine.pause("daily")
    await harness.reach("01 09:00:01")
    await harness.engine.resume("daily")
    await harness.reach("01 12:00")
    assert await harness.rows() == ["01 09:00 skipped paused"]


async def test_a_slot_due_before_the_pause_still_starts(harness: EngineHarness) -> None:
    await harness.boot(routine())
    harness.time.move_to(at("01 09:00"))
    await harness.engine.pause("daily")
    assert harness.starts == ["daily 01 09:00"]


async def test_a_slot_outside_active_hours_is_skipped_and_not_shown_as_next(
    harness: EngineHarness,
) -> None:
    trigger = {**HALF_HOURLY, "active_hours": "08:00-09:00", "timezone": "UTC"}
    await harness.boot(routine(trigger=trigger))
    await harness.reach("01 09:30")
    assert await harness.rows() == ["01 08:30 ran", "01 09:00 to 01 09:30, 2 skipped quiet_hours"]
    assert harness.engine.next_slots("daily") == [at("02 08:00"), at("02 08:30"), at("03 08:00")]


async def test_a_slot_is_skipped_while_a_run_of_the_routine_is_under_way(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY), routine("other", HALF_HOURLY))
    await harness.reach("01 08:30")
    await harness.finish(*(run for run in harness.submitted_runs if run.routine == "other"))
    await harness.reach("01 09:00")
    assert await harness.rows("daily") == ["01 08:30 ran", "01 09:00 skipped overlap"]
    assert await harness.rows("other") == ["01 08:30 ran", "01 09:00 ran"]
    await harness.finish(*(run for run in harness.submitted_runs if run.routine == "daily"))
    await harness.reach("01 09:30")
    assert await harness.rows("daily") == [
        "01 08:30 ran",
        "01 09:00 skipped overlap",
        "01 09:30 ran",
    ]


async def test_a_run_whose_submission_failed_is_submitted_when_it_is_in_the_way(
    harness: EngineHarness,
) -> None:
    errors: list[BaseException] = [MemoryError(), asyncio.CancelledError()]

    class FailingQueue(EngineHarness):
        async def submit(self, run: Run) -> None:
            if errors:
                raise errors.pop()
            await super().submit(run)

    failing_harness = FailingQueue(harness.folder, harness.time)
    await failing_harness.boot(routine(trigger=HALF_HOURLY), routine("other", HALF_HOURLY))
    with pytest.raises(asyncio.CancelledError):
        await failing_harness.engine.run_now("other")
    with pytest.raises(MemoryError):
        await failing_harness.engine.run_now("daily")
    with pytest.raises(Refused, match="is queued already"):  # as it is committed
        await failing_harness.engine.run_now("other")
    assert [run.routine for run in failing_harness.submitted_runs] == ["other"]
    await failing_harness.reach("01 08:30")
    assert await failing_harness.rows("daily") == ["01 08:00 ran", "01 08:30 skipped overlap"]
    assert [run.routine for run in failing_harness.submitted_runs] == ["other", "daily"]
    await failing_harness.crash()


async def test_queue_one_lets_one_run_wait(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, run={"overlap": "queue_one"}))
    await harness.reach("01 09:30")
    assert await harness.rows() == ["01 08:30 ran", "01 09:00 ran", "01 09:30 skipped overlap"]
    with pytest.raises(Refused):
        await harness.engine.run_now("daily")


async def test_cancel_previous_cancels_the_active_run(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, run={"overlap": "cancel_previous"}))
    await harness.reach("01 09:00")
    first, second = harness.submitted_runs
    assert harness.cancelled_ids == [first.id]
    assert [run.id for run in await harness.journal.runs.find_active()] == [second.id]
    third = await harness.engine.run_now("daily")
    assert [run.id for run in await harness.journal.runs.find_active()] == [third.id]


async def test_a_gate_closed_by_a_busy_operator_costs_no_run(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, gate={"idle": "1h"}), routine("other", {}))
    await harness.engine.run_now("other")
    await harness.reach("01 09:00")
    assert await harness.rows("daily") == ["01 08:30 skipped gate", "01 09:00 ran"]


async def test_an_operator_seen_in_the_future_does_not_close_the_idle_gate(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, gate={"idle": "1h"}))
    await harness.journal.key_values.put("operator_seen", at("2031-01-01").isoformat())
    await harness.reach("01 08:30")
    assert harness.starts == ["daily 01 08:30"]


async def test_daily_limit_counts_runs_of_the_day_in_the_zone_of_the_routine(
    harness: EngineHarness,
) -> None:
    trigger = {"cron": "30 * * * *", "timezone": "Asia/Tokyo"}  # whose next day begins at 15:00
    await harness.boot(routine(trigger=trigger, gate={"max_per_day": 2}))
    for hour in range(8, 16):
        await harness.reach(f"01 {hour:02}:30")
        await harness.finish(*await harness.journal.runs.find_active())
    assert harness.starts == ["daily 01 08:30", "daily 01 09:30", "daily 01 15:30"]
    assert "01 10:30 to 01 14:30, 5 skipped gate" in await harness.rows()


# --- by hand and by events


async def test_a_manual_run_ignores_hours_pause_and_gate(harness: EngineHarness) -> None:
    limited_routine = routine(
        trigger={**NINE, "active_hours": "09:00-10:00"},
        gate={"idle": "4h", "max_per_day": 1},
        enabled=False,
    )
    await harness.boot(limited_routine)
    await harness.engine.pause("daily")
    run = await harness.engine.run_now("daily")
    assert (run.trigger, run.slot) == ("manual", at("01 08:00"))
    assert harness.submitted_runs == [run]


async def test_a_manual_run_is_refused_while_another_run_is_active(harness: EngineHarness) -> None:
    await harness.boot(routine())
    run = await harness.engine.run_now("daily")
    with pytest.raises(Refused, match=f"daily is queued already .*agentctl cancel {run.id}"):
        await harness.engine.run_now("daily")


async def test_the_same_event_gets_the_same_run(harness: EngineHarness) -> None:
    await harness.boot(routine())
    run = await harness.engine.run_now("daily", event="client-1")
    assert await harness.engine.run_now("daily", event="client-1") == run
    await harness.finish(run)
    assert (await harness.engine.run_now("daily", event="client-1")).id == run.id
    assert (await harness.engine.run_now("daily", event="client-2")).id != run.id


async def test_a_manual_run_takes_no_slot(harness: EngineHarness) -> None:
    await harness.boot(routine())
    harness.time.move_to(at("01 09:00"))
    await harness.finish(await harness.engine.run_now("daily"))
    await harness.ring()
    assert harness.starts == ["daily 01 09:00", "daily 01 09:00"]
    assert sorted(run.trigger for run in harness.submitted_runs) == ["cron", "manual"]


async def test_unknown_or_invalid_routine_is_refused(harness: EngineHarness) -> None:
    await harness.boot(routine(), faulty_names=["torn"])
    with pytest.raises(NotFound, match="no routine 'nightly'; agentctl list"):
        await harness.engine.run_now("nightly")
    with pytest.raises(Refused, match=r"torn cannot be used: x\.toml: run\.prompt: is missing"):
        await harness.engine.pause("torn")
    with pytest.raises(NotFound):
        harness.engine.next_slots("nightly")


async def test_a_refusal_says_how_many_more_faults_there_are(harness: EngineHarness) -> None:
    fault = Fault(file="x.toml", key="run.prompt", found="", problem="is missing")
    await harness.boot(routine())
    harness.engine._faults = {"torn": ConfigError(fault, fault, fault)}
    with pytest.raises(Refused, match=r"is missing; and 2 more: agentctl show torn$"):
        await harness.engine.run_now("torn")


async def test_engine_loaded_without_start_runs_only_on_command(
    harness: EngineHarness,
) -> None:
    await harness.boot()
    engine = RoutineEngine(
        journal=harness.journal,
        submit=harness.submit,
        cancel=harness.cancel,
        clock=SystemClock(),
        zone="UTC",
    )
    await engine.load(folder_contents(routine(first_run=True)))
    run = await engine.run_now("daily", trigger="once")
    assert harness.submitted_runs == [run]
    assert await harness.journal.key_values.get("operator_seen") is None, (
        "a cron job is no operator"
    )
    await engine.stop()


async def test_a_first_run_happens_once_and_only_if_there_never_was_one(
    harness: EngineHarness,
) -> None:
    fresh = routine(first_run=True, trigger={**NINE, "active_hours": "09:00-10:00"})
    await harness.boot(fresh)
    assert [run.trigger for run in harness.submitted_runs] == ["first_run"]
    await harness.finish(*harness.submitted_runs)
    await harness.boot(fresh)
    await harness.reload(fresh, routine("late", first_run=True))
    assert [run.routine for run in harness.submitted_runs] == ["daily", "late"]


async def test_a_paused_routine_has_its_first_run_once_it_is_resumed(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine())
    await harness.engine.pause("daily")
    await harness.reload(routine(first_run=True))
    await harness.boot(routine(first_run=True))
    assert harness.starts == []
    await harness.engine.resume("daily")
    assert [run.trigger for run in harness.submitted_runs] == ["first_run"]
    await harness.boot(routine(first_run=True))
    await harness.engine.resume("daily")
    assert len(harness.submitted_runs) == 1


async def test_on_start_runs_at_most_once_an_hour(harness: EngineHarness) -> None:
    starting = routine(trigger={"on_start": True})
    for moment, runs in (("01 08:00", 1), ("01 08:59", 1), ("01 09:00", 2)):
        await harness.reach(moment)
        await harness.boot(starting)
        assert len(harness.submitted_runs) == runs
        await harness.finish(*await harness.journal.runs.find_active())
    assert harness.engine.next_slots("daily") == []


async def test_on_start_is_no_slot_of_the_schedule_it_joins(harness: EngineHarness) -> None:
    routine_with_both = routine(trigger={**NINE, "on_start": True})
    await harness.boot(routine_with_both)
    await harness.finish(*harness.submitted_runs)
    await harness.crash()
    await harness.reach("01 09:20")
    await harness.boot(routine_with_both)
    assert [f"{run.trigger} {run.slot:%H:%M}" for run in harness.submitted_runs] == [
        "on_start 08:00",
        "cron 09:00",
    ]
    assert await harness.rows() == [
        "01 08:00 ran",
        "01 09:00 caught_up",
        "01 09:20 skipped overlap",
    ]


async def test_on_start_killed_before_it_was_claimed_starts_at_the_next_start(
    harness: EngineHarness,
) -> None:
    starting = routine(trigger={"on_start": True})
    with suppress(Killed):
        await harness.boot(starting, journal=partial(dying_journal, dies=["before open"]))
    await harness.reach("01 08:10")
    await harness.boot(starting)
    assert harness.starts == ["daily 01 08:00"]


async def test_on_start_respects_pause_and_active_hours(harness: EngineHarness) -> None:
    starting = routine(trigger={"on_start": True, "active_hours": "07:00-12:00"})
    await harness.boot(starting)
    await harness.finish(*harness.submitted_runs)
    await harness.reach("01 20:00")
    await harness.boot(starting)
    await harness.engine.pause("daily")
    await harness.reach("02 08:00")
    await harness.boot(starting)
    assert await harness.rows() == [
        "01 08:00 ran",
        "01 20:00 skipped quiet_hours",
        "02 08:00 skipped paused",
    ]


# --- reload


async def test_a_reload_adds_changes_and_removes(harness: EngineHarness) -> None:
    await harness.boot(routine("a"), routine("b"), routine("c"))
    changes = await harness.reload(routine("b"), routine("c", {"cron": "0 10 * * *"}), routine("d"))
    assert (changes.added, changes.changed, changes.removed) == (("d",), ("c",), ("a",))
    await harness.reach("01 10:00")
    assert harness.starts == ["b 01 09:00", "d 01 09:00", "c 01 10:00"]
    assert set(harness.engine.routines) == set(harness.engine.states) == {"b", "c", "d"}


async def test_slots_due_under_the_old_definition_start_before_a_reload(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("a"), routine("b"))
    harness.time.move_to(at("01 09:00"))
    await harness.reload(routine("a", {"cron": "0 10 * * *"}))
    assert harness.starts == ["a 01 09:00", "b 01 09:00"]


class AbsentRoutines(RoutineRepository):
    """A journal that does not know the failures of routines while its database is `away`."""

    away = False

    async def find_failing(self, names: Iterable[str]) -> list[str]:
        if self.away:
            raise StoreFull("the database does not answer")
        return await super().find_failing(names)


def journal_that_goes_away(database: Database, *, clock: Any) -> Journal:
    journal = Journal(database, clock=clock)
    journal.routines = AbsentRoutines(database, clock=clock, runs=journal.runs)
    return journal


async def test_a_routine_of_a_reload_that_failed_halfway_starts_after_the_next_one(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("old"), journal=journal_that_goes_away)
    routines = harness.journal.routines
    assert isinstance(routines, AbsentRoutines)
    routines.away = True
    with pytest.raises(StoreFull):
        await harness.reload(routine("old"), routine("new"))
    routines.away = False
    await harness.reload(routine("old"), routine("new"))
    await harness.reach("01 09:00")
    assert sorted(harness.starts) == ["new 01 09:00", "old 01 09:00"]


async def test_a_routine_that_a_failed_reload_has_removed_is_gone_after_the_next_one(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("kept"), routine("old"), journal=journal_that_goes_away)
    routines, incidents = harness.journal.routines, harness.journal.incidents
    assert isinstance(routines, AbsentRoutines)
    await harness.reach("01 09:00")
    run = next(run for run in harness.submitted_runs if run.routine == "old")
    claimed_run = await harness.journal.runs.claim(run.id, owner="test")
    assert claimed_run
    await harness.journal.runs.end(claimed_run.to(Status.FAILED, detail="exit 1"))
    assert await incidents.get_open_subjects() == {"routine old"}
    routines.away = True
    with pytest.raises(StoreFull):
        await harness.reload(routine("kept"))
    routines.away = False
    await harness.reload(routine("kept"))
    assert await incidents.get_open_subjects() == set()
    scheduler = harness.engine._scheduler
    assert scheduler and [job.id for job in scheduler.get_jobs()] == ["kept"]


class AbsentKeyValues(KeyValueRepository):
    """A journal that does not know which rehearsals were approved while its database is `away`."""

    away = False

    async def get(self, key: str) -> str | None:
        if self.away:
            raise StoreFull("the database does not answer")
        return await super().get(key)


async def test_a_reload_that_fails_before_it_takes_the_routines_keeps_none_from_starting(
    harness: EngineHarness,
) -> None:
    def journal_without_key_values(database: Database, *, clock: Any) -> Journal:
        journal = Journal(database, clock=clock)
        journal.key_values = AbsentKeyValues(database, clock=clock)
        return journal

    await harness.boot(routine("changed"), routine("other"), journal=journal_without_key_values)
    await harness.reach("01 09:00")
    await harness.finish(*harness.submitted_runs)
    key_values = harness.journal.key_values
    assert isinstance(key_values, AbsentKeyValues)
    key_values.away = True
    with pytest.raises(StoreFull):
        await harness.reload(routine("changed", run={"rehearse_first": True}), routine("other"))
    key_values.away = False
    await harness.reach("02 09:00")
    assert sorted(harness.starts) == [
        "changed 01 09:00",
        "changed 02 09:00",
        "other 01 09:00",
        "other 02 09:00",
    ]


async def test_a_returning_routine_has_a_new_baseline(harness: EngineHarness) -> None:
    await harness.boot(routine())
    await harness.reload()
    await harness.reach("03 08:00")
    await harness.reload(routine())
    assert await harness.rows() == []
    await harness.crash()
    await harness.boot()
    await harness.reach("05 12:00")
    await harness.boot(routine())
    assert await harness.rows() == []
    assert harness.next_start == at("06 09:00")


async def test_a_broken_file_keeps_its_last_valid_definition(harness: EngineHarness) -> None:
    await harness.boot(routine())
    changes = await harness.reload(faulty_names=["daily"])
    assert not changes
    assert set(harness.engine.faults) == {"daily"}
    await harness.reach("01 09:00")
    assert harness.starts == ["daily 01 09:00"]


async def test_a_file_broken_at_start_loses_no_slot_once_corrected(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine())
    await harness.crash()
    await harness.boot(faulty_names=["daily"])
    await harness.reach("01 12:00")
    await harness.reload(routine())
    await harness.fire("daily")
    assert await harness.rows() == ["01 09:00 late"]


async def test_disabling_stops_a_routine_and_enabling_sets_a_new_baseline(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine())
    await harness.reload(routine(enabled=False))
    await harness.reach("02 12:00")
    await harness.reload(routine())
    await harness.reach("03 09:00")
    assert harness.starts == ["daily 03 09:00"]
    assert await harness.rows() == ["03 09:00 ran"]


async def test_a_change_of_the_host_zone_sets_a_new_baseline(
    harness: EngineHarness,
) -> None:
    here = routine("fixed", {**NINE, "timezone": "UTC"})
    await harness.boot(routine(), here, zone="UTC")
    await harness.reload(routine(), here, zone="America/New_York")
    assert harness.engine.next_slots("daily", 1) == [at("01 14:00")]
    assert harness.engine.next_slots("fixed", 1) == [at("01 09:00")]
    assert harness.engine.describe_schedule(routine()) == "at 09:00, America/New_York"
    await harness.reach("01 14:00")
    assert harness.starts == ["fixed 01 09:00", "daily 01 14:00"]


async def test_a_reload_without_changes_changes_nothing(harness: EngineHarness) -> None:
    await harness.boot(routine())
    before = harness.engine.states["daily"]
    await harness.reach("01 08:30")
    assert not await harness.reload(routine())
    assert harness.engine.states["daily"] == before
    assert harness.next_start == at("01 09:00")


async def test_slots_outside_the_active_hours_are_one_line_of_the_log_each_night(
    harness: EngineHarness,
) -> None:
    trigger = {"every": timedelta(seconds=10), "active_hours": "08:00-20:00"}
    await harness.reach("01 19:59:50")
    with capture_logs() as lines:
        await harness.boot(routine("pulse", trigger))
        await harness.reach("01 20:01")
    # the rest are lines of level debug, if these are written at all
    infos = [
        line for line in lines if line["event"] == "slot.skipped" and line["log_level"] == "info"
    ]
    assert [line["reason"] for line in infos] == ["quiet_hours"]
    skipped_slots = [slot for slot in await harness.journal.slots.find("pulse") if slot.reason]
    assert sum(slot.count for slot in skipped_slots) > 3


async def test_incidents_of_a_removed_routine_are_closed_by_a_reload_and_a_start(
    harness: EngineHarness,
) -> None:
    names = ("gone", "left", "broken")
    await harness.boot(*(routine(name) for name in names))
    for name in names:
        await harness.journal.incidents.report(f"routine {name}", "exit 1")
    await harness.reload(routine("left"), routine("broken"))
    open_subjects = await harness.journal.incidents.get_open_subjects()
    assert open_subjects == {"routine left", "routine broken"}
    await harness.boot(faulty_names=["broken"])
    assert await harness.journal.incidents.get_open_subjects() == {"routine broken"}


async def test_a_renamed_routine_is_gone_until_the_reload_and_others_are_still_started(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("old"), routine("other"))
    await harness.engine.rename("old", "new", lambda: None)
    assert [*harness.engine.routines] == ["other"]
    await harness.reach("01 09:00")
    assert harness.starts == ["other 01 09:00"]


async def test_a_routine_removed_while_it_is_due_keeps_no_other_from_starting(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("gone"), routine("other"))
    async with harness.engine._ledger.lock():
        harness.time.move_to(at("01 09:00"))
        reload = asyncio.create_task(harness.engine.reload(folder_contents(routine("other"))))
        await asyncio.sleep(0)  # it waits for the lock
        for name in ("gone", "other"):
            fire(harness.engine, name)
    await reload
    await harness.quiet()
    assert sorted(harness.starts) == ["gone 01 09:00", "other 01 09:00"]
    await harness.finish(*harness.submitted_runs)
    await harness.reach("02 09:00")
    assert harness.starts[2:] == ["other 02 09:00"]
