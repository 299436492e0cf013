"""A crash before or after any commit loses nothing and repeats no side effect: deaths by the hundred in one process.

The soak draws deaths for as long as one likes: several hundred in a minute on a busy machine, thousands in ten.

Runs of all kinds of steps are lived over the real journal on SQLite files (see `mortal.py`): answers, calls that
look, change, may be repeated, wait for a person, or hand a part on to a sub-agent; messages of people, busy vendors,
memory, two deliveries. Each is lived once undisturbed, and then again with deaths at writes that were drawn or counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.agent.texts import say
from daemon.models import Run, Status
from daemon.store.rows import decode
from tests.mortal import Fate, Settings, World, life, settle, world_in

RICH = [("look", "look", "act"), ("act", "sign", "redo"), ("subagent", "act")]
"""A script with each kind of call in it, and neighbours of each kind."""
ONCE = ("act", "sign")
turns = st.lists(st.sampled_from(["act", "act", "redo", "look", "look", "sign", "subagent"]), min_size=1, max_size=3)
scripts = st.lists(turns.map(tuple), min_size=0, max_size=3)


class Place:
    """Where worlds are made, on a disk that is quick where there is one, and what an undisturbed life comes to."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(mkdtemp(prefix="crash-", dir=memory if memory.is_dir() else None))
        self.settings: Settings = asyncio.run(settle(self.folder))
        self._worlds = 0
        self.deaths = 0

    def world(self, script: Any, **more: Any) -> World:
        self._worlds += 1
        return world_in(self.folder / str(self._worlds), self.settings, script, **more)

    def live(self, world: World, *fates: Fate) -> Run:
        """Live in a world: a process for each fate, and one that comes through."""
        for fate in fates:
            ended = asyncio.run(life(world, self.settings, fate))
            self.deaths += fate.dead
            assert fate.dead or ended is not None
        ended = asyncio.run(life(world, self.settings))
        assert ended is not None
        return ended

    def undisturbed(self, script: Any, **more: Any) -> tuple[str, int, int]:
        """Return what a run reports that nothing happens to, how many pieces are remembered, and its writes."""
        world, fate = self.world(script, **more), Fate()
        run = asyncio.run(life(world, self.settings, fate))
        assert run is not None
        assert run.status is Status.SUCCEEDED, run.detail
        check(world, run, run.report, remembered(world), deaths=0)
        pieces = remembered(world)
        shutil.rmtree(world.folder)
        return run.report or "", pieces, fate.writes


@pytest.fixture(scope="module")
def place():
    before = structlog.get_config()
    # thousands of lives have much to say
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    made = Place()
    yield made
    structlog.configure(**before)
    shutil.rmtree(made.folder)


def remembered(world: World) -> int:
    return world.look("SELECT count(*) FROM memory_segment")[0][0]


def check(world: World, run: Run, report: str | None, pieces: int, *, deaths: int) -> None:
    """Check what we promise of a run that was lived to its end through so many deaths."""
    assert world.broken == []
    assert (run.status, run.report) == (Status.SUCCEEDED, report)
    results = [
        (call, decode(body))
        for call, body in world.look("SELECT call_id, body FROM step WHERE kind = 'result' ORDER BY run_id, seq")
    ]
    unknown = sum(body["text"].endswith(say("interrupted", "en")) for _, body in results)
    # sub-agents of one turn live beside each other, and each may be in the middle of a call
    assert unknown <= deaths * max([1, *(turn.count("subagent") for turn in world.script)])
    numbered = [call for turn in world.numbered for call in turn]
    once = [number for name, number in numbered if name in ONCE]
    once += [1000 * number for name, number in numbered if name == "subagent"]
    assert all(world.started[number] <= 1 for number in once), "a side effect happened twice"
    assert sum(world.started[number] == 0 for number in once) <= unknown, "a side effect got lost"
    again = [number for name, number in numbered if name not in (*ONCE, "subagent")]
    assert all(1 <= world.started[number] <= 1 + deaths for number in again)
    # no hole, no double, nothing that the row does not know of
    for id_, steps in world.look("SELECT id, steps FROM run"):
        assert [seq for (seq,) in world.look("SELECT seq FROM step WHERE run_id = ? ORDER BY seq", id_)] == list(
            range(steps)
        )
    children = sum(name == "subagent" for name, _ in numbered)
    assert world.look("SELECT count(*) FROM run") == [(1 + children,)]
    assert world.look("SELECT count(*) FROM slot WHERE event IS NULL") == [(1,)]
    assert world.look("SELECT count(*) FROM approval WHERE status = 'used'") == [
        (sum(name == "sign" for name, _ in numbered),)
    ]
    told = [decode(body) for (body,) in world.look("SELECT body FROM step WHERE kind = 'message'")]
    assert [body["text"] for body in told if body.get("source") == "told"] == [world.told] * bool(world.told)
    # at least once each, and again only where we died between sending and writing that down
    assert world.look("SELECT target, status FROM outbox ORDER BY target") == [
        ("alpha", "delivered"),
        ("beta", "delivered"),
    ]
    sent = Counter(world.sent)
    assert len(sent) == 2
    assert {text for _, _, text in sent} == {report}
    assert max(sent.values()) <= 1 + deaths
    assert remembered(world) == pieces


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    script=scripts,
    faults=st.integers(0, 4),
    told=st.sampled_from(["", "Be quick."]),
    deaths=st.lists(st.tuples(st.integers(0, 120), st.booleans()), min_size=1, max_size=8),
)
def test_whatever_a_run_does_and_whenever_it_dies_it_ends_as_if_nothing_had_happened(
    place, script, faults, told, deaths
):
    report, pieces, writes = place.undisturbed(script, faults=faults, told=told)
    world = place.world(script, faults=faults, told=told)
    fates = [Fate(number % writes, kept=kept) for number, kept in deaths]
    run = place.live(world, *fates)
    check(world, run, report, pieces, deaths=sum(fate.dead for fate in fates))
    shutil.rmtree(world.folder)


def test_a_crash_before_and_after_each_commit_of_a_run_with_all_kinds_of_steps_is_made_good(place):
    report, pieces, writes = place.undisturbed(RICH, told="Be quick.", faults=4)
    assert writes > 40
    for number in range(writes):
        for kept in (False, True):
            world = place.world(RICH, told="Be quick.", faults=4)
            fate = Fate(number, kept=kept)
            run = place.live(world, fate)
            assert fate.dead
            check(world, run, report, pieces, deaths=1)
            shutil.rmtree(world.folder)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousands_of_deaths_are_made_good(place, request):
    lot, before = random.Random(time.time_ns()), place.deaths
    end = time.monotonic() + request.config.getoption("--soak-seconds")
    report, pieces, writes = place.undisturbed(RICH, told="Be quick.", faults=1)
    while time.monotonic() < end:
        world = place.world(RICH, told="Be quick.", faults=1)
        fates = [Fate(lot.randrange(writes), kept=lot.random() < 0.5) for _ in range(lot.randint(1, 12))]
        run = place.live(world, *fates)
        check(world, run, report, pieces, deaths=sum(fate.dead for fate in fates))
        shutil.rmtree(world.folder)
    deaths = place.deaths - before
    assert deaths > 20
    print(f"\n{deaths} deaths")
