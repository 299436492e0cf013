"""`agentd doctor --deep`: all of the database is checked, beside a daemon too; an index that alone
is damaged is made anew while no daemon runs, and every finding says what to do.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from daemon.app.doctor.database_file import (
    check_database_file,
    judge_database_file,
    renew_damaged_indexes,
)
from daemon.store.integrity import SMALL_DATABASE
from daemon.store.lock import lock_state
from daemon.testing import FakeClock
from tests.acceptance.story import Home
from tests.store.damage import change_entry, empty_index, empty_leaf
from tests.store.test_retention import make_database


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database in a state folder that no daemon has."""
    path = tmp_path / "state" / "agentd.db"
    path.parent.mkdir()
    await make_database(path, FakeClock(datetime(2026, 7, 1, 8, 0, tzinfo=UTC)))
    return path


def enlarge(path: Path) -> None:
    """Make a database so large that without `--deep` its pages alone are checked."""
    os.truncate(path, SMALL_DATABASE + 4096)  # SQLite ignores what is behind the last page


def damage_a_row(path: Path) -> None:
    """Leave a NULL where none may be, as a changed byte does."""
    lenient, strict = "created INTEGER", "created INTEGER NOT NULL"
    set_schema = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'run'"
    for old, new in ((strict, lenient), (lenient, strict)):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE run SET created = NULL" if old == lenient else "SELECT 1")
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(set_schema, (old, new))


def test_a_sound_database_is_said_to_be_so_after_a_deep_check_alone(path: Path) -> None:
    assert list(judge_database_file(check_database_file(path, deep=False))) == []
    (check,) = judge_database_file(check_database_file(path, deep=True))
    assert check.state == "ok"
    assert "each page, row and index is sound" in check.found


def test_a_state_without_a_database_has_nothing_to_mend(tmp_path: Path) -> None:
    assert list(judge_database_file(check_database_file(tmp_path / "agentd.db", deep=True))) == []


def test_a_damaged_index_of_a_large_database_is_found_and_renewed_by_a_deep_check(
    path: Path,
) -> None:
    change_entry(path, "outbox_run")
    enlarge(path)
    assert check_database_file(path, deep=False).faults == ()
    database = renew_damaged_indexes(check_database_file(path, deep=True))
    (check,) = judge_database_file(database)
    assert check.state == "warn"
    assert check.found == (
        "index outbox_run did not agree with its table; it was made anew, no row was lost"
    )
    assert check_database_file(path, deep=True).faults == ()


def test_an_index_of_which_a_page_is_empty_is_renewed_too(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO step SELECT run_id, ?, kind, iteration, call_id, fence, at, body FROM step"
            " LIMIT 1",
            [(number,) for number in range(100, 1100)],
        )
    empty_leaf(path, "sqlite_autoindex_step_1")
    database = renew_damaged_indexes(check_database_file(path, deep=True))
    assert (database.renewed_indexes, database.faults) == (("sqlite_autoindex_step_1",), ())
    assert check_database_file(path, deep=True).faults == ()


def test_an_index_is_left_alone_while_a_daemon_has_the_state_and_the_remedy_is_named(
    path: Path,
) -> None:
    empty_index(path, "outbox_run")
    with lock_state(path.parent):
        database = renew_damaged_indexes(check_database_file(path, deep=True))
    (check,) = judge_database_file(database)
    assert check.state == "fail"
    assert check.found.startswith("index outbox_run does not agree with its table (")
    assert check.fix == "agentctl stop, then: agentd doctor --deep, which makes the index anew"


def test_without_deep_a_damaged_index_is_named_and_nothing_is_changed(path: Path) -> None:
    empty_index(path, "outbox_run")
    content = path.read_bytes()
    (check,) = judge_database_file(renew_damaged_indexes(check_database_file(path, deep=False)))
    assert check.state == "fail" and "outbox_run" in check.found
    assert path.read_bytes() == content


def test_a_damaged_row_is_left_as_it_is_with_its_indexes_and_a_backup_is_named(path: Path) -> None:
    damage_a_row(path)
    empty_index(path, "outbox_run")
    database = renew_damaged_indexes(check_database_file(path, deep=True))
    assert database.renewed_indexes == ()
    (check,) = judge_database_file(database)
    assert check.state == "fail"
    assert "NULL value in run.created" in check.found
    assert "agentctl restore FILE" in check.fix


def test_an_index_whose_rows_contradict_each_other_is_damage_that_a_backup_mends(
    path: Path,
) -> None:
    empty_index(path, "sqlite_autoindex_step_1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO step SELECT * FROM step")
    (check,) = judge_database_file(renew_damaged_indexes(check_database_file(path, deep=True)))
    assert check.state == "fail"
    assert "UNIQUE constraint failed: step" in check.found
    assert "agentctl restore FILE" in check.fix


def test_a_database_that_cannot_be_read_is_not_called_damaged(path: Path) -> None:
    path.with_name("agentd.db-wal").mkdir()
    (check,) = judge_database_file(check_database_file(path, deep=True))
    assert check.found == f"{path} cannot be checked: unable to open database file"
    assert "as the user of agentd" in check.fix


@pytest.mark.slow
@pytest.mark.process
async def test_doctor_deep_checks_beside_a_daemon_and_mends_after_it(home: Home) -> None:
    home.write("policy.toml", "version = 1\n")
    await home.start()
    beside = await home.agentctl("doctor", "--deep")
    assert "each page, row and index is sound" in beside.out
    assert f"agentd answers, process {home.process.pid}" in beside.out
    await home.stop()
    empty_index(home.state / "agentd.db", "sqlite_autoindex_meta_1")
    after = await home.agentd("doctor", "--deep")
    assert "index sqlite_autoindex_meta_1 did not agree with its table" in after.out
    assert "each page, row and index is sound" in (await home.agentd("doctor", "--deep")).out
