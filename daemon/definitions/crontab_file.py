"""Read a crontab as values: what each of its lines says, or why it cannot be read.

Sources: crontab(5) of Debian's cron and of cronie. Where the two differ, the line is read as cronie
reads it: `CRON_TZ` is the zone of the lines below it, and a `-` before the minute, which keeps a
job out of syslog, is left out.

Not here: when a schedule fires (cron.py), and what becomes of a command
(app/commands/import_crontab.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from daemon.definitions import cron

# `NAME = value`, each in quotes or without.
_VARIABLE = re.compile(
    r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s="']+))\s*=\s*(?P<value>.*)"""
)
_PERCENT = re.compile(r"\\%|%")
_SYSTEM_FIELDS = 6  # five of the schedule, and the user
_REBOOT = "@reboot"


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabJob:
    """A line that runs a command."""

    line: int
    """Counted from 1."""
    text: str
    """The line as it stands in the file."""
    schedule: str
    """Five fields, a nickname such as @daily, or @reboot."""
    user: str
    """Whose job it is; empty in a user's own crontab, which does not say so."""
    command: str
    """What the shell is given."""
    stdin: str | None
    """What the command reads: all behind the first `%`. None without one."""
    variables: dict[str, str] = field(default_factory=dict)
    """The variables set above the line, `MAILTO` and `CRON_TZ` too."""

    @property
    def is_at_start(self) -> bool:
        """It runs when the machine starts, not by the clock."""
        return self.schedule == _REBOOT


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabVariable:
    """A line that sets a variable for the lines below it."""

    line: int
    name: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabFault:
    """A line that cannot be read."""

    line: int
    text: str
    problem: str
    """In one sentence, with what to write instead."""


@dataclass(frozen=True, slots=True)
class CrontabFile:
    """All lines of a crontab that say something."""

    jobs: tuple[CrontabJob, ...]
    variables: tuple[CrontabVariable, ...]
    faults: tuple[CrontabFault, ...]


def parse_crontab(text: str, *, has_users: bool = False) -> CrontabFile:
    """Read a crontab. With `has_users` a user stands before each command, as in /etc/crontab."""
    jobs: list[CrontabJob] = []
    variables: list[CrontabVariable] = []
    faults: list[CrontabFault] = []
    values: dict[str, str] = {}
    for number, raw_line in enumerate(text.split("\n"), 1):
        line = raw_line.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        if variable := _VARIABLE.fullmatch(line):
            name = variable["double"] or variable["single"] or variable["bare"] or ""
            value = _unquote(variable["value"].strip())
            values = {**values, name: value}
            variables.append(CrontabVariable(line=number, name=name, value=value))
            continue
        try:
            schedule, user, command = _split_job(line, has_users=has_users)
        except ValueError as error:
            faults.append(CrontabFault(line=number, text=line, problem=str(error)))
            continue
        command, stdin = _split_stdin(command)
        jobs.append(
            CrontabJob(
                line=number,
                text=line,
                schedule=schedule,
                user=user,
                command=command,
                stdin=stdin,
                variables=values,
            )
        )
    return CrontabFile(tuple(jobs), tuple(variables), tuple(faults))


def _unquote(value: str) -> str:
    """Return a value without the quotes around it; one quote alone stays."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _split_job(line: str, *, has_users: bool) -> tuple[str, str, str]:
    """Return (schedule, user, command). Raises ValueError with what is wrong."""
    count = 1 if line.startswith("@") else _SYSTEM_FIELDS - 1
    words = re.split(r"[ \t]+", line, maxsplit=count + has_users)
    schedule = " ".join(words[:count]).removeprefix("-")
    remainder = words[count:]
    if len(words) < count or not "".join(remainder):
        missing = "a schedule of five fields and a command" if count > 1 else "a command"
        raise ValueError(f"it is neither NAME=value nor {missing}")
    if schedule.lower() == _REBOOT:
        schedule = _REBOOT
    else:
        try:
            cron.parse(schedule)
        except cron.CronError as error:
            raise ValueError(_explain_schedule(schedule, error)) from None
    user = remainder.pop(0) if has_users else ""
    command = "".join(remainder).strip()
    if not command or command.startswith("%"):
        raise ValueError("it has a user, but no command" if has_users else "it has no command")
    return schedule, user, command


def _explain_schedule(schedule: str, error: cron.CronError) -> str:
    if "~" in schedule:
        return (
            f"{error.field} {error.text!r} is drawn by chance, which agentd does not do: write one "
            'minute, and in the routine\'s [trigger] a fixed delay like spread = "30m"'
        )
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error.field} {error.text!r} {error.problem}{hint}"


def _split_stdin(command: str) -> tuple[str, str | None]:
    r"""Return (command, stdin): the first `%` ends the command, later ones are newlines, and `\%`
    is a percent sign.
    """
    parts = [""]
    end = 0
    for percent in _PERCENT.finditer(command):
        parts[-1] += command[end : percent.start()]
        if percent[0] == "%":
            parts.append("")
        else:
            parts[-1] += "%"
        end = percent.end()
    parts[-1] += command[end:]
    head, *lines = parts
    return head.strip(), "\n".join(lines) + "\n" if lines else None
