"""The background maintenance of the journal: a check at start and daily, and old history deleted
daily.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from daemon.errors import StoreDamaged, StoreFull
from daemon.store.database import Database
from daemon.store.integrity import (
    PARTS,
    find_faults,
    indexes_to_renew,
    is_large,
    renew_index,
)
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
# The key of the number of the latest check of a part of a large database, so that daemons that are
# restarted more often than once a day get through all parts, too.
_CHECKED_PART = "integrity part"
_DAMAGE = "damaged"  # the cause of the incident
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
        await self._run_chore("examination", partial(self.check, is_start=True))
        while True:
            await self._run_chore("retention", self.apply_retention)
            await asyncio.sleep(DAY)
            await self._run_chore("examination", self.check)

    async def check(self, *, is_start: bool = False) -> None:
        """Open an incident if the database file is damaged: a person has to restore a backup.

        Only an index that does not agree with its table is renewed. Of a large database, the next
        of its parts is checked against its indexes, and with `is_start` all its pages. The files of
        a PostgreSQL server are the server's affair.
        """
        if self._database.shared:
            return
        path = self._database.path
        parts: list[int | None] = [None]  # a small database as a whole, of a large one the pages
        if await asyncio.to_thread(is_large, path):
            parts = [*(parts if is_start else []), await self._next_part()]

        async def look() -> list[str]:
            return [
                fault
                for part in parts
                for fault in await asyncio.to_thread(find_faults, path, part=part)
            ]

        faults = await look()
        renewed_indexes: set[str] = set()
        try:
            # one look names a limited number of faults, so that the next may name other indexes
            while names := set(indexes_to_renew(faults)) - renewed_indexes:
                for name in sorted(names):
                    await self._database.write(partial(renew_index, name=name), durable=True)
                    log.warning("database.index_renewed", index=name, why=faults[0])
                renewed_indexes |= names
                faults = await look()
        except (StoreDamaged, sqlite3.Error) as error:  # the rows are damaged, too
            faults.append(str(error))
        if faults:
            problem = (
                f"{self._database.path} is damaged: {faults[0]}; stop agentd and restore a backup"
            )
            log.critical("database.damaged", problem=problem)
            await self._journal.incidents.report(
                "database", problem, cause=_DAMAGE, advice="`agentctl doctor` looks again."
            )
        else:
            # that of a full disk has the same subject; one of before the start has nobody who
            # looks for room any more
            cause = None if is_start else _DAMAGE
            await self._journal.incidents.resolve("database", cause=cause)

    async def _next_part(self) -> int:
        """Return the number of the next part to check, and keep it for the check after it."""
        key_values, part = self._journal.key_values, 0
        with suppress(StoreFull):  # the same part once more is better than none
            latest = await key_values.get(_CHECKED_PART)
            if latest is not None and latest.isdecimal():
                part = (int(latest) + 1) % PARTS
            await key_values.put(_CHECKED_PART, str(part))
        return part

    async def apply_retention(self) -> None:
        """Delete what is older or larger than the limits, slice by slice; shrink the file if much
        of it is free and no run is executed.
        """
        limits, deleted_runs = self._limits(), 0
        if limits.reports is not None:
            await self._remove_reports(self._clock() - limits.reports, limits.file_targets)
        while count := await self._database.write(
            partial(delete_slice, limits=limits, now=self._clock())
        ):
            deleted_runs += count
            await asyncio.sleep(_PAUSE)
        if deleted_runs:
            self._journal.runs.drop_cached_successes()
        if limits.runs or limits.steps or limits.max_bytes:
            digests, before = await self._database.read(partial(find_old_texts, now=self._clock()))
            await self._database.write(partial(delete_texts, digests=digests, before=before))
        freed_bytes = 0
        if self._is_idle():
            freed_bytes = await self._database.run_outside_transaction(
                lambda connection: connection.shrink(MIN_FREED_BYTES)
            )
        if deleted_runs or freed_bytes:
            log.info("retention.applied", runs=deleted_runs, freed=freed_bytes)
        if limits.max_bytes is not None:
            used_bytes = await self._database.read(lambda connection: connection.used())
            if used_bytes > limits.max_bytes:
                log.warning(
                    "retention.too_large",
                    bytes=used_bytes,
                    limit=limits.max_bytes,
                    problem=(
                        "of the history only the newest runs are left, and the database is still "
                        "larger than [keep] max_mb: memory, slots and the audit log fill it"
                    ),
                    fix="a larger max_mb, or [memory] keep_runs",
                )

    async def _remove_reports(self, before: datetime, file_targets: Collection[str]) -> None:
        while True:
            reports, rewritten_paths = await self._database.read(
                partial(find_old_reports, before=before, file_targets=file_targets)
            )
            if not reports:
                return
            paths = [path for _, path in reports if path not in rewritten_paths]
            await asyncio.to_thread(_unlink, self._workspace, paths)
            await self._database.write(
                partial(mark_files_removed, reports=reports, rewritten_paths=rewritten_paths)
            )

    async def _run_chore(self, chore: str, function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except Exception:
            log.exception("maintenance.failed", chore=chore)


def _unlink(workspace: Path, paths: list[str]) -> None:
    """Remove files of the workspace; a path that leads out of it, by links too, is left alone."""
    for text in paths:
        path = Path(text)
        if not path.is_relative_to(workspace) or ".." in path.parts:
            continue
        parts = path.relative_to(workspace).parts
        with suppress(OSError), open_folder_beneath(workspace, parts[:-1], create=False) as folder:
            os.unlink(parts[-1], dir_fd=folder)
