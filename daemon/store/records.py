"""Values that the repositories and queries/ both return: entries of the audit, quarantined results,
calls to models and their sums, the outcomes of a routine on a day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from daemon.models import Json, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """One entry of the audit."""

    seq: int
    at: datetime
    kind: str
    """call, result, asked, approved, rejected, expired, void, remembered, revoked, quarantined"""
    run: str
    routine: str
    call_id: str
    tool: str
    actor: str
    body: Json
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantinedResult:
    """A result of a tool that was withheld from the model."""

    id: str
    run: str
    routine: str
    call_id: str
    tool: str
    reason: str
    at: datetime
    text: str


class CallOutcome(StrEnum):
    """How a call to a model ended."""

    ASKED = "asked"
    """The call has not ended, or the process died in it."""
    ANSWERED = "answered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The call failed, and the vendor may have answered and may charge for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCall:
    """One call to a model."""

    at: datetime
    run: str
    routine: str
    provider: str
    model: str
    outcome: CallOutcome
    usage: Usage
    cost: int | None
    """Billionths of a dollar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpendingTotal:
    """The sums of some calls to models."""

    key: str
    calls: int
    failed: int
    """How many of the calls gave no answer."""
    usage: Usage
    cost: int
    """Billionths of a dollar."""
    unpriced: int
    """How many of the calls have no known price."""

    @classmethod
    def of(cls, key: str, parts: Sequence[SpendingTotal]) -> SpendingTotal:
        """Return the sum of several totals."""
        usage = Usage()
        for part in parts:
            usage += part.usage
        return cls(
            key=key,
            calls=sum(part.calls for part in parts),
            failed=sum(part.failed for part in parts),
            usage=usage,
            cost=sum(part.cost for part in parts),
            unpriced=sum(part.unpriced for part in parts),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DayOutcomes:
    """The outcomes of one routine on one day."""

    routine: str
    day: int
    """The index of the day among the days of the query."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Counts of ended runs by status, of silent successes as `silent`, and of slots without a run
    that were `missed` or `skipped`.
    """
    tokens: Counter[str] = field(default_factory=Counter)
    """`input` and `output`."""
