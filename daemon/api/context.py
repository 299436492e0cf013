"""What the routes need of the daemon, handed in by main."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.api.schemas import CheckView, ProcessView, ReloadView
    from daemon.definitions.routines.routine import Routine
    from daemon.memory.erasure.erasure import Eraser
    from daemon.memory.memory import Memory
    from daemon.models import Run
    from daemon.providers.budget import BudgetLedger
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.context import Preview
    from daemon.runs.events import Events
    from daemon.runs.rehearsal.rehearsals import Rehearsals
    from daemon.runs.replay.replays import Replays
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.journal import Journal


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Who may speak, by uid."""

    operators: frozenset[int]
    """They may ask for everything, and have it done."""
    readers: frozenset[int] = frozenset()
    """They may look."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiContext:
    """Everything the control API touches."""

    version: str
    journal: Journal
    engine: RoutineEngine
    executor: LocalRunQueue
    events: Events
    clock: Callable[[], datetime]
    process: Callable[[], ProcessView]
    """What only the process itself knows: pid, paths, the last fault of a reload."""
    reload: Callable[[], Awaitable[ReloadView]]
    """Read config, policy and routines again; ConfigError: nothing was changed."""
    rename: Callable[[str, str], Awaitable[list[str]]]
    """Give a routine another name; return those that name the old one."""
    adopt: Callable[[str], Awaitable[Path]]
    """Make a routine that an agent made a person's; return its file."""
    remove: Callable[[str], Awaitable[None]]
    """Remove a routine that an agent made."""
    check: Callable[[], Awaitable[Sequence[CheckView]]]
    """The rows of `doctor`."""
    words: Callable[[Routine], str]
    """When a routine runs, in words."""
    access: Callable[[], Access]
    """Whose requests are answered."""
    metrics: Metrics = field(default_factory=Metrics)
    """What has happened since the process began."""
    targets: Callable[[], Collection[str]] = tuple
    providers: Callable[[], Collection[str]] = tuple
    """The names that reports may be sent to."""
    caps: Callable[[], tuple[float | None, float | None]] = lambda: (None, None)
    """Dollars that may be spent in a day and in a month."""
    preview: Callable[[Routine], Awaitable[Preview]] | None = None
    """What a run of a routine would be told now."""
    replays: Callable[[], Replays] | None = None
    """Who plays runs again."""
    rehearsals: Callable[[], Rehearsals] | None = None
    """Who tries routines."""
    wake_outbox: Callable[[], None] = lambda: None
    """Tell the outbox that there is something to send."""
    elsewhere: Callable[[Routine], str] = lambda routine: ""
    """Why a routine does not start on this machine; empty if it does."""
    waits_for: Callable[[Sequence[Run]], Awaitable[Mapping[str, str]]] | None = None
    """What queued runs wait for that no machine has, by their ids; None where there is one machine.
    """
    log_file: Path | None = None
    approvals: Approvals | None = None
    talk: Conversations | None = None
    memory: Memory | None = None
    budget_ledger: BudgetLedger | None = None
    eraser: Eraser | None = None
