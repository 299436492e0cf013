"""`agentctl service install | uninstall`: a systemd unit for this installation, shown before it is
written.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.app.commands.init import shipped_folder, with_command
from daemon.definitions.paths import user_home
from daemon.errors import NotFound, Refused

# The first words of each unit that agentd ships: others are neither replaced nor removed.
_FIRST_WORDS = "# agentd for "


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitPlan:
    """What installing a unit would write and run."""

    system: bool
    unit: Path
    text: str
    folders: tuple[Path, ...]
    """Folders that are made if they are missing."""
    commands: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Everything that would happen, with the whole unit."""
        return "\n".join([f"--- {self.unit}", *self.text.splitlines(), "---", *self._further_lines])

    @property
    def summary(self) -> str:
        """What would happen, for a person to read before a question."""
        first_line = f"write {self.unit} ({len(self.text.splitlines())} lines; --print shows them)"
        return "\n".join([first_line, *self._further_lines])

    @property
    def _further_lines(self) -> list[str]:
        lines = [f"mkdir {folder}" for folder in self.folders if not folder.is_dir()]
        lines += [f"run   {' '.join(command)}" for command in self.commands]
        return [*lines, *self.notes]


def plan_unit(
    *, system: bool, config: Path, home: Path | None = None, user: str | None = None
) -> UnitPlan:
    """Return what `install` would do; raise Refused without systemd, or without root for
    `system`.
    """
    home = home or user_home()
    if not shutil.which("systemctl"):
        raise Refused(
            "there is no systemctl here: agentd has units for systemd, and a plist for launchd in "
            "systemd/"
        )
    if system and os.geteuid() != 0:
        raise Refused(
            "a unit for the whole machine takes root: sudo agentctl service install --system"
        )
    name = "agentd.service" if system else "agentd-user.service"
    text = with_command((shipped_folder() / "systemd" / name).read_text("utf-8"), config)
    if system:
        unit, folders = Path("/etc/systemd/system/agentd.service"), (Path("/etc/agentd"),)
        notes = _system_notes(config)
    else:
        unit = home / ".config/systemd/user/agentd.service"
        folders, notes = (home / ".local/state/agentd",), _linger_notes(user or own_name(home))
    systemctl = ("systemctl",) if system else ("systemctl", "--user")
    commands = ((*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", "agentd.service"))
    return UnitPlan(
        system=system, unit=unit, text=text, folders=folders, commands=commands, notes=notes
    )


def _system_notes(config: Path) -> tuple[str, ...]:
    if config.is_relative_to("/etc/agentd"):
        return ()
    note = (
        f"note: it would read {config}, and the unit sees no homes (ProtectHome): better keep "
        "config, policy and"
    )
    return (note, "routines in /etc/agentd")


def own_name(home: Path) -> str:
    """Return the name of this user; without an account, that of the home folder."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return home.name


def _linger_notes(user: str) -> tuple[str, ...]:
    """Return lines that say what lingering is and how to switch it on; none if it is on."""
    if (Path("/var/lib/systemd/linger") / user).exists():
        return ()
    note = (
        "note: systemd ends your services when you log out, and starts them when you log in. To "
        "let agentd run while"
    )
    return (note, "nobody is logged in, once: loginctl enable-linger")


def install(unit_plan: UnitPlan, *, run: bool = True) -> list[str]:
    """Write the unit and start it; return what was done.

    Refused if another unit of that name is there.
    """
    unit = unit_plan.unit
    if unit.exists() and not unit.read_text("utf-8", "replace").startswith(_FIRST_WORDS):
        raise Refused(f"{unit} is there and none of ours; move it away first")
    lines = []
    try:
        for folder in (*unit_plan.folders, unit.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o755 if unit_plan.system else 0o700)
        temporary_file = unit.with_name(f".{unit.name}.part")
        temporary_file.write_text(unit_plan.text, "utf-8")
        temporary_file.chmod(0o644)
        temporary_file.replace(unit)
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}") from error
    lines.append(f"wrote {unit}")
    if run:
        lines += [_run(command) for command in unit_plan.commands]
    return lines


def uninstall(*, system: bool, home: Path | None = None, run: bool = True) -> list[str]:
    """Stop the service and remove its unit; state and definitions stay. NotFound, Refused."""
    folder = (
        Path("/etc/systemd/system") if system else (home or user_home()) / ".config/systemd/user"
    )
    unit = folder / "agentd.service"
    if not unit.is_file():
        raise NotFound(f"{unit} is not there")
    if not unit.read_text("utf-8", "replace").startswith(_FIRST_WORDS):
        raise Refused(f"{unit} is none of ours; it was left as it is")
    run = run and shutil.which("systemctl") is not None  # without systemd nothing is to be stopped
    systemctl = ("systemctl",) if system else ("systemctl", "--user")
    lines = [_run((*systemctl, "disable", "--now", "agentd.service"))] if run else []
    try:
        unit.unlink()
    except OSError as error:
        raise Refused(f"{unit}: {error.strerror}") from error
    lines.append(f"removed {unit}")
    if run:
        lines.append(_run((*systemctl, "daemon-reload")))
    return [*lines, "state, config, policy and routines were left as they are"]


def _run(command: Sequence[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        output = (process.stderr or process.stdout).strip().splitlines()
        reason = output[-1] if output else f"exit {process.returncode}"
        raise Refused(f"`{' '.join(command)}` failed: {reason}")
    return f"ran {' '.join(command)}"


def confirm(question: str) -> bool:
    """Ask the person at the terminal; return False where there is none."""
    if not sys.stdin.isatty():
        return False
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
