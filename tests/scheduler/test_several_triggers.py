"""Routines with several triggers, on a real journal: each starts runs, and none hides another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from daemon.definitions.calendar_file import parse_calendar
from daemon.errors import NotFound, Refused
from daemon.models import Status
from tests.engine_harness import at, routine
from tests.scheduler.test_triggers import Workplace

NINE = {"cron": "0 9 * * *"}
NOON = {"cron": "0 12 * * *"}


@pytest.fixture
def time() -> Iterator[FrozenDateTimeFactory]:
    with freeze_time("2026-01-01 08:00", real_asyncio=True) as frozen_time:
        yield frozen_time


@pytest.fixture
async def harness(tmp_path: Path, time: FrozenDateTimeFactory) -> AsyncIterator[Workplace]:
    harness = Workplace(tmp_path, time)
    yield harness
    await harness.crash()


def several(*triggers: dict[str, Any], name: str = "daily", **more: Any) -> Any:
    return routine(name, list(triggers), **more)


async def test_each_schedule_starts_runs_of_its_kind(harness: Workplace) -> None:
    await harness.boot(several(NINE, {"every": timedelta(hours=6)}, {"at": at("02 10:00")}))
    await harness.reach("01 09:30")
    await harness.end(harness.submitted_runs[0])
    await harness.reach("01 12:30")
    await harness.end(harness.submitted_runs[1])
    harness.time.move_to(at("02 09:59"))
    await harness.ring()
    await harness.reach("02 10:30")
    await harness.end(harness.submitted_runs[-1])
    kinds = [(f"{run.slot:%d %H:%M}", run.trigger) for run in harness.submitted_runs]
    assert kinds == [("01 09:00", "cron"), ("01 12:00", "every"), ("02 10:00", "at")]
    assert await harness.rows() == [
        "01 09:00 ran",
        "01 12:00 ran",
        "01 18:00 to 02 09:00, 4 missed down",
        "02 10:00 ran",
    ]


async def test_a_run_of_one_trigger_keeps_another_from_starting(harness: Workplace) -> None:
    await harness.boot(several(NINE, NOON))
    await harness.reach("01 12:30")
    assert harness.starts == ["daily 01 09:00"]
    assert await harness.rows() == ["01 09:00 ran", "01 12:00 skipped overlap"]


async def test_two_triggers_at_one_instant_start_one_run(harness: Workplace) -> None:
    await harness.boot(several(NINE, {"every": timedelta(hours=3)}))
    await harness.reach("01 10:00")
    assert harness.starts == ["daily 01 09:00"]
    assert await harness.rows() == ["01 09:00 ran"]


async def test_slots_of_a_downtime_are_accounted_for_once(harness: Workplace) -> None:
    triggers = (NINE, NOON, {"every": timedelta(hours=6), "catch_up": "none"})
    await harness.boot(several(*triggers))
    await harness.reach("01 10:00")
    await harness.end(harness.submitted_runs[0])
    await harness.crash()
    harness.time.move_to(at("03 12:10"))
    await harness.boot(several(*triggers))
    await harness.boot(several(*triggers))
    assert harness.starts == ["daily 01 09:00", "daily 03 12:00"]
    assert await harness.rows() == [
        "01 09:00 ran",
        "01 12:00 to 03 09:00, 10 missed down",
        "03 12:00 caught_up",
    ]


async def test_a_slot_outside_the_hours_of_one_trigger_starts_by_another(
    harness: Workplace,
) -> None:
    await harness.boot(
        several({**NINE, "active_hours": "10:00-12:00"}, {**NOON, "active_hours": "11:00-13:00"})
    )
    await harness.reach("01 09:30")
    assert await harness.rows() == ["01 09:00 skipped quiet_hours"]
    row = (await harness.journal.slots.find("daily"))[0]
    assert row.rule == 'active_hours = "10:00-12:00"'
    await harness.reach("01 12:30")
    assert harness.starts == ["daily 01 12:00"]


async def test_files_start_a_routine_that_has_a_schedule(harness: Workplace) -> None:
    await harness.boot(
        several(
            NINE,
            {"watch": ["inbox/*.csv"], "settle": timedelta(seconds=0.1)},
            {"watch": ["inbox/*.txt", "inbox/*.csv"], "settle": timedelta(seconds=0.2)},
        )
    )
    harness.drop("a.csv")
    first = await harness.next_run()
    assert (first.trigger, await harness.paths(first)) == ("watch", ["inbox/a.csv"])
    await harness.end(first)
    harness.drop("b.txt")
    second = await harness.next_run()
    assert await harness.paths(second) == ["inbox/b.txt"], "each version is handled once"
    await harness.end(second)
    await harness.reach("01 09:30")
    third = await harness.next_run()
    assert (third.trigger, third.slot) == ("cron", at("01 09:00"))


async def test_files_wait_for_the_hours_of_their_own_trigger(harness: Workplace) -> None:
    files = {"watch": ["inbox/*"], "settle": timedelta(seconds=0.1), "active_hours": "10:00-12:00"}
    await harness.boot(several(NINE, files))
    harness.drop("a.csv")
    await harness.reach("01 09:30")
    assert (await harness.next_run()).trigger == "cron"
    await harness.end(harness.submitted_runs[0])
    await harness.reach("01 10:00")
    run = await harness.next_run()
    assert (run.trigger, run.slot) == ("watch", at("01 10:00"))


async def test_ends_of_other_runs_count_by_the_trigger_that_waits_for_them(
    harness: Workplace,
) -> None:
    follower = several(
        {"after": ["backup"], "on": "failed"},
        {"after": ["sync"], "active_days": "sat"},
        NINE,
        name="report",
    )
    await harness.boot(routine("backup", {}), routine("sync", {}), follower)
    await harness.end(await harness.engine.run_now("backup"))
    await harness.end(await harness.engine.run_now("sync"))
    await harness.quiet()
    assert [run for run in harness.submitted_runs if run.routine == "report"] == []
    assert await harness.rows("report") == ["01 08:02 skipped quiet_hours"]
    await harness.end(await harness.engine.run_now("backup"), Status.FAILED)
    await harness.quiet()
    assert [run.trigger for run in harness.submitted_runs if run.routine == "report"] == ["after"]


async def test_an_end_that_came_during_a_downtime_counts_by_its_own_trigger(
    harness: Workplace,
) -> None:
    follower = several(
        {"after": ["backup"], "on": "failed"}, {"after": ["sync"]}, NOON, name="report"
    )
    parents = routine("backup", {}), routine("sync", {})
    await harness.boot(*parents)
    runs = [await harness.engine.run_now(name) for name in ("backup", "sync")]
    await harness.boot(*parents, follower)
    harness.journal.runs.on_ended = lambda _run: None  # as if the daemon were down
    for run in runs:
        await harness.end(run)
    await harness.boot(*parents, follower)
    reports = [run for run in harness.submitted_runs if run.routine == "report"]
    assert [run.event for run in reports] == [runs[1].id]


async def test_a_webhook_counts_by_the_hours_of_its_own_trigger(harness: Workplace) -> None:
    await harness.boot(several(NINE, {"webhook": True, "active_hours": "10:00-12:00"}))
    assert harness.engine.webhook_routines == ["daily"]
    with pytest.raises(Refused, match="outside its active hours"):
        await harness.engine.start_by_webhook("daily", event="1", body={})
    await harness.reach("01 10:30")
    await harness.end(harness.submitted_runs[0])
    run = await harness.engine.start_by_webhook("daily", event="1", body={})
    assert run.trigger == "webhook"
    await harness.reload(several(NINE, NOON))
    with pytest.raises(NotFound):
        await harness.engine.start_by_webhook("daily", event="2", body={})


async def test_a_routine_starts_with_the_daemon_and_by_the_clock(harness: Workplace) -> None:
    await harness.boot(several({"on_start": True}, NINE))
    assert [run.trigger for run in harness.submitted_runs] == ["on_start"]
    await harness.end(harness.submitted_runs[0])
    await harness.reach("01 09:30")
    assert [run.trigger for run in harness.submitted_runs] == ["on_start", "cron"]


async def test_next_slots_are_those_of_all_triggers(harness: Workplace) -> None:
    await harness.boot(several(NINE, {**NOON, "active_days": "sat"}, {"webhook": True}))
    assert [f"{slot:%d %H:%M}" for slot in harness.engine.next_slots("daily", 4)] == [
        "01 09:00",
        "02 09:00",
        "03 09:00",
        "03 12:00",
    ]
    words = harness.engine.describe_schedule(harness.engine.routines["daily"])
    assert words == "at 09:00, UTC; or at 12:00 on Saturday, UTC; or by webhook"


async def test_an_added_trigger_begins_with_its_next_slot(harness: Workplace) -> None:
    await harness.boot(several(NOON))
    harness.time.move_to(at("01 09:30"))
    await harness.reload(several(NOON, NINE))
    assert harness.starts == []
    await harness.reach("01 12:30")
    assert harness.starts == ["daily 01 12:00"]


# --- days to skip

NEW_YEAR = {"skip": ["2026-01-02/2026-01-03"]}


async def test_slots_of_days_to_skip_are_recorded_with_the_entry(harness: Workplace) -> None:
    await harness.boot(routine("daily", {**NINE, **NEW_YEAR}))
    await harness.reach("01 10:00")
    await harness.end(harness.submitted_runs[0])
    await harness.reach("04 09:30")
    assert harness.starts == ["daily 01 09:00", "daily 04 09:00"]
    assert await harness.rows() == [
        "01 09:00 ran",
        "02 09:00 to 03 09:00, 2 skipped quiet_hours",
        "04 09:00 ran",
    ]
    row = (await harness.journal.slots.find("daily"))[1]
    assert row.rule == 'skip = "2026-01-02/2026-01-03"'


async def test_next_slots_lie_behind_days_to_skip(harness: Workplace) -> None:
    await harness.boot(routine("daily", {**NINE, **NEW_YEAR}))
    assert [f"{slot:%d %H:%M}" for slot in harness.engine.next_slots("daily", 3)] == [
        "01 09:00",
        "04 09:00",
        "05 09:00",
    ]


async def test_a_slot_missed_over_days_to_skip_is_not_caught_up_on_one(harness: Workplace) -> None:
    late = {**NINE, "catch_up": "2h", "skip": ["2026-01-02"]}
    await harness.boot(routine("daily", late))
    harness.time.move_to(at("02 10:00"))
    await harness.boot(routine("daily", late))
    assert harness.starts == []
    assert (await harness.rows())[-1] == "02 09:00 skipped quiet_hours"


async def test_files_wait_until_the_days_to_skip_are_over(harness: Workplace) -> None:
    files = {"watch": ["inbox/*"], "settle": timedelta(seconds=0.1), "skip": ["2026-01-01"]}
    await harness.boot(several(files, {**NOON, "skip": ["2026-01-01"]}, name="inbox"))
    harness.drop("a.csv")
    async with asyncio.timeout(60):
        while harness.engine._job_store.lookup_job("files inbox") is None:
            await asyncio.sleep(0.01)
    await harness.reach("02 00:00")
    run = await harness.next_run()
    assert (run.trigger, run.slot) == ("watch", at("02 00:00"))


async def test_a_webhook_is_refused_on_a_day_to_skip(harness: Workplace) -> None:
    await harness.boot(routine("hook", {"webhook": True, "skip": ["2026-01-01"]}))
    with pytest.raises(
        Refused, match=r'this is a day to skip .skip = "2026-01-01".; send it again'
    ):
        await harness.engine.start_by_webhook("hook", event="1", body={})
    await harness.reach("02 00:00")
    assert (await harness.engine.start_by_webhook("hook", event="1", body={})).trigger == "webhook"


async def test_the_end_of_another_run_is_skipped_on_a_day_to_skip(harness: Workplace) -> None:
    await harness.boot(
        routine("backup", {}), routine("report", {"after": ["backup"], "skip": ["2026-01-01"]})
    )
    await harness.end(await harness.engine.run_now("backup"))
    await harness.quiet()
    (row,) = await harness.journal.slots.find("report")
    assert (row.outcome, row.reason, row.rule) == (
        "skipped",
        "quiet_hours",
        'skip = "2026-01-01"',
    )


async def test_another_calendar_counts_from_its_reload_on(harness: Workplace) -> None:
    def skipping(day: str) -> Any:
        event = f"BEGIN:VEVENT\nSUMMARY:Off\nDTSTART:{day}\nEND:VEVENT\n"
        content = f"BEGIN:VCALENDAR\n{event}END:VCALENDAR\n"
        calendar = parse_calendar(content.encode(), "off.ics")
        return routine("daily", {**NINE, "skip": ["off.ics"]}, calendars=(calendar,))

    await harness.boot(skipping("20260101"))
    await harness.reach("01 10:00")
    assert await harness.rows() == ["01 09:00 skipped quiet_hours"]
    assert [f"{slot:%d}" for slot in harness.engine.next_slots("daily", 2)] == ["02", "03"]
    changes = await harness.reload(skipping("20260102"))
    assert (changes.changed, changes.schedule_changed) == (("daily",), ())
    assert [f"{slot:%d}" for slot in harness.engine.next_slots("daily", 2)] == ["03", "04"]
    await harness.reach("03 09:30")
    assert harness.starts == ["daily 03 09:00"]
    assert (await harness.journal.slots.find("daily"))[1].rule == 'skip = "off.ics: Off"'


SPREAD = {"spread": timedelta(minutes=30)}  # this routine starts 28 minutes after its slot


async def test_webhooks_refused_around_a_slot_that_waits_for_its_spread_do_not_take_it(
    harness: Workplace,
) -> None:
    await harness.boot(
        routine("both", [{"cron": "30 8 * * *", **SPREAD}, {"webhook": True, **SPREAD}])
    )
    run = await harness.engine.start_by_webhook("both", event="first", body={})
    for moment in ("01 08:20", "01 08:31"):
        await harness.reach(moment)
        with pytest.raises(Refused, match="a run of it is under way"):
            await harness.engine.start_by_webhook("both", event=moment, body={})
    await harness.finish(run)
    await harness.reach("01 12:00")
    assert await harness.rows() == ["01 08:00 ran", "01 08:20 skipped overlap", "01 08:30 ran"]


async def test_a_restart_after_a_refused_webhook_keeps_the_slot_that_waits_for_its_spread(
    harness: Workplace,
) -> None:
    at_night = {"webhook": True, "active_hours": "01:00-02:00", **SPREAD}
    both = routine("both", [{"cron": "30 8 * * *", **SPREAD}, at_night])
    await harness.boot(both)
    await harness.reach("01 12:00")
    await harness.finish(*harness.submitted_runs)
    await harness.reach("02 08:31")
    with pytest.raises(Refused, match="outside its active hours"):
        await harness.engine.start_by_webhook("both", event="m", body={})
    await harness.boot(both)
    await harness.reach("02 12:00")
    assert await harness.rows() == ["01 08:30 ran", "02 08:30 ran"]
