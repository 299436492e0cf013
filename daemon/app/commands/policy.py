"""`agentd policy check | explain | test | backtest | suggest`, also for `agentctl policy`."""

from __future__ import annotations

import difflib
import json
import os
import shlex
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from daemon.app.commands.logs import parse_since
from daemon.app.commands.policy_files import PolicyFiles
from daemon.app.policy import explain_private_host, private_host_notes
from daemon.app.trifecta import Trifecta, find_trifectas
from daemon.cli.progress_bar import make_progress_bar, track
from daemon.definitions.reading import decode
from daemon.definitions.routines.folder import PSEUDO_ROUTINES
from daemon.definitions.routines.routine import Routine
from daemon.definitions.syntax import file_fault, unreadable_file_fault
from daemon.definitions.words import did_you_mean, display, nearest
from daemon.errors import ConfigError, Fault, NotFound, Refused, UnclearArgument
from daemon.models import Effect, Json, Verdict
from daemon.plurals import pluralize
from daemon.policy.authoring.compare import Comparison, compare
from daemon.policy.authoring.policy_text import remove_trial
from daemon.policy.authoring.recorded_calls import RecordedCall, load_recorded_calls
from daemon.policy.authoring.suggest import suggest
from daemon.policy.authoring.suggest_rules import (
    RuleSuggestion,
    as_json,
    suggest_rule_for,
    suggest_rules,
)
from daemon.policy.authoring.unknown_routines import describe_unknown_routines
from daemon.policy.explain import explain
from daemon.policy.policy import Observation, Policy
from daemon.policy.policy_file import SECRET_FILES_LABEL, TOOLS, Tool

# The exit codes of agentctl: 5 refused, 8 waiting for a person.
EXIT = {Effect.ALLOW: 0, Effect.DENY: 5, Effect.ASK: 8}
OUTCOMES = {Effect.ALLOW: "allowed", Effect.DENY: "denied", Effect.ASK: "a person is asked"}


def _since(options: Namespace) -> datetime:
    try:
        return parse_since(options.since, datetime.now().astimezone())
    except ValueError as error:
        raise UnclearArgument(f"--since: {error}") from None


def check(files: PolicyFiles, options: Namespace) -> int:
    """Load a policy and print its notes."""
    file = options.file or files.config.policy_path
    policy = files.load(options.file)
    routines = files.load_routines()
    remarks = [*describe_unknown_routines(policy, routines), *_trifecta_notes(policy, routines)]
    remarks += private_host_notes(policy)
    now = datetime.now().astimezone()
    trials = (policy.observation_of(name) for name in policy.routines if "/" not in name)
    remarks += [trial.describe(now) for trial in trials if trial is not None]
    count = sum(rule.label != SECRET_FILES_LABEL for rule in policy.rules)
    summary = f"{display(file)}: {count} rules, no fault; every example is as it says"
    files.print_result(
        {"file": str(file), "rules": count, "hash": policy.hash, "notes": remarks},
        "\n".join([*(f"note: {remark}" for remark in remarks), summary]),
    )
    return 0


def _trifecta_notes(policy: Policy, routines: Iterable[Routine]) -> list[str]:
    """Return a note for each routine that may read strangers' text, see what is private, and then
    still change or send something.
    """
    return [
        f"[routine.{trifecta.section}]: {_subject_of(trifecta)} reads what strangers may have "
        f"written, sees what is private, and may then still use {', '.join(trifecta.acts)}: a text "
        "that gives it orders could send that away or change something"
        for trifecta in find_trifectas({routine.name: routine for routine in routines}, policy)
    ]


def _subject_of(trifecta: Trifecta) -> str:
    """Return what a note on a section calls the routine: `it` if the section is its own."""
    _, _, made_name = trifecta.routine.partition("/")
    return f"{made_name}, which a run of it made," if made_name else "it"


def explain_call(files: PolicyFiles, options: Namespace) -> int:
    """Print the verdict on one call, and its rules; the exit code tells the verdict, too."""
    policy = files.load(options.policy)
    notes = list(_check_tool(files, options.tool, options.words))
    tool, routine = options.tool or "shell", options.routine or ""
    _check_routine(files, policy, routine)
    arguments = _arguments(tool, options.words)
    explanation = explain(policy, tool, arguments, routine=routine, tainted=options.tainted)
    lines = [f"{OUTCOMES[explanation.verdict.effect]}: {_reason(explanation.verdict)}"]
    if explanation.verdict.alternative:
        lines.append(f"instead: {explanation.verdict.alternative}")
    rule = ""
    if explanation.verdict.effect is Effect.DENY:
        call = RecordedCall(
            run="",
            routine=routine,
            tool=tool,
            arguments=arguments,
            effect=Effect.DENY.value,
            approved=False,
            tainted=options.tainted,
            at=datetime.now(UTC),
            is_by_person=True,
        )
        rule = suggest_rule_for(call, policy, files.make_reader())
    for part in explanation.parts:
        lines += [
            "",
            f"{part.text}",
            f"  {OUTCOMES[part.verdict.effect]} by the rules: {_reason(part.verdict)}",
        ]
        lines += [f"  touches {', '.join(part.reads)}"] if part.reads else []
        lines += [f"  {rule.effect.value}: {rule.label}" for rule in part.rules]
    notes += [
        refusal
        for part in explanation.parts
        if part.target is not None and explanation.verdict.effect is not Effect.DENY
        if (refusal := explain_private_host(policy, part.target))
    ]
    lines += ["", *(f"note: {note}" for note in notes)] if notes else []
    if rule:
        name = files.config.policy_path.name
        lines += ["", f"To allow it, add to {name}:", "", rule]
    value = {
        **_as_json(explanation.verdict),
        **({"suggested": rule} if rule else {}),
        **({"notes": notes} if notes else {}),
        "parts": [
            {
                "text": part.text,
                **_as_json(part.verdict),
                "rules": [rule.label for rule in part.rules],
            }
            for part in explanation.parts
        ],
    }
    files.print_result(value, "\n".join(lines))
    return EXIT[explanation.verdict.effect]


def _check_tool(files: PolicyFiles, tool: str | None, words: Sequence[str]) -> Iterator[str]:
    """Yield a note if a tool may be unknown. Raises NotFound if there is none of that name, and
    UnclearArgument if no tool is named and the first word is one.
    """
    tools = files.find_tool_names()
    if tool is None:
        first, *others = [*words[0].split(maxsplit=1), *words[1:]] or [""]
        if first in tools - {"git"}:  # which is a program as well
            argument = TOOLS.get(first, Tool()).argument
            call = shlex.join(others) or argument.upper() or "{}"
            raise UnclearArgument(
                f"{first} is a tool, not a program: agentctl policy explain --tool {first} {call}; "
                f"for a program of that name: --tool shell -- {first} …"
            )
    elif tool not in tools:
        server, separator, _ = tool.partition("__")
        if not separator:
            raise NotFound(f"there is no tool {tool!r}; {did_you_mean(tool, tools)}")
        if server not in files.config.mcp:
            yield f"the config has no MCP server {server}, so no run has the tool {tool}"


def _check_routine(files: PolicyFiles, policy: Policy, name: str) -> None:
    """Raise NotFound for a name that neither a routine nor the policy has: explain would show what
    holds for any other routine.
    """
    if not name:
        return
    own_name = name.partition("/")[0]  # in `maker/made` that of the maker
    names = {*files.find_routine_names(), *policy.routines, *PSEUDO_ROUTINES}
    if not names.isdisjoint((name, own_name)):
        return
    if any(fnmatchcase(name, pattern) for rule in policy.rules for pattern in rule.routines):
        return
    close_name = nearest(own_name, names - {*PSEUDO_ROUTINES})
    hint = "without --routine, explain says what holds for every routine"
    if close_name:
        hint = f'did you mean "{close_name}"?'
    raise NotFound(
        f"there is no routine {name!r}, and the policy has no section or rule for it; {hint}"
    )


def _arguments(tool: str, words: Sequence[str]) -> Json:
    """Return the arguments of a call as a person types them: the words of a command, a path, a URL,
    or JSON.
    """
    properties = TOOLS.get(tool, Tool())
    if len(words) == 1 and words[0].startswith("{"):
        try:
            value = json.loads(words[0])
        except ValueError:
            value = None
        if isinstance(value, dict):
            return value
    if properties.acts_on in ("command", "git"):
        # one word is a whole line; several were cut by the caller's shell, quotes and all
        return {properties.argument: words[0] if len(words) == 1 else shlex.join(words)}
    if properties.acts_on == "web" and len(words) == 2:
        method, url = words if words[0].isupper() else reversed(words)
        return {properties.argument: url, "method": method}
    return {properties.argument: words[0]} if properties.argument else {}


def _reason(verdict: Verdict) -> str:
    return verdict.rule + (f": {verdict.reason}" if verdict.reason else "")


def _as_json(verdict: Verdict) -> Json:
    return {
        "effect": verdict.effect.value,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "allowed": verdict.alternative,
    }


def test(files: PolicyFiles, options: Namespace) -> int:
    """Judge the calls of a file; 1 if one of them is not as it expects."""
    policy = files.load(options.policy)
    mismatches: list[dict[str, Any]] = []
    cases = _read_cases(options.file)
    for number, case in cases:
        tool = str(case.get("tool", "shell"))
        arguments = case.get("arguments") or {
            **{
                key: case[key]
                for key in ("command", "path", "url", "method", "name")
                if key in case
            },
            **({"command": case["cmd"]} if "cmd" in case else {}),
        }
        verdict = policy.judge(
            tool,
            arguments,
            routine=str(case.get("routine", "")),
            tainted=bool(case.get("tainted", False)),
        )
        expectation = case["expect"]
        if expectation == "deny":  # met by `ask` as well: nothing happens unless a person allows it
            is_as_expected = verdict.effect is not Effect.ALLOW
        else:
            is_as_expected = verdict.effect.value == expectation
        if not is_as_expected:
            mismatches.append(
                {
                    "line": number,
                    "expect": expectation,
                    "tool": tool,
                    "arguments": arguments,
                    **_as_json(verdict),
                }
            )
    failures = [
        f"line {case['line']}: {case['tool']} {json.dumps(case['arguments'], ensure_ascii=False)}\n"
        f"  expected {case['expect']}, but {case['effect']}: {case['rule']}: {case['reason']}"
        for case in mismatches
    ]
    summary = f"{len(cases) - len(mismatches)} of {len(cases)} as expected"
    files.print_result({"cases": len(cases), "wrong": mismatches}, "\n".join([*failures, summary]))
    return 1 if mismatches else 0


def _read_cases(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the cases of a file with their line numbers; ConfigError names every faulty line."""
    try:
        text = decode(file.read_bytes(), file)
    except FileNotFoundError:  # no hint at what `agentd init` writes: it writes no calls
        raise ConfigError(file_fault(file, "no such file")) from None
    except IsADirectoryError:
        raise ConfigError(file_fault(file, "is a folder, not a file")) from None
    except OSError as error:
        raise ConfigError(unreadable_file_fault(file, error)) from None
    cases: list[tuple[int, dict[str, Any]]] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and "expect" not in value:
            continue  # a comment, such as what the file is about
        if not isinstance(value, dict) or value["expect"] not in ("allow", "ask", "deny"):
            hint = 'like {"tool": "shell", "command": "df -h", "expect": "allow"}'
            problem = "is not a call with what is expected of it: allow, ask or deny"
            faults.append(
                Fault(
                    file=str(file),
                    key=f"line {number}",
                    found=line[:60],
                    problem=problem,
                    hint=hint,
                )
            )
        else:
            cases.append((number, value))
    if faults:
        raise ConfigError(*faults)
    return cases


def backtest(files: PolicyFiles, options: Namespace) -> int:
    """Print which recorded calls another policy would judge differently."""
    new_policy = files.load(options.file)
    calls = load_recorded_calls(
        files.state,
        files.config.store_url(os.environ),
        since=_since(options),
        routine=options.routine or "",
    )
    comparison = compare(track(calls, len(calls), make_progress_bar("judging")), new_policy)
    value = {
        "calls": comparison.calls,
        "runs": len(comparison.runs),
        "differences": [
            {
                "before": difference.before,
                "after": difference.after,
                "tool": difference.tool,
                "subject": difference.subject,
                "routine": difference.routine,
                "count": difference.count,
                "rule": difference.verdict.rule,
                "reason": difference.verdict.reason,
            }
            for difference in comparison.differences
        ],
    }
    files.print_result(value, _describe_comparison(comparison, options))
    return 0


_CHANGES = {
    "allow": "would now be allowed",
    "ask": "would now be asked about",
    "deny": "would now be denied",
}


def _describe_comparison(comparison: Comparison, options: Namespace) -> str:
    lines: list[str] = []
    for effect, title in _CHANGES.items():
        changes = [change for change in comparison.differences if change.after == effect]
        if changes:
            lines.append(f"{sum(change.count for change in changes)} {title}:")
        for change in changes:
            origin = f"({change.routine}; was: {change.before})"
            lines.append(f"  {change.count} x {change.tool} {change.subject}  {origin}")
            lines.append(f"      {_reason(change.verdict)}")
    unchanged_count = comparison.calls - sum(
        difference.count for difference in comparison.differences
    )
    calls, runs = pluralize(comparison.calls, "call"), pluralize(len(comparison.runs), "run")
    scope = f"{calls} in {runs} since {options.since}"
    summary = f"{unchanged_count} of {scope}: no difference"
    return "\n".join([*lines, summary])


def suggest_for_routine(files: PolicyFiles, options: Namespace) -> int:
    """Print what would be enough for a routine: rules for what it was denied, else the narrowest
    section that what it did would fit into. With `--confirm`, write the rules.
    """
    calls = load_recorded_calls(
        files.state,
        files.config.store_url(os.environ),
        since=_since(options),
        routine=options.routine,
    )
    policy = files.load()
    trial = policy.observation_of(options.routine)
    if not calls and trial is None:
        raise NotFound(
            f"{options.routine} has made no call since {options.since}; --since looks further back"
        )
    if not files.is_made_by_agent(options.routine):
        rules = suggest_rules(
            calls,
            policy,
            files.make_reader(),
            routine=options.routine,
            with_tainted=options.with_tainted,
            only_of_trial=trial is not None,
        )
        if trial is not None:
            return _suggest_rules(files, options, policy, rules, trial)
        if rules.rules or options.confirm:
            section = suggest(calls, policy)
            rest = {"section": section.section, "refused": dict(section.refused_calls)}
            return _suggest_rules(files, options, policy, rules, trial, rest)
    suggestion = suggest(calls, policy)
    recorded_calls = f"{suggestion.calls} calls in {suggestion.runs} runs since {options.since}"
    if suggestion.calls:
        lines = [f"# {options.routine}: {recorded_calls} would fit into this."]
        lines += ["# It takes away from what the rules of policy.toml allow, and adds nothing.", ""]
        lines += [suggestion.as_toml(options.routine).rstrip(), ""]
        title = "# Not allowed then, and not by this:"
    else:  # a section without tools would only take away
        lines, title = [f"# No call of {options.routine} was allowed since {options.since}."], ""
    if suggestion.refused_calls:
        lines += [title or "# Not allowed then:"]
        lines += [f"#   {count} x {call}" for call, count in suggestion.refused_calls]
    value = {
        "routine": options.routine,
        "section": suggestion.section,
        "runs": suggestion.runs,
        "calls": suggestion.calls,
    }
    files.print_result(value | {"refused": dict(suggestion.refused_calls)}, "\n".join(lines))
    return 0


def _suggest_rules(
    files: PolicyFiles,
    options: Namespace,
    policy: Policy,
    suggestion: RuleSuggestion,
    trial: Observation | None,
    rest: Json | None = None,
) -> int:
    """Print rules as a diff of policy.toml, or write them if they are what `--confirm` names.

    `rest` is what the JSON has besides.
    """
    name = files.config.policy_path.name
    if trial is not None and trial.is_over(datetime.now(UTC)):
        suggestion = replace(suggestion, text=remove_trial(suggestion.text, trial.routine))
    lines = difflib.unified_diff(
        policy.text.splitlines(), suggestion.text.splitlines(), name, name, lineterm=""
    )
    diff = "\n".join(lines)
    is_written = bool(options.confirm)
    if is_written:
        if options.confirm != suggestion.digest:
            raise Refused(
                "what would be written is not what was shown; look at it again: agentctl policy "
                f"suggest {options.routine}"
            )
        files.write_policy(policy.text, suggestion.text)
    value = {
        "routine": options.routine,
        **as_json(suggestion),
        **(rest or {}),
        "diff": diff,
        "confirm": suggestion.digest if diff else "",
        "written": is_written,
    }
    parts = [diff] if diff else []
    parts.append("\n".join(_describe_suggestion(suggestion, options)))
    if is_written:
        path = display(files.config.policy_path)
        parts.append(f"{path} is written; a daemon reads it by itself")
    elif diff:
        option = " --with-tainted" if options.with_tainted else ""
        option += "" if options.since == "30d" else f" --since {options.since}"
        parts.append(
            f"Nothing was written. `agentctl policy suggest {options.routine}{option} --confirm "
            f"{suggestion.digest}` writes exactly this."
        )
    files.print_result(value, "\n\n".join(parts))
    return 0


def _describe_suggestion(suggestion: RuleSuggestion, options: Namespace) -> list[str]:
    """Return what the rules would make of the denied calls, and why others are left out, in
    lines.
    """
    if not suggestion.calls:
        return [f"No call was denied to {options.routine} in observe mode since {options.since}."]
    text = (
        f"{pluralize(suggestion.calls, 'call')} in {pluralize(suggestion.runs, 'run')} since "
        f"{options.since} denied{' in observe mode' if suggestion.is_of_trial else ''}"
    )
    if suggestion.rules:
        rules = pluralize(len(suggestion.rules), "rule")
        text += f"; judged again with {rules} more: {suggestion.allowed} allowed"
        if suggestion.allowed_untainted:
            text += (
                f", {suggestion.allowed_untainted} more in runs that have read nothing of strangers"
            )
    lines = [f"{text}."]
    if suggestion.left_out:
        lines += ["", "No rule is suggested for:"]
        for call in suggestion.left_out:
            lines += [f"  {call.count} x {call.call}", f"      {call.reason}"]
    return lines
