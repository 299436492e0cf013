"""Erase runs in the journal.

The row of an erased run stays: when it ran, how it ended, what it cost. One step replaces its steps
and holds a digest of its texts: a person with a copy can prove that the copy is of this run. What
was told of the run, in deliveries and incidents, is erased as well. The functions take a connection
and run in a transaction of the caller, except `rewrite_tables`.
"""

# ruff: noqa: S608  only names and placeholders are put into statements; values are bound
from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from daemon.models import Json, Status, StepKind
from daemon.store import texts
from daemon.store.connection import Connection, placeholders
from daemon.store.incidents import RECOVERED, WAITING, replace_detail, waiting_notices_of
from daemon.store.rows import deflate, encode, events_below, to_microseconds

# The hash that erased runs have instead of their definition's: no definition has it.
ERASED_DEFINITION = "forgotten"

# The columns of the texts of a run in other tables, by table: a withheld result, the request of an
# approval.
_COMPRESSED_COLUMNS = {"quarantine": "body", "approval": "request"}
# The options of a delivery that hold texts: how the run ended, and what a notice says.
_TEXT_OPTIONS = ("detail", "text")

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
        "incident",
        "novelty",
    ),
    *("memory_run", "memory_item", "memory_segment", "memory_embedding", "memory_fts"),
)

_FINAL_STATUSES = tuple(status.value for status in Status if status.has_ended)


class RunText(NamedTuple):
    """The texts of one row that a run has in the journal, as JSON."""

    run: str
    table: str
    """`step`, `run`, `approval`, `quarantine`, `outbox` or `incident`."""
    id: str | int
    """The number of the step; in other tables the id of the row."""
    body: bytes
    kind: str = ""
    """The kind of the step; empty in other tables."""

    @property
    def words(self) -> str:
        """The text to look for words in: the JSON, and the strings in it, in which no escape stands
        before a word (`\\nword`).
        """
        text = self.body.decode("utf-8", "replace")
        if "\\" in text:
            with suppress(ValueError, RecursionError):  # a damaged body is no JSON
                return "\n".join((text, *_strings_in(json.loads(self.body))))
        return text

    @property
    def is_copy(self) -> bool:
        """Whether it repeats what stands in the run, or in another one, for those who are told."""
        return self.table in ("outbox", "incident")


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


def sub_agents_of(connection: Connection, runs: Iterable[str]) -> dict[str, bool]:
    """Return the runs of the sub-agents that these runs have started, and whether each has ended;
    of those that have, their sub-agents as well.
    """
    is_ended_by_run: dict[str, bool] = {}
    parents = list(runs)
    while parents:
        parent = parents.pop()
        rows = connection.execute(
            "SELECT id, status FROM run WHERE id IN (SELECT run_id FROM slot"
            " WHERE routine = 'subagent' AND event >= ? AND event < ?) ORDER BY id",
            events_below(parent),
        )
        sub_agents = {id_: status in _FINAL_STATUSES for id_, status in rows}
        is_ended_by_run |= sub_agents
        parents += [id_ for id_, is_ended in sub_agents.items() if is_ended]
    return is_ended_by_run


def count_deleted_sub_agents(connection: Connection, runs: Iterable[str]) -> int:
    """Return how many sub-agents of these runs the journal does not have any more."""
    query = (
        "SELECT count(*) FROM slot WHERE routine = 'subagent' AND event >= ? AND event < ?"
        " AND run_id IS NULL"
    )
    return sum(connection.execute(query, events_below(run)).fetchone()[0] for run in runs)


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


def read_texts(connection: Connection, runs: Sequence[str]) -> Iterator[RunText]:
    """Yield all texts of these runs; of each run those that are no copies always in one order."""
    marks = placeholders(runs)
    for table, column_name in _COMPRESSED_COLUMNS.items():
        for run, id_, column in connection.execute(
            f"SELECT run_id, id, {column_name} FROM {table} WHERE run_id IN ({marks}) ORDER BY id",
            runs,
        ):
            yield RunText(run, table, id_, _inflate(column))
    for id_, goal, report, detail in connection.execute(
        f"SELECT id, goal, report, detail FROM run WHERE id IN ({marks})", runs
    ):
        body = encode({"goal": goal, "report": report, "detail": detail})
        yield RunText(id_, "run", id_, body)
    read_body = texts.BodyReader(connection)
    for run, seq, kind, column in connection.execute(
        f"SELECT run_id, seq, kind, body FROM step WHERE run_id IN ({marks}) ORDER BY run_id, seq",
        runs,
    ):
        body = encode(read_body(column)) if column[:1] == texts.MARK else _inflate(column)
        yield RunText(run, "step", seq, body, kind)
    for run, id_, options in connection.execute(
        f"SELECT run_id, id, options FROM outbox WHERE run_id IN ({marks}) ORDER BY id", runs
    ):
        if text_options := _find_text_options(json.loads(options)):
            yield RunText(run, "outbox", id_, encode(text_options))
    for run, id_, detail in connection.execute(
        f"SELECT run_id, id, detail FROM incident WHERE run_id IN ({marks}) ORDER BY id", runs
    ):
        yield RunText(run, "incident", id_, encode({"detail": detail}))


def _strings_in(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value; of one that is JSON itself, without its escapes too."""
    if isinstance(value, str):
        yield value
        if "\\" in value:
            yield re.sub(r"\\+[nrt]", " ", value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings_in(item)


def _find_text_options(options: Json) -> Json:
    return {key: options[key] for key in _TEXT_OPTIONS if options.get(key)}


def _inflate(column: bytes) -> bytes:
    return zlib.decompress(column) if column[:1] == b"x" else column


def rewrite(connection: Connection, text: RunText, change: Callable[[bytes], bytes]) -> None:
    """Replace the texts of a row."""
    if text.table == "step":
        body = deflate(change(text.body))
        connection.execute("UPDATE run SET seal = NULL WHERE id = ?", (text.run,))
        connection.execute(
            "UPDATE step SET body = ? WHERE run_id = ? AND seq = ?", (body, text.run, text.id)
        )
        return
    if column := _COMPRESSED_COLUMNS.get(text.table):
        body = deflate(change(text.body))
        connection.execute(f"UPDATE {text.table} SET {column} = ? WHERE id = ?", (body, text.id))
        return
    new_values = {
        key: change(value.encode()).decode()
        for key, value in json.loads(text.body).items()
        if value is not None
    }
    if text.table == "run":
        for column, value in new_values.items():
            connection.execute(f"UPDATE run SET {column} = ? WHERE id = ?", (value, text.id))
    elif text.table == "incident":
        replace_detail(connection, int(text.id), new_values["detail"])
    else:
        (options,) = connection.execute(
            "SELECT options FROM outbox WHERE id = ?", (text.id,)
        ).fetchone()
        _write_options(connection, text.id, {**json.loads(options), **new_values})


def _write_options(connection: Connection, id_: str | int, options: Json) -> None:
    values = (json.dumps(options, separators=(",", ":")), id_)
    connection.execute("UPDATE outbox SET options = ? WHERE id = ?", values)


def erase_run(connection: Connection, run: str, now: datetime) -> str:
    """Erase the texts of an ended run, and return the digest of those that are no copies."""
    bodies = [text.body for text in read_texts(connection, [run]) if not text.is_copy]
    digest = blake2b(b"\0".join(bodies), digest_size=16).hexdigest()
    note = f"forgotten on {now:%Y-%m-%d}"
    body = encode(
        {"text": f"What this run did was {note}.", "source": ERASED_DEFINITION, "digest": digest}
    )
    _erase_copies(connection, run, note)
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
    return digest


def _erase_copies(connection: Connection, run: str, note: str) -> None:
    """Erase what the deliveries and incidents of a run repeat of it, and suppress the deliveries
    that are pending.
    """
    connection.execute(
        "UPDATE outbox SET status = 'suppressed', next_at = NULL, error = ? WHERE run_id = ? "
        "AND status = 'pending'",
        (note, run),
    )
    # the notices repeat the question to a person
    for id_ in waiting_notices_of(connection, run):
        _write_options(connection, id_, {"notice": WAITING, "title": note, "text": note})
    for id_, text in connection.execute(
        "SELECT id, options FROM outbox WHERE run_id = ?", (run,)
    ).fetchall():
        options = json.loads(text)
        if options.pop("detail", None) is not None:
            _write_options(connection, id_, options)
    for (incident,) in connection.execute(
        "SELECT id FROM incident WHERE run_id = ?", (run,)
    ).fetchall():
        replace_detail(connection, incident, note)
    # the notice that a routine works again, or was removed, repeats its last error; it is of the
    # run that succeeded, or of none
    routine, detail, created = connection.execute(
        "SELECT routine, detail, created FROM run WHERE id = ?", (run,)
    ).fetchone()
    if not detail:
        return
    for id_, text in connection.execute(
        "SELECT id, options FROM outbox WHERE kind = ? AND (run_id IS NULL"
        " OR run_id IN (SELECT id FROM run WHERE routine = ? AND created >= ?))",
        (RECOVERED, routine, created),
    ).fetchall():
        options = json.loads(text)
        if options.get("text", "").endswith(f": {detail}"):
            options["text"] = f"{options['text'].removesuffix(detail)}{note}"
            _write_options(connection, id_, options)


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
