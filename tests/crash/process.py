"""A process that lives the runs of a scenario: what `app/wiring.py` builds, and what a daemon does
from its start on.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

from daemon.agent.conversations.conversations import Conversations
from daemon.definitions.config.loading import load_config
from daemon.definitions.routines.routine import Routine
from daemon.definitions.skills import SkillCatalog
from daemon.delivery.outbox import Outbox
from daemon.errors import NotFound, Refused, StoreFull
from daemon.memory.memory import Memory
from daemon.models import Json, Run, Status
from daemon.policy.policy import Policy
from daemon.providers.budget import BudgetLedger
from daemon.runs import settings as live
from daemon.runs.approvals.approvals import Approvals
from daemon.runs.approvals.remembered import RememberedCalls
from daemon.runs.approvals.request import CallDescriber
from daemon.runs.context import RunContexts
from daemon.runs.events import EventBus
from daemon.runs.run import supervise
from daemon.runs.services import RunServices
from daemon.runs.subagents import SubagentRunner
from daemon.scheduler.run_queue import LocalRunQueue
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.store.runs import LEASE
from daemon.system.clock import SystemClock
from daemon.telemetry.redaction import Secrets
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.mcp.accepted_tools import AcceptedTools
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry
from tests.crash.scenario import (
    GOAL,
    TOOLS,
    Channel,
    CrashScenario,
    Oracle,
    People,
    Script,
    Turn,
    tools,
)

SLOT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
VENDORS = ("oracle", "spare")
CONFIG = 'provider = "oracle"\nask.auto_route = false\n' + "".join(
    f'[providers.{name}]\nkind = "scripted"\nreplies = ["-"]\n' for name in VENDORS
)
ALLOWED = ["act", "tidy", "break", "redo", "look", "subagent"]
RULES = dict.fromkeys(ALLOWED, "allow") | {"sign": "ask"}
POLICY = "\n".join(
    [
        "version = 1",
        *(f'[[rule]]\ntool = "{tool}"\neffect = "{effect}"' for tool, effect in RULES.items()),
        f"[routine.work]\ntainted_tools = {ALLOWED}\n",
    ]
)
WORK: Json = {
    "name": "work",
    "run": {
        "mode": "agent",
        "prompt": GOAL,
        "tools": [*TOOLS, "subagent"],
        "memory": "recall+store",
        "retry": {
            "attempts": 50,
            "backoff": timedelta(milliseconds=1),
            "max": timedelta(milliseconds=1),
        },
        "max_iterations": 50,
        "tool_retry_delay": timedelta(milliseconds=1),
    },
    "gather": [{"name": "first", "tool": "look", "args": {"n": 77}}],
    "deliver": [{"to": "alpha"}, {"to": "beta"}],
}
COLLECT: Json = WORK | {
    "run": {
        key: value for key, value in WORK["run"].items() if key not in ("tools", "max_iterations")
    }
    | {"mode": "collect-then-summarise"},
    "gather": [
        {"name": "first", "tool": "look", "args": {"n": 77}},
        {"name": "second", "tool": "act", "args": {"n": 78}, "required": False},
        {"name": "third", "tool": "redo", "args": {"n": 79}},
        {"name": "fourth", "tool": "look", "args": {"n": 80}},
    ],
}
GATED: Json = WORK | {"gate": {"changed": ["first"]}}
ROUTINES = {"work": WORK, "collect": COLLECT, "gated": GATED}


@dataclass
class Settings:
    """What all processes read from the disk: read once, for thousands of them."""

    config: Any
    policy: Policy
    routines: dict[str, Routine]
    template: Path
    seats: dict[int, Process] = field(default_factory=dict)
    """The processes that live now."""
    _registries: dict[int, FunctionRegistry] = field(default_factory=dict)

    def tools_at(self, seat: int) -> FunctionRegistry:
        """Return the tools of whoever sits there; made once, as what they take is read from their
        signatures.
        """
        if seat not in self._registries:
            self._registries[seat] = tools(lambda: self.seats[seat].scenario, Subagents(self, seat))
        return self._registries[seat]


class Subagents:
    """The sub-agents of whichever process sits there when a run asks for one."""

    def __init__(self, settings: Settings, seat: int) -> None:
        self._settings, self._seat = settings, seat

    async def delegate(self, *arguments: Any) -> Json:
        return await self._settings.seats[self._seat].delegation.delegate(*arguments)


async def settle(folder: Path) -> Settings:
    """Write config, policy and an empty database."""
    for name, text in (("config.toml", CONFIG), ("policy.toml", POLICY)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    (folder / "ws").mkdir()
    database = await Database.open(folder / "template.db")
    await database.close()
    return Settings(
        config=load_config(folder / "config.toml"),
        policy=Policy.load(folder / "policy.toml", workspace=folder / "ws", tools=TOOLS),
        routines={name: Routine.model_validate(body) for name, body in ROUTINES.items()},
        template=folder / "template.db",
    )


def scenario_in(folder: Path, settings: Settings, script: Script | Sequence[Turn]) -> CrashScenario:
    """Return a scenario with an empty journal in it."""
    folder.mkdir()
    scenario = CrashScenario(folder, script if isinstance(script, Script) else Script(script))
    shutil.copy(settings.template, scenario.file)
    return scenario


class Process:
    """What `app/wiring.py` builds for runs."""

    owner, boot, zone, skills = "test", SLOT, ZoneInfo("UTC"), SkillCatalog
    tracer = None
    outbox: Outbox

    def __init__(
        self,
        scenario: CrashScenario,
        settings: Settings,
        database: Any,
        *,
        slot: datetime = SLOT,
        seat: int = 0,
    ) -> None:
        self.alone = not database.shared
        self.scenario, self.config, self.policy, self.slot = (
            scenario,
            settings.config,
            settings.policy,
            slot,
        )
        self.routine = settings.routines[scenario.script.routine]
        self.clock, self.secrets, self.events = SystemClock(), Secrets(), EventBus()
        # whoever shares the journal is taken for dead as soon as it says nothing
        lease = LEASE if self.alone else timedelta(0)
        self.journal = Journal(database, clock=self.clock.now, lease=lease)
        self.memory = Memory(database, clock=self.clock.now)
        self.sandbox_detection = SimpleNamespace(sandbox=self._sandbox, current=None)
        self.people = People(scenario, self.do)
        names = VENDORS if scenario.script.spare else VENDORS[:1]
        self.providers = SimpleNamespace(
            chain=lambda routine: [Oracle(scenario, self.people, name) for name in names]
        )
        self.model_outages = SimpleNamespace(record_failure=lambda provider, reason: None)
        self.targets: Any = SimpleNamespace()
        self.settings = live.LiveSettings(
            live.Settings(
                config=self.config,
                zone=self.zone,
                policy=self.policy,
                targets=self.targets,
                providers=self.providers,
            )
        )
        self.budget_ledger = BudgetLedger(
            self.journal.spending, clock=self.clock, settings=self.settings
        )
        settings.seats[seat] = self
        self.registry = settings.tools_at(seat)
        self.outbox = Outbox(
            journal=self.journal, channel=lambda target: Channel(scenario, target), clock=self.clock
        )
        accepted_tools = AcceptedTools(self.journal, self.outbox, clock=self.clock.now)
        self.servers = Servers({}, self.registry, secrets={}, accepted_tools=accepted_tools)
        self.executor = LocalRunQueue(self._live, max_concurrent=4, clock=self.clock)
        self.approvals = Approvals(
            self.journal,
            CallDescriber(self.settings),
            RememberedCalls(scenario.folder / "approvals.toml"),
            queue=self.executor,
            clock=self.clock,
        )
        self.talk = Conversations(
            self.journal,
            self.memory,
            settings=self.settings,
            queue=self.executor,
            clock=self.clock,
            budget_ledger=self.budget_ledger,
            redact=self.secrets.redact,
        )

    @cached_property
    def run_contexts(self) -> RunContexts:
        services = RunServices(
            settings=self.settings,
            workspace=self.scenario.folder,
            owner=self.owner,
            start=self.boot,
            clock=self.clock,
            secrets=self.secrets,
            journal=self.journal,
            memory=self.memory,
            events=self.events,
            outbox=self.outbox,
            approvals=self.approvals,
            conversations=self.talk,
            registry=self.registry,
            mcp_servers=self.servers,
            load_skills=self.skills,
            budget_ledger=self.budget_ledger,
            model_outages=self.model_outages,
            sandbox_detection=self.sandbox_detection,
        )
        contexts = RunContexts(services)
        contexts.backoff = 0.0001
        return contexts

    @cached_property
    def delegation(self) -> SubagentRunner:
        return SubagentRunner(self.run_contexts, self.executor)

    async def _sandbox(self) -> Any:
        return SimpleNamespace(level="landlock")

    async def _live(self, run_id: str) -> Run | None:
        run = await supervise(run_id, self.run_contexts.take())
        if run is not None and run.status.has_ended:
            await self.talk.answer_late_messages(run)
        return run

    async def work(self) -> Run:
        """Do what a daemon does from its start on, until the run has ended and its report is where
        it should be.
        """
        await self.memory.open()
        await self.talk.load_messages()
        recovered_runs = [
            run for run in await self.journal.runs.recover(self.owner) if run.trigger != SUBAGENT
        ]
        run = await self.open_run()
        await self.people.ask_again()
        self.executor.hold_parked(
            run for run in await self.journal.runs.find_active() if run.status is Status.WAITING
        )
        await self.executor.submit_all(recovered_runs)
        if run.status is Status.QUEUED and run.id not in {run.id for run in recovered_runs}:
            await self.executor.submit(run)
        run = await self.until_ended(run)
        await self.outbox.flush()
        return run

    async def until_ended(self, run: Run) -> Run:
        """Answer what is asked until the run has ended."""
        journal = self.journal
        while not (run := await journal.runs.get(run.id)).status.has_ended:
            if task := self.executor.running.get(run.id):
                await asyncio.wait([task])
            elif run.status is Status.WAITING:
                for approval in await journal.approvals.find(run=run.id):
                    if approval.status == "pending":
                        # whoever is told that the disk is full asks again; somebody else may have
                        # answered already
                        with suppress(StoreFull, Refused):
                            await self._decide(approval.id)
            elif (
                self.alone
                and run.status is Status.RUNNING
                and (await journal.runs.get(run.id)).status is run.status
            ):
                raise AssertionError("a run that has not ended is lived by nobody")
            else:
                await asyncio.sleep(0.0005)
        return run

    async def _decide(self, question: str) -> None:
        if self.scenario.script.refuses:
            await self.approvals.reject(question, by="me")
        else:
            await self.approvals.approve(question, by="me")

    async def do(self, wish: str) -> None:
        """Do what a person wants of the run."""
        run = await self._there()
        if wish == "cancel":
            with suppress(Refused, NotFound):
                await self.journal.runs.request_cancel(run.id)
                self.executor.interrupt(run.id)
        else:
            await self.talk.tell(run, f"Be quick. ({wish})", event=wish)

    async def open_run(self) -> Run:
        """Return the run of the slot, which one of the processes has opened."""
        claim = Claim(
            routine="work",
            definition=self.routine.dump(),
            trigger="cron",
            slot=self.slot,
            goal=self.routine.run.prompt,
        )
        (run,) = await self.journal.slots.claim([claim])
        return run or await self._there()

    async def _there(self) -> Run:
        return next(run for run in await self.journal.runs.find("work") if run.slot == self.slot)
