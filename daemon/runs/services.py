"""The parts of the daemon that runs use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from daemon.agent.conversations.conversations import Conversations
    from daemon.definitions.skills import SkillCatalog
    from daemon.delivery.incidents.model_outages import ModelOutages
    from daemon.delivery.outbox import Outbox
    from daemon.memory.memory import Memory
    from daemon.providers.budget import BudgetLedger
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.events import EventBus
    from daemon.runs.settings import LiveSettings
    from daemon.sandbox.current import SandboxDetection
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.telemetry.redaction import Secrets
    from daemon.tools.mcp.servers import Servers
    from daemon.tools.registry import FunctionRegistry


@dataclass(frozen=True, kw_only=True, slots=True)
class RunServices:
    """The parts of the daemon that its runs use."""

    settings: LiveSettings
    workspace: Path
    owner: str
    """Who holds the leases of this process."""
    start: datetime
    """When this process started."""
    clock: Clock
    secrets: Secrets
    journal: Journal
    memory: Memory
    events: EventBus
    outbox: Outbox
    approvals: Approvals
    conversations: Conversations
    registry: FunctionRegistry
    mcp_servers: Servers
    load_skills: Callable[[], SkillCatalog]
    """Return the skills as they are on disk now. Blocks."""
    budget_ledger: BudgetLedger
    model_outages: ModelOutages
    sandbox_detection: SandboxDetection
