"""Routines: what there are, how each stands, and what people change about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

from daemon.api.binding import Flag, Limit, RouteRow, Seconds
from daemon.api.context import ApiContext
from daemon.api.moments import parse_moment
from daemon.api.paging import page_of_keys
from daemon.api.problems import InvalidRequest
from daemon.api.routine_states import (
    FIRES_SHOWN,
    check_exists,
    fires_of,
    in_batches,
    names_of,
    paused_view,
    state_of,
)
from daemon.api.runs import delivery_words, view_of_run
from daemon.api.schemas import (
    Page,
    RenamedView,
    ResumedView,
    RoutineDetail,
    RoutineView,
    RunView,
    fault_views,
    iso,
    run_brief,
)
from daemon.models import Run, Status
from daemon.runs.approvals.expected import describe_approvals
from daemon.scheduler.triggers import input_by_hand

# routines on one page by default: a person's are a handful, a cluster's come in a few pages
DEFAULT_PAGE = 500


async def list_routines(
    api: ApiContext, *, limit: Limit = DEFAULT_PAGE, cursor: str | None = None
) -> Page[RoutineView]:
    """List the routines by name: when each runs, when it is next due, how it last went."""
    names, next_cursor = page_of_keys(names_of(api), limit, cursor)
    last_runs = await api.journal.runs.get_last_by_routine(names)
    words = await delivery_words(api, list(last_runs.values()))
    views = [
        _routine_view(api, name, last_runs.get(name), words) async for name in in_batches(names)
    ]
    return Page(items=views, next=next_cursor)


async def show_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Show one routine: its definition, its next starts, its last run, its faults."""
    await check_exists(api, name)
    last_run = await api.journal.runs.get_last(name, statuses=list(Status))
    words = await delivery_words(api, [last_run] if last_run else [])
    routine = api.engine.routines.get(name)
    return RoutineDetail(
        **_routine_view(api, name, last_run, words),
        fires=[iso(slot) for slot in fires_of(api, name, FIRES_SHOWN)],
        definition=routine.model_dump(mode="json", exclude_none=True) if routine else {},
    )


async def start_run(
    api: ApiContext,
    *,
    name: str,
    event: str | None = None,
    input: str | None = None,  # noqa: A002  the name that runs show it by
    tainted: Flag = False,
) -> RunView:
    """Run a routine now; the same `event` again gives the same run, so a lost answer may be asked
    for again.

    The model reads `input` beside its task; with `tainted` as what strangers may have written.
    """
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
    return await view_of_run(api, await api.engine.run_now(name, event=event, run_input=run_input))


async def rename_routine(api: ApiContext, *, name: str, to: str) -> RenamedView:
    """Give a routine another name, its file and its history too."""
    await check_exists(api, name)
    dependents = await api.administration.rename(name, to)
    return RenamedView(routine=await show_routine(api, name=to), named_by=dependents)


async def adopt_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Make a routine that an agent made a person's own."""
    await api.agent_routines.adopt(name)
    return await show_routine(api, name=name.rpartition("/")[2])


async def remove_routine(api: ApiContext, *, name: str) -> dict[str, str]:
    """Remove a routine that an agent made; those of people are theirs to remove."""
    await api.agent_routines.remove_for_person(name)
    return {"removed": name}


async def pause_routine(
    api: ApiContext, *, name: str, until: str | None = None, seconds: Seconds | None = None
) -> RoutineDetail:
    """Let no slot of a routine start until a moment, for so many seconds from now, or until it is
    resumed.
    """
    await check_exists(api, name)
    if until is not None and seconds is not None:
        raise InvalidRequest(
            "'until' and 'seconds' are two ends of one pause; send one",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    end = parse_moment("until", until) if until is not None else None
    if end is not None and end <= api.clock.now():
        raise InvalidRequest(
            f"'until': {iso(end)} has passed already", HTTPStatus.UNPROCESSABLE_ENTITY
        )
    length = None if seconds is None else timedelta(seconds=seconds)
    await api.engine.pause(name, until=end, length=length)
    return await show_routine(api, name=name)


async def resume_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Let a paused routine go on from its next slot."""
    await check_exists(api, name)
    await api.engine.resume(name)
    return await show_routine(api, name=name)


async def resume_all(api: ApiContext) -> ResumedView:
    """Let every paused routine go on, as after a restore."""
    await api.journal.routines.end_hold()
    names = [name for name, state in api.engine.states.items() if state.paused]
    for name in names:
        await api.engine.resume(name)
    return ResumedView(resumed=names)


def _routine_view(
    api: ApiContext, name: str, last: Run | None, words: Mapping[str, str | None]
) -> RoutineView:
    routine = api.engine.routines.get(name)
    fault = api.engine.faults.get(name)
    fires = fires_of(api, name, 1)
    state = state_of(api, name)
    now = api.clock.now().astimezone(api.settings.zone)
    approvals = describe_approvals(routine, api.settings.policy, now) if routine else ""
    pause = paused_view(api.engine.states[name]) if state == "paused" else None
    return RoutineView(
        name=name,
        description=routine.description if routine else "",
        state=state,
        paused_until=pause["until"] if pause else None,
        paused_why=pause["why"] if pause else None,
        words=api.engine.describe_schedule(routine) if routine else "",
        by_hand=routine is not None and not routine.is_automatic,
        next=iso(fires[0]) if fires else None,
        last=run_brief(last, words.get(last.id)) if last else None,
        path=str(routine.path) if routine and routine.path else None,
        made_by=routine.origin.routine if routine and routine.origin else None,
        asks=approvals or None,
        faults=fault_views(fault) if fault else [],
    )


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/routines", list_routines),
    ("GET", "/v1/routines/{name}", show_routine),
    ("POST", "/v1/routines/{name}/run", start_run),
    ("POST", "/v1/routines/{name}/rename", rename_routine),
    ("POST", "/v1/routines/{name}/adopt", adopt_routine),
    ("POST", "/v1/routines/{name}/remove", remove_routine),
    ("POST", "/v1/routines/{name}/pause", pause_routine),
    ("POST", "/v1/routines/{name}/resume", resume_routine),
    ("POST", "/v1/resume", resume_all),
)
