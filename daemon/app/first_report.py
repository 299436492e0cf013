"""Show the first report of a new installation at the terminal where the daemon was started."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.app.parts import App
    from daemon.runs.events import EventSubscription

FIRST_RUN = "first_run"


async def print_first_report(
    app: App, events: EventSubscription, write: Callable[[str], None]
) -> None:
    """Wait until the first run has ended, and write its report. Do nothing if the installation had
    runs before this start.

    `events` are those of all runs since the start.
    """
    journal = app.store.journal
    newest_runs = await journal.runs.get_last_by_routine(app.scheduling.engine.routines)
    runs = sorted(newest_runs.values(), key=lambda run: run.id)
    is_fresh = all(run.trigger == FIRST_RUN and run.created >= app.start for run in runs)
    if not runs or not is_fresh:
        return
    run = await journal.runs.get(runs[0].id)
    while not run.status.has_ended:
        event = await anext(events, None)
        if event is None:  # the daemon stops
            return
        if event["run"] == run.id and event["type"] == "run_ended":
            run = await journal.runs.get(run.id)
    if run.report:
        from daemon.cli.markdown import render_for_terminal

        with suppress(OSError):  # the terminal is gone
            report = render_for_terminal(run.report)
            write(f"\nThe first report, of {run.routine}:\n\n{report}\n\n")
