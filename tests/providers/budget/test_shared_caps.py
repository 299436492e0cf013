"""Processes that share a database spend from the same caps, and no two of them the same money."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.routines.routine import Budget
from daemon.errors import OverBudget
from daemon.models import LLMMessage, LLMResponse, Run, Usage
from daemon.providers.budget import BudgetLedger, RunBudget
from daemon.providers.metered import MeteredProvider
from daemon.providers.scripted import ScriptedProvider
from daemon.scheduler.cluster.listener import NotificationListener
from daemon.scheduler.cluster.queue import prepare_database
from daemon.store.database import Database
from daemon.store.opening import open_database
from daemon.store.spending import SpendingRepository
from daemon.testing import FakeClock
from tests.postgres import Server
from tests.store.conftest import Ledger

# $10 for a million tokens of an answer of at most 10,000: a call may come to a little more than ten
# cents
CONFIG = """
provider = "script"
[providers.script]
kind = "scripted"
price = { input = 1.0, output = 10.0 }
replies = ["-"]
[budget]
"""
WANTED = 10_000


class Slow(ScriptedProvider):
    """A model that answers when it is let to."""

    def __init__(self, go: asyncio.Event) -> None:
        super().__init__(name="script")
        self.go, self.begun_count = go, 0

    async def chat(self, *_: Any, **__: Any) -> LLMResponse:
        self.begun_count += 1
        await self.go.wait()
        return LLMResponse(content="Well.", usage=Usage(input=1_000, output=100))


class Watched(SpendingRepository):
    """A repository that counts how often the totals were read."""

    looks = 0

    async def get_totals(self, since: datetime, routine: str = "") -> tuple[int, int, int, int]:
        self.looks += 1
        return await super().get_totals(since, routine)


class Process:
    """A process with a connection of its own."""

    def __init__(
        self,
        db: Database,
        config: Config,
        clock: FakeClock,
        go: asyncio.Event,
        poll_interval: float,
    ) -> None:
        self.ledger = Ledger(db, clock)
        self.spending = Watched(db, clock=clock.now)
        self.budget_ledger = BudgetLedger(
            self.spending,
            clock=clock,
            settings=SimpleNamespace(config=config, zone=UTC),
            is_shared=True,
            poll_interval=poll_interval,
        )  # type: ignore[arg-type, return-value]
        self.model = Slow(go)
        self.listens = asyncio.Event()

    async def run(self, name: str) -> Run:
        return await self.ledger.start_run(name)

    async def listen(self, url: str) -> None:
        """Hear of the ends of calls, as a daemon of a cluster does, until cancelled."""
        await NotificationListener(
            url,
            lambda topic: self.budget_ledger.notify_waiters() if "paid" in topic else None,
            self.listens.set,
        ).run()

    async def ask(self, run: Run) -> LLMResponse:
        run_budget = RunBudget(run=run.id, routine=run.routine, budget=Budget())
        meter = MeteredProvider(self.model, budget_ledger=self.budget_ledger, run_budget=run_budget)
        return await meter.chat([LLMMessage(role="user", content="Say.")], max_tokens=WANTED)


class Cluster:
    def __init__(self, stack: AsyncExitStack, folder: Path, url: str) -> None:
        self.stack, self.folder, self.url = stack, folder, url
        self.clock, self.go = FakeClock(), asyncio.Event()

    async def processes(
        self, number: int, budget: str, *, deaf: bool = False, poll_interval: float = 3600
    ) -> list[Process]:
        path = self.folder / "config.toml"
        path.write_text(CONFIG + budget)
        path.chmod(0o600)
        pids = []
        for index in range(number):
            db = await open_database(self.folder / f"{index}.db", self.url)
            self.stack.push_async_callback(db.close)
            process = Process(
                db,
                load_config(path),
                self.clock,
                self.go,
                poll_interval,
            )
            pids.append(process)
            if not deaf:
                await prepare_database(db)
                listen_task = asyncio.create_task(process.listen(self.url))
                self.stack.push_async_callback(asyncio.wait, [listen_task])
                self.stack.callback(listen_task.cancel)
        async with asyncio.timeout(60):
            for process in pids:
                if not deaf:
                    await process.listens.wait()
        return pids

    async def wait_for_calls(self, processes: list[Process], calls: int) -> None:
        async with asyncio.timeout(60):
            while sum(process.model.begun_count for process in processes) < calls:
                await asyncio.sleep(0.01)


@pytest.fixture
async def cluster(tmp_path: Path, postgres: Server) -> AsyncIterator[Cluster]:
    # not one that others get afterwards: it has triggers that tell
    name = postgres.create(postgres.template)
    async with AsyncExitStack() as stack:
        yield Cluster(stack, tmp_path, postgres.url(name))
    postgres.drop(name)


@pytest.mark.parametrize("budget", ["day = 0.35", "month = 0.35", "day_tokens = 32000"])
async def test_reservations_of_all_processes_stay_below_a_cap(
    cluster: Cluster, budget: str
) -> None:
    processes = await cluster.processes(3, budget)
    runs = [(process, await process.run(f"r{n}")) for n, process in enumerate(processes * 3)]
    asking = [asyncio.create_task(process.ask(run)) for process, run in runs]
    await cluster.wait_for_calls(processes, 3)
    (row,) = await processes[0].ledger.db.read(
        lambda connection: connection.execute(
            "SELECT count(*), sum(cost), sum(input + output) FROM spending"
        ).fetchall()
    )
    # three in full, and a shorter answer of the rest
    assert row[0] in (3, 4)
    if "tokens" in budget:
        assert row[2] <= 32_000
    else:
        assert row[1] <= 350_000_000
    assert not any(task.done() for task in asking), (
        "what only calls under way stand in the way of waits"
    )
    cluster.go.set()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*asking)
    assert len(answers) == 9
    assert sum(process.model.begun_count for process in processes) == 9


async def test_spending_of_one_process_counts_in_another(cluster: Cluster) -> None:
    first, second = await cluster.processes(2, "day = 0.02")
    cluster.go.set()
    run = await first.run("work")
    for _ in range(5):  # $0.002 each
        await first.ask(run)
    await first.ledger.db.write(lambda connection: None)
    other_run = await second.run("other")
    with pytest.raises(OverBudget, match=r"\[budget\] day = 0.02, \$0.0100 left"):
        await second.ask(other_run)


async def test_reservations_of_a_dead_process_count_as_spent(
    cluster: Cluster,
) -> None:
    first, second = await cluster.processes(2, "day = 0.15")
    lost_call = asyncio.create_task(first.ask(await first.run("work")))
    await cluster.wait_for_calls([first], 1)
    ((_, cap),) = await second.budget_ledger.list_caps(())
    assert (cap.remaining, cap.reserved > 100_000_000) == (150_000_000, True)
    await second.ledger.db.write(
        lambda connection: connection.execute("UPDATE run SET status = 'interrupted'")
    )
    ((_, cap),) = await second.budget_ledger.list_caps(())
    assert (cap.remaining < 50_000_000, cap.reserved) == (True, 0)
    second.model.go = asyncio.Event()
    second.model.go.set()
    await second.ask(await second.run("other"))  # a shorter answer is within what is left
    cluster.go.set()
    await lost_call


async def test_a_released_reservation_is_noticed_by_polling(cluster: Cluster) -> None:
    first, second = await cluster.processes(2, "day = 0.105", deaf=True, poll_interval=0.05)
    under_way = asyncio.create_task(first.ask(await first.run("work")))
    await cluster.wait_for_calls([first], 1)
    waiting_call = asyncio.create_task(second.ask(await second.run("other")))
    async with asyncio.timeout(60):
        while second.spending.looks < 3:
            await asyncio.sleep(0.01)
        assert second.model.begun_count == 0
        cluster.go.set()
        await asyncio.gather(under_way, waiting_call)
