"""`agentd policy check | explain | test | backtest | suggest`, which `agentctl policy` hands over
to.
"""

from __future__ import annotations

import json
import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon.app.commands.logs import parse_since
from daemon.app.commands.policy_files import PolicyFiles
from daemon.cli.progress_bar import progress_bar, track
from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault, NotFound
from daemon.models import Effect, Json, Verdict
from daemon.policy.authoring.compare import Comparison, compare
from daemon.policy.authoring.notes import notes
from daemon.policy.authoring.recorded_calls import recorded
from daemon.policy.authoring.suggest import suggest
from daemon.policy.explain import explain
from daemon.policy.policy_file import TOOLS, Tool

# As agentctl ends: 5 refused, 8 waiting for a person.
EXIT = {Effect.ALLOW: 0, Effect.DENY: 5, Effect.ASK: 8}
SAID = {Effect.ALLOW: "allowed", Effect.DENY: "denied", Effect.ASK: "a person is asked"}


def _since(options: Namespace) -> datetime:
    try:
        return parse_since(options.since, datetime.now().astimezone())
    except ValueError as error:
        raise ConfigError(Fault(file="--since", key="", found="", problem=str(error))) from None


def check(desk: PolicyFiles, options: Namespace) -> int:
    """Load a policy and tell what is to be said of it."""
    file = options.file or desk.config.policy_path
    policy = desk.policy(options.file)
    said = list(notes(policy, desk.routines()))
    summary = f"{display(file)}: {len(policy.rules)} rules, no fault; every example is as it says"
    desk.say(
        {"file": str(file), "rules": len(policy.rules), "hash": policy.hash, "notes": said},
        "\n".join([*(f"note: {each}" for each in said), summary]),
    )
    return 0


def explain_call(desk: PolicyFiles, options: Namespace) -> int:
    """Tell what the policy says of one call; the exit code says it, too."""
    policy = desk.policy(options.policy)
    arguments = _arguments(options.tool, options.words)
    found = explain(
        policy, options.tool, arguments, routine=options.routine, tainted=options.tainted
    )
    lines = [f"{SAID[found.verdict.effect]}: {_because(found.verdict)}"]
    if found.verdict.allowed:
        lines.append(f"instead: {found.verdict.allowed}")
    for part in found.parts:
        lines += [
            "",
            f"{part.text}",
            f"  {SAID[part.verdict.effect]} by the rules: {_because(part.verdict)}",
        ]
        lines += [f"  touches {', '.join(part.reads)}"] if part.reads else []
        lines += [f"  {each.effect.value}: {each.label}" for each in part.rules]
    value = {
        **_as_json(found.verdict),
        "parts": [
            {
                "text": part.text,
                **_as_json(part.verdict),
                "rules": [rule.label for rule in part.rules],
            }
            for part in found.parts
        ],
    }
    desk.say(value, "\n".join(lines))
    return EXIT[found.verdict.effect]


def _arguments(tool: str, words: Sequence[str]) -> Json:
    """Return the arguments of a call as somebody types them: the words of a command, a path, a URL,
    or JSON.
    """
    known = TOOLS.get(tool, Tool())
    if len(words) == 1 and words[0].startswith("{"):
        try:
            value = json.loads(words[0])
        except ValueError:
            value = None
        if isinstance(value, dict):
            return value
    if known.acts_on in ("command", "git"):
        # one word is a whole line; several were cut by the caller's shell, quotes and all
        return {known.argument: words[0] if len(words) == 1 else shlex.join(words)}
    if known.acts_on == "web" and len(words) == 2:
        method, url = words if words[0].isupper() else reversed(words)
        return {known.argument: url, "method": method}
    return {known.argument: words[0]} if known.argument else {}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _because(verdict: Verdict) -> str:
    return verdict.rule + (f": {verdict.reason}" if verdict.reason else "")


def _as_json(verdict: Verdict) -> Json:
    return {
        "effect": verdict.effect.value,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "allowed": verdict.allowed,
    }


def test(desk: PolicyFiles, options: Namespace) -> int:
    """Judge the calls of a file; 1 if one of them is not as it expects."""
    policy = desk.policy(options.policy)
    wrong: list[dict[str, Any]] = []
    lines = _cases(options.file)
    for number, case in lines:
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
        expected = case["expect"]
        # `deny` is about what happens unseen: what a person would be asked about does not
        met = (
            verdict.effect is not Effect.ALLOW
            if expected == "deny"
            else verdict.effect.value == expected
        )
        if not met:
            wrong.append(
                {
                    "line": number,
                    "expect": expected,
                    "tool": tool,
                    "arguments": arguments,
                    **_as_json(verdict),
                }
            )
    shown = [
        f"line {each['line']}: {each['tool']} {json.dumps(each['arguments'], ensure_ascii=False)}\n"
        f"  expected {each['expect']}, but {each['effect']}: {each['rule']}: {each['reason']}"
        for each in wrong
    ]
    summary = f"{len(lines) - len(wrong)} of {len(lines)} as expected"
    desk.say({"cases": len(lines), "wrong": wrong}, "\n".join([*shown, summary]))
    return 1 if wrong else 0


def _cases(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the cases of a file, each with its line; ConfigError with every line that is none."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            Fault(file=str(file), key="", found="", problem=f"cannot be read: {error}")
        ) from None
    cases: list[tuple[int, dict[str, Any]]] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.splitlines(), 1):
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


def backtest(desk: PolicyFiles, options: Namespace) -> int:
    """Tell which recorded calls would fare otherwise under another policy."""
    new = desk.policy(options.file)
    calls = recorded(
        desk.state,
        desk.config.store_url(os.environ),
        since=_since(options),
        routine=options.routine,
    )
    found = compare(track(calls, len(calls), progress_bar("judging")), new)
    value = {
        "calls": found.calls,
        "runs": len(found.runs),
        "differences": [
            {
                "before": each.before,
                "after": each.after,
                "tool": each.tool,
                "subject": each.subject,
                "routine": each.routine,
                "count": each.count,
                "rule": each.verdict.rule,
                "reason": each.verdict.reason,
            }
            for each in found.differences
        ],
    }
    desk.say(value, _told(found, options))
    return 0


_FARES = {
    "allow": "would now be allowed",
    "ask": "would now be asked about",
    "deny": "would now be denied",
}


def _told(found: Comparison, options: Namespace) -> str:
    lines: list[str] = []
    for after, title in _FARES.items():
        chosen = [each for each in found.differences if each.after == after]
        if chosen:
            lines.append(f"{sum(each.count for each in chosen)} {title}:")
        for each in chosen:
            lines.append(
                f"  {each.count} x {each.tool} {each.subject}  ({each.routine}; was: {each.before})"
            )
            lines.append(f"      {_because(each.verdict)}")
    same = found.calls - sum(each.count for each in found.differences)
    where = (
        f"{_counted(found.calls, 'call')} in {_counted(len(found.runs), 'run')} since "
        f"{options.since}"
    )
    summary = f"{same} of {where}: no difference"
    return "\n".join([*lines, summary])


def suggest_section(desk: PolicyFiles, options: Namespace) -> int:
    """Print the narrowest section of a routine that what it did would fit into."""
    calls = recorded(
        desk.state,
        desk.config.store_url(os.environ),
        since=_since(options),
        routine=options.routine,
    )
    if not calls:
        raise NotFound(
            f"{options.routine} has made no call since {options.since}; --since looks further back"
        )
    found = suggest(calls, desk.policy())
    lines = [
        (
            f"# {options.routine}: {found.calls} calls in {found.runs} runs since {options.since} "
            "would fit into this."
        )
    ]
    lines += ["# It takes away from what the rules of policy.toml allow, and adds nothing.", ""]
    lines.append(found.text(options.routine).rstrip())
    if found.refused:
        lines += ["", "# Not allowed then, and not by this:"]
        lines += [f"#   {count} x {what}" for what, count in found.refused]
    value = {
        "routine": options.routine,
        "section": found.section,
        "runs": found.runs,
        "calls": found.calls,
    }
    desk.say(value | {"refused": dict(found.refused)}, "\n".join(lines))
    return 0
