"""The schedule of a routine, and whether a host may run it."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from daemon.definitions.routines.routine import Routine
from daemon.definitions.routines.rules import TRIGGER_KEYS
from daemon.definitions.schedule import CatchUp, Schedule, spread_offset
from daemon.definitions.values import parse_duration


def matches_host(globs: Collection[str], host: str) -> bool:
    """Tell whether any of these globs (`machines`) matches a host: its full name, or the part
    before the first dot. No globs match every host.
    """
    host = host.lower()
    host_names = {host, host.partition(".")[0]}
    return not globs or any(
        fnmatchcase(name, glob.lower()) for glob in globs for name in host_names
    )


def schedule_of(routine: Routine, *, zone: str, machine: str = "") -> Schedule:
    """Return the schedule of a routine.

    `zone` is for routines that name no time zone; `machine` is the machine id, which `spread`
    depends on.
    """
    trigger = routine.trigger
    catch_up: CatchUp = "once" if trigger.catch_up == "once" else "none"
    if trigger.catch_up not in ("once", "none"):
        catch_up = parse_duration(trigger.catch_up)
    return Schedule.of(
        timezone=trigger.timezone or zone,
        cron=trigger.cron,
        every=trigger.every,
        at=trigger.at,
        on_start=trigger.on_start,
        catch_up=catch_up,
        delay=spread_offset(routine.name, trigger.spread, machine),
        active_hours=trigger.active_hours,
        active_days=trigger.active_days,
    )


def starts_unattended(routine: Routine) -> bool:
    """Tell whether anything but a person starts a routine."""
    return routine.trigger.on_start or any(getattr(routine.trigger, kind) for kind in TRIGGER_KEYS)
