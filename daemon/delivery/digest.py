"""The ledger in a line, by day or by week, without a model: "47 checks, 46 quiet, 1 alert, 0
missed, $0.03".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import structlog

from daemon.definitions.config.live import LiveConfig
from daemon.definitions.config.tables import DigestConfig
from daemon.store.digests import DigestTotals, RoutineDigest
from daemon.store.journal import Journal

log = structlog.get_logger()

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# A machine that slept has lost none of its clock, but timers count only what it was awake: look
# again at times.
_LOOK = 3600.0


def latest(wanted: DigestConfig, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the last moment up to now at which a digest is due; at the same hour by the wall,
    whatever summer does.
    """
    hour, minute = map(int, wanted.at.split(":"))
    day = now.astimezone(zone).date()
    while True:
        due = datetime.combine(day, time(hour, minute), zone)
        if due <= now and (wanted.every == "day" or day.weekday() == _DAYS.index(wanted.day)):
            return due
        day -= timedelta(days=1)


def following(wanted: DigestConfig, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the next moment at which a digest is due."""
    step = timedelta(days=1 if wanted.every == "day" else 7)
    last = latest(wanted, now, zone)
    return datetime.combine((last + step).date(), last.timetz(), zone)


def line(found: DigestTotals) -> str:
    """Return what happened in one line."""
    runs = sum(each.runs for each in found.routines)
    told = [
        _counted(runs, "check"),
        f"{sum(each.quiet for each in found.routines)} quiet",
        _counted(sum(each.alerts for each in found.routines), "alert"),
        f"{sum(each.missed for each in found.routines)} missed",
    ]
    if found.undelivered:
        told.append(f"{_counted(found.undelivered, 'report')} not delivered")
    return ", ".join([*told, f"${found.dollars:.2f}"])


def body(found: DigestTotals, since: datetime, until: datetime) -> str:
    """Return a line per routine; those that were only quiet share one."""
    dull = [each for each in found.routines if each.runs == each.quiet and not each.missed]
    lines = [f"- {_of(each)}" for each in found.routines if each not in dull]
    if dull:
        lines.append(f"- quiet: {', '.join(each.routine for each in dull)}")
    span = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M %Z}"
    return "\n".join([line(found), "", span, "", *(lines or ["- nothing ran"])])


def _of(each: RoutineDigest) -> str:
    parts = [(each.runs, "run"), (each.alerts, "alert")]
    told = [_counted(number, thing) for number, thing in parts if number]
    told += [
        f"{number} {word}"
        for number, word in ((each.quiet, "quiet"), (each.missed, "missed"))
        if number
    ]
    return f"{each.routine}: {', '.join(told)}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


class Digest:
    """Tells the digest when it is due; one that came due while nobody was there is told at the next
    start.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        now: Callable[[], datetime],
        settings: LiveConfig,
        wake: Callable[[], None],
    ) -> None:
        self._journal, self._now, self._settings, self._wake = journal, now, settings, wake

    async def run(self) -> None:
        """Sleep until the next one is due, and tell it."""
        while True:
            rest = _LOOK
            if self._settings.config.digest.every is not None:
                await self.tell()
                due = following(self._settings.config.digest, self._now(), self._settings.zone)
                rest = min(rest, max(1.0, (due - self._now()).total_seconds()))
            await asyncio.sleep(rest)

    async def tell(self) -> None:
        """Tell what happened since the last digest, if one is due."""
        wanted, zone = self._settings.config.digest, self._settings.zone
        until = latest(wanted, self._now(), zone)
        told = await self._journal.digest_told()
        if told is not None and told >= until:
            return
        step = timedelta(days=1 if wanted.every == "day" else 7)
        since = told or until - step
        found = await self._journal.stretch(since, until)
        text = body(found, since.astimezone(zone), until.astimezone(zone))
        # of a time before there was a daemon there is nothing to tell
        targets = wanted.to if told or found.routines else ()
        await self._journal.tell_digest(targets, line(found), text, until=until, zone=zone.key)
        log.info("digest.told", line=line(found), to=list(targets))
        self._wake()
