"""The routes of the daemon's status: its files, counts of routines, runs under way and next
starts.
"""

from __future__ import annotations

from collections import Counter

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.incidents import incident_view
from daemon.api.routine_states import FIRES_SHOWN, names_of, paused_view, state_of
from daemon.api.schedule import next_starts, reasons_for_waiting
from daemon.api.schemas import RoutineCounts, StatusView, iso, run_brief, worker_view


async def show_status(api: ApiContext) -> StatusView:
    """Tell how the daemon is: where it lives, what it counts, what runs and what is next."""
    states = {name: state_of(api, name) for name in names_of(api)}
    counts = Counter(states.values())
    active = await api.journal.runs.find_active()
    process, settings, sandbox = api.process, api.settings, api.sandbox_detection.current
    return StatusView(
        pid=process.pid,
        started=iso(process.start),
        config=str(settings.config.file),
        state=str(process.state),
        socket=str(process.socket),
        zone=settings.zone.key,
        provider=settings.config.provider,
        sandbox=sandbox.level if sandbox else None,
        log=str(process.log_file),
        fault=api.administration.fault,
        version=api.version,
        edit=settings.config.ui.edit,
        routines=RoutineCounts(
            on=counts["on"],
            paused=counts["paused"],
            disabled=counts["disabled"],
            elsewhere=counts["elsewhere"],
            held=counts["held"],
            invalid=counts["invalid"],
            kept=sum(name in api.engine.routines for name in api.engine.faults),
        ),
        counts=await api.journal.history.count(),
        next=(await next_starts(api, names_of(api), FIRES_SHOWN, None, None))["items"],
        active=[run_brief(run, None) for run in active],
        waiting=dict(api.queue.positions()),
        stranded=await reasons_for_waiting(api, active),
        incidents=[incident_view(incident) for incident in await api.journal.incidents.find_open()],
        workers=[worker_view(worker) for worker in await api.journal.workers.find()],
        paused=[
            paused_view(api.engine.states[name])
            for name, state in states.items()
            if state == "paused"
        ],
    )


ROUTES: tuple[RouteRow, ...] = (("GET", "/v1/status", show_status),)
