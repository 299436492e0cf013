"""`self_info`: what agentd knows of itself, so that an agent looks instead of guessing.

Not here: facts about the machine (sysinfo), and any secret: what is shown is chosen by whoever
registers the tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext

if TYPE_CHECKING:
    from daemon.tools.registry import FunctionRegistry


class SelfInfo:
    """Answers from what two functions return: of the daemon, and of what one routine may do."""

    def __init__(
        self, describe_daemon: Callable[[], Json], describe_routine: Callable[[str], Json]
    ) -> None:
        self._describe_daemon, self._describe_routine = describe_daemon, describe_routine

    # async although nothing is awaited: what it reads may be used in the event loop only, and a
    # plain function would run in a thread
    async def self_info(self, context: ToolContext, parts: list[str] | None = None) -> Json:
        """Return what agentd knows of itself: version, model, workspace, routines and when they run
        next, the tools there are, and under "you" this very run with what its routine may do and
        its limits.

        Look here before you guess where you are, who you are or what you may do.

        Args:
            parts: Only these keys of the answer, such as "you" or "routines"; everything if left
                out.
        """
        you = {
            "run": context.run,
            "routine": context.routine.rpartition("/")[2],
            **self._describe_routine(context.routine),
        }
        values = {"you": you, **self._describe_daemon()}
        unknown_parts = [part for part in parts or () if part not in values]
        if unknown_parts:
            raise ToolFailed(
                f"no such part: {', '.join(unknown_parts)}; there are {', '.join(values)}"
            )
        return {part: values[part] for part in values if parts is None or part in parts}


def register(
    registry: FunctionRegistry,
    describe_daemon: Callable[[], Json],
    describe_routine: Callable[[str], Json] = lambda name: {},
) -> None:
    """Offer `self_info`; `describe_routine` is called with the name of a routine, and returns what
    that may do, and its limits.
    """
    info = SelfInfo(describe_daemon, describe_routine)
    registry.register("self_info", None, info.self_info, read_only=True)
