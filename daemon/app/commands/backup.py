"""`agentd backup` and `agentd restore`: everything a daemon knows, in one file.

A backup is an SQLite database: the journal as it was at one moment, and in a table of its own the
files that people wrote (config, policy, routines, skills, tools, scripts and the texts about the
agent) and those of the state folder. SQLite's online backup copies it while the daemon runs. Keys
in files of their own are not in it, nor is the workspace.

After a restore every routine is paused until a person says `agentctl resume --all`, runs that were
under way are interrupted, and reports that were not delivered are held, so that two machines never
both act.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path, PurePath, PurePosixPath

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import IDENTITY_FILES
from daemon.definitions.routines.folder import is_routine_file
from daemon.definitions.words import display, shorten
from daemon.errors import Refused
from daemon.memory.markdown_mirror import FOLDER as MIRROR_FOLDER
from daemon.memory.markdown_mirror import NAME as MIRROR_NAME
from daemon.store.connection import APPLICATION
from daemon.store.database import MIGRATIONS
from daemon.store.incidents import waiting_subject
from daemon.store.lock import lock_state
from daemon.store.readable import require_database_file
from daemon.store.rows import to_microseconds

# Files of a state folder that are backed up besides the database: not logs, and not the workspace.
_STATE_FILES = ("approvals.toml", "overlay.toml", "routines.d/*.toml")
_PAGES_PER_STEP = 500  # some 2 MB: the daemon can write between two steps
PAUSED = "it came from a backup; `agentctl resume --all` lets everything go on"

# `place` is `state` or `config`, for the folder below which `path` lies.
_TABLES = """
CREATE TABLE backup (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE backup_file (place TEXT NOT NULL, path TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (place, path));
"""  # noqa: E501

_PAUSE_ALL = """
UPDATE routine SET paused = 1, paused_until = NULL, paused_why = :why;
INSERT INTO meta (key, value) VALUES ('hold', :why) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
UPDATE run SET status = 'interrupted', ended = coalesce(ended, :now), fence = fence + 1, owner = NULL,
    lease_until = NULL, detail = 'it was under way when the backup was taken'
WHERE status IN ('queued', 'running', 'waiting');
UPDATE outbox SET status = 'failed', next_at = NULL, error = 'held by a restore: it may have arrived already'
WHERE status = 'pending';
"""  # noqa: E501

# Nobody has to answer the questions of these runs, or hears that they were not answered. Backups of
# the first versions have no such tables.
_VOID_QUESTIONS = {
    "approval": (
        "UPDATE approval SET status = 'void', decided = :now"
        " WHERE status IN ('pending', 'approved')"
    ),
    "incident": (
        "UPDATE incident SET closed = :now"
        " WHERE closed IS NULL AND substr(subject, 1, :length) = :subject"
    ),
}
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
# What acts although `_PAUSE_ALL` was executed.
_IS_ACTIVE = """
SELECT EXISTS (SELECT 1 FROM routine WHERE paused IS NOT 1 OR paused_until IS NOT NULL)
    OR NOT EXISTS (SELECT 1 FROM meta WHERE key = 'hold')
    OR EXISTS (SELECT 1 FROM run WHERE status IN ('queued', 'running', 'waiting'))
    OR EXISTS (SELECT 1 FROM outbox WHERE status = 'pending')
"""


def backup(
    state: Path, file: Path, config: Config | None, *, progress: Callable[[float], None]
) -> int:
    """Write a backup and return its size; raise Refused if the file exists, ConfigError if there is
    no database.
    """
    database = state / "agentd.db"
    require_database_file(database, "nothing to back up")
    temporary_file = file.with_name(f".{file.name}.part")
    if file.exists():
        raise Refused(f"{file} is there already; a backup never takes the place of another")
    temporary_file.unlink(missing_ok=True)
    try:
        os.close(os.open(temporary_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _copy(database, temporary_file, progress)
        with closing(sqlite3.connect(temporary_file, isolation_level=None)) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")
            _check(copy, temporary_file)
            copy.executescript(_TABLES)
            _add_files(copy, state, config)
        _sync(temporary_file)
        os.link(temporary_file, file)  # a rename would overwrite what somebody put there meanwhile
    except OSError as error:
        # A file of the state or of the definitions, which is read in between, or the backup itself.
        source = Path(os.fsdecode(error.filename)) if error.filename else temporary_file
        if source != temporary_file:
            raise Refused(f"{source} cannot be read: {error.strerror}") from error
        raise Refused(f"{file} cannot be written: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise Refused(f"{file} cannot be written: {error}") from error
    finally:
        temporary_file.unlink(missing_ok=True)
    return file.stat().st_size


def _copy(source: Path, target: Path, progress: Callable[[float], None]) -> None:
    """Copy a database as it is at one moment; `progress` gets the share that is done, 0 to 1.

    Raises Refused if the source cannot be opened.
    """

    def report(_status: int, remaining: int, total: int) -> None:
        progress(1 - remaining / total if total else 1.0)

    address = f"{source.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=15)) as original,
        closing(sqlite3.connect(target)) as copy,
    ):
        # in a transaction, else the copy would begin anew with each write of a daemon
        try:
            original.execute("BEGIN")
            original.execute("SELECT count(*) FROM migration").fetchone()
        except UnicodeDecodeError as error:  # the message of a fault quotes a damaged schema
            raise Refused(f"{source} cannot be read: its schema is damaged") from error
        except sqlite3.OperationalError as error:
            hint = ""
            if error.sqlite_errorcode in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                # In WAL mode even a reader makes the files agentd.db-wal and agentd.db-shm.
                hint = (
                    f"; SQLite writes files beside it to read it: run this as the user of agentd, "
                    f"with a {display(source.parent)} that can be written"
                )
            raise Refused(f"{source} cannot be read: {error}{hint}") from error
        original.backup(copy, pages=_PAGES_PER_STEP, progress=report)


def _add_files(copy: sqlite3.Connection, state: Path, config: Config | None) -> None:
    """Add the files that people wrote to the backup, and when and where it was made."""
    files = list(_files(state, config))
    copy.execute("BEGIN")
    copy.executemany("INSERT INTO backup_file VALUES (?, ?, ?)", files)
    origin = {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": os.uname().nodename,
        "state": str(state),
    }
    copy.executemany("INSERT INTO backup VALUES (?, ?)", origin.items())
    copy.execute("COMMIT")


def _files(state: Path, config: Config | None) -> Iterator[tuple[str, str, bytes]]:
    """Yield (place, path, body) of the files that people wrote, as `_TABLES` has them."""
    for pattern in _STATE_FILES:
        for path in sorted(state.glob(pattern)):
            yield "state", path.relative_to(state).as_posix(), path.read_bytes()
    if config is None:
        return
    yield "config", "config.toml", config.file.read_bytes()
    if config.policy_path.is_file():
        policy_name = _name_below(config.policy, "policy.toml")
        yield "config", policy_name, config.policy_path.read_bytes()
    for path in sorted(config.routines_path.glob("*.toml")):
        if is_routine_file(path.name):
            folder_name = _name_below(config.routines, "routines")
            yield "config", f"{folder_name}/{path.name}", path.read_bytes()
    for name in IDENTITY_FILES:
        if (config.folder / name).is_file():
            yield "config", name, (config.folder / name).read_bytes()
    for name, folder in (
        ("skills", config.folder / "skills"),
        ("tools", config.folder / "tools"),
        (_name_below(config.scripts, "scripts"), config.scripts_path),
    ):
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            if path.is_file() and not any(part.startswith((".", "__")) for part in inner.parts):
                yield "config", f"{name}/{inner.as_posix()}", path.read_bytes()


def _name_below(setting: str, default: str) -> str:
    """Return where a file or folder that config.toml names lies below its folder; `default` for one
    that lies elsewhere.
    """
    path = PurePosixPath(setting)
    is_elsewhere = path.is_absolute() or ".." in path.parts or setting.startswith("~")
    return default if is_elsewhere else path.as_posix()


def restore(
    file: Path,
    state: Path,
    *,
    definitions: Path | None = None,
    now: datetime | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[str]:
    """Restore a backup; return what was done, a line for each thing.

    The earlier database is set aside, not overwritten. Definitions are written to the folder
    `definitions`, if it is given, and never over a file. Raises StateBusy while a daemon holds the
    state folder.
    """
    moment = now or datetime.now(UTC)
    folders = {"state": state}
    if definitions:
        folders["config"] = definitions
    with lock_state(state):
        report = []
        database, temporary_file = state / "agentd.db", state / "agentd.db.part"
        temporary_file.unlink(missing_ok=True)
        try:
            time_row, files = _prepare(file, temporary_file, moment, progress)
            _check_links(files, folders)
            if database.exists():
                old_database = _free_path(
                    state / f"agentd.db.before-restore-{moment:%Y%m%dT%H%M%S}"
                )
                _checkpoint(database)
                database.replace(old_database)
                log = state / "agentd.db-wal"
                if log.exists():  # whoever reads the database keeps it from being emptied
                    log.replace(f"{old_database}-wal")
                report.append(f"what was there is now {old_database}")
            mirror = state / MIRROR_FOLDER / MIRROR_NAME
            if mirror.exists():  # what it has would be taken for edits of a person
                old_mirror = _free_path(
                    mirror.with_name(f"{MIRROR_NAME}.before-restore-{moment:%Y%m%dT%H%M%S}")
                )
                mirror.replace(old_mirror)
                report.append(f"{MIRROR_NAME} is now {old_mirror}; a start makes it anew")
            for name in ("agentd.db-wal", "agentd.db-shm"):
                (state / name).unlink(missing_ok=True)
            temporary_file.replace(database)
            _sync(state)
        except OSError as error:
            raise Refused(f"{state} cannot be written: {error.strerror or error}") from error
        finally:
            temporary_file.unlink(missing_ok=True)
        report.insert(0, f"restored what was backed up at {time_row}")
        report += _write_files(files, folders)
    return report


def _prepare(
    file: Path, temporary_file: Path, now: datetime, progress: Callable[[float], None]
) -> tuple[str, list[tuple[str, str, bytes]]]:
    """Make the database that takes the place of the journal; return when the backup was taken, and
    its files.
    """
    if not file.is_file():
        raise Refused(f"{file} is not there")
    os.close(os.open(temporary_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        _copy(file, temporary_file, progress)
        with closing(sqlite3.connect(temporary_file, isolation_level=None)) as copy:
            _check(copy, file)
            _check_version(copy, file)
            if copy.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger'").fetchone():
                # it could end the pause, in which all is that comes from a backup
                raise Refused(f"{file} is no backup of agentd: it holds a trigger of SQLite")
            files = copy.execute("SELECT place, path, body FROM backup_file").fetchall()
            time_row = copy.execute("SELECT value FROM backup WHERE key = 'taken'").fetchone()
            if time_row is None:
                raise Refused(f"{file} is no backup of agentd: it does not say when it was taken")
            for row in files:
                _check_file(row, file)
            copy.execute("PRAGMA foreign_keys = ON")
            copy.execute("BEGIN")
            for statement in _PAUSE_ALL.strip().split(";\n"):
                copy.execute(statement, {"why": PAUSED, "now": to_microseconds(now)})
            subject = waiting_subject("")  # the beginning of each
            values = {"now": to_microseconds(now), "subject": subject, "length": len(subject)}
            for table, statement in _VOID_QUESTIONS.items():
                if copy.execute(_HAS_TABLE, (table,)).fetchone():
                    copy.execute(statement, values)
            if copy.execute(_IS_ACTIVE).fetchone() != (0,):
                # a table may say of itself that some changes of its rows are ignored
                raise Refused(f"{file} is no backup of agentd: what it holds cannot be paused")
            copy.execute("DROP TABLE backup_file")
            copy.execute("DROP TABLE backup")
            copy.execute("COMMIT")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what it says in detail
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            problem = f"{file} cannot be read, or {temporary_file.parent} not written: {error}"
            raise Refused(problem) from error
        raise Refused(f"{file} is no backup of agentd: {error}") from error
    _sync(temporary_file)
    return shorten(str(time_row[0])), files


def _check_file(row: tuple[object, object, object], backup_file: Path) -> None:
    """Raise Refused for a file that no backup of ours holds."""
    place, path, body = row
    is_whole = isinstance(place, str) and isinstance(path, str) and isinstance(body, bytes)
    if not is_whole or "\0" in str(path) or ".." in Path(str(path)).parts:
        shown_path = shorten(str(path))
        raise Refused(
            f"{backup_file} is no backup of agentd: it holds a file {shown_path} that is none"
        )
    # `match` looks at the end of a path only
    is_allowed = any(
        PurePath(str(path)).match(pattern) and str(path).count("/") == pattern.count("/")
        for pattern in _STATE_FILES
    )
    if place == "state" and not is_allowed:
        shown_path = shorten(str(path))
        raise Refused(
            f"{backup_file} is no backup of agentd: it holds {shown_path} of a state folder"
        )


def _check_links(files: list[tuple[str, str, bytes]], folders: dict[str, Path]) -> None:
    """Raise Refused if a link inside a folder would have a file written outside of it."""
    for place, path, _ in files:
        if place not in folders or Path(path).is_absolute():
            continue
        folder = folders[place].resolve()
        parent = (folder / path).parent
        if not parent.resolve().is_relative_to(folder):
            raise Refused(
                f"{shorten(str(parent), 300)} leads out of {display(folder)} by a link: nothing is "
                "restored; name a folder without such links, and copy from there"
            )


def _free_path(path: Path) -> Path:
    """Return a path at which nothing is: that one, or one with a number."""
    number, free_path = 1, path
    while os.path.lexists(free_path):
        number += 1
        free_path = path.with_name(f"{path.name}-{number}")
    return free_path


def _write_files(files: list[tuple[str, str, bytes]], folders: dict[str, Path]) -> list[str]:
    """Write the files of a backup into the folders of their places; return what was done with
    each.
    """
    report, skipped_count = [], 0
    for place, path, body in files:
        target = folders[place] / path if place in folders else None
        if target is None or ".." in Path(path).parts or Path(path).is_absolute():
            skipped_count += 1
            continue
        mode = 0o700 if body.startswith((b"#!", b"\x7fELF")) else 0o600  # programs, such as scripts
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(
                os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb"
            ) as file:
                file.write(body)
            report.append(f"wrote {display(target)}")
        except FileExistsError:
            report.append(f"left {display(target)} as it is")
        except OSError as error:
            name = shorten(str(target), 300)
            report.append(f"could not write {name}: {error.strerror}")
    if skipped_count:
        report.append(
            f"{skipped_count} definitions are in the backup too: --definitions DIR writes them "
            "where nothing is"
        )
    return report


def _check(copy: sqlite3.Connection, file: Path) -> None:
    """Raise Refused unless it is an undamaged database of agentd."""
    if copy.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
        raise Refused(f"{file} is no backup of agentd")
    (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise Refused(f"{file} is damaged: {verdict}")


def _check_version(copy: sqlite3.Connection, file: Path) -> None:
    """Raise Refused if this version cannot work with a database: it would be refused at the start,
    with the earlier one set aside.
    """
    (schema,) = copy.execute("SELECT max(version) FROM migration").fetchone()
    newest = max(int(migration.name[:3]) for migration in MIGRATIONS.glob("[0-9][0-9][0-9]_*.sql"))
    if not isinstance(schema, int):
        raise Refused(f"{file} is no backup of agentd: it does not say of which version it is")
    if schema > newest:
        raise Refused(
            f"{file} was written by a newer version of agentd (schema {schema}, this one knows "
            f"{newest}): install that version first"
        )


def _checkpoint(database: Path) -> None:
    """Write the write-ahead log into the database that is set aside, unless it is damaged."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error:
        return


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
