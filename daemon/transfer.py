"""Routines with their history, as lines of JSON: out of one machine's journal and into another's.

The first line says what follows and by which schema; each further one is a row of a table. What is there already is
left alone: a run is known by its id, a routine's file is never overwritten. Imported routines are paused, since the
machine they came from may still run them.
"""

# ruff: noqa: S608  what is put into statements are constants of this room; values are bound
from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from daemon.config import Config
from daemon.errors import NotFound, Refused
from daemon.store.connection import open_reader, open_writer
from daemon.store.database import MIGRATIONS
from daemon.store.lock import lock_state

PAUSED = "it was imported; `agentctl resume` lets it go on once the other machine no longer runs it"
_ENDED = "status NOT IN ('queued', 'running', 'waiting')"
_OURS = f"FROM run WHERE routine = :name AND {_ENDED}"
_RUN = f"run_id IN (SELECT id {_OURS})"
# Parents before children; each by the name of its routine.
_TABLES = {
    "definition": f"SELECT * FROM definition WHERE hash IN (SELECT definition {_OURS})",
    "run": f"SELECT * {_OURS} ORDER BY id",
    "input": f"SELECT * FROM input WHERE {_RUN}",
    "step": f"SELECT * FROM step WHERE {_RUN} ORDER BY run_id, seq",
    "slot": f"SELECT * FROM slot WHERE routine = :name AND (run_id IS NULL OR {_RUN}) ORDER BY first",
    "seen": "SELECT * FROM seen WHERE routine = :name",
    "outbox": f"SELECT * FROM outbox WHERE {_RUN} ORDER BY id",
}
# These get new numbers where they arrive.
_NUMBERED = {"slot": "id", "outbox": "id"}


def export(state: Path, file: Path, config: Config, names: Sequence[str], *, progress: Callable[[float], None]) -> int:
    """Write routines and their history to a new file; return how many runs. NotFound for a routine nobody knows."""
    with closing(open_reader(state / "agentd.db")) as journal:
        journal.execute("BEGIN")
        journal.row_factory = sqlite3.Row
        known = {name for (name,) in journal.execute("SELECT name FROM routine UNION SELECT routine FROM run")}
        files = {path.stem: path for path in sorted(config.routines_path.glob("*.toml"))}
        for name in names:
            if name not in known and name not in files:
                raise NotFound(f"there is no routine {name!r}; agentctl list shows those there are")
        wanted = list(names) or sorted(known | files.keys())
        runs = 0
        try:
            with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as out:
                out.write(_line({"agentd": "export", "schema": _schema(journal), "routines": wanted}))
                for number, name in enumerate(wanted):
                    progress(number / len(wanted))
                    if path := files.get(name):
                        out.write(_line({"routine": name, "toml": path.read_text("utf-8")}))
                    for table, query in _TABLES.items():
                        for row in journal.execute(query, {"name": name}):
                            runs += table == "run"
                            out.write(_line({"table": table, "row": {key: _plain(row[key]) for key in row.keys()}}))  # noqa: SIM118
                out.flush()
                os.fsync(out.fileno())
        except FileExistsError:
            raise Refused(f"{file} is there already; an export never takes the place of another") from None
        except OSError as error:
            file.unlink(missing_ok=True)
            raise Refused(f"{file} cannot be written: {error.strerror or error}") from error
        progress(1.0)
    return runs


def take_in(file: Path, state: Path, config: Config, *, progress: Callable[[float], None]) -> list[str]:
    """Take in an export, in one transaction; return what was done, in words. StateBusy while a daemon lives there."""
    with lock_state(state), closing(open_writer(state / "agentd.db", MIGRATIONS)) as journal:
        lines = _lines(file, progress)
        head = next(lines, {})
        if head.get("agentd") != "export":
            raise Refused(f"{file} is no export of agentd")
        if head["schema"] > (ours := _schema(journal)):
            raise Refused(f"{file} comes from a newer agentd (schema {head['schema']}, this one knows {ours})")
        done: list[str] = []
        added: dict[str, int] = {}
        journal.execute("BEGIN IMMEDIATE")
        try:
            there = {id_ for (id_,) in journal.execute("SELECT id FROM run")}
            for line in lines:
                if "toml" in line:
                    done.append(_write_routine(config.routines_path, str(line["routine"]), str(line["toml"])))
                elif _insert(journal, str(line["table"]), dict(line["row"]), there):
                    added[str(line["table"])] = added.get(str(line["table"]), 0) + 1
            _pause(journal, [str(name) for name in head["routines"]])
            journal.execute("COMMIT")
        except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
            journal.execute("ROLLBACK")
            raise Refused(f"{file} cannot be taken in: {error}; nothing of its history was kept") from error
    counts = ", ".join(f"{number} {table}{'s' if number > 1 else ''}" for table, number in added.items())
    done.append(f"took in {counts}" if counts else "its history is here already")
    done.append("what was imported is paused; agentctl resume NAME, or --all, lets it go on")
    return done


def _insert(journal: sqlite3.Connection, table: str, row: dict[str, Any], there: set[str]) -> bool:
    """Add one row; return whether it was new. Rows of a run that is here already are not looked at."""
    if table not in _TABLES:
        raise ValueError(f"no table {table!r} is exported")
    if str(row["id"] if table == "run" else row.get("run_id")) in there:
        return False
    if number := _NUMBERED.get(table):
        del row[number]
    if table == "outbox" and row["status"] == "pending":
        row |= {"status": "failed", "next_at": None, "error": "held by an import: it may have arrived already"}
    columns = {name for _, name, *_ in journal.execute(f"PRAGMA table_info({table})")}
    names = [name for name in row if name in columns]
    values = [_back(row[name]) for name in names]
    marks, written = ", ".join("?" * len(names)), ", ".join(f'"{name}"' for name in names)
    added = journal.execute(f"INSERT OR IGNORE INTO {table} ({written}) VALUES ({marks})", values)
    return bool(added.rowcount)


def _pause(journal: sqlite3.Connection, names: Sequence[str]) -> None:
    """Pause routines, also those the daemon here has never seen; it gives them their schedule at its next start."""
    journal.executemany(
        "INSERT INTO routine (name, schedule_key, baseline, paused, paused_why) VALUES (?, 'imported', 0, 1, ?)"
        " ON CONFLICT (name) DO UPDATE SET paused = 1, paused_until = NULL, paused_why = excluded.paused_why",
        [(name, PAUSED) for name in names],
    )


def _write_routine(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.toml"
    if path.name != f"{name}.toml" or not name or name.startswith("."):
        raise ValueError(f"{name!r} is no name of a routine")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        return f"left {path} as it is"
    return f"wrote {path}"


def _lines(file: Path, progress: Callable[[float], None]) -> Iterator[dict[str, Any]]:
    try:
        size, read = file.stat().st_size or 1, 0
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                read += len(line)
                if number % 1000 == 0:
                    progress(min(0.99, read / size))
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise ValueError(f"line {number + 1} is no object")  # noqa: TRY004  of the file, not of a caller
                yield found
        progress(1.0)
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{file} is no whole export of agentd: {error}; nothing of its history was kept") from error


def _schema(journal: sqlite3.Connection) -> int:
    return int(journal.execute("SELECT max(version) FROM migration").fetchone()[0])


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _back(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
