"""Runs are lived as they come, so many at a time, and stopped without losing one."""

import asyncio
from datetime import UTC, datetime, timedelta

from daemon.executors import LocalExecutor
from daemon.models import Run, Status

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


def run(id_, **changes):
    fields = {"routine": f"routine of {id_}", "definition": "d", "trigger": "manual", "slot": NOW, "created": NOW}
    return Run(id=id_, **{**fields, **changes})


class Lives:
    """Lives that last until they are let go."""

    def __init__(self):
        self.begun = []
        self.stopped = []
        self.go = asyncio.Event()
        self.again = asyncio.Event()

    async def __call__(self, run_id):
        if self.begun:
            self.again.set()
        self.begun.append(run_id)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped.append(run_id)
            raise


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_so_many_runs_are_lived_at_once_and_the_others_wait_in_order():
    lives = Lives()
    executor = LocalExecutor(lives, max_concurrent=2, clock=lambda: NOW)
    for name in "abcd":
        await executor.submit(run(name))
    await turns()
    assert lives.begun == ["a", "b"]
    assert [executor.queue_position(name) for name in "abcd"] == [None, None, 0, 1]
    lives.go.set()
    await executor.idle()
    assert lives.begun == ["a", "b", "c", "d"]


async def test_being_told_twice_lives_a_run_once():
    lives = Lives()
    executor = LocalExecutor(lives, max_concurrent=1, clock=lambda: NOW)
    for name in ("a", "a", "b", "b"):
        await executor.submit(run(name))
    lives.go.set()
    await executor.idle()
    assert lives.begun == ["a", "b"]


async def test_a_run_is_not_tried_before_its_time():
    lives = Lives()
    moment = [NOW]
    executor = LocalExecutor(lives, max_concurrent=1, clock=lambda: moment[0])
    await executor.submit(run("later", not_before=NOW + timedelta(milliseconds=20)))
    await executor.submit(run("now"))
    lives.go.set()
    await executor.idle()
    assert lives.begun == ["now"]
    moment[0] = NOW + timedelta(seconds=1)
    async with asyncio.timeout(5):
        await lives.again.wait()
    assert lives.begun == ["now", "later"]


async def test_a_run_that_was_put_off_is_tried_again():
    tries, again = [], asyncio.Event()
    moment = [NOW]

    async def live(run_id):
        tries.append(run_id)
        if len(tries) == 1:
            moment[0] = NOW + timedelta(seconds=2)
            return run(run_id, status=Status.QUEUED, not_before=NOW + timedelta(seconds=1))
        again.set()
        return run(run_id, status=Status.SUCCEEDED)

    executor = LocalExecutor(live, max_concurrent=1, clock=lambda: moment[0])
    await executor.submit(run("a"))
    async with asyncio.timeout(5):
        await again.wait()
    assert tries == ["a", "a"]


async def test_a_crash_of_one_run_does_not_stop_the_others():
    begun = []

    async def live(run_id):
        begun.append(run_id)
        if run_id == "bad":
            raise ZeroDivisionError

    executor = LocalExecutor(live, max_concurrent=1, clock=lambda: NOW)
    await executor.submit(run("bad"))
    await executor.submit(run("good"))
    await executor.idle()
    assert begun == ["bad", "good"]


async def test_stopping_waits_for_the_grace_and_then_interrupts():
    lives = Lives()
    executor = LocalExecutor(lives, max_concurrent=1, clock=lambda: NOW)
    await executor.submit(run("a"))
    await executor.submit(run("waiting"))
    await turns()
    await executor.stop(0.01)
    assert lives.stopped == ["a"]
    assert lives.begun == ["a"], "nothing new starts while stopping"


async def test_a_run_that_ends_within_the_grace_is_not_interrupted():
    lives = Lives()
    executor = LocalExecutor(lives, max_concurrent=1, clock=lambda: NOW)
    await executor.submit(run("a"))
    await turns()
    lives.go.set()
    await executor.stop(5)
    assert lives.stopped == []


async def test_one_run_can_be_interrupted_alone():
    lives = Lives()
    executor = LocalExecutor(lives, max_concurrent=2, clock=lambda: NOW)
    await executor.submit(run("a"))
    await executor.submit(run("b"))
    await turns()
    assert executor.interrupt("a")
    assert not executor.interrupt("unknown")
    lives.go.set()
    await executor.idle()
    assert lives.stopped == ["a"]


async def test_runs_of_one_routine_wait_for_each_other_while_others_pass():
    lives = Lives()
    executor = LocalExecutor(lives, max_concurrent=3, clock=lambda: NOW)
    for name, routine in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        await executor.submit(run(name, routine=routine))
    await turns()
    assert lives.begun == ["a1", "b1"]
    lives.go.set()
    await executor.idle()
    assert lives.begun == ["a1", "b1", "a2"]
