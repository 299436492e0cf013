"""What a person reads when the daemon has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon import __version__
from daemon.sandbox.user import in_the_way
from daemon.system.clock import dated

if TYPE_CHECKING:
    from daemon.app.parts import App

# routines; beyond that they are counted, as a banner of a thousand lines is read by nobody
MAX_ROUTINES = 30
MAX_NAME_COLUMNS = 40  # one long name must not push all the others to the right
NO_MODEL = " (no model is asked: reports are the gathered facts, laid out)"


def banner(app: App) -> str:
    """Return which config won, which routines run when, and what to type next."""
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
    first = f"agentctl run {names[0]}" if names else "agentctl status"
    lines += ["", f"In another terminal: {first}, agentctl list, agentctl logs -f. Ctrl-C stops."]
    return "\n".join(lines)


def _root_lines(app: App) -> list[str]:
    """Return which user tools run as when the daemon is root, and which folder stops that user."""
    user = app.tools.sandbox_detection.user
    if user is None:
        return []
    owner = f"user {user.uid}, who owns the workspace"
    lines = [f"  root      this daemon is root's: programs of tools run as {owner}"]
    if folder := in_the_way(app.installation.workspace, user):
        lines.append(
            f"            and who cannot get through {folder} to it: "
            f"chmod o+x {folder}, or move the workspace"
        )
    return lines


def _next_runs(app: App, name: str) -> str:
    engine, now, zone = app.scheduling.engine, app.clock.now(), app.settings.zone
    words = engine.describe_schedule(engine.routines[name])
    if name in engine.states and engine.states[name].paused:
        return f"{words}; paused"
    starts = [dated(start.astimezone(zone), now) for start in engine.next_fires(name, 3)]
    return f"{words}: {', '.join(starts)}" if starts else words
