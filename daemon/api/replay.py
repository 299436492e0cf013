"""Replays: runs executed again from their records, and frozen as regression cases."""

from __future__ import annotations

from typing_extensions import TypedDict

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext


class UsedView(TypedDict):
    """What models were asked, in tokens."""

    input: int
    output: int


class EndView(TypedDict):
    """How a run ended."""

    status: str
    detail: str | None
    report: str
    silent: bool
    iterations: int
    tokens: int
    calls: list[str]
    """Each call in a line, with its verdict and its end."""


class DifferenceView(TypedDict):
    """One place in which two runs part."""

    at: str
    seq: int | None
    """The recorded step; null for what is not in the record."""
    what: str
    diff: str


class ReplayView(TypedDict):
    """How a run that was played again compares with the recorded one."""

    run: str
    routine: str
    identical: bool
    changed: str
    """What was wished to be otherwise: model, prompt, policy or nothing."""
    steps: int
    recorded: EndView
    played: EndView
    differences: list[DifferenceView]
    never_made: list[str]
    """Calls that were refused, as the recorded run never made them."""
    would_ask: list[str]
    """Calls that a person would be asked about."""
    outside: str
    """What ended the run and is not in its record; then only what comes before is compared."""
    missing: list[str]
    """What the journal did not keep."""
    asked: UsedView
    usd: float | None


class FrozenView(TypedDict):
    """A run as a regression case."""

    run: str
    files: dict[str, str]
    """Texts by name."""


async def replay(api: ApiContext, *, id: str) -> ReplayView:  # noqa: A002 - the name in the path
    """Play a run again from its record, asking nobody, and tell whether it comes out identical."""
    return await _replay(api, id)


async def replay_changed(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    model: str | None = None,
    prompt: str | None = None,
    policy: str | None = None,
) -> ReplayView:
    """Play a run again with one thing changed: a model or a prompt, which is really asked, or the
    text of a policy.
    """
    return await _replay(api, id, model=model, prompt=prompt, policy=policy)


async def _replay(api: ApiContext, run: str, **changes: str | None) -> ReplayView:
    view: ReplayView = await api.runs.replays.replay(run, **changes)  # type: ignore[assignment]
    return view


async def frozen(api: ApiContext, *, id: str, folder: str = "DIR") -> FrozenView:  # noqa: A002
    """Return a run as files: a regression case, secrets taken out; its README speaks of
    `folder`.
    """
    run = await api.journal.runs.get(id)
    return FrozenView(run=run.id, files=dict(await api.runs.replays.freeze(run.id, folder)))


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/runs/{id}/replay", replay),
    ("POST", "/v1/runs/{id}/replay", replay_changed),
    ("GET", "/v1/runs/{id}/frozen", frozen),
)
