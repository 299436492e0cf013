"""`finish`: the agent says how its run ended.

What follows from it is decided by the loop, not here. Where the routine has a pace, the run also
says when to come again: the scheduler reads that from the steps of the run once it has ended
(scheduler/pacing.py).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Literal

from daemon.definitions.values import InvalidValue, format_duration, parse_duration
from daemon.errors import ToolFailed

if TYPE_CHECKING:
    from datetime import timedelta

    from daemon.definitions.routines.routine import Pace
    from daemon.tools.registry import FunctionRegistry

FINISH = "finish"


def finish(
    status: Literal["succeeded", "failed"] = "succeeded",
    notify: bool = True,
    reason: str = "",
    report: str = "",
) -> str:
    """End this run.

    Args:
        status: "failed" if the task could not be done, or would have needed a person's answer.
        notify: false if there is nothing worth a person's attention; a failure is always told.
        reason: One line: why it failed, or why there is nothing to tell.
        report: The final report, if you have not written it as text beside this call.
    """
    if status == "failed":
        return "ended as failed"
    return "ended" if notify else f"ended in silence: {reason}"


def read_wait(text: str) -> timedelta | None:
    """Return the wait that a run has asked for as `next`; None for what is no duration."""
    try:
        return parse_duration(text)
    except InvalidValue:
        return None


def register(registry: FunctionRegistry) -> None:
    registry.register(FINISH, None, finish, read_only=True)


def register_paced(registry: FunctionRegistry, pace: Pace) -> None:
    """Register the tool with one more argument, by which a run says when to come again."""
    shortest, longest = map(format_duration, pace)
    description = (
        f"When to run again, counted from the end of this run: a duration from {shortest} to "
        f"{longest}, like {shortest}. Left out, or if the run fails: after {longest}."
    )

    def paced_finish(
        status: Literal["succeeded", "failed"] = "succeeded",
        notify: bool = True,
        reason: str = "",
        report: str = "",
        next: str = "",  # noqa: A002  as models read it
    ) -> str:
        text = finish(status, notify, reason, report)
        if not next:
            return f"{text}; comes again after {longest}"
        wait = read_wait(next)
        if wait is None:
            raise ToolFailed(f'next: expected a duration like "{shortest}", not {next[:100]!r}')
        if status == "failed":
            return f"{text}; comes again after {longest}, as it failed"
        next_wait = min(max(wait, pace[0]), pace[1])
        note = "" if next_wait == wait else f": {shortest} to {longest} are the bounds"
        return f"{text}; comes again after {format_duration(next_wait)}{note}"

    # a line of "Args", the last section
    paced_finish.__doc__ = f"{inspect.getdoc(finish)}\n    next: {description}"
    registry.register(FINISH, None, paced_finish, read_only=True)
