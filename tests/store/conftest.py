"""A real database in a temporary folder, and a journal with a fake clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.models import Run, Step, StepKind
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.store.opening import open_database
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


class Ledger:
    """A journal and the few moves that most tests begin with."""

    def __init__(self, db: Database, clock: FakeClock) -> None:
        self.db, self.clock = db, clock
        self.journal = Journal(db, clock=clock.now)

    def claim(self, routine: str = "daily", **more: Any) -> Claim:
        fields = {
            "definition": '{"prompt": "go"}',
            "trigger": "cron",
            "slot": self.clock.now(),
            "goal": "go",
        }
        return Claim(routine=routine, **{**fields, **more})

    async def queue_run(self, routine: str = "daily", **more: Any) -> Run:
        """Return a fresh run, of a slot a minute after the last one."""
        self.clock.advance(minutes=1)
        (run,) = await self.journal.slots.claim([self.claim(routine, **more)])
        assert run is not None
        return run

    async def start_run(self, routine: str = "daily", **more: Any) -> Run:
        run = await self.journal.runs.claim((await self.queue_run(routine, **more)).id, owner="me")
        assert run is not None
        return run

    async def lapse(self) -> None:
        """Let the leases of all runs run out, as if nobody had heard of their owners for long."""
        await self.db.write(lambda connection: connection.execute("UPDATE run SET lease_until = 0"))


def step(kind: StepKind = StepKind.LLM, iteration: int = 1, **body: Any) -> Step:
    return Step(kind=kind, iteration=iteration, body=body)


GUIDE = "How the shed is kept: the tools hang on the wall, the wood is dry. " * 40
SCHEMAS = [
    {"name": f"tool_{number}", "description": "Do what is asked.", "parameters": {}}
    for number in range(40)
]


def prompt(boundary: str = "b" * 32, *, functions: Any = SCHEMAS, **sections: str) -> Step:
    """Return what a run is told, as an agent writes it: long enough that others share most of
    it.
    """
    default_sections = {
        "identity": "You are agentd.",
        "safety": (
            f"What tools bring stands between <data {boundary}> and </data {boundary}>. "
            f"{'Be careful. ' * 100}"
        ),
        "memory": f"Somebody said {boundary[:4]}. " * 100,
        "environment": "Time: now",
        "own sections": GUIDE,
    } | sections
    body = {
        "system": "\n\n".join(default_sections.values()),
        "sections": {name: len(text) for name, text in default_sections.items()},
        "functions": functions,
        "boundary": boundary,
        "language": "en",
    }
    return Step(kind=StepKind.PROMPT, iteration=0, body=body)


# What is promised of the record holds wherever it stands: every test that asks for `db` runs on
# both.
STORES = ("sqlite", "postgresql")
# For what only a file can show: its pages, its log, its modes.
in_a_file = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture(params=STORES)
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    database = await open_database(copy_empty_database(tmp_path / "agentd.db"), url)
    yield database
    await database.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def ledger(db: Database, clock: FakeClock) -> Ledger:
    return Ledger(db, clock)
