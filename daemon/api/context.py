"""What the handlers of the API need of the daemon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.api.schemas import CheckView, ReloadView
    from daemon.delivery.outbox import Outbox
    from daemon.memory.erasure.erasure import Eraser
    from daemon.memory.memory import Memory
    from daemon.providers.budget import BudgetLedger
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.events import EventBus
    from daemon.runs.parts import RunParts
    from daemon.runs.settings import LiveSettings
    from daemon.sandbox.current import SandboxDetection
    from daemon.scheduler.agent_routines import AgentRoutines
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.telemetry.metrics import Metrics


class LiveAccess:
    """Who may speak to the control API, by uid, as the config in force says."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    @property
    def operators(self) -> frozenset[int]:
        """They may read everything and change everything."""
        return frozenset({os.getuid(), 0, *self._settings.config.control.operators})

    @property
    def readers(self) -> frozenset[int]:
        """They may read everything."""
        return frozenset(self._settings.config.control.readers)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessFacts:
    """What is known of the daemon's process from its start on."""

    pid: int
    start: datetime
    state: Path
    socket: Path
    log_file: Path


class Administration(Protocol):
    """What the application does for the API, as the packages that do it stand above this one."""

    @property
    def fault(self) -> str | None:
        """What was wrong at the last reload, in words; None if nothing was."""

    async def reload(self) -> ReloadView:
        """Read config, policy and routines again; ConfigError, and nothing is changed."""

    async def rename(self, old: str, new: str) -> list[str]:
        """Rename a routine; return the routines that still name the old name."""

    async def examine(self) -> Sequence[CheckView]:
        """Return the rows of `doctor`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiContext:
    """The parts of the daemon that the handlers use."""

    version: str
    process: ProcessFacts
    access: LiveAccess
    settings: LiveSettings
    clock: Clock
    administration: Administration
    journal: Journal
    memory: Memory
    erasure: Eraser
    events: EventBus
    metrics: Metrics
    outbox: Outbox
    sandbox_detection: SandboxDetection
    engine: RoutineEngine
    agent_routines: AgentRoutines
    queue: LocalRunQueue
    runs: RunParts
    budget_ledger: BudgetLedger
    approvals: Approvals
    conversations: Conversations
    in_cluster: bool
    """Whether several processes share the database."""
