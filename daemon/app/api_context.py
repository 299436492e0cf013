"""What the control API needs of the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.api.context import ApiContext, LiveAccess, ProcessFacts
from daemon.api.schemas import CheckView, ReloadView
from daemon.memory.erasure.erasure import Eraser

if TYPE_CHECKING:
    from daemon.app.definition_watcher import DefinitionWatcher
    from daemon.app.parts import App
    from daemon.definitions.reading import CrossFieldCheck
    from daemon.definitions.routines.routine import RoutineDefinition


@dataclass(frozen=True, slots=True)
class AppAdministration:
    """Do for the API what takes the whole application."""

    app: App
    watcher: DefinitionWatcher | None = None
    """What knows which files have changed; None where nothing watches them."""

    @property
    def fault(self) -> str | None:
        return self.app.reloader.fault

    async def reload(self) -> None:
        await self.app.reloader.reload()

    async def take_up_changes(self) -> None:
        if self.watcher:
            await self.watcher.take_up_changes()

    async def reload_by_request(self) -> ReloadView:
        return await self.app.reloader.reload_by_request()

    async def reload_if_valid(self) -> None:
        await self.app.reloader.reload_if_valid()

    def routine_checks(self) -> Sequence[CrossFieldCheck[RoutineDefinition]]:
        return self.app.reloader.routine_checks()

    def recipe_files(self) -> Mapping[str, Path]:
        from daemon.app.commands.recipes import find_recipes

        return find_recipes()

    async def rename(self, old: str, new: str) -> list[str]:
        from daemon.app.commands.rename import rename

        app = self.app
        dependents = await rename(
            app.scheduling.engine, app.store.memory, app.settings.policy, old, new
        )
        await app.reloader.reload()
        return dependents

    async def examine(self) -> Sequence[CheckView]:
        from daemon.app.doctor.command import examine

        installation = self.app.installation
        return await asyncio.to_thread(
            examine,
            self.app.settings.config,
            installation.state,
            installation.socket,
            installation.env,
            own_tools=self.app.tools.own,
        )


def api_context(app: App, watcher: DefinitionWatcher | None = None) -> ApiContext:
    """Return what the control API of `app` needs; `watcher` watches its definitions."""
    installation, store, runs = app.installation, app.store, app.runs
    return ApiContext(
        version=__version__,
        process=ProcessFacts(
            pid=os.getpid(),
            start=app.start,
            state=installation.state,
            socket=installation.socket,
            log_file=installation.log_file,
        ),
        access=LiveAccess(app.settings),
        settings=app.settings,
        clock=app.clock,
        administration=AppAdministration(app, watcher),
        journal=store.journal,
        memory=store.memory,
        erasure=Eraser(
            store.memory,
            clock=app.clock.now,
            out_of_reach=[
                "backups of the database, and what was exported from it",
                f"the log, which names runs and faults: {installation.log_file.parent}",
                "what was sent to models and what tools did",
            ],
            on_erasure=store.journal.runs.drop_cached_successes,
        ),
        events=runs.events,
        metrics=app.metrics,
        outbox=app.delivery.outbox,
        sandbox_detection=app.tools.sandbox_detection,
        mcp_servers=app.tools.mcp_servers,
        engine=app.scheduling.engine,
        agent_routines=app.scheduling.agent_routines,
        queue=runs.queue,
        runs=runs.parts,
        budget_ledger=runs.budget_ledger,
        approvals=runs.approvals,
        conversations=runs.conversations,
        in_cluster=app.cluster is not None,
    )
