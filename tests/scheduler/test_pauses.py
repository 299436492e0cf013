"""Routines that are held up: paused by a person, resting after failures, started apart after a
night down.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from daemon.models import Run, Status
from daemon.runs.retry import backoff_delay, retry_delay
from daemon.scheduler.slots import MAX_LATE_START_DELAY, late_start_delay
from tests.acceptance.story import Home, Vendor
from tests.clockwork import HALF_HOURLY, House, at, routine
from tests.properties import scaled_settings

MINUTELY = {"cron": "* * * * *"}


async def fail(
    house: House, *, trigger: str | None = None, detail: str = "the model is gone"
) -> list[Run]:
    """Let what is queued fail, and tell the engine as the executor does."""
    ended = []
    for run in await house.journal.active():
        taken = await house.journal.take(run.id, owner="test")
        assert taken
        run = await house.journal.end(
            taken.to(Status.FAILED, ended=datetime.now(UTC), detail=detail)
        )
        await house.engine.note_end(run)
        ended.append(run)
    return ended


async def succeed(house: House) -> None:
    for run in await house.journal.active():
        await house.finish(run)
        await house.engine.note_end(await house.journal.get(run.id))


# --- a person's pause
# ------------------------------------------------------------------------------


async def test_a_pause_until_a_moment_ends_by_itself(house: House) -> None:
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.engine.pause("daily", until=at("01 09:15"))
    await house.reach("01 09:10")
    assert house.engine.states["daily"].pausing(datetime.now(UTC))
    await house.reach("01 09:30")
    assert await house.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", "01 09:30 ran"]
    assert not house.engine.states["daily"].paused


@pytest.mark.parametrize("back", ["01 09:20", "01 09:40"])
async def test_a_pause_survives_a_restart_and_ends_while_nobody_is_there(
    house: House, back: str
) -> None:
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.engine.pause("daily", until=at("01 09:15"))
    await house.crash()
    await house.reach(back)
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.reach("01 09:45")
    expected = "01 09:30 ran" if back == "01 09:20" else "01 09:30 caught_up"
    assert await house.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", expected]


async def test_a_slot_at_the_moment_the_pause_ends_is_still_paused(house: House) -> None:
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.engine.pause("daily", until=at("01 09:00"))
    await house.reach("01 09:30")
    assert await house.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", "01 09:30 ran"]


async def test_a_pause_can_be_made_longer_and_cut_short(house: House) -> None:
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.engine.pause("daily", until=at("01 08:45"))
    await house.engine.pause("daily", until=at("01 12:00"))
    await house.reach("01 09:10")
    await house.engine.resume("daily")
    await house.reach("01 09:30")
    assert await house.rows() == ["01 08:30 to 01 09:00, 2 skipped paused", "01 09:30 ran"]


async def test_a_pause_that_ended_while_the_routine_was_turned_off_calls_no_slot_of_that_time_due(
    house: House,
) -> None:
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.engine.pause("daily", until=at("01 08:45"))
    await house.reload(routine(trigger=HALF_HOURLY, enabled=False))
    await house.reach("01 10:05")
    await house.reload(routine(trigger=HALF_HOURLY))
    await house.reach("01 10:30")
    assert await house.rows() == ["01 10:30 ran"]


async def test_the_clock_set_back_into_a_pause_that_has_ended_does_not_pause_again(
    house: House,
) -> None:
    await house.boot(routine(trigger=HALF_HOURLY))
    await house.engine.pause("daily", until=at("01 08:45"))
    await house.reach("01 09:00")
    await house.finish(*house.submitted)
    await house.set_clock("01 08:40")
    await house.reach("01 09:30")
    assert house.started == ["daily 01 09:00", "daily 01 09:30"]


# --- failing
# ---------------------------------------------------------------------------------------


async def test_a_routine_that_fails_rests_longer_each_time(house: House) -> None:
    await house.boot(
        routine(trigger=MINUTELY, run={"retry": {"backoff": "1m", "max": "4m", "pause_after": 0}})
    )
    started = []
    for minute in range(1, 20):
        await house.reach(f"01 08:{minute:02}")
        house.time.tick(timedelta(seconds=5))
        started += [run.slot.minute for run in await fail(house)]
    assert started == [1, 3, 6, 11, 16]
    assert "01 08:04 to 01 08:05, 2 skipped not_before" in await house.rows()


async def test_one_success_ends_the_resting(house: House) -> None:
    await house.boot(routine(trigger=MINUTELY, run={"retry": {"backoff": "1m", "pause_after": 3}}))
    for minute in (1, 3):
        await house.reach(f"01 08:{minute:02}")
        await fail(house)
    await house.reach("01 08:06")
    await succeed(house)
    await house.reach("01 08:07")
    await succeed(house)
    assert house.started[-1] == "daily 01 08:07"
    await house.reach("01 08:08")
    await fail(house)
    assert not house.engine.states["daily"].paused, "the row of failures began anew"


async def test_a_routine_that_keeps_failing_is_paused_and_says_why(
    house: House, capsys: pytest.CaptureFixture
) -> None:
    structlog.reset_defaults()  # whatever another test has set
    await house.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 3}}))
    for half in ("08:30", "09:00", "09:30"):
        await house.reach(f"01 {half}")
        await fail(house, detail="the key was refused")
    state = house.engine.states["daily"]
    assert (state.paused, state.paused_until) == (True, None)
    assert state.paused_why == "3 runs in a row failed, the last one: the key was refused"
    told = [line for line in capsys.readouterr().out.splitlines() if "routine.paused" in line]
    assert len(told) == 1
    assert "warning" in told[0]
    await house.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 3}}))
    await house.reach("01 10:10")
    assert house.engine.states["daily"].paused_why == state.paused_why, "a restart forgives nothing"
    assert (await house.rows())[-1] == "01 10:00 skipped paused"
    await house.engine.resume("daily")
    state = house.engine.states["daily"]
    assert (state.paused, state.paused_why) == (False, None)
    await house.reach("01 10:30")
    await fail(house)
    assert not house.engine.states["daily"].paused, "what was before is forgiven"


async def test_killed_between_the_last_failure_and_the_pause_it_is_paused_at_the_next_start(
    house: House,
) -> None:
    failing = routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 1}})
    await house.boot(failing)
    await house.reach("01 08:30")
    (run,) = house.submitted
    taken = await house.journal.take(run.id, owner="test")
    await house.journal.end(taken.to(Status.TIMED_OUT, ended=datetime.now(UTC), detail="too slow"))
    await house.boot(failing)
    assert (
        house.engine.states["daily"].paused_why == "1 runs in a row failed, the last one: too slow"
    )


async def test_a_person_who_tries_a_routine_out_gets_it_neither_rested_nor_paused(
    house: House,
) -> None:
    await house.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 2}}))
    for _ in range(4):
        await house.engine.trigger("daily")
        await fail(house)
    assert not house.engine.states["daily"].paused
    await house.reach("01 08:30")
    assert house.started[-1] == "daily 01 08:30"


async def test_by_hand_a_resting_and_a_paused_routine_still_runs(house: House) -> None:
    await house.boot(
        routine(trigger=HALF_HOURLY, run={"retry": {"backoff": "10m", "pause_after": 1}})
    )
    await house.reach("01 08:30")
    await fail(house)
    assert (await house.engine.trigger("daily")).trigger == "manual"


async def test_a_failure_of_2031_does_not_let_it_rest_until_then(house: House) -> None:
    await house.reach("2031-05-05T08:00")
    await house.boot(
        routine(trigger=HALF_HOURLY, run={"retry": {"backoff": "10m", "pause_after": 0}})
    )
    await house.reach("2031-05-05T08:30")
    await fail(house)
    await house.set_clock("01 08:00")
    await house.reach("01 08:30")
    assert house.started[-1] == "daily 01 08:30"


async def test_cancelled_and_skipped_runs_are_no_failures(house: House) -> None:
    await house.boot(routine(trigger=HALF_HOURLY, run={"retry": {"pause_after": 1}}))
    await house.reach("01 08:30")
    (run,) = house.submitted
    taken = await house.journal.take(run.id, owner="test")
    await house.engine.note_end(
        await house.journal.end(taken.to(Status.SKIPPED, ended=datetime.now(UTC)))
    )
    await house.reach("01 09:00")
    await house.engine.note_end(await house.journal.request_cancel(house.submitted[-1].id))
    assert not house.engine.states["daily"].paused


# --- apart
# -----------------------------------------------------------------------------------------


async def test_after_a_night_down_runs_start_a_few_seconds_apart(house: House) -> None:
    crowd = [routine(f"r{number:02}") for number in range(50)]
    await house.boot(*crowd)
    await house.crash()
    await house.reach("01 13:00")
    await house.boot(*crowd)
    waits = sorted((run.not_before or at("01 13:00")) - at("01 13:00") for run in house.submitted)
    assert waits[:4] == [timedelta(seconds=3 * number) for number in range(4)]
    assert waits[-1] == MAX_LATE_START_DELAY
    assert await house.journal.take(house.submitted[1].id, owner="early") is None


async def test_runs_on_time_do_not_wait_for_each_other(house: House) -> None:
    await house.boot(*(routine(f"r{number}") for number in range(5)))
    await house.reach("01 09:00")
    assert [run.not_before for run in house.submitted] == [None] * 5


# --- the numbers
# -----------------------------------------------------------------------------------

laws = scaled_settings(100)
spans = st.timedeltas(timedelta(seconds=1), timedelta(days=365))


@laws
@given(st.integers(1, 1000), spans, spans)
def test_a_rest_doubles_up_to_its_limit(failures: int, first: timedelta, most: timedelta) -> None:
    rest = backoff_delay(failures, first, most)
    assert min(first, most) <= rest <= most
    following = backoff_delay(failures + 1, first, most)
    assert following == min(2 * rest, most)


@laws
@given(st.integers(1, 50), spans, spans, st.text(), st.none() | st.floats(0, 1e6))
def test_what_is_put_off_waits_as_long_as_the_vendor_asked_and_else_by_lot(
    attempt: int, first: timedelta, most: timedelta, lot: str, asked: float | None
) -> None:
    wait = retry_delay(attempt, first, most, seed=lot, retry_after=asked)
    least = min(timedelta(seconds=asked or 0), timedelta(days=1))
    assert least <= wait <= max(least, backoff_delay(attempt, first, most))
    assert wait == retry_delay(attempt, first, most, seed=lot, retry_after=asked)


def test_lots_fall_all_over_the_back_off() -> None:
    minute = timedelta(minutes=1)
    waits = sorted(
        retry_delay(1, minute, minute, seed=f"run {n}", retry_after=None) for n in range(1000)
    )
    assert waits[0] < timedelta(seconds=2)
    assert waits[-1] > timedelta(seconds=58)
    assert timedelta(seconds=27) < waits[500] < timedelta(seconds=33)


def test_late_runs_never_wait_longer_than_there_is_sense_in() -> None:
    assert [late_start_delay(n).total_seconds() for n in (0, 1, 2, 39, 40, 10_000)] == [
        0,
        3,
        6,
        117,
        120,
        120,
    ]


# --- on the real process
# -----------------------------------------------------------------------------


async def test_a_failing_routine_is_paused_shown_and_resumed(home: Home) -> None:
    home.routine("broken", BROKEN)
    fails = {"error": 401, "message": "no", "repeat": 2}
    async with Vendor([fails, {"text": "well again", "repeat": 1000}]) as vendor:
        settings = f'kind = "open_source"\nmodel = "m"\nbase_url = "{vendor.url}/v1"'
        home.write("config.toml", f'provider = "local"\n[providers.local]\n{settings}\n')
        await home.start()
        async with asyncio.timeout(60):
            while "is paused" not in (listed := await home.agentctl("list")).out:
                pass
    assert "broken is paused: 2 runs in a row failed, the last one: " in listed.out
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
