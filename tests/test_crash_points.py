"""A crash before or after any commit loses nothing and repeats no side effect: deaths by the
thousand, in seconds.

Runs of all kinds of steps are lived over the real journal on SQLite files (see `crash/`), each once
undisturbed. What kill -9 would have left at each moment of that life is where another life begins,
and some moments of that one again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sqlite3
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import count, pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import pytest
import structlog
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from daemon.models import Run, Status
from tests.crash.checks import Outcome, check, interruptible, outcome
from tests.crash.moments import Moment, ScenarioFolders, life, overtaken
from tests.crash.process import SLOT, scenario_in, settle
from tests.crash.scenario import AGAIN, ONCE, REFUSED, SUBAGENT, CrashScenario, Script, Turn
from tests.properties import combinations_of, quick_share, scaled_settings

T = TypeVar("T")


AGAIN_SHARE = quick_share()
"""How often a life after a death ends by another one."""


class Crashes:
    """Lives scripts through, and dies at every moment."""

    def __init__(self, runner: asyncio.Runner, folders: ScenarioFolders) -> None:
        self._runner, self._folders = runner, folders
        self.deaths = self.pauses = 0

    def live(self, scenario: CrashScenario, **how) -> tuple[Run, list[Moment]]:
        return self._now(life(scenario, self._folders.settings, **how))

    def live_undisturbed(self, script: Script, **how) -> tuple[Outcome, list[Moment]]:
        """Return what a run comes to that nothing happens to, and the moments of its life."""
        scenario = scenario_in(self._folders.new(), self._folders.settings, script)
        if script.routine == "gated":  # it compares with the run before
            self.live(scenario, slot=SLOT - timedelta(days=1))
            scenario.messages.clear()
            scenario.start_counts.clear()
        run, moments = self.live(scenario, is_watched=lambda number: True, **how)
        assert run.status == script.comes_to, run.detail
        expected = outcome(scenario, run)
        reports = run.status in (Status.SUCCEEDED, Status.FAILED)
        assert [target for target, _ in expected.deliveries] == ["alpha", "beta"] * reports
        check(scenario, run, expected, deaths=0, interrupted_calls=set())
        self._forget(scenario)
        return expected, moments

    def die_at_each_moment(
        self, script: Script, *, lot: random.Random, rides: bool = True, again: float = AGAIN_SHARE
    ) -> None:
        """Die at every moment of a run, and then at one of the life after it, as often as `again`
        says.
        """
        expected, moments = self.live_undisturbed(script, rides=rides)
        last = moments[-1].write
        for moment in moments:
            further = (
                lot.randrange(max(last - moment.write, 1)) + 3 if lot.random() < again else None
            )
            for later in self.after(moment, expected, further):
                self.after(later, expected, deaths=[moment])

    def overtaken(self, script: Script, *, lot: random.Random) -> None:
        """Stop a process before each of its commits, and let it go on when another has taken
        over.
        """
        expected, _ = self.live_undisturbed(script)
        for stops_at in count():
            wakes_at = lot.choice([2, 3, 4, lot.randrange(5, 15)])
            scenario = scenario_in(self._folders.new(), self._folders.settings, script)
            where = f"stopped before write {stops_at}, woke at {wakes_at} of the other"
            with self._annotate(scenario, where):
                run = self._now(
                    overtaken(
                        scenario, self._folders.settings, stops_at=stops_at, wakes_at=wakes_at
                    )
                )
                if run is None:
                    break
                self.pauses += 1
                check(scenario, run, expected, deaths=2)

    def live_harmed(self, script: Script, body: bytes) -> Run:
        """Live on after a death that has left one step as it should not be, and return what becomes
        of the run.
        """
        _, moments = self.live_undisturbed(script)
        moment_of_start = next(moment for moment in moments if moment.scenario.start_counts[1])
        scenario = self._folders.after(moment_of_start)
        with (
            self._annotate(scenario, "harmed"),
            closing(sqlite3.connect(scenario.file)) as connection,
            connection,
        ):
            connection.execute("UPDATE step SET body = ? WHERE kind = 'llm'", (body,))
            connection.commit()
            run, _ = self.live(scenario)
        return run

    def after(
        self,
        moment: Moment,
        expected: Outcome,
        further: int | None = None,
        *,
        deaths: Sequence[Moment] = (),
    ) -> list[Moment]:
        """Live on after a death; return what is left of that life at its commit `further`."""
        deaths = [*deaths, moment]
        self.deaths += 1
        scenario = self._folders.after(moment)
        with self._annotate(scenario, f"died {', then '.join(crash.where for crash in deaths)}"):
            under_way = interruptible(scenario)
            run, later = self.live(scenario, is_watched=None if further is None else further.__eq__)
            check(
                scenario,
                run,
                expected,
                deaths=len(deaths),
                interrupted_calls=under_way | moment.interrupted_calls,
            )
        for later_moment in later:
            later_moment.interrupted_calls = under_way | moment.interrupted_calls
        return list(later)

    @contextmanager
    def _annotate(self, scenario: CrashScenario, where: str) -> Iterator[None]:
        """Say in which world something was wrong, and forget it."""
        try:
            yield
        except BaseException as error:
            error.add_note(f"{scenario.script}\n{where}")
            raise
        finally:
            self._forget(scenario)

    def _forget(self, scenario: CrashScenario) -> None:
        scenario.close()
        shutil.rmtree(scenario.folder)

    def _now(self, work: Coroutine[Any, Any, T]) -> T:
        # not by the runner: what it does about Ctrl-C takes as long as a life
        return self._runner.get_loop().run_until_complete(work)


@pytest.fixture(scope="module")
def crashes() -> Iterator[Crashes]:
    before = structlog.get_config()
    # thousands of lives have much to say
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(prefix="crash-", dir=memory if memory.is_dir() else None))
    with asyncio.Runner() as runner:
        yield Crashes(runner, ScenarioFolders(folder, runner.run(settle(folder))))
    structlog.configure(**before)
    shutil.rmtree(folder)


RICH = Script(
    [("look", "look", "act"), ("act", "sign", "redo"), ("subagent", "tidy")],
    busy=[(1, 4)],
    message_turns=[1],
)
"""A script with each kind of call in it, and neighbours of each kind."""


def turns(names: str, most: int = 3) -> st.SearchStrategy[list[Turn]]:
    turn = st.lists(st.sampled_from(names.split()), min_size=1, max_size=3).map(tuple)
    return st.lists(turn, min_size=1, max_size=most)


pytestmark = pytest.mark.timeout(900)
CALLS = (*ONCE, *AGAIN, *REFUSED, SUBAGENT)
lots = st.integers(0, 2**32).map(random.Random)
"""At which moment the life after a death ends again."""


def scripts(max_examples: int) -> settings:
    """Return how examples are made: each is a run that dies at every moment, so there are few of
    them, and what makes them simpler would take long.
    """
    return settings(
        scaled_settings(max_examples, fewest=2),
        database=None,
        phases=[Phase.explicit, Phase.generate],
    )


@scripts(6)
@given(turns=turns("act tidy break redo look"), rides=st.booleans(), lot=lots)
def test_no_changing_call_starts_twice_after_a_crash(crashes, turns, rides, lot):
    crashes.die_at_each_moment(Script(turns), lot=lot, rides=rides)


@scripts(5)
@given(turns=turns("sign sign act look", 2), refuses=st.booleans(), rides=st.booleans(), lot=lots)
def test_an_approved_call_is_asked_and_run_once_despite_crashes(
    crashes, turns, refuses, rides, lot
):
    crashes.die_at_each_moment(Script(turns, refuses=refuses), lot=lot, rides=rides)


@scripts(4)
@given(turns=turns("subagent subagent act", 2), rides=st.booleans(), lot=lots)
def test_sub_agents_continue_after_a_crash(crashes, turns, rides, lot):
    crashes.die_at_each_moment(Script(turns), lot=lot, rides=rides)


@scripts(6)
@given(
    turns=turns("act redo look"),
    busy=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=2),
    down=st.none() | st.integers(0, 2),
    rides=st.booleans(),
    lot=lots,
)
def test_a_crash_repeats_no_request_to_a_failing_vendor(crashes, turns, busy, down, rides, lot):
    script = Script(turns, busy=busy, down=down, spare=down is not None)
    crashes.die_at_each_moment(script, lot=lot, rides=rides)


@scripts(6)
@given(
    turns=turns("act look", 2),
    wish=st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True) | st.integers(0, 1),
    rides=st.booleans(),
    lot=lots,
)
def test_user_messages_and_cancellations_take_effect_once_despite_crashes(
    crashes, turns, wish, rides, lot
):
    script = (
        Script(turns, cancel_turn=wish)
        if isinstance(wish, int)
        else Script(turns, message_turns=wish)
    )
    crashes.die_at_each_moment(script, lot=lot, rides=rides)


@scripts(6)
@given(
    turns=turns("bar ghost act", 2),
    speechless=st.booleans(),
    end=st.sampled_from(["report", "silence", "failure", "text"]),
    rides=st.booleans(),
    lot=lots,
)
def test_a_run_ends_the_same_after_a_crash(crashes, turns, speechless, end, rides, lot):
    crashes.die_at_each_moment(
        Script([*turns, ()] if speechless else turns, end=end), lot=lot, rides=rides
    )


@combinations_of(rides=[True, False], routine=["collect", "gated"])
def test_facts_and_gates_are_the_same_after_a_crash(crashes, routine, rides):
    crashes.die_at_each_moment(Script(routine=routine), lot=random.Random(routine), rides=rides)


@pytest.mark.parametrize("rides", [True, False])
def test_a_run_recovers_from_a_crash_before_during_and_after_each_commit(crashes, rides):
    expected, moments = crashes.live_undisturbed(RICH, rides=rides)
    assert len(moments) > 30
    for moment in moments:
        crashes.after(moment, expected)
    lot, torn_count = random.Random(0), 0
    for before, after in pairwise(moments):
        if half := before.tear(after, lot.random()):
            crashes.after(half, expected)
            torn_count += 1
    assert torn_count > 15


@scripts(4)
@given(
    turns=turns("act act redo look sign subagent", 2), busy=st.none() | st.integers(0, 1), lot=lots
)
@example(turns=[("act",)], busy=0, lot=random.Random(1))
@example(turns=[("act",)], busy=1, lot=random.Random(2))
def test_a_paused_process_whose_run_was_taken_over_writes_nothing_more(crashes, turns, busy, lot):
    crashes.overtaken(Script(turns, busy=() if busy is None else [(busy, 4)]), lot=lot)


@pytest.mark.parametrize("body", [b'{"a":', b"x\x9c", b"\xff", b"[]", b"{}"])
def test_a_run_with_a_damaged_step_fails(crashes, body):
    run = crashes.live_harmed(Script([("act",)]), body)
    assert run.status is Status.FAILED
    assert run.taint  # nobody knows any more what it has read
    if body not in (b"[]", b"{}"):  # these can be read, but say nothing
        assert "step 4 (llm) of the run is damaged and cannot be read" in str(run.detail)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_runs_recover_from_thousands_of_crashes(crashes, request):
    lot, before = random.Random(time.time_ns()), crashes.deaths
    end = time.monotonic() + request.config.getoption("--soak-seconds")
    while time.monotonic() < end:
        turns = [tuple(lot.choices(CALLS, k=lot.randint(0, 3))) for _ in range(lot.randint(0, 3))]
        end_by = lot.choice(["text", "text", "report", "silence", "failure"])
        # what is said to a run that falls silent, or has said that it is done, makes another one of
        # it
        talks = all(turns) and end_by == "text"
        crashes.die_at_each_moment(
            Script(
                [*turns],
                busy=[(lot.randint(0, 3), lot.randint(1, 4))],
                down=lot.choice([None, 0, 1]),
                spare=True,
                message_turns=lot.sample(range(3), k=lot.randint(0, 1)) if talks else (),
                refuses=lot.random() < 0.2,
                end=end_by,
            ),
            lot=lot,
            rides=lot.random() < 0.5,
        )
    deaths = crashes.deaths - before
    assert deaths > 100
    print(f"\n{deaths} deaths")
