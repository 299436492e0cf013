"""The queue of run ids: procrastinate's tables, and the triggers by which the database itself puts
ids into them.

A run that is queued, by whatever statement of whatever process, is handed on in the same
transaction. When a run lets go of its place, the next of its routine is handed on. What else moves
is told by NOTIFY on the channel `agentd`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from procrastinate import App as Procrastinate

    from daemon.models import Run
    from daemon.store.database import Database

TASK = "agentd.live"
ANYWHERE = "any"
NEEDS = "has"
CHANNEL = "agentd"
# To be raised with every change of the triggers below: processes of two versions may share a
# database.
VERSION = 3

_SQL = Path(__file__).parent


def queue_of(machines: Sequence[str]) -> str:
    """Return the queue of runs that only certain machines may live, as the trigger names it."""
    if not machines:
        return ANYWHERE
    text = json.dumps(list(machines), ensure_ascii=False)
    return "on " + hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def queue_of_needs(run: Run) -> str:
    """Return the queue of runs with this definition that not everybody can live; a channel's name
    has 63 bytes.
    """
    return (
        f"{NEEDS} {hashlib.md5((run.definition or '').encode(), usedforsecurity=False).hexdigest()}"
    )


def passing(run: Run, queue: str) -> Any:
    """Return what hands a run on to whoever can live it, and tells everybody."""

    def work(connection: Any) -> None:
        # procrastinate's own function; what it takes is named in queue.sql as well
        connection.execute(
            "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(CAST(? AS TEXT), CAST(? AS TEXT), 0, "
            "NULL, NULL,"
            " jsonb_build_object('run', CAST(? AS TEXT)), NULL)::procrastinate_job_to_defer_v1])",
            (queue, TASK, run.id),
        )
        connection.execute("SELECT pg_notify(?, ?)", (CHANNEL, json.dumps({"passed": queue})))

    return work


def passed_on(connection: Any) -> list[tuple[str, str]]:
    """Return the queues in which runs wait for somebody who can live them, and the definition of
    one of each.
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


async def prepare(db: Database) -> None:
    """Make the tables of procrastinate and our triggers, where they are missing or older than we
    are.
    """
    from procrastinate.schema import SchemaManager

    schema, triggers = SchemaManager.get_schema(), (_SQL / "queue.sql").read_text("utf-8")

    def work(connection: Any) -> None:
        there, mine = connection.control(
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL,"
            " (SELECT value FROM meta WHERE key = 'fleet.triggers')"
        ).fetchone()
        if not there:
            connection.control(schema)
        if mine is None or int(mine) < VERSION:
            connection.control(triggers)
            connection.execute(
                "INSERT INTO meta (key, value) VALUES ('fleet.triggers', ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(VERSION),),
            )
            connection.control("SELECT agentd_hand_on(id) FROM run WHERE status = 'queued'")

    await db.write(work, durable=True)


def healing(overdue: int) -> Any:
    """Return what is done at each beat to hand on what was lost on the way, once it is so many
    microseconds late.

    A worker whose heart procrastinate has not heard for as long as that is taken for dead.
    """

    words = (_SQL / "heal.sql").read_text("utf-8")

    def heal(connection: sqlite3.Connection, now: int) -> None:
        wire: Any = connection
        wire.control(words % {"before": now - overdue, "now": now, "stale": overdue // 1_000_000})

    return heal


def open_procrastinate(url: str) -> Procrastinate:
    """Return procrastinate on our database."""
    from procrastinate import App, PsycopgConnector

    return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=4))
