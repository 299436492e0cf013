"""What a replay may change, and how it compares with the recorded run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemon.models import Json, Status, Usage

if TYPE_CHECKING:
    from daemon.policy.policy import Policy
    from daemon.providers import LLMProvider


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayChange:
    """The one thing that is changed for a replay; nothing by default."""

    models: Sequence[LLMProvider] = ()
    """Ask these, in order, instead of reading the answers from the record."""
    prompt: str | None = None
    """Another task."""
    policy: Policy | None = None
    """Judge all calls by this policy."""
    current_policy: Policy | None = None
    """Judges calls that the recorded run never made, where the policy of that time was not kept."""

    @property
    def kind(self) -> str:
        """What is changed: `policy`, `prompt` or `model`; empty if nothing is."""
        if self.policy is not None:
            return "policy"
        if self.prompt is not None:
            return "prompt"
        return "model" if self.models else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayDifference:
    """One place in which the replay differs from the recorded run."""

    at: str
    """The place, as a person finds it in `inspect`: `iteration 2, call 2.0 (shell)`."""
    seq: int | None
    """The number of the recorded step; None for a step that is not in the record."""
    what: str
    """What differs, in a line."""
    diff: str = ""
    """How the two texts differ, as `diff -u` shows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """How a run ended."""

    status: Status
    detail: str | None
    report: str
    silent: bool
    iterations: int
    usage: Usage
    calls: Sequence[str] = ()
    """A line for each call, with its verdict and how it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayResult:
    """How a replay compares with the recorded run."""

    run: str
    routine: str
    change: str
    """What was changed: see `ReplayChange.kind`."""
    steps: int
    recorded: RunEnd
    replayed: RunEnd
    differences: Sequence[ReplayDifference] = ()
    never_made: Sequence[str] = ()
    """Calls that were refused, as the recorded run never made them."""
    would_ask: Sequence[str] = ()
    """Calls that a person would be asked about."""
    external_end: str = ""
    """What ended the recorded run from outside, in words: the replay ends there, too, and only the
    steps before are compared. Empty for a run that ended by itself.
    """
    missing_parts: Sequence[str] = ()
    """What was not kept of the run, in words."""
    usage: Usage = field(default_factory=Usage)
    """What models used that were really asked for the replay."""
    cost: float | None = 0.0
    """What they cost, in dollars; None where the price is not known."""

    @property
    def is_identical(self) -> bool:
        return not self.differences

    def as_json(self, redact: Callable[[str], str] = str) -> Json:
        """Return the result for the API and for `--json`."""
        differences = [
            {
                "at": difference.at,
                "seq": difference.seq,
                "what": redact(difference.what),
                "diff": redact(difference.diff),
            }
            for difference in self.differences
        ]
        return {
            "run": self.run,
            "routine": self.routine,
            "identical": self.is_identical,
            "changed": self.change,
            "steps": self.steps,
            "recorded": _end_as_json(self.recorded, redact),
            "played": _end_as_json(self.replayed, redact),
            "differences": differences,
            "never_made": [redact(call) for call in self.never_made],
            "would_ask": [redact(call) for call in self.would_ask],
            "outside": self.external_end,
            "missing": list(self.missing_parts),
            "asked": {"input": self.usage.input, "output": self.usage.output},
            "usd": self.cost,
        }


def _end_as_json(end: RunEnd, redact: Callable[[str], str]) -> Json:
    return {
        "status": end.status.value,
        "detail": redact(end.detail) if end.detail else None,
        "report": redact(end.report),
        "silent": end.silent,
        "iterations": end.iterations,
        "tokens": end.usage.total,
        "calls": [redact(call) for call in end.calls],
    }
