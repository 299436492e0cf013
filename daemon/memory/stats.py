"""Count what memory holds."""

from __future__ import annotations

from daemon.memory import index
from daemon.models import Json
from daemon.store.connection import Connection


def counts(connection: Connection) -> Json:
    """Return the numbers of items, runs, texts and erasures, and the progress of the index."""

    def query_number(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    state = index.state(connection)
    (last_run,) = connection.execute("SELECT coalesce(max(id), 0) FROM memory_run").fetchone()
    progress = (
        {} if state.is_complete else {"runs": state.low_run, "of": max(state.high_run, last_run)}
    )
    return {
        "items": dict(
            connection.execute("SELECT category, count(*) FROM memory_item GROUP BY category")
        ),
        "pinned": query_number("SELECT count(*) FROM memory_item WHERE pinned = 1"),
        "runs": query_number("SELECT count(*) FROM memory_run"),
        "texts": query_number("SELECT count(*) FROM memory_segment"),
        "superseded": query_number(
            "SELECT count(*) FROM memory_segment WHERE superseded IS NOT NULL"
        ),
        "embedded": dict(
            connection.execute("SELECT model, count(*) FROM memory_embedding GROUP BY model")
        ),
        "forgotten": query_number("SELECT count(*) FROM memory_tombstone"),
        "index": {"version": state.version, "whole": state.is_complete, **progress},
        "bytes": connection.size(),
    }
