"""Notice when the wall clock was set, or the machine woke from suspend.

The timers of the event loop, and so of APScheduler, count CLOCK_MONOTONIC, which stands still
during a suspend: what is due at 09:00 would start at 09:00 plus the time that a laptop has slept
(python/cpython#106940: "not a bug"). So whatever waits for an instant computes anew how long to
wait after each jump of the wall clock.

Linux tells by a timerfd. timerfd_create(2) on TFD_TIMER_CANCEL_ON_SET: read(2) fails with ECANCELED
after "a discontinuous change" of CLOCK_REALTIME (settimeofday(2), clock_settime(2) or similar). A
resume is one, too: `timekeeping_resume` in the kernel's kernel/time/timekeeping.c notifies timerfd,
"as resume is equivalent to clock_was_set()". Until then nothing wakes up. Elsewhere the clock is
compared with the event loop's clock once a minute.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

from daemon.system.intervals import read_interval, until_next_multiple
from daemon.system.syscalls import (
    TFD_TIMER_ABSTIME,
    TFD_TIMER_CANCEL_ON_SET,
    timerfd_create,
    timerfd_settime,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from daemon.system.clock import Clock

# Only an armed timer is cancelled; this one is never meant to expire: its time is in the year 2200.
FAR_FUTURE = 7_258_118_400
SECONDS_BETWEEN_CHECKS = 60.0
# For tests that fake the clock of a process, which the kernel does not know of: the seconds between
# two checks, by polling.
SECONDS_BETWEEN_CHECKS_VARIABLE = "AGENTD_LONGEST_SLEEP"
# Seconds by which wall clock and event loop may differ after a check: more than a clock that NTP
# slews gains or loses in a minute.
TOLERANCE = 2.0


class ClockWatcher(Protocol):
    """Calls a function after each jump of the wall clock."""

    def start(self, on_clock_set: Callable[[], object]) -> None:
        """Begin to call `on_clock_set` on the running loop after each jump."""

    def stop(self) -> None:
        """Stop calling the function."""


def clock_watcher(clock: Clock, env: Mapping[str, str]) -> ClockWatcher:
    """Return a watcher by timerfd, or one that polls where the kernel has no timerfd or not its
    flag TFD_TIMER_CANCEL_ON_SET, as in some sandboxes.
    """
    if seconds := read_interval(env, SECONDS_BETWEEN_CHECKS_VARIABLE):
        return PollingClockWatcher(clock, seconds=seconds)
    if sys.platform != "linux":
        return PollingClockWatcher(clock)
    try:
        calls = TimerCalls()
        os.close(calls.create_armed())
    except OSError:
        return PollingClockWatcher(clock)
    return KernelClockWatcher(calls)


class KernelClockWatcher:
    """Waits for the kernel to cancel a timerfd."""

    def __init__(self, calls: TimerCalls) -> None:
        self._calls = calls
        self._fd = -1

    def start(self, on_clock_set: Callable[[], object]) -> None:
        self._on_clock_set = on_clock_set
        self._fd = self._calls.create_armed()
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def stop(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            self._calls.read(self._fd)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
            self._calls.arm(self._fd)
            self._on_clock_set()


class TimerCalls:
    """The timerfd of KernelClockWatcher. Tests replace it, as a test may not set the real clock."""

    def create_armed(self) -> int:
        """Return a new timerfd that becomes readable after a jump of the clock."""
        fd = timerfd_create(time.CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.arm(fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def arm(self, fd: int) -> None:
        """Have the timer cancelled when the clock is set."""
        try:
            timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, FAR_FUTURE)
        except OSError as error:
            # timerfd_create(2), BUGS: the clock was set since the descriptor was read last, and the
            # timer is armed all the same. The callers read the clock after that.
            if error.errno != errno.ECANCELED:
                raise

    def read(self, fd: int) -> None:
        """Read the timerfd. Raises OSError, with ECANCELED if the clock was set."""
        os.read(fd, 8)


class PollingClockWatcher:
    """Compares the wall clock with the event loop's clock at regular intervals."""

    def __init__(self, clock: Clock, *, seconds: float = SECONDS_BETWEEN_CHECKS) -> None:
        self._clock, self._seconds = clock, seconds
        self._next_check: asyncio.TimerHandle | None = None

    def start(self, on_clock_set: Callable[[], object]) -> None:
        self._on_clock_set = on_clock_set
        self._loop = asyncio.get_running_loop()
        self._schedule_check(self._clock.now(), self._loop.time())

    def stop(self) -> None:
        if self._next_check:
            self._next_check.cancel()
            self._next_check = None

    def _schedule_check(self, wall: datetime, monotonic: float) -> None:
        self._next_check = self._loop.call_later(
            until_next_multiple(self._seconds), self._check, wall, monotonic
        )

    def _check(self, wall: datetime, monotonic: float) -> None:
        new_wall, new_monotonic = self._clock.now(), self._loop.time()
        drift = (new_wall - wall).total_seconds() - (new_monotonic - monotonic)
        # From these readings on: a clock that is set between two readings would go unnoticed.
        self._schedule_check(new_wall, new_monotonic)
        if abs(drift) > TOLERANCE:
            self._on_clock_set()
