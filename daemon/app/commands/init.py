"""The files that come with agentd, and `agentd init`, which writes them for somebody who installed
a wheel.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from daemon.errors import Refused

ROUTINES = ("daily-report", "heartbeat", "inbox-watch")
FILES = ("config.toml", "policy.toml", *(f"routines/{name}.toml" for name in ROUTINES))
UNIT = "systemd/agentd-user.service"


def shipped() -> Path:
    """Return the folder the shipped files lie in: inside a wheel, or the checkout that this runs
    from.
    """
    inside = Path(__file__).parents[2] / "_shipped"
    return inside if inside.is_dir() else Path(__file__).parents[3]


def init(folder: Path) -> list[Path]:
    """Write config, policy, routines and a user unit; return what was written, as nothing is ever
    overwritten.
    """
    folder, source = folder.absolute(), shipped()
    # systemd looks for user units in ~/.config/systemd/user; anywhere else it is a template beside
    # the config
    at_home = folder.parent.name == ".config"
    unit = folder.parent / "systemd/user/agentd.service" if at_home else folder / UNIT
    texts = {folder / name: (source / name).read_text("utf-8") for name in FILES}
    texts[unit] = with_command((source / UNIT).read_text("utf-8"), folder / "config.toml")
    try:
        if at_home:  # the unit shows it to the daemon, so it has to be there
            (folder.parent.parent / ".local/state/agentd").mkdir(
                parents=True, exist_ok=True, mode=0o700
            )
        return [path for path, text in texts.items() if _write_new(path, text)]
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        raise Refused(message) from None


def _write_new(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        # private from the first byte: a key may be put into the config, and a policy others can
        # write is refused
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(text)
    return True


def with_command(unit: str, config: Path) -> str:
    """Return the unit with the command of this very installation."""
    agentd = Path(sys.executable).with_name("agentd")
    command = [str(agentd)] if agentd.exists() else [sys.executable, "-m", "daemon.app.main"]
    line = "ExecStart=" + " ".join(_quoted(word) for word in (*command, "--config", str(config)))
    return (
        "\n".join(line if old.startswith("ExecStart=") else old for old in unit.splitlines()) + "\n"
    )


def _quoted(word: str) -> str:
    """Return a word for a unit file, where % and $ mean something and spaces part words."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if " " in word else word
