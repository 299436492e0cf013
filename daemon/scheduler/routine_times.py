"""The schedule of a routine, and whether a host may run it."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from daemon.definitions.routines.routine import Routine, Trigger
from daemon.definitions.schedule import Schedule, spread_offset
from daemon.definitions.skipped_days import SkippedTime, is_calendar, parse_dates


def matches_host(globs: Collection[str], host: str) -> bool:
    """Tell whether any of these globs (`machines`) matches a host: its full name, or the part
    before the first dot. No globs match every host.
    """
    host = host.lower()
    host_names = {host, host.partition(".")[0]}
    return not globs or any(
        fnmatchcase(name, glob.lower()) for glob in globs for name in host_names
    )


def _skipped_times(routine: Routine, trigger: Trigger) -> tuple[SkippedTime, ...]:
    """Return what a trigger skips; without the calendars that were not read."""
    times: list[SkippedTime] = []
    for text in trigger.skip or ():
        if is_calendar(text):
            times += [calendar for calendar in routine.calendars if calendar.path == text]
        else:
            times.append(parse_dates(text))
    return tuple(times)


def schedule_of(routine: Routine, *, zone: str, machine: str = "") -> Schedule:
    """Return the schedule of a routine.

    `zone` is for routines that name no time zone; `machine` is the machine id, which `spread`
    depends on.
    """
    delay = spread_offset(routine.name, routine.spread, machine)
    schedules = []
    for trigger in routine.triggers:
        schedule = Schedule.of(
            timezone=trigger.timezone or zone,
            cron=trigger.cron,
            every=trigger.every,
            at=trigger.at,
            on_start=trigger.on_start,
            catch_up=trigger.catch_up,
            delay=delay,
            active_hours=trigger.active_hours,
            active_days=trigger.active_days,
        )
        if trigger.skip:
            schedule = schedule.skipping(*_skipped_times(routine, trigger))
        schedules.append(schedule)
    if len(schedules) == 1:
        return schedules[0]
    return Schedule.union(tuple(schedules), zone=routine.timezone or zone)
