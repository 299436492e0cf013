"""A recorded run as a value: all that is needed to play it again, and what is missing of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daemon.errors import DaemonError, NotFound, Refused
from daemon.models import Json, Run, Status, Step, StepKind
from daemon.runs.gather import EVENT_TRIGGERS, gathered_values

if TYPE_CHECKING:
    from daemon.store.journal import Journal


@dataclass(frozen=True, kw_only=True, slots=True)
class Cassette:
    """One run, as it was recorded."""

    run: Run
    definition: str
    """The routine as the run began it, as JSON."""
    steps: Sequence[Step]
    given: Any = None
    """What its event brought along."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """What the last good run before it had gathered: gates and reports compare with that."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """The policies that judged its calls, by hash."""
    workspace: str = "/"
    language: str = "en"
    missing: tuple[str, ...] = ()
    """What was not kept, in words."""

    @property
    def frozen(self) -> Json | None:
        """The body of its `prompt` step."""
        return next((step.body for step in self.steps if step.kind is StepKind.PROMPT), None)


async def recorded(journal: Journal, run_id: str, *, workspace: str, language: str) -> Cassette:
    """Read a run from the journal.

    NotFound; Refused if nothing is left of it; DaemonError if it was tampered with.

    `workspace` and `language` are those of now, for runs that do not say themselves.
    """
    run = await journal.runs.get(run_id)
    if not await journal.runs.has_intact_steps(run.id):
        raise DaemonError(
            (  # noqa: UP034
                f"the record of run {run.id} is not as it was written: the checksums of its steps "
                "do not fit"
            )
        )
    steps = await journal.runs.get_steps(run.id)
    missing: list[str] = []
    if any(step.body.get("source") == "forgotten" for step in steps):
        raise Refused(f"run {run.id} was forgotten: nothing of it is left to replay")
    if not steps and run.iterations:
        raise Refused(
            f"the steps of run {run.id} are gone ([keep] steps): nothing of it is left to replay"
        )
    try:
        definition = await journal.runs.get_definition(run.definition)
    except NotFound:
        raise Refused(f"run {run.id} was forgotten: nothing of it is left to replay") from None
    policies: dict[str, str] = {}
    for hash_ in dict.fromkeys(
        str(step.body["policy"]) for step in steps if step.body.get("policy")
    ):
        text = await journal.audit.get_policy(hash_)
        if text is None:
            missing.append(
                f"the policy that judged its calls ({hash_[:12]}): verdicts are taken as recorded"
            )
        else:
            policies[hash_] = text
    frozen = next((step.body for step in steps if step.kind is StepKind.PROMPT), {})
    return Cassette(
        run=run,
        definition=definition,
        steps=steps,
        given=await journal.runs.get_input(run.id) if run.trigger in EVENT_TRIGGERS else None,
        before=await _before(journal, run, steps),
        policies=policies,
        workspace=workspace,
        language=frozen.get("language", language),
        missing=tuple(missing),
    )


async def _before(journal: Journal, run: Run, steps: Sequence[Step]) -> dict[str, Any]:
    """Return what the run before it had gathered, as it looked when this one compared with it."""
    began = next((step.at for step in steps if step.at), run.ended)
    last = await journal.runs.get_last(run.about, statuses={Status.SUCCEEDED}, before=run.id)
    while last is not None and began is not None and last.ended is not None and last.ended > began:
        last = await journal.runs.get_last(run.about, statuses={Status.SUCCEEDED}, before=last.id)
    return gathered_values(await journal.runs.get_steps(last.id)) if last else {}
