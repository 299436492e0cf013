"""The check of a report (`[check]`), after the model or the script has ended and before the run
has.

A report that does not hold up makes the run a failure, or is put to the model once more with what
is wrong (`repair`), within the limits of the run. What is cheap is checked first: the judge, which
costs money, is asked last.

Command, schema and judge leave a step each, by which a run that was interrupted knows what came of
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from shlex import join
from typing import TYPE_CHECKING

from daemon.agent.texts import say
from daemon.agent.transcript import Transcript, call_step, result_step
from daemon.models import Fact, FunctionCall, Reply, Status, StepKind, Taint, ToolResult, max_taint
from daemon.providers.facts import new_boundary, wrap
from daemon.runs.gather import one_line, run_program

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.agent.tool_calls import ResultInspector, ToolCallRunner
    from daemon.definitions.routines.routine import ReportCheck
    from daemon.models import Json
    from daemon.runs.protocols import CheckOutcome, ReportChecker, StepLog


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fault:
    """Why a report does not hold up."""

    reason: str
    facts: tuple[Fact, ...] = ()
    """What a program put out."""
    is_repairable: bool = True
    """Whether the model can do anything about it."""


@dataclass(frozen=True, kw_only=True)
class CheckRunner:
    """Checks the reports of one run.

    `call_runner` runs the command of the check, `inspector` looks at what it put out before the
    model reads it, and `checker` knows the schema and the judge.
    """

    check: ReportCheck
    call_runner: ToolCallRunner
    inspector: ResultInspector
    checker: ReportChecker
    step_log: StepLog

    async def check_reply(self, reply: Reply, agent: Agent) -> Reply:
        """Return the reply if it holds up, or a repaired one that does; else the reply as a
        failure, with the reason.

        A failure and a silent reply are not checked. The steps say which rounds there were, so a
        run that was interrupted goes on with the same one. Raises ToolFailed if the command may not
        run, Retryable if the judge cannot be asked now.
        """
        reason = ""
        while reply.status is Status.SUCCEEDED and not reply.silent:
            repairs = agent.transcript.repairs
            fault = await self._find_fault(reply.content, repairs, agent.taint)
            if fault is None:
                return self._with_usage(reply)
            if repairs >= self.check.repair or not fault.is_repairable:
                return self._with_usage(_failure(reply, fault))
            reason = fault.reason
            facts, taint = list(fault.facts), agent.taint
            if facts:  # what a program puts out may be a stranger's words, as in any call
                call = FunctionCall(name="shell", arguments={"command": join(self.check.command)})
                result = await self.inspector.inspect(
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
            detail = f"{reply.detail or 'failed'}; the check had failed: {reason}"
            reply = replace(reply, detail=detail)
        return self._with_usage(reply)

    async def check_output(self, reply: Reply, taint: Taint) -> Reply:
        """Return the reply of a script if it holds up, else as a failure, with the reason.

        A failure and a silent reply are not checked. Raises as `check_reply`.
        """
        if reply.status is not Status.SUCCEEDED or reply.silent:
            return reply
        fault = await self._find_fault(reply.content, 0, taint)
        return self._with_usage(_failure(reply, fault) if fault else reply)

    def _with_usage(self, reply: Reply) -> Reply:
        """Return the reply with what the judge has used, too."""
        if self.check.judge is None:
            return reply
        return replace(reply, usage=Transcript(self.step_log.steps).usage)

    async def _find_fault(self, report: str, repairs: int, taint: Taint) -> _Fault | None:
        """Return the first fault of a report; None if it holds up. `repairs` is how often it has
        been repaired.
        """
        check = self.check
        missing_texts = [text for text in check.contains if text not in report]
        if missing_texts:
            return _Fault(
                reason=f"the report does not contain {', '.join(map(repr, missing_texts))}"
            )
        if check.schema_file:
            call_id, arguments = f"check.schema.{repairs}", {"file": check.schema_file}
            ask = partial(self.checker.check_schema, call_id, check.schema_file, report)
            if fault := await self._run_once(call_id, "schema", arguments, ask):
                return fault
        if check.command:
            code, output = await run_program(
                check.command,
                "check",
                f"check.command.{repairs}",
                call_runner=self.call_runner,
                step_log=self.step_log,
            )
            if code:
                command = one_line(join(check.command))
                facts = [Fact(name="check", tool="shell", ok=False, text=output)]
                return _Fault(
                    reason=f"its command said no (exit code {code}): {command}",
                    facts=tuple(facts) if output.strip() else (),
                )
        if check.judge:
            call_id = f"check.judge.{repairs}"
            arguments = check.judge.model_dump(include={"provider", "model"}, exclude_none=True)
            ask = partial(self.checker.ask_judge, call_id, check.judge, report, taint)
            return await self._run_once(call_id, "judge", arguments, ask)
        return None

    async def _run_once(
        self, call_id: str, tool: str, arguments: Json, ask: Callable[[], Awaitable[CheckOutcome]]
    ) -> _Fault | None:
        """Have the schema or the judge look at a report, unless an earlier attempt has.

        The steps are those of a call, of a `tool` that no model is offered.
        """
        steps, call = self.step_log.steps, FunctionCall(name=tool, arguments=arguments, id=call_id)
        result = next(
            (step for step in steps if step.kind is StepKind.RESULT and step.call_id == call_id),
            None,
        )
        if result is None:
            if not any(step.kind is StepKind.CALL and step.call_id == call_id for step in steps):
                # nothing is changed by asking twice
                await self.step_log.append(call_step(call_id, call, 0, None, repeatable=True))
            loop = asyncio.get_running_loop()
            start = loop.time()
            outcome = await ask()
            tool_result = ToolResult(
                ok=bool(outcome.passed),
                text=outcome.text,
                value={"pass": outcome.passed, "model": outcome.model},
            )
            result = result_step(
                call_id, call, 0, tool_result, loop.time() - start, usage=outcome.usage
            )
            await self.step_log.append(result)
        if result.body["ok"]:
            return None
        return _Fault(
            reason=result.body["text"],
            is_repairable=result.body["value"]["pass"] is not None,
        )


def _failure(reply: Reply, fault: _Fault) -> Reply:
    output = one_line(fault.facts[0].text) if fault.facts else ""
    detail = f"the check failed: {fault.reason}{f': {output}' if output else ''}"
    return replace(reply, status=Status.FAILED, detail=detail)
