"""The floors: the same work with nothing around it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

Round: TypeAlias = Callable[[int], Awaitable[dict[str, Any] | None]]


@asynccontextmanager
async def httpx_calls(url: str, bodies: str) -> AsyncIterator[Round]:
    """Post the two requests of a run, one after the other, and read the answers: what any client
    must do.
    """
    import httpx

    requests = json.loads(Path(bodies).read_text())
    async with httpx.AsyncClient(timeout=60) as client:

        async def round_(count: int) -> None:
            for _ in range(count):
                for body in requests:
                    (await client.post(url, json=body)).json()

        yield round_


@asynccontextmanager
async def httpx2_crowd(url: str, bodies: str, width: int) -> AsyncIterator[Round]:
    """The same with `width` runs at a time on one client of httpx2, whose pool stands that."""
    import httpx2

    requests = json.loads(Path(bodies).read_text())
    limits = httpx2.Limits(max_connections=width, max_keepalive_connections=width)
    async with httpx2.AsyncClient(timeout=60, limits=limits) as client:

        async def make_calls(count: int, times: list[float]) -> None:
            for _ in range(count):
                begin = time.perf_counter()
                for body in requests:
                    (await client.post(url, json=body)).json()
                times.append(time.perf_counter() - begin)

        async def round_(count: int) -> dict[str, Any]:
            times: list[float] = []
            await asyncio.gather(*(make_calls(count, times) for _ in range(width)))
            return {"times": times}

        yield round_


# What journal.append does for one step, in SQL: the run's row moves on, the step is added.
_STEP_SQL = (
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
async def raw_sqlite(path: str, body: str, durable: bool) -> AsyncIterator[Round]:
    """Commit steps with sqlite3 alone, each in a transaction of its own, in the thread that wants
    them.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.executescript(
        "CREATE TABLE run (id TEXT NOT NULL PRIMARY KEY, fence INTEGER, barren INTEGER, steps "
        "INTEGER, status TEXT);"
        "CREATE TABLE step (run_id TEXT, seq INTEGER, kind TEXT, iteration INTEGER, call_id TEXT, "
        "fence INTEGER,"
        " at INTEGER, body BLOB, PRIMARY KEY (run_id, seq));"
        "INSERT INTO run VALUES ('01J', 1, 0, 0, 'running')"
    )
    step_count = 0

    async def round_(count: int) -> None:
        nonlocal step_count
        for _ in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_STEP_SQL[0], ("01J", step_count))
            connection.execute(
                _STEP_SQL[1], ("01J", step_count, json.dumps({"text": body}).encode())
            )
            connection.execute("COMMIT")
            step_count += 1

    yield round_
    connection.close()


@asynccontextmanager
async def toml_folder(folder: str) -> AsyncIterator[Round]:
    """Read a folder of TOML files with tomllib alone."""

    async def round_(count: int) -> None:
        for _ in range(count):
            for path in sorted(Path(folder).glob("*.toml")):
                tomllib.loads(path.read_text("utf-8"))

    yield round_


HTTPX_FIRST_BYTE = (
    "import sys, httpx; httpx.post(sys.argv[1], json={'model': 'm', 'messages': []}, timeout=30)"
)
SDK_FIRST_BYTE = (
    "import sys, openai; openai.OpenAI(base_url=sys.argv[1], api_key='k', max_retries=0)"
    ".chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'x'}])"
)

ANTHROPIC_FIRST_BYTE = (
    "import sys, anthropic; anthropic.Anthropic(base_url=sys.argv[1], api_key='k', max_retries=0)"
    ".messages.create(model='m', max_tokens=9, messages=[{'role': 'user', 'content': 'x'}])"
)


def python(code: str, *arguments: str) -> float:
    """Run a line of Python in a fresh interpreter; return when that began, on the monotonic
    clock.
    """
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
    return begin
