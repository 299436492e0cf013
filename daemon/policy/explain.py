"""Explain a verdict: every part of a call, with the rules that apply to it and the one that
decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from daemon.models import Json, Verdict
from daemon.policy.lexer import CallRejected
from daemon.policy.policy import Policy
from daemon.policy.policy_file import Rule
from daemon.policy.requests import analyze_call
from daemon.policy.verdicts import applies_to, judge_part
from daemon.policy.web import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainedPart:
    """One command of a line, or the whole call of another tool."""

    text: str
    verdict: Verdict
    """By the rules alone."""
    rules: tuple[Rule, ...]
    """All that cover it, in the order of the file."""
    reads: tuple[str, ...] = ()
    """The files it would touch, as far as that is known, where their links lead."""
    target: Target | None = None
    """The address of a request over the web; None for other calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What the policy says of a call, and why."""

    verdict: Verdict
    parts: tuple[ExplainedPart, ...] = ()
    """Empty if the call cannot be read at all."""


def explain(
    policy: Policy, tool: str, arguments: Json, *, routine: str, tainted: bool = False
) -> Explanation:
    """Return the verdict on a call with all that led to it."""
    verdict = policy.judge(tool, arguments, routine=routine, tainted=tainted)
    rules = [rule for rule in policy.rules if rule.is_for(tool, routine)]
    try:
        parts = analyze_call(tool, arguments, policy.reach, rules).parts
    except CallRejected:
        return Explanation(verdict=verdict)
    explained_parts = (
        ExplainedPart(
            text=str(part),
            verdict=judge_part(part, policy.rules, routine=routine, default=policy.default),
            rules=() if part.refusal else tuple(rule for rule in rules if applies_to(rule, part)),
            # any word may name a file, and so is judged as one; an option most likely does not
            reads=tuple(
                names[0]
                for names in part.paths
                if not (names[0].startswith("-") and names[0] in part.words)
            ),
            target=part.target,
        )
        for part in parts
    )
    return Explanation(verdict=verdict, parts=tuple(explained_parts))
