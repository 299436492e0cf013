"""What routines mean on this machine: when they run, in which zone, and whether they are for it at all."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from daemon.definitions import parse_duration
from daemon.routines import KINDS, Routine
from daemon.schedule import CatchUp, Schedule, spread_offset


class Almanac:
    """Knows this machine and its zone."""

    def __init__(self, *, zone: str, machine: str, host: str, anywhere: bool = False) -> None:
        self.zone = zone
        """Of routines that name none."""
        self._machine, self._host = machine, host
        self._anywhere = anywhere
        """What this daemon starts may live on any machine of several."""

    def schedule(self, routine: Routine) -> Schedule:
        """Return when a routine runs, whether it is enabled or not."""
        return schedule_of(routine, zone=self.zone, machine=self._machine)

    def words(self, routine: Routine) -> str:
        """Return in English when a routine runs."""
        words, number = self.schedule(routine).words(routine.trigger.event_words), routine.gate.moments
        if number:
            words = f"at {f'{number} random moments' if number > 1 else 'a random moment'} of a day ({words})"
        elsewhere = self.elsewhere(routine)
        return f"{words}; {elsewhere}" if elsewhere else words

    def is_here(self, routine: Routine) -> bool:
        """Tell whether a routine starts on this host."""
        return self._anywhere or self.may_live_here(routine)

    def may_live_here(self, routine: Routine) -> bool:
        """Tell whether a routine is for this host, by its full name or by the name before the first dot."""
        return named(routine.trigger.machines, self._host)

    def elsewhere(self, routine: Routine) -> str:
        """Return why a routine does not start on this machine; empty if it does."""
        if self.is_here(routine):
            return ""
        return f"not on this machine: {self._host} is none of {', '.join(routine.trigger.machines)}"


def named(globs: Collection[str], host: str) -> bool:
    """Tell whether these globs name a host, by its full name or by the name before the first dot; none name all."""
    names = {host.lower(), host.lower().partition(".")[0]}
    return not globs or any(fnmatchcase(name, glob.lower()) for glob in globs for name in names)


def schedule_of(routine: Routine, *, zone: str, machine: str = "") -> Schedule:
    """Return the schedule of a routine; `zone` is the one it has if it names none."""
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


def starts_by_itself(routine: Routine) -> bool:
    """Tell whether anything but a person starts a routine."""
    return routine.trigger.on_start or any(getattr(routine.trigger, kind) for kind in KINDS)
