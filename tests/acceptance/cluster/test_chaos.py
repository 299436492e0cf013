"""A cluster under kill -9, pauses, network cuts and crashes of its server: each slot has exactly
one run.

Real processes on a real PostgreSQL that keeps what it has promised: three daemons that fire the
same slots, three workers. The short way is part of the suite; `pytest -m soak` goes the long one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from daemon.store.rows import decode
from tests.acceptance.cluster.site import Process, Proxy, Site
from tests.fakes.vendor import VendorProcess
from tests.postgres import Server

SLOW = {"tool_calls": [{"name": "mark", "arguments": {"seconds": 0.5}}]}
LEASE = 3.0


@pytest.fixture(scope="module")
def server():
    server = Server(durable=True, tcp=True)
    yield server
    server.remove()


class Chaos:
    """A cluster, and what is done to it."""

    def __init__(self, site: Site, server: Server, database: str) -> None:
        self.site, self.server, self.database = site, server, database
        self.lot = random.Random(time.time_ns())
        self.deeds: Counter[str] = Counter()
        self.cut: dict[str, Proxy] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        self.daemons = [self.site.daemon(f"daemon-{number}") for number in range(3)]
        self.workers = []
        for number in range(3):
            proxy = await stack.enter_async_context(Proxy(self.server.port or 0))
            url = self.server.url(self.database, port=proxy.port)
            self.workers.append(self.site.worker(f"worker-{number}", url=url))
            self.cut[f"worker-{number}"] = proxy
        await asyncio.gather(*(process.start() for process in (*self.daemons, *self.workers)))

    async def kill(self, worker: Process) -> None:
        await worker.kill()
        await asyncio.sleep(self.lot.uniform(0, 1))
        await worker.start()

    async def sleep(self, worker: Process) -> None:
        await worker.pause()
        await asyncio.sleep(LEASE * 1.5)
        worker.go_on()

    async def cut_off(self, worker: Process) -> None:
        self.cut[worker.name].freeze()
        await asyncio.sleep(LEASE * 1.5)
        self.cut[worker.name].thaw()

    async def crash(self, _worker: Process) -> None:
        await asyncio.to_thread(self.server.crash)

    async def go_on(self, *, until: float) -> None:
        """Do one thing after the other to workers drawn by lot, each at least once."""
        acts = [self.kill, self.sleep, self.cut_off, self.crash]
        while time.monotonic() < until or len(self.deeds) < len(acts):
            act = acts[sum(self.deeds.values()) % len(acts)]
            await act(self.lot.choice(self.workers))
            self.deeds[act.__name__] += 1
            await asyncio.sleep(self.lot.uniform(0.2, 1.0))

    def rows(self, query: str) -> list[tuple]:
        return self.server.sql(query, self.database)

    async def wait_until_ended(self, runs: int) -> None:
        """Wait until so many runs have ended; fail where none has ended for two minutes, which are
        many on a machine with other work.
        """
        end_count, end = -1, 0.0
        while True:
            statuses = Counter(status for (status,) in self.rows("SELECT status FROM run"))
            under_way = sum(statuses[status] for status in ("queued", "running", "waiting"))
            if sum(statuses.values()) >= runs and not under_way:
                return
            if (new_count := sum(statuses.values()) - under_way) != end_count:
                end_count, end = new_count, time.monotonic() + 120
            if time.monotonic() > end:
                open_runs = self.rows(
                    "SELECT id, routine, status, owner FROM run WHERE ended IS NULL"
                )
                jobs = self.rows("SELECT id, status, args FROM procrastinate_jobs")
                raise AssertionError(
                    f"{statuses}, {dict(self.deeds)}, left {open_runs}, in the queue {jobs}"
                )
            await asyncio.sleep(0.3)


def check(chaos: Chaos, slots: int) -> dict[str, int]:
    """Check that each slot has exactly one run, that all have ended, and that nothing was done
    twice.
    """
    runs = chaos.rows("SELECT routine, slot, status, detail FROM run")
    assert len(runs) == slots
    assert len({(routine, slot) for routine, slot, _, _ in runs}) == slots, "a slot ran twice"
    assert chaos.rows("SELECT count(*) FROM slot WHERE run_id IS NOT NULL") == [(slots,)]
    assert {status for _, _, status, _ in runs} == {"succeeded"}, Counter(
        (row[2], row[3]) for row in runs
    )
    marks = chaos.site.marks()
    assert not [call for call, times in marks.items() if times > 1], "a side effect happened twice"
    results = [
        (run, call, decode(bytes(body)))
        for run, call, body in chaos.rows(
            "SELECT run_id, call_id, body FROM step WHERE kind = 'result'"
        )
    ]
    assert len(results) == slots
    unknown = [(run, call) for run, call, body in results if "outcome unknown" in body["text"]]
    successes = [(run, call) for run, call, body in results if body["ok"]]
    assert len(successes) + len(unknown) == slots
    assert all(call in marks for call in successes), "a side effect got lost"
    assert (
        chaos.rows("SELECT run_id, seq, count(*) FROM step GROUP BY 1, 2 HAVING count(*) > 1") == []
    )
    takeovers = sum(attempt - 1 for (attempt,) in chaos.rows("SELECT attempt FROM run"))
    return {"done": len(successes), "unknown": len(unknown), "takeovers": takeovers, **chaos.deeds}


async def slots_in_chaos(
    tmp_path, server: Server, *, lead: float, seconds: float, slots: int
) -> dict[str, int]:
    """Let three daemons fire so many slots within some seconds, while everything goes wrong.

    They are told of the slots `lead` seconds before: each reads the files, as people edit them,
    when it gets to it.
    """
    database = server.create()
    async with AsyncExitStack() as stack:
        vendor = stack.enter_context(
            VendorProcess([SLOW, "Done."], by="conversation", latency=0.05)
        )
        site = Site(tmp_path, server.url(database), vendor.url, lease=f"{LEASE:g}s")
        stack.push_async_callback(site.close)
        chaos = Chaos(site, server, database)
        await chaos.start(stack)
        begin = datetime.now(UTC) + timedelta(seconds=lead)
        for number in range(slots):
            at = begin + timedelta(seconds=seconds * number / slots)
            site.routine(f"work-{number:03}", f"[trigger]\nat = {at:%Y-%m-%dT%H:%M:%S}Z\n")
        await asyncio.sleep(max(0.0, (begin - datetime.now(UTC)).total_seconds()))
        await chaos.go_on(until=time.monotonic() + seconds)
        await chaos.wait_until_ended(slots)
        counts = check(chaos, slots)
        await site.close()
    server.drop(database)
    return counts


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_each_slot_of_a_cluster_has_one_run_despite_kills_pauses_and_crashes(
    tmp_path, server, capsys
):
    counts = await slots_in_chaos(tmp_path, server, lead=15, seconds=40, slots=100)
    assert all(counts.get(act) for act in ("kill", "sleep", "cut_off", "crash")), counts
    with capsys.disabled():
        print(f"\n{counts}")
