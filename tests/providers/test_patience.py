"""How long a vendor is waited for: one timer for all calls, and the same end as one timer each."""

from __future__ import annotations

import asyncio

import pytest

from daemon.providers.patience import Patience, Within


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def within(patience: Patience) -> str:
    try:
        with Within(patience):
            await forever()
    except TimeoutError:
        return "timed out"
    return "done"


async def test_what_takes_too_long_is_given_up_and_what_does_not_is_left_alone() -> None:
    patience = Patience(0.05)
    with Within(patience):
        await asyncio.sleep(0)
    assert await within(patience) == "timed out"
    assert not patience.under_way


async def test_each_of_many_is_given_up_when_its_own_time_is_over() -> None:
    patience, loop = Patience(0.1), asyncio.get_running_loop()
    ends: list[tuple[float, int]] = []

    async def one(number: int) -> None:
        begin = loop.time()
        assert await within(patience) == "timed out"
        ends.append((loop.time() - begin, number))

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(one(number))
            await asyncio.sleep(0.01)
    assert [number for _, number in ends] == [0, 1, 2, 3, 4]
    assert all(took >= 0.0999 for took, _ in ends)
    assert not patience.ticking


async def test_a_thousand_calls_need_one_timer() -> None:
    patience, loop = Patience(60.0), asyncio.get_running_loop()
    before = len(loop._scheduled)  # type: ignore[attr-defined]
    tasks = [asyncio.create_task(within(patience)) for _ in range(1000)]
    await asyncio.sleep(0)
    assert len(patience.under_way) == 1000
    assert len(loop._scheduled) == before + 1  # type: ignore[attr-defined]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not patience.under_way


async def test_a_timer_that_rings_for_nobody_is_not_set_again() -> None:
    patience = Patience(0.01)
    with Within(patience):
        assert patience.ticking
    while patience.ticking:
        await asyncio.sleep(0.005)
    with Within(patience):
        patience.close()
        assert patience.ticking, "somebody is still waited for"
    patience.close()
    assert not patience.ticking


async def test_a_cancellation_by_somebody_else_stays_one() -> None:
    patience = Patience(60.0)
    task = asyncio.create_task(within(patience))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_is_cancelled_and_out_of_time_at_once_is_cancelled() -> None:
    patience = Patience(0.0)
    task = asyncio.create_task(within(patience))
    await asyncio.sleep(0)
    task.cancel()
    patience._look(asyncio.get_running_loop())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_outer_limit_ends_what_an_inner_one_would_still_wait_for() -> None:
    patience = Patience(60.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await within(patience)
    assert not patience.under_way


async def test_an_error_of_the_block_flies_on() -> None:
    patience = Patience(60.0)
    with pytest.raises(KeyError), Within(patience):
        raise KeyError("x")
    assert not patience.under_way


def test_another_event_loop_has_a_timer_of_its_own() -> None:
    patience = Patience(0.02)
    assert [asyncio.run(within(patience)) for _ in range(2)] == ["timed out"] * 2

    async def leaves_its_timer() -> None:
        with Within(patience):
            pass

    asyncio.run(leaves_its_timer())
    assert asyncio.run(within(patience)) == "timed out"
