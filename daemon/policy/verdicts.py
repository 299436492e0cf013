"""The verdict on one part of a call: of all rules that apply to it, the strictest decides. The
verdict on a whole call, the strictest of its parts, is `Policy.judge` (policy.py).

The section of a routine, `[routine.NAME]`, allows nothing that no rule allows: whatever it leaves
still needs a rule. Three of its keys loosen something else: `tainted_tools`, `injection = "review"`
and `on_ask = "park"` where the file says "deny". The level of autonomy, the taint of a run and
`on_ask = "deny"` make no verdict milder: each step returns the verdict of the step before, or a
stricter one.

Pure functions of values. What a call would do (its words, its files) is found by requests.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from daemon.models import BUILT_IN_RULE, Effect, Verdict
from daemon.policy.git import brings_config, without_global_options
from daemon.policy.globs import Glob, any_covers
from daemon.policy.lexer import CallRejected
from daemon.policy.policy_file import (
    NAMED_ONLY_TOOLS,
    TOOLS,
    UNKNOWN_TOOL,
    Autonomy,
    OnAsk,
    RoutineTable,
    Rule,
    strictness,
)
from daemon.policy.web import HostPattern, Target


@dataclass(frozen=True, kw_only=True, slots=True)
class CallPart:
    """What one part of a call would do: one command of a line, or the whole call of another
    tool.
    """

    tool: str
    words: tuple[str, ...] = ()
    """A command's words as they run, the program by its plain name."""
    written_words: tuple[str, ...] = ()
    """The words as the call has them, of the tools shell and git: `ps -ef` runs as `ps -Af`."""
    paths: tuple[tuple[str, ...], ...] = ()
    """The files it touches, each under every name that leads there."""
    trees: tuple[tuple[str, ...], ...] = ()
    """Folders of which it reads every file beneath, each under every name that leads there."""
    name_globs: tuple[str, ...] = ()
    """Globs of the files that it is to read within `trees`."""
    target: Target | None = None
    """The request it makes; None for anything but a request of the web."""
    excluded_globs: tuple[Glob, ...] = ()
    """What it is told to pass over within `trees`."""
    mismatch: CallRejected | None = None
    """Why it does not fit the profile; None if it does."""
    refusal: CallRejected | None = None
    """Why no rule could allow it; None if one could."""

    def __str__(self) -> str:
        location = str(self.target or "") or " ".join(names[0] for names in self.paths)
        return " ".join(self.written_words or self.words) or location or self.tool


def judge_part(
    part: CallPart,
    rules: Sequence[Rule],
    *,
    routine: str,
    default: Effect = Effect.DENY,
    tainted: bool = False,
) -> Verdict:
    """Return the strictest of what the rules say of this part; `default` if none covers it."""
    if part.refusal is not None:
        return Verdict(
            effect=Effect.DENY,
            rule=BUILT_IN_RULE,
            reason=part.refusal.problem,
            alternative=part.refusal.alternative,
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
    """Tell whether a rule for this tool covers this part of a call.

    A rule that allows must cover every path, by its real name; one that asks or denies applies if
    it covers any, under any name.
    """
    if not covers_words(rule, part.words, part.written_words):
        return False
    if rule.profile and part.mismatch is not None:
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
    # These hold for what lies beneath a folder: the folder itself, where a call names it, is read.
    excluded_globs = part.excluded_globs if rule.effect is Effect.DENY else ()
    return any(
        glob.covers_all_of(folder) or (glob not in excluded_globs and glob.may_lie_beneath(folder))
        for glob in rule.paths
        for names in part.trees
        for folder in names
    )


def covers_words(rule: Rule, words: Sequence[str], written_words: Sequence[str] = ()) -> bool:
    """Tell whether a command begins with the words of a rule, as it runs or as it was written.

    To a rule that asks or denies, options that git has before its sub-command are no words: it
    covers `git -P push` if it covers `git push`. With config among them, the command may be any
    that the rule covers: `git -c alias.p=push p`.
    """
    if rule.matches_words(words) or (written_words and rule.matches_words(written_words)):
        return True
    if rule.effect is Effect.ALLOW or tuple(written_words[:1]) != ("git",):
        return False
    if brings_config(written_words):
        return "git" in rule.argv[0]
    return rule.matches_words(without_global_options(written_words))


def _applies_to_target(rule: Rule, target: Target) -> bool:
    return target.method in rule.methods and (
        (not rule.hosts or any(host.matches(target) for host in rule.hosts))
        and (not rule.urls or target.url in rule.urls)
        and (target.is_plain or not rule.safe)
    )


def _explain_default(part: CallPart, rules: Sequence[Rule], routine: str) -> str:
    """Say what kept the nearest allowing rule from speaking of this part."""
    allowing_rules = [
        rule for rule in rules if rule.effect is not Effect.DENY and rule.is_for(part.tool, routine)
    ]
    if part.words and part.tool != "shell":
        words = part.words[:2] if part.tool in NAMED_ONLY_TOOLS else part.words[:1]
        return f"no rule allows {part.tool} {' '.join(words)}".rstrip()
    if part.words:
        program_rules = [
            rule for rule in allowing_rules if not rule.argv or part.words[0] in rule.argv[0]
        ]
        if not program_rules:
            return f"no rule allows the program {part.words[0]}"
        if part.mismatch is not None:
            return part.mismatch.problem
        return f"no rule allows {part}"
    if part.target is not None:
        additions = "" if part.target.is_plain else " with headers, a body or other arguments"
        return f"no rule allows {part.target.method} {part.target.origin}{additions}"
    return f"no rule allows {part.tool}" + (f" on {part}" if part.paths and allowing_rules else "")


def covers_tool(pattern: str, tool: str) -> bool:
    """Tell whether a pattern of tools, such as one of `tainted_tools`, covers a tool."""
    return tool == pattern or (tool not in NAMED_ONLY_TOOLS and fnmatchcase(tool, pattern))


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTraits:
    """What a restriction has to know of a call."""

    tool: str
    is_read_only: bool
    """Whether the call changes nothing."""
    sends: bool
    """Whether the arguments of the call may leave the machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restriction:
    """What holds in one routine besides the rules."""

    routine: str
    autonomy: Autonomy = "full"
    on_ask: OnAsk = "park"
    tainted_tools: tuple[str, ...] = ()
    """Names and patterns of the tools that a tainted run may use as any other run."""

    def may_restrict(self, verdict: Verdict, *, tainted: bool) -> bool:
        """Tell whether the restriction could make this verdict stricter at all."""
        if verdict.effect is Effect.DENY:
            return False
        return tainted or self.autonomy != "full" or verdict.effect is Effect.ASK

    def restrict(self, verdict: Verdict, call: CallTraits, *, tainted: bool) -> Verdict:
        """Return the verdict, or a stricter one."""
        verdict = self._apply_autonomy(verdict, call)
        if tainted:
            verdict = self._apply_taint(verdict, call)
        return self._deny_instead_of_asking(verdict) if self.on_ask == "deny" else verdict

    def _apply_autonomy(self, verdict: Verdict, call: CallTraits) -> Verdict:
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

    def _apply_taint(self, verdict: Verdict, call: CallTraits) -> Verdict:
        if verdict.effect is not Effect.ALLOW or (call.is_read_only and not call.sends):
            return verdict
        if verdict.output_folder:
            return verdict
        if any(covers_tool(pattern, call.tool) for pattern in self.tainted_tools):
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
    def _deny_instead_of_asking(verdict: Verdict) -> Verdict:
        if verdict.effect is not Effect.ASK:
            return verdict
        reason = "; ".join(
            filter(None, (verdict.reason, "it would have to be approved, and nobody is asked here"))
        )
        return replace(verdict, effect=Effect.DENY, reason=reason)


def allows_tool(table: RoutineTable, tool: str) -> bool:
    """Tell whether a routine may use a tool at all."""
    return table.tools is None or any(fnmatchcase(tool, pattern) for pattern in table.tools)


def refuse_tool(table: RoutineTable, tool: str, routine: str) -> Verdict | None:
    """Return the refusal of a tool that a routine may not use; None if it may."""
    if allows_tool(table, tool):
        return None
    return _make_denial(routine, "use", tool, table.tools or ("finish",))


def refuse_part(table: RoutineTable, part: CallPart, routine: str) -> Verdict | None:
    """Return the refusal of one part of a call that lies outside the confines of its routine; None
    if it does not.
    """
    if part.words and table.commands is not None and part.tool in ("shell", "git"):
        program = () if part.tool == "shell" else ("git",)
        words = (*program, *part.words)
        forms = (words, (*program, *part.written_words))
        beginnings = [tuple(text.split()) for text in table.commands]
        if not any(
            form[: len(beginning)] == beginning for form in forms for beginning in beginnings
        ):
            return _make_denial(routine, "run", " ".join(words[:2]), table.commands)
    if part.target is not None and table.hosts is not None:
        is_allowed = any(HostPattern.of(text).matches(part.target) for text in table.hosts)
        if not is_allowed:
            return _make_denial(routine, "ask", part.target.origin, table.hosts)
    if TOOLS.get(part.tool, UNKNOWN_TOOL).acts_on == "writing" and table.write is not None:
        globs = [Glob(text) for text in table.write]
        if not all(any_covers(globs, names[0]) for names in part.paths):
            return _make_denial(routine, "write", str(part), table.write)
    return None


def _make_denial(
    routine: str, verb: str, denied_object: str, allowed_objects: tuple[str, ...]
) -> Verdict:
    """Return the denial of a call by the table of its routine; the verb takes the objects."""
    return Verdict(
        effect=Effect.DENY,
        rule=f"[routine.{routine}]",
        reason=f"{routine} may not {verb} {denied_object}",
        alternative=f"this routine may {verb} {', '.join(allowed_objects) or 'nothing'}",
    )
