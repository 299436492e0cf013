"""The rows of `doctor` about the database file of the state folder: what SQLite finds wrong with
it, and which indexes `doctor --deep` has made anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.app.doctor.check import Check
from daemon.errors import ConfigError, StateBusy, StoreDamaged
from daemon.store.connection import explain
from daemon.store.integrity import check_database, indexes_to_renew, renew_indexes_offline
from daemon.store.lock import lock_state

# Bytes of a database that is checked without `--deep`; a larger one would take too long for
# somebody who waits, and the daemon checks it in the background.
_MAX_CHECKED_DATABASE = 500_000_000
# Faults that are shown; their number says how far the damage goes.
_SHOWN_FAULTS = 5
_RESTORE = (
    "stop agentd, then: agentctl restore FILE; without a backup, move the database away to start "
    "anew"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseFile:
    """What was found out about the database file."""

    path: Path = Path("agentd.db")
    size: int | None = None
    """Bytes; None if there is no file."""
    deep: bool = False
    """Whether all of it was to be checked."""
    faults: tuple[str, ...] = ()
    """What SQLite finds wrong, in its words."""
    unreadable: str = ""
    """Why it could not be checked."""
    renewed_indexes: tuple[str, ...] = ()
    """The indexes that were made anew."""


def check_database_file(path: Path, *, deep: bool) -> DatabaseFile:
    """Return what SQLite finds wrong with a database; nothing is changed."""
    database = DatabaseFile(path=path, deep=deep)
    try:
        if not path.is_file():
            return database
        size = path.stat().st_size
        database = replace(database, size=size)
        if not deep and size > _MAX_CHECKED_DATABASE:
            return database
        return replace(database, faults=tuple(check_database(path, deep=deep)))
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        is_damaged = isinstance(explain(error, path), StoreDamaged)
        if is_damaged or not isinstance(error, (sqlite3.OperationalError, OSError)):
            return replace(database, faults=(str(error),))
        return replace(database, unreadable=str(error))  # locked, or of another user


def renew_damaged_indexes(database: DatabaseFile) -> DatabaseFile:
    """Make the indexes anew that alone are damaged, unless a daemon uses the database.

    Returns what is left to mend.
    """
    if not database.deep or not indexes_to_renew(database.faults):
        return database
    try:
        with lock_state(database.path.parent):
            renewed_indexes, faults = renew_indexes_offline(database.path, database.faults)
    except (StateBusy, ConfigError):  # the daemon's; or a folder in which nothing can be locked
        return database
    return replace(database, renewed_indexes=tuple(renewed_indexes), faults=tuple(faults))


def judge_database_file(database: DatabaseFile) -> Iterator[Check]:
    """Judge what was found out about the database file."""
    for name in database.renewed_indexes:
        yield Check(
            name="database",
            state="warn",
            found=f"index {name} did not agree with its table; it was made anew, no row was lost",
            fix="agentctl backup now: disk or memory of this machine may be failing, as SQLite "
            "damages nothing by itself",
        )
    if indexes := indexes_to_renew(database.faults):
        for name in indexes:
            fault = next(fault for fault in database.faults if fault.endswith(f" {name}"))
            yield Check(
                name="database",
                state="fail",
                found=f"index {name} does not agree with its table ({fault}); no row is lost",
                fix="agentctl stop, then: agentd doctor --deep, which makes the index anew",
            )
    elif database.faults:
        text = "; ".join(database.faults[:_SHOWN_FAULTS])
        if hidden_count := len(database.faults) - _SHOWN_FAULTS:
            text += f"; and {hidden_count} more" if hidden_count > 0 else ""
        yield Check(name="database", state="fail", found=f"damaged: {text}", fix=_RESTORE)
    elif database.deep and database.unreadable:
        yield Check(
            name="database",
            state="fail",
            found=f"{database.path} cannot be checked: {database.unreadable}",
            fix="run it as the user of agentd, while no other program locks the file",
        )
    elif database.deep and database.size is not None and not database.renewed_indexes:
        yield Check(
            name="database",
            state="ok",
            found=f"{database.path}, {database.size / 1e6:.1f} MB: each page, row and index is "
            "sound",
        )
