"""The background tasks of a daemon and of a worker, by name.

`tasks_before_routines` and `tasks_after_ready` list all of them but those that belong to a server:
the control socket, the webhook socket and the public port.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from daemon.app.definition_watcher import watch_zone
from daemon.app.memory import retention_of
from daemon.errors import DaemonError, StateLost, StoreFull
from daemon.system.intervals import until_next_multiple
from daemon.system.notify import Notifier
from daemon.system.tasks import cancel_and_wait, run_as_task

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.app.parts import App, DeliveryServices, Store
    from daemon.chat.inbound import ChatInbound
    from daemon.definitions.config.config import Config
    from daemon.memory.maintenance import MemoryMaintenance
    from daemon.policy.policy import LivePolicy, Observation
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.database import Database
    from daemon.store.maintenance import JournalMaintenance
    from daemon.store.retention import RetentionLimits
    from daemon.system.clock import Clock

log = structlog.get_logger()

# Seconds until a task is started again that the machine had no room for, or whose database did not
# answer.
RETRY_SECONDS = 10.0
# Seconds: programs that waited for READY send their requests now, and get answers before the tasks
# keep the processors busy.
PAUSE_AFTER_READY = 0.1
# Seconds after the start: a daemon that is stopped again at once needs no doctor.
EXAMINATION_DELAY = 10.0
# Seconds between two looks at the state folder.
STATE_CHECK_SECONDS = 30.0
# Seconds between two looks for trials of the policy that have ended: a reload may bring others.
TRIAL_CHECK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundTask:
    """A task that runs until the daemon stops, or until it has finished."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]


class BackgroundTasks:
    """The background tasks of this process, in its task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, tasks: Iterable[BackgroundTask]) -> None:
        for task in tasks:
            work = run_as_task(run_with_retries(task), task.name)
            self._tasks.append(self._group.create_task(work, name=task.name))

    async def stop(self) -> None:
        """Cancel the tasks and wait for their ends."""
        await cancel_and_wait(self._tasks)


def tasks_before_routines(app: App) -> list[BackgroundTask]:
    """Return the tasks that begin before the routines are read."""
    tasks = [
        BackgroundTask(name="watchdog", run=Notifier(app.installation.env).feed_watchdog),
        BackgroundTask(name="database", run=partial(watch_database, app.store.database)),
    ]
    if app.cluster:
        tasks += [
            BackgroundTask(name=name, run=run) for name, run in app.cluster.background_tasks()
        ]
    else:
        tasks.append(BackgroundTask(name="outbox", run=app.delivery.outbox.run))
    return tasks


def tasks_after_ready(app: App, reload_now: Callable[[], None]) -> list[BackgroundTask]:
    """Return the tasks that wait until the process is ready.

    Imports the modules that the tasks need, so that a failing import is raised before any of the
    tasks has started.
    """
    tasks = [
        BackgroundTask(name="imports and tool descriptions", run=partial(_load_for_runs, app)),
        BackgroundTask(name="sandbox detection", run=app.tools.sandbox_detection.detect_early),
    ]
    if app.cluster:
        tasks.append(
            BackgroundTask(name="loading of embeddings", run=partial(_load_embeddings, app))
        )
    if app.role == "worker":
        return tasks
    tasks.append(
        BackgroundTask(name="state folder", run=partial(watch_state, app.installation.state))
    )
    zone_watch = partial(watch_zone, reload_now, env=app.installation.env)
    tasks.append(BackgroundTask(name="time zone", run=zone_watch))
    if not app.cluster:
        tasks += maintenance_tasks(
            app.installation, app.settings, app.clock, app.store, app.delivery, app.runs.queue
        )
        tasks += chat_tasks(app.chat_inbound)
    if app.settings.config.memory.mirror:
        from daemon.memory.markdown_mirror import FOLDER, NAME, Mirror

        folder, old_file = app.installation.state / FOLDER, app.installation.workspace / NAME
        if old_file.exists():
            log.warning("memory.mirror_moved", old=str(old_file), new=str(folder / NAME))
        mirror = Mirror(
            app.store.memory,
            folder,
            app.store.journal.key_values,
            clock=app.clock.now,
            directory_watcher=app.scheduling.directory_watcher,
        )
        tasks.append(BackgroundTask(name="memory mirror", run=mirror.run))
    tasks.append(BackgroundTask(name="doctor", run=partial(_examine_installation, app)))
    return tasks


def chat_tasks(chats: Iterable[ChatInbound]) -> list[BackgroundTask]:
    """Return the tasks that read chats: one process of a database does."""
    return [BackgroundTask(name=f"chat {chat.name}", run=chat.run) for chat in chats]


def maintenance_tasks(
    installation: Installation,
    settings: LiveSettings,
    clock: Clock,
    store: Store,
    delivery: DeliveryServices,
    queue: LocalRunQueue,
) -> list[BackgroundTask]:
    """Return the tasks that keep memory and the journal in order, and send the digest."""
    from daemon.delivery.digest import Digest

    memory, journal = make_maintenance(installation, settings, clock, store, queue)
    digest = Digest(store.journal, delivery.outbox, clock=clock, settings=settings)
    return [
        BackgroundTask(name="memory maintenance", run=memory.run),
        BackgroundTask(name="journal maintenance", run=journal.run),
        BackgroundTask(name="digest", run=digest.run),
        BackgroundTask(name="trials of the policy", run=partial(watch_trials, settings, clock)),
    ]


def make_maintenance(
    installation: Installation,
    settings: LiveSettings,
    clock: Clock,
    store: Store,
    queue: LocalRunQueue,
) -> tuple[MemoryMaintenance, JournalMaintenance]:
    """Return what keeps memory and the journal in order, by the config in force."""
    from daemon.memory.maintenance import MemoryMaintenance
    from daemon.store.maintenance import JournalMaintenance

    memory = MemoryMaintenance(
        store.memory, clock=clock.now, retention=lambda: retention_of(settings.config)
    )
    journal = JournalMaintenance(
        store.database,
        store.journal,
        clock=clock.now,
        limits=lambda: _retention_limits(settings.config),
        workspace=installation.workspace,
        is_idle=lambda: not queue.running,
    )
    return memory, journal


def _retention_limits(config: Config) -> RetentionLimits:
    """Return how long the journal keeps runs, steps and reports, and its largest size."""
    from daemon.store.retention import RetentionLimits

    keep = config.keep
    max_bytes = keep.max_mb and keep.max_mb * 1_000_000
    paths = {name: target.path or "" for name, target in config.targets.items()}
    return RetentionLimits(
        runs=keep.runs,
        steps=keep.steps,
        reports=keep.reports,
        max_bytes=max_bytes,
        file_targets=frozenset(
            name for name, path in paths.items() if "{slot" in path or "{run}" in path
        ),
    )


async def start_tasks_after_ready(
    app: App, background: BackgroundTasks, reload_now: Callable[[], None]
) -> None:
    """Start the tasks that wait until the daemon is ready.

    `reload_now` is called when the time zone of the host has changed.
    """

    async def start() -> None:
        background.start(tasks_after_ready(app, reload_now))

    await asyncio.sleep(PAUSE_AFTER_READY)
    await run_with_retries(BackgroundTask(name="start of the tasks after READY", run=start))


async def run_with_retries(task: BackgroundTask) -> None:
    """Run a task; start it again after RETRY_SECONDS while the machine lacks files, processes or
    disk space for it (OSError, StoreFull).
    """
    was_logged = False
    while True:
        try:
            await task.run()
        except (OSError, StoreFull, ExceptionGroup) as error:
            cause: Exception = error
            if isinstance(error, ExceptionGroup):  # of a task that has tasks of its own
                transient_errors, other_errors = error.split((OSError, StoreFull))
                if transient_errors is None or other_errors is not None:
                    raise
                while isinstance(cause, ExceptionGroup):
                    cause = cause.exceptions[0]
            if not was_logged:
                log.warning(
                    "background_task.retry_scheduled",
                    task=task.name,
                    detail=str(cause),
                    seconds=RETRY_SECONDS,
                )
            was_logged = True
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def watch_database(database: Database) -> None:
    """Raise what `Database.wait_for_failure` does, and log a database that is gone."""
    try:
        await database.wait_for_failure()
    except StateLost:
        log.error("state.lost", state=str(database.path.parent))  # noqa: TRY400  no traceback helps here
        raise


async def watch_state(folder: Path, *, check_every: float = STATE_CHECK_SECONDS) -> None:
    """Raise StateLost once the lock or the database of a state folder is gone or another file.

    A second daemon could start in its place, and what this one writes would be lost.
    """
    first_files = _files_of_state(folder)
    while True:
        await asyncio.sleep(until_next_multiple(check_every))
        if _files_of_state(folder) != first_files:
            log.error("state.lost", state=str(folder))
            raise StateLost(str(folder))


async def watch_trials(
    settings: LivePolicy, clock: Clock, *, check_every: float = TRIAL_CHECK_SECONDS
) -> None:
    """Log the end of each trial of a routine (`mode = "observe"`) once, until cancelled."""
    logged_trials: set[Observation] = set()
    while True:
        now = clock.now()
        for name in settings.policy.routines:
            trial = settings.policy.observation_of(name)
            if trial is not None and trial.is_over(now) and trial not in logged_trials:
                logged_trials.add(trial)
                log.warning(
                    "policy.observe_ended",
                    routine=name,
                    until=f"{trial.until:%Y-%m-%dT%H:%M:%S%z}",
                    fix=f"agentctl policy suggest {name}",
                )
        await asyncio.sleep(until_next_multiple(check_every))


def _files_of_state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return device and inode of the files by which a state folder is known, where they are."""
    files = {}
    for name in ("agentd.lock", "agentd.db"):
        with suppress(FileNotFoundError, NotADirectoryError):
            status = (folder / name).stat()
            files[name] = status.st_dev, status.st_ino
    return files


async def _load_for_runs(app: App) -> None:
    """Import what only runs need, before an upgrade on disk can mix two versions in one process."""
    await asyncio.to_thread(import_for_runs)
    await asyncio.to_thread(app.tools.registry.make_schemas)


def import_for_runs() -> None:
    """Import what only runs need."""
    import daemon.memory.recall
    import daemon.runs.context
    import daemon.runs.rehearsal.rehearsals
    import daemon.runs.run  # noqa: F401


async def _load_embeddings(app: App) -> None:
    """Load the embeddings, which one process of the cluster makes and each process searches."""
    memory = app.store.memory
    while memory.embedding_index:
        try:
            await memory.embedding_index.load(memory.memory_store)
            break
        except DaemonError as error:  # the database is away, and comes back
            log.warning("memory.embeddings_load_failed", detail=str(error))
            await asyncio.sleep(RETRY_SECONDS)


async def _examine_installation(app: App) -> None:
    """Run `agentd doctor` once, and log each check that is not ok.

    The doctor runs in a process of its own, as the daemon may never need what it imports, and some
    seconds after the start, as the tasks above use the processor until then.
    """
    await asyncio.sleep(EXAMINATION_DELAY)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "daemon.app.main",
        "doctor",
        "--json",
        f"--config={os.fspath(app.settings.config.file)}",
        f"--state={os.fspath(app.installation.state)}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:  # the daemon is being stopped
            process.kill()
            await process.wait()  # before the event loop that watches the process is closed
    try:
        checks = json.loads(output)["checks"]
    except (ValueError, KeyError):
        log.warning("doctor.crashed", exit=process.returncode)
        return
    for check in checks:
        if check["state"] != "ok":
            write = log.warning if check["state"] == "fail" else log.info
            write(
                "doctor.found",
                check=check["name"],
                state=check["state"],
                found=check["found"],
                fix=check["fix"],
            )
    log.info("doctor.looked", checks=len(checks))
