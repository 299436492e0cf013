"""What a person reads when the daemon has started."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.sandbox.user import in_the_way
from daemon.system.clock import dated

if TYPE_CHECKING:
    from daemon.app.wiring import App

# routines; beyond that the rest is counted, as a banner of a thousand lines is read by nobody
MANY = 30
WIDEST = 40  # columns; one long name must not push all the others to the right


def banner(app: App) -> str:
    """Return which config won, what will run when, and what to type next."""
    place, engine = app.place, app.engine
    lines = [
        f"agentd {__version__} is up",
        f"  config    {place.config.file}",
        f"  state     {place.state}",
        (
            "  provider  "
            f"{place.config.provider}{'' if place.config.provider != 'offline' else NO_MODEL}"
        ),
        f"  socket    {place.socket}",
        *_of_root(app),
        *([f"  webhooks  {app.webhooks.path}"] if app.webhooks.path else []),
        "",
        f"Routines, and when they run next ({app.zone.key}):",
    ]
    shown = sorted(engine.routines)[:MANY]
    width = min(WIDEST, max((len(name) for name in shown), default=0))
    lines += [f"  {name:<{width}}  {_when(app, name)}" for name in shown]
    if len(engine.routines) > MANY:
        lines.append(f"  and {len(engine.routines) - MANY} more: agentctl list")
    for name, error in sorted(engine.faults.items())[:MANY]:
        lines.append(f"  {name}  invalid; the others run:")
        lines += [f"    {fault}" for fault in error.faults]
    if len(engine.faults) > MANY:
        lines.append(f"  and {len(engine.faults) - MANY} more that are invalid: agentctl list")
    if not (engine.routines or engine.faults):
        lines.append(
            (  # noqa: UP034
                f'  none in {place.config.routines_path}: agentctl new NAME "weekdays at 9am" '
                "writes one"
            )
        )
    first = f"agentctl run {shown[0]}" if shown else "agentctl status"
    lines += ["", f"In another terminal: {first}, agentctl list, agentctl logs -f. Ctrl-C stops."]
    return "\n".join(lines)


def _of_root(app: App) -> list[str]:
    """Say who tools run as when the daemon is root, and what keeps them from their work."""
    user, workspace = app.sandbox_detection.user, app.config.workspace_path(app.place.state)
    if user is None:
        return []
    lines = [
        (
            f"  root      this daemon is root's: programs of tools run as user {user.uid}, who owns "  # noqa: E501
            "the workspace"
        )
    ]
    if folder := in_the_way(workspace, user):
        lines.append(
            (  # noqa: UP034
                f"            and who cannot get through {folder} to it: chmod o+x {folder}, or "
                "move the workspace"
            )
        )
    return lines


NO_MODEL = " (no model is asked: reports are the gathered facts, laid out)"


def _when(app: App, name: str) -> str:
    fires = app.engine.next_fires(name, 3)
    words = app.engine.describe_schedule(app.engine.routines[name])
    if name in app.engine.states and app.engine.states[name].paused:
        return f"{words}; paused"
    return f"{words}: {', '.join(_local(moment, app) for moment in fires)}" if fires else words


def _local(moment: datetime, app: App) -> str:
    return dated(moment.astimezone(app.zone), app.clock.now())
