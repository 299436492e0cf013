"""What daemon/store/postgres/connection.py uses of psycopg beyond its documentation.

psycopg documents no limit on the time of an answer. Its connections wait for the server in one
method, which takes a timeout; `_TimedConnection` overrides it. When a release changes that method,
a test here says so; tests/store/test_postgres.py tries it on a silent server.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest


@pytest.fixture
def psycopg() -> Any:
    return pytest.importorskip("psycopg", reason="needs pip install 'agentd-routines[postgres]'")


def test_the_method_in_which_a_connection_waits_takes_a_generator_and_a_timeout(
    psycopg: Any,
) -> None:
    from daemon.store.postgres.connection import _TimedConnection

    parameters = list(inspect.signature(psycopg.Connection.wait).parameters)
    assert parameters == ["self", "gen", "interval", "timeout"], (
        "psycopg.Connection.wait has changed: _TimedConnection passes a generator to it and sets "
        "`timeout`, so that a server behind a dead network cannot hold the writer for ever"
    )
    assert _TimedConnection.wait is not psycopg.Connection.wait


def test_statements_commits_and_cursors_wait_in_that_method(psycopg: Any) -> None:
    for function in (psycopg.Cursor.execute, psycopg.Cursor.executemany, psycopg.Connection.commit):
        source = inspect.getsource(inspect.unwrap(function))
        assert ".wait(" in source, (
            f"psycopg's {function.__qualname__} does not wait in Connection.wait any more, so the "
            "time limit of _TimedConnection does not hold for it"
        )
