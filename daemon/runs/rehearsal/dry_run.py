"""How tools run in a rehearsal: read-only calls run; of all others the result says what they would
do.

The policy has judged each call before. A call that a person would have to allow does not run
either. Nothing here writes, sends or starts anything.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from difflib import unified_diff
from typing import TYPE_CHECKING

from daemon.agent.texts import say
from daemon.agent.tool_calls import ApprovalDecision
from daemon.errors import ToolFailed
from daemon.models import Effect, FunctionCall, Json, Taint, ToolContext, ToolResult, Verdict
from daemon.policy.lexer import CallRejected
from daemon.policy.policy import LivePolicy, Policy
from daemon.system.safe_open import open_beneath
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.policy.reachable_paths import CallPath

REHEARSAL = "rehearsal"
MAX_TEXT_CHARACTERS = 8_000  # of what would be written that the model and the person read
MAX_DIFF_BYTES = 1_000_000  # of a file that a diff is made with


class DryRunToolExecutor(ToolExecutor):
    """Runs read-only calls; answers all others with what they would do."""

    def __init__(self, registry: FunctionRegistry, settings: LivePolicy) -> None:
        super().__init__(registry)
        self._settings = settings

    async def run(self, call: FunctionCall, context: ToolContext | None = None) -> ToolResult:
        definition = self.registry.get_function(call.name)
        if definition is None or context is None or call.invalid is not None:
            return await super().run(call, context)
        is_read_only = definition.read_only or self._settings.policy.is_read_only(
            call.name, call.arguments
        )
        if is_read_only and not context.approved and call.name != SUBAGENT:
            return await super().run(call, context)
        try:
            definition.signature.bind(call.arguments, context)
            effect = await asyncio.to_thread(describe_effect, self._settings.policy, call, context)
        except (ToolFailed, CallRejected) as error:
            return ToolResult(ok=False, text=f"[failed] {error}")
        if context.approved:
            effect = effect.removeprefix("would ")
            effect = f"would ask a person first ({context.approved}), then {effect}"
        return ToolResult(
            ok=True, text=say("rehearsed", context.language, what=effect), dry_run_effect=effect
        )


class RehearsalApprover:
    """Allows each call that a person would be asked about, as the rehearsal does not run it."""

    async def decide(
        self, call_id: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        allow = replace(verdict, effect=Effect.ALLOW, reason=f"asked by {verdict.rule}")
        return ApprovalDecision(
            verdict=allow, remembered_rule=verdict.rule, asking_rule=verdict.rule
        )


def describe_effect(policy: Policy, call: FunctionCall, context: ToolContext) -> str:
    """Return what a call would do, as exactly as can be said without doing it.

    Raises ToolFailed and CallRejected for a call that could not be done.
    """
    arguments = call.arguments
    match call.name:
        case "file_write":
            return _describe_write(
                policy.reach.resolve(str(arguments["path"]), for_writing=True),
                str(arguments["content"]),
            )
        case "shell":
            _, line = policy.plan(
                "shell", arguments, routine=context.routine, tainted=context.tainted
            )
            commands = [list(command.argv) for part in line for command in part.commands]
            argvs = "\n".join(json.dumps(argv, ensure_ascii=False) for argv in commands)
            return f"would run {arguments['command']}\n{argvs}".rstrip()
        case "script":
            return (
                f"would run the script {arguments['name']} with "
                f"{_json(arguments.get('arguments', []))}"
            )
        case "http_request":
            return _describe_request(arguments)
        case "memory_store":
            return (
                f"would remember {arguments.get('key', '')}: "
                f"{_shorten(str(arguments.get('content', '')))}"
            )
        case "subagent":
            return f"would hand this to a sub-agent: {_shorten(str(arguments.get('task', '')))}"
    return f"would call {call.name} with {_shorten(_json(arguments))}"


def _describe_write(path: CallPath, content: str) -> str:
    old_content = _content_of(path)
    size, name = len(content.encode()), path.names[0]
    if old_content == content:
        return f"would write {name} ({size} bytes), as it is already"
    if old_content is None:
        head = f"would write {name} ({size} bytes), a new file"
    else:
        head = (
            f"would write {name} ({size} bytes), which holds {len(old_content.encode())} bytes now"
        )
    lines = unified_diff(
        (old_content or "").splitlines(), content.splitlines(), name, name, lineterm="", n=2
    )
    diff = "\n".join(lines)
    return f"{head}\n{_shorten(diff)}"


def _content_of(path: CallPath) -> str | None:
    """Return what a file holds now; None if there is none, or none that could be shown."""
    try:
        with os.fdopen(open_beneath(path.root, path.path_in_root), "rb") as file:
            return file.read(MAX_DIFF_BYTES).decode(errors="replace")
    except OSError:
        return None


def _describe_request(arguments: Json) -> str:
    lines = [f"would send {arguments.get('method', 'GET')} {arguments['url']}"]
    fields = {
        key: value for key, value in arguments.items() if key not in ("method", "url") and value
    }
    for key, value in fields.items():
        lines.append(f"{key}: {value if isinstance(value, str) else _json(value)}")
    return _shorten("\n".join(lines))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shorten(text: str) -> str:
    excess = len(text) - MAX_TEXT_CHARACTERS
    return text if excess <= 0 else f"{text[:MAX_TEXT_CHARACTERS]}\n[… {excess} more characters …]"
