"""A run context without an application: what the run contexts of these tests share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from daemon.models import Run
from daemon.runs.context import RunContext


class BareRunContext:
    """A run context without an application: it counts who is woken, and pings nobody."""

    full_disk_retry = 0.001
    announce_end = RunContext.announce_end
    announce_wait = RunContext.announce_wait
    asks_for_items = RunContext.asks_for_items
    cancel_subagents = RunContext.cancel_subagents
    judges_denials = RunContext.judges_denials
    ping_started = RunContext.ping_started
    runs = RunContext.runs

    def __init__(self) -> None:
        self.wakeups = 0
        self.approvals: Any = SimpleNamespace(wake=self.wake)
        self.pings: set[Any] = set()

    @property
    def services(self) -> Any:
        return SimpleNamespace(outbox=SimpleNamespace(wake=self.wake), approvals=self.approvals)

    @property
    def settings(self) -> Any:
        return SimpleNamespace(targets=SimpleNamespace(ping_started=self.ping))

    def wake(self) -> None:
        self.wakeups += 1

    async def ping(self, target: str, run: Run) -> None:
        """Take the ping that a run starts."""

    async def sandbox_level(self) -> str:
        return "landlock"
