"""Each tool call has its own thread; finished threads are reused, hanging threads delay no other
call.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from daemon.tools.threads import Threads

ROOT = Path(__file__).parents[2]


async def reused_thread(threads: Threads) -> threading.Thread:
    """Call until a thread serves a second time: it lies down just after its answer."""
    threads_before: set[threading.Thread] = set()
    while (thread := await threads.run("tool a", threading.current_thread)) not in threads_before:
        threads_before.add(thread)
    return thread


async def test_a_finished_thread_is_reused_under_the_name_of_the_next_call() -> None:
    threads = Threads()
    thread = await reused_thread(threads)
    assert thread.daemon
    assert thread is not threading.main_thread()
    assert await threads.run("tool b", lambda: threading.current_thread().name) == "tool b"


async def test_concurrent_calls_have_a_thread_each() -> None:
    threads, barrier = Threads(), threading.Barrier(2)
    await asyncio.gather(*(threads.run("tool", lambda: barrier.wait(120)) for _ in range(2)))


async def test_a_hanging_call_keeps_its_thread_and_delays_no_other_call() -> None:
    threads, release = Threads(), threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await threads.run("tool hangs", lambda: release.wait(60))
    for _ in range(20):
        assert await threads.run("tool", lambda: threading.current_thread().name) == "tool"
    release.set()


async def close_unawaited(coroutine: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.timeout(60):
        while inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
            await asyncio.sleep(0.001)


async def test_a_coroutine_returned_after_the_timeout_is_closed() -> None:
    coroutine, release = asyncio.sleep(0), threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Threads().run("tool", lambda: (release.wait(30), coroutine)[1])
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    release.set()
    await close_unawaited(coroutine)


async def test_a_coroutine_returned_during_the_cancellation_is_closed() -> None:
    coroutine, has_begun, release = asyncio.sleep(0), asyncio.Event(), threading.Event()
    loop, thread_list = asyncio.get_running_loop(), []

    def make() -> Coroutine[Any, Any, Any]:
        thread_list.append(threading.current_thread())
        loop.call_soon_threadsafe(has_begun.set)
        release.wait(30)
        return coroutine

    task = asyncio.create_task(Threads(idle_seconds=0.0).run("tool", make))
    await has_begun.wait()
    release.set()
    thread_list[0].join(
        120
    )  # the loop stands still: it has the answer, and has not yet looked at it
    loop.call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    await close_unawaited(coroutine)


def test_a_coroutine_returned_after_the_end_of_the_loop_is_closed() -> None:
    coroutine, has_begun, release, thread_list = (
        asyncio.sleep(0),
        threading.Event(),
        threading.Event(),
        [],
    )

    def make() -> Coroutine[Any, Any, Any]:
        thread_list.append(threading.current_thread())
        has_begun.set()
        release.wait(30)
        return coroutine

    async def leave() -> None:
        call = asyncio.ensure_future(Threads(idle_seconds=0.0).run("tool", make))
        await asyncio.to_thread(has_begun.wait, 30)
        call.cancel()

    asyncio.run(leave())
    release.set()
    thread_list[0].join(120)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


async def test_an_exception_in_a_thread_is_raised_by_its_call_and_the_thread_is_reused() -> None:
    threads = Threads()
    with pytest.raises(KeyError):
        await threads.run("tool", lambda: {}["nothing"])
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run("tool", lambda: next(iter(())))
    with pytest.raises(RuntimeError, match="tried to end the process"):
        await threads.run("tool", sys.exit)
    assert await threads.run("tool", lambda: 1) == 1


async def test_an_idle_thread_ends() -> None:
    thread = await reused_thread(Threads(idle_seconds=0.05))
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()


@pytest.mark.slow
async def test_calls_succeed_while_idle_threads_end() -> None:
    threads = Threads(idle_seconds=0.0)
    assert [
        await threads.run("tool", lambda number=number: number) for number in range(200)
    ] == list(range(200))


def test_hanging_calls_and_idle_threads_do_not_delay_the_end_of_the_process() -> None:
    code = """
import asyncio, threading
from daemon.tools.threads import Threads

async def main():
    threads = Threads()
    await threads.run("tool", int)
    begun = threading.Event()
    hangs = asyncio.ensure_future(threads.run("tool", lambda: (begun.set(), threading.Event().wait())))
    await asyncio.to_thread(begun.wait)
    hangs.cancel()

asyncio.run(main())
"""  # noqa: E501
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
