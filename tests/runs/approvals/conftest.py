"""A small run context with a real journal, the real policy and real tools, in which calls wait for
a person.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import Persona, PromptContext
from daemon.agent.tool_calls import ToolCallRunner
from daemon.definitions.routines.routine import Routine
from daemon.injection.inspector import InjectionInspector
from daemon.models import ApprovalStatus, Run, Status, ToolContext, Usage, WaitingNotice
from daemon.policy.policy import Policy
from daemon.providers import create_provider
from daemon.runs.approvals.approvals import Approvals
from daemon.runs.approvals.approver import RunApprover
from daemon.runs.approvals.notice import make_waiting_notice
from daemon.runs.approvals.remembered import RememberedCalls
from daemon.runs.approvals.request import CallDescriber
from daemon.runs.events import EventBus
from daemon.runs.run import supervise
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.testing import FakeClock
from daemon.tools.builtin import files, finish, shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from tests.empty_database import copy_empty_database
from tests.runs.bare_run_context import BareRunContext

START = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
POLICY = """
version = 1
[[rule]]
tool = "file_write"
effect = "ask"
reason = "the owner wants to see it first"
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "shell"
argv = ["tee", "-a"]
effect = "ask"
[[rule]]
tool = "shell"
argv = ["echo"]
effect = "allow"
[[rule]]
tool = "send"
effect = "allow"
[[rule]]
tool = "look"
effect = "allow"
"""


class ApprovalHarness(BareRunContext):
    """A run context whose calls wait for a person, as in the daemon."""

    def __init__(self, folder: Path, journal: Journal, clock: FakeClock, replies: Any = ()) -> None:
        super().__init__()
        self.workspace, self.state, self.clock, self.journal = folder / "ws", folder, clock, journal
        self.scripts = folder / "scripts"
        self.config = SimpleNamespace(scripts_path=self.scripts)
        self.workspace.mkdir(exist_ok=True)
        self.events, self.owner, self.zone = EventBus(), "test", "UTC"
        self.sent_texts: list[str] = []
        self.replies = list(replies)
        self.registry = FunctionRegistry()
        finish.register(self.registry)
        files.register(self.registry, self)
        shell.register(self.registry, self)

        def send(text: str) -> str:
            """Send."""
            self.sent_texts.append(text)
            return f"sent {text}"

        def look(at: str = "") -> str:
            """Look."""
            return f"saw {at}"

        self.registry.register("send", None, send)
        self.registry.register("look", None, look, read_only=True)
        self.set_policy(POLICY)
        self.queue: list[Run] = []
        self.approvals = Approvals(
            journal,
            CallDescriber(self),
            RememberedCalls(folder / "approvals.toml"),
            queue=self,
            clock=clock,
        )
        fields = {"run": {"prompt": "Work.", "mode": "agent", "tools": ["*"]}}
        self.routine = Routine.model_validate({"name": "daily", **fields})

    def set_policy(self, text: str) -> None:
        path = self.state / "policy.toml"
        path.write_text(text)
        self.policy = Policy.load(path, workspace=self.workspace, tools=("send", "look"))

    async def submit(self, run: Run) -> None:
        self.queue.append(run)

    def now(self) -> datetime:
        return self.clock.now()

    def redact(self, text: str) -> str:
        return text

    def make_waiting_notice(
        self, run: Run, routine: Routine, requests: Any, until: datetime
    ) -> WaitingNotice:
        targets = [
            *(rule.to for rule in routine.deliver if "waiting" in rule.on),
            *self.journal.incidents.settings.to,
        ]
        return make_waiting_notice(run, requests, targets, deadline=until, redact=self.redact)

    async def routine_of(self, run: Run) -> Routine:
        return self.routine

    def context(self, run: Run) -> ToolContext:
        return ToolContext(run=run.id, routine=self.routine.policy_name, workspace=self.workspace)

    def approver(self, run: Run) -> RunApprover:
        approvals = self.approvals
        return RunApprover(
            run,
            self.journal,
            self,
            approvals.describer,
            approvals.remembered_calls,
            policy_name=self.routine.policy_name,
            clock=self.clock,
        )

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        return ToolCallRunner(
            registry=self.registry,
            executor=ToolExecutor(self.registry),
            policy=self.policy,
            context=self.context(run),
            offered_tools=self.registry.names(),
            approver=self.approver(run),
            inspector=InjectionInspector(run, self.journal, self.policy),
            audit_fields=self.audit_fields,
        )

    def audit_fields(self) -> dict[str, str]:
        return {"policy": self.policy.hash, "sandbox": "profiles"}

    gate_call_runner_for = call_runner_for

    async def agent_for(self, run: Run, routine: Routine, record: Any, deadline: float) -> Agent:
        answer_count = sum(step.kind == "llm" for step in record.steps)
        self.provider = create_provider("scripted", replies=self.replies[answer_count:])
        return Agent(
            self.provider,
            self.registry,
            options=AgentOptions(
                prompt_context=PromptContext(
                    persona=Persona(),
                    workspace=self.workspace,
                    now=self.now(),
                    zone=UTC,
                    routine=run.routine,
                ),
                tool_context=self.context(run),
                limits=LoopLimits(attempts=1),
                deadline=deadline,
                taint=run.taint,
            ),
            services=AgentServices(
                policy=self.policy,
                step_writer=record,
                approver=self.approver(run),
                inspector=InjectionInspector(run, self.journal, self.policy),
                audit_fields=self.audit_fields,
            ),
            steps=record.steps,
        )

    async def archive(self, run: Run, routine: Routine, reply: Any, steps: Any) -> Usage:
        return Usage()

    async def open(self, **more: Any) -> Run:
        self.clock.advance(seconds=1)
        claim = Claim(
            routine=self.routine.name,
            definition=self.routine.dump(),
            trigger="cron",
            slot=self.clock.now(),
            goal="Work.",
            **more,
        )
        (run,) = await self.journal.slots.claim([claim])
        assert run is not None
        return run

    async def execute(self, run: Run | None = None) -> Run:
        """Execute `run`, or a new run, until it ends or waits."""
        run = run or await self.open()
        await supervise(run.id, self)  # type: ignore[arg-type]
        return await self.journal.runs.get(run.id)

    async def find_pending(self) -> list[Any]:
        return await self.journal.approvals.find(status=ApprovalStatus.PENDING)

    async def run_to_question(self) -> tuple[Run, Any]:
        """Execute a new run until it waits, and return it with its approval request."""
        run = await self.execute()
        assert run.status is Status.WAITING, run.detail
        (approval,) = await self.find_pending()
        return run, approval

    def tool_results(self) -> list[str]:
        """Return the texts of the tool results in the last request to the model."""
        return [
            message.content
            for message in self.provider.calls[-1].messages
            if message.role == "tool"
        ]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def journal(tmp_path: Path, clock: FakeClock) -> Any:
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield Journal(database, clock=clock.now)
    await database.close()


@pytest.fixture
def build_harness(tmp_path: Path, journal: Journal, clock: FakeClock) -> Any:
    def build(*replies: Any) -> ApprovalHarness:
        return ApprovalHarness(tmp_path, journal, clock, replies)

    return build


def turn(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def write(path: str = "out.md", content: str = "x") -> tuple[str, dict[str, Any]]:
    return ("file_write", {"path": path, "content": content})
