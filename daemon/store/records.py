"""Values that the repositories and the queries of people both know: rows of the audit, calls to
models, what became of a routine on a day.
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
    """One row of the audit."""

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


class Called(StrEnum):
    """How a call to a model ended."""

    ASKED = "asked"
    ANSWERED = "answered"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """One call to a model."""

    at: datetime
    run: str
    routine: str
    provider: str
    model: str
    outcome: Called
    usage: Usage
    cost: int | None
    """Billionths of a dollar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpendingTotal:
    """What some calls came to."""

    key: str
    calls: int
    failed: int
    """Of these, how many gave no answer."""
    usage: Usage
    cost: int
    unpriced: int
    """Of these, how many have no known price."""

    @classmethod
    def of(cls, key: str, parts: Sequence[SpendingTotal]) -> SpendingTotal:
        """Return several sums as one."""
        usage = Usage()
        for each in parts:
            usage += each.usage
        return cls(
            key=key,
            calls=sum(each.calls for each in parts),
            failed=sum(each.failed for each in parts),
            usage=usage,
            cost=sum(each.cost for each in parts),
            unpriced=sum(each.unpriced for each in parts),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """What became of one routine on one day."""

    routine: str
    day: int
    """The place of the day among those that were asked about."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Runs by status (`silent` of its own), and slots that were `missed` or `skipped` without a
    run.
    """
    tokens: Counter[str] = field(default_factory=Counter)
    """`input` and `output`."""
