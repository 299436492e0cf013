"""One alarm on the wall clock, which also tells when the clock is set.

The event loop's own timers count the monotonic clock: a laptop that sleeps through 09:00 rings at 09:00 plus the time
it slept (python/cpython#106940: "not a bug"). Linux has the right thing, a timerfd on CLOCK_REALTIME: absolute, silent
while nothing is due, due at once after a resume, and cancelled whenever somebody sets the clock. Elsewhere we look at
the clock once a minute.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.clock import Clock

TFD_TIMER_ABSTIME = 1
TFD_TIMER_CANCEL_ON_SET = 2
# With nothing due the alarm still stands somewhere, as only a standing alarm is told that the clock was set.
FAR = 366 * 86_400
SECOND = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
LONGEST_SLEEP = 60.0
# For tests that fake the clock, which a timerfd does not see: look at it so many seconds apart instead.
LONGEST_SLEEP_VARIABLE = "AGENTD_LONGEST_SLEEP"
# More than a slewing NTP daemon ever is behind or ahead within a minute.
STEP = 2.0


class Timer(Protocol):
    """An alarm on the wall clock."""

    def open(self, *, rang: Callable[[], object], stepped: Callable[[], object]) -> None:
        """Start, on the running loop: `rang` when the instant has come, `stepped` when the clock was set."""

    def set(self, at: datetime | None) -> None:
        """Ring at this instant instead; None means that nothing is due."""

    def close(self) -> None:
        """Ring no more."""


def system_timer(clock: Clock, env: Mapping[str, str] | None = None) -> Timer:
    """Return the best alarm this system has; some sandboxes know timerfd, but not that it can be cancelled."""
    if asked := (env or {}).get(LONGEST_SLEEP_VARIABLE):
        return SleepTimer(clock, longest=float(asked))
    if sys.platform != "linux":
        return SleepTimer(clock)
    try:
        calls = system_calls()
        fd = calls.create()
        try:
            calls.settime(fd, time.time_ns() + FAR * SECOND)
        finally:
            os.close(fd)
    except (OSError, AttributeError):
        return SleepTimer(clock)
    return KernelTimer(calls)


class KernelTimer:
    """A timerfd on the event loop."""

    def __init__(self, calls: TimerCalls | None = None) -> None:
        self._calls = calls or system_calls()
        self._fd = -1

    def open(self, *, rang: Callable[[], object], stepped: Callable[[], object]) -> None:
        self._rang, self._stepped = rang, stepped
        self._loop = asyncio.get_running_loop()
        self._fd = self._calls.create()
        self._loop.add_reader(self._fd, self._readable)
        self.set(None)

    def set(self, at: datetime | None) -> None:
        if self._fd < 0:
            return
        instant = (at - EPOCH) // MICROSECOND * 1000 if at else time.time_ns() + FAR * SECOND
        try:
            # Zero would disarm it; an instant in the past rings at once.
            self._calls.settime(self._fd, max(1, instant))
        except OSError as error:
            # timerfd_create(2), BUGS: it is armed, but the clock was set before anybody read the descriptor,
            # and after this answer no read will tell.
            if error.errno != errno.ECANCELED:
                raise
            self._loop.call_soon(self._tell_step)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        try:
            self._calls.read(self._fd)
        except BlockingIOError:
            return  # set again between the ringing and our reading
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
            self._tell_step()
            return
        self._rang()

    def _tell_step(self) -> None:
        if self._fd >= 0:
            self._stepped()


class SleepTimer:
    """Sleeps of at most a minute, for systems without timerfd."""

    def __init__(self, clock: Clock, *, longest: float = LONGEST_SLEEP) -> None:
        self._clock, self._longest = clock, longest
        self._at: datetime | None = None
        self._sleep: asyncio.TimerHandle | None = None

    def open(self, *, rang: Callable[[], object], stepped: Callable[[], object]) -> None:
        self._rang, self._stepped = rang, stepped
        self._loop = asyncio.get_running_loop()
        self._lie_down()

    def set(self, at: datetime | None) -> None:
        self._at = at
        if self._sleep:
            self._lie_down()

    def close(self) -> None:
        if self._sleep:
            self._sleep.cancel()
            self._sleep = None

    def _lie_down(self) -> None:
        if self._sleep:
            self._sleep.cancel()
        now = self._clock.now()
        wait = self._longest if self._at is None else (self._at - now).total_seconds()
        wait = max(0.0, min(wait, self._longest))
        self._sleep = self._loop.call_later(wait, self._get_up, now, self._loop.time())

    def _get_up(self, wall: datetime, monotonic: float) -> None:
        now = self._clock.now()
        drift = (now - wall).total_seconds() - (self._loop.time() - monotonic)
        due = self._at is not None and self._at <= now
        if due:
            self._at = None  # it rings once; whoever wants more sets it again
        self._lie_down()
        if abs(drift) > STEP:
            self._stepped()
        elif due:
            self._rang()


# --- system calls ----------------------------------------------------------------------------------


class TimerCalls(Protocol):
    """The calls a KernelTimer makes."""

    def create(self) -> int:
        """Return a new descriptor."""

    def settime(self, fd: int, nanoseconds: int) -> None:
        """Ring at this absolute instant; OSError, with ECANCELED although it is armed."""

    def read(self, fd: int) -> None:
        """Take note that it rang; OSError, with ECANCELED if the clock was set."""


def system_calls() -> TimerCalls:
    """Return the standard library's calls, which it has from 3.13 on, else libc's."""
    return StandardCalls() if hasattr(os, "timerfd_create") else LibcCalls()


class _Reads:
    def read(self, fd: int) -> None:
        os.read(fd, 8)


class StandardCalls(_Reads):
    """`os.timerfd_*`."""

    def create(self) -> int:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        fd: int = os.timerfd_create(time.CLOCK_REALTIME, flags=flags)  # type: ignore[attr-defined]  # from 3.13 on
        return fd

    def settime(self, fd: int, nanoseconds: int) -> None:
        flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        os.timerfd_settime_ns(fd, flags=flags, initial=nanoseconds, interval=0)  # type: ignore[attr-defined]


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class LibcCalls(_Reads):
    """timerfd by ctypes."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def create(self) -> int:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        return self._checked(self._libc.timerfd_create(time.CLOCK_REALTIME, flags))

    def settime(self, fd: int, nanoseconds: int) -> None:
        flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(*divmod(nanoseconds, SECOND)))
        self._checked(self._libc.timerfd_settime(fd, flags, ctypes.byref(spec), None))

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result
