"""The tool `subagent`: a part of the task, done by another agent with a conversation of its own."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

from daemon.models import Json, ToolContext
from daemon.tools.registry import FunctionRegistry

SUBAGENT = "subagent"
"""The trigger of a run that another run has begun, and the name under which it stands in lists."""


class Delegation(Protocol):
    """Who has a task done by another run."""

    async def delegate(
        self, context: ToolContext, task: str, tools: list[str] | None, budget: int | None
    ) -> Json:
        """Return `{"run", "report", "tokens", "untrusted"}`. Raises ToolFailed if the other run did
        not succeed.
        """


def register(registry: FunctionRegistry, delegation: Delegation) -> None:
    """Offer sub-agents."""

    async def subagent(
        context: ToolContext,
        task: Annotated[
            str,
            Field(
                description="What to do and what to report back; all it needs to know", min_length=1
            ),
        ],
        tools: Annotated[
            list[str] | None,
            Field(description="Which of your tools it may use; by default all but this one"),
        ] = None,
        budget: Annotated[
            int | None,
            Field(description="Tokens it may use; by default what is left to you", ge=100),
        ] = None,
    ) -> Json:
        """Have a part of the task done by another agent, which sees nothing but what you tell it,
        and read its report.

        Worth it for parts that need many calls whose details you do not need. It has at most your
        rights.
        """
        return await delegation.delegate(context, task, tools, budget)

    # asked again after a crash it finds the run that it had begun, and goes on with that
    registry.register(SUBAGENT, None, subagent, idempotent=True)
