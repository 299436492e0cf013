"""Each statement of the journal and the memory runs on both databases, and finds its rows by an
index where its table grows with the years.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import daemon
from daemon.memory.rows import texts_by_id
from daemon.store.connection import SqliteConnection, open_reader, open_writer
from daemon.store.database import MIGRATIONS
from tests.postgres import Server

_PACKAGES = ("store", "memory")
# What one of the databases alone runs: its index, its schema, its server.
_ONE_DATABASE_ONLY = (
    "store.postgres",
    "store.connection",
    "store.offline",
    "memory.fulltext",
    "memory.pgvector",
)
_OF_ONE_DATABASE = ("SELECT agentd_now()", "memory_embedding_news", "sqlite_master")
_BEGINNING = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
# Beginnings and templates of statements, which are no statements by themselves.
_PARTS = {
    "store.outbox._DELIVERY",
    "store.retention._OLD_RUNS",
    "store.run_rows._RELEASE",
    "store.slots._COVERED_CLAIMS",
    "store.slots._AHEAD",
    "memory.embedding_index._ITEM",
    "memory.embedding_index._SEGMENT",
}

# Tables that grow with each run.
_LARGE = (
    "run", "step", "slot", "outbox", "spending", "audit", "text", "novelty", "seen",
    "memory_segment", "memory_run",
)  # fmt: skip
# Statements that read one of them from its beginning to its end, and why they may.
_READS_ALL = {
    "sums that people and the metrics ask for": (
        "SELECT status, count(*) FROM outbox",
        "SELECT status, count(*) FROM run GROUP BY status",
        "SELECT count(*) FROM step",
    ),
    "retention, a slice at a time in the background": (
        "SELECT digest FROM text WHERE used < ?",
        "DELETE FROM definition WHERE hash NOT IN",
    ),
    "the memory's index is built anew": (
        "SELECT (SELECT count(*) FROM memory_item",
        "SELECT min(id), max(id) FROM memory_segment",
    ),
    "the last row, which is the first that is read": (
        "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1",
        "SELECT id, memory_run, text FROM memory_segment WHERE superseded IS NULL",
    ),
}


class Statement(NamedTuple):
    """A statement, and where it stands in the program: `module.CONSTANT` or `module:line`."""

    location: str
    text: str


def statements() -> Iterator[Statement]:
    """Yield the statements that stand in one piece: constants of modules, and what `execute` is
    given as it is.
    """
    root = Path(daemon.__file__).parent
    for package in _PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            name = ".".join(file.relative_to(root).with_suffix("").parts)
            if name.startswith(_ONE_DATABASE_ONLY):
                continue
            module = vars(import_module(f"daemon.{name}"))
            for constant, value in module.items():
                location = f"{name}.{constant}"
                if isinstance(value, str) and _BEGINNING.match(value) and location not in _PARTS:
                    yield Statement(location, value)
            for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                if call.func.attr in ("execute", "executemany") and call.args:
                    location, argument = f"{name}:{call.lineno}", call.args[0]
                    text = argument.value if isinstance(argument, ast.Constant) else ""
                    if isinstance(text, str) and _BEGINNING.match(text):
                        yield Statement(location, text)


def portable_statements() -> list[Statement]:
    by_text = {
        statement.text: statement
        for statement in statements()
        if not any(word in statement.text for word in _OF_ONE_DATABASE)
    }
    return list(by_text.values())


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteConnection]:
    with closing(open_writer(tmp_path / "agentd.db", MIGRATIONS)) as connection:
        yield connection


def test_sqlite_prepares_each_statement(sqlite: SqliteConnection) -> None:
    for statement in portable_statements():
        sqlite.execute(f"EXPLAIN {statement.text}", [None] * statement.text.count("?"))


def test_postgresql_prepares_each_statement(postgres: Server, postgres_url: str) -> None:
    from daemon.store.postgres.connection import connect  # an extra

    with closing(connect(postgres_url)) as connection:
        for statement in portable_statements():
            first, *later_parts = statement.text.split("?")
            text = first + "".join(f"${at}{part}" for at, part in enumerate(later_parts, 1))
            with connection.driver.transaction(force_rollback=True):
                connection.control(f"PREPARE checked AS {text}")
                connection.control("DEALLOCATE checked")


def test_no_string_literal_of_a_statement_has_a_parameter_mark() -> None:
    for statement in portable_statements():
        for text in re.findall(r"'[^']*'", statement.text):
            assert "?" not in text, statement


def test_statistics_of_a_young_database_change_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "agentd.db"
    with closing(open_writer(path, MIGRATIONS)) as connection:
        connection.execute(
            "INSERT INTO memory_run (run_id, routine, goal, status, started, ended)"
            " VALUES ('1', 'daily', 'goal', 'succeeded', 1, 2)"
        )
        connection.execute(
            "INSERT INTO memory_segment (memory_run, iteration, segment, type, at, digest, text)"
            " VALUES (1, 0, 0, 'response', 1, 1, 'all is well')"
        )
        connection.execute("ANALYZE")
        assert "SCAN r" in _plan_of_texts(connection)
    with (
        closing(open_writer(path, MIGRATIONS)) as writer,
        closing(open_reader(path)) as reader,
    ):
        for connection in (writer, reader):
            assert _plan_of_texts(connection) == [
                "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)",
            ]


def _plan_of_texts(connection: SqliteConnection) -> list[str]:
    """Return how SQLite finds 64 texts of memory by their ids."""
    queries: list[str] = []
    connection.set_trace_callback(queries.append)
    texts_by_id(connection, range(1, 65))
    connection.set_trace_callback(None)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {queries[0]}")
    return [row[3] for row in plan]


def test_only_listed_statements_scan_a_large_table(sqlite: SqliteConnection) -> None:
    scans = re.compile(rf"SCAN ({'|'.join(_LARGE)})\b(?! USING INDEX sqlite_autoindex_run_1)")
    listed_beginnings = tuple(beginning for group in _READS_ALL.values() for beginning in group)
    unlisted_scans, used_beginnings = [], set()
    for statement in portable_statements():
        plan = sqlite.execute(
            f"EXPLAIN QUERY PLAN {statement.text}", [None] * statement.text.count("?")
        ).fetchall()
        text = " ".join(statement.text.split())
        if any(scans.match(row[3]) for row in plan):
            used_beginnings.update(
                beginning for beginning in listed_beginnings if text.startswith(beginning)
            )
            if not text.startswith(listed_beginnings):
                unlisted_scans.append((statement.location, text, [row[3] for row in plan]))
    assert not unlisted_scans
    assert used_beginnings == set(
        listed_beginnings
    )  # whoever mends one of them takes it out of the list
