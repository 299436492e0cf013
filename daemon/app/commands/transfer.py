"""`agentd export` and `agentd import`: routines with their history, from one machine's journal to
another's, as lines of JSON.

The first line names the routines and the schema; each further line is a row of a table. An import
leaves alone what exists: it skips runs whose id is in the journal, and never overwrites the file of
a routine. Imported routines are paused, since the machine they came from may still run them.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.definitions.config.config import Config
from daemon.definitions.routines.folder import is_routine_file
from daemon.definitions.words import display, shorten
from daemon.errors import NotFound, Refused
from daemon.memory import index
from daemon.memory import transfer as memory
from daemon.models import Json, Status
from daemon.plurals import pluralize
from daemon.store import texts
from daemon.store.connection import Connection, placeholders
from daemon.store.lock import lock_state
from daemon.store.offline import open_for_writing, read_snapshot
from daemon.store.rows import decode

PAUSED = "it was imported; `agentctl resume` lets it go on once the other machine no longer runs it"
# Exported tables: those whose rows are of a run or a routine, and those of no routine, which are
# exported only with all routines.
_TABLES = (
    "definition", "run", "input", "step", "slot", "seen", "outbox", "told", "approval",
    "quarantine", "spending", "novelty",
)  # fmt: skip
_SHARED_TABLES = ("policy", "meta", "incident", "audit", "memory_tombstone")
# Columns that get new numbers in the journal that imports them.
_NUMBERED = {
    "slot": "id",
    "outbox": "id",
    "told": "id",
    "spending": "id",
    "incident": "id",
    "memory_tombstone": "id",
}
# Tables that are imported only if they are still empty: the audit is one chain of hashes, and rows
# of the others have no key by which a second import would find them.
_ONLY_IF_EMPTY = ("audit", "incident", "memory_tombstone")
_MEMORY_BATCH = 100  # items or archived runs


def export(
    state: Path,
    file: Path,
    config: Config,
    names: Sequence[str],
    *,
    progress: Callable[[float], None],
) -> int:
    """Write routines and their history to a new file; return how many runs.

    Raises NotFound for a routine that has neither a file nor a history.
    """
    from daemon.store.queries import export as rows  # with SQLModel, for this command alone

    with read_snapshot(state / "agentd.db", config.store_url(os.environ)) as snapshot:
        session = snapshot.session
        names_in_journal = rows.routine_names(session)
        files = {
            path.stem: path
            for path in sorted(config.routines_path.glob("*.toml"))
            if is_routine_file(path.name)
        }
        for name in names:
            if name not in names_in_journal and name not in files:
                raise NotFound(f"there is no routine {name!r}; agentctl list shows those there are")
        routines = list(names) or sorted(names_in_journal | files.keys())
        runs, policies, text_digests = 0, set[str](), set[bytes]()
        try:
            with os.fdopen(
                os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8"
            ) as out:
                schema = _schema(snapshot.connection)
                out.write(_line({"agentd": "export", "schema": schema, "routines": routines}))
                for number, name in enumerate(routines):
                    progress(number / len(routines))
                    if path := files.get(name):
                        out.write(_line({"routine": name, "toml": _read_routine(path)}))
                    for table, row in rows.rows_of_routine(session, name):
                        runs += table == "run"
                        if table == "step":
                            text_digests.update(texts.references(row["body"]))
                            if policy := _policy_of(row["body"]):
                                policies.add(policy)
                        out.write(_table_line(table, row))
                for table, row in rows.texts_of_prompts(session, sorted(text_digests)):
                    out.write(_table_line(table, row))
                if names:
                    for table, row in rows.policies(session, sorted(policies)):
                        out.write(_table_line(table, row))
                else:
                    for table, row in rows.shared_rows(session):
                        out.write(_table_line(table, row))
                    out.writelines(_memory_lines(snapshot.connection))
                out.flush()
                os.fsync(out.fileno())
        except FileExistsError:
            raise Refused(
                f"{file} is there already; an export never takes the place of another"
            ) from None
        except Refused:
            file.unlink(missing_ok=True)
            raise
        except OSError as error:
            file.unlink(missing_ok=True)
            raise Refused(f"{file} cannot be written: {error.strerror or error}") from error
        progress(1.0)
    return runs


def _read_routine(path: Path) -> str:
    """Return the text of a routine's file. Raises Refused if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Refused(f"{display(path)} cannot be read: {problem}") from None


def _policy_of(body: bytes) -> str:
    """Return the hash of the policy that judged a step; empty if none did, or it is damaged."""
    try:
        return str(decode(body).get("policy", ""))
    except (ValueError, zlib.error):
        return ""


def _memory_lines(connection: Connection) -> Iterator[str]:
    cursor: str | None = None
    while True:
        page = memory.export(connection, cursor)
        yield from (_line({"memory": line}) for line in page.lines)
        if (cursor := page.next_cursor) is None:
            return


class InvalidExport(Refused):
    """A file cannot be read as an export; the text names it."""


def import_file(
    file: Path, state: Path, config: Config, *, progress: Callable[[float], None]
) -> list[str]:
    """Import an export in one transaction; return what was done, a line for each thing.

    Raises StateBusy while a daemon holds the state folder.
    """
    report: list[str] = []
    try:
        with (
            lock_state(state),
            open_for_writing(state / "agentd.db", config.store_url(os.environ)) as journal,
        ):
            lines = _read_lines(file, progress)
            head = next(lines, {})
            if head.get("agentd") != "export":
                raise InvalidExport(f"{file} is no export of agentd")
            schema = _schema(journal)
            if head["schema"] > schema:
                raise InvalidExport(
                    f"{file} comes from a newer agentd (schema {head['schema']}, "
                    f"this one knows {schema})"
                )
            importer = _Importer(journal)
            for line in lines:
                if "toml" in line:
                    name, text = str(line["routine"]), str(line["toml"])
                    if name not in head["routines"]:  # which are paused below
                        raise ValueError(f"its first line does not name the routine {name!r}")
                    report.append(_write_routine(config.routines_path, name, text))
                elif "memory" in line:
                    importer.remember(line["memory"])
                else:
                    importer.insert(str(line["table"]), dict(line["row"]))
            importer.finish()
            _pause(journal, [str(name) for name in head["routines"]])
    except InvalidExport:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, Refused) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else shorten(str(error), 300)
        raise Refused(
            f"{file} cannot be taken in: {problem}; nothing of its history was kept"
        ) from error
    counts = ", ".join(pluralize(number, table) for table, number in importer.added.items())
    report.append(f"took in {counts}" if counts else "its history is here already")
    report.append("what was imported is paused; agentctl resume NAME, or --all, lets it go on")
    return report


class _Importer:
    """One import under way."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.added: dict[str, int] = {}
        self._existing_runs = {id_ for (id_,) in journal.execute("SELECT id FROM run")}
        self._runs = set(self._existing_runs)
        self._filled_tables = {
            table
            for table in _ONLY_IF_EMPTY
            if journal.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
        }
        self._columns: dict[str, list[str]] = {}
        self._memory: list[str] = []
        index.clear_if_outdated(journal)

    def insert(self, table: str, row: dict[str, Any]) -> None:
        """Add one row, if it is new. Rows of a run that is here already are not looked at."""
        if table == "text":
            self._insert_text(row)
            return
        if table not in _TABLES and table not in _SHARED_TABLES:
            raise ValueError(f"no table {table!r} is exported")
        if table in self._filled_tables or (
            table in _TABLES and self._is_of_existing_run(table, row)
        ):
            return
        if id_column := _NUMBERED.get(table):
            del row[id_column]
        if table == "run":
            if "status" in row and not Status(row["status"]).has_ended:
                # no export holds one: the daemon would go on with it
                raise ValueError(f"the run {row['id']} has not ended")
            self._runs.add(str(row["id"]))
        if table == "outbox" and row["status"] == "pending":
            row |= {
                "status": "failed",
                "next_at": None,
                "error": "held by an import: it may have arrived already",
            }
        if table == "told":
            # Its steps name the old number, so it would count as not received, and the next start
            # would answer it. Nothing else reads when it was sent.
            row["at"] = 0
        if table == "incident" and row["run_id"] not in self._runs:
            row["run_id"] = None
        names = [name for name in row if name in self._columns_of(table)]
        columns, marks = ", ".join(f'"{name}"' for name in names), placeholders(names)
        cursor = self._journal.execute(
            f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING",
            [_decode_bytes(row[name]) for name in names],
        )
        if cursor.rowcount:
            self.added[table] = self.added.get(table, 0) + 1

    def _insert_text(self, row: dict[str, Any]) -> None:
        """Insert a text of prompts. A damaged one is left out, as steps that refer to it show."""
        digest, column = _decode_bytes(row["digest"]), _decode_bytes(row["body"])
        # As used today: a daemon that shares the database may otherwise delete it at once, while
        # the steps that name it are not committed yet.
        day_of_use = max(int(row["used"]), texts.day_of(datetime.now(UTC)))
        with suppress(ValueError):
            texts.inflate_text(digest, column)
            texts.insert_texts(self._journal, [(digest, day_of_use, column)])

    def remember(self, line: Json) -> None:
        """Add a line of memory. Lines are imported in batches, as each of them is indexed."""
        self._memory.append(json.dumps(line))
        if len(self._memory) >= _MEMORY_BATCH:
            self.finish()

    def finish(self) -> None:
        """Import the lines of memory that were added and not imported yet."""
        counts = memory.import_rows(self._journal, memory.parse_lines(self._memory))
        self._memory.clear()
        if new := counts.items + counts.runs - counts.unchanged:
            self.added["memory"] = self.added.get("memory", 0) + new

    def _is_of_existing_run(self, table: str, row: dict[str, Any]) -> bool:
        return str(row["id"] if table == "run" else row.get("run_id")) in self._existing_runs

    def _columns_of(self, table: str) -> list[str]:
        if table not in self._columns:
            cursor = self._journal.execute(f"SELECT * FROM {table} LIMIT 0")
            self._columns[table] = [column[0] for column in cursor.description]
        return self._columns[table]


def _pause(journal: Any, names: Sequence[str]) -> None:
    """Pause routines. Those new to this journal get the schedule key `imported`, which the daemon
    replaces at its next start.
    """
    journal.executemany(
        "INSERT INTO routine (name, schedule_key, baseline, paused, paused_why) VALUES (?, "
        "'imported', 0, 1, ?)"
        " ON CONFLICT (name) DO UPDATE SET paused = 1, paused_until = NULL, paused_why = "
        "excluded.paused_why",
        [(name, PAUSED) for name in names],
    )


def _write_routine(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.toml"
    if path.name != f"{name}.toml" or not name or name.startswith("."):
        raise ValueError(f"{name!r} is no name of a routine")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(
            os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
    except FileExistsError:
        return f"left {path} as it is"
    return f"wrote {path}"


def _read_lines(file: Path, progress: Callable[[float], None]) -> Iterator[dict[str, Any]]:
    try:
        size, bytes_read = file.stat().st_size or 1, 0
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                bytes_read += len(line)
                if number % 1000 == 0:
                    progress(min(0.99, bytes_read / size))
                try:
                    value = json.loads(line)
                except RecursionError:
                    raise ValueError(f"line {number + 1} is nested too deeply") from None
                if not isinstance(value, dict):
                    raise ValueError(f"line {number + 1} is no object")  # noqa: TRY004  of the file, not of a caller
                yield value
        progress(1.0)
    except OSError as error:
        raise InvalidExport(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidExport(
            f"{file} is no whole export of agentd: {error}; nothing of its history was kept"
        ) from error


def _schema(journal: Any) -> int:
    return int(journal.execute("SELECT max(version) FROM migration").fetchone()[0])


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _table_line(table: str, row: dict[str, Any]) -> str:
    return _line({"table": table, "row": {name: _encode_bytes(row[name]) for name in row}})


def _encode_bytes(value: Any) -> Any:
    """Return a value of a row as JSON can hold it: bytes as an object with their base64."""
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decode_bytes(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
