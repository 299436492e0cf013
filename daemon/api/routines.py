"""Routines: what there are, how each stands, and what people change about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

from daemon.api.binding import Flag, Limit, RouteRow, Seconds
from daemon.api.context import ApiContext
from daemon.api.moments import parse_schedule_moment
from daemon.api.paging import page_of_keys
from daemon.api.problems import InvalidRequest
from daemon.api.routine_states import (
    STARTS_SHOWN,
    check_exists,
    names_of,
    next_slots_of,
    state_of,
    view_of_paused_routine,
    yielding_to_loop,
)
from daemon.api.runs import load_delivery_statuses, load_run_view
from daemon.api.schemas import (
    Page,
    RenamedRoutineView,
    ResumedRoutinesView,
    RoutineDetail,
    RoutineView,
    RunView,
    brief_of_run,
    iso,
    views_of_faults,
)
from daemon.models import GATED_EVENT, Run, Status, new_id
from daemon.runs.approvals.expected import describe_approvals
from daemon.scheduler.triggers import input_by_hand

# routines on one page by default: a person's are a handful, a cluster's come in a few pages
DEFAULT_PAGE = 500


async def list_routines(
    api: ApiContext, *, limit: Limit = DEFAULT_PAGE, cursor: str | None = None
) -> Page[RoutineView]:
    """List the routines by name: when each runs, when it is due next, how its last run ended."""
    names, next_cursor = page_of_keys(names_of(api), limit, cursor)
    last_runs = await api.journal.runs.get_last_by_routine(names)
    delivery_statuses = await load_delivery_statuses(api, list(last_runs.values()))
    views = [
        _view_of_routine(api, name, last_runs.get(name), delivery_statuses)
        async for name in yielding_to_loop(names)
    ]
    return Page(items=views, next=next_cursor)


async def show_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Return one routine: its definition, its next starts, its last run, its faults."""
    await check_exists(api, name)
    last_run = await api.journal.runs.get_last(name, statuses=list(Status))
    delivery_statuses = await load_delivery_statuses(api, [last_run] if last_run else [])
    routine = api.engine.routines.get(name)
    return RoutineDetail(
        **_view_of_routine(api, name, last_run, delivery_statuses),
        fires=[iso(slot) for slot in next_slots_of(api, name, STARTS_SHOWN)],
        definition=routine.model_dump(mode="json", exclude_none=True) if routine else {},
    )


async def start_run(
    api: ApiContext,
    *,
    name: str,
    event: str | None = None,
    input: str | None = None,  # noqa: A002  the name that runs show it by
    tainted: Flag = False,
    gate: Flag = False,
) -> RunView:
    """Start a run of a routine now; the same `event` again gives the same run, so a request whose
    answer was lost may be repeated. The model reads `input` beside its task; with `tainted` as what
    strangers may have written. With `gate` the gate of the routine decides whether it goes on, as
    for a run that starts by itself.
    """
    await api.administration.take_up_changes()
    await check_exists(api, name)
    run_input = None
    if input is not None:
        text = api.runs.services.secrets.redact(input)
        run_input = input_by_hand(text, is_tainted=tainted)
    elif tainted:
        raise InvalidRequest(
            "'tainted' says who may have written the 'input'; send one",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    if gate:
        event = f"{GATED_EVENT}{event or new_id()}"
    run = await api.engine.run_now(name, event=event, run_input=run_input)
    return await load_run_view(api, run)


async def create_run(
    api: ApiContext,
    *,
    name: str,
    event: str | None = None,
    input: str | None = None,  # noqa: A002  as of start_run
    tainted: Flag = False,
    gate: Flag = False,
) -> RunView:
    """Start a run: the same as POST /v1/routines/{name}/run, for clients that create a run by a
    POST to the list of runs.
    """
    return await start_run(api, name=name, event=event, input=input, tainted=tainted, gate=gate)


async def rename_routine(api: ApiContext, *, name: str, to: str) -> RenamedRoutineView:
    """Rename a routine, its file and its history too."""
    await check_exists(api, name)
    dependents = await api.administration.rename(name, to)
    return RenamedRoutineView(routine=await show_routine(api, name=to), named_by=dependents)


async def adopt_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Turn a routine that an agent made into one of a person."""
    await api.agent_routines.adopt(name)
    return await show_routine(api, name=name.rpartition("/")[2])


async def remove_routine(api: ApiContext, *, name: str) -> dict[str, str]:
    """Remove a routine that an agent made; one of a person is refused."""
    await api.agent_routines.remove_for_person(name)
    return {"removed": name}


async def pause_routine(
    api: ApiContext, *, name: str, until: str | None = None, seconds: Seconds | None = None
) -> RoutineDetail:
    """Pause a routine until a moment, for so many seconds from now, or until it is resumed: its
    slots are skipped.
    """
    await check_exists(api, name)
    if until is not None and seconds is not None:
        raise InvalidRequest(
            "'until' and 'seconds' are two ends of one pause; send one",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    end = parse_schedule_moment("until", until) if until is not None else None
    if end is not None and end <= api.clock.now():
        raise InvalidRequest(
            f"'until': {iso(end)} has passed already", HTTPStatus.UNPROCESSABLE_ENTITY
        )
    length = None if seconds is None else timedelta(seconds=seconds)
    await api.engine.pause(name, until=end, length=length)
    return await show_routine(api, name=name)


async def resume_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Resume a paused routine: it starts again from its next slot on."""
    await check_exists(api, name)
    await api.engine.resume(name)
    return await show_routine(api, name=name)


async def resume_all(api: ApiContext) -> ResumedRoutinesView:
    """Resume every paused routine, as after a restore."""
    await api.journal.routines.end_hold()
    names = [name for name, state in api.engine.states.items() if state.paused]
    for name in names:
        await api.engine.resume(name)
    return ResumedRoutinesView(resumed=names)


def _view_of_routine(
    api: ApiContext, name: str, last: Run | None, delivery_statuses: Mapping[str, str | None]
) -> RoutineView:
    routine = api.engine.routines.get(name)
    error = api.engine.faults.get(name)
    next_slots = next_slots_of(api, name, 1)
    state = state_of(api, name)
    now = api.clock.now().astimezone(api.settings.zone)
    policy_notes: list[str] = []
    if routine:
        policy = api.settings.policy
        policy_notes += api.own_call_notes.notes_of(routine, policy)
        if approvals := describe_approvals(routine, policy, now):
            policy_notes.append(approvals)
    pause = view_of_paused_routine(api.engine.states[name]) if state == "paused" else None
    return RoutineView(
        name=name,
        description=routine.description if routine else "",
        state=state,
        paused_until=pause["until"] if pause else None,
        paused_why=pause["why"] if pause else None,
        words=api.engine.describe_schedule(routine) if routine else "",
        by_hand=routine is not None and not routine.is_automatic,
        next=iso(next_slots[0]) if next_slots else None,
        last=brief_of_run(last, delivery_statuses.get(last.id)) if last else None,
        path=str(routine.path) if routine and routine.path else None,
        made_by=routine.origin.routine if routine and routine.origin else None,
        asks="\n".join(policy_notes) or None,
        faults=views_of_faults(error) if error else [],
    )


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/routines", list_routines),
    ("GET", "/v1/routines/{name}", show_routine),
    ("POST", "/v1/routines/{name}/run", start_run),
    ("POST", "/v1/routines/{name}/runs", create_run),
    ("POST", "/v1/routines/{name}/rename", rename_routine),
    ("POST", "/v1/routines/{name}/adopt", adopt_routine),
    ("POST", "/v1/routines/{name}/remove", remove_routine),
    ("POST", "/v1/routines/{name}/pause", pause_routine),
    ("POST", "/v1/routines/{name}/resume", resume_routine),
    ("POST", "/v1/resume", resume_all),
)
