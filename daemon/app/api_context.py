"""What the control API needs of the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.api.context import ApiContext, LiveAccess, ProcessFacts
from daemon.api.schemas import CheckView, ReloadView
from daemon.memory.erasure.erasure import Forgetting

if TYPE_CHECKING:
    from daemon.app.parts import App


@dataclass(frozen=True, slots=True)
class AppAdministration:
    """Do for the API what takes the whole application."""

    app: App

    @property
    def fault(self) -> str | None:
        return self.app.reloader.fault

    async def reload(self) -> ReloadView:
        return await self.app.reloader.reload()

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
        )


def api_context(app: App) -> ApiContext:
    """Return what the control API of `app` needs."""
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
        administration=AppAdministration(app),
        journal=store.journal,
        memory=store.memory,
        erasure=Forgetting(
            store.memory,
            clock=app.clock.now,
            out_of_reach=[
                "backups of the database, and what was exported from it",
                f"the log, which names runs and faults: {installation.log_file.parent}",
                "what was sent to models and what tools did",
            ],
            when_forgotten=store.journal.runs.forget_cached_successes,
        ),
        events=runs.events,
        metrics=app.metrics,
        outbox=app.delivery.outbox,
        sandbox_detection=app.tools.sandbox_detection,
        engine=app.scheduling.engine,
        agent_routines=app.scheduling.agent_routines,
        queue=runs.queue,
        runs=runs.parts,
        budget_ledger=runs.budget_ledger,
        approvals=runs.approvals,
        conversations=runs.conversations,
        in_cluster=app.cluster is not None,
    )
