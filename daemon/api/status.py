"""The routes of the daemon's status: its files, counts of routines, runs under way and next
starts.
"""

from __future__ import annotations

from collections import Counter

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.incidents import view_of_incident
from daemon.api.routine_states import STARTS_SHOWN, names_of, state_of, view_of_paused_routine
from daemon.api.schedule import load_next_slots, reasons_for_waiting
from daemon.api.schemas import RoutineCounts, StatusView, brief_of_run, iso, view_of_worker


async def show_status(api: ApiContext, *, counts: bool = True) -> StatusView:
    """Return the state of the daemon: where its files are, what it counts, which runs have not
    ended, and what starts next.

    Without `counts` the journal is not counted, which takes the longer the more is in it.
    """
    states = {name: state_of(api, name) for name in names_of(api)}
    state_counts = Counter(states.values())
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
            on=state_counts["on"],
            paused=state_counts["paused"],
            disabled=state_counts["disabled"],
            elsewhere=state_counts["elsewhere"],
            held=state_counts["held"],
            invalid=state_counts["invalid"],
            kept=sum(name in api.engine.routines for name in api.engine.faults),
        ),
        counts=await api.journal.history.count() if counts else None,
        next=(await load_next_slots(api, names_of(api), STARTS_SHOWN, None, None))["items"],
        active=[brief_of_run(run, None) for run in active],
        waiting=dict(api.queue.positions()),
        stranded=await reasons_for_waiting(api, active),
        incidents=[
            view_of_incident(incident) for incident in await api.journal.incidents.find_open()
        ],
        workers=[view_of_worker(worker) for worker in await api.journal.workers.find()],
        paused=[
            view_of_paused_routine(api.engine.states[name])
            for name, state in states.items()
            if state == "paused"
        ],
    )


ROUTES: tuple[RouteRow, ...] = (("GET", "/v1/status", show_status),)
