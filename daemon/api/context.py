"""The parts of the daemon that the handlers of the API use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from daemon.runs.approvals.own_calls import OwnCallNotes

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.api.schemas import CheckView, ReloadView
    from daemon.definitions.reading import CrossFieldCheck
    from daemon.definitions.routines.routine import RoutineDefinition
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
    from daemon.tools.mcp.servers import Servers


class LiveAccess:
    """The uids that may use the control API, by the config in force."""

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
    """What does not change while the daemon's process runs."""

    pid: int
    start: datetime
    state: Path
    socket: Path
    log_file: Path


class Administration(Protocol):
    """Acts for which the API needs the application, which stands on a higher layer."""

    @property
    def fault(self) -> str | None:
        """Why the last reload failed, in words; None if it succeeded."""

    async def reload(self) -> None:
        """Read config, policy and routines again. Raises ConfigError, and then changes nothing."""

    async def take_up_changes(self) -> None:
        """Read what has changed of config, policy and routines now, if anything has. With a fault
        in it, what is in force stays.
        """

    async def reload_by_request(self) -> ReloadView:
        """Reload, and return what changed, also what the daemon has just taken up by itself."""

    async def reload_if_valid(self) -> None:
        """Reload where a daemon serves; what is wrong with a definition is logged."""

    def routine_checks(self) -> Sequence[CrossFieldCheck[RoutineDefinition]]:
        """Return what a routine has to fit besides itself: the config and the tools in force."""

    def recipe_files(self) -> Mapping[str, Path]:
        """Return the files of the shipped recipes by name."""

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
    mcp_servers: Servers
    engine: RoutineEngine
    agent_routines: AgentRoutines
    queue: LocalRunQueue
    runs: RunParts
    budget_ledger: BudgetLedger
    approvals: Approvals
    conversations: Conversations
    in_cluster: bool
    """Whether several processes share the database."""
    own_call_notes: OwnCallNotes = field(default_factory=OwnCallNotes)
    source_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the file of a routine is compared and replaced."""
