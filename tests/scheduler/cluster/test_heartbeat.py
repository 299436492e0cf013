"""The heartbeat of a process that shares the database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from daemon.models import Json
from daemon.scheduler.cluster.heartbeat import Heartbeat
from daemon.store.workers import LeaseRenewal, Worker

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class Host:
    """An application whose leader has one task, which ends when it is let to."""

    def __init__(self) -> None:
        self.started_count = self.ended_count = 0
        self.may_end = asyncio.Event()

    def capabilities(self) -> Json:
        return {}

    def leader_tasks(self) -> Sequence[tuple[str, Coroutine[Any, Any, None]]]:
        return [("outbox", self._send())]

    def handle_moved_waits(self) -> None: ...

    async def _send(self) -> None:
        self.started_count += 1
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.ended_count += 1


class Workers:
    """The list of workers in a database that makes this process the leader."""

    async def renew_leases(self, *_: Any, **__: Any) -> LeaseRenewal:
        return LeaseRenewal(lost_runs=(), cancelled_runs=(), freed_runs=(), is_leader=True)


def heartbeat_of(host: Host) -> Heartbeat:
    lease = timedelta(seconds=60)
    return Heartbeat(
        SimpleNamespace(workers=Workers(), runs=SimpleNamespace(lease=lease)),  # type: ignore[arg-type]
        SimpleNamespace(capacity=1, running={}),  # type: ignore[arg-type]
        Worker(id="w", kind="daemon", host="h", pid=1, version="1", started=NOW, seen=NOW),
        host,
        executes_runs=True,
        may_lead=True,
        repair=lambda *_: None,
    )


async def pass_loop(times: int = 20) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_leader_that_gave_up_leads_again_only_when_its_tasks_have_ended() -> None:
    host = Host()
    heartbeat = heartbeat_of(host)
    await heartbeat._beat()
    await pass_loop()
    heartbeat._give_up()
    assert not heartbeat.is_leader
    next_beat = asyncio.create_task(heartbeat._beat())
    await pass_loop()
    counts_before_the_end = (host.started_count, host.ended_count)
    host.may_end.set()
    await next_beat
    assert counts_before_the_end == (1, 0)
    await pass_loop()
    assert (host.started_count, host.ended_count) == (2, 1)
    assert heartbeat.is_leader
    await heartbeat._stop_leading()
    assert host.ended_count == 2
