"""What of a run goes when its owner wants it forgotten: all that it was told, did and said; that it
was, stays.

A forgotten run keeps its row: when it ran, how it ended, what it cost. One step stands where its
steps were, with a digest of them: whoever has a copy can prove that it was this run's, nobody can
read it here. Functions of a connection, to be handed to the writer.
"""

# ruff: noqa: S608  what is put into statements are marks; values are bound
from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

from daemon.models import Status, StepKind
from daemon.store import texts
from daemon.store.incidents import WAITING, questions_of
from daemon.store.rows import deflate, encode, stamp

# Where definitions go whose last run was forgotten: a hash that no definition has.
ERASED_DEFINITION = "forgotten"

# What stands beside the steps of a run, by the number it has here: what a person was asked, what no
# model has seen.
_STEP_COMPANIONS = {-2: ("approval", "request"), -3: ("quarantine", "body")}

# Where words of people, models and tools stand.
_TABLES_WITH_TEXT = (
    *(
        "run",
        "step",
        "text",
        "input",
        "told",
        "approval",
        "quarantine",
        "definition",
        "meta",
        "outbox",
    ),
    *("memory_run", "memory_item", "memory_segment", "memory_embedding", "memory_fts"),
)

_FINAL_STATUSES = tuple(status.value for status in Status if status.has_ended)


class StepText(NamedTuple):
    """The body of one step, as JSON."""

    run: str
    seq: int
    kind: str
    body: bytes


def runs_where(
    connection: sqlite3.Connection, *, run: str | None, routine: str | None, before: datetime | None
) -> dict[str, bool]:
    """Return the runs that all of these fit, and whether each has ended."""
    conditions = [
        ("id = ?", run),
        ("routine = ?", routine),
        ("coalesce(ended, created) < ?", before and stamp(before)),
    ]
    condition_sql = (
        " AND ".join(condition for condition, value in conditions if value is not None) or "TRUE"
    )
    values = [value for _, value in conditions if value is not None]
    rows = connection.execute(
        f"SELECT id, status FROM run WHERE {condition_sql} ORDER BY id", values
    )
    return {id_: status in _FINAL_STATUSES for id_, status in rows}


def ended_since(connection: sqlite3.Connection, moment: int) -> list[str]:
    """Return the runs that ended since then: no earlier one can quote what was first said then."""
    marks = ", ".join("?" * len(_FINAL_STATUSES))
    rows = connection.execute(
        f"SELECT id FROM run WHERE ended >= ? AND status IN ({marks}) ORDER BY id",
        (moment, *_FINAL_STATUSES),
    )
    return [id_ for (id_,) in rows]


def active_runs(connection: sqlite3.Connection, _moment: int) -> list[str]:
    """Return the runs that have not ended, whenever they began: they may have been told of it
    since.
    """
    marks = ", ".join("?" * len(_FINAL_STATUSES))
    return [
        id_
        for (id_,) in connection.execute(
            f"SELECT id FROM run WHERE status NOT IN ({marks}) ORDER BY id", _FINAL_STATUSES
        )
    ]


def read_texts(connection: sqlite3.Connection, runs: Sequence[str]) -> Iterator[StepText]:
    """Yield the steps of these runs, and as seq -1 what their rows say."""
    marks = ", ".join("?" * len(runs))
    for id_, goal, report, detail in connection.execute(
        f"SELECT id, goal, report, detail FROM run WHERE id IN ({marks})", runs
    ):
        yield StepText(id_, -1, "run", encode({"goal": goal, "report": report, "detail": detail}))
    read_body = texts.BodyReader(connection)
    for run, seq, kind, column in connection.execute(
        f"SELECT run_id, seq, kind, body FROM step WHERE run_id IN ({marks})", runs
    ):
        yield StepText(
            run,
            seq,
            kind,
            encode(read_body(column)) if column[:1] == texts.MARK else _inflate(column),
        )
    for seq, (table, body) in _STEP_COMPANIONS.items():
        for run, id_, column in connection.execute(
            f"SELECT run_id, id, {body} FROM {table} WHERE run_id IN ({marks}) ORDER BY id", runs
        ):
            yield StepText(run, seq, id_, _inflate(column))


def _inflate(column: bytes) -> bytes:
    return zlib.decompress(column) if column[:1] == b"x" else column


def rewrite(
    connection: sqlite3.Connection, text: StepText, change: Callable[[bytes], bytes]
) -> None:
    """Put a changed body in the place of a step's."""
    if text.seq in _STEP_COMPANIONS:
        table, column = _STEP_COMPANIONS[text.seq]
        body = deflate(change(text.body))
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (body, text.kind))
        return
    if text.seq < 0:
        columns = ("goal", "report", "detail")
        row = connection.execute(
            "SELECT goal, report, detail FROM run WHERE id = ?", (text.run,)
        ).fetchone()
        for column, value in zip(columns, row, strict=True):
            if value is not None:
                new_value = change(value.encode()).decode()
                connection.execute(
                    f"UPDATE run SET {column} = ? WHERE id = ?", (new_value, text.run)
                )
        return
    body = deflate(change(text.body))
    connection.execute("UPDATE run SET seal = NULL WHERE id = ?", (text.run,))
    connection.execute(
        "UPDATE step SET body = ? WHERE run_id = ? AND seq = ?", (body, text.run, text.seq)
    )


def redact_run(connection: sqlite3.Connection, run: str, now: datetime) -> str:
    """Forget what an ended run was told, did and said; return the digest of it."""
    bodies = sorted(read_texts(connection, [run]), key=lambda text: text.seq)
    digest = blake2b(b"\0".join(text.body for text in bodies), digest_size=16).hexdigest()
    note = f"forgotten on {now:%Y-%m-%d}"
    body = encode(
        {"text": f"What this run did was {note}.", "source": ERASED_DEFINITION, "digest": digest}
    )
    connection.execute("DELETE FROM step WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM approval WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM quarantine WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM told WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM input WHERE run_id = ?", (run,))
    # what it reported is known by a digest: it is not reported again, and nobody can read what it
    # was
    connection.execute("UPDATE novelty SET key = '', title = '' WHERE run_id = ?", (run,))
    # the summary of a conversation says what its turns said; the next one is made of those that are
    # left
    connection.execute(
        "UPDATE meta SET value = json_set(value, '$.summary', '') WHERE key = (SELECT"
        " 'session:' || substr(event, 1, instr(event, '/') - 1) FROM slot WHERE run_id = ? AND "
        "routine = 'ask')",
        (run,),
    )
    connection.execute(
        "INSERT INTO step (run_id, seq, kind, iteration, call_id, fence, at, body)"
        " SELECT id, 0, ?, 0, NULL, fence, ?, ? FROM run WHERE id = ?",
        (StepKind.MESSAGE, stamp(now), body, run),
    )
    connection.execute(
        "INSERT INTO definition (hash, body) VALUES (?, '{}') ON CONFLICT DO NOTHING",
        (ERASED_DEFINITION,),
    )
    connection.execute(
        (
            "UPDATE run SET goal = '', report = NULL, detail = ?, definition = ?, steps = 1, seal = "  # noqa: E501
            "NULL WHERE id = ?"
        ),
        (note, ERASED_DEFINITION, run),
    )
    connection.execute(
        (
            "UPDATE outbox SET status = 'suppressed', next_at = NULL, error = ? WHERE run_id = ? "
            "AND status = 'pending'"
        ),
        (note, run),
    )
    options = json.dumps({"notice": WAITING, "title": note, "text": note}, separators=(",", ":"))
    connection.executemany(  # what a person was asked stands there word for word
        "UPDATE outbox SET options = ? WHERE id = ?",
        [(options, id_) for id_ in questions_of(connection, run)],
    )
    return digest


def free_definitions(connection: sqlite3.Connection) -> None:
    """Forget the definitions that no run has any more."""
    condition = "hash NOT IN (SELECT definition FROM run)"
    connection.execute(
        f"DELETE FROM definition WHERE hash != ? AND {condition}", (ERASED_DEFINITION,)
    )


def free_texts(connection: sqlite3.Connection) -> None:
    """Forget the texts that no prompt names any more."""
    texts.drop(connection, texts.unused(connection))


def deliveries_of(
    connection: sqlite3.Connection, runs: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return where reports of these runs went: run, target, receipt."""
    marks = ", ".join("?" * len(runs))
    rows = connection.execute(
        f"SELECT run_id, target, coalesce(receipt, '') FROM outbox WHERE run_id IN ({marks}) AND "
        "status = 'delivered'"
        " ORDER BY id",
        runs,
    )
    return [(run, target, receipt) for run, target, receipt in rows]


def wipe(connection: sqlite3.Connection) -> None:
    """Write the file anew without a trace of what was deleted; to be run outside any transaction.

    Free pages and the gaps in pages go with VACUUM, what the log holds of both with the checkpoint.
    """
    if not isinstance(connection, sqlite3.Connection):
        connection.execute(
            f"VACUUM (FULL) {', '.join(_TABLES_WITH_TEXT)}"
        )  # its log and its backups are the server's own affair
        return
    (temp_store,) = connection.execute("PRAGMA temp_store").fetchone()
    connection.execute(
        "PRAGMA temp_store = FILE"
    )  # the copy is as big as the database: not into memory
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute(f"PRAGMA temp_store = {temp_store}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
