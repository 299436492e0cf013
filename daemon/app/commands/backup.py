"""A copy of everything a daemon knows, in one file, and the way back.

The copy is an SQLite database: the journal as it was at one moment, and in a table of its own the
files that people wrote (config, policy, routines) and those of the state folder. It is taken while
the daemon runs, by SQLite's own way of doing that. Keys that lie in files of their own are not in
it, nor is the workspace.

What comes back stands still: every routine is paused until a person says `agentctl resume --all`,
runs that were under way are over and reports that were on their way are held, so that two machines
never both act.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from daemon.definitions.config.config import Config
from daemon.errors import ConfigError, Fault, Refused
from daemon.store.connection import APPLICATION
from daemon.store.lock import lock_state
from daemon.store.rows import to_microseconds

# What a state folder holds besides the database; logs and workspace are left where they are.
_OF_STATE = ("approvals.toml", "overlay.toml", "routines.d/*.toml")
_PAGES = 500  # copied at a time, some 2 MB: between two steps the daemon writes
HELD = "it came from a backup; `agentctl resume --all` lets everything go on"

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


def backup(
    state: Path, file: Path, config: Config | None, *, progress: Callable[[float], None]
) -> int:
    """Write the copy and return its size; Refused if the file is there, ConfigError if there is
    nothing to copy.
    """
    database = state / "agentd.db"
    if not database.is_file():
        raise ConfigError(
            Fault(
                file=str(database),
                key="",
                found="",
                problem="is not there: nothing to back up",
                hint="see --state",
            )
        )
    draft = file.with_name(f".{file.name}.part")
    if file.exists():
        raise Refused(f"{file} is there already; a backup never takes the place of another")
    draft.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _copy(database, draft, progress)
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")
            _check(copy, draft)
            copy.executescript(_TABLES)
            _add_files(copy, state, config)
        _sync(draft)
        os.link(draft, file)  # a rename would overwrite what somebody put there meanwhile
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise Refused(f"{file} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return file.stat().st_size


def _copy(source: Path, target: Path, progress: Callable[[float], None]) -> None:
    """Copy a database as it is at one moment."""

    def report(_status: int, remaining: int, total: int) -> None:
        progress(1 - remaining / total if total else 1.0)

    address = f"{source.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=15)) as original,
        closing(sqlite3.connect(target)) as copy,
    ):
        # in a transaction, else the copy would begin anew with each write of a daemon
        original.execute("BEGIN")
        original.execute("SELECT count(*) FROM migration").fetchone()
        original.backup(copy, pages=_PAGES, progress=report)


def _add_files(copy: sqlite3.Connection, state: Path, config: Config | None) -> None:
    """Put the files that people wrote into the copy, and when and where it was made."""
    files = list(_files(state, config))
    copy.execute("BEGIN")
    copy.executemany("INSERT INTO backup_file VALUES (?, ?, ?)", files)
    facts = {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": os.uname().nodename,
        "state": str(state),
    }
    copy.executemany("INSERT INTO backup VALUES (?, ?)", facts.items())
    copy.execute("COMMIT")


def _files(state: Path, config: Config | None) -> Iterator[tuple[str, str, bytes]]:
    """Yield (root, path, body) of the files that people wrote; the root is `state` or `config`."""
    for pattern in _OF_STATE:
        for path in sorted(state.glob(pattern)):
            yield "state", path.relative_to(state).as_posix(), path.read_bytes()
    if config is None:
        return
    yield "config", "config.toml", config.file.read_bytes()
    if config.policy_path.is_file():
        yield "config", "policy.toml", config.policy_path.read_bytes()
    for path in sorted(config.routines_path.glob("*.toml")):
        yield "config", f"routines/{path.name}", path.read_bytes()


def restore(
    file: Path,
    state: Path,
    *,
    definitions: Path | None = None,
    now: datetime | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[str]:
    """Restore a backup; return what was done, a line for each fact.

    The earlier database is set aside, not overwritten. Definitions are written to the folder
    `definitions`, if it is given, and never over a file. Raises StateBusy while a daemon holds the
    state folder.
    """
    moment = now or datetime.now(UTC)
    with lock_state(state):
        report = []
        database, draft = state / "agentd.db", state / "agentd.db.part"
        draft.unlink(missing_ok=True)
        try:
            taken_at, files = _prepare(file, draft, moment, progress)
            if database.exists():
                earlier = state / f"agentd.db.before-restore-{moment:%Y%m%dT%H%M%S}"
                _write_log_back(database)
                database.replace(earlier)
                report.append(f"what was there is now {earlier}")
            for name in ("agentd.db-wal", "agentd.db-shm"):
                (state / name).unlink(missing_ok=True)
            draft.replace(database)
            _sync(state)
        except OSError as error:
            raise Refused(f"{state} cannot be written: {error.strerror or error}") from error
        finally:
            draft.unlink(missing_ok=True)
        report.insert(0, f"restored what was backed up at {taken_at}")
        roots = {"state": state}
        if definitions:
            roots["config"] = definitions
        report += _write_files(files, roots)
    return report


def _prepare(
    file: Path, draft: Path, now: datetime, progress: Callable[[float], None]
) -> tuple[str, list[tuple[str, str, bytes]]]:
    """Make the database that is restored; return when the backup was taken, and its files."""
    if not file.is_file():
        raise Refused(f"{file} is not there")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        _copy(file, draft, progress)
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            _check(copy, file)
            files = copy.execute("SELECT place, path, body FROM backup_file").fetchall()
            (taken_at,) = copy.execute("SELECT value FROM backup WHERE key = 'taken'").fetchone()
            copy.execute("PRAGMA foreign_keys = ON")
            copy.execute("BEGIN")
            for statement in _PAUSE_ALL.strip().split(";\n"):
                copy.execute(statement, {"why": HELD, "now": to_microseconds(now)})
            copy.execute("DROP TABLE backup_file")
            copy.execute("DROP TABLE backup")
            copy.execute("COMMIT")
    except sqlite3.Error as error:
        raise Refused(f"{file} is no backup of agentd: {error}") from error
    _sync(draft)
    return str(taken_at), files


def _write_files(files: list[tuple[str, str, bytes]], roots: dict[str, Path]) -> list[str]:
    """Write the files of a backup below their roots; return what was done with each."""
    report, skipped = [], 0
    for root, path, body in files:
        target = roots[root] / path if root in roots else None
        if target is None or ".." in Path(path).parts or Path(path).is_absolute():
            skipped += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(
                os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb"
            ) as file:
                file.write(body)
            report.append(f"wrote {target}")
        except FileExistsError:
            report.append(f"left {target} as it is")
    if skipped:
        report.append(
            f"{skipped} definitions are in the backup too: --definitions DIR writes them where "
            "nothing is"
        )
    return report


def _check(copy: sqlite3.Connection, file: Path) -> None:
    """Refused unless it is a whole database of ours."""
    if copy.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
        raise Refused(f"{file} is no backup of agentd")
    (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise Refused(f"{file} is damaged: {verdict}")


def _write_log_back(database: Path) -> None:
    """Write the write-ahead log back into the file that is set aside, unless it is damaged."""
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
