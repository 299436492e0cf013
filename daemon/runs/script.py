"""The report of a routine in mode script: what its gather steps brought, as it is; no model reads
it.

The calls are those of every gather step (gather.py). That people read their results as they are,
and how a failed call says so, is `ToolContext.verbatim`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daemon.errors import ToolFailed
from daemon.models import FunctionCall, Reply, Status
from daemon.runs.gather import one_line, run_calls
from daemon.tools.reported_items import REPORT_ITEMS, collect_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.agent.tool_calls import ToolCallRunner
    from daemon.definitions.routines.routine import Gather, Routine
    from daemon.models import Fact
    from daemon.runs.protocols import StepLog
    from daemon.tools.reported_items import ReportedItems

LINES_PER_CALL = 500  # as many items as `report_items` takes at once


def make_script_reply(
    routine: Routine, gather_steps: Sequence[Gather], facts: Sequence[Fact]
) -> Reply:
    """Return the outputs one after another, in the order of the steps; silent if there are none.

    A required step that failed makes the run a failure, an exit code other than 0 too; what it put
    out until then is part of the report.
    """
    required_names = {step.name for step in gather_steps if step.required}
    outputs, failures = [], []
    for fact in facts:
        failure = ""
        if fact.ok:
            outputs.append(fact.text)
        elif isinstance(fact.value, dict) and "failure" in fact.value:
            outputs.append(fact.text)
            failure = str(fact.value["failure"])
        else:  # it never began
            failure = fact.text
        if not fact.ok and fact.name in required_names:
            failures.append(f"{fact.name}: {one_line(failure)}")
    # each output begins on a line of its own
    content = "\n".join(output.removesuffix("\n") for output in outputs if output)
    if failures:
        return Reply(content=content, status=Status.FAILED, detail="; ".join(failures))
    if not content.strip():
        return Reply(content="", silent=True, detail="there was no output")
    is_silent = content.strip() == routine.run.silent_token
    return Reply(content=content, silent=is_silent)


async def report_lines(
    text: str, key_field: str, *, call_runner: ToolCallRunner, step_log: StepLog
) -> ReportedItems | None:
    """Report each line of a text as an item, and return which ones are new; None without a line.

    Raises ToolFailed if the policy denies the tool `report_items`.
    """
    lines = list(dict.fromkeys(line.strip() for line in text.split("\n") if line.strip()))
    calls = []
    for number, start in enumerate(range(0, len(lines), LINES_PER_CALL)):
        items = [{"title": line} for line in lines[start : start + LINES_PER_CALL]]
        calls.append(
            FunctionCall(name=REPORT_ITEMS, arguments={"items": items}, id=f"lines.{number}")
        )
    results = await run_calls(calls, call_runner=call_runner, step_log=step_log)
    for call in calls:
        if not results[str(call.id)]["ok"]:
            raise ToolFailed(f"{REPORT_ITEMS}: {one_line(str(results[str(call.id)]['text']))}")
    return collect_items(step_log.steps, key_field)


def keep_new_lines(reply: Reply, items: ReportedItems | None) -> Reply:
    """Return the reply with those lines that no earlier run has reported; silent without any."""
    if items is None or reply.silent:
        return reply
    new_lines = {str(item["title"]) for item in items.new_items}
    if not new_lines:
        return replace(reply, content="", silent=True, detail=items.silence_reason)
    lines = [line for line in reply.content.split("\n") if line.strip() in new_lines]
    return replace(reply, content="\n".join(dict.fromkeys(lines)))
