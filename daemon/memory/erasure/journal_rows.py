"""Erase runs in the journal.

An erased run keeps its row: when it ran, how it ended, what it cost. One step replaces its steps
and holds a digest of them: a person with a copy can prove that the copy is of this run. The
functions take a connection and run in a transaction of the caller, except `rewrite_tables`.
"""

# ruff: noqa: S608  only names and placeholders are put into statements; values are bound
from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

from daemon.models import Status, StepKind
from daemon.store import texts
from daemon.store.connection import Connection, placeholders
from daemon.store.incidents import WAITING, waiting_notices_of
from daemon.store.rows import deflate, encode, to_microseconds

# The hash that erased runs have instead of their definition's: no definition has it.
ERASED_DEFINITION = "forgotten"

# Table and column of the texts of a run outside of its steps and its own row, by the seq that
# StepText has for them: the request of an approval, a withheld result.
_OTHER_TEXTS = {-2: ("approval", "request"), -3: ("quarantine", "body")}

# Tables with texts of people, models and tools.
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
    """The body of one step as JSON, or a text of a run outside of its steps."""

    run: str
    seq: int
    """The number of the step; -1 for the run's own row, other negative ones: _OTHER_TEXTS."""
    kind: str
    """The kind of the step; of a text in _OTHER_TEXTS the id of its row."""
    body: bytes


def runs_where(
    connection: Connection, *, run: str | None, routine: str | None, before: datetime | None
) -> dict[str, bool]:
    """Return the runs that fit all conditions, and whether each has ended; None is no condition."""
    conditions = [
        ("id = ?", run),
        ("routine = ?", routine),
        ("coalesce(ended, created) < ?", before and to_microseconds(before)),
    ]
    condition_sql = (
        " AND ".join(condition for condition, value in conditions if value is not None) or "TRUE"
    )
    values = [value for _, value in conditions if value is not None]
    rows = connection.execute(
        f"SELECT id, status FROM run WHERE {condition_sql} ORDER BY id", values
    )
    return {id_: status in _FINAL_STATUSES for id_, status in rows}


def ended_since(connection: Connection, moment: int) -> list[str]:
    """Return the runs that ended at `moment` or later, the oldest first."""
    marks = placeholders(_FINAL_STATUSES)
    rows = connection.execute(
        f"SELECT id FROM run WHERE ended >= ? AND status IN ({marks}) ORDER BY id",
        (moment, *_FINAL_STATUSES),
    )
    return [id_ for (id_,) in rows]


def active_runs(connection: Connection, _moment: int) -> list[str]:
    """Return the runs that have not ended, whenever they began: each may have read an erased text
    since.
    """
    marks = placeholders(_FINAL_STATUSES)
    return [
        id_
        for (id_,) in connection.execute(
            f"SELECT id FROM run WHERE status NOT IN ({marks}) ORDER BY id", _FINAL_STATUSES
        )
    ]


def read_texts(connection: Connection, runs: Sequence[str]) -> Iterator[StepText]:
    """Yield the steps of these runs, with seq -1 their rows, with -2 and -3 their other texts."""
    marks = placeholders(runs)
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
    for seq, (table, body) in _OTHER_TEXTS.items():
        for run, id_, column in connection.execute(
            f"SELECT run_id, id, {body} FROM {table} WHERE run_id IN ({marks}) ORDER BY id", runs
        ):
            yield StepText(run, seq, id_, _inflate(column))


def _inflate(column: bytes) -> bytes:
    return zlib.decompress(column) if column[:1] == b"x" else column


def rewrite(connection: Connection, text: StepText, change: Callable[[bytes], bytes]) -> None:
    """Replace the body of a step, or the columns that a negative seq stands for."""
    if text.seq in _OTHER_TEXTS:
        table, column = _OTHER_TEXTS[text.seq]
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


def erase_run(connection: Connection, run: str, now: datetime) -> str:
    """Erase the texts of an ended run, and return the digest of its steps."""
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
    # the digest in `novelty` stays, so that no later run reports the same again
    connection.execute("UPDATE novelty SET key = '', title = '' WHERE run_id = ?", (run,))
    # the summary of a conversation repeats its turns; the next summary is made of the turns that
    # are left
    turn = connection.execute(
        "SELECT event FROM slot WHERE run_id = ? AND routine = 'ask'", (run,)
    ).fetchone()
    if turn is not None:
        key = f"session:{turn[0].partition('/')[0]}"
        session = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if session is not None:
            value = json.dumps({**json.loads(session[0]), "summary": ""})
            connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    connection.execute(
        "INSERT INTO step (run_id, seq, kind, iteration, call_id, fence, at, body)"
        " SELECT id, 0, ?, 0, NULL, fence, ?, ? FROM run WHERE id = ?",
        (StepKind.MESSAGE, to_microseconds(now), body, run),
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
    connection.executemany(  # the notices repeat the question to a person
        "UPDATE outbox SET options = ? WHERE id = ?",
        [(options, id_) for id_ in waiting_notices_of(connection, run)],
    )
    return digest


def delete_unused_definitions(connection: Connection) -> None:
    """Delete the definitions that no run has any more."""
    condition = "hash NOT IN (SELECT definition FROM run)"
    connection.execute(
        f"DELETE FROM definition WHERE hash != ? AND {condition}", (ERASED_DEFINITION,)
    )


def delete_unused_texts(connection: Connection) -> None:
    """Delete the texts that no prompt refers to any more."""
    texts.delete_texts(connection, texts.find_unused_texts(connection))


def deliveries_of(connection: Connection, runs: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the deliveries of these runs as run, target and receipt, the oldest first."""
    marks = placeholders(runs)
    rows = connection.execute(
        f"SELECT run_id, target, coalesce(receipt, '') FROM outbox WHERE run_id IN ({marks}) AND "
        "status = 'delivered'"
        " ORDER BY id",
        runs,
    )
    return [(run, target, receipt) for run, target, receipt in rows]


def rewrite_tables(connection: Connection) -> None:
    """Rewrite the database file without traces of deleted rows; call it outside of a transaction.

    Of a server the tables are rewritten; its log and its backups are not reached from here.
    """
    connection.rewrite(_TABLES_WITH_TEXT)
