"""What a live run and a replayed one have in common, as `execute` sees it.

A live run gets a RunContext (context.py) and a StepRecorder (recorder.py), a replayed one a
ReplayContext (replay/play.py) and a list of steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from daemon.models import Taint, Usage

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.agent.tool_calls import ToolCallRunner
    from daemon.definitions.routines.routine import Judge, Routine
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
        """Send followers an event that no step records, after the events of the steps added before
        it.
        """


class RunHistory(Protocol):
    """What `execute` reads of this run and of those before it."""

    async def get(self, run_id_or_prefix: str) -> Run: ...
    async def get_input(self, run_id: str) -> Any: ...
    async def get_last(
        self, routine: str, *, statuses: Collection[Status], before: str | None = None
    ) -> Run | None:
        """Return the latest run of a routine with one of these statuses; `before` is the id of a
        run.
        """

    async def get_steps(self, run_id: str) -> list[Step]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOutcome:
    """The result of a check of a report."""

    passed: bool | None
    """None: the check could not be made, and another report would not change that."""
    text: str
    """Why it did not pass, as the model and people read it; else `PASS`."""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The model that judged, as its vendor named it."""


class ReportChecker(Protocol):
    """Looks at the reports of a run. `call_id` is that of the steps that record it."""

    async def check_schema(self, call_id: str, file: str, report: str) -> CheckOutcome:
        """Compare a report with a schema, which is a file of the workspace."""

    async def ask_judge(
        self, call_id: str, judge: Judge, report: str, taint: Taint
    ) -> CheckOutcome:
        """Have a report judged; `taint` is that of the run. Raises Retryable if the judge cannot be
        asked now.
        """


class ExecutionContext(Protocol):
    """What `execute` needs of the world around a run."""

    @property
    def runs(self) -> RunHistory: ...
    @property
    def asks_for_items(self) -> bool:
        """Whether a model that reported no items is told so (`[dedupe]`)."""

    @property
    def judges_denials(self) -> bool:
        """Whether a run has failed of which all calls were denied."""

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the calls of gather steps."""

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the command of a gate; its `shell` returns the exit code."""

    def checker_for(self, run: Run, routine: Routine, deadline: float) -> ReportChecker:
        """Return what compares reports with a schema and has them judged; `deadline` is in the
        event loop's time.
        """

    async def agent_for(
        self, run: Run, routine: Routine, step_log: StepLog, deadline: float
    ) -> Agent:
        """Return the agent of the run; `deadline` is in the event loop's time."""

    async def images_for(self, run: Run, routine: Routine, event_input: Any) -> AttachedImages:
        """Return the images that the model is shown; `event_input` came with the event of the
        trigger.
        """
