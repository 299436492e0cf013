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
    """Answers from two views: of the daemon, and of what one routine may do."""

    def __init__(self, daemon: Callable[[], Json], routine: Callable[[str], Json]) -> None:
        self._daemon, self._routine = daemon, routine

    # async although nothing is awaited: what it asks lives on the loop, and a plain function would
    # run in a thread
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
            **self._routine(context.routine),
        }
        values = {"you": you, **self._daemon()}
        unknown_parts = [part for part in parts or () if part not in values]
        if unknown_parts:
            raise ToolFailed(
                f"no such part: {', '.join(unknown_parts)}; there are {', '.join(values)}"
            )
        return {part: values[part] for part in values if parts is None or part in parts}


def register(
    registry: FunctionRegistry,
    daemon: Callable[[], Json],
    routine: Callable[[str], Json] = lambda name: {},
) -> None:
    """Offer `self_info`: `daemon` tells of the whole, `routine` what the one of that name may do
    and its limits.
    """
    registry.register("self_info", None, SelfInfo(daemon, routine).self_info, read_only=True)
