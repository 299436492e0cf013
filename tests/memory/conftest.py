"""A memory in a real database, with a clock that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.memory import fulltext
from daemon.memory.memory import Memory
from daemon.memory.segments import Segment
from daemon.models import SegmentType
from daemon.store.database import Database
from daemon.store.opening import open_database
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database
from tests.postgres import Server, make_template

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)  # a Monday


def make_segments(
    *texts: str | tuple[str, str], at: datetime = START, **more: Any
) -> list[Segment]:
    """Return one segment per text, or per (who, text), a minute apart."""
    segments = []
    for index, entry in enumerate(texts):
        speaker, text = entry if isinstance(entry, tuple) else ("", entry)
        fields = {
            "type": SegmentType.RESPONSE,
            "timestamp": at + timedelta(minutes=index),
            "speaker": speaker,
            **more,
        }
        segments.append(Segment(iteration=index, segment=0, text=text, **fields))
    return segments


class Library:
    """A memory and the few moves that most tests begin with."""

    def __init__(self, db: Database, clock: FakeClock) -> None:
        self.db, self.clock = db, clock
        self.memory = Memory(db, clock=clock.now)

    async def run(
        self, run: str, *texts: str | tuple[str, str], routine: str = "daily", **more: Any
    ) -> None:
        """Archive a run of these texts."""
        await self.archive(run, make_segments(*texts, at=self.clock.now(), **more), routine=routine)

    async def archive(
        self,
        run: str,
        segments: Sequence[Segment],
        *,
        routine: str = "daily",
        line: str | None = None,
    ) -> None:
        at, about = self.clock.now(), {"routine": routine, "goal": "go", "status": "succeeded"}
        archival = asyncio.ensure_future(
            self.memory.archive(
                run=run, **about, segments=segments, started=at, ended=at, run_line=line
            )
        )
        # it has begun; what nobody waits for rides with the next write, and here is one
        await asyncio.sleep(0)
        await self.db.write(lambda connection: None)
        await archival

    async def find_texts(self, query: str, limit: int = 10, **more: Any) -> list[str]:
        return [chunk.content for chunk in await self.memory.retrieve(query, limit, **more)]

    async def count_index_rows(self) -> int:
        """Return how many rows the index holds, after its own check of itself."""

        return await self.db.write(
            lambda connection: fulltext.index_of(connection).check(connection)
        )

    async def vocabulary(self) -> set[str]:
        """Return every word that the index holds."""

        def work(connection: Any) -> set[str]:
            if self.db.shared:
                return {
                    word
                    for (word,) in connection.execute(
                        "SELECT word FROM ts_stat('SELECT document FROM memory_fts')"
                    )
                }
            connection.execute(
                "CREATE VIRTUAL TABLE temp.v USING fts5vocab('main', 'memory_fts', 'row')"
            )
            words = {word for (word,) in connection.execute("SELECT term FROM temp.v")}
            connection.execute("DROP TABLE temp.v")
            return words

        return await self.db.write(work)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture(scope="session")
def vectors_server() -> Iterator[Server]:
    """A PostgreSQL server that has pgvector, with a database of our tables to be copied."""
    server = Server(vectors=True)
    try:
        server.template = make_template(server, vectors=True)
        yield server
    finally:
        server.remove()


@pytest.fixture
def vectors_url(vectors_server: Server) -> Iterator[str]:
    """The URL of a database on it, with our tables and nothing in them."""
    name = vectors_server.lend()
    yield vectors_server.url(name)
    vectors_server.take_back(name)


PLACES = {"postgresql": "postgres_url", "pgvector": "vectors_url"}
# What is remembered is found wherever it is kept: every test that asks for a library or a memory
# runs on both.
in_a_file = pytest.mark.parametrize("library", ["sqlite"], indirect=True)
# Vectors are compared in three ways: in this process, in this process for what others have written
# too, by the server.
by_meaning = pytest.mark.parametrize("library", ["sqlite", *PLACES], indirect=True)


@pytest.fixture(params=["sqlite", "postgresql"])
async def library(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Library]:
    url = request.getfixturevalue(PLACES[request.param]) if request.param in PLACES else ""
    database = await open_database(copy_empty_database(tmp_path / "agentd.db"), url)
    library = Library(database, clock)
    await library.memory.open()
    yield library
    await database.close()


@pytest.fixture
def memory(library: Library) -> Memory:
    return library.memory
