"""Routines paused by a person, delayed by backoff, and started apart after a downtime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from daemon.models import Run, Status
from daemon.runs.retry import backoff_delay, retry_delay
from daemon.scheduler.slots import MAX_LATE_START_DELAY, late_start_delay
from tests.acceptance.story import Home, Vendor
from tests.engine_harness import HALF_HOURLY, EngineHarness, at, routine
from tests.properties import scaled_settings

MINUTELY = {"cron": "* * * * *"}


async def fail(
    harness: EngineHarness, *, trigger: str | None = None, detail: str = "the model is gone"
) -> list[Run]:
    """Let what is queued fail, and tell the engine as the executor does."""
    ended_runs = []
    for run in await harness.journal.runs.find_active():
        claimed_run = await harness.journal.runs.claim(run.id, owner="test")
        assert claimed_run
        run = await harness.journal.runs.end(
            claimed_run.to(Status.FAILED, ended=datetime.now(UTC), detail=detail)
        )
        await harness.engine.record_end(run)
        ended_runs.append(run)
    return ended_runs


async def succeed(harness: EngineHarness) -> None:
    for run in await harness.journal.runs.find_active():
        await harness.finish(run)
        await harness.engine.record_end(await harness.journal.runs.get(run.id))


# --- a person's pause


async def test_pause_until_a_time_ends_at_that_time(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily", until=at("01 09:15"))
    await harness.reach("01 09:10")
    assert harness.engine.states["daily"].is_paused(datetime.now(UTC))
    await harness.reach("01 09:30")
    assert await harness.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", "01 09:30 ran"]
    assert not harness.engine.states["daily"].paused


@pytest.mark.parametrize("back", ["01 09:20", "01 09:40"])
async def test_a_pause_ends_on_time_over_a_restart(harness: EngineHarness, back: str) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily", until=at("01 09:15"))
    await harness.crash()
    await harness.reach(back)
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.reach("01 09:45")
    expected = "01 09:30 ran" if back == "01 09:20" else "01 09:30 caught_up"
    assert await harness.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", expected]


async def test_a_slot_at_the_moment_the_pause_ends_is_still_paused(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily", until=at("01 09:00"))
    await harness.reach("01 09:30")
    assert await harness.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", "01 09:30 ran"]


async def test_a_pause_of_another_daemon_is_read_though_it_renamed_a_routine(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY), routine("old", trigger=HALF_HOURLY))
    await harness.journal.routines.rename("old", "new")
    await harness.journal.routines.pause("daily")
    await harness.engine.refresh_states()
    assert harness.engine.states["daily"].paused
    assert not harness.engine.states["old"].paused


async def test_a_pause_can_be_made_longer_and_cut_short(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily", until=at("01 08:45"))
    await harness.engine.pause("daily", until=at("01 12:00"))
    await harness.reach("01 09:10")
    await harness.engine.resume("daily")
    await harness.reach("01 09:30")
    assert await harness.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", "01 09:30 ran"]


async def test_a_pause_ended_while_the_routine_was_disabled_makes_no_slot_due(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily", until=at("01 08:45"))
    await harness.reload(routine(trigger=HALF_HOURLY, enabled=False))
    await harness.reach("01 10:05")
    await harness.reload(routine(trigger=HALF_HOURLY))
    await harness.reach("01 10:30")
    assert await harness.rows() == ["01 10:30 ran"]


async def test_a_clock_set_back_into_an_ended_pause_does_not_pause_again(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY))
    await harness.engine.pause("daily", until=at("01 08:45"))
    await harness.reach("01 09:00")
    await harness.finish(*harness.submitted_runs)
    await harness.set_clock("01 08:40")
    await harness.reach("01 09:30")
    assert harness.starts == ["daily 01 09:00", "daily 01 09:30"]


# --- failing


async def test_the_backoff_of_a_failing_routine_doubles(harness: EngineHarness) -> None:
    await harness.boot(
        routine(trigger=MINUTELY, run={"retry": {"backoff": "1m", "max": "4m", "pause_after": 0}})
    )
    minutes = []
    for minute in range(1, 20):
        await harness.reach(f"01 08:{minute:02}")
        harness.time.tick(timedelta(seconds=5))
        minutes += [run.slot.minute for run in await fail(harness)]
    assert minutes == [1, 3, 6, 11, 16]
    assert "01 08:04 to 01 08:05, 2 skipped not_before" in await harness.rows()
    skipped = [row for row in await harness.journal.slots.find("daily") if row.reason]
    assert {row.rule for row in skipped} == {'backoff = "1m", doubling up to max = "4m"'}


async def test_one_success_ends_the_backoff(harness: EngineHarness) -> None:
    await harness.boot(
        routine(trigger=MINUTELY, run={"retry": {"backoff": "1m", "pause_after": 3}})
    )
    for minute in (1, 3):
        await harness.reach(f"01 08:{minute:02}")
        await fail(harness)
    await harness.reach("01 08:06")
    await succeed(harness)
    await harness.reach("01 08:07")
    await succeed(harness)
    assert harness.starts[-1] == "daily 01 08:07"
    await harness.reach("01 08:08")
    await fail(harness)
    assert not harness.engine.states["daily"].paused, "the row of failures began anew"


async def test_a_repeatedly_failing_routine_is_paused_with_the_reason(
    harness: EngineHarness, capsys: pytest.CaptureFixture
) -> None:
    structlog.reset_defaults()  # whatever another test has set
    await harness.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 3}}))
    for half in ("08:30", "09:00", "09:30"):
        await harness.reach(f"01 {half}")
        await fail(harness, detail="the key was refused")
    state = harness.engine.states["daily"]
    assert (state.paused, state.paused_until) == (True, None)
    assert state.paused_why == "3 runs in a row failed, the last one: the key was refused"
    paused_lines = [
        line for line in capsys.readouterr().out.splitlines() if "routine.paused" in line
    ]
    assert len(paused_lines) == 1
    assert "warning" in paused_lines[0]
    await harness.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 3}}))
    await harness.reach("01 10:10")
    assert harness.engine.states["daily"].paused_why == state.paused_why, (
        "a restart forgives nothing"
    )
    assert (await harness.rows())[-1] == "01 10:00 skipped paused"
    assert (await harness.journal.slots.find("daily"))[0].rule == state.paused_why
    await harness.engine.resume("daily")
    state = harness.engine.states["daily"]
    assert (state.paused, state.paused_why) == (False, None)
    await harness.reach("01 10:30")
    await fail(harness)
    assert not harness.engine.states["daily"].paused, "what was before is forgiven"


async def test_a_kill_before_the_pause_for_failures_pauses_the_routine_at_the_next_start(
    harness: EngineHarness,
) -> None:
    failing = routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 1}})
    await harness.boot(failing)
    await harness.reach("01 08:30")
    (run,) = harness.submitted_runs
    claimed_run = await harness.journal.runs.claim(run.id, owner="test")
    await harness.journal.runs.end(
        claimed_run.to(Status.TIMED_OUT, ended=datetime.now(UTC), detail="too slow")
    )
    await harness.boot(failing)
    assert (
        harness.engine.states["daily"].paused_why
        == "1 runs in a row failed, the last one: too slow"
    )


async def test_failed_manual_runs_cause_neither_backoff_nor_pause(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 2}}))
    for _ in range(4):
        await harness.engine.run_now("daily")
        await fail(harness)
    assert not harness.engine.states["daily"].paused
    await harness.reach("01 08:30")
    assert harness.starts[-1] == "daily 01 08:30"


async def test_a_manual_run_ignores_backoff_and_pause(harness: EngineHarness) -> None:
    await harness.boot(
        routine(trigger=HALF_HOURLY, run={"retry": {"backoff": "10m", "pause_after": 1}})
    )
    await harness.reach("01 08:30")
    await fail(harness)
    assert (await harness.engine.run_now("daily")).trigger == "manual"


async def test_a_failure_recorded_in_2031_causes_no_backoff_today(harness: EngineHarness) -> None:
    await harness.reach("2031-05-05T08:00")
    await harness.boot(
        routine(trigger=HALF_HOURLY, run={"retry": {"backoff": "10m", "pause_after": 0}})
    )
    await harness.reach("2031-05-05T08:30")
    await fail(harness)
    await harness.set_clock("01 08:00")
    await harness.reach("01 08:30")
    assert harness.starts[-1] == "daily 01 08:30"


async def test_cancelled_and_skipped_runs_are_no_failures(harness: EngineHarness) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 1}}))
    await harness.reach("01 08:30")
    (run,) = harness.submitted_runs
    claimed_run = await harness.journal.runs.claim(run.id, owner="test")
    await harness.engine.record_end(
        await harness.journal.runs.end(claimed_run.to(Status.SKIPPED, ended=datetime.now(UTC)))
    )
    await harness.reach("01 09:00")
    await harness.engine.record_end(
        await harness.journal.runs.request_cancel(harness.submitted_runs[-1].id)
    )
    assert not harness.engine.states["daily"].paused


# --- apart


async def test_late_runs_after_a_downtime_start_seconds_apart(harness: EngineHarness) -> None:
    crowd = [routine(f"r{number:02}") for number in range(50)]
    await harness.boot(*crowd)
    await harness.crash()
    await harness.reach("01 13:00")
    await harness.boot(*crowd)
    waits = sorted(
        (run.not_before or at("01 13:00")) - at("01 13:00") for run in harness.submitted_runs
    )
    assert waits[:4] == [timedelta(seconds=3 * number) for number in range(4)]
    assert waits[-1] == MAX_LATE_START_DELAY
    assert await harness.journal.runs.claim(harness.submitted_runs[1].id, owner="early") is None


async def test_the_first_late_run_of_each_downtime_starts_at_once_and_is_logged_as_late(
    harness: EngineHarness,
) -> None:
    daily = routine(trigger={"cron": "30 8 * * *"})
    for time in ("01 13:00", "02 13:00"):
        await harness.boot(daily)
        await harness.crash()
        await harness.reach(time)
        with structlog.testing.capture_logs() as lines:
            await harness.boot(daily)
        assert harness.submitted_runs[-1].not_before is None
        late = [line for line in lines if line["event"].startswith("slot.")]
        assert [line["event"] for line in late] == ["slot.caught_up"]
        await harness.finish(harness.submitted_runs[-1])
    await harness.reach("03 08:00")
    with structlog.testing.capture_logs() as lines:
        await harness.reach("03 08:30")
    assert len(harness.submitted_runs) == 3
    assert not [line for line in lines if line["event"].startswith("slot.")]


async def test_the_first_late_run_after_each_sleep_of_the_machine_starts_at_once(
    harness: EngineHarness,
) -> None:
    crowd = [routine(f"r{number}", trigger={"cron": "30 8 * * *"}) for number in range(3)]
    await harness.boot(*crowd)
    for woken in ("01 13:00", "02 13:00"):
        harness.submitted_runs.clear()
        await harness.set_clock(woken)
        waits = [run.not_before and run.not_before - at(woken) for run in harness.submitted_runs]
        assert waits == [None, timedelta(seconds=3), timedelta(seconds=6)]
        harness.time.tick(timedelta(seconds=6))
        await harness.finish(*harness.submitted_runs)


async def test_runs_on_time_do_not_wait_for_each_other(harness: EngineHarness) -> None:
    await harness.boot(*(routine(f"r{number}") for number in range(5)))
    await harness.reach("01 09:00")
    assert [run.not_before for run in harness.submitted_runs] == [None] * 5


# --- the numbers

laws = scaled_settings(100)
spans = st.timedeltas(timedelta(seconds=1), timedelta(days=365))


@laws
@given(st.integers(1, 1000), spans, spans)
def test_the_backoff_doubles_up_to_its_limit(
    failures: int, first: timedelta, most: timedelta
) -> None:
    delay = backoff_delay(failures, first, most)
    assert min(first, most) <= delay <= most
    following = backoff_delay(failures + 1, first, most)
    assert following == min(2 * delay, most)


@laws
@given(st.integers(1, 50), spans, spans, st.text(), st.none() | st.floats(0, 1e6))
def test_retry_delay_is_at_least_the_retry_after_and_else_random(
    attempt: int, first: timedelta, most: timedelta, lot: str, retry_after: float | None
) -> None:
    wait = retry_delay(attempt, first, most, seed=lot, retry_after=retry_after)
    least = min(timedelta(seconds=retry_after or 0), timedelta(days=1))
    assert least <= wait <= max(least, backoff_delay(attempt, first, most))
    assert wait == retry_delay(attempt, first, most, seed=lot, retry_after=retry_after)


def test_retry_delays_spread_over_the_whole_backoff() -> None:
    minute = timedelta(minutes=1)
    waits = sorted(
        retry_delay(1, minute, minute, seed=f"run {n}", retry_after=None) for n in range(1000)
    )
    assert waits[0] < timedelta(seconds=2)
    assert waits[-1] > timedelta(seconds=58)
    assert timedelta(seconds=27) < waits[500] < timedelta(seconds=33)


def test_delay_of_late_starts_has_an_upper_bound() -> None:
    assert [late_start_delay(n).total_seconds() for n in (0, 1, 2, 39, 40, 10_000)] == [
        0,
        3,
        6,
        117,
        120,
        120,
    ]


# --- on the real process


@pytest.mark.slow
async def test_a_failing_routine_is_paused_shown_and_resumed(home: Home) -> None:
    home.routine("broken", BROKEN)
    fails = {"error": 401, "message": "no", "repeat": 2}
    async with Vendor([fails, {"text": "well again", "repeat": 1000}]) as vendor:
        settings = f'kind = "open_source"\nmodel = "m"\nbase_url = "{vendor.url}/v1"'
        home.write("config.toml", f'provider = "local"\n[providers.local]\n{settings}\n')
        await home.start()
        await home.wait_for_log("routine.paused")
        output = await home.agentctl("list")
    assert "broken is paused: 2 runs in a row failed, the last one: " in output.out
    assert "until it is resumed: 2 runs in a row failed" in (await home.agentctl("status")).out
    warnings = await home.agentctl("logs", "--level", "warning")
    assert warnings.out.count("routine.paused") == 1
    assert (await home.agentctl("resume", "broken")).out.startswith("broken goes on; next: ")
    assert "is paused" not in (await home.agentctl("show", "broken")).out


BROKEN = """
[trigger]
every = "1s"
[run]
prompt = "x"
[run.retry]
attempts = 1
backoff = "1s"
pause_after = 2
"""
