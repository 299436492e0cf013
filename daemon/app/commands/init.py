"""`agentd init`: writes config, policy, routines and a systemd unit from the files that agentd
ships.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from daemon.errors import Refused

ROUTINES = ("daily-report", "heartbeat", "inbox-watch")
FILES = ("config.toml", "policy.toml", *(f"routines/{name}.toml" for name in ROUTINES))
UNIT = "systemd/agentd-user.service"


def shipped_folder() -> Path:
    """Return the folder of the shipped files: in the installed package, or the checkout that this
    runs from, where they may have been edited.
    """
    packaged_folder = Path(__file__).parents[2] / "_shipped"
    return packaged_folder if packaged_folder.is_dir() else Path(__file__).parents[3]


def shipped_text(source: Path, name: str) -> str:
    """Return the text of a file as it was shipped; `source` is what `shipped_folder` returned.

    In a checkout that is the committed text, as the file is also the one that a daemon started
    there uses: its edits may hold keys and addresses. Raises Refused if config.toml was edited and
    git does not know the committed text.
    """
    if source.name == "_shipped":
        return (source / name).read_text("utf-8")
    committed_text = _committed_text(source, name)
    if committed_text is not None:
        return committed_text
    text = (source / name).read_text("utf-8")
    if name == "config.toml" and _is_edited(text):
        raise Refused(
            f"{source / name} was edited, and git does not tell what it was like before; nothing "
            "was written. Put the shipped config.toml back, or copy yours by hand"
        )
    return text


def _committed_text(folder: Path, name: str) -> str | None:
    """Return the text of a file in the last commit of a checkout; None if git does not know it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(folder), "cat-file", "blob", f"HEAD:./{name}"]
    try:
        result = subprocess.run(command, env=env, capture_output=True, timeout=10, check=True)
        return result.stdout.decode("utf-8")
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


def _is_edited(config: str) -> bool:
    """Return whether the text of a config sets more than the shipped one."""
    try:
        settings = tomllib.loads(config)
    except tomllib.TOMLDecodeError:
        return True
    return {key: value for key, value in settings.items() if value} != {"provider": "offline"}


def init(folder: Path) -> list[Path]:
    """Write config, policy, routines and a user unit, where no such file exists; return the files
    that were written.
    """
    folder, source = folder.absolute(), shipped_folder()
    # systemd looks for user units in ~/.config/systemd/user; anywhere else it is a template beside
    # the config
    is_in_home_config = folder.parent.name == ".config"
    unit = folder.parent / "systemd/user/agentd.service" if is_in_home_config else folder / UNIT
    texts = {folder / name: shipped_text(source, name) for name in FILES}
    texts[unit] = with_command(shipped_text(source, UNIT), folder / "config.toml")
    try:
        if is_in_home_config:  # the unit shows it to the daemon, so it has to be there
            (folder.parent.parent / ".local/state/agentd").mkdir(
                parents=True, exist_ok=True, mode=0o700
            )
        return [path for path, text in texts.items() if _write_new(path, text)]
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}") from None


def describe(path: Path) -> str:
    """Return in words what a file is that `init` wrote."""
    if path.name == "config.toml":
        return "the settings, as shipped"
    if path.name == "policy.toml":
        return "what agents may do"
    if path.suffix == ".service":
        if path.parent.name == "user":
            return "a unit for systemd, not started: systemctl --user enable --now agentd"
        return "a unit for systemd, to be copied where systemd looks for units"
    return "a routine"


def _write_new(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        # Never readable by others: a key may be put into the config. And a policy that others can
        # write is refused.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return True


def with_command(unit: str, config: Path) -> str:
    """Return the unit with the command of this installation."""
    agentd = Path(sys.executable).with_name("agentd")
    command = [str(agentd)] if agentd.exists() else [sys.executable, "-m", "daemon.app.main"]
    command_line = "ExecStart=" + " ".join(
        _quote_for_unit(word) for word in (*command, "--config", str(config))
    )
    return (
        "\n".join(
            command_line if line.startswith("ExecStart=") else line for line in unit.splitlines()
        )
        + "\n"
    )


def _quote_for_unit(word: str) -> str:
    """Return a word as a unit file needs it: with `%` and `$` escaped, in quotes if it has
    spaces or an apostrophe.
    """
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if set(word) & set(" \t'") else word
