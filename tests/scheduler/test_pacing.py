"""A routine with a pace comes again when its last run has asked for, once only, whatever dies."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from daemon.agent.transcript import call_step, result_step
from daemon.definitions.routines.routine import Routine
from daemon.models import FunctionCall, Run, Status, Step, ToolResult
from daemon.scheduler.pacing import wait_after
from tests.engine_harness import EngineHarness, at, routine

PACE = {"pace": "5m..6h"}
MINUTES = timedelta(minutes=1)


def make_paced_routine(name: str = "watch", **more: Any) -> Any:
    trigger = {**PACE, **more.pop("trigger", {})}
    return routine(name, trigger, run={"mode": "agent", **more.pop("run", {})}, **more)


WATCH = make_paced_routine()  # made here: pydantic builds no model while the time is frozen


class PacedHarness(EngineHarness):
    """Runs here ask for a wait before they end."""

    async def end(
        self, run: Run, next_start: str | None = None, *, status: Status = Status.SUCCEEDED
    ) -> None:
        """Live a run to its end; `next_start` is the `next` of its call of `finish`."""
        claimed_run = await self.journal.runs.claim(run.id, owner="test")
        assert claimed_run
        if next_start is not None:
            call = FunctionCall(name="finish", arguments={"next": next_start}, id="a")
            await self.journal.runs.append(
                claimed_run,
                call_step("1.0", call, 1, None, repeatable=True),
                result_step("1.0", call, 1, ToolResult(ok=True, text="ended"), 0.0),
            )
        ended_run = claimed_run.to(status, ended=datetime.now(UTC))
        await self.journal.runs.end(ended_run)
        await self.engine.record_end(ended_run)
        await self.quiet()

    @property
    def starts(self) -> list[str]:
        return [f"{run.slot:%d %H:%M}" for run in self.submitted_runs]


@pytest.fixture
def time() -> Iterator[FrozenDateTimeFactory]:
    with freeze_time("2026-01-01 08:00", real_asyncio=True) as frozen_time:
        yield frozen_time


@pytest.fixture
async def harness(tmp_path: Path, time: FrozenDateTimeFactory) -> AsyncIterator[PacedHarness]:
    harness = PacedHarness(tmp_path, time)
    yield harness
    await harness.crash()


async def test_the_first_run_comes_after_the_shortest_wait(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    assert harness.engine.next_slots("watch") == [at("01 08:05")]
    await harness.reach("01 08:04")
    assert harness.submitted_runs == []
    await harness.reach("01 12:00")
    (run,) = harness.submitted_runs
    assert (f"{run.slot:%H:%M}", run.trigger) == ("08:05", "pace")
    assert harness.engine.next_slots("watch") == [], "the run under way says when the next one is"


@pytest.mark.parametrize(
    ("next_start", "status", "start"),
    [
        ("2h", Status.SUCCEEDED, "10:10"),
        ("90 minutes", Status.SUCCEEDED, "09:40"),
        ("1m", Status.SUCCEEDED, "08:15"),
        ("3d", Status.SUCCEEDED, "14:10"),
        (None, Status.SUCCEEDED, "14:10"),
        ("soon", Status.SUCCEEDED, "14:10"),
        ("2h", Status.FAILED, "14:10"),
        ("2h", Status.TIMED_OUT, "14:10"),
    ],
)
async def test_the_next_run_comes_when_the_last_one_has_asked_for_within_the_bounds(
    harness: PacedHarness, next_start: str | None, status: Status, start: str
) -> None:
    await harness.boot(make_paced_routine(run={"retry": {"pause_after": 0}}))
    await harness.reach("01 08:10")
    await harness.end(harness.submitted_runs[0], next_start, status=status)
    assert [f"{slot:%H:%M}" for slot in harness.engine.next_slots("watch")] == [start]
    await harness.reach("01 23:00")
    assert harness.starts == ["01 08:05", f"01 {start}"]


def test_the_first_finish_of_the_last_answer_counts() -> None:
    def steps_of(calls: list[tuple[int, str, bool]]) -> list[Step]:
        """Return the steps of calls of `finish`: iteration, `next`, whether it was taken."""
        steps = []
        for number, (iteration, wait, ok) in enumerate(calls):
            call_id = f"{iteration}.{number}"
            call = FunctionCall(name="finish", arguments={"next": wait}, id="a")
            steps.append(call_step(call_id, call, iteration, None, repeatable=True))
            result = ToolResult(ok=ok, text="ended")
            steps.append(result_step(call_id, call, iteration, result, 0.0))
        return steps

    now = datetime.now(UTC)
    fields: dict[str, Any] = {"slot": now, "created": now, "ended": now}
    run = Run(id="1", routine="a", definition="", trigger="pace", status=Status.SUCCEEDED, **fields)
    for calls, minutes in (
        ([(2, "20m", True), (2, "2h", True)], 20),
        ([(2, "soon", False), (2, "2h", True)], 120),
        ([(2, "20m", True), (3, "1h", True), (3, "2h", True)], 60),  # the report was repaired
        ([(2, "20m", True), (3, "", True)], 360),
        ([], 360),
    ):
        assert wait_after(run, steps_of(calls), (5 * MINUTES, 360 * MINUTES)) == minutes * MINUTES


async def test_a_run_by_hand_says_when_to_come_again_too(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    by_hand = await harness.engine.run_now("watch")
    await harness.reach("01 09:00")
    assert harness.submitted_runs == [by_hand], "a run is under way"
    await harness.end(by_hand, "30m")
    await harness.reach("01 09:40")
    assert harness.starts == ["01 08:00", "01 09:30"]


async def test_a_restart_changes_nothing(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.reach("01 09:00")
    await harness.boot(WATCH)
    assert harness.engine.next_slots("watch") == [at("01 10:05")]
    await harness.reach("01 10:06")
    await harness.boot(WATCH)
    assert harness.starts == ["01 08:05", "01 10:05"], "started once"
    assert harness.engine.next_slots("watch") == []


async def test_what_came_while_the_daemon_was_down_starts_when_it_starts(
    harness: PacedHarness,
) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.crash()
    harness.time.move_to(at("03 12:00"))
    await harness.boot(WATCH)
    assert harness.starts == ["01 08:05", "01 10:05"]
    await harness.boot(WATCH)
    assert len(harness.submitted_runs) == 2


@pytest.mark.parametrize("catch_up", ["none", "1h"])
async def test_without_catch_up_it_comes_after_the_longest_wait_instead(
    harness: PacedHarness, catch_up: str
) -> None:
    watch = make_paced_routine(trigger={"catch_up": catch_up})
    await harness.boot(watch)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.crash()
    harness.time.move_to(at("03 12:00"))
    await harness.boot(watch)
    assert len(harness.submitted_runs) == 1
    assert harness.engine.next_slots("watch") == [at("03 18:00")]
    await harness.reach("03 18:01")
    assert harness.starts == ["01 08:05", "03 18:00"]


async def test_a_pause_puts_the_start_off(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.engine.pause("watch", until=at("01 15:00"))
    await harness.reach("01 14:59")
    assert len(harness.submitted_runs) == 1
    await harness.reach("01 15:01")
    assert harness.starts == ["01 08:05", "01 10:05"]
    await harness.end(harness.submitted_runs[1], "1h")
    await harness.engine.pause("watch")
    await harness.reach("02 09:00")
    assert len(harness.submitted_runs) == 2
    await harness.engine.resume("watch")
    await harness.quiet()
    assert len(harness.submitted_runs) == 3


async def test_a_resume_before_its_time_changes_nothing(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.engine.pause("watch")
    await harness.reach("01 09:00")
    await harness.engine.resume("watch")
    await harness.quiet()
    assert harness.engine.next_slots("watch") == [at("01 10:05")]


async def test_outside_of_its_hours_it_waits_for_them(harness: PacedHarness) -> None:
    await harness.boot(make_paced_routine(trigger={"active_hours": "08:00-20:00"}))
    await harness.reach("01 19:00")
    await harness.end(harness.submitted_runs[0], "4h")
    await harness.reach("02 07:59")
    assert len(harness.submitted_runs) == 1
    await harness.reach("02 08:00")
    assert len(harness.submitted_runs) == 2


async def test_after_a_failure_the_backoff_counts_too(harness: PacedHarness) -> None:
    await harness.boot(
        routine(
            "watch",
            {"pace": "1s..2s"},
            run={"mode": "agent", "retry": {"backoff": "1m", "max": "1h"}},
        )
    )
    await harness.reach("01 08:00:01")
    for _ in range(5):
        await harness.end(harness.submitted_runs[-1], status=Status.FAILED)
        before = datetime.now(UTC)
        while harness.submitted_runs[-1].status is not None and len(harness.starts) <= _ + 1:
            assert harness.next_start
            harness.time.move_to(harness.next_start)
            await harness.ring()
        assert datetime.now(UTC) - before >= timedelta(seconds=2)
    assert datetime.now(UTC) - at("01 08:00") > timedelta(minutes=1)


async def test_a_clock_that_is_set_back_delays_by_the_longest_wait_at_most(
    harness: PacedHarness,
) -> None:
    await harness.boot(WATCH)
    await harness.set_clock("05 08:00")
    assert harness.starts == ["01 08:05"]
    await harness.end(harness.submitted_runs[0], "10m")
    await harness.set_clock("01 09:00")
    assert harness.engine.next_slots("watch") == [at("01 15:00")]
    await harness.set_clock("01 09:30")
    assert harness.engine.next_slots("watch") == [at("01 15:00")], "not put off again and again"
    await harness.reach("01 15:01")
    assert harness.starts == ["01 08:05", "01 15:00"]


async def test_a_clock_that_is_set_forward_starts_what_is_due(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.set_clock("04 00:00")
    assert harness.starts == ["01 08:05", "01 10:05"]


async def test_other_bounds_hold_for_what_was_asked_before(harness: PacedHarness) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    await harness.reload(routine("watch", {"pace": "5m..1h"}, run={"mode": "agent"}))
    assert harness.engine.next_slots("watch") == [at("01 09:05")]
    await harness.reload()
    await harness.reach("02 09:00")
    assert len(harness.submitted_runs) == 1, "it was removed"


async def test_a_schedule_beside_the_pace_starts_runs_as_well(harness: PacedHarness) -> None:
    await harness.boot(routine("watch", [PACE, {"cron": "0 9 * * *"}], run={"mode": "agent"}))
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")
    assert harness.engine.next_slots("watch", 2) == [at("01 09:00"), at("01 10:05")]
    await harness.reach("01 09:00")
    await harness.end(harness.submitted_runs[1], "20m")
    await harness.reach("01 09:30")
    assert [(run.trigger, f"{run.slot:%H:%M}") for run in harness.submitted_runs] == [
        ("pace", "08:05"),
        ("cron", "09:00"),
        ("pace", "09:20"),
    ]


async def test_a_run_that_is_not_kept_any_more_does_not_end_the_pace(
    harness: PacedHarness,
) -> None:
    await harness.boot(WATCH)
    await harness.reach("01 08:05")
    await harness.end(harness.submitted_runs[0], "2h")

    def delete(connection: Any) -> None:
        connection.execute("DELETE FROM step")
        connection.execute("UPDATE slot SET run_id = NULL")
        connection.execute("DELETE FROM run")

    await harness.crash()
    await harness.boot(WATCH)
    await harness.journal._db.write(delete)
    await harness.boot(WATCH)
    assert len(harness.submitted_runs) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_each_start_is_where_the_end_before_and_the_wish_put_it(
    harness: PacedHarness, seed: int
) -> None:
    """Random wishes, failures, crashes and waits, against the one sentence that is promised."""
    dice = random.Random(seed)
    await harness.boot(
        make_paced_routine(run={"retry": {"pause_after": 0, "backoff": "1s", "max": "1s"}})
    )
    expected, now = at("01 08:05"), at("01 08:00")
    for number in range(1, 25):
        while len(harness.submitted_runs) < number:
            assert datetime.now(UTC) < expected
            if dice.random() < 0.3:
                now += timedelta(seconds=dice.randrange(round((expected - now).total_seconds())))
                harness.time.move_to(now)
                await harness.boot(*harness.engine.routines.values())
            if dice.random() < 0.2 and expected - now > MINUTES:  # it comes while down
                await harness.crash()
                harness.time.move_to(expected + timedelta(seconds=dice.randint(0, 86_400)))
                await harness.boot(
                    make_paced_routine(
                        run={"retry": {"pause_after": 0, "backoff": "1s", "max": "1s"}}
                    )
                )
            else:
                await harness.reach(f"{expected:%Y-%m-%d %H:%M:%S}")
        assert harness.submitted_runs[-1].slot == expected
        now = datetime.now(UTC) + timedelta(seconds=dice.randint(1, 7200))
        harness.time.move_to(now)
        minutes = dice.choice([None, *range(1, 600, 7)])
        status = dice.choice([Status.SUCCEEDED, Status.SUCCEEDED, Status.FAILED])
        await harness.end(
            harness.submitted_runs[-1], None if minutes is None else f"{minutes}m", status=status
        )
        if minutes is None or status is Status.FAILED:
            minutes = 360
        expected = now + min(max(minutes, 5), 360) * MINUTES
    events = [run.event for run in harness.submitted_runs]
    assert len(set(events)) == len(events)


async def test_a_start_that_the_budget_holds_comes_when_the_day_of_the_config_is_over(
    harness: PacedHarness,
) -> None:
    await harness.boot(make_paced_routine(trigger={"timezone": "Asia/Tokyo"}))

    async def find_used_up_cap(_routine: Routine) -> str | None:
        return "[budget] day = 1" if datetime.now(UTC) < at("02 00:00") else None

    harness.engine._ledger.find_used_up_cap = find_used_up_cap
    await harness.reach("02 20:00")
    assert harness.starts == ["01 08:05"]
    assert harness.submitted_runs[0].created == at("02 00:00")
