"""What the control API needs of the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.api.context import Access, ApiContext
from daemon.api.schemas import CheckView, ProcessView, iso
from daemon.memory.erasure.erasure import Eraser
from daemon.models import Run, Status
from daemon.scheduler.cluster.requirements import describe_missing_worker

if TYPE_CHECKING:
    from daemon.app.parts import App


def api_context(app: App) -> ApiContext:
    """Return what the control API of `app` needs."""
    settings, store, runs = app.settings, app.store, app.runs
    engine = app.scheduling.engine

    def process() -> ProcessView:
        sandbox = app.tools.sandbox_detection.known
        return {
            "pid": os.getpid(),
            "started": iso(app.start),
            "config": str(settings.config.file),
            "state": str(app.installation.state),
            "socket": str(app.installation.socket),
            "zone": settings.zone.key,
            "provider": settings.config.provider,
            "sandbox": sandbox.level if sandbox else None,
            "log": str(app.installation.log_file),
            "fault": app.reloader.fault,
        }

    async def rename(old: str, new: str) -> list[str]:
        from daemon.app.commands.rename import rename

        dependents = await rename(engine, store.memory, settings.policy, old, new)
        await app.reloader.reload()
        return dependents

    async def check() -> Sequence[CheckView]:
        from daemon.app.doctor.command import examine

        installation = app.installation
        return await asyncio.to_thread(
            examine,
            settings.config,
            installation.state,
            installation.socket,
            installation.env,
        )

    def access() -> Access:
        control = settings.config.control
        return Access(
            operators=frozenset({os.getuid(), 0, *control.operators}),
            readers=frozenset(control.readers),
        )

    async def waits_for(active: Sequence[Run]) -> dict[str, str]:
        """Return what queued runs wait for that no process of the cluster has, by run."""
        queued = [run for run in active if run.status is Status.QUEUED and not run.not_before]
        if not app.cluster or not queued:
            return {}
        journal = store.journal
        workers = [worker for worker in await journal.workers() if worker.silent < journal.lease]
        reasons = {
            run.id: describe_missing_worker(await journal.definition(run.definition), workers)
            for run in queued
        }
        return {run: reason for run, reason in reasons.items() if reason}

    return ApiContext(
        version=__version__,
        journal=store.journal,
        engine=engine,
        executor=runs.queue,
        events=runs.events,
        clock=app.clock.now,
        process=process,
        reload=app.reloader.reload,
        rename=rename,
        adopt=app.scheduling.agent_routines.adopt,
        remove=app.scheduling.agent_routines.remove_for_person,
        check=check,
        words=engine.describe_schedule,
        elsewhere=engine.describe_host_mismatch,
        wake_outbox=app.delivery.outbox.wake,
        preview=runs.parts.preview,
        replays=lambda: runs.parts.replays,
        rehearsals=lambda: runs.parts.rehearsals,
        metrics=app.metrics,
        caps=lambda: (settings.config.budget.day, settings.config.budget.month),
        access=access,
        targets=lambda: settings.config.target_names,
        providers=lambda: settings.config.provider_names,
        log_file=app.installation.log_file,
        memory=store.memory,
        budget_ledger=runs.budget_ledger,
        approvals=runs.approvals,
        talk=runs.conversations,
        waits_for=waits_for,
        eraser=Eraser(
            store.memory,
            clock=app.clock.now,
            out_of_reach=[
                "backups of the database, and what was exported from it",
                f"the log, which names runs and faults: {app.installation.log_file.parent}",
                "what was sent to models and what tools did",
            ],
            on_erasure=store.journal.look_again,
        ),
    )
