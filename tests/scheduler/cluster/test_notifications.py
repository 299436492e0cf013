"""What a process of a cluster does once another one has notified it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.agent.conversations.conversations import Inbox
from daemon.models import Run
from daemon.runs.events import EventBus
from daemon.scheduler.cluster.cluster import Cluster
from daemon.scheduler.cluster.run_queue import ClusterRunQueue
from daemon.store.journal import RunMessage
from daemon.testing import FakeClock


class Runs:
    """The runs of a journal, each with a message."""

    async def find_messages(self, run: str) -> list[RunMessage]:
        return [RunMessage(id=1, run=run, text="Hurry.", event="e")]


async def execute_nothing(_run_id: str) -> Run | None:
    return None


async def last_for_ever() -> Run | None:
    await asyncio.Event().wait()
    return None


async def test_a_sub_agent_is_told_and_cancelled_as_soon_as_another_process_asks_for_it() -> None:
    clock, inbox = FakeClock(), Inbox()
    queue = ClusterRunQueue(execute_nothing, max_concurrent=1, clock=clock)
    services: Any = SimpleNamespace(
        database=None,
        journal=SimpleNamespace(runs=Runs()),
        events=EventBus(),
        queue=queue,
        budget_ledger=None,
        conversations=SimpleNamespace(inbox=inbox),
        owner="here:1",
        start=clock.now(),
    )
    host: Any = SimpleNamespace()
    cluster = Cluster(
        services, host, "postgresql://", kind="daemon", executes_runs=True, may_lead=True
    )
    task = asyncio.create_task(last_for_ever())
    queue.add_subagent("sub-agent", task)
    cluster._handle_notification({"run": "sub-agent", "told": 1})
    await asyncio.gather(*cluster._check_tasks.values())
    assert [message.text for message in inbox.take("sub-agent")] == ["Hurry."]
    cluster._handle_notification({"run": "sub-agent", "status": "running", "cancel": 1})
    with pytest.raises(asyncio.CancelledError):
        await task
