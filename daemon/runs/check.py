"""The check of a report (`[check]`), after the model has ended and before the run has.

A report that does not hold up makes the run a failure, or is put to the model once more with what
is wrong (`repair`), within the limits of the run.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import join
from typing import TYPE_CHECKING

from daemon.agent.texts import say
from daemon.models import Fact, FunctionCall, Reply, Status, ToolResult, max_taint
from daemon.providers.facts import new_boundary, wrap
from daemon.runs.gather import one_line, run_program

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.agent.tool_calls import ResultInspector, ToolCallRunner
    from daemon.definitions.routines.routine import ReportCheck
    from daemon.runs.protocols import StepLog


async def check_reply(
    reply: Reply,
    check: ReportCheck,
    *,
    agent: Agent,
    call_runner: ToolCallRunner,
    inspector: ResultInspector,
    step_log: StepLog,
) -> Reply:
    """Return the reply if it holds up, or a repaired one that does; else it as a failure, with the
    reason.

    A failure and a silent reply are not checked. The steps say which rounds there were, so a run
    that was interrupted goes on with the same one. `call_runner` runs the command of the check,
    and `inspector` looks at what it put out before the model reads it. Raises ToolFailed if the
    command may not run.
    """
    reason = ""
    while reply.status is Status.SUCCEEDED and not reply.silent:
        repairs, facts = agent.transcript.repairs, []
        missing = [text for text in check.contains if text not in reply.content]
        if missing:
            reason = f"the report does not contain {', '.join(map(repr, missing))}"
        elif check.command:
            code, output = await run_program(
                check.command,
                "check",
                f"check.command.{repairs}",
                call_runner=call_runner,
                step_log=step_log,
            )
            if code == 0:
                return reply
            reason = f"its command said no (exit code {code}): {one_line(join(check.command))}"
            if output.strip():
                facts = [Fact(name="check", tool="shell", ok=False, text=output)]
        else:
            return reply
        if repairs >= check.repair:
            detail = f"{reason}: {one_line(facts[0].text)}" if facts else reason
            detail = f"the check failed: {detail}".removesuffix(": ")
            return replace(reply, status=Status.FAILED, detail=detail)
        taint = agent.taint
        if facts:  # what a program puts out may be a stranger's words, as in any call
            call = FunctionCall(name="shell", arguments={"command": join(check.command)})
            result = await inspector.inspect(
                f"check.{repairs}", call, ToolResult(ok=False, text=facts[0].text)
            )
            facts = [replace(facts[0], text=result.text)]
            taint = max_taint(taint, result.taint)
        boundary = new_boundary()
        text = say("check_failed", agent.language, reason=reason)
        reply = await agent.repair(
            f"{text}\n\n{wrap(facts, boundary)}".strip(),
            facts=facts,
            facts_boundary=boundary,
            taint=taint,
        )
    if reason and reply.status is not Status.SUCCEEDED:
        reply = replace(reply, detail=f"{reply.detail or 'failed'}; the check had failed: {reason}")
    return reply
