"""Judge one part of a call: of all rules that apply to it, the strictest decides.

Pure functions of values. What a call would do (its words, its files) is found by requests.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemon.models import Effect, Verdict
from daemon.policy.globs import Glob, any_covers
from daemon.policy.lexer import Unreadable
from daemon.policy.policy_file import Rule, strictness
from daemon.policy.restrictions import NAMED_ONLY_TOOLS
from daemon.policy.web import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class CallPart:
    """What one part of a call would do: one command of a line, or the whole call of another
    tool.
    """

    tool: str
    words: tuple[str, ...] = ()
    """A command's words, the program by its plain name."""
    paths: tuple[tuple[str, ...], ...] = ()
    """The files it touches, each under every name that leads there."""
    trees: tuple[tuple[str, ...], ...] = ()
    """Folders of which it reads every file beneath, each under every name that leads there."""
    name_globs: tuple[str, ...] = ()
    """Globs of the files that it is to read within those."""
    target: Target | None = None
    """The request it makes."""
    excluded: tuple[Glob, ...] = ()
    """What it is told to pass over within those."""
    misfit: Unreadable | None = None
    """Why it does not fit the profile; None if it does."""
    refusal: Unreadable | None = None
    """Why no rule could allow it."""

    def __str__(self) -> str:
        where = str(self.target or "") or " ".join(names[0] for names in self.paths)
        return " ".join(self.words) or where or self.tool


def judge(
    part: CallPart,
    rules: Sequence[Rule],
    *,
    routine: str,
    default: Effect = Effect.DENY,
    tainted: bool = False,
) -> Verdict:
    """Return the strictest of what the rules say of this part; `default` if none speaks of it."""
    if part.refusal is not None:
        return Verdict(
            effect=Effect.DENY,
            rule="built in",
            reason=part.refusal.problem,
            alternative=part.refusal.instead,
        )
    applicable_rules = [
        rule for rule in rules if rule.is_for(part.tool, routine) and applies_to(rule, part)
    ]
    if not applicable_rules:
        effect = Effect.DENY if part.tool in NAMED_ONLY_TOOLS else default
        return Verdict(effect=effect, rule="default", reason=_explain_default(part, rules, routine))
    deciding_rule = max(
        applicable_rules,
        key=lambda rule: (strictness(rule.effect_on(tainted=tainted)), -rule.number),
    )
    effect, reason = deciding_rule.effect_on(tainted=tainted), deciding_rule.reason
    if effect is not deciding_rule.effect and not reason:
        reason = "this run has read text that strangers may have written"
    return Verdict(effect=effect, rule=deciding_rule.label, reason=reason)


def applies_to(rule: Rule, part: CallPart) -> bool:
    """Tell whether a rule for this tool speaks of this part of a call."""
    if not rule.matches_words(part.words) or (rule.profile and part.misfit is not None):
        return False
    if part.target is not None and not _applies_to_target(rule, part.target):
        return False
    if not rule.paths:
        return True
    if rule.effect is Effect.ALLOW:
        return all(any_covers(rule.paths, names[0]) for names in part.paths) and all(
            any(glob.covers_all_of(names[0]) for glob in rule.paths) for names in part.trees
        )
    if any(any_covers(rule.paths, *names) for names in (*part.paths, part.name_globs)):
        return True
    # what is excluded lies deeper: a folder that is named itself is read, whatever a program is
    # told to pass over
    excluded = part.excluded if rule.effect is Effect.DENY else ()
    return any(
        glob.covers_all_of(folder) or (glob not in excluded and glob.may_lie_beneath(folder))
        for glob in rule.paths
        for names in part.trees
        for folder in names
    )


def _applies_to_target(rule: Rule, target: Target) -> bool:
    return target.method in rule.methods and (
        not rule.hosts or any(host.matches(target) for host in rule.hosts)
    )


def _explain_default(part: CallPart, rules: Sequence[Rule], routine: str) -> str:
    """Say what kept the nearest allowing rule from speaking of this part."""
    allowing = [
        rule for rule in rules if rule.effect is not Effect.DENY and rule.is_for(part.tool, routine)
    ]
    if part.words and part.tool != "shell":
        words = part.words[:2] if part.tool in NAMED_ONLY_TOOLS else part.words[:1]
        return f"no rule allows {part.tool} {' '.join(words)}".rstrip()
    if part.words:
        program_rules = [
            rule for rule in allowing if not rule.argv or part.words[0] in rule.argv[0]
        ]
        if not program_rules:
            return f"no rule allows the program {part.words[0]}"
        if part.misfit is not None:
            return part.misfit.problem
        return f"no rule allows {part}"
    if part.target is not None:
        return f"no rule allows {part.target.method} {part.target.origin}"
    return f"no rule allows {part.tool}" + (f" on {part}" if part.paths and allowing else "")
