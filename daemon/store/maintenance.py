"""The background maintenance of the journal: a check at start, then old history deleted daily."""

from __future__ import annotations

import asyncio
import os
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
from daemon.system.safe_open import folder_beneath

log = structlog.get_logger()

DAY = 86_400.0  # seconds
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
        """Check the database once, then delete what is too old every day."""
        await self._run_chore("examination", self.check)
        while True:
            await self._run_chore("retention", self.apply_retention)
            await asyncio.sleep(DAY)

    async def check(self) -> None:
        """Open an incident if the database file is damaged; a person has to restore a backup.

        The files of a PostgreSQL server are the server's affair.
        """
        if self._database.shared:
            return
        result = await asyncio.to_thread(check_file, self._database.path)
        if result != "ok":
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
        limits, deleted = self._limits(), 0
        if limits.reports is not None:
            await self._remove_reports(self._clock() - limits.reports)
        while count := await self._database.write(
            partial(delete_slice, limits=limits, now=self._clock())
        ):
            deleted += count
            await asyncio.sleep(_PAUSE)
        if deleted:
            self._journal.runs.drop_cached_successes()
        if limits != RetentionLimits(reports=limits.reports):
            digests, before = await self._database.read(partial(find_old_texts, now=self._clock()))
            await self._database.write(partial(delete_texts, digests=digests, before=before))
        freed = await self._database.run_outside_transaction(_shrink) if self._is_idle() else 0
        if deleted or freed:
            log.info("retention.applied", runs=deleted, freed=freed)

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


def check_file(path: Path) -> str:
    """Return the result of SQLite's quick_check: `ok`, or the first damage."""
    try:
        with closing(open_reader(path)) as connection:
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return str(result)


def _unlink(workspace: Path, paths: list[str]) -> None:
    """Remove files of the workspace; a path that leads out of it, by links too, is left alone."""
    for text in paths:
        path = Path(text)
        if not path.is_relative_to(workspace) or ".." in path.parts:
            continue
        parts = path.relative_to(workspace).parts
        with suppress(OSError), folder_beneath(workspace, parts[:-1], create=False) as folder:
            os.unlink(parts[-1], dir_fd=folder)


def _shrink(connection: Connection) -> int:
    return connection.shrink(MIN_FREED_BYTES)
