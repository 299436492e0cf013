"""What arrives without the clock: files that come to rest, and runs that others come after.

It is taken down the moment it happens and answered when the ledger is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from daemon.models import Run
from daemon.scheduler.slot_ledger import Ledger
from daemon.scheduler.triggers import Triggers
from daemon.store.journal import Journal
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.system.settled_files import Watcher
from daemon.system.watch import DirectoryWatcher

# A ledger that could not be written (a full disk) is tried again so much later.
RETRY = 60.0
DAY = 86_400.0


class PendingTriggers:
    """Hears of files and of ends, and has the triggers start runs."""

    def __init__(
        self,
        ledger: Ledger,
        triggers: Triggers,
        journal: Journal,
        workspace: Path,
        directory_watcher: DirectoryWatcher,
        *,
        look_again: Callable[[str, datetime], None],
    ) -> None:
        self._ledger, self._triggers, self._journal = ledger, triggers, journal
        self._look_again = look_again
        self._watcher = Watcher(workspace, self.look, directory_watcher)
        self._files = CoalescingQueue("file claims", self._take_files, retry=RETRY)
        self._ends = CoalescingQueue(
            "chain claims", self._answer_ends, retry=RETRY, session=ledger.open
        )
        self._ended: dict[str, Run] = {}
        """Runs whose end others come after."""
        self._tidied: dict[str, float] = {}

    def watch(self) -> None:
        """Watch the folders that the routines of now name."""
        self._watcher.watch(self._triggers.watches)

    def look(self, name: str) -> None:
        """Have the folders of a routine looked at."""
        self._files.add(name)

    def heard_end(self, run: Run) -> None:
        """Take note of a run's end, before whoever waits for it hears of it."""
        if run.routine in self._triggers.children:
            self._ended[run.id] = run
            self._ends.add(run.id)
        if run.routine in self._triggers.watches:  # files may wait for it
            self._files.add(run.routine)

    def close(self) -> None:
        """Hear nothing more."""
        self._watcher.close()

    async def stop(self) -> None:
        """Finish the claims under way."""
        await self._files.stop()
        await self._ends.stop()

    async def _take_files(self, names: Sequence[str]) -> None:
        """Look at watched folders, and start runs for what has come to rest."""
        for name in names:
            await self._forget_files(name)
            files = await self._watcher.look(name, await self._journal.slots.get_seen_files(name))
            if not files:
                continue
            async with self._ledger.open():
                again = (
                    await self._triggers.files(name, files)
                    if name in self._triggers.watches
                    else None
                )
            if again:
                self._look_again(name, again)

    async def _forget_files(self, name: str) -> None:
        """Once a day, drop what is known of files that are long gone."""
        now = asyncio.get_running_loop().time()
        if now - self._tidied.get(name, -DAY) >= DAY:
            self._tidied[name] = now
            await self._triggers.forget_files(name, await self._watcher.present(name))

    async def _answer_ends(self, ids: Sequence[str]) -> None:
        for run_id in ids:
            if run := self._ended.get(run_id):
                await self._triggers.ended(run)
                del self._ended[run_id]
