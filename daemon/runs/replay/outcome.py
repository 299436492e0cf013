"""What came of playing a run again, and what was wished to be otherwise."""

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
    """The one thing that is to be otherwise; nothing by default."""

    models: Sequence[LLMProvider] = ()
    """Ask these, in order, instead of reading the answers from the record."""
    prompt: str | None = None
    """Another task."""
    policy: Policy | None = None
    by_now: Policy | None = None
    """Judge by this where the policy of then was not kept and a model makes calls that were never
    made.
    """

    @property
    def changed(self) -> str:
        """What is otherwise, in a word; empty if nothing is."""
        if self.policy is not None:
            return "policy"
        if self.prompt is not None:
            return "prompt"
        return "model" if self.models else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayDifference:
    """One place in which the two runs part."""

    at: str
    """The place, as a person finds it in `inspect`: `iteration 2, call 2.0 (shell)`."""
    seq: int | None
    """The recorded step; None for one that is not in the record."""
    what: str
    diff: str = ""
    """The two texts against each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """How a run ended."""

    status: Status
    detail: str | None
    report: str
    silent: bool
    iterations: int
    usage: Usage
    calls: Sequence[str] = ()
    """Each call in a line, and what became of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayResult:
    """How the run that was played again compares with the recorded one."""

    run: str
    routine: str
    changed: str
    steps: int
    recorded: End
    played: End
    differences: Sequence[ReplayDifference] = ()
    never_made: Sequence[str] = ()
    """Calls that were refused, as the recorded run never made them."""
    would_ask: Sequence[str] = ()
    """Calls that a person would be asked about."""
    outside: str = ""
    """What ended the recorded run and is not in it, in words: then only what comes before is
    compared.
    """
    missing: Sequence[str] = ()
    asked: Usage = field(default_factory=Usage)
    """What models were really asked for this."""
    cost: float | None = 0.0
    """Dollars; None where nobody knows the price."""

    @property
    def identical(self) -> bool:
        return not self.differences

    def as_json(self, redact: Callable[[str], str] = str) -> Json:
        """Return it for the API and for `--json`."""
        return {
            "run": self.run,
            "routine": self.routine,
            "identical": self.identical,
            "changed": self.changed,
            "steps": self.steps,
            "recorded": _end(self.recorded, redact),
            "played": _end(self.played, redact),
            "differences": [
                {
                    "at": each.at,
                    "seq": each.seq,
                    "what": redact(each.what),
                    "diff": redact(each.diff),
                }
                for each in self.differences
            ],
            "never_made": [redact(each) for each in self.never_made],
            "would_ask": [redact(each) for each in self.would_ask],
            "outside": self.outside,
            "missing": list(self.missing),
            "asked": {"input": self.asked.input, "output": self.asked.output},
            "usd": self.cost,
        }


def _end(end: End, redact: Callable[[str], str]) -> Json:
    return {
        "status": end.status.value,
        "detail": redact(end.detail) if end.detail else None,
        "report": redact(end.report),
        "silent": end.silent,
        "iterations": end.iterations,
        "tokens": end.usage.total,
        "calls": [redact(each) for each in end.calls],
    }
