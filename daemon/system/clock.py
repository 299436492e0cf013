"""The wall clock, the time zone of this host, and the machine id."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from datetime import time as time_of_day
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Clock(Protocol):
    """The wall clock. Tests use a fake one, `daemon.testing.FakeClock`."""

    def now(self) -> datetime:
        """Return the present instant, in UTC."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def seconds_since_boot() -> float:
    """Return seconds that nobody can set, and that go on while the machine is suspended."""
    # CLOCK_MONOTONIC stands still then; macOS, which lacks CLOCK_BOOTTIME, has no other
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


async def wait_until(instant: datetime | None, event: asyncio.Event, clock: Clock) -> None:
    """Wait until `instant`, or until `event` is set if that is earlier; None: for `event` only.

    The event loop counts seconds and does not follow the wall clock, so `event` has to be set when
    the clock was set.
    """
    seconds = None if instant is None else max(0.0, (instant - clock.now()).total_seconds())
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def midnight(now: datetime, zone: tzinfo) -> datetime:
    """Return when the local day of `now` began in a zone.

    If the clocks go back at midnight, there are two midnights: the first of them.
    """
    return datetime.combine(now.astimezone(zone).date(), time_of_day(), zone)


def format_date_time(moment: datetime, now: datetime) -> str:
    """Return the date and time of a local moment as text, with the year if it is not the year of
    `now`.
    """
    year = "" if moment.year == now.astimezone(moment.tzinfo).year else " %Y"
    return moment.strftime(f"%a %d %b{year} %H:%M")


def host_zone(env: Mapping[str, str] | None = None, root: Path = Path("/")) -> str:
    """Return the name of the host's time zone; UTC if the zone database does not know it."""
    for name in _zone_names(os.environ if env is None else env, root):
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder such as Europe
            continue
        return "UTC" if name in ("Etc/UTC", "Etc/UCT", "UCT", "Zulu") else name
    return "UTC"


def _zone_names(env: Mapping[str, str], root: Path) -> Iterator[str]:
    if zone := env.get("TZ", "").removeprefix(":"):
        yield zone.rpartition("zoneinfo/")[2]  # TZ may be a path
    # The link is what libc follows. Debian keeps /etc/timezone beside it, and a hand-made link
    # leaves that one stale.
    try:
        target = (root / "etc/localtime").readlink()
    except OSError:
        pass  # missing, or a copy that names nothing
    else:
        yield str(target).rpartition("zoneinfo/")[2].removeprefix("posix/")
    try:
        lines = (root / "etc/timezone").read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    yield from (line.strip() for line in lines if line.strip() and not line.startswith("#"))


def machine_id(root: Path = Path("/")) -> str:
    """Return an id of this machine that stays the same after every boot; without one the host
    name.
    """
    for path in ("etc/machine-id", "var/lib/dbus/machine-id"):
        try:
            text = (root / path).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        # machine-id(5): what an image holds before its first boot
        if text and text != "uninitialized":
            return text
    return platform.node()
