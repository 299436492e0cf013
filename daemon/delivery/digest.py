"""The digest: what all routines did in a day or a week, in one line and without a model: "47
checks, 46 quiet, 1 alert, 0 missed, $0.03".
"""

from __future__ import annotations

import asyncio
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog

from daemon.definitions.config.live import LiveConfig
from daemon.definitions.config.tables import DigestConfig
from daemon.plurals import pluralize
from daemon.store.history import DigestTotals, RoutineDigest
from daemon.store.journal import Journal

if TYPE_CHECKING:
    from daemon.delivery.outbox import Outbox
    from daemon.system.clock import Clock

log = structlog.get_logger()

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Timers stand still while a machine sleeps, the wall clock does not: so the wall clock is read
# again at least this often (seconds).
_LONGEST_SLEEP = 3600.0


def last_due(config: DigestConfig, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the last moment up to `now` at which a digest is due: always at the same wall-clock
    time, also across changes to summer time.
    """
    hour, minute = map(int, config.at.split(":"))
    day = now.astimezone(zone).date()
    while True:
        moment = datetime.combine(day, time(hour, minute), zone)
        if moment <= now and (config.every == "day" or day.weekday() == _DAYS.index(config.day)):
            return moment
        day -= timedelta(days=1)


def next_due(config: DigestConfig, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment after `now` at which a digest is due."""
    previous_end = last_due(config, now, zone)
    return datetime.combine((previous_end + _period(config)).date(), previous_end.timetz(), zone)


def _period(config: DigestConfig) -> timedelta:
    return timedelta(days=1 if config.every == "day" else 7)


def digest_line(totals: DigestTotals) -> str:
    """Return the totals of all routines in one line."""
    routines = totals.routines
    counts = [
        pluralize(sum(routine.runs for routine in routines), "check"),
        f"{sum(routine.quiet for routine in routines)} quiet",
        pluralize(sum(routine.failures for routine in routines), "alert"),
        f"{sum(routine.missed for routine in routines)} missed",
    ]
    if totals.undelivered:
        counts.append(f"{pluralize(totals.undelivered, 'report')} not delivered")
    return ", ".join([*counts, f"${totals.dollars:.2f}"])


def digest_body(totals: DigestTotals, start: datetime, end: datetime) -> str:
    """Return the line of all routines, then a line per routine; routines of which every run was
    quiet share one.
    """
    quiet_routines = [
        routine
        for routine in totals.routines
        if routine.runs == routine.quiet and not routine.missed
    ]
    lines = [
        f"- {_routine_line(routine)}"
        for routine in totals.routines
        if routine not in quiet_routines
    ]
    if quiet_routines:
        lines.append(f"- quiet: {', '.join(routine.routine for routine in quiet_routines)}")
    period = f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}"
    return "\n".join([digest_line(totals), "", period, "", *(lines or ["- nothing ran"])])


def _routine_line(routine: RoutineDigest) -> str:
    counts = [
        pluralize(number, noun)
        for number, noun in ((routine.runs, "run"), (routine.failures, "alert"))
        if number
    ]
    counts += [
        f"{number} {adjective}"
        for number, adjective in ((routine.quiet, "quiet"), (routine.missed, "missed"))
        if number
    ]
    return f"{routine.routine}: {', '.join(counts)}"


class Digest:
    """Sends the digest when it is due. One that was due while the daemon did not run is sent at the
    next start.
    """

    def __init__(
        self, journal: Journal, outbox: Outbox, *, clock: Clock, settings: LiveConfig
    ) -> None:
        self._journal = journal
        self._outbox = outbox
        self._clock = clock
        self._settings = settings

    async def run(self) -> None:
        """Send each digest when it is due, until cancelled."""
        while True:
            delay = _LONGEST_SLEEP
            if self._settings.config.digest.every is not None:
                await self.send_if_due()
                moment = next_due(
                    self._settings.config.digest, self._clock.now(), self._settings.zone
                )
                delay = min(delay, max(1.0, (moment - self._clock.now()).total_seconds()))
            await asyncio.sleep(delay)

    async def send_if_due(self) -> None:
        """Put a digest of all that happened since the previous one into the outbox, if one is
        due.
        """
        config, zone = self._settings.config.digest, self._settings.zone
        end = last_due(config, self._clock.now(), zone)
        previous_end = await self._journal.outbox.get_digest_mark()
        if previous_end is not None and previous_end >= end:
            return
        start = previous_end or end - _period(config)
        totals = await self._journal.history.summarize(start, end)
        text = digest_body(totals, start.astimezone(zone), end.astimezone(zone))
        # A first digest would report on the time before the daemon was installed.
        targets = config.to if previous_end or totals.routines else ()
        line = digest_line(totals)
        await self._journal.outbox.add_digest(targets, line, text, until=end, zone=zone.key)
        log.info("digest.sent", line=line, to=list(targets))
        self._outbox.wake()
