"""Each way in which a run can end, or be left to go on later, as one row of a table.

The journal is real; a fault or a cancel comes exactly at the write or read that the row names.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.agent.tool_calls import ApprovalRequired
from daemon.errors import BadKey, DaemonError, Fenced, Overloaded, StoreFull
from daemon.models import ApprovalRequest, Outcome, Status, Taint
from daemon.runs import run as lifecycle
from daemon.runs.rehearsal.dry_run import REHEARSAL
from daemon.runs.run import supervise
from daemon.store.approvals import ApprovalRepository
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.store.runs import RunRepository
from tests.agent.conftest import call, calls
from tests.empty_database import copy_empty_database
from tests.runs.test_run import RunHarness

START = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
FULL = StoreFull("the disk is full")
FENCED = Fenced("another process owns this run now")
REQUEST = ApprovalRequest(
    call_id="1.0", tool="disks", request={"tool": "disks"}, digest="d", rule="rule 1", reason=""
)
CRASHED = "a fault of agentd itself ({}); its log has more"


class Hindrance:
    """Raises errors, or pauses, where a test says."""

    def __init__(self) -> None:
        self.errors: dict[str, list[Exception]] = {}
        """What is raised at an operation, one error each time."""
        self.pause_at = ""
        self.has_reached, self.is_released = asyncio.Event(), asyncio.Event()

    async def hinder(self, operation: str) -> None:
        if self.pause_at == operation:
            self.has_reached.set()
            await self.is_released.wait()
        if errors := self.errors.get(operation):
            raise errors.pop(0)


class HinderedRuns(RunRepository):
    """Runs whose operations a hindrance precedes."""

    hindrance: Hindrance

    def claim_lazily(self, run_id: str, *, owner: str) -> Any:
        is_hindered = "claim" in self.hindrance.errors or self.hindrance.pause_at == "claim"
        return None if is_hindered else super().claim_lazily(run_id, owner=owner)

    async def claim(self, run_id: str, **options: Any) -> Any:
        await self.hindrance.hinder("claim")
        return await super().claim(run_id, **options)

    async def get_steps(self, run_id: str, *args: Any, **options: Any) -> Any:
        await self.hindrance.hinder("steps")
        return await super().get_steps(run_id, *args, **options)

    async def end(self, *args: Any, **options: Any) -> Any:
        await self.hindrance.hinder("end")
        return await super().end(*args, **options)

    async def suspend(self, *args: Any, **options: Any) -> Any:
        await self.hindrance.hinder("suspend")
        return await super().suspend(*args, **options)


class HinderedApprovals(ApprovalRepository):
    """Approvals whose operations a hindrance precedes."""

    hindrance: Hindrance

    async def park(self, *args: Any, **options: Any) -> Any:
        await self.hindrance.hinder("park")
        return await super().park(*args, **options)


class HinderedJournal(Journal):
    """A journal that raises errors, or pauses, where a test says."""

    def __init__(self, database: Database, *, clock: Any) -> None:
        super().__init__(database, clock=clock)
        self.hindrance = Hindrance()
        runs = HinderedRuns(database, clock=clock, incidents=self.incidents)
        approvals = HinderedApprovals(database, clock=clock, runs=runs, incidents=self.incidents)
        runs.hindrance = approvals.hindrance = self.hindrance
        self.runs, self.approvals = runs, approvals


@pytest.fixture
async def journal(tmp_path):
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield HinderedJournal(database, clock=lambda: START)
    await database.close()


class HinderedRunHarness(RunHarness):
    """A run context that raises errors where a test says."""

    agent_error: BaseException | None = None
    routine_error: Exception | None = None

    async def agent_for(self, *args: Any) -> Any:
        if self.agent_error:
            raise self.agent_error
        return await super().agent_for(*args)

    async def routine_of(self, run: Any) -> Any:
        if self.routine_error:
            raise self.routine_error
        return await super().routine_of(run)

    def make_waiting_notice(self, *_args: Any) -> None:
        """Tell nobody of the question."""


@dataclass(kw_only=True)
class Ending:
    """One row of the table: what happens to a run, and what its row says afterwards."""

    replies: Any = ("Done.",)
    routine: dict[str, Any] = field(default_factory=dict)
    trigger: str = "cron"
    errors: dict[str, list[Exception]] = field(default_factory=dict)
    """What the journal raises, by operation."""
    agent_error: BaseException | None = None
    """What is raised where the agent is made."""
    routine_error: Exception | None = None
    cancel_at: str = ""
    """The operation during which the task is cancelled; `tool` while a tool runs."""
    cancels: int = 1
    by_person: bool = False
    """Whether a person cancels the run, rather than the process ends."""
    status: Status = Status.SUCCEEDED
    detail: str | None = None
    report: str | None = None
    returns_row: bool = True
    """Whether `supervise` returns the row; else None, or it raises CancelledError."""
    deliveries: int = 1
    tainted: bool = False
    next_supervise: Status | None = None
    """The status after one more `supervise`, where the run goes on."""


STUCK = {"run": {"mode": "agent", "prompt": "x", "tools": ["stuck"]}}
IN_TOOL = {"routine": STUCK, "replies": (calls(call("stuck")), "Went on."), "cancel_at": "tool"}
LATE = {"status": Status.SUCCEEDED, "report": "Done.", "returns_row": False}
FAILS = {"status": Status.FAILED}
WAITS = {"status": Status.QUEUED, "deliveries": 0}

ENDINGS = {
    "it answers": Ending(report="Done."),
    "it is a rehearsal": Ending(trigger=REHEARSAL, report="Done.", deliveries=0),
    "its gate stays closed": Ending(
        routine={"gate": {"command": ["false"]}},
        status=Status.FAILED,  # this test's tools have no shell: a fault is told, not slept through
        detail="the gate's command was not run",
    ),
    "it takes too long": Ending(
        routine={"run": {**STUCK["run"], "timeout": "1s"}},
        replies=(calls(call("stuck")),),
        status=Status.TIMED_OUT,
        detail="not done within 1 s of active time",
    ),
    "something else times out": Ending(
        agent_error=TimeoutError("of a library"),
        detail=CRASHED.format("TimeoutError: of a library"),
        **FAILS,
    ),
    "a vendor is busy": Ending(
        replies=(Overloaded("busy"), "Done."),
        detail="busy",
        **WAITS,
    ),
    "a vendor is busy and no attempt is left": Ending(
        replies=(Overloaded("busy"),),
        routine={"run": {"prompt": "x", "retry": {"attempts": 1}}},
        detail="busy",
        **FAILS,
    ),
    "a vendor refuses": Ending(replies=(BadKey("the key was refused"),), detail="the key", **FAILS),
    "agentd has a bug": Ending(
        agent_error=ZeroDivisionError("oops"),
        detail=CRASHED.format("ZeroDivisionError: oops"),
        **FAILS,
    ),
    "agentd has a bug in the end": Ending(
        errors={"end": [ZeroDivisionError("oops")]},
        detail=CRASHED.format("ZeroDivisionError: oops"),
        status=Status.FAILED,
        deliveries=0,
    ),
    "its routine cannot be read": Ending(
        routine_error=DaemonError("the definition cannot be read by this version"),
        detail="the definition cannot be read",
        status=Status.FAILED,
        deliveries=0,
    ),
    "its steps are damaged": Ending(
        errors={"steps": [DaemonError("step 3 is damaged")]},
        detail="step 3 is damaged",
        status=Status.FAILED,
        deliveries=0,
        tainted=True,
    ),
    "the disk is full when it is claimed": Ending(errors={"claim": [FULL, FULL]}, report="Done."),
    "the disk is full when it ends": Ending(
        errors={"end": [FULL]},
        detail="the disk was full",
        next_supervise=Status.SUCCEEDED,
        **WAITS,
    ),
    "the disk stays full when it ends": Ending(
        errors={"end": [FULL], "suspend": [FULL, FULL]},
        detail="the disk was full",
        next_supervise=Status.SUCCEEDED,
        **WAITS,
    ),
    "another process owns it when it ends": Ending(
        errors={"end": [FENCED]},
        status=Status.RUNNING,
        returns_row=False,
        deliveries=0,
    ),
    "another process takes it while the disk is full": Ending(
        errors={"end": [FULL], "suspend": [FENCED]},
        status=Status.RUNNING,
        returns_row=False,
        deliveries=0,
    ),
    "the process ends while it is claimed": Ending(
        cancel_at="claim", returns_row=False, next_supervise=Status.SUCCEEDED, **WAITS
    ),
    "the process ends twice while it is claimed": Ending(
        cancel_at="claim", cancels=2, returns_row=False, next_supervise=Status.SUCCEEDED, **WAITS
    ),
    "the process ends while the disk is full": Ending(
        cancel_at="claim",
        errors={"claim": [FULL]},
        returns_row=False,
        next_supervise=Status.SUCCEEDED,
        **WAITS,
    ),
    "the process ends while a tool runs": Ending(
        **IN_TOOL, returns_row=False, next_supervise=Status.SUCCEEDED, **WAITS
    ),
    "the process ends while a tool runs and the disk is full": Ending(
        **IN_TOOL,
        errors={"suspend": [FULL]},
        status=Status.RUNNING,
        returns_row=False,
        deliveries=0,
    ),
    "a person cancels it while a tool runs": Ending(
        **IN_TOOL, by_person=True, status=Status.CANCELLED, returns_row=False, deliveries=0
    ),
    "a person has to allow a call": Ending(
        agent_error=ApprovalRequired([REQUEST]),
        status=Status.WAITING,
        detail="waits for a person to allow disks",
        deliveries=0,
    ),
    "the process ends while it is parked": Ending(
        agent_error=ApprovalRequired([REQUEST]),
        cancel_at="park",
        status=Status.WAITING,
        detail="waits for a person to allow disks",
        returns_row=False,
        deliveries=0,
    ),
    "the process ends while its end is written": Ending(cancel_at="end", **LATE),
    "the process ends twice while its end is written": Ending(cancel_at="end", cancels=3, **LATE),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_each_ending_of_a_run(name, journal):
    ending = ENDINGS[name]
    harness = HinderedRunHarness(journal, list(ending.replies), **ending.routine)
    harness.agent_error, harness.routine_error = ending.agent_error, ending.routine_error
    in_tool = asyncio.Event()

    async def hang() -> str:
        """Wait for ever, the first time."""
        if not in_tool.is_set():
            in_tool.set()
            await asyncio.Event().wait()
        return "free"

    harness.registry.register("stuck", None, hang, read_only=True)
    run = await harness.open(trigger=ending.trigger, outcome=Outcome.RAN)
    journal.hindrance.errors = {
        operation: list(errors) for operation, errors in ending.errors.items()
    }
    journal.hindrance.pause_at = ending.cancel_at

    follower = harness.events.follow(run.id)
    task = asyncio.create_task(supervise(run.id, harness))
    if ending.cancel_at:
        await (in_tool if ending.cancel_at == "tool" else journal.hindrance.has_reached).wait()
        if ending.by_person:
            await journal.runs.request_cancel(run.id)
        for _ in range(ending.cancels):
            task.cancel()
            await asyncio.sleep(0)
        journal.hindrance.is_released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        ended_run = await task
        assert (ended_run is not None) is ending.returns_row

    row = await journal.runs.get(run.id)
    assert (row.status, row.report or None) == (ending.status, ending.report), row.detail
    assert ending.detail is None or (row.detail or "").startswith(ending.detail)
    assert len(await journal.outbox.find(run=run.id)) == ending.deliveries
    assert row.taint is (Taint.TAINTED if ending.tainted else Taint.NONE)
    harness.events.close()
    events = [event["type"] async for event in follower]
    assert events.count("run_ended") == int(ending.status.has_ended), "once, and after the commit"
    if ending.next_supervise:
        journal.hindrance.pause_at = ""
        resumed_run = await supervise(run.id, harness)
        assert resumed_run is not None and resumed_run.status is ending.next_supervise


async def test_uninterrupted_work_is_abandoned_after_its_grace():
    never = asyncio.Event()

    async def hang() -> None:
        await never.wait()

    task = asyncio.create_task(lifecycle.uninterrupted(hang(), grace=0.01))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    never.set()


async def test_a_full_disk_is_not_asked_for_room_without_a_pause(journal):
    harness = HinderedRunHarness(journal, ["Done."])
    harness.full_disk_retry = 3600.0
    run = await harness.open()
    errors = journal.hindrance.errors = {"end": [FULL], "suspend": [FULL] * 1000}
    task = asyncio.create_task(supervise(run.id, harness))
    while errors["end"]:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(errors["suspend"]) == 1000
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
