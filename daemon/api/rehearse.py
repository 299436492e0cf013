"""Rehearsals: routines that are tried before they are trusted."""

from __future__ import annotations

from typing_extensions import TypedDict

from daemon.api.binding import Caller, RouteRow
from daemon.api.context import ApiContext
from daemon.api.routine_states import check_exists
from daemon.api.schemas import RunBrief, brief_of_run
from daemon.models import new_id


class EffectView(TypedDict):
    """One call that the rehearsal did not make."""

    call: str
    """Its place in the rehearsal, such as `3.0`: the first call of iteration 3."""
    tool: str
    """The tool that was called."""
    text: str
    """What it would have done."""


class RehearsalView(TypedDict):
    """What a rehearsal would have done."""

    run: str
    """The id of the rehearsal."""
    routine: str
    """The routine that was rehearsed."""
    status: str
    """The status of the rehearsal as a run."""
    silent: bool
    """Whether it ended well with nothing to report."""
    effects: list[EffectView]
    """The calls that were not made, in order."""
    deliveries: list[str]
    """Where the report would have been sent."""
    tokens: int
    """The tokens that it used."""
    usd: float | None
    """What it cost in dollars; null if a price is not known."""
    held: bool
    """Whether the routine does not start until a rehearsal of it was approved."""
    current: bool
    """Whether the routine is still as it was rehearsed."""


async def rehearse(api: ApiContext, *, name: str, event: str | None = None) -> RunBrief:
    """Rehearse a routine: the real model is asked and read-only calls are run; of all others the
    result says what they would do.
    """
    await api.administration.take_up_changes()
    await check_exists(api, name)
    return brief_of_run(await api.runs.rehearsals.begin(name, event or new_id()), None)


async def show_rehearsal(api: ApiContext, *, id: str) -> RehearsalView:  # noqa: A002 - the name in the path
    """Return what a rehearsal would have done."""
    view: RehearsalView = await api.runs.rehearsals.describe(id)  # type: ignore[assignment]
    return view


async def approve_rehearsal(api: ApiContext, *, id: str, caller: Caller) -> RehearsalView:  # noqa: A002
    """Approve a rehearsal: its routine may run as it was rehearsed."""
    view: RehearsalView = await api.runs.rehearsals.approve(id, caller)  # type: ignore[assignment]
    return view


ROUTES: tuple[RouteRow, ...] = (
    ("POST", "/v1/routines/{name}/rehearse", rehearse),
    ("GET", "/v1/runs/{id}/rehearsal", show_rehearsal),
    ("POST", "/v1/runs/{id}/rehearsal/approve", approve_rehearsal),
)
