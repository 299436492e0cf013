"""How the file is opened, brought up to date, and what is said when it cannot be used."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.errors import ConfigError, Fault, StoreDamaged, StoreFull

if TYPE_CHECKING:
    from sqlalchemy import Engine

MINIMUM = (3, 35, 0)  # RETURNING; Debian 11 has 3.34, Ubuntu 22.04 3.37
APPLICATION = 0x61677464  # "agtd": tells our file from somebody else's SQLite database

# Somebody with a `sqlite3` shell open may hold the write lock; SQLite's own back-off has been seen
# to take 2 s.
BUSY_MS = 15_000

# What can become of the file under a living daemon: told in words, and raised as StoreFull, because
# the answer is the same for each: nothing of this work was kept, nothing may be started on it,
# later ones may succeed again.
TROUBLES = {
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the space left and the system's log",
    sqlite3.SQLITE_CANTOPEN: (
        "the file can no longer be opened; check the folder and the limit on open files"
    ),
    sqlite3.SQLITE_READONLY: "the file has become read-only; check its owner and the mount",
    sqlite3.SQLITE_BUSY: "another program holds a lock on it; close that program",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; stop the daemon and restore a backup",
    sqlite3.SQLITE_NOTADB: "the file is damaged; stop the daemon and restore a backup",
}


def explain(error: BaseException, path: Path) -> BaseException:
    """Return what to raise instead of `error`: StoreFull with a remedy if the file is in trouble,
    else itself.
    """
    trouble = TROUBLES.get(_primary_code(error))
    if trouble is None:
        return error
    damaged = _primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    full = (StoreDamaged if damaged else StoreFull)(f"{path}: {trouble} ({error})")
    full.__cause__ = error
    return full


def _primary_code(error: BaseException) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)  # what Python's own module raises has none
    return code & 0xFF


class SqliteConnection(sqlite3.Connection):
    """A connection to the file; see statements.Connection for what its methods promise."""

    @cached_property
    def engine(self) -> Engine:
        from daemon.store.queries.session import engine_over  # 20 MiB, for the queries of people

        return engine_over(self, "sqlite://", begin="BEGIN")

    def lease_clock(self, own: int) -> int:
        return own

    def size(self) -> int:
        pages, _ = self._count_pages()
        return pages * self._page_size()

    def used(self) -> int:
        pages, free = self._count_pages()
        return (pages - free) * self._page_size()

    def shrink(self, least: int) -> int:
        pages, free = self._count_pages()
        unused = free * self._page_size()
        if unused < least or free * 4 < pages:
            return 0
        self.execute("VACUUM")
        self.truncate_log()
        return unused

    def rewrite(self, tables: Sequence[str]) -> None:
        # VACUUM removes free pages and the gaps in pages, the checkpoint their copies in the log
        (temp_store,) = self.execute("PRAGMA temp_store").fetchone()
        # the copy is as large as the database: too large for memory
        self.execute("PRAGMA temp_store = FILE")
        try:
            self.execute("VACUUM")
        finally:
            self.execute(f"PRAGMA temp_store = {temp_store}")
        self.truncate_log()

    def optimize(self) -> None:
        # https://sqlite.org/pragma.html#pragma_optimize
        self.execute("PRAGMA analysis_limit = 400")
        self.execute("PRAGMA optimize")
        self.truncate_log()  # it grew during a long read transaction

    def truncate_log(self) -> None:
        """Copy the write-ahead log into the file and cut it to nothing."""
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _count_pages(self) -> tuple[int, int]:
        """Return how many pages the file has, and how many of them are free."""
        (pages,) = self.execute("PRAGMA page_count").fetchone()
        (free,) = self.execute("PRAGMA freelist_count").fetchone()
        return pages, free

    def _page_size(self) -> int:
        (size,) = self.execute("PRAGMA page_size").fetchone()
        return int(size)


def open_writer(path: Path, migrations: Path) -> SqliteConnection:
    """Open the one connection that writes, with the tables as this version of the program knows
    them.
    """
    check_sqlite(sqlite3.sqlite_version_info)
    try:
        # Before SQLite sees it: it gives the WAL and its index the mode of the database.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise _unusable(
            path, f"cannot be opened: {error.strerror}", "check its folder, owner and mode"
        ) from error
    connection = sqlite3.connect(
        path, timeout=BUSY_MS / 1000, isolation_level=None, factory=SqliteConnection
    )
    try:
        _tune(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise _unusable(
                path,
                f"its file system allows no write-ahead log (mode {mode})",
                "choose another folder",
            )
        connection.execute("PRAGMA synchronous = NORMAL")
        # What is deleted is overwritten: Debian's SQLite does so by itself, others have to be told.
        connection.execute("PRAGMA secure_delete = ON")
        # Every 16 MiB: a page that is written again and again, as most are, is copied over once for
        # all that.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(
            "PRAGMA journal_size_limit = 16777216"
        )  # a WAL that grew in a rush is cut back to that
        check_features(connection)
        migrate(connection, path, migrations)
    except sqlite3.Error as error:
        connection.close()
        if _primary_code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise _unusable(
                path, f"is damaged ({error})", "restore a backup, or move it away to start anew"
            ) from error
        raise explain(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> SqliteConnection:
    """Open a connection that cannot write."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(
        address,
        uri=True,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        factory=SqliteConnection,
    )
    try:
        _tune(connection)
        connection.execute("PRAGMA query_only = ON")
    except BaseException:  # a damaged file
        connection.close()
        raise
    return connection


def _tune(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -8192")  # KiB, at most, for each of three connections
    # No mmap: there a read error of the disk is not an exception but a SIGBUS, and the daemon is to
    # live through it.


def check_sqlite(version: tuple[int, ...]) -> None:
    """Raise ConfigError if this Python's SQLite is too old."""
    if version < MINIMUM:
        found, least = ".".join(map(str, version)), ".".join(map(str, MINIMUM))
        raise ConfigError(
            Fault(
                file="SQLite",
                key="",
                found=found,
                problem=f"at least {least} is needed",
                hint="use a newer Python",
            )
        )


def check_features(connection: sqlite3.Connection) -> None:
    """Raise ConfigError if this Python's SQLite lacks full-text search or JSON, which recent ones
    always have.

    Each is tried, as SQLite's list of modules does not name json_each before its first use (seen in
    3.53).
    """
    for feature, trial in (("FTS5", "SELECT fts5_source_id()"), ("JSON", "SELECT json('[]')")):
        try:
            connection.execute(trial)
        except sqlite3.OperationalError:  # no such function
            problem, hint = f"was built without {feature}", "use another build of Python"
            raise ConfigError(
                Fault(file="SQLite", key="", found="", problem=problem, hint=hint)
            ) from None


def migrate(connection: sqlite3.Connection, path: Path, migrations: Path) -> None:
    """Make the tables of a new database, or run the migrations that an older one has not seen.

    The tables of a new one are in the folder `new`. Migrations are the files `NNN_name.sql`, in
    order, each with its record in one transaction. A released one is never edited: append another.
    """
    known = {int(file.name[:3]): file for file in sorted(migrations.glob("[0-9][0-9][0-9]_*.sql"))}
    _claim(connection, path)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration"
        " (version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied INTEGER NOT NULL)"
    )
    applied = {version for (version,) in connection.execute("SELECT version FROM migration")}
    new = migrations / "new"
    if not applied and new.is_dir():
        _create_tables(connection, new, known)
        return
    if newer := applied - set(known):
        raise _unusable(
            path,
            (
                f"was written by a newer version of agentd (schema {max(newer)}, this one knows "
                f"{max(known, default=0)})"
            ),
            "install that version again, or restore a backup made before the upgrade",
        )
    missing = sorted(set(known) - applied)
    if applied and missing:
        _set_aside(connection, path, max(applied))
    for version in missing:
        file = known[version]
        _run_script(connection, file.read_text(encoding="utf-8"), {version: file})


def _create_tables(connection: sqlite3.Connection, new: Path, known: dict[int, Path]) -> None:
    """Make the tables of a new database as the newest version has them."""
    script = "\n".join(
        (new / name).read_text(encoding="utf-8") for name in ("schema.sql", "index.sql")
    )
    _run_script(connection, script, known)


def _run_script(connection: sqlite3.Connection, script: str, files: dict[int, Path]) -> None:
    """Run a script and record the migrations that it stands for, by version, in one transaction."""
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}")
        connection.executemany(
            "INSERT INTO migration VALUES (?, ?, ?)",
            [(version, file.stem[4:], now) for version, file in files.items()],
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _set_aside(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy a database before it is brought up to date, so that the version before can be had back;
    one copy is kept.

    ConfigError if it is damaged, or if there is no room for the copy: then nothing is changed.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _unusable(
            path, f"is damaged ({verdict})", "restore a backup, or move it away to start anew"
        )
    copy = path.with_name(f"{path.name}.before-upgrade-{version:03}")
    draft = copy.with_name(f"{copy.name}.part")
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        target = sqlite3.connect(draft)
        try:
            connection.backup(target)
        finally:
            target.close()
        draft.replace(copy)
    except (OSError, sqlite3.Error) as error:
        draft.unlink(missing_ok=True)
        problem = f"cannot be copied before the upgrade ({error})"
        raise _unusable(
            path, problem, f"make room for another {path.stat().st_size / 1e6:.0f} MB beside it"
        ) from error
    for older in path.parent.glob(f"{path.name}.before-upgrade-*"):
        if older != copy:
            older.unlink()


def _claim(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a new file as ours; ConfigError if it already is somebody else's."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION:
        return
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or tables:
        raise _unusable(
            path, "is a database of another program", "move it away, or choose another state folder"
        )
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


def _unusable(path: Path, problem: str, hint: str) -> ConfigError:
    return ConfigError(Fault(file=str(path), key="", found="", problem=problem, hint=hint))
