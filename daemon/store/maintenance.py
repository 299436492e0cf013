"""What is done for the journal in the background: it is looked through at start, and old history
goes day by day.
"""

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

from daemon.store.connection import open_reader
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.store.retention import (
    LEAST_TO_GIVE_BACK,
    Keep,
    let_go_some,
    old_reports,
    unused_texts,
    without_files,
)
from daemon.store.statements import Connection
from daemon.store.texts import drop
from daemon.system.safe_open import folder_beneath

log = structlog.get_logger()

DAY = 86_400.0
_PAUSE = 0.05  # between slices others write


class JournalMaintenance:
    """Keep the journal in order for as long as `run` runs."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        *,
        clock: Callable[[], datetime],
        keep: Callable[[], Keep],
        workspace: Path,
        idle: Callable[[], bool],
    ) -> None:
        """`idle` says whether nothing runs just now."""
        self._database, self._journal, self._clock, self._keep = database, journal, clock, keep
        self._workspace, self._idle = workspace, idle

    async def run(self) -> None:
        """Look through the database once, and let go of what is old day by day."""
        await self._do("examination", self.examine)
        while True:
            await self._do("retention", self.let_go)
            await asyncio.sleep(DAY)

    async def examine(self) -> None:
        """Say so if the database is damaged; a person has to restore a backup then.

        A server looks after its own.
        """
        if self._database.shared:
            return
        verdict = await asyncio.to_thread(verdict_on, self._database.path)
        if verdict != "ok":
            problem = (
                f"{self._database.path} is damaged: {verdict}; stop agentd and restore a backup"
            )
            log.critical("database.damaged", problem=problem)
            await self._journal.incidents.report(
                "database", problem, cause="damaged", advice="`agentctl doctor` looks again."
            )
        else:
            await self._journal.incidents.resolve("database")

    async def let_go(self) -> None:
        """Delete what is older than it is to be, slice by slice; give room back if there is much
        and nothing runs.
        """
        keep, gone = self._keep(), 0
        if keep.reports is not None:
            await self._remove_reports(self._clock() - keep.reports)
        while some := await self._database.write(
            partial(let_go_some, keep=keep, now=self._clock())
        ):
            gone += some
            await asyncio.sleep(_PAUSE)
        if gone:
            self._journal.runs.forget_cached_successes()
        if keep != Keep(reports=keep.reports):
            unused, before = await self._database.read(partial(unused_texts, now=self._clock()))
            await self._database.write(partial(drop, digests=unused, before=before))
        freed = await self._database.run_outside_transaction(_shrink) if self._idle() else 0
        if gone or freed:
            log.info("history.let_go", runs=gone, freed=freed)

    async def _remove_reports(self, before: datetime) -> None:
        while found := await self._database.read(partial(old_reports, before=before)):
            await asyncio.to_thread(_unlink, self._workspace, [path for _, path in found])
            await self._database.write(partial(without_files, deliveries=[id_ for id_, _ in found]))

    async def _do(self, chore: str, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except Exception:
            log.exception("upkeep.failed", chore=chore)


def verdict_on(path: Path) -> str:
    """Return what SQLite says of a database: `ok`, or the first thing that is wrong."""
    try:
        with closing(open_reader(path)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return str(verdict)


def _unlink(workspace: Path, paths: list[str]) -> None:
    """Remove files of the workspace; what leads out of it by now is none of ours."""
    for text in paths:
        path = Path(text)
        if not path.is_relative_to(workspace) or ".." in path.parts:
            continue
        parts = path.relative_to(workspace).parts
        with suppress(OSError), folder_beneath(workspace, parts[:-1], create=False) as folder:
            os.unlink(parts[-1], dir_fd=folder)


def _shrink(connection: Connection) -> int:
    return connection.shrink(LEAST_TO_GIVE_BACK)
