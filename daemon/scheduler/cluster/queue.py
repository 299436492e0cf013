"""The queue of run ids in PostgreSQL: procrastinate's tables, and the database triggers that put
ids into them (queue.sql).

When a run is queued, by whatever statement of whatever process, the same transaction defers its id
as a job of procrastinate. When a run ends or is put off, the next queued run of its routine is
deferred. Other changes that processes should hear of are sent by NOTIFY on the channel `agentd`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.store.connection import Connection

if TYPE_CHECKING:
    from procrastinate import App as Procrastinate

    from daemon.models import Run
    from daemon.store.database import Database

TASK = "agentd.live"  # the name of procrastinate's task; jobs in databases have it
ANYWHERE = "any"  # the queue of runs that any machine may execute
NEEDS_PREFIX = "has"
CHANNEL = "agentd"
# To be raised with every change of queue.sql: processes of two versions may share a database.
VERSION = 4

_SQL = Path(__file__).parent


def queue_of(machines: Sequence[str]) -> str:
    """Return the queue of runs that only hosts of these globs may execute, as queue.sql names
    it.
    """
    if not machines:
        return ANYWHERE
    text = json.dumps(list(machines), ensure_ascii=False)
    return "on " + hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def queue_of_definition(run: Run) -> str:
    """Return the queue of runs with the definition of `run`, for processes that have what they
    need.

    A hash, as procrastinate makes a channel of the name, and PostgreSQL cuts those at 63 bytes.
    """
    digest = hashlib.md5((run.definition or "").encode(), usedforsecurity=False)
    return f"{NEEDS_PREFIX} {digest.hexdigest()}"


def requeue(run: Run, queue: str) -> Any:
    """Return what to execute in a transaction to put a run into another queue and notify all."""

    def work(connection: Any) -> None:
        # procrastinate's own function; queue.sql calls it as well
        connection.execute(
            "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(CAST(? AS TEXT), CAST(? AS TEXT), 0, "
            "NULL, NULL,"
            " jsonb_build_object('run', CAST(? AS TEXT)), NULL)::procrastinate_job_to_defer_v1])",
            (queue, TASK, run.id),
        )
        connection.execute("SELECT pg_notify(?, ?)", (CHANNEL, json.dumps({"passed": queue})))

    return work


def read_queues_with_runs(connection: Any) -> list[tuple[str, str]]:
    """Return all queues but ANYWHERE in which runs wait, each with the routine of one of its runs
    as JSON text.
    """
    rows = connection.execute(
        "SELECT DISTINCT ON (job.queue_name) job.queue_name, definition.body FROM "
        "procrastinate_jobs AS job"
        " JOIN run ON run.id = job.args ->> 'run' JOIN definition ON definition.hash = "
        "run.definition"
        " WHERE job.status = 'todo' AND job.queue_name <> ? AND run.status = 'queued' ORDER BY "
        "job.queue_name",
        (ANYWHERE,),
    )
    return [(queue, body) for queue, body in rows]


async def prepare_database(db: Database) -> None:
    """Create procrastinate's tables and our triggers where they are missing, and replace triggers
    of an older version.
    """
    from procrastinate.schema import SchemaManager

    schema, triggers = SchemaManager.get_schema(), (_SQL / "queue.sql").read_text("utf-8")

    def work(connection: Any) -> None:
        has_tables, version = connection.control(
            # databases have the key by this name, which an earlier version gave it
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL,"
            " (SELECT value FROM meta WHERE key = 'fleet.triggers')"
        ).fetchone()
        if not has_tables:
            connection.control(schema)
        if version is None or int(version) < VERSION:
            connection.control(triggers)
            connection.execute(
                "INSERT INTO meta (key, value) VALUES ('fleet.triggers', ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(VERSION),),
            )
            connection.control("SELECT agentd_hand_on(id) FROM run WHERE status = 'queued'")

    await db.write(work, durable=True)


def repair_queue(overdue: int) -> Any:
    """Return a work for each heartbeat, which queues runs again whose job was lost.

    `overdue`: microseconds after which a queued run without a job counts as lost, and a worker of
    procrastinate without a heartbeat as dead.
    """
    statements = (_SQL / "repair.sql").read_text("utf-8")

    def repair(connection: Connection, now: int) -> None:
        postgres: Any = connection
        postgres.control(
            statements % {"before": now - overdue, "now": now, "stale": overdue // 1_000_000}
        )

    return repair


def open_procrastinate(url: str) -> Procrastinate:
    """Return procrastinate's app on the database of the journal, not connected yet."""
    from procrastinate import App, PsycopgConnector

    return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=4))
