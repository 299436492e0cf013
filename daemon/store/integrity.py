"""What SQLite finds wrong with a database file, and the one kind of damage that is mended: an index
that does not agree with its table is made anew, as the rows are whole.

The kinds of check: https://sqlite.org/pragma.html#pragma_integrity_check.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from daemon.store.connection import BUSY_MS, Connection, SqliteConnection, open_reader

# Bytes up to which a whole database is checked against its indexes at once: that takes a second.
SMALL_DATABASE = 64_000_000
# The checks after which each table of a large database was checked against its indexes.
PARTS = 7
# Faults that are read of one check.
_MAX_FAULTS = 100
# Faults of an index alone, as SQLite and `check_database` word them: the rows are whole, and the
# index is made of them.
_INDEX_FAULT = re.compile(
    r"(?:row \d+ missing from|wrong # of entries in|non-unique entry in|cannot read) index (\w+)"
)


def is_large(path: Path) -> bool:
    """Return whether a database takes too long to be checked as a whole again and again."""
    return path.stat().st_size > SMALL_DATABASE


def check_database(path: Path, *, part: int | None = None, deep: bool = False) -> list[str]:
    """Return what SQLite finds wrong with a database; empty if it is whole.

    A small database is checked as a whole, and with `deep` a large one as well. Without `deep`, of
    a large one only the pages are checked (quick_check); with `part`, instead of these, one of
    PARTS of its tables with their indexes (integrity_check).

    Raises sqlite3.Error, OSError or UnicodeDecodeError where the check cannot go on.
    """
    with closing(open_reader(path)) as connection:
        if deep or not is_large(path):
            checks = [f"integrity_check({_MAX_FAULTS})"]
        elif part is None:
            checks = [f"quick_check({_MAX_FAULTS})"]
        else:
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            checks = [f"integrity_check('{table}')" for (table,) in tables[part % PARTS :: PARTS]]
        try:
            rows = [
                str(row[0]) for check in checks for row in connection.execute(f"PRAGMA {check}")
            ]
        except sqlite3.DatabaseError:
            # the check itself stops at an index of which a page is empty
            names = _find_unreadable_indexes(connection)
            if not names:
                raise
            rows = [f"cannot read index {name}" for name in names]
    return [row for row in rows if row != "ok"]


def _find_unreadable_indexes(connection: SqliteConnection) -> list[str]:
    """Return the indexes that cannot be read from one end to the other.

    Raises sqlite3.DatabaseError where a table cannot be read either: no index is made of it.
    """
    # a virtual table has no page of its own; its rows are in tables that have
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    for (table,) in connection.execute(tables).fetchall():
        connection.execute(f'SELECT count(*) FROM "{table}" NOT INDEXED').fetchone()  # noqa: S608  a name of our schema
    names = []
    indexes = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'index' ORDER BY name"
    for name, table in connection.execute(indexes).fetchall():
        try:
            query = f'SELECT count(*) FROM "{table}" INDEXED BY "{name}"'  # noqa: S608  names of our schema
            connection.execute(query).fetchone()
        except sqlite3.OperationalError:  # a partial index holds only some of the rows
            continue
        except sqlite3.DatabaseError:
            names.append(name)
    return names


def find_faults(path: Path, *, part: int | None = None, deep: bool = False) -> list[str]:
    """Return what `check_database` does, and an error of it as a fault."""
    try:
        return check_database(path, part=part, deep=deep)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last of a damaged name
        return [str(error)]


def indexes_to_renew(faults: Sequence[str]) -> list[str]:
    """Return the names of the indexes that the faults are about, sorted; none if any of the faults
    is about something else.
    """
    matches = [_INDEX_FAULT.fullmatch(fault) for fault in faults]
    return sorted({match[1] for match in matches if match}) if all(matches) else []


def renew_index(connection: Connection, name: str) -> None:
    """Make an index anew of the rows of its table. Raises sqlite3.Error where these are damaged."""
    connection.execute(f'REINDEX "{name}"')


def renew_indexes_offline(path: Path, faults: Sequence[str]) -> tuple[list[str], list[str]]:
    """Make the indexes anew that alone are damaged, of a database that no daemon uses.

    `faults` are those of a deep check. Returns the names of the indexes, and the faults that are
    left.
    """
    renewed_indexes: list[str] = []
    faults = list(faults)
    # one check names a limited number of faults, so that the next one may name other indexes
    while names := [name for name in indexes_to_renew(faults) if name not in renewed_indexes]:
        address = f"{path.absolute().as_uri()}?mode=rw"  # migrates nothing, as open_writer does
        try:
            with closing(
                sqlite3.connect(
                    address,
                    uri=True,
                    timeout=BUSY_MS / 1000,
                    isolation_level=None,
                    factory=SqliteConnection,
                )
            ) as connection:
                for name in names:
                    renew_index(connection, name)
        except sqlite3.Error as error:
            return renewed_indexes, [*faults, f"REINDEX: {error}"]
        renewed_indexes += names
        faults = find_faults(path, deep=True)
    return renewed_indexes, faults
