"""A recorded run as a value: all that replaying it takes, and what of it the journal does not
hold any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from daemon.errors import DaemonError, NotFound, Refused
from daemon.models import Json, Run, Status, Step, StepKind
from daemon.runs.gather import EVENT_TRIGGERS, read_gathered_values

if TYPE_CHECKING:
    from daemon.store.journal import Journal


@dataclass(frozen=True, kw_only=True, slots=True)
class Cassette:
    """One run, as the journal recorded it."""

    run: Run
    definition: str
    """The routine as the run began it, as JSON."""
    steps: Sequence[Step]
    event_input: Any = None
    """What came with the event that started the run."""
    previous_values: Mapping[str, Any] = field(default_factory=dict)
    """What the last successful run before it had gathered, by the name of the gather step: its
    gates and its report compared with these values.
    """
    policies: Mapping[str, str] = field(default_factory=dict)
    """The texts of the policies that judged its calls, by hash."""
    workspace: str = "/"
    """The path of the workspace of the daemon that read the run."""
    language: str = "en"
    """The language of the prompt."""
    missing_parts: tuple[str, ...] = ()
    """What the journal does not hold any more, a sentence each."""

    @property
    def prompt(self) -> Json | None:
        """The body of the `prompt` step; None if the run never came to ask a model."""
        return next((step.body for step in self.steps if step.kind is StepKind.PROMPT), None)


async def load_cassette(
    journal: Journal, run_id: str, *, workspace: str, language: str
) -> Cassette:
    """Read a run from the journal.

    `workspace` and `language` are those of the daemon now: the journal has no workspace, and the
    language only of a run that came to ask a model. Raises NotFound for an unknown run, Refused if
    its steps were deleted or erased, DaemonError if its steps were changed after they were written.
    """
    run = await journal.runs.get(run_id)
    if not await journal.runs.has_intact_steps(run.id):
        raise DaemonError(
            f"the record of run {run.id} is not as it was written: the checksums of its steps "
            "do not fit"
        )
    steps = await journal.runs.get_steps(run.id)
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
    missing_parts: list[str] = []
    policy_hashes = [str(step.body["policy"]) for step in steps if step.body.get("policy")]
    for policy_hash in dict.fromkeys(policy_hashes):
        text = await journal.audit.get_policy(policy_hash)
        if text is None:
            missing_parts.append(
                f"the policy that judged its calls ({policy_hash[:12]}): verdicts are taken as "
                "recorded"
            )
        else:
            policies[policy_hash] = text
    cassette = Cassette(
        run=run,
        definition=definition,
        steps=steps,
        event_input=await journal.runs.get_input(run.id) if run.trigger in EVENT_TRIGGERS else None,
        previous_values=await _read_previous_values(journal, run, steps),
        policies=policies,
        workspace=workspace,
        language=language,
        missing_parts=tuple(missing_parts),
    )
    if cassette.prompt and "language" in cassette.prompt:
        return replace(cassette, language=cassette.prompt["language"])
    return cassette


async def _read_previous_values(
    journal: Journal, run: Run, steps: Sequence[Step]
) -> dict[str, Any]:
    """Read what the run had gathered with which `run` compared: the last successful run that was
    created before `run` and had ended when `run` wrote its first step.
    """
    start = next((step.at for step in steps if step.at), run.ended)
    previous_run = await _last_successful_run(journal, run.base_routine, before=run.id)
    while previous_run and start and previous_run.ended and previous_run.ended > start:
        previous_run = await _last_successful_run(journal, run.base_routine, before=previous_run.id)
    if previous_run is None:
        return {}
    return read_gathered_values(await journal.runs.get_steps(previous_run.id))


async def _last_successful_run(journal: Journal, routine: str, *, before: str) -> Run | None:
    """Return the last successful run of a routine that was created before the run `before`."""
    return await journal.runs.get_last(routine, statuses={Status.SUCCEEDED}, before=before)
