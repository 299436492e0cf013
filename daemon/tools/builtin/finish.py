"""`finish`: the agent says how its run ended.

What follows from it is decided by the loop, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from daemon.tools.registry import FunctionRegistry


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


def register(registry: FunctionRegistry) -> None:
    registry.register("finish", None, finish, read_only=True)
