"""The policy in force: policy.toml, loaded and checked by its own examples; it judges every
call.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, Protocol

from daemon.definitions.reading import Conflict, CrossFieldCheck, load_toml, parse
from daemon.definitions.toml_text import TomlOutOfBounds, parse_toml_text
from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault
from daemon.models import BUILT_IN_RULE, Effect, Json, Verdict
from daemon.policy import output_files
from daemon.policy.globs import Glob, any_covers
from daemon.policy.lexer import CallRejected
from daemon.policy.numbers import prints_only_numbers
from daemon.policy.policy_file import (
    AUTONOMY_LEVELS,
    NAMED_ONLY_TOOLS,
    RUN_END_TOOLS,
    SECRET_FILES_LABEL,
    TOOLS,
    UNKNOWN_TOOL,
    Autonomy,
    OnAsk,
    PolicyFile,
    PolicyLimits,
    RoutineTable,
    Rule,
    file_checks,
    strictness,
)
from daemon.policy.profiles import read_only_programs, suggest_alternative
from daemon.policy.reachable_paths import CallPath, ReachablePaths
from daemon.policy.requests import PlannedPipeline, Request, analyze_call
from daemon.policy.verdicts import (
    CallPart,
    CallTraits,
    Restriction,
    allows_tool,
    applies_to,
    covers_tool,
    judge_part,
    refuse_part,
    refuse_tool,
)
from daemon.policy.web import SAFE_METHODS, Target
from daemon.system.ownership import explain_other_writers

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
    effect=Effect.ALLOW, rule=BUILT_IN_RULE, reason="it only says how the run ends"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolRules:
    """What holds for every call of one tool in one routine, whatever it asks for."""

    tables: tuple[tuple[str, RoutineTable], ...]
    """The sections of the routine."""
    rules: tuple[Rule, ...]
    """Those that cover the tool there."""
    verdict: Verdict | None
    """What is said of all these calls alike."""
    restriction: Restriction
    file_rules: tuple[Rule, ...]
    """Those that cover the tool file_read there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The trial of a routine: nobody is asked about its calls, and what was denied is recorded."""

    routine: str
    """Whose section in policy.toml says so."""
    until: datetime | None
    """When it ends; None if the section does not say."""

    def is_over(self, now: datetime) -> bool:
        return self.until is not None and self.until <= now

    def describe(self, now: datetime) -> str:
        """Say how the trial stands, and what to do next."""
        command = f"agentctl policy suggest {self.routine}"
        if self.until is None:
            end = 'as long as mode = "observe" stands in policy.toml'
        else:
            end = f"until {self.until.astimezone(now.tzinfo):%Y-%m-%d %H:%M}"
        if self.is_over(now):
            end = end.removeprefix("until ")
            return (
                f"{self.routine}: observe ended on {end}, and people are asked again; run "
                f"`{command}`, which shows rules for what was denied"
            )
        return (
            f"{self.routine}: observe {end}: nobody is asked, and what the policy does not allow "
            f"is denied and recorded; `{command}` shows rules for it"
        )


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
    trusted_globs: tuple[Glob, ...] = ()
    """Of files that may speak of orders to agents."""
    folders_in_use: tuple[str, ...] = ()
    """Folders and files of the workspace that the daemon looks at by itself or delivers to, as
    output_files.folders_in_use finds them in config and routines.
    """
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
            data = parse_toml_text(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                Fault(file=name, key="", found="", problem=f"is not TOML: {error}")
            ) from None
        except TomlOutOfBounds as error:
            fault = Fault(
                file=name,
                key=error.key,
                found="",
                problem=error.problem,
                hint=error.hint,
                line=error.line,
            )
            raise ConfigError(fault) from None
        checks = (
            ()
            if tools is None
            else (*file_checks(frozenset({*TOOLS, *tools})), *_proof_checks(workspace, ()))
        )
        file = parse(data, PolicyFile, file=name, checks=checks, text=text)
        return replace(
            cls.of(file, workspace), hash=hashlib.sha256(text.encode()).hexdigest(), text=text
        )

    @classmethod
    def of(cls, file: PolicyFile, workspace: Path) -> Policy:
        """Make the policy of a file whose checks have passed; without its text and hash."""
        rules = [Rule.of(number, table) for number, table in enumerate(file.rule, 1)]
        if file.paths.secret == "deny":  # noqa: S105 - what becomes of them
            rules.append(Rule.of_secret_files(len(rules) + 1))
        reach = ReachablePaths.of(workspace, [Path(path).expanduser() for path in file.paths.read])
        return cls(
            rules=tuple(_with_other_names(rule, reach) for rule in rules),
            routines=file.routine,
            reach=reach,
            limits=file.limits,
            default=Effect(file.default),
            autonomy=file.autonomy,
            on_ask=file.on_ask,
            sandbox=file.sandbox,
            detector=file.injection.detector,
            trusted_globs=tuple(map(Glob, file.injection.trust)),
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
        except CallRejected as error:
            return Verdict(
                effect=Effect.DENY,
                rule=BUILT_IN_RULE,
                reason=error.problem,
                alternative=error.alternative,
            ), ()
        verdict = self._judge_parts(request.parts, tool_rules, tainted=tainted)
        if verdict.allows and (url := _safe_url(request.parts, tool_rules.rules)):
            tainted_tools = tool_rules.restriction.tainted_tools
            may_repeat = any(covers_tool(pattern, tool) for pattern in tainted_tools)
            return replace(verdict, once="" if may_repeat else url), request.line
        if tainted and tool == "file_write":
            verdict = self._judge_output(verdict, request.parts[0].paths[0], arguments, tool_rules)
        return self._apply_restriction(
            verdict, tool_rules, tool, arguments, tainted=tainted
        ), request.line

    def judge_path(
        self,
        tool: str,
        path: CallPath,
        *,
        routine: str,
        tainted: bool = False,
        arguments: Json | None = None,
    ) -> Verdict:
        """Judge a call by where its path was found to lead, which is not followed again: that is
        what will be opened.

        How it was written is another name, to be judged by itself.
        """
        tool_rules = self._tool_rules(tool, routine)
        if tool_rules.verdict is not None:
            return tool_rules.verdict
        verdict = self._judge_parts(
            (CallPart(tool=tool, paths=(path.names[:1],)),), tool_rules, tainted=tainted
        )
        if tainted and tool == "file_write":
            verdict = self._judge_output(verdict, path.names[:1], arguments or {}, tool_rules)
        return self._apply_restriction(verdict, tool_rules, tool, arguments or {}, tainted=tainted)

    def _judge_output(
        self, verdict: Verdict, names: Sequence[str], arguments: Json, tool_rules: _ToolRules
    ) -> Verdict:
        """Return what becomes of an allowed `file_write` below `out/` in a tainted run: it is
        allowed within bounds, or denied, and never asked about.
        """
        restriction = tool_rules.restriction
        is_exempt = any(covers_tool(pattern, "file_write") for pattern in restriction.tainted_tools)
        if not verdict.allows or is_exempt or not output_files.is_below_out(names):
            return verdict
        mismatch = output_files.explain_refusal(
            names,
            str(arguments["content"]) if "content" in arguments else None,
            routine=restriction.routine,
            folders_in_use=self.folders_in_use,
            trusted_globs=self.trusted_globs,
        )
        if mismatch is None:
            return replace(verdict, output_folder=output_files.output_folder(restriction.routine))
        reason = f"{mismatch.problem}, and this run has read text that strangers may have written"
        return Verdict(
            effect=Effect.DENY, rule="taint", reason=reason, alternative=mismatch.alternative
        )

    def output_folder(self, routine: str) -> str:
        """Return the folder in which tainted runs of a routine write unasked; empty if there is
        none.
        """
        folder = output_files.output_folder(routine)
        verdicts = (
            self.judge("file_write", {"path": path}, routine=routine, tainted=True)
            for path in output_files.example_paths(folder)
        )
        return next((verdict.output_folder for verdict in verdicts if verdict.output_folder), "")

    @cached_property
    def _tool_rules(self) -> Callable[[str, str], _ToolRules]:
        # a routine makes the same few calls in each of its runs
        return lru_cache(maxsize=1024)(self._collect_tool_rules)

    def _collect_tool_rules(self, tool: str, routine: str) -> _ToolRules:
        tables = tuple(self._tables(routine))
        refusals = (refuse_tool(table, tool, name) for name, table in tables)
        return _ToolRules(
            tables=tables,
            rules=tuple(rule for rule in self.rules if rule.is_for(tool, routine)),
            verdict=_RUN_END_VERDICT
            if tool in RUN_END_TOOLS
            else next(filter(None, refusals), None),
            restriction=self._restriction_of(routine),
            file_rules=tuple(rule for rule in self.rules if rule.is_for("file_read", routine)),
        )

    def _judge_parts(
        self, parts: Sequence[CallPart], tool_rules: _ToolRules, *, tainted: bool
    ) -> Verdict:
        """Return the strictest of what sections and rules say of the parts of a call."""
        tables, rules, routine = tool_rules.tables, tool_rules.rules, tool_rules.restriction.routine
        verdicts = [
            next(filter(None, (refuse_part(table, part, name) for name, table in tables)), None)
            or judge_part(part, rules, routine=routine, default=self.default, tainted=tainted)
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

    def _apply_restriction(
        self, verdict: Verdict, tool_rules: _ToolRules, tool: str, arguments: Json, *, tainted: bool
    ) -> Verdict:
        if not tool_rules.restriction.may_restrict(verdict, tainted=tainted):
            return verdict
        return tool_rules.restriction.restrict(
            verdict, self._traits(tool, arguments), tainted=tainted
        )

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
        except CallRejected:
            return False
        return all(part.mismatch is None and part.refusal is None for part in request.parts)

    def tools_held_by_taint(
        self, routine: str, tools: Collection[str], *, keeps_safe_reads: bool = True
    ) -> tuple[str, ...]:
        """Return those of `tools` that a routine loses by reading what strangers may have written.

        These are the tools with calls which are allowed in an untainted run, and asked about or
        denied in a tainted one. A tool is among them if only some of its calls are, as nobody
        knows yet which calls the model will make. A tainted sub-agent reads no address, not even a
        safe one (`keeps_safe_reads`), and so none does that a tainted run begins. `file_write` is
        not among them where its rules cover files below `out/` only: plain files are written.
        """
        keeps_safe_reads = keeps_safe_reads and "subagent" not in tools
        return tuple(
            tool for tool in tools if self._is_held_by_taint(tool, routine, keeps_safe_reads)
        )

    def tools_to_approve(self, routine: str, tools: Iterable[str]) -> tuple[str, ...]:
        """Return those of `tools` of which some calls have to be approved in any run of a routine.

        A rule says so, or `autonomy = "supervised"` for what changes something.
        """
        return tuple(tool for tool in tools if self._has_calls_to_approve(tool, routine))

    def _has_calls_to_approve(self, tool: str, routine: str) -> bool:
        tool_rules = self._tool_rules(tool, routine)
        if tool_rules.verdict is not None:
            return False
        if any(rule.effect is Effect.ASK for rule in tool_rules.rules):
            return True
        if self.default is Effect.ASK and tool not in NAMED_ONLY_TOOLS:
            return True
        changes = TOOLS.get(tool, UNKNOWN_TOOL).changes
        return changes and tool_rules.restriction.autonomy == "supervised"

    def observation_of(self, routine: str) -> Observation | None:
        """Return the trial of a routine, or of its maker; None if neither is observed."""
        return next(
            (
                Observation(routine=name, until=table.observe_until)
                for name, table in self._tables(routine)
                if table.mode == "observe"
            ),
            None,
        )

    def is_observed(self, routine: str, now: datetime) -> bool:
        """Tell whether calls of a routine that would have to be approved are denied and recorded at
        this moment, as a trial says.
        """
        return any(
            table.mode == "observe"
            and not Observation(routine=name, until=table.observe_until).is_over(now)
            for name, table in self._tables(routine)
        )

    def denies_what_it_would_ask(self, routine: str) -> bool:
        """Tell whether calls of a routine that would have to be approved are denied instead."""
        return self._restriction_of(routine).on_ask == "deny"

    def taint_rules_of(self, routine: str, tools: Iterable[str]) -> dict[str, Effect]:
        """Return those of `tools` of which a rule says `tainted`, with the strictest that is said.

        `tainted_tools` does not lift that.
        """
        effects: dict[str, Effect] = {}
        for tool in tools:
            tainted_effects = [
                rule.tainted
                for rule in self._tool_rules(tool, routine).rules
                if rule.effect is Effect.ALLOW and rule.tainted
            ]
            if tainted_effects:
                effects[tool] = max(tainted_effects, key=strictness)
        return effects

    def offers(self, tool: str, routine: str) -> bool:
        """Tell whether the section of a routine lets it use a tool at all; for `maker/name` those
        of both.
        """
        return all(allows_tool(table, tool) for _, table in self._tables(routine))

    def trusts_when_tainted(self, tool: str, routine: str) -> bool:
        """Tell whether `tainted_tools` names a tool for a routine; for `maker/name` that of the
        maker.
        """
        tainted_tools = self._restriction_of(routine).tainted_tools
        return any(covers_tool(pattern, tool) for pattern in tainted_tools)

    def denies_once_tainted(self, routine: str, tools: Collection[str]) -> bool:
        """Tell whether calls of any of these tools that taint holds are denied instead of asked
        about.
        """
        return self.denies_what_it_would_ask(routine) or (
            Effect.DENY in self.taint_rules_of(routine, tools).values()
        )

    def _is_held_by_taint(self, tool: str, routine: str, keeps_safe_reads: bool) -> bool:
        tool_rules = self._tool_rules(tool, routine)
        if tool_rules.verdict is not None:  # all its calls are judged alike
            return False
        allowing_rules = [rule for rule in tool_rules.rules if rule.effect is Effect.ALLOW]
        if not allowing_rules:
            return False
        if any(rule.tainted for rule in allowing_rules):
            return True
        restriction, properties = tool_rules.restriction, TOOLS.get(tool, UNKNOWN_TOOL)
        if any(covers_tool(pattern, tool) for pattern in restriction.tainted_tools):
            return False
        if tool == "http_request":
            return not keeps_safe_reads or not all(rule.safe for rule in allowing_rules)
        if properties.sends and not properties.changes:
            return True
        if not properties.changes or restriction.autonomy != "full":
            return False  # its calls change nothing, or are asked about in every run
        if tool == "file_write":
            return not all(rule.paths and _is_below_out(rule) for rule in allowing_rules)
        if tool == "shell":
            # a profile allows what only reads
            return not all(rule.profile for rule in allowing_rules)
        return True

    def shows_injected_result(self, tool: str, arguments: Json, *, routine: str) -> bool:
        """Tell whether a result that gives orders is shown all the same, as untrusted as can be."""
        if all(table.injection == "review" for _, table in self._tables(routine)):
            return True
        if not self.trusted_globs or TOOLS.get(tool, UNKNOWN_TOOL).acts_on != "reading":
            return False
        try:
            parts = analyze_call(tool, arguments, self.reach).parts
        except CallRejected:
            return False
        return all(
            any_covers(self.trusted_globs, names[0]) for part in parts for names in part.paths
        )

    @staticmethod
    def prints_only_numbers(tool: str, arguments: Json, output: str) -> bool:
        """Tell whether a successful call printed nothing but numbers of this machine."""
        command = arguments.get("command")
        return tool == "shell" and isinstance(command, str) and prints_only_numbers(command, output)

    def _restriction_of(self, routine: str) -> Restriction:
        tables = [table for _, table in self._tables(routine)]
        autonomy = min(
            self.autonomy,
            *(table.autonomy or self.autonomy for table in tables),
            key=AUTONOMY_LEVELS.index,
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

    def has_rule_naming(self, tool: str, routine: str) -> bool:
        """Tell whether a rule that does not forbid names this tool, for this routine."""
        return any(
            rule.tool == tool and rule.effect is not Effect.DENY and rule.is_for(tool, routine)
            for rule in self.rules
        )

    def find_rule_for_one_only(self, routine: str, other_routine: str) -> str:
        """Return the label of the section or rule that may grant something to a routine by its name
        and not to the other one; empty if there is none.
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
        # a routine is told the same in each of its runs
        return lru_cache(maxsize=256)(self._summarize)

    def _summarize(self, routine: str, tools: tuple[str, ...], language: str) -> str:
        texts = _SUMMARY_TEXTS.get(language, _SUMMARY_TEXTS["en"])
        offered_tools = [
            tool for tool in tools if tool not in RUN_END_TOOLS and self.offers(tool, routine)
        ]
        rules = [
            rule for rule in self.rules if any(rule.is_for(tool, routine) for tool in offered_tools)
        ]
        allowing_rules = [rule for rule in rules if rule.effect is Effect.ALLOW]
        lines: list[str] = []
        for tool in offered_tools:
            tool_rules = [rule for rule in allowing_rules if rule.is_for(tool, routine)]
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
            # of its hundreds of names no model needs to read: a refusal gives the reason
            if rule.effect is Effect.DENY and rule.label != SECRET_FILES_LABEL:
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
        is_writing = TOOLS[tool].acts_on == "writing"
        return ", ".join((texts["workspace"], *(() if is_writing else self.reach.readable)))

    def without_disk(self) -> Policy:
        """Return this policy as it reads examples: without looking at the disk."""
        return replace(self, reach=replace(self.reach, on_disk=False))

    def example_fault(self, rule: Rule, example: str, *, should_match: bool) -> str:
        """Say why an example proves a rule wrong; empty if it does not.

        An allowing rule must cover some command of a `match` line, all of which must be allowed
        in the end, and not every command of a `not_match` line; one that forbids must cover some
        of the former, and none of the latter.
        """
        try:
            parts = self._analyze_example(rule, example).parts
        except CallRejected as error:
            return str(error) if should_match else ""
        applies = [part.refusal is None and applies_to(rule, part) for part in parts]
        allows = rule.effect is Effect.ALLOW
        if not should_match:
            covers_call = all(applies) if allows else any(applies)
            return "the rule covers it" if covers_call else ""
        if not any(applies):
            # Why a command fits no profile says nothing about a rule that names its words itself.
            by_words = rule.argv and not rule.profile
            mismatches = [part.refusal or (None if by_words else part.mismatch) for part in parts]
            if by_words and not any(mismatches):
                return f"the rule does not cover it: its argv is {rule.argv_text}"
            return next(
                (str(mismatch) for mismatch in mismatches if mismatch),
                "the rule does not cover it",
            )
        routine = rule.routines[0] if rule.routines else ""
        for part in parts if allows else ():
            verdict = judge_part(part, self.rules, routine=routine)
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
            if part.mismatch is not None:
                return part.mismatch.alternative
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
                and part.mismatch is not None
                and name in read_only_programs()
                and _names_program(name, rules)
            ):
                return part.mismatch.alternative
            if hint := suggest_alternative(name):
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


def _with_other_names(rule: Rule, reach: ReachablePaths) -> Rule:
    """Return a rule that, if it denies or asks, covers its files under each of their names."""
    if rule.effect is Effect.ALLOW:
        return rule
    other_globs = [other_glob for glob in rule.paths for other_glob in reach.find_other_globs(glob)]
    return replace(rule, paths=tuple(dict.fromkeys((*rule.paths, *other_globs))))


def _safe_url(parts: Sequence[CallPart], rules: Iterable[Rule]) -> str:
    """Return the address of a call that only reads what a rule with `safe` names; else ""."""
    if len(parts) != 1 or (target := parts[0].target) is None:
        return ""
    is_safe = any(rule.safe and applies_to(rule, parts[0]) for rule in rules)
    return target.url if is_safe else ""


def _is_below_out(rule: Rule) -> bool:
    """Tell whether a rule covers nothing but files below `out/` of the workspace."""
    return all(glob.pattern.startswith(f"{output_files.FOLDER}/") for glob in rule.paths)


def _describe_allowed(rule: Rule) -> list[str]:
    """Return what a rule for http_request, git or script covers, in words."""
    if rule.urls:
        return [f"{'|'.join(sorted(rule.methods))} {url}" for url in sorted(rule.urls)]
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
            subcommands = " " + "|".join(sorted(rule.argv[1])) if len(rule.argv) > 1 else ""
            programs = sorted(rule.argv[0] if rule.argv else read_only_programs())
            names.update(dict.fromkeys(f"{name}{subcommands}" for name in programs if name != "["))
    return list(names)


# --- proofs at load


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
        CrossFieldCheck(("rule",), examples_hold, compares="rule"),
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
        if writers := explain_other_writers(status):
            problem, hint = writers
            raise ConfigError(
                Fault(file=display(checked_path), key="", found="", problem=problem, hint=hint)
            )


class LivePolicy(Protocol):
    """The settings of the daemon, as far as they hold the policy in force.

    Read it at each use: a reload replaces it.
    """

    @property
    def policy(self) -> Policy: ...
