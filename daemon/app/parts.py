"""The parts of the daemon, in groups; wiring.py builds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.app.installation import Installation
    from daemon.app.reload import Reloader
    from daemon.app.skills import SkillFolder
    from daemon.app.webhooks import Webhooks
    from daemon.chat.chats import Chats
    from daemon.chat.inbound import ChatInbound
    from daemon.delivery.incidents.full_disk import FullDiskIncident
    from daemon.delivery.incidents.model_outages import ModelOutages
    from daemon.delivery.outbox import Outbox
    from daemon.memory.memory import Memory
    from daemon.providers.budget import BudgetLedger
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.events import EventBus
    from daemon.runs.parts import RunParts
    from daemon.runs.settings import LiveSettings
    from daemon.sandbox.current import SandboxDetection
    from daemon.scheduler.agent_routines import AgentRoutines
    from daemon.scheduler.cluster.cluster import Cluster
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.run_queue import LocalRunQueue, RunSupervisor
    from daemon.store.database import Database
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.system.watch import DirectoryWatcher
    from daemon.telemetry.metrics import Metrics
    from daemon.tools.mcp.servers import Servers
    from daemon.tools.registry import FunctionRegistry

Role = Literal["daemon", "worker", "once"]
"""What a process is for; `once` runs one routine, and neither queues runs for others nor takes
theirs.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """The database, and what is read and written through it."""

    database: Database
    journal: Journal
    memory: Memory
    owner: str
    """Who holds the leases of this process."""
    shared: bool
    """Whether runs are handed to whichever process on the database is free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryServices:
    """What people are told: reports, and incidents."""

    outbox: Outbox
    model_outages: ModelOutages
    full_disk: FullDiskIncident


@dataclass(frozen=True, kw_only=True, slots=True)
class Tools:
    """What models may call."""

    registry: FunctionRegistry
    """All tools; it is filled once the parts that tools use are there."""
    own: FunctionRegistry
    """The tools of the user's own."""
    sources: dict[str, str]
    """The file or package of each tool of the user's own, by tool."""
    mcp_servers: Servers
    sandbox_detection: SandboxDetection
    skills: SkillFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class RunExecution:
    """Runs, and those who take part in them."""

    queue: LocalRunQueue
    events: EventBus
    budget_ledger: BudgetLedger
    approvals: Approvals
    conversations: Conversations
    parts: RunParts
    supervisor: RunSupervisor


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduling:
    """What starts runs."""

    engine: RoutineEngine
    agent_routines: AgentRoutines
    webhooks: Webhooks
    directory_watcher: DirectoryWatcher


@dataclass(frozen=True, kw_only=True, slots=True)
class App:
    """The parts of a daemon; lifecycle.py starts and stops them."""

    installation: Installation
    clock: Clock
    start: datetime
    """When this process started."""
    settings: LiveSettings
    metrics: Metrics
    store: Store
    delivery: DeliveryServices
    tools: Tools
    runs: RunExecution
    scheduling: Scheduling
    role: Role
    cluster: Cluster | None
    """What this process is to others, where several share the database."""
    reloader: Reloader
    chats: Chats | None
    """The chats of the config; None where it has none."""
    chat_inbound: Sequence[ChatInbound]
    """What reads these chats; in a cluster only the leader runs it."""
    tasks: asyncio.TaskGroup
    """The background tasks and those of the servers; `serve` and `work` open the group."""
