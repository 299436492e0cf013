"""What several workers on one PostgreSQL get done, and how soon the runs of a dead one go on."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.acceptance.cluster.site import WORK, Site
from tests.bench.measure import Bench, Effort, Row, median
from tests.fakes.vendor import VendorProcess
from tests.postgres import NEEDED, Server, programs

_LEASE = 3.0


@asynccontextmanager
async def _site(seconds: float) -> AsyncIterator[tuple[Site, Server, str]]:
    """Yield a cluster whose runs ask a model twice and call a tool that takes `seconds`."""
    if programs() is None:
        raise RuntimeError(NEEDED)
    server = Server(durable=True)
    name = server.create()
    call = {"tool_calls": [{"name": "mark", "arguments": {"seconds": seconds}}]}
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            VendorProcess([call, "Done."], by="conversation") as vendor,
        ):
            site = Site(Path(folder), server.url(name), vendor.url, lease=f"{_LEASE:g}s")
            try:
                yield site, server, name
            finally:
                await site.close()
    finally:
        server.remove()


async def _open(site: Site, count: int) -> None:
    """Open slots of as many routines, as a daemon does."""
    from daemon.definitions.routines.routine import Routine
    from daemon.models import new_id
    from daemon.store.journal import Claim, Journal
    from daemon.store.opening import open_database

    database = await open_database(site.folder / "bench.db", site.url)
    journal, now = Journal(database, clock=lambda: datetime.now(UTC)), datetime.now(UTC)
    fields = {"mode": "agent", "prompt": "Mark it.", "tools": ["mark"], "retry": {"attempts": 9}}
    claims = [
        Claim(
            routine=f"work-{number}",
            definition=Routine.model_validate({"name": f"work-{number}", "run": fields}).dump(),
            trigger="manual",
            slot=now,
            goal="Mark it.",
            event=new_id(),
        )
        for number in range(count)
    ]
    await journal.slots.claim(claims)
    await database.close()


async def _wait_for_end(server: Server, name: str) -> None:
    while await asyncio.to_thread(
        server.sql, "SELECT 1 FROM run WHERE ended IS NULL LIMIT 1", name
    ):
        await asyncio.sleep(0.02)


async def _rate(workers: int, slots: int) -> float:
    """Return how many slots per second so many workers complete."""
    async with _site(0.1) as (site, server, name):
        site.routine("work", "", WORK)
        await asyncio.gather(
            *(site.worker(f"worker-{number}").start() for number in range(workers))
        )
        begin = time.perf_counter()
        await _open(site, slots)
        await _wait_for_end(server, name)
        return slots / (time.perf_counter() - begin)


def slots(effort: Effort) -> Iterable[Row]:
    """Let one worker and three complete slots whose tool takes 0.1 s, four at a time each."""
    count, rounds = max(4, effort.scaled(120)), max(1, effort.rounds // 3)
    single = [asyncio.run(_rate(1, count)) for _ in range(rounds)]
    three = [asyncio.run(_rate(3, count)) for _ in range(rounds)]
    yield Row(
        name="cluster, 3 workers / 1",
        floor=f"{median(single):,.1f} slots/s",
        ours=f"{median(three):,.1f} slots/s",
        ratio=median(three) / median(single),
        note="2 model calls and a tool of 0.1 s each",
    )


async def _takeover() -> float:
    """Return the seconds from the kill of a worker in the middle of a tool to the start of its run
    elsewhere.
    """
    async with _site(30.0) as (site, server, name):
        first, second = site.worker("first"), site.worker("second")
        await first.start()
        await _open(site, 1)
        while not site.marks():
            await asyncio.sleep(0.02)
        await second.start()
        begin = time.perf_counter()
        await first.kill()
        while server.sql("SELECT 1 FROM run WHERE attempt < 2", name):
            await asyncio.sleep(0.02)
        return time.perf_counter() - begin


def takeover(effort: Effort) -> Iterable[Row]:
    """Kill a worker, and wait until another one lives its run."""
    takeovers = [asyncio.run(_takeover()) for _ in range(max(1, effort.rounds // 3))]
    yield Row(
        name="cluster, kill -9 to takeover / lease",
        floor=f"{_LEASE:g} s",
        ours=f"{median(takeovers):.1f} s",
        ratio=median(takeovers) / _LEASE,
    )


ROWS: dict[str, Bench] = {"cluster-slots": slots, "cluster-takeover": takeover}
