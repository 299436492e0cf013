"""Restrict what the rules allow: by the preset (`autonomy`), in a tainted run, and where nobody is
asked (`on_ask = "deny"`).

Nothing here makes a verdict milder: each step returns the verdict of the step before, or a stricter
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from daemon.models import Effect, Verdict

Autonomy: TypeAlias = Literal["readonly", "supervised", "full"]
OnAsk: TypeAlias = Literal["park", "deny"]
PRESETS: tuple[Autonomy, ...] = ("readonly", "supervised", "full")  # strictest first
# What changes agentd itself: no pattern grants it, and no default but deny holds for it.
NAMED_ONLY_TOOLS = frozenset({"routine", "config"})


def is_granted(tool: str, pattern: str) -> bool:
    """Tell whether what grants something by a name or a pattern grants it to this tool."""
    return tool == pattern or (tool not in NAMED_ONLY_TOOLS and fnmatchcase(tool, pattern))


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTraits:
    """What a call is like, whatever it is called."""

    tool: str
    is_read_only: bool
    """It changes nothing."""
    sends: bool
    """What it is given may leave the machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restriction:
    """What holds in one routine besides the rules."""

    routine: str
    autonomy: Autonomy = "full"
    on_ask: OnAsk = "park"
    tainted_tools: tuple[str, ...] = ()

    def may_lower(self, verdict: Verdict, *, tainted: bool) -> bool:
        """Tell whether it could lower this verdict at all."""
        if verdict.effect is Effect.DENY:
            return False
        return tainted or self.autonomy != "full" or verdict.effect is Effect.ASK

    def lower(self, verdict: Verdict, call: CallTraits, *, tainted: bool) -> Verdict:
        """Return the verdict, or a stricter one."""
        verdict = self._by_preset(verdict, call)
        if tainted:
            verdict = self._by_taint(verdict, call)
        return self._denied_if_asked(verdict) if self.on_ask == "deny" else verdict

    def _by_preset(self, verdict: Verdict, call: CallTraits) -> Verdict:
        if call.is_read_only or self.autonomy == "full" or verdict.effect is Effect.DENY:
            return verdict
        rule = f'autonomy = "{self.autonomy}"'
        if self.autonomy == "readonly":
            reason = f"{call.tool} may change something, and {self.routine or 'this'} only looks"
            return Verdict(
                effect=Effect.DENY, rule=rule, reason=reason, alternative="whatever only reads"
            )
        if verdict.effect is Effect.ALLOW:
            reason = f"{call.tool} may change something, which a person approves first"
            return Verdict(effect=Effect.ASK, rule=rule, reason=reason)
        return verdict

    def _by_taint(self, verdict: Verdict, call: CallTraits) -> Verdict:
        if verdict.effect is not Effect.ALLOW or (call.is_read_only and not call.sends):
            return verdict
        if any(is_granted(call.tool, pattern) for pattern in self.tainted_tools):
            return verdict
        action = "send something out" if call.is_read_only else "change something"
        return Verdict(
            effect=Effect.ASK,
            rule="taint",
            reason=(
                f"{call.tool} may {action}, and this run has read text that strangers may have "
                "written"
            ),
            alternative=(
                "what only reads; a person may name the tool in tainted_tools of this routine"
            ),
        )

    @staticmethod
    def _denied_if_asked(verdict: Verdict) -> Verdict:
        if verdict.effect is not Effect.ASK:
            return verdict
        reason = "; ".join(
            filter(None, (verdict.reason, "it would have to be approved, and nobody is asked here"))
        )
        return replace(verdict, effect=Effect.DENY, reason=reason)
