"""The background maintenance of the journal: a check at start and daily, and old history deleted
daily.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from daemon.store.connection import Connection, open_reader
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.store.retention import (
    MIN_FREED_BYTES,
    RetentionLimits,
    delete_slice,
    find_old_reports,
    find_old_texts,
    mark_files_removed,
)
from daemon.store.texts import delete_texts
from daemon.system.safe_open import open_folder_beneath

log = structlog.get_logger()

DAY = 86_400.0  # seconds
# Bytes up to which a whole database is checked against its indexes at once: that takes a second.
# Of a larger one a seventh of the tables is, every day.
SMALL_DATABASE = 64_000_000
DAYS_OF_A_ROUND = 7
# Faults that are read of one check.
_MAX_FAULTS = 100
# Faults of an index alone, as SQLite words them: the rows are whole, and the index is made of them.
_INDEX_FAULT = re.compile(
    r"(?:row \d+ missing from|wrong # of entries in|non-unique entry in) index (\w+)"
)
_PAUSE = 0.05  # seconds between two slices, in which other works are written


class JournalMaintenance:
    """Examine the journal once and delete what is too old every day, as long as `run` runs."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        *,
        clock: Callable[[], datetime],
        limits: Callable[[], RetentionLimits],
        workspace: Path,
        is_idle: Callable[[], bool],
    ) -> None:
        """`limits` returns those in force now; `is_idle` whether no run is executed now."""
        self._database, self._journal, self._clock = database, journal, clock
        self._limits, self._workspace, self._is_idle = limits, workspace, is_idle

    async def run(self) -> None:
        """Check the database, then delete what is too old and check again every day."""
        await self._run_chore("examination", self.check)
        for day in itertools.count():
            await self._run_chore("retention", self.apply_retention)
            await asyncio.sleep(DAY)
            await self._run_chore("examination", partial(self.check, day))

    async def check(self, day: int | None = None) -> None:
        """Open an incident if the database file is damaged: a person has to restore a backup.

        Only an index that does not agree with its table is renewed. Of a large database, the tables
        of `day` are checked against their indexes, none for None. The files of a PostgreSQL server
        are the server's affair.
        """
        if self._database.shared:
            return
        path = self._database.path
        faults = await asyncio.to_thread(find_faults, path, day)
        indexes = {match[1] for fault in faults if (match := _INDEX_FAULT.fullmatch(fault))}
        if indexes and all(map(_INDEX_FAULT.fullmatch, faults)):
            for index in sorted(indexes):
                await self._database.write(partial(_renew_index, name=index), durable=True)
                log.warning("database.index_renewed", index=index, why=faults[0])
            faults = await asyncio.to_thread(find_faults, path, day)
        if faults:
            result = faults[0]
            problem = (
                f"{self._database.path} is damaged: {result}; stop agentd and restore a backup"
            )
            log.critical("database.damaged", problem=problem)
            await self._journal.incidents.report(
                "database", problem, cause="damaged", advice="`agentctl doctor` looks again."
            )
        else:
            await self._journal.incidents.resolve("database")

    async def apply_retention(self) -> None:
        """Delete what is older or larger than the limits, slice by slice; shrink the file if much
        of it is free and no run is executed.
        """
        limits, deleted_runs = self._limits(), 0
        if limits.reports is not None:
            await self._remove_reports(self._clock() - limits.reports)
        while count := await self._database.write(
            partial(delete_slice, limits=limits, now=self._clock())
        ):
            deleted_runs += count
            await asyncio.sleep(_PAUSE)
        if deleted_runs:
            self._journal.runs.drop_cached_successes()
        if limits != RetentionLimits(reports=limits.reports):
            digests, before = await self._database.read(partial(find_old_texts, now=self._clock()))
            await self._database.write(partial(delete_texts, digests=digests, before=before))
        freed_bytes = (
            await self._database.run_outside_transaction(_shrink) if self._is_idle() else 0
        )
        if deleted_runs or freed_bytes:
            log.info("retention.applied", runs=deleted_runs, freed=freed_bytes)

    async def _remove_reports(self, before: datetime) -> None:
        while reports := await self._database.read(partial(find_old_reports, before=before)):
            await asyncio.to_thread(_unlink, self._workspace, [path for _, path in reports])
            await self._database.write(
                partial(mark_files_removed, deliveries=[id_ for id_, _ in reports])
            )

    async def _run_chore(self, chore: str, function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except Exception:
            log.exception("maintenance.failed", chore=chore)


def find_faults(path: Path, day: int | None = None) -> list[str]:
    """Return what SQLite finds wrong with a database; empty if it is whole.

    A small database is checked as a whole. Of a large one the pages are (quick_check), or with
    `day` the tables that are due on that day, with their indexes (integrity_check).
    """
    try:
        with closing(open_reader(path)) as connection:
            if connection.size() <= SMALL_DATABASE:
                checks = [f"integrity_check({_MAX_FAULTS})"]
            elif day is None:
                checks = [f"quick_check({_MAX_FAULTS})"]
            else:
                tables = connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
                ).fetchall()
                due_tables = tables[day % DAYS_OF_A_ROUND :: DAYS_OF_A_ROUND]
                checks = [f"integrity_check('{table}')" for (table,) in due_tables]
            rows = [
                str(row[0]) for check in checks for row in connection.execute(f"PRAGMA {check}")
            ]
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a name that is damaged
        return [str(error)]
    return [row for row in rows if row != "ok"]


def _renew_index(connection: Connection, name: str) -> None:
    connection.execute(f'REINDEX "{name}"')


def _unlink(workspace: Path, paths: list[str]) -> None:
    """Remove files of the workspace; a path that leads out of it, by links too, is left alone."""
    for text in paths:
        path = Path(text)
        if not path.is_relative_to(workspace) or ".." in path.parts:
            continue
        parts = path.relative_to(workspace).parts
        with suppress(OSError), open_folder_beneath(workspace, parts[:-1], create=False) as folder:
            os.unlink(parts[-1], dir_fd=folder)


def _shrink(connection: Connection) -> int:
    return connection.shrink(MIN_FREED_BYTES)
