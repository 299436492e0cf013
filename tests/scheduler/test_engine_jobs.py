"""APScheduler drives the engine by its public interfaces: trigger and job store."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import ConflictingIdError, JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from structlog.testing import capture_logs

from daemon.definitions.schedule import Schedule
from daemon.scheduler.engine import BatchedJobStore, StartTrigger
from daemon.scheduler.slot_ledger import BATCH_SIZE
from tests.engine_harness import EngineHarness, at, routine

MINUTE = timedelta(minutes=1)


class BrokenSchedule(Schedule):
    """A schedule with a fault of ours in it."""

    def next_start(self, after: datetime) -> datetime | None:
        raise OverflowError("date value out of range")


@pytest.mark.parametrize("own_class", [StartTrigger, BatchedJobStore])
def test_nothing_private_of_apscheduler_is_overridden(own_class: type) -> None:
    library_names = {name for base in own_class.__mro__[1:-1] for name in vars(base)}
    shared_names = {
        name
        for name in library_names & vars(own_class).keys()
        if not name.startswith(("__", "_abc_"))
    }
    assert shared_names
    assert not [name for name in shared_names if name.startswith("_")]


async def test_apscheduler_executes_a_job_for_each_routine_that_is_due(
    harness: EngineHarness,
) -> None:
    names = [f"r{number}" for number in range(BATCH_SIZE + 1)]
    await harness.boot(*map(routine, names))
    events: list[JobExecutionEvent] = []
    harness.engine._scheduler.add_listener(events.append, EVENT_JOB_EXECUTED)
    await harness.reach("01 09:00")
    assert sorted(event.job_id for event in events) == sorted(names)
    assert {event.scheduled_run_time for event in events} == {at("01 09:00")}
    assert sorted(run.routine for run in harness.submitted_runs) == sorted(names)


async def test_after_a_downtime_a_late_job_is_executed_once(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("pulse", {"every": timedelta(seconds=1)}))
    events: list[JobExecutionEvent] = []
    harness.engine._scheduler.add_listener(events.append, EVENT_JOB_EXECUTED)
    harness.time.move_to(at("01 20:00"))
    await harness.ring()
    assert len(events) == 1
    assert harness.starts == ["pulse 01 20:00"]


def test_a_start_trigger_returns_the_next_start_after_now_or_the_last_start() -> None:
    trigger = StartTrigger("daily", Schedule.of(timezone="UTC", cron="0 9 * * *"))
    now = at("01 08:00")
    assert trigger.get_next_fire_time(None, now) == at("01 09:00")
    assert trigger.get_next_fire_time(at("01 09:00"), now) == at("02 09:00")
    assert trigger.get_next_fire_time(now, at("2031-05-05T10:00")) == at("2031-05-06T09:00")
    assert StartTrigger("hand", Schedule.of(timezone="UTC")).get_next_fire_time(None, now) is None


async def test_a_failing_schedule_is_retried_and_delays_no_other_routine() -> None:
    """What a trigger raises would end APScheduler's loop."""
    rung: list[str] = []
    both_rang = asyncio.Event()

    def ring(name: str) -> None:
        rung.append(name)
        if {"broken", "whole"} <= set(rung):
            both_rang.set()

    scheduler = AsyncIOScheduler(
        timezone=UTC,
        jobstores={"default": BatchedJobStore()},
        executors={"default": DebugExecutor()},
    )
    broken_trigger = StartTrigger("broken", BrokenSchedule.of(timezone="UTC"))
    whole = StartTrigger("whole", Schedule.of(timezone="UTC", every=timedelta(milliseconds=10)))
    with capture_logs() as logs:
        scheduler.start(paused=True)
        now = datetime.now(UTC)
        for trigger, name in ((broken_trigger, "broken"), (whole, "whole")):
            scheduler.add_job(
                ring, trigger, args=(name,), id=name, next_run_time=now, misfire_grace_time=None
            )
        scheduler.resume()
        async with asyncio.timeout(60):
            await both_rang.wait()
            while rung.count("whole") < 3:
                await asyncio.sleep(0)
    assert scheduler.get_job("broken").next_run_time > now + timedelta(seconds=30)
    assert {(line["event"], line["routine"]) for line in logs} == {
        ("routine.start_unknown", "broken")
    }
    scheduler.shutdown(wait=False)
    await asyncio.sleep(0)


@pytest.mark.slow
def test_the_job_store_equals_that_of_apscheduler_in_batches() -> None:
    rng = random.Random(7)
    own_store, library_store = BatchedJobStore(), MemoryJobStore()
    scheduler = AsyncIOScheduler(timezone=UTC)
    start = at("01 08:00")

    def job(number: int) -> object:
        moment = start + rng.randrange(8) * MINUTE if rng.random() < 0.9 else None
        trigger = StartTrigger("x", Schedule.of(timezone="UTC"))
        return scheduler.add_job(print, trigger, id=f"job {number}", next_run_time=moment)

    jobs_by_number: dict[int, object] = {}
    for _ in range(3000):
        number = rng.randrange(2 * BATCH_SIZE)
        if number not in jobs_by_number:
            jobs_by_number[number] = job(number)
            for store in (own_store, library_store):
                store.add_job(jobs_by_number[number])
        elif rng.random() < 0.5:
            jobs_by_number[number] = job(number)
            for store in (own_store, library_store):
                store.update_job(jobs_by_number[number])
        else:
            del jobs_by_number[number]
            for store in (own_store, library_store):
                store.remove_job(f"job {number}")
    assert own_store.get_all_jobs() == library_store.get_all_jobs()
    assert own_store.get_next_run_time() == library_store.get_next_run_time()
    for minutes in range(-1, 9):
        due = library_store.get_due_jobs(start + minutes * MINUTE)
        assert own_store.get_due_jobs(start + minutes * MINUTE) == due[:BATCH_SIZE]
    assert len(due) > BATCH_SIZE
    (some, *_) = jobs_by_number
    assert own_store.lookup_job(f"job {some}") is jobs_by_number[some]
    assert own_store.lookup_job("none") is None
    with pytest.raises(ConflictingIdError):
        own_store.add_job(jobs_by_number[some])
    with pytest.raises(JobLookupError):
        own_store.remove_job("none")
    own_store.remove_all_jobs()
    assert (
        own_store.get_all_jobs(),
        own_store.get_next_run_time(),
        own_store.get_due_jobs(start),
    ) == (
        [],
        None,
        [],
    )


async def test_a_scheduler_whose_timer_is_lost_is_woken(harness: EngineHarness) -> None:
    await harness.boot(routine("pulse", {"every": timedelta(minutes=1)}))
    scheduler = harness.engine._scheduler
    assert scheduler
    scheduler._stop_timer()  # as if its turn of the event loop had failed
    await harness.reach("01 08:02")
    assert not harness.submitted_runs
    with capture_logs() as lines:
        watch_task = asyncio.create_task(harness.engine.watch_lateness(check_every=0))
        while not any(line["event"] == "engine.late" for line in lines):
            await asyncio.sleep(0)
        watch_task.cancel()
        async with asyncio.timeout(60):
            while not harness.submitted_runs:
                await asyncio.sleep(0)
    assert [run.routine for run in harness.submitted_runs] == ["pulse"]
