"""Compare the verdicts of another policy with those that recorded calls had."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from daemon.models import Verdict
from daemon.policy.authoring.recorded_calls import RecordedCall
from daemon.policy.policy import Policy


@dataclass(slots=True)
class VerdictChange:
    """Calls of one kind on which the new policy has another verdict."""

    before: str
    after: str
    tool: str
    subject: str
    routine: str
    verdict: Verdict
    """What the new policy says of the last of them."""
    count: int = 0


@dataclass(slots=True)
class Comparison:
    """What a new policy changes for recorded calls."""

    calls: int = 0
    runs: set[str] = field(default_factory=set)
    differences: list[VerdictChange] = field(default_factory=list)


def compare(calls: Iterable[RecordedCall], new_policy: Policy) -> Comparison:
    """Judge recorded calls by a new policy, as tainted as their runs were, on the files that are
    there now.
    """
    comparison = Comparison()
    kinds: dict[tuple[str, ...], VerdictChange] = {}
    for call in calls:
        comparison.calls += 1
        comparison.runs.add(call.run)
        verdict = new_policy.judge(
            call.tool, call.arguments, routine=call.routine, tainted=call.tainted
        )
        # what a person allowed was asked about: under a policy that asks again nothing has changed
        before, after = "ask" if call.approved else call.effect, verdict.effect.value
        if before == after:
            continue
        key = (before, after, call.tool, call.subject, call.routine)
        kinds.setdefault(key, VerdictChange(*key, verdict)).count += 1
    comparison.differences = sorted(
        kinds.values(),
        key=lambda difference: (
            difference.after,
            difference.before,
            -difference.count,
            difference.subject,
        ),
    )
    return comparison
