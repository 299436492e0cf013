"""The connection that runs the journal's statements: what both databases offer, and SQLite's.

Each statement is written once, in what SQLite 3.35 and PostgreSQL 13 have in common. A parameter is
marked `?`; the PostgreSQL connection sends it as `%s`, and nothing else of a statement is
changed. `tests/store/test_statements.py` prepares every statement on both databases. Where the
databases truly differ, the connection has a method.

SQLite's file is opened and migrated here, and a file that cannot be used is refused with what to do
about it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import structlog

from daemon.errors import ConfigError, Fault, StoreDamaged, StoreFull

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = structlog.get_logger()

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

# A part of an id that is shorter is too likely to name another thing than the one meant.
SHORTEST_PART = 4
AFTER_EVERY_ID = "\N{DELETE}"  # ids are letters and digits

# The condition for an id of which only the beginning or the end is given; see `id_part_values`.
ID_PART = "((id >= ? AND id < ?) OR substr(id, length(id) - ? + 1) = ?)"


class Cursor(Protocol):
    """The rows that a statement returned, as tuples."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement wrote."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return the rows that were not fetched yet."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection to one of the two databases; to be used in one thread at a time."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine over this connection, for the queries of people.

        The first use imports SQLAlchemy. A session of the engine begins a transaction of its own:
        none may be open.
        """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        """Run a statement with its values."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Run a statement once for each row."""

    def lease_clock(self, own_time: int) -> int:
        """Return the moment by which leases are measured, in microseconds since 1970.

        Processes that share a database go by the clock of its server, at the moment the transaction
        began to write; SQLite has one process, which goes by its own clock, `own_time`.
        """

    def size(self) -> int:
        """Return how many bytes the database takes on the disk."""

    def used(self) -> int:
        """Return how many of these bytes hold rows: what retention compares with its bound."""

    def shrink(self, least: int) -> int:
        """Give unused room back to the system, if it is at least `least` bytes and a quarter of the
        file.

        Returns how many bytes were given back. Writes the whole file anew, outside of a
        transaction. PostgreSQL does so by itself (autovacuum): 0.
        """

    def truncate_log(self) -> None:
        """Copy the write-ahead log into the file and cut it to nothing.

        Outside of a transaction. A server does so by itself.
        """

    def rewrite(self, tables: Sequence[str]) -> None:
        """Write the file, or these tables of a server, anew without traces of deleted rows.

        Outside of a transaction. A server's own log and its backups are not reached.
        """

    def close(self) -> None:
        """Close the connection; what was not committed is undone."""


def placeholders(values: Collection[object]) -> str:
    """Return the marks of a list of values for `IN (…)`; `NULL`, in which nothing is, for none."""
    return ", ".join("?" * len(values)) or "NULL"


def padded(values: Sequence[T], filler: T) -> list[T]:
    """Return values for `IN (…)`, filled up to a power of two: each new length would be a new
    statement to prepare.
    """
    length = 1 << (len(values) - 1).bit_length()
    return [*values, *[filler] * (length - len(values))]


def id_part_values(part: str) -> tuple[str, str, int, str]:
    """Return the values of ID_PART for a part of an id in capitals, of at least SHORTEST_PART
    characters.
    """
    return part, part + AFTER_EVERY_ID, len(part), part


MINIMUM_VERSION = (3, 35, 0)  # RETURNING; Debian 11 has 3.34, Ubuntu 22.04 3.37
APPLICATION = 0x61677464  # "agtd": tells our file from somebody else's SQLite database

# Somebody with a `sqlite3` shell open may hold the write lock; SQLite's own back-off has been seen
# to take 2 s.
BUSY_MS = 15_000

# What can happen to the file while the daemon runs. Each is raised as StoreFull, as the consequence
# is the same: the work was not written, nothing may be started on it, later works may succeed.
FILE_PROBLEMS = {
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
    """Return what to raise instead of `error`: StoreFull with a remedy, or StoreDamaged, if it is
    about the file; else `error` itself.
    """
    code = _primary_code(error)
    # the module sqlite3 decodes texts by itself, and has no code for one that is damaged
    is_undecodable = isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)
    # all statements are tried against our tables in the tests: the file has others, as of a byte
    # of its schema that was changed, or of a page with the record of migrations that was lost
    has_other_tables = isinstance(error, sqlite3.OperationalError) and (
        str(error).startswith(
            ("no such column: ", "no such table: ", "no such index: ", "duplicate column name: ")
        )
        or str(error).endswith(" already exists")
    )
    is_unreadable = isinstance(error, UnicodeDecodeError | json.JSONDecodeError | zlib.error)
    if is_undecodable or has_other_tables or is_unreadable:
        code = sqlite3.SQLITE_CORRUPT
    problem = FILE_PROBLEMS.get(code)
    if problem is None:
        return error
    is_damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    error_class = StoreDamaged if is_damaged else StoreFull
    store_error = error_class(f"{path}: {problem} ({error})")
    store_error.__cause__ = error
    return store_error


def _primary_code(error: BaseException) -> int:
    # errors that the module sqlite3 raises by itself have no code of SQLite
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


class SqliteConnection(sqlite3.Connection):
    """A connection to the file; see Connection for what its methods promise."""

    @cached_property
    def engine(self) -> Engine:
        from daemon.store.queries.session import engine_over  # 20 MiB, for the queries of people

        return engine_over(self, "sqlite://", begin="BEGIN")

    def lease_clock(self, own_time: int) -> int:
        return own_time

    def size(self) -> int:
        pages, _ = self._count_pages()
        return pages * self._page_size()

    def used(self) -> int:
        pages, free = self._count_pages()
        return (pages - free) * self._page_size()

    def shrink(self, least: int) -> int:
        pages, free = self._count_pages()
        unused_bytes = free * self._page_size()
        if unused_bytes < least or free * 4 < pages:
            return 0
        self._vacuum()
        return unused_bytes

    def rewrite(self, tables: Sequence[str]) -> None:
        # VACUUM removes free pages and the gaps in pages, the checkpoint their copies in the log
        self._vacuum()

    def _vacuum(self) -> None:
        (temp_store,) = self.execute("PRAGMA temp_store").fetchone()
        # the copy is as large as the database: too large for memory
        self.execute("PRAGMA temp_store = FILE")
        try:
            self.execute("VACUUM")
        finally:
            self.execute(f"PRAGMA temp_store = {temp_store}")
        self.truncate_log()

    def truncate_log(self) -> None:
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
    """Open the one connection that writes, and migrate the tables. Raises ConfigError."""
    check_sqlite(sqlite3.sqlite_version_info)
    try:
        # Before SQLite opens it: the WAL and its index get the mode of the database.
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
        # Deleted rows are overwritten; only Debian's SQLite does so by default.
        connection.execute("PRAGMA secure_delete = ON")
        # Pages, 16 MiB: most pages are written again and again, and copied once a checkpoint.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # Bytes to which a WAL that has grown is cut back.
        connection.execute("PRAGMA journal_size_limit = 16777216")
        check_features(connection)
        migrate(connection, path, migrations)
        _drop_statistics(connection)
    except sqlite3.Error as error:
        connection.close()
        if _primary_code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise _unusable(
                path, f"is damaged ({error})", "restore a backup, or move it away to start anew"
            ) from error
        raise explain(error, path) from error
    except UnicodeDecodeError as error:  # of a name in the schema
        connection.close()
        raise _unusable(
            path, f"is damaged ({error})", "restore a backup, or move it away to start anew"
        ) from error
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
    # No mmap: with it a read error of the disk is a SIGBUS, which would end the daemon.


def _drop_statistics(connection: sqlite3.Connection) -> None:
    """Drop what ANALYZE found out about the tables; versions up to 0.2.0 ran it each night.

    With the statistics of a young database SQLite takes a large table for a small one and reads all
    of it, and a connection keeps the statistics that it has read first for as long as it is open
    (https://sqlite.org/lang_analyze.html). Without them the plan of a statement is always the one
    that the tests check.
    """
    drop = "DROP TABLE IF EXISTS sqlite_stat1; DROP TABLE IF EXISTS sqlite_stat4;"
    names = "SELECT 1 FROM sqlite_master WHERE name IN ('sqlite_stat1', 'sqlite_stat4')"
    if connection.execute(names).fetchone():
        # Reading none again is how this connection forgets them, and makes an empty table.
        connection.executescript(f"{drop} ANALYZE sqlite_schema; {drop}")


def check_sqlite(version: tuple[int, ...]) -> None:
    """Raise ConfigError if this Python's SQLite is too old."""
    if version < MINIMUM_VERSION:
        version_text, least = ".".join(map(str, version)), ".".join(map(str, MINIMUM_VERSION))
        raise ConfigError(
            Fault(
                file="SQLite",
                key="",
                found=version_text,
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
    """Create the tables of a new database, or run the migrations that an older one lacks.

    The tables of a new one are in the folder `new`. Migrations are the files `NNN_name.sql`, in
    order, each with its record in one transaction. A released one is never edited: append another.
    """
    files_by_version = {
        int(file.name[:3]): file for file in sorted(migrations.glob("[0-9][0-9][0-9]_*.sql"))
    }
    _mark_as_ours(connection, path)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration"
        " (version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied INTEGER NOT NULL)"
    )
    applied_versions = {
        version for (version,) in connection.execute("SELECT version FROM migration")
    }
    new_folder = migrations / "new"
    if not applied_versions and new_folder.is_dir():
        _create_tables(connection, new_folder, files_by_version)
        return
    if newer := applied_versions - set(files_by_version):
        copies = sorted(path.parent.glob(f"{path.name}.before-upgrade-*"))
        copy = f", such as {copies[-1]}" if copies else ""
        raise _unusable(
            path,
            (
                f"was written by a newer version of agentd (schema {max(newer)}, this one knows "
                f"{max(files_by_version, default=0)})"
            ),
            f"install that version again, or put back a copy from before the upgrade{copy}",
        )
    missing_versions = sorted(set(files_by_version) - applied_versions)
    if applied_versions and missing_versions:
        copy_path = _copy_before_upgrade(connection, path, max(applied_versions))
        log.info(
            "database.upgraded",
            database=str(path),
            schema=max(missing_versions),
            was=max(applied_versions),
            copy=str(copy_path),
        )
    for version in missing_versions:
        file = files_by_version[version]
        _run_script(connection, file.read_text(encoding="utf-8"), {version: file})


def _create_tables(
    connection: sqlite3.Connection, new_folder: Path, files_by_version: dict[int, Path]
) -> None:
    """Create the tables of a new database as the newest version has them."""
    script = "\n".join(
        (new_folder / name).read_text(encoding="utf-8") for name in ("schema.sql", "index.sql")
    )
    _run_script(connection, script, files_by_version)


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


def _copy_before_upgrade(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    """Copy a database before it is migrated, so that the old version can be used again; return the
    copy. Only the latest one is kept.

    Raises ConfigError, before anything is changed, if the database is damaged or if there is no
    room for the copy.
    """
    try:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except UnicodeDecodeError as error:  # of a name that is damaged
        result = str(error)
    if result != "ok":
        raise _unusable(
            path, f"is damaged ({result})", "restore a backup, or move it away to start anew"
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
    return copy


def _mark_as_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a new file as one of agentd. Raises ConfigError if it is of another program."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION:
        return
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or table_count:
        raise _unusable(
            path,
            "is a database of another program, or damaged",
            "move it away, restore a backup, or choose another state folder",
        )
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


def _unusable(path: Path, problem: str, hint: str) -> ConfigError:
    return ConfigError(Fault(file=str(path), key="", found="", problem=problem, hint=hint))
