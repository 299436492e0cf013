"""The policy in force: policy.toml, loaded and checked by its own examples; it judges every
call.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, Protocol

from daemon.definitions.reading import Conflict, CrossFieldCheck, load_toml, parse
from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault
from daemon.models import Effect, Json, Verdict
from daemon.policy.globs import Glob, any_covers
from daemon.policy.judge import CallPart, applies_to, judge
from daemon.policy.lexer import Unreadable
from daemon.policy.policy_file import (
    RUN_END_TOOLS,
    TOOLS,
    UNKNOWN_TOOL,
    PolicyFile,
    PolicyLimits,
    RoutineTable,
    Rule,
    file_checks,
    strictness,
)
from daemon.policy.profiles import read_only, suggest_instead
from daemon.policy.reachable_paths import CallPath, ReachablePaths
from daemon.policy.requests import PlannedPipeline, Request, analyze_call
from daemon.policy.restrictions import (
    NAMED_ONLY_TOOLS,
    PRESETS,
    Autonomy,
    CallTraits,
    OnAsk,
    Restriction,
)
from daemon.policy.routine_rules import allows_tool, refuse_part, refuse_tool
from daemon.policy.web import SAFE_METHODS, Target

# The policy in the words of a prompt.
_SUMMARY_TEXTS = {
    "en": {
        "shell": (
            "shell: {programs}; plain words joined by | && || ; no variables or substitution, no "
            "writing to files"
        ),
        "workspace": "the workspace",
        "never": "never: {what}",
        "nothing": "no tool",
    },
    "zh": {
        "shell": "shell:{programs};只有普通的词,用 | && || ; 连接,没有变量和替换,不能写文件",
        "workspace": "工作区",
        "never": "绝不:{what}",
        "nothing": "没有可用的工具",
    },
}
_NO_SECTION = RoutineTable()
_RUN_END_VERDICT = Verdict(
    effect=Effect.ALLOW, rule="built in", reason="it only says how the run ends"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolRules:
    """What holds for every call of one tool in one routine, whatever it asks for."""

    tables: tuple[tuple[str, RoutineTable], ...]
    """The sections of the routine."""
    rules: tuple[Rule, ...]
    """Those that speak of the tool there."""
    verdict: Verdict | None
    """What is said of all these calls alike."""
    restriction: Restriction
    file_rules: tuple[Rule, ...]
    """Those that speak there of reading files."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What agents may do. Every call is judged anew; nothing is remembered between calls."""

    rules: tuple[Rule, ...]
    routines: Mapping[str, RoutineTable]
    reach: ReachablePaths
    limits: PolicyLimits
    default: Effect = Effect.DENY
    autonomy: Autonomy = "full"
    on_ask: OnAsk = "park"
    sandbox: Literal["require", "prefer", "off"] = "prefer"
    detector: str = ""
    """`module:function` of the user's own check for orders in results; empty for none."""
    trusted: tuple[Glob, ...] = ()
    """Files that may speak of orders to agents."""
    hash: str = ""
    """SHA-256 of the file, as `sha256sum policy.toml` prints it."""
    text: str = field(default="", repr=False, compare=False)
    """What stood in the file."""

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        workspace: Path,
        tools: Collection[str] = (),
        private: Collection[Path] = (),
    ) -> Policy:
        """Read a policy file; raise ConfigError with all its faults.

        `tools` are the names of tools that did not ship with us; `private` the files and folders of
        the daemon's own, which no tool may ever reach.
        """
        refuse_if_shared(path)
        tool_names = frozenset({*TOOLS, *tools})
        file = load_toml(
            path,
            PolicyFile,
            (*file_checks(tool_names), *_proof_checks(workspace, (path, *private))),
        )
        text = path.read_bytes()
        return replace(
            cls.of(file, workspace), hash=hashlib.sha256(text).hexdigest(), text=text.decode()
        )

    @classmethod
    def read(
        cls,
        text: str,
        *,
        workspace: Path,
        tools: Collection[str] | None = None,
        name: str = "policy",
    ) -> Policy:
        """Read the text of a policy that is to be tried, not to be obeyed; raise ConfigError with
        all its faults.

        Without `tools` it is one that was in force: names of tools that are gone by now are no
        fault of it.
        """
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                Fault(file=name, key="", found="", problem=f"is not TOML: {error}")
            ) from None
        rules = (
            ()
            if tools is None
            else (*file_checks(frozenset({*TOOLS, *tools})), *_proof_checks(workspace, ()))
        )
        file = parse(data, PolicyFile, file=name, rules=rules)
        return replace(
            cls.of(file, workspace), hash=hashlib.sha256(text.encode()).hexdigest(), text=text
        )

    @classmethod
    def of(cls, file: PolicyFile, workspace: Path) -> Policy:
        return cls(
            rules=tuple(Rule.of(number, table) for number, table in enumerate(file.rule, 1)),
            routines=file.routine,
            reach=ReachablePaths.of(
                workspace, [Path(path).expanduser() for path in file.paths.read]
            ),
            limits=file.limits,
            default=Effect(file.default),
            autonomy=file.autonomy,
            on_ask=file.on_ask,
            sandbox=file.sandbox,
            detector=file.injection.detector,
            trusted=tuple(map(Glob, file.injection.trust)),
        )

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        """Say whether a call may run, by which rule and, if not, what may."""
        return self.plan(tool, arguments, routine=routine, tainted=tainted)[0]

    def plan(
        self, tool: str, arguments: Json, *, routine: str, tainted: bool = False
    ) -> tuple[Verdict, tuple[PlannedPipeline, ...]]:
        """Judge a call and return, for the shell, exactly what would run; the tool runs that and
        nothing else.
        """
        tool_rules = self._tool_rules(tool, routine)
        if tool_rules.verdict is not None:
            return tool_rules.verdict, ()
        try:
            request = analyze_call(
                tool, arguments, self.reach, tool_rules.rules, tool_rules.file_rules
            )
        except Unreadable as error:
            return Verdict(
                effect=Effect.DENY, rule="built in", reason=error.problem, alternative=error.instead
            ), ()
        verdict = self._by_rules(request.parts, tool_rules, tainted=tainted)
        return self._restricted(verdict, tool_rules, tool, arguments, tainted=tainted), request.line

    def judge_path(
        self, tool: str, path: CallPath, *, routine: str, tainted: bool = False
    ) -> Verdict:
        """Judge a call by where its path was found to lead, which is not followed again: that is
        what will be opened.

        How it was written is another name, to be judged by itself.
        """
        tool_rules = self._tool_rules(tool, routine)
        if tool_rules.verdict is not None:
            return tool_rules.verdict
        verdict = self._by_rules(
            (CallPart(tool=tool, paths=(path.names[:1],)),), tool_rules, tainted=tainted
        )
        return self._restricted(verdict, tool_rules, tool, {}, tainted=tainted)

    @cached_property
    def _tool_rules(self) -> Callable[[str, str], _ToolRules]:
        return lru_cache(maxsize=1024)(
            self._collect_tool_rules
        )  # a routine makes the same few calls in each of its runs

    def _collect_tool_rules(self, tool: str, routine: str) -> _ToolRules:
        tables = tuple(self._tables(routine))
        refusals = (refuse_tool(table, tool, name) for name, table in tables)
        return _ToolRules(
            tables=tables,
            rules=tuple(rule for rule in self.rules if rule.is_for(tool, routine)),
            verdict=_RUN_END_VERDICT
            if tool in RUN_END_TOOLS
            else next(filter(None, refusals), None),
            restriction=self._restriction(routine),
            file_rules=tuple(rule for rule in self.rules if rule.is_for("file_read", routine)),
        )

    def _by_rules(
        self, parts: Sequence[CallPart], tool_rules: _ToolRules, *, tainted: bool
    ) -> Verdict:
        """Return the strictest of what sections and rules say of the parts of a call."""
        tables, rules, routine = tool_rules.tables, tool_rules.rules, tool_rules.restriction.routine
        verdicts = [
            next(filter(None, (refuse_part(table, part, name) for name, table in tables)), None)
            or judge(part, rules, routine=routine, default=self.default, tainted=tainted)
            for part in parts
        ]
        index = max(
            range(len(verdicts)), key=lambda number: (strictness(verdicts[number].effect), -number)
        )
        verdict = verdicts[index]
        if verdict.effect is Effect.ALLOW or verdict.alternative:
            return verdict
        return Verdict(
            effect=verdict.effect,
            rule=verdict.rule,
            reason=verdict.reason,
            alternative=self._suggest_alternative(
                parts[index], rules, by_default=verdict.rule == "default"
            ),
        )

    def _restricted(
        self, verdict: Verdict, tool_rules: _ToolRules, tool: str, arguments: Json, *, tainted: bool
    ) -> Verdict:
        if not tool_rules.restriction.may_lower(verdict, tainted=tainted):
            return verdict
        return tool_rules.restriction.lower(verdict, self._traits(tool, arguments), tainted=tainted)

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        """Tell whether a call changes nothing, so that doing it twice is doing it once."""
        if not TOOLS.get(tool, UNKNOWN_TOOL).changes:
            return True
        if tool == "http_request":
            return arguments.get("method", "GET") in SAFE_METHODS
        if tool in NAMED_ONLY_TOOLS:
            return TOOLS[tool].actions.get(str(arguments.get("action")), False)
        if tool != "shell":
            return False
        try:
            request = analyze_call(tool, arguments, self.reach)
        except Unreadable:
            return False
        return all(part.misfit is None and part.refusal is None for part in request.parts)

    def shows_injected_result(self, tool: str, arguments: Json, *, routine: str) -> bool:
        """Tell whether a result that gives orders is shown all the same, as untrusted as can be."""
        if all(table.injection == "review" for _, table in self._tables(routine)):
            return True
        if not self.trusted or TOOLS.get(tool, UNKNOWN_TOOL).acts_on != "reading":
            return False
        try:
            parts = analyze_call(tool, arguments, self.reach).parts
        except Unreadable:
            return False
        return all(any_covers(self.trusted, names[0]) for part in parts for names in part.paths)

    def _restriction(self, routine: str) -> Restriction:
        tables = [table for _, table in self._tables(routine)]
        autonomy = min(
            self.autonomy, *(table.autonomy or self.autonomy for table in tables), key=PRESETS.index
        )
        return Restriction(
            routine=routine,
            autonomy=autonomy,
            on_ask="deny"
            if any((table.on_ask or self.on_ask) == "deny" for table in tables)
            else "park",
            # a routine that an agent made has no section of its own that widens anything: its
            # maker's counts
            tainted_tools=tables[0].tainted_tools,
        )

    def _tables(self, routine: str) -> list[tuple[str, RoutineTable]]:
        """Return the sections that hold for a routine; for `maker/name` those of both, the maker's
        first.
        """
        if "/" not in routine:
            return [(routine, self.routines.get(routine, _NO_SECTION))]
        return [(name, self.routines.get(name, _NO_SECTION)) for name in routine.split("/")]

    def names(self, tool: str, routine: str) -> bool:
        """Tell whether a rule that does not forbid names this tool, for this routine."""
        return any(
            rule.tool == tool and rule.effect is not Effect.DENY and rule.is_for(tool, routine)
            for rule in self.rules
        )

    def rule_singling_out(self, routine: str, other_routine: str) -> str:
        """Return what speaks of a routine by its name in words that may grant something to it, but
        not to another.
        """
        if routine in self.routines:
            return f"[routine.{routine}]"
        return next(
            (
                rule.label
                for rule in self.rules
                if rule.routines
                and rule.effect is not Effect.DENY
                and rule.is_for(rule.tool, routine)
                and not rule.is_for(rule.tool, other_routine)
            ),
            "",
        )

    def _traits(self, tool: str, arguments: Json) -> CallTraits:
        properties = TOOLS.get(tool, UNKNOWN_TOOL)
        return CallTraits(
            tool=tool, is_read_only=self.is_read_only(tool, arguments), sends=properties.sends
        )

    def networks(self, target: Target, routine: str) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the addresses that are not public and that a request may go to all the same."""
        part = CallPart(tool="http_request", target=target)
        applicable_rules = [
            rule
            for rule in self.rules
            if rule.is_for(part.tool, routine) and applies_to(rule, part)
        ]
        return tuple(network for rule in applicable_rules for network in rule.networks)

    def limits_for(self, routine: str) -> PolicyLimits:
        """Return the limits of one run of a routine."""
        limits = self.limits
        for _, table in self._tables(routine):
            if table is not _NO_SECTION:
                limits = limits.within(table.limits)
        return limits

    def summary(self, routine: str, tools: Collection[str], *, language: str = "en") -> str:
        """Return in a few lines what these tools may do in a routine, for the prompt."""
        return self._summaries(routine, tuple(tools), language)

    @cached_property
    def _summaries(self) -> Callable[[str, tuple[str, ...], str], str]:
        return lru_cache(maxsize=256)(
            self._summarize
        )  # a routine is told the same in each of its runs

    def _summarize(self, routine: str, tools: tuple[str, ...], language: str) -> str:
        texts = _SUMMARY_TEXTS.get(language, _SUMMARY_TEXTS["en"])
        tables = [table for _, table in self._tables(routine)]
        offered = [
            tool
            for tool in tools
            if tool not in RUN_END_TOOLS and all(allows_tool(table, tool) for table in tables)
        ]
        rules = [rule for rule in self.rules if any(rule.is_for(tool, routine) for tool in offered)]
        allowing = [rule for rule in rules if rule.effect is Effect.ALLOW]
        lines: list[str] = []
        for tool in offered:
            tool_rules = [rule for rule in allowing if rule.is_for(tool, routine)]
            if not tool_rules:
                continue
            if tool == "shell":
                lines.append(
                    texts["shell"].format(programs=", ".join(_allowed_programs(tool_rules)))
                )
            elif TOOLS.get(tool, UNKNOWN_TOOL).acts_on == "nothing":
                lines.append(tool)
            elif forms := [form for rule in tool_rules for form in _describe_allowed(rule)]:
                lines.append(f"{tool}: {', '.join(dict.fromkeys(forms))}")
            else:
                lines.append(f"{tool}: {self._describe_paths(tool, tool_rules, texts)}")
        for rule in rules if lines else ():
            if rule.effect is Effect.DENY:
                subject = ", ".join(glob.pattern for glob in rule.paths) or rule.label
                lines.append(
                    texts["never"].format(what=subject)
                    + (f" ({rule.reason})" if rule.reason else "")
                )
        return "\n".join(f"- {line}" for line in lines) or f"- {texts['nothing']}"

    def _describe_paths(self, tool: str, rules: Collection[Rule], texts: Mapping[str, str]) -> str:
        if all(rule.paths for rule in rules):
            return ", ".join(dict.fromkeys(glob.pattern for rule in rules for glob in rule.paths))
        if TOOLS[tool].acts_on in ("script", "action"):
            return "*"
        writing = TOOLS[tool].acts_on == "writing"
        return ", ".join((texts["workspace"], *(() if writing else self.reach.readable)))

    def without_disk(self) -> Policy:
        """Return this policy as it reads examples: without looking at the disk."""
        return replace(self, reach=replace(self.reach, on_disk=False))

    def example_fault(self, rule: Rule, example: str, *, should_match: bool) -> str:
        """Say why an example proves a rule wrong; empty if it does not.

        An allowing rule must speak of some command of a `match` line, all of which must be allowed
        in the end, and not of every command of a `not_match` line; one that forbids must speak of
        some, and of none.
        """
        try:
            parts = self._analyze_example(rule, example).parts
        except Unreadable as error:
            return str(error) if should_match else ""
        applicable = [part.refusal is None and applies_to(rule, part) for part in parts]
        allows = rule.effect is Effect.ALLOW
        if not should_match:
            return (
                "the rule speaks of it" if (all(applicable) if allows else any(applicable)) else ""
            )
        if not any(applicable):
            misfits = [part.refusal or part.misfit for part in parts]
            return next(
                (str(misfit) for misfit in misfits if misfit), "the rule does not speak of it"
            )
        routine = rule.routines[0] if rule.routines else ""
        for part in parts if allows else ():
            verdict = judge(part, self.rules, routine=routine)
            if not verdict.allows:
                return f"{verdict.rule} says {verdict.effect}" + (
                    f": {verdict.reason}" if verdict.reason else ""
                )
        return ""

    def _analyze_example(self, rule: Rule, example: str) -> Request:
        tool = rule.tool if rule.tool in TOOLS else "file_read"
        arguments: Json = {TOOLS[tool].argument: example}
        if TOOLS[tool].acts_on == "web" and " " in example:
            method, _, url = example.partition(" ")
            arguments = {"method": method, "url": url}
        elif TOOLS[tool].acts_on == "script":
            name, *words = example.split()
            arguments = {"name": name, "arguments": words}
        elif TOOLS[tool].acts_on == "action":
            action, _, done_to = example.partition(" ")
            arguments = {"action": action, TOOLS[tool].object: done_to}
        return analyze_call(tool, arguments, self.reach, self.rules)

    def _suggest_alternative(
        self, part: CallPart, rules: Collection[Rule], *, by_default: bool
    ) -> str:
        """Say what would be allowed in place of a part that is not."""
        if TOOLS.get(part.tool, UNKNOWN_TOOL).acts_on in ("web", "git", "script", "action"):
            if part.misfit is not None:
                return part.misfit.instead
            forms = [
                form
                for rule in rules
                if rule.effect is Effect.ALLOW
                for form in _describe_allowed(rule)
            ]
            return f"{part.tool} may use {', '.join(dict.fromkeys(forms))}" if forms else ""
        if part.words:
            name = part.words[0]
            programs = _allowed_programs(rules)
            if (
                by_default
                and part.misfit is not None
                and name in read_only()
                and _names_program(name, rules)
            ):
                return part.misfit.instead
            if hint := suggest_instead(name):
                return hint
            return (
                f"the shell runs {', '.join(programs)}"
                if programs
                else "no command is allowed here"
            )
        patterns = [
            glob.pattern for rule in rules if rule.effect is Effect.ALLOW for glob in rule.paths
        ]
        return f"{part.tool} may use {', '.join(patterns)}" if patterns and part.paths else ""


def _describe_allowed(rule: Rule) -> list[str]:
    """Return what a rule for http_request, git or script speaks of, in words."""
    if rule.hosts:
        return [f"{'|'.join(sorted(rule.methods))} {host.pattern}" for host in rule.hosts]
    return [" ".join("|".join(sorted(tokens)) for tokens in rule.argv)] if rule.argv else []


def _names_program(program: str, rules: Collection[Rule]) -> bool:
    return any(
        not rule.argv or program in rule.argv[0] for rule in rules if rule.effect is not Effect.DENY
    )


def _allowed_programs(rules: Collection[Rule]) -> list[str]:
    """Return the programs that rules allow, with their sub-commands where a rule names some."""
    names: dict[str, None] = {}
    for rule in rules:
        if rule.effect is Effect.ALLOW and rule.tool == "shell":
            following = " " + "|".join(sorted(rule.argv[1])) if len(rule.argv) > 1 else ""
            programs = sorted(rule.argv[0] if rule.argv else read_only())
            names.update(dict.fromkeys(f"{name}{following}" for name in programs if name != "["))
    return list(names)


# --- proofs at load
# ------------------------------------------------------------------------------------


def _proof_checks(
    workspace: Path, private: Collection[Path]
) -> tuple[CrossFieldCheck[PolicyFile], ...]:
    def examples_hold(file: PolicyFile) -> Iterator[Conflict]:
        policy = Policy.of(file, workspace).without_disk()
        for index, table in enumerate(file.rule):
            rule = policy.rules[index]
            for key, texts in (("match", table.match), ("not_match", table.not_match)):
                for text in texts:
                    if problem := policy.example_fault(rule, text, should_match=key == "match"):
                        yield Conflict(f"rule[{index}].{key}", problem, text)

    def private_paths_are_unreachable(file: PolicyFile) -> Iterator[Conflict]:
        reach = Policy.of(file, workspace).reach
        for path in map(os.path.realpath, private):
            for root in (reach.workspace, *reach.readable):
                if path == root or path.startswith(root.rstrip("/") + "/"):
                    yield Conflict(
                        "paths.read" if root != reach.workspace else "",
                        f"{display(root)} holds {display(path)}, which no tool may reach",
                        hint="give agents a folder of their own",
                    )

    return (
        CrossFieldCheck(("rule",), examples_hold),
        CrossFieldCheck(("paths.read",), private_paths_are_unreachable),
    )


def refuse_if_shared(path: Path) -> None:
    """Raise ConfigError if anybody but this user and root could have written the policy, or
    replaced it.
    """
    for checked_path in (path, Path(os.path.realpath(path)).parent):
        try:
            status = checked_path.stat()
        except OSError:
            return  # load_toml says it better
        problem = ""
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()):
            problem, hint = (
                f"belongs to {_user_name(status.st_uid)}",
                f"chown it to {_user_name(os.geteuid())} or root",
            )
        elif status.st_mode & stat.S_IWOTH and not sticky:
            problem, hint = "can be written by everybody", "chmod o-w"
        elif (
            status.st_mode & stat.S_IWGRP
            and not sticky
            and (other_users := _describe_others(status.st_gid, status.st_uid))
        ):
            problem, hint = f"can be written by {other_users}", "chmod g-w"
        if problem:
            raise ConfigError(
                Fault(file=display(checked_path), key="", found="", problem=problem, hint=hint)
            )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _describe_others(gid: int, uid: int) -> str:
    """Return who else is in a group; empty if it is a user's own, as with umask 002."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return f"group {gid}"
    owner = _user_name(uid)
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)} - {
        owner,
        "root",
    }
    return (
        f"the members of group {group.gr_name} ({', '.join(sorted(members)[:3])})"
        if members
        else ""
    )


class LivePolicy(Protocol):
    """Give the policy in force. Do not keep it: a reload replaces it."""

    @property
    def policy(self) -> Policy: ...
