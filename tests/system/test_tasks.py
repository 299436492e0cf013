"""Tasks end when they are cancelled, also where a cancellation is lost."""

from __future__ import annotations

import asyncio

from daemon.system.tasks import cancel_and_wait


async def test_a_task_that_loses_its_cancellation_is_cancelled_once_more() -> None:
    is_waiting, losses = asyncio.Event(), 0

    async def lose_one_cancellation() -> None:
        nonlocal losses
        try:
            is_waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # as asyncio.wait_for does where both come at once
            losses += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(lose_one_cancellation())
    await is_waiting.wait()
    await cancel_and_wait([task], cancel_again=0.01)
    assert losses == 1
    assert task.cancelled()


async def test_what_a_task_raises_at_its_end_is_dropped_and_the_others_are_awaited() -> None:
    events: list[str] = []

    async def fail() -> None:
        raise ValueError("at the end")

    async def close_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    tasks = [asyncio.create_task(fail()), asyncio.create_task(close_slowly())]
    await asyncio.sleep(0)
    await cancel_and_wait(tasks)
    assert events == ["closed"]
