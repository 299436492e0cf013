"""`agentctl service install | uninstall`: a systemd unit for this very installation, shown before
it is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.app.commands.init import shipped, with_command
from daemon.definitions.paths import user_home
from daemon.errors import NotFound, Refused

_OURS = "# agentd for "


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What an installation is made of."""

    system: bool
    unit: Path
    text: str
    folders: tuple[Path, ...]
    """Made if they are not there."""
    commands: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Everything that would happen, for a person to read first."""
        lines = [f"--- {self.unit}", *self.text.splitlines(), "---"]
        lines += [f"mkdir {folder}" for folder in self.folders if not folder.is_dir()]
        lines += [f"run   {' '.join(command)}" for command in self.commands]
        return "\n".join([*lines, *self.notes])


def plan(*, system: bool, config: Path, home: Path | None = None, user: str | None = None) -> Plan:
    """Return what `install` would do; Refused where there is no systemd, or not the right to it."""
    home = home or user_home()
    if not shutil.which("systemctl"):
        raise Refused(
            (  # noqa: UP034
                "there is no systemctl here: agentd has units for systemd, and a plist for launchd "
                "in systemd/"
            )
        )
    if system and os.geteuid() != 0:
        raise Refused(
            "a unit for the whole machine takes root: sudo agentctl service install --system"
        )
    name = "agentd.service" if system else "agentd-user.service"
    text = with_command((shipped() / "systemd" / name).read_text("utf-8"), config)
    if system:
        unit, folders = Path("/etc/systemd/system/agentd.service"), (Path("/etc/agentd"),)
        notes = _of_system(config)
    else:
        unit = home / ".config/systemd/user/agentd.service"
        folders, notes = (home / ".local/state/agentd",), _of_linger(user or home.name)
    ctl = ("systemctl",) if system else ("systemctl", "--user")
    commands = ((*ctl, "daemon-reload"), (*ctl, "enable", "--now", "agentd.service"))
    return Plan(
        system=system, unit=unit, text=text, folders=folders, commands=commands, notes=notes
    )


def _of_system(config: Path) -> tuple[str, ...]:
    if config.is_relative_to("/etc/agentd"):
        return ()
    told = (
        f"note: it would read {config}, and the unit sees no homes (ProtectHome): better keep "
        "config, policy and"
    )
    return (told, "routines in /etc/agentd")


def _of_linger(user: str) -> tuple[str, ...]:
    """Say what lingering is, unless it is on."""
    if (Path("/var/lib/systemd/linger") / user).exists():
        return ()
    return (
        (
            "note: systemd ends your services when you log out, and starts them when you log in. To "  # noqa: E501
            "let agentd run while"
        ),
        f"nobody is logged in, once: loginctl enable-linger {user}",
    )


def install(wanted: Plan, *, run: bool = True) -> list[str]:
    """Write the unit and start it; return what was done.

    Refused if another unit of that name is there.
    """
    if wanted.unit.exists() and not wanted.unit.read_text("utf-8", "replace").startswith(_OURS):
        raise Refused(f"{wanted.unit} is there and none of ours; move it away first")
    done = []
    try:
        for folder in (*wanted.folders, wanted.unit.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o755 if wanted.system else 0o700)
        draft = wanted.unit.with_name(f".{wanted.unit.name}.part")
        draft.write_text(wanted.text, "utf-8")
        draft.chmod(0o644)
        draft.replace(wanted.unit)
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}") from error
    done.append(f"wrote {wanted.unit}")
    if run:
        done += [_run(command) for command in wanted.commands]
    return done


def uninstall(*, system: bool, home: Path | None = None, run: bool = True) -> list[str]:
    """Stop the service and remove its unit; state and definitions stay. NotFound, Refused."""
    folder = (
        Path("/etc/systemd/system") if system else (home or user_home()) / ".config/systemd/user"
    )
    unit = folder / "agentd.service"
    if not unit.is_file():
        raise NotFound(f"{unit} is not there")
    if not unit.read_text("utf-8", "replace").startswith(_OURS):
        raise Refused(f"{unit} is none of ours; it was left as it is")
    ctl = ("systemctl",) if system else ("systemctl", "--user")
    done = [_run((*ctl, "disable", "--now", "agentd.service"))] if run else []
    try:
        unit.unlink()
    except OSError as error:
        raise Refused(f"{unit}: {error.strerror}") from error
    done.append(f"removed {unit}")
    if run:
        done.append(_run((*ctl, "daemon-reload")))
    return [*done, "state, config, policy and routines were left as they are"]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr or done.stdout).strip().splitlines()
        raise Refused(
            f"`{' '.join(command)}` failed: {why[-1] if why else f'exit {done.returncode}'}"
        )
    return f"ran {' '.join(command)}"


def agreed(question: str) -> bool:
    """Ask the person at the terminal; nobody there is a no."""
    if not sys.stdin.isatty():
        return False
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
