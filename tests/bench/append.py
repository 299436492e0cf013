"""How long one step takes to be committed, on both databases, against their drivers with nothing
around them.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tests.bench.floors import Round
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, percentile, ratio
from tests.postgres import Server

_BODY = (
    "A step of the size that steps have: an answer of a model with a sentence or two, and a call. "
    * 6
)
_TABLES = (
    (
        "CREATE TABLE run (id TEXT NOT NULL PRIMARY KEY, fence INTEGER, barren INTEGER, steps "
        "INTEGER, status TEXT)"
    ),
    """CREATE TABLE step (run_id TEXT, seq INTEGER, kind TEXT, iteration INTEGER, call_id TEXT, fence INTEGER,
    at INTEGER, body {blob}, PRIMARY KEY (run_id, seq))""",  # noqa: E501
    "INSERT INTO run VALUES ('01J', 1, 0, 0, 'running')",
)
# What journal.append does for one step: the run's row moves on, the step is added.
_STEP = (
    (
        "UPDATE run SET steps = steps + 1, barren = 0 WHERE id = ? AND fence = 1 AND steps = ? AND "
        "status = 'running'"
    ),
    (
        "INSERT INTO step (run_id, seq, kind, iteration, call_id, fence, at, body) VALUES (?, ?, "
        "'llm', 1, NULL, 1, 0, ?)"
    ),
)


@asynccontextmanager
async def ours(path: str, url: str, durable: bool) -> AsyncIterator[Round]:
    """Append steps to a run, one after another, each awaited."""
    from daemon.models import Step, StepKind, new_id
    from daemon.store.journal import Claim, Journal
    from daemon.store.opening import open_database

    database = await open_database(Path(path), url)
    journal = Journal(database, clock=lambda: datetime.now(UTC))
    now = datetime.now(UTC)
    claim = Claim(
        routine="r", event=new_id(), definition="{}", trigger="manual", slot=now, goal="g"
    )
    (queued_run,) = await journal.slots.claim([claim])
    assert queued_run
    run = await journal.runs.claim(queued_run.id, owner="bench")
    assert run

    async def round_(count: int) -> dict[str, Any]:
        times = []
        for _ in range(count):
            begin = perf_counter()
            await journal.runs.append(
                run, Step(kind=StepKind.LLM, iteration=1, body={"text": _BODY}), durable=durable
            )
            times.append(perf_counter() - begin)
        return {"times": times}

    yield round_
    await database.close()


@asynccontextmanager
async def raw_sqlite(path: str, url: str, durable: bool) -> AsyncIterator[Round]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    for statement in _TABLES:
        connection.execute(statement.format(blob="BLOB"))
    yield _rounds(connection.execute, _STEP)
    connection.close()


@asynccontextmanager
async def raw_psycopg(path: str, url: str, durable: bool) -> AsyncIterator[Round]:
    import psycopg

    connection: Any = psycopg.connect(url, autocommit=True)
    connection.execute(f"SET synchronous_commit = {'on' if durable else 'off'}")
    for statement in _TABLES:
        connection.execute(statement.format(blob="BYTEA"))
    yield _rounds(connection.execute, tuple(statement.replace("?", "%s") for statement in _STEP))
    connection.close()


def _rounds(execute: Any, step: tuple[str, ...]) -> Round:
    step_count = 0

    async def round_(count: int) -> dict[str, Any]:
        nonlocal step_count
        times = []
        for _ in range(count):
            begin = perf_counter()
            execute("BEGIN")
            execute(step[0], ("01J", step_count))
            execute(step[1], ("01J", step_count, json.dumps({"text": _BODY}).encode()))
            execute("COMMIT")
            times.append(perf_counter() - begin)
            step_count += 1
        return {"times": times}

    return round_


@contextmanager
def _urls(server: bool) -> Any:
    """Yield the URLs of two databases; of two files, nothing."""
    if not server:
        yield "", ""
        return
    postgres_server = Server(durable=True)
    try:
        yield (
            postgres_server.url(postgres_server.create()),
            postgres_server.url(postgres_server.create()),
        )
    finally:
        postgres_server.remove()


def _row(effort: Effort, name: str, *, server: bool, durable: bool) -> Iterable[Row]:
    count = max(2, effort.scaled(1000))
    try:
        with _urls(server) as (raw_url, agentd_url), tempfile.TemporaryDirectory() as folder:
            raw_path, agentd_path = (str(Path(folder) / name) for name in ("raw.db", "agentd.db"))
            floor = f"tests.bench.append:{'raw_psycopg' if server else 'raw_sqlite'}"
            with (
                Worker(floor, path=raw_path, url=raw_url, durable=durable) as floor_worker,
                Worker(
                    "tests.bench.append:ours", path=agentd_path, url=agentd_url, durable=durable
                ) as worker,
            ):
                floors, own_samples = in_turns(effort, count, floor_worker, worker)
    except pytest.skip.Exception as skip:
        yield Row(name=name, ours="not measured", note=str(skip))
        return
    for share in (0.5, 0.99):
        was, now = (
            [percentile(s.times, share) for s in samples] for samples in (floors, own_samples)
        )
        yield Row(
            name=f"{name}, p{share * 100:.0f}",
            floor=ms(median(was)),
            ours=ms(median(now)),
            ratio=ratio(now, was),
        )


ROWS: dict[str, Bench] = {
    "append-sqlite": lambda effort: _row(effort, "append / sqlite3", server=False, durable=False),
    "append-sqlite-durable": lambda effort: _row(
        effort, "append, fsync / sqlite3", server=False, durable=True
    ),
    "append-postgres": lambda effort: _row(effort, "append / psycopg", server=True, durable=False),
    "append-postgres-durable": lambda effort: _row(
        effort, "append, fsync / psycopg", server=True, durable=True
    ),
}
