"""Replays: runs executed again from their records, and frozen as regression cases."""

from __future__ import annotations

from typing_extensions import TypedDict

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext


class TokenUsageView(TypedDict):
    """The tokens of some calls to models."""

    input: int
    """Tokens sent, cached parts included."""
    output: int
    """Tokens answered."""


class EndView(TypedDict):
    """How a run ended."""

    status: str
    """The status that the run ended with."""
    detail: str | None
    """Why it ended so; null if there is nothing to say."""
    report: str
    """The report; empty if there is none."""
    silent: bool
    """Whether it ended well with nothing to report."""
    iterations: int
    """How many answers the model gave."""
    tokens: int
    """The tokens of all its calls to a model, input and output."""
    calls: list[str]
    """Each call in a line, with its verdict and its end."""


class DifferenceView(TypedDict):
    """One place in which two runs differ."""

    at: str
    """The place as `agentctl inspect` shows it: `iteration 2, call 2.0 (shell)`."""
    seq: int | None
    """The recorded step; null for what is not in the record."""
    what: str
    """What differs, in a line."""
    diff: str
    """How the two texts differ, as `diff -u` shows it; empty where there are no two."""


class ReplayView(TypedDict):
    """How a replay compares with the recorded run."""

    run: str
    """The id of the recorded run."""
    routine: str
    """Its routine."""
    identical: bool
    """Whether nothing differs."""
    changed: str
    """What the replay was asked to change: model, prompt, policy or nothing."""
    steps: int
    """How many steps were recorded."""
    recorded: EndView
    """How the recorded run ended."""
    played: EndView
    """How the replay ended."""
    differences: list[DifferenceView]
    """Where the two differ, in the order of the steps."""
    never_made: list[str]
    """Calls that were refused, as the recorded run never made them."""
    would_ask: list[str]
    """Calls that a person would be asked about."""
    outside: str
    """What ended the run and is not in its record; then only what comes before is compared."""
    missing: list[str]
    """What the journal did not keep."""
    asked: TokenUsageView
    """The tokens of models that were really asked; zero unless a model or prompt was changed."""
    usd: float | None
    """What asking them cost in dollars; null if that is not known."""


class RegressionCaseView(TypedDict):
    """A run as a regression case."""

    run: str
    """The id of the run."""
    files: dict[str, str]
    """Texts by name."""


async def replay(api: ApiContext, *, id: str) -> ReplayView:  # noqa: A002 - the name in the path
    """Execute a run again from its record, without asking anybody, and return whether the result is
    identical.
    """
    return await _replay(api, id)


async def replay_changed(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    model: str | None = None,
    prompt: str | None = None,
    policy: str | None = None,
) -> ReplayView:
    """Execute a run again with one thing changed: a model or a prompt, which is really asked, or
    the text of a policy.
    """
    return await _replay(api, id, model=model, prompt=prompt, policy=policy)


async def _replay(api: ApiContext, run: str, **changes: str | None) -> ReplayView:
    view: ReplayView = await api.runs.replays.replay(run, **changes)  # type: ignore[assignment]
    return view


async def freeze_run(api: ApiContext, *, id: str, folder: str = "DIR") -> RegressionCaseView:  # noqa: A002
    """Return a run as the files of a regression case, without secrets; its README speaks of
    `folder`.
    """
    run = await api.journal.runs.get(id)
    return RegressionCaseView(run=run.id, files=dict(await api.runs.replays.freeze(run.id, folder)))


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/runs/{id}/replay", replay),
    ("POST", "/v1/runs/{id}/replay", replay_changed),
    ("GET", "/v1/runs/{id}/frozen", freeze_run),
)
