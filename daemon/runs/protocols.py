"""What a live run and a replayed one have in common, as `execute` sees it.

A live run gets a RunContext (context.py) and a StepRecorder (recorder.py), a replayed one a
ReplayContext (replay/play.py) and a list of steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.agent.tool_calls import ToolCallRunner
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Json, Run, Status, Step
    from daemon.runs.images import AttachedImages


class StepLog(Protocol):
    """The steps of one run, in order."""

    @property
    def steps(self) -> list[Step]: ...
    @property
    def is_exclusive(self) -> bool:
        """Whether no other process can take the run over."""

    def append(self, *steps: Step, durable: bool = False) -> Awaitable[object]:
        """Add steps; awaiting the result means that they are committed."""

    def write_lazily(self, *steps: Step) -> None:
        """Add steps that a crash may lose."""

    def publish_live(self, event: Json) -> None:
        """Tell followers of what no step stands for, behind the steps that were added before it."""


class RunHistory(Protocol):
    """What `execute` reads of this run and of those before it."""

    async def get(self, run_id_or_prefix: str) -> Run: ...
    async def get_input(self, run_id: str) -> Any: ...
    async def get_last(
        self, routine: str, *, statuses: Collection[Status], before: str | None = None
    ) -> Run | None: ...
    async def get_steps(self, run_id: str) -> list[Step]: ...


class ExecutionContext(Protocol):
    """What `execute` needs of the world around a run."""

    @property
    def runs(self) -> RunHistory: ...
    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the calls of gather steps."""

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the command of a gate; its `shell` returns the exit code."""

    async def agent_for(
        self, run: Run, routine: Routine, step_log: StepLog, deadline: float
    ) -> Agent:
        """Return the agent of the run; `deadline` is in the event loop's time."""

    async def images_for(self, run: Run, routine: Routine, event_input: Any) -> AttachedImages:
        """Return the images that the model is shown; `event_input` came with the event of the
        trigger.
        """
