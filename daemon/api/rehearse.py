"""Routines tried before they are trusted: the routes of `rehearse`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from daemon.api.binding import Caller
from daemon.api.context import ApiContext
from daemon.api.schedule import check_known
from daemon.api.schemas import RunBrief, run_brief
from daemon.errors import Refused
from daemon.models import new_id

if TYPE_CHECKING:
    from daemon.runs.rehearsal.rehearsals import Rehearsals


class EffectView(TypedDict):
    """One call that was not done."""

    call: str
    tool: str
    text: str
    """What it would have done."""


class RehearsalView(TypedDict):
    """What a rehearsal would have done."""

    run: str
    routine: str
    status: str
    silent: bool
    effects: list[EffectView]
    deliveries: list[str]
    """Where the report would have been sent."""
    tokens: int
    usd: float | None
    held: bool
    """The routine waits for a rehearsal to be approved."""
    current: bool
    """The routine still does what was rehearsed."""


async def rehearse(api: ApiContext, *, name: str, event: str | None = None) -> RunBrief:
    """Try a routine: the real model, tools that only look; all else is told, not done."""
    check_known(api, name)
    return run_brief(await _rehearsals(api).begin(name, event or new_id()), None)


async def show_rehearsal(api: ApiContext, *, id: str) -> RehearsalView:  # noqa: A002 - the name in the path
    """Show what a rehearsal would have done."""
    return await _told(api, id)


async def approve_rehearsal(api: ApiContext, *, id: str, caller: Caller) -> RehearsalView:  # noqa: A002
    """Let a routine run as it was rehearsed."""
    told: RehearsalView = await _rehearsals(api).approve(id, caller)  # type: ignore[assignment]
    return told


async def _told(api: ApiContext, run: str) -> RehearsalView:
    told: RehearsalView = await _rehearsals(api).describe(run)  # type: ignore[assignment]
    return told


def _rehearsals(api: ApiContext) -> Rehearsals:
    if api.rehearsals is None:
        raise Refused("nothing is rehearsed here")
    return api.rehearsals()


ROUTES = (
    ("POST", "/v1/routines/{name}/rehearse", rehearse),
    ("GET", "/v1/runs/{id}/rehearsal", show_rehearsal),
    ("POST", "/v1/runs/{id}/rehearsal/approve", approve_rehearsal),
)
