"""`agentctl edit`: a routine's file in an editor, checked before it counts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from shutil import which
from typing import NoReturn

from daemon.app.commands.validate import TOOLS
from daemon.cli.call import DONE, NOT_SUCCEEDED, Call
from daemon.cli.client import Unreachable
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.paths import describe_config_paths, find_config, find_state, user_home
from daemon.definitions.routines.folder import AGENT_FOLDER, load_folder
from daemon.definitions.routines.source import (
    check_source,
    digest_of,
    explain_agent_owned,
    refuse_file_of_another,
    replace_source,
)
from daemon.definitions.words import display
from daemon.errors import ConfigError, DaemonError, Fault, NotFound, Refused
from daemon.scheduler.routine_checks import routine_checks
from daemon.tools import user_tools

# Where neither $VISUAL nor $EDITOR says which; the first is Debian's choice of the administrator.
EDITORS = ("editor", "nano", "vi")
_EXIT_CODES = ((NotFound, 4), (Refused, 5), (DaemonError, NOT_SUCCEEDED))


def edit(call: Call) -> int:
    """Open a routine's file in an editor, and write it back once nothing is wrong with it."""
    try:
        return _edit(call)
    except DaemonError as error:
        call.err.write_line(f"agentctl: {call.err.sanitize(str(error))}")
        return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))


def _edit(call: Call) -> int:
    config_file, state, has_daemon = _find_installation(call)
    config = load_config(config_file)
    path = _find_file(call.routine, config, state)
    original = path.read_bytes()
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    editor = _find_editor(os.environ, path, is_terminal=is_terminal)
    draft = Path(tempfile.mkdtemp(prefix="agentd-edit-")) / path.name
    draft.write_bytes(original)
    while True:
        _open_editor(editor, draft)
        text = draft.read_bytes()
        if text == original:
            _remove(draft)
            call.out.write_line("nothing was changed")
            return DONE
        faults = _faults_of(text, path, config, state)
        if not faults:
            break
        for fault in faults:
            call.err.write_line(call.err.sanitize(str(fault)))
        if not (is_terminal and _wants_another_try()):
            call.err.write_line(f"agentctl: nothing was changed; your text is in {draft}")
            return NOT_SUCCEEDED
    _write_back(path, original, text, draft)
    _remove(draft)
    effect = "the daemon reads it by itself" if has_daemon else "it counts when agentd starts"
    call.out.write_line(f"{display(path)} is written; {effect}")
    return DONE


def _find_installation(call: Call) -> tuple[Path, Path, bool]:
    """Return the config file and state folder of the daemon that answers, else those that would
    win, and whether one answers.
    """
    with suppress(Unreachable):
        status = call.client.request("GET", "/v1/status")
        if status["config"]:
            return Path(status["config"]), Path(status["state"]), True
    home = user_home()
    config = find_config(None, os.environ, Path.cwd(), home)
    if config is None:
        problem = f"not found in {describe_config_paths(os.environ, Path.cwd(), home)}"
        hint = "`agentd init` writes one"
        raise ConfigError(Fault(file="config.toml", key="", found="", problem=problem, hint=hint))
    return config, find_state(os.environ, home, uid=os.getuid()), False


def _find_file(name: str, config: Config, state: Path) -> Path:
    """Return the file of a routine. Raises NotFound, and Refused where it is not the person's."""
    if not name:
        raise NotFound("nothing has an empty name")
    names = {file.stem for file in config.routines_path.glob("[!.]*.toml")}
    path = config.routines_path / f"{name}.toml"
    if name not in names:
        if (state / AGENT_FOLDER / f"{Path(name).name}.toml").exists():
            raise Refused(explain_agent_owned(name))
        similar_names = get_close_matches(name, names, 1)
        hint = (
            f"did you mean {similar_names[0]!r}?"
            if similar_names
            else f'`agentctl new {shlex.quote(name)} "weekdays at 9am"` writes one'
        )
        raise NotFound(f"there is no file {display(path)}; {hint}")
    refuse_file_of_another(path)
    return path


def _find_editor(env: Mapping[str, str], path: Path, *, is_terminal: bool) -> list[str]:
    """Return the command of the person's editor.

    Raises DaemonError where there is none, and Refused where an editor that nobody named would be
    started without a terminal: it could only hang or fail.
    """
    for variable in ("VISUAL", "EDITOR"):
        if env.get(variable, "").strip():
            try:
                return shlex.split(env[variable])
            except ValueError as error:
                raise DaemonError(f"${variable} is not a command: {error}") from None
    if not is_terminal:
        raise Refused(
            f"there is no terminal to edit {display(path)} at, and neither $VISUAL nor $EDITOR is "
            "set; name a program that changes the file it is given, or write the file yourself and "
            "have it checked: agentctl validate"
        )
    for editor in EDITORS:
        if which(editor):
            return [editor]
    raise DaemonError("no editor was found; name one in $EDITOR, like EDITOR=nano")


def _open_editor(editor: list[str], draft: Path) -> None:
    """Let the person edit a file. Raises DaemonError if the editor fails."""
    # Ctrl-C is for the editor; a handler, as an ignored signal would stay ignored in it
    old_handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run([*editor, str(draft)], check=False).returncode
    except OSError as error:
        _give_up(draft, f"{editor[0]} cannot be started: {error.strerror}")
    finally:
        signal.signal(signal.SIGINT, old_handler)
    if code != 0:
        _give_up(draft, f"{editor[0]} ended with {code}")


def _give_up(draft: Path, problem: str) -> NoReturn:
    raise DaemonError(f"{problem}; nothing was changed, and your text is in {draft}")


def _faults_of(text: bytes, path: Path, config: Config, state: Path) -> Sequence[Fault]:
    """Return what is wrong with an edited routine, as faults of its file."""
    try:
        tools = {*TOOLS, *user_tools.load(config).names()}
        if config.search.kind:
            tools.add("web_search")
        checks = routine_checks(config, tools, workspace=config.workspace_path(state))
    except ConfigError:  # what is wrong with own tools, `agentctl validate` says
        checks = routine_checks(config, workspace=config.workspace_path(state))
    try:
        routines = load_folder(config.routines_path, agent_folder=state / AGENT_FOLDER)
        check_source(text, path, checks=checks, routines=routines)
    except ConfigError as error:
        return error.faults
    return ()


def _wants_another_try() -> bool:
    sys.stderr.write("Edit it again? [Y/n] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return bool(answer) and answer.strip().lower() in ("", "y", "yes")


def _write_back(path: Path, original: bytes, text: bytes, draft: Path) -> None:
    """Replace a file at once by another text. Raises Refused where it is another one by now, or
    cannot be written.
    """
    try:
        replace_source(path, text, digest=digest_of(original))
    except Refused as error:
        raise Refused(f"{error}; your text is in {draft}") from None


def _remove(draft: Path) -> None:
    """Remove a draft, and its folder unless the editor left something there."""
    draft.unlink(missing_ok=True)
    with suppress(OSError):
        draft.parent.rmdir()
