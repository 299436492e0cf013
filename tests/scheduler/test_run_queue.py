"""Runs are executed in order within limits, and stopped without losing one."""

import asyncio
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from daemon.models import Run, Status
from daemon.scheduler.run_queue import ConcurrencyGroup, LocalRunQueue
from daemon.system.clock import SystemClock
from daemon.testing import FakeClock
from tests.properties import scaled_settings

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


def run(id_, **changes):
    fields = {
        "routine": f"routine of {id_}",
        "definition": "d",
        "trigger": "manual",
        "slot": NOW,
        "created": NOW,
    }
    return Run(id=id_, **{**fields, **changes})


class Lives:
    """Lives that last until they are let go."""

    def __init__(self):
        self.begun_ids = []
        self.suspended_ids = []
        self.go = asyncio.Event()
        self.again = asyncio.Event()

    async def __call__(self, run_id):
        if self.begun_ids:
            self.again.set()
        self.begun_ids.append(run_id)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.suspended_ids.append(run_id)
            raise
        return run(run_id, status=Status.SUCCEEDED)


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_queue_starts_up_to_the_limit_and_the_other_runs_wait_in_order():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=2, clock=FakeClock(NOW))
    for name in "abcd":
        await executor.submit(run(name))
    await turns()
    assert lives.begun_ids == ["a", "b"]
    assert [executor.queue_position(name) for name in "abcd"] == [None, None, 0, 1]
    lives.go.set()
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a", "b", "c", "d"]


async def test_run_enqueued_twice_is_executed_once():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=FakeClock(NOW))
    for name in ("a", "a", "b", "b"):
        await executor.submit(run(name))
    lives.go.set()
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a", "b"]


class Parking:
    """Lives each of which waits for a person the first time, and ends the second."""

    def __init__(self):
        self.begun_ids = []
        self.meanwhile = lambda run_id: None

    async def __call__(self, run_id):
        self.begun_ids.append(run_id)
        self.meanwhile(run_id)
        first = self.begun_ids.count(run_id) == 1
        return run(run_id, routine="r", status=Status.WAITING if first else Status.SUCCEEDED)


async def test_a_waiting_run_holds_later_runs_of_its_routine():
    lives = Parking()
    executor = LocalRunQueue(lives, max_concurrent=2, clock=FakeClock(NOW))
    for name in ("a", "b"):
        await executor.submit(run(name, routine="r"))
    await executor.submit(run("other"))
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a", "other"]
    await executor.submit(run("a", routine="r"))  # it was answered
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a", "other", "a", "b"]


async def test_run_answered_during_suspension_is_continued():
    lives = Parking()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=FakeClock(NOW))
    tasks = []

    def answer(run_id):
        if not tasks:
            tasks.append(asyncio.ensure_future(executor.submit(run("a", routine="r"))))

    lives.meanwhile = answer
    await executor.submit(run("a", routine="r"))
    await turns()
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a", "a"]


async def test_a_run_that_is_to_be_executed_again_at_once_is_never_seen_idle():
    begun_ids = []

    async def execute(run_id):
        begun_ids.append(run_id)
        return run(run_id, status=Status.QUEUED if len(begun_ids) == 1 else Status.SUCCEEDED)

    executor = LocalRunQueue(execute, max_concurrent=1, clock=FakeClock(NOW))
    await executor.submit(run("a"))
    await asyncio.wait([executor.running["a"]])
    assert "a" in executor.running
    await executor.wait_until_idle()
    assert begun_ids == ["a", "a"]


async def test_a_run_answered_while_it_could_not_yet_be_claimed_is_executed_again():
    begun_ids = []

    async def execute(run_id):
        begun_ids.append(run_id)
        if len(begun_ids) > 1:
            return run(run_id, status=Status.SUCCEEDED)
        await executor.submit(run("a"))  # the answer arrives after the claim was refused
        return None

    executor = LocalRunQueue(execute, max_concurrent=1, clock=FakeClock(NOW))
    await executor.submit(run("a"))
    await executor.wait_until_idle()
    assert begun_ids == ["a", "a"]


async def test_cancelling_a_waiting_run_starts_the_next_run_of_its_routine():
    lives = Parking()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=FakeClock(NOW))
    executor.hold_parked([run("old", routine="r")])  # since before this process began
    await executor.submit(run("new", routine="r"))
    await turns()
    assert lives.begun_ids == []
    executor.interrupt("old")
    await executor.wait_until_idle()
    assert lives.begun_ids == ["new"]


async def test_a_run_is_not_executed_before_its_time():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=SystemClock())
    instant = datetime.now(UTC) + timedelta(seconds=0.2)
    await executor.submit(run("later", not_before=instant))
    await executor.submit(run("now"))
    lives.go.set()
    async with asyncio.timeout(60):
        await lives.again.wait()
    assert datetime.now(UTC) >= instant
    assert lives.begun_ids == ["now", "later"]


async def test_a_delayed_run_that_comes_twice_is_executed_once():
    lives = Lives()
    clock = FakeClock(NOW)
    executor = LocalRunQueue(lives, max_concurrent=1, clock=clock)
    instant = NOW + timedelta(days=1)
    await executor.submit(run("a", not_before=instant))
    await executor.submit(run("a", not_before=instant, detail="as the journal has it now"))
    lives.go.set()
    clock.advance(days=1)
    executor.start_due()
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a"]


async def test_a_delayed_run_is_executed_again():
    tries, again = [], asyncio.Event()

    async def live(run_id):
        tries.append(run_id)
        if len(tries) == 1:
            return run(run_id, status=Status.QUEUED, not_before=NOW + timedelta(days=1))
        again.set()
        return run(run_id, status=Status.SUCCEEDED)

    clock = FakeClock(NOW)
    executor = LocalRunQueue(live, max_concurrent=1, clock=clock)
    await executor.submit(run("a"))
    await executor.wait_until_idle()
    assert tries == ["a"]
    executor.start_due()
    clock.advance(days=1)
    assert tries == ["a"]
    executor.start_due()  # the machine slept, or somebody set its clock
    async with asyncio.timeout(60):
        await again.wait()
    assert tries == ["a", "a"]


async def test_a_crash_of_one_run_does_not_stop_the_others():
    begun_ids = []

    async def live(run_id):
        begun_ids.append(run_id)
        if run_id == "bad":
            raise ZeroDivisionError

    executor = LocalRunQueue(live, max_concurrent=1, clock=FakeClock(NOW))
    await executor.submit(run("bad"))
    await executor.submit(run("good"))
    await executor.wait_until_idle()
    assert begun_ids == ["bad", "good"]


async def test_stopping_the_queue_interrupts_runs_after_the_grace():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=FakeClock(NOW))
    await executor.submit(run("a"))
    await executor.submit(run("waiting"))
    await turns()
    await executor.stop(0.01)
    assert lives.suspended_ids == ["a"]
    assert lives.begun_ids == ["a"], "nothing new starts while stopping"


async def test_a_run_ending_within_the_grace_is_not_interrupted():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=FakeClock(NOW))
    await executor.submit(run("a"))
    await turns()
    lives.go.set()
    await executor.stop(5)
    assert lives.suspended_ids == []


async def test_one_run_can_be_interrupted_alone():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=2, clock=FakeClock(NOW))
    await executor.submit(run("a"))
    await executor.submit(run("b"))
    await turns()
    assert executor.interrupt("a")
    assert not executor.interrupt("unknown")
    lives.go.set()
    await executor.wait_until_idle()
    assert lives.suspended_ids == ["a"]


async def test_runs_of_one_routine_wait_for_each_other_while_others_pass():
    lives = Lives()
    executor = LocalRunQueue(lives, max_concurrent=3, clock=FakeClock(NOW))
    for name, routine in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        await executor.submit(run(name, routine=routine))
    await turns()
    assert lives.begun_ids == ["a1", "b1"]
    lives.go.set()
    await executor.wait_until_idle()
    assert lives.begun_ids == ["a1", "b1", "a2"]


# --- fairness


def lanes(**limits):
    """Return which lane a run is on: the first word of its routine's name; `offline` asks no
    model.
    """

    def group_of(run):
        name = run.routine.split()[0]
        return ConcurrencyGroup(name=name, limit=limits.get(name), uses_model=name != "offline")

    return group_of


class OneByOne:
    """Lives that end when they are told to, in a time that passes."""

    def __init__(self):
        self.begun_ids = []
        self.ends = {}
        self.moment = NOW

    async def __call__(self, run_id):
        self.begun_ids.append(run_id)
        self.ends[run_id] = asyncio.Event()
        await self.ends[run_id].wait()

    def now(self):
        return self.moment

    async def end(self, run_id):
        self.moment += timedelta(minutes=1)
        self.ends[run_id].set()
        await turns()


async def test_earliest_due_run_starts_first_in_any_order_of_arrival():
    lives = OneByOne()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=lives)
    await executor.submit(run("first"))
    for minutes in (3, 1, 2):
        await executor.submit(
            run(f"due {minutes}", slot=NOW - timedelta(minutes=10) + timedelta(minutes=minutes))
        )
    assert executor.positions() == {"due 1": 0, "due 2": 1, "due 3": 2}
    await turns()
    for name in ("first", "due 1", "due 2"):
        await lives.end(name)
    assert lives.begun_ids == ["first", "due 1", "due 2", "due 3"]


async def test_a_routine_with_many_runs_does_not_delay_other_routines():
    lives = OneByOne()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=lives)
    for number in range(4):
        await executor.submit(run(f"busy {number}", routine="busy"))
    await turns()
    lives.moment += timedelta(minutes=1)
    await executor.submit(run("other", slot=lives.moment))
    assert executor.positions() == {"other": 0, "busy 1": 1, "busy 2": 2, "busy 3": 3}
    await lives.end("busy 0")
    assert lives.begun_ids == ["busy 0", "busy 1"], "it was due before the other one came"
    await lives.end("busy 1")
    assert lives.begun_ids[-1] == "other"


async def test_run_waiting_for_its_provider_occupies_no_slot():
    lives = OneByOne()
    executor = LocalRunQueue(lives, max_concurrent=2, clock=lives, group_of=lanes(slow=1))
    for name in ("slow a", "slow b", "slow c", "fast d"):
        await executor.submit(run(name, routine=name))
    await turns()
    assert lives.begun_ids == ["slow a", "fast d"]
    await lives.end("fast d")
    assert lives.begun_ids == ["slow a", "fast d"], "there is room, but not at the provider"
    await lives.end("slow a")
    assert lives.begun_ids == ["slow a", "fast d", "slow b"]


async def test_runs_without_a_model_are_not_starved_by_runs_with_a_model():
    lives = OneByOne()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=lives, group_of=lanes())
    for name in ("claude a", "claude b", "offline c", "offline d"):
        await executor.submit(run(name, routine=name))
    await turns()
    assert lives.begun_ids == ["claude a", "offline c"]
    assert executor.positions() == {"claude b": 0, "offline d": 0}
    await lives.end("offline c")
    assert lives.begun_ids == ["claude a", "offline c", "offline d"]


async def test_cancelled_run_leaves_the_queue():
    lives = OneByOne()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=lives)
    for name in "abc":
        await executor.submit(run(name))
    assert not executor.interrupt("b")
    assert executor.positions() == {"c": 0}
    await turns()
    await lives.end("a")
    assert lives.begun_ids == ["a", "c"]


async def test_raised_limit_starts_waiting_runs_at_once():
    lives = OneByOne()
    executor = LocalRunQueue(lives, max_concurrent=1, clock=lives)
    for name in "abc":
        await executor.submit(run(name))
    executor.set_max_concurrent(2)
    await turns()
    assert lives.begun_ids == ["a", "b"]


@scaled_settings(100)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 30), st.sampled_from(["a", "b", "offline"])),
        max_size=30,
    ),
    st.integers(1, 3),
)
async def test_every_due_run_is_executed_once_within_all_limits(queue, most):
    limits = {"a": 1, "b": 2}
    group_of = lanes(**limits)
    lives, lively = OneByOne(), []

    async def live(run_id):
        lively.append(runs[run_id])
        groups = [group_of(run) for run in lively]
        assert len({run.routine for run in lively}) == len(lively)
        assert sum(group.uses_model for group in groups) <= most
        assert sum(not group.uses_model for group in groups) <= most
        assert all(
            sum(group.name == name for group in groups) <= limit for name, limit in limits.items()
        )
        await asyncio.sleep(0)
        lively.remove(runs[run_id])
        lives.begun_ids.append(run_id)

    runs = {
        str(number): run(
            str(number), routine=f"{lane} {routine}", slot=NOW + timedelta(minutes=minutes)
        )
        for number, (routine, minutes, lane) in enumerate(queue)
    }
    executor = LocalRunQueue(live, max_concurrent=most, clock=lives, group_of=group_of)
    for queued_run in runs.values():
        await executor.submit(queued_run)
    assert sorted(executor.positions()) == sorted(set(runs) - set(executor.running))
    await executor.wait_until_idle()
    assert sorted(lives.begun_ids) == sorted(runs)
