"""The watcher of the wall clock."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from daemon.system.clock import SystemClock, wait_until
from daemon.system.timer import (
    SECONDS_BETWEEN_CHECKS_VARIABLE,
    KernelClockWatcher,
    PollingClockWatcher,
    TimerCalls,
    clock_watcher,
)

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="timerfd is Linux's; elsewhere the clock is polled"
)


class MovedClock:
    """The clock of a machine that somebody sets."""

    def __init__(self) -> None:
        self.offset = timedelta(0)
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return datetime.now(UTC) + self.offset

    async def wait_for_looks(self, times: int) -> None:
        """Wait until somebody has looked at it so many times more."""
        enough = self.looks + times
        async with asyncio.timeout(60):
            while self.looks < enough:
                await asyncio.sleep(0)


class FakeKernel(TimerCalls):
    """A kernel whose clock the test sets, on an eventfd instead of a timerfd: a test may not set
    the real one.
    """

    def __init__(self) -> None:
        self.arm_count = 0
        self.error = errno.ECANCELED

    def create_armed(self) -> int:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.arm(self.fd)
        return self.fd

    def arm(self, fd: int) -> None:
        self.arm_count += 1

    def read(self, fd: int) -> None:
        os.read(fd, 8)
        raise OSError(self.error, os.strerror(self.error))

    def set_clock(self) -> None:
        os.eventfd_write(self.fd, 1)


class ClockReports:
    """Whoever is told by a watcher."""

    def __init__(self) -> None:
        self.times = 0
        self._was_told = asyncio.Event()

    def when_set(self) -> None:
        self.times += 1
        self._was_told.set()

    async def wait_for_report(self) -> None:
        async with asyncio.timeout(60):
            await self._was_told.wait()
        self._was_told.clear()


@pytest.fixture
def reports() -> ClockReports:
    return ClockReports()


# --- the kernel tells


@linux
async def test_each_set_clock_is_reported_by_the_kernel(
    reports: ClockReports,
) -> None:
    kernel = FakeKernel()
    watcher = KernelClockWatcher(kernel)
    watcher.start(reports.when_set)
    for times in (1, 2, 3):
        kernel.set_clock()
        await reports.wait_for_report()
        assert (reports.times, kernel.arm_count) == (times, times + 1)
    watcher.stop()


@linux
async def test_other_errors_of_the_timer_are_raised(reports: ClockReports) -> None:
    kernel, errors = FakeKernel(), list[object]()
    kernel.error = errno.EIO
    loop, has_failed = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(
        lambda _, context: (errors.append(context["exception"]), has_failed.set())
    )
    watcher = KernelClockWatcher(kernel)
    watcher.start(reports.when_set)
    kernel.set_clock()
    async with asyncio.timeout(60):
        await has_failed.wait()
    assert [error.errno for error in errors if isinstance(error, OSError)] == [errno.EIO]
    assert reports.times == 0
    watcher.stop()


@linux
async def test_the_real_timer_is_armed_to_be_cancelled_and_silent_until_then(
    reports: ClockReports,
) -> None:
    calls = TimerCalls()
    fd = calls.create_armed()
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    about = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "clockid" in about:  # proc_pid_fdinfo(5): a sandbox may tell less
        assert (about["clockid"], about["settime flags"]) == ("0", "03")
        years_left = int(about["it_value"].strip("()").split(",")[0]) / 365 / 86_400
        assert years_left > 50
    calls.arm(fd)
    with pytest.raises(BlockingIOError):
        calls.read(fd)
    os.close(fd)


@linux
async def test_a_timer_that_cannot_be_armed_leaves_no_descriptor_open() -> None:
    class Refusing(TimerCalls):
        def arm(self, fd: int) -> None:
            self.fd = fd
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    calls = Refusing()
    with pytest.raises(OSError, match="Invalid argument"):
        calls.create_armed()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(calls.fd)


# --- without timerfd


@pytest.mark.parametrize("jump", [timedelta(hours=5), timedelta(hours=-5), timedelta(seconds=3)])
async def test_polling_watcher_reports_a_set_clock_once(
    reports: ClockReports, jump: timedelta
) -> None:
    """A suspend looks the same: the wall clock went on, the one of the event loop did not."""
    clock = MovedClock()
    watcher = PollingClockWatcher(clock, seconds=0.01)
    watcher.start(reports.when_set)
    await clock.wait_for_looks(3)
    assert reports.times == 0
    clock.offset = jump
    await reports.wait_for_report()
    await clock.wait_for_looks(3)
    assert reports.times == 1
    clock.offset = timedelta(0)
    await reports.wait_for_report()
    watcher.stop()


async def test_a_slowly_adjusted_clock_is_not_reported(reports: ClockReports) -> None:
    clock = MovedClock()
    watcher = PollingClockWatcher(clock, seconds=0.01)
    watcher.start(reports.when_set)
    for seconds in (1, 2, 3):
        clock.offset = timedelta(seconds=seconds)
        await clock.wait_for_looks(4)
    assert reports.times == 0
    watcher.stop()


async def test_a_clock_that_is_set_just_after_it_was_read_is_reported(
    reports: ClockReports,
) -> None:
    class SetAfterReading(MovedClock):
        def now(self) -> datetime:
            moment = super().now()
            if self.looks == 2:  # the first check
                self.offset = timedelta(hours=1)
            return moment

    watcher = PollingClockWatcher(SetAfterReading(), seconds=0.01)
    watcher.start(reports.when_set)
    await reports.wait_for_report()
    watcher.stop()


async def test_stopped_watcher_reports_nothing(reports: ClockReports) -> None:
    clock, other_watching = MovedClock(), ClockReports()
    stopped_watcher, other_watcher = (
        PollingClockWatcher(clock, seconds=0.01),
        PollingClockWatcher(clock, seconds=0.02),
    )
    stopped_watcher.start(reports.when_set)
    other_watcher.start(other_watching.when_set)
    clock.offset = timedelta(hours=1)
    stopped_watcher.stop()
    stopped_watcher.stop()
    await other_watching.wait_for_report()
    assert reports.times == 0
    other_watcher.stop()


# --- both


def test_a_clock_watcher_exists_for_this_system() -> None:
    kind = KernelClockWatcher if sys.platform == "linux" else PollingClockWatcher
    assert isinstance(clock_watcher(SystemClock(), {}), kind)
    watcher = clock_watcher(SystemClock(), {SECONDS_BETWEEN_CHECKS_VARIABLE: "0.05"})
    assert isinstance(watcher, PollingClockWatcher)


# --- waiting for an instant


async def test_waiting_for_an_instant_ends_at_the_instant_or_the_event() -> None:
    clock, event = SystemClock(), asyncio.Event()
    for wait in (0.03, 0.0, -3600.0):
        instant = clock.now() + timedelta(seconds=wait)
        await wait_until(instant, event, clock)
        assert clock.now() >= instant - timedelta(milliseconds=2)
    event.set()
    for instant in (clock.now() + timedelta(days=400_000), None):
        async with asyncio.timeout(60):
            await wait_until(instant, event, clock)
