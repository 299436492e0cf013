"""The text for the terminal once the daemon has started."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.definitions.paths import user_home
from daemon.sandbox.user import find_blocked_folder
from daemon.system.clock import format_date_time

if TYPE_CHECKING:
    from daemon.app.parts import App

# Routines that are listed; nobody would read a banner of a thousand lines.
MAX_ROUTINES = 30
MAX_NAME_COLUMNS = 40  # one long name must not push all the others to the right
NO_MODEL = " (no model is asked: reports are the gathered facts, laid out)"


def banner(app: App) -> str:
    """Return the paths in use, the routines with their next runs, and what to type next."""
    installation, config, engine = app.installation, app.settings.config, app.scheduling.engine
    lines = [
        f"agentd {__version__} is up",
        f"  config    {config.file}",
        f"  state     {installation.state}",
        f"  provider  {config.provider}{NO_MODEL if config.provider == 'offline' else ''}",
        f"  socket    {installation.socket}",
        *_root_lines(app),
    ]
    if webhooks := app.scheduling.webhooks.path:
        lines.append(f"  webhooks  {webhooks}")
    lines += ["", f"Routines, and when they run next ({app.settings.zone.key}):"]
    names = sorted(engine.routines)[:MAX_ROUTINES]
    width = min(MAX_NAME_COLUMNS, max((len(name) for name in names), default=0))
    lines += [f"  {name:<{width}}  {_next_runs(app, name)}" for name in names]
    if len(engine.routines) > MAX_ROUTINES:
        lines.append(f"  and {len(engine.routines) - MAX_ROUTINES} more: agentctl list")
    for name, error in sorted(engine.faults.items())[:MAX_ROUTINES]:
        lines.append(f"  {name}  invalid; the others run:")
        lines += [f"    {fault}" for fault in error.faults]
    if len(engine.faults) > MAX_ROUTINES:
        more = len(engine.faults) - MAX_ROUTINES
        lines.append(f"  and {more} more that are invalid: agentctl list")
    if not (engine.routines or engine.faults):
        lines.append(
            f'  none in {config.routines_path}: agentctl new NAME "weekdays at 9am" writes one'
        )
    first_command = f"agentctl run {names[0]}" if names else "agentctl status"
    lines += [
        "",
        f"In another terminal: {first_command}, agentctl list, agentctl logs -f. Ctrl-C stops.",
    ]
    return "\n".join(lines)


def banner_for_terminal(app: App, agentctl: str, new_routines: Collection[str] = ()) -> str:
    """Return the banner in the width of the terminal; its commands begin with `agentctl`, its paths
    with `~` where they are below the home folder.

    Of `new_routines`, which a person has just written, one is named as the routine to run.
    """
    installation, config, engine = app.installation, app.settings.config, app.scheduling.engine
    rows = [
        ("config", display_path(config.file)),
        ("state", display_path(installation.state)),
        ("reports", display_path(installation.workspace)),
        ("provider", f"{config.provider}{NO_MODEL if config.provider == 'offline' else ''}"),
    ]
    if webhooks := app.scheduling.webhooks.path:
        rows.append(("webhooks", display_path(webhooks)))
    if texts := _root_texts(app):
        rows.append(("root", " ".join(texts)))
    lines = [f"agentd {__version__} is up; Ctrl-C stops it"]
    lines += [wrap(text, f"  {name:<10}") for name, text in rows]
    names = sorted(engine.routines)[:MAX_ROUTINES]
    if names:
        lines += ["", f"Routines, and when they run next ({app.settings.zone.key}):"]
        width = min(MAX_NAME_COLUMNS, max(map(len, names)))
        lines += [wrap(_next_runs(app, name), f"  {name:<{width}}  ") for name in names]
    if len(engine.routines) > MAX_ROUTINES:
        lines.append(f"  and {len(engine.routines) - MAX_ROUTINES} more: {agentctl} list")
    for name, error in sorted(engine.faults.items())[:MAX_ROUTINES]:
        lines.append(f"  {name}  invalid; the others run:")
        lines += [wrap(str(fault), "    ") for fault in error.faults]
    if len(engine.faults) > MAX_ROUTINES:
        more = len(engine.faults) - MAX_ROUTINES
        lines.append(f"  and {more} more that are invalid: {agentctl} list")
    if not (engine.routines or engine.faults):
        folder = display_path(config.routines_path)
        lines += [
            "",
            wrap(f"There are no routines in {folder} yet. This writes one:"),
            f'  {agentctl} new NAME "weekdays at 9am"',
        ]
    examples = [*(name for name in sorted(new_routines) if name in engine.routines), *names]
    commands = [
        (f"{agentctl} run {examples[0]}", "run it now, and read its report") if examples else
        (f"{agentctl} status", "how the daemon is"),
        (f"{agentctl} list", "every routine, and how it went"),
        (f"{agentctl} logs -f", "everything that is logged"),
    ]  # fmt: skip
    width = max(len(command) for command, _ in commands)
    lines += ["", "In another terminal:"]
    lines += [f"  {command:<{width}}  {purpose}" for command, purpose in commands]
    return "\n".join(lines) + "\n"


def display_path(path: Path | str) -> str:
    """Return a path as a shell takes it, with `~` for the home folder."""
    home, path = user_home(), Path(path)
    if path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)


def wrap(text: str, prefix: str = "") -> str:
    """Return text behind a prefix, wrapped at words in the width of the terminal."""
    columns = max(40, get_terminal_size().columns)
    lines = textwrap.wrap(
        text,
        columns - 1,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def _root_lines(app: App) -> list[str]:
    """Return the lines of the banner on what `_root_texts` returns."""
    names = ("root", "")
    return [f"  {name:<10}{text}" for name, text in zip(names, _root_texts(app), strict=False)]


def _root_texts(app: App) -> list[str]:
    """Return which user tools run as when the daemon is root, and which folder stops that user.

    Both are parts of one sentence; empty unless the daemon is root's.
    """
    user = app.tools.sandbox_detection.user
    if user is None:
        return []
    owner = f"user {user.uid}, who owns the workspace"
    texts = [f"this daemon is root's: programs of tools run as {owner}"]
    if folder := find_blocked_folder(app.installation.workspace, user):
        texts.append(
            f"and who cannot get through {folder} to it: chmod o+x {folder}, or move the workspace"
        )
    return texts


def _next_runs(app: App, name: str) -> str:
    engine, now, zone = app.scheduling.engine, app.clock.now(), app.settings.zone
    words = engine.describe_schedule(engine.routines[name])
    if name in engine.states and engine.states[name].paused:
        return f"{words}; paused"
    starts = [format_date_time(start.astimezone(zone), now) for start in engine.next_slots(name, 3)]
    return f"{words}: {', '.join(starts)}" if starts else words
