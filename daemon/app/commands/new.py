"""`agentd new`: write a routine from a schedule in plain words, as the person who asked for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import tomli_w

from daemon.definitions.config.config import Config
from daemon.definitions.routines.folder import routine_of, write_new
from daemon.definitions.routines.routine import Routine
from daemon.definitions.routines.rules import reference_checks
from daemon.definitions.schedule import Schedule
from daemon.definitions.schedule_text import UnclearSchedule, parse_schedule_text
from daemon.definitions.words import display
from daemon.errors import ConfigError, Refused
from daemon.scheduler.routine_times import schedule_of
from daemon.system.clock import dated, host_zone

FIRES_SHOWN = 3
NOT_WRITTEN_YET = """
This routine is not written yet. Say so in one sentence, and that its prompt stands in {file}.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRoutine:
    """A routine file, before it is written."""

    path: Path
    text: str
    schedule: Schedule
    now: datetime

    @property
    def fires(self) -> list[datetime]:
        """The next slots, in the schedule's zone."""
        fires, moment = list[datetime](), self.now
        while len(fires) < FIRES_SHOWN and (slot := self.schedule.next_active(moment)):
            fires.append(slot.astimezone(self.schedule.zone))
            moment = slot
        return fires


def compose(
    config: Config, name: str, schedule: str, *, prompt: str | None, now: datetime
) -> NewRoutine:
    """Return a new routine; Refused, with examples, if its schedule cannot be understood."""
    path = config.routines_path / f"{name}.toml"
    if path.name != f"{name}.toml" or "\0" in name:
        raise Refused(f"{name!r} is no name: a routine's name is made of a-z, 0-9 and -")
    zone = ZoneInfo(config.timezone or host_zone())
    try:
        trigger = parse_schedule_text(schedule, zone)
    except UnclearSchedule as error:
        raise Refused(str(error)) from None
    task = prompt.strip() if prompt else NOT_WRITTEN_YET.format(file=display(path)).strip()
    data: dict[str, Any] = {"trigger": trigger, "run": {"prompt": task}}
    when = schedule_of(_read_routine(data, path, config), zone=zone.key)
    data["deliver"] = [{"to": "file", "path": _report_path(when, now)}]
    _read_routine(data, path, config)
    text = f"# {' '.join(schedule.split())}\n{tomli_w.dumps(data, multiline_strings=True)}"
    return NewRoutine(path=path, text=text, schedule=when, now=now)


def _read_routine(data: Mapping[str, Any], path: Path, config: Config) -> Routine:
    """Return the routine as the daemon would read it; Refused if its schedule has a fault."""
    try:
        return routine_of(
            data, path, rules=reference_checks(config.provider_names, targets=config.target_names)
        )
    except ConfigError as error:
        raise Refused(str(error)) from None


def _report_path(schedule: Schedule, now: datetime) -> str:
    """Return where reports go: a file a day, or one for each run where there are several a day."""
    first = schedule.next(now)
    daily = first is None or (schedule.period(first) or timedelta.max) >= timedelta(hours=23)
    return (
        f"reports/{{routine}}/{{slot:"
        f"{'%Y-%m-%d' if daily and not schedule.on_start else '%Y-%m-%d-%H%M%S'}}}.md"
    )


def write(routine: NewRoutine) -> None:
    """Write the file, whole or not at all; Refused if there is one already."""
    write_new(routine.path, routine.text)


def describe(routine: NewRoutine, *, json: bool) -> str:
    """Return which file was written, and when its routine runs."""
    file, fires = os.fspath(routine.path), routine.fires
    if json:
        from json import dumps

        return dumps(
            {
                "file": file,
                "words": routine.schedule.words(),
                "next": [slot.isoformat() for slot in fires],
            }
        )
    lines = f"wrote {file}\nit runs {routine.schedule.words()}"
    if not fires:
        return lines
    starts = ", ".join(f"{dated(slot, routine.now)} {slot:%Z}" for slot in fires)
    return f"{lines}; next: {starts}"
