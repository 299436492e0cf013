"""The alarm on the wall clock."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from datetime import UTC, datetime, timedelta

import pytest

from daemon.clock import SystemClock
from daemon.timer import KernelTimer, LibcCalls, SleepTimer, StandardCalls, TimerCalls, system_calls, system_timer

linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's; elsewhere the SleepTimer serves")
KINDS = [LibcCalls, *([StandardCalls] if hasattr(os, "timerfd_create") else [])]


class Bells:
    """What an owner of a timer hears."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    def rang(self) -> None:
        self.heard.put_nowait("rang")

    def stepped(self) -> None:
        self.heard.put_nowait("stepped")

    async def next(self) -> str:
        async with asyncio.timeout(60):
            return await self.heard.get()


class MovedClock:
    """The clock of a machine that somebody sets."""

    def __init__(self) -> None:
        self.offset = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset


class BrokenCalls:
    """A kernel that answers with errors, on an eventfd instead of a timerfd: a test may not set the clock."""

    def __init__(self, *, on_set: int = 0, on_read: int = 0) -> None:
        self.on_set, self.on_read = on_set, on_read
        self.instants: list[int] = []

    def create(self) -> int:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        return self.fd

    def settime(self, fd: int, nanoseconds: int) -> None:
        self.instants.append(nanoseconds)
        if self.on_set and len(self.instants) > 1:
            raise OSError(self.on_set, os.strerror(self.on_set))

    def read(self, fd: int) -> None:
        os.read(fd, 8)
        raise OSError(self.on_read, os.strerror(self.on_read))

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)


@pytest.fixture
def bells() -> Bells:
    return Bells()


@pytest.fixture(params=KINDS)
def kernel(request: pytest.FixtureRequest) -> TimerCalls:
    calls: TimerCalls = request.param()
    return calls


@linux
async def test_it_rings_at_the_instant_and_not_before(kernel: TimerCalls, bells: Bells) -> None:
    timer = KernelTimer(kernel)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    for wait in (0.03, 0.0, -3600.0):
        instant = datetime.now(UTC) + timedelta(seconds=wait)
        timer.set(instant)
        assert await bells.next() == "rang"
        assert datetime.now(UTC) >= instant
    timer.close()


@linux
async def test_the_instant_set_last_counts(kernel: TimerCalls, bells: Bells) -> None:
    timer = KernelTimer(kernel)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    timer.set(datetime.now(UTC))
    timer.set(None)
    timer.set(datetime.now(UTC) + timedelta(days=1))
    timer.set(datetime.now(UTC) + timedelta(seconds=0.02))
    assert await bells.next() == "rang"
    await asyncio.sleep(0)
    assert bells.heard.empty()
    timer.close()


@linux
async def test_with_nothing_due_the_alarm_stands_so_that_a_set_clock_is_told(bells: Bells) -> None:
    calls = BrokenCalls()
    timer = KernelTimer(calls)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    (instant,) = calls.instants
    assert instant > (datetime.now(UTC) + timedelta(days=300)).timestamp() * 1e9
    timer.close()


@linux
async def test_a_clock_set_before_anybody_read_is_told_though_the_alarm_is_armed(bells: Bells) -> None:
    timer = KernelTimer(BrokenCalls(on_set=errno.ECANCELED))
    timer.open(rang=bells.rang, stepped=bells.stepped)
    timer.set(datetime.now(UTC) + timedelta(hours=1))
    assert await bells.next() == "stepped"
    timer.close()


@linux
async def test_a_clock_set_while_we_sleep_is_told(bells: Bells) -> None:
    calls = BrokenCalls(on_read=errno.ECANCELED)
    timer = KernelTimer(calls)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    calls.ring()
    assert await bells.next() == "stepped"
    timer.close()


@linux
async def test_any_other_refusal_of_the_kernel_is_an_error(bells: Bells) -> None:
    timer = KernelTimer(BrokenCalls(on_set=errno.EINVAL))
    timer.open(rang=bells.rang, stepped=bells.stepped)
    with pytest.raises(OSError, match="Invalid argument"):
        timer.set(None)
    timer.close()


@linux
async def test_once_closed_it_says_nothing_more(kernel: TimerCalls, bells: Bells) -> None:
    timer = KernelTimer(kernel)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    timer.set(datetime.now(UTC))
    timer.close()
    timer.close()
    timer.set(datetime.now(UTC))
    await asyncio.sleep(0)
    assert bells.heard.empty()


async def test_this_system_has_a_timer(bells: Bells) -> None:
    timer = system_timer(SystemClock())
    assert isinstance(timer, KernelTimer if sys.platform == "linux" and system_calls() else SleepTimer)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    timer.set(datetime.now(UTC) + timedelta(seconds=0.01))
    assert await bells.next() == "rang"
    timer.close()


# --- without timerfd -------------------------------------------------------------------------------


async def test_sleeping_it_rings_at_the_instant_too(bells: Bells) -> None:
    timer = SleepTimer(SystemClock())
    timer.set(None)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    instant = datetime.now(UTC) + timedelta(seconds=0.02)
    timer.set(instant + timedelta(hours=1))
    timer.set(instant)
    assert await bells.next() == "rang"
    assert datetime.now(UTC) >= instant
    timer.close()


@pytest.mark.parametrize("step", [timedelta(hours=5), timedelta(hours=-5)])
async def test_sleeping_it_notices_at_its_next_look_that_the_clock_was_set(bells: Bells, step: timedelta) -> None:
    clock = MovedClock()
    timer = SleepTimer(clock, longest=0.02)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    timer.set(clock.now() + timedelta(hours=1))
    clock.offset = step
    assert await bells.next() == "stepped"
    timer.close()


async def test_a_short_sleep_after_another_leads_to_the_instant(bells: Bells) -> None:
    timer = SleepTimer(SystemClock(), longest=0.01)
    timer.open(rang=bells.rang, stepped=bells.stepped)
    timer.set(datetime.now(UTC) + timedelta(seconds=0.05))
    assert await bells.next() == "rang"
    timer.close()
    timer.close()
