"""`agentctl observe`: a trial of a routine, written into policy.toml once the change was shown."""

from __future__ import annotations

import difflib
import sys
from argparse import Namespace
from datetime import datetime, timedelta
from typing import TextIO

from daemon.app.commands.policy_files import PolicyFiles
from daemon.definitions.values import InvalidValue, format_duration, parse_duration
from daemon.definitions.words import did_you_mean, display
from daemon.errors import ConfigError, Fault, NotFound, Refused
from daemon.policy.authoring.policy_text import remove_trial, set_trial

REFUSED = 5  # as `agentctl approve --remember` ends where nobody can be asked


def observe(files: PolicyFiles, options: Namespace) -> int:
    """Begin the trial of a routine, or with `--stop` end it; show the change first, and ask."""
    routine = options.routine
    policy = files.load()
    old_text = policy.text
    section = policy.routines.get(routine)
    if options.stop:
        if section is None or section.mode != "observe":
            raise NotFound(f"{routine} is not observed; `agentctl list` shows what is")
        new_text = remove_trial(old_text, routine)
    else:
        _check_exists(files, routine)
        duration = _duration(options.duration)
        now = datetime.now().astimezone()
        end = (now + duration + timedelta(seconds=59)).replace(second=0, microsecond=0)
        new_text = set_trial(old_text, routine, end)
    files.make_reader()(new_text)
    name = files.config.policy_path.name
    lines = difflib.unified_diff(
        old_text.splitlines(), new_text.splitlines(), name, name, lineterm=""
    )
    out = sys.stderr if files.as_json else sys.stdout
    out.write("\n".join(lines) + "\n\n")
    keep = files.config.keep.steps
    if not options.stop and keep is not None and duration > keep:
        out.write(
            f"Calls are kept for {format_duration(keep)} only ([keep] steps): run `agentctl policy "
            f"suggest {routine}` before that.\n"
        )
    if not options.yes and not _is_agreed(out, has_terminal=not files.as_json):
        return REFUSED
    files.write_policy(old_text, new_text)
    path = display(files.config.policy_path)
    if options.stop:
        text = f"{path} is written; {routine} is not observed any more"
        value = {"routine": routine, "mode": "enforce", "until": None}
    else:
        text = (
            f"{path} is written; {routine} is observed until {end:%Y-%m-%d %H:%M}, then: agentctl "
            f"policy suggest {routine}"
        )
        value = {"routine": routine, "mode": "observe", "until": end.isoformat()}
    files.print_result(value, text)
    return 0


def _check_exists(files: PolicyFiles, name: str) -> None:
    names = {routine.name for routine in files.load_routines()}
    if files.is_made_by_agent(name):
        raise Refused(
            f"an agent made {name}, which has the rights of its maker: observe that one, or make "
            f"this one yours: agentctl adopt {name}"
        )
    if names and name not in names:
        raise NotFound(f"there is no routine {name!r}; {did_you_mean(name, sorted(names))}")


def _duration(text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except InvalidValue as error:
        problem, hint = str(error), error.hint
    else:
        if duration >= timedelta(minutes=1):
            return duration
        problem, hint = "is too short for a trial", 'like "7d" or "12h"'
    raise ConfigError(Fault(file="--for", key="", found=text, problem=problem, hint=hint))


def _is_agreed(out: TextIO, *, has_terminal: bool) -> bool:
    """Ask whether the change is to be written; False where nobody can be asked."""
    if not (has_terminal and sys.stdin.isatty() and sys.stdout.isatty()):
        out.write("Nothing was written. With --yes it will be.\n")
        return False
    sys.stdout.write("Write this into policy.toml? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    out.write("Nothing was written.\n")
    return False
