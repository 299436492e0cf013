"""The life of the process: serve until a signal stops it, take runs of a cluster as a worker, or
run one routine and end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import structlog

from daemon.api.listener import open_listener
from daemon.api.server import ApiServer
from daemon.app.api_context import api_context
from daemon.app.background import (
    BackgroundTask,
    BackgroundTasks,
    start_tasks_after_ready,
    tasks_after_ready,
    tasks_before_routines,
)
from daemon.app.definition_watcher import DefinitionWatcher
from daemon.app.parts import App
from daemon.app.self_description import memory_seeds
from daemon.definitions.routines.folder import FolderContents
from daemon.errors import ConfigError, DaemonError, Fault
from daemon.models import Json, Run, Status, new_id
from daemon.scheduler.routine_times import schedule_of
from daemon.scheduler.slots import may_resume
from daemon.scheduler.triggers import input_by_hand
from daemon.system.notify import Notifier
from daemon.system.tasks import run_as_task
from daemon.system.timer import clock_watcher
from daemon.tools.builtin.subagent import SUBAGENT

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.api.context import ApiContext
    from daemon.api.public import PublicServer

log = structlog.get_logger()

# The key, in the table `meta` of the journal, of when a daemon was stopped last.
STOPPED_AT = "stopped_at"
# Seconds between looks at a run that a worker may have taken: no event of it reaches this process.
POLL_SECONDS = 1.0
# Seconds in which a process ends after one of its parts has failed, whatever else hangs.
FAILURE_SECONDS = 10.0
# Seconds that a stop may take beyond the grace of the runs: each writes how far it came, see
# GRACE_SECONDS of runs/run.py.
STOP_SECONDS = 90.0


def no_limit(_seconds: float) -> None:
    """Let the end take as long as it does: for a caller whose process has other work."""


async def serve(
    app: App,
    announce: Callable[[App], Awaitable[None]],
    *,
    limit_end: Callable[[float], None] = no_limit,
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the definitions again, or stops a daemon whose
    terminal was closed.

    `announce` is called when the daemon is ready, `limit_end` when it begins to end, with the
    seconds after which the process is to be ended whatever it does.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    notifier = Notifier(app.installation.env)
    config, engine, queue = app.settings.config, app.scheduling.engine, app.runs.queue
    listener = open_listener(
        app.installation.socket, app.installation.env, group=config.control.group
    )
    # systemd may hold the socket at another path
    app = replace(app, installation=replace(app.installation, socket=listener.path))
    watcher = _definition_watcher(app, notifier)
    api = api_context(app, watcher)
    server = ApiServer(api, listener)

    def request_stop() -> None:
        # of the config in force: a reload may have changed it
        limit_end(app.settings.config.daemon.grace.total_seconds() + STOP_SECONDS)
        if stop.is_set():  # Ctrl-C once more: do not wait for the runs
            app.tasks.create_task(queue.stop(0), name="stop without grace")
        stop.set()

    was_at_terminal = os.isatty(0)

    def handle_hang_up() -> None:
        if was_at_terminal and not os.isatty(0):
            log.info("daemon.terminal_closed")
            request_stop()
        else:
            watcher.reload_now()

    async with _tasks_of(app, limit_end):
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, request_stop)
        # before anything here starts a run or writes to one: both read what an earlier process left
        earlier_runs = await app.store.journal.runs.recover(app.store.owner)
        await app.runs.conversations.load_messages()
        background = BackgroundTasks(app.tasks)
        if app.cluster:
            await app.cluster.prepare()
        background.start(tasks_before_routines(app))
        await app.store.memory.seed(
            memory_seeds(app.installation, config, app.store.database, app.tools.registry)
        )
        definition_folders = await watcher.note_files()
        contents = await _load_routines(app)
        # not before the routines and their states are read: a request that came earlier waits in
        # the socket's queue, instead of being told that there are none
        await engine.load_with_states(contents)
        serving = app.tasks.create_task(
            run_as_task(_serve(server, stop), "the control socket"), name="control socket"
        )
        waiting_runs = [
            run
            for run in await app.store.journal.runs.find_active()
            if run.status is Status.WAITING
        ]
        queue.hold_parked(waiting_runs)
        # runs of an earlier process go first: they have waited longest
        await queue.submit_all(await _runs_to_resume(app, earlier_runs))
        with suppress(DaemonError):  # a full disk: the next start tries it again
            await app.runs.conversations.answer_messages_left()
        background.start([BackgroundTask(name="expiry of approvals", run=app.runs.approvals.run)])
        await engine.start(contents)
        background.start([BackgroundTask(name="lateness", run=engine.watch_lateness)])
        await app.scheduling.webhooks.open()
        await server.ready()
        public = await _open_public_port(app, api)
        watcher.start(definition_folders)
        loop.add_signal_handler(signal.SIGHUP, handle_hang_up)
        if was_at_terminal and not os.isatty(0):  # closed while SIGHUP was still ignored
            handle_hang_up()
        notifier.send("READY=1", f"STATUS={len(engine.routines)} routines")
        start_tasks = partial(start_tasks_after_ready, app, background, watcher.reload_now)
        background.start([BackgroundTask(name="start of the tasks after READY", run=start_tasks)])
        if app.cluster:
            app.cluster.take_runs(contents.routines.values(), engine.is_for_this_host)
        await announce(app)
        await stop.wait()
        notifier.send("STOPPING=1")
        log.info("daemon.stopping", runs=len(queue.running))
        watcher.close()
        app.scheduling.webhooks.stop()
        if public:
            public.stop()
        await engine.stop()
        await _drain(app)
        with suppress(DaemonError):  # a full disk: the runs say as much as after a crash
            await app.store.journal.key_values.put(STOPPED_AT, app.clock.now().isoformat())
        server.stop()
        await serving
        await background.stop()
        if app.cluster:
            await app.cluster.leave()


async def work(
    app: App,
    announce: Callable[[App], Awaitable[None]],
    *,
    limit_end: Callable[[float], None] = no_limit,
) -> None:
    """Run what daemons on the same database start, until SIGTERM or SIGINT; SIGHUP reads the
    definitions again.

    `announce` and `limit_end` are those of `serve`.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    notifier = Notifier(app.installation.env)
    cluster = app.cluster
    assert cluster is not None  # noqa: S101  main.py refuses a worker without a shared database

    def request_stop() -> None:
        limit_end(app.settings.config.daemon.grace.total_seconds() + STOP_SECONDS)
        stop.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, request_stop)
    async with _tasks_of(app, limit_end):
        await cluster.prepare()
        await app.store.journal.runs.recover(app.store.owner)
        watcher = _definition_watcher(app, notifier)
        definition_folders = await watcher.note_files()
        contents = await _load_routines(app)
        watcher.start(definition_folders)
        loop.add_signal_handler(signal.SIGHUP, watcher.reload_now)
        background = BackgroundTasks(app.tasks)
        background.start([*tasks_before_routines(app), *tasks_after_ready(app, watcher.reload_now)])
        await cluster.heartbeat.has_beaten.wait()
        cluster.take_runs(contents.routines.values(), app.scheduling.engine.is_for_this_host)
        notifier.send("READY=1", "STATUS=a worker")
        await announce(app)
        await stop.wait()
        notifier.send("STOPPING=1")
        log.info("daemon.stopping", runs=len(app.runs.queue.running))
        watcher.close()
        await _drain(app)
        await background.stop()
        await cluster.leave()


@asynccontextmanager
async def _tasks_of(app: App, limit_end: Callable[[float], None]) -> AsyncIterator[None]:
    """Run the tasks of the process beside the body. If either fails, nothing starts any more, and
    the process has FAILURE_SECONDS to end.
    """
    try:
        async with app.tasks:
            try:
                yield
            except BaseException as error:
                limit_end(FAILURE_SECONDS)
                # a task that failed has been logged, and what a person must mend is told by `main`
                if isinstance(error, Exception) and not isinstance(error, DaemonError):
                    log.info("daemon.ending", problem=f"{type(error).__name__}: {error}")
                with suppress(Exception):
                    await app.scheduling.engine.stop()
                    await app.runs.queue.stop(0)
                raise
    except ExceptionGroup as group:
        if group.split(DaemonError)[1] is not None:  # a fault of ours, or of the machine
            # or of a row that no longer holds what was written: any error may come of that
            if not app.store.database.shared:
                await _refuse_damage(app.store.database.path)
            with suppress(Exception):  # of a log that cannot be written
                log.critical("daemon.failed", exc_info=group)
        raise


async def _refuse_damage(database: Path) -> None:
    """Raise ConfigError if a database is damaged, so that what failed by it ends with a remedy."""
    from daemon.store.integrity import find_faults

    if faults := await asyncio.to_thread(find_faults, database):
        log.critical("database.damaged", problem=faults[0])
        problem, hint = f"is damaged ({faults[0]})", "restore a backup, or move it away"
        raise ConfigError(
            Fault(file=str(database), key="", found="", problem=problem, hint=hint)
        ) from None


async def once(app: App, name: str, text: str | None = None, *, is_tainted: bool = False) -> Run:
    """Run one routine here and now, to its delivered end; NotFound if there is none of that name.

    `text` is the input of the run, which strangers may have written if it `is_tainted`.
    A run of the routine that an earlier process left goes first; runs of other routines wait for a
    daemon.
    """
    memory, journal, queue = app.store.memory, app.store.journal, app.runs.queue
    run_input = None
    if text is not None:
        text = app.installation.secrets.redact(text)
        run_input = input_by_hand(text, is_tainted=is_tainted)
    if memory.embedding_index:
        await memory.embedding_index.load(memory.memory_store)
    await app.scheduling.engine.load(await app.reloader.load_routines())
    events = app.runs.events.follow()
    moves: list[asyncio.Task[None]] = []

    async def move_waits() -> None:
        for run in (await journal.move_waits()).runs:
            if run.routine == name:
                await queue.submit(run)

    # no engine is started here, which does so in a daemon
    watcher = clock_watcher(app.clock, app.installation.env)
    watcher.start(lambda: moves.append(asyncio.create_task(move_waits(), name="clock was set")))
    try:
        earlier_runs = await journal.runs.recover(app.store.owner)
        await app.runs.conversations.load_messages()
        earlier_runs = [
            run for run in await _runs_to_resume(app, earlier_runs) if run.routine == name
        ]
        await queue.submit_all(earlier_runs)
        for run in earlier_runs:
            await _wait_for_end(run, events, app)
        run = await app.scheduling.engine.run_now(
            name, event=new_id(), trigger="once", run_input=run_input
        )
        await _wait_for_end(run, events, app)
        await app.delivery.outbox.flush()
    finally:
        watcher.stop()
        await queue.stop(0)
        await asyncio.gather(*moves)
    return await journal.runs.get(run.id)


async def _serve(server: ApiServer, stop: asyncio.Event) -> None:
    """Answer requests until `stop` is set; raises RuntimeError if the server ends before that."""
    await server.serve()
    if not stop.is_set():
        raise RuntimeError("the control socket was closed")


def _definition_watcher(app: App, notifier: Notifier) -> DefinitionWatcher:
    """Return what reads the definitions again when they change, and tells systemd so."""

    async def reload(versions: Mapping[str, tuple[int, ...]]) -> None:
        notifier.announce_reload()
        try:
            await app.reloader.reload(versions)
        finally:
            notifier.send("READY=1", f"STATUS={len(app.scheduling.engine.routines)} routines")

    return DefinitionWatcher(
        reload,
        app.reloader.folders,
        app.scheduling.directory_watcher,
        named_files=app.reloader.calendars_in_force,
    )


async def _load_routines(app: App) -> FolderContents:
    """Read the routines, log what is wrong with them, and pass them to the engine."""
    contents = await app.reloader.load_routines()
    app.reloader.log_faults(contents.faults.values())
    await app.scheduling.engine.load(contents)
    return contents


async def _open_public_port(app: App, api: ApiContext) -> PublicServer | None:
    """Listen on the port that `[listen]` names, if it names one; ConfigError where that cannot
    be.
    """
    listen = app.settings.config.listen
    if listen.address is None:
        return None
    from daemon.api.public import PublicServer

    hooks = app.scheduling.webhooks.context() if listen.hooks else None
    server = PublicServer(listen.address, api, metrics=listen.metrics, hooks=hooks)
    app.tasks.create_task(server.serve(), name="public port")
    await server.ready()
    log.info("listen.opened", address=listen.address, metrics=listen.metrics, hooks=listen.hooks)
    return server


async def _drain(app: App) -> None:
    """Let the runs under way end, as far as there is time for that."""
    if app.cluster:
        await app.cluster.stop_taking_runs()
    await app.runs.queue.stop(app.settings.config.daemon.grace.total_seconds())


async def _runs_to_resume(app: App, earlier_runs: list[Run]) -> list[Run]:
    """Return the runs of an earlier process that are still worth resuming; end the others as
    interrupted.

    `earlier_runs` is what `RunRepository.recover` returned.
    """
    if app.store.shared:
        return earlier_runs  # other processes may have them, and they wait for their turn
    earlier_runs = [run for run in earlier_runs if run.trigger != SUBAGENT]  # a parent takes it up
    if not earlier_runs:
        return []
    down_since = await _last_sign_of_life(app, earlier_runs)
    runs = []
    for run in earlier_runs:
        try:
            routine = await app.runs.parts.routine_of(run)
        except DaemonError:
            runs.append(run)  # `supervise` ends it and says why
            continue
        schedule = schedule_of(routine, zone=app.settings.zone.key)
        if run.event is not None or may_resume(schedule, run.slot, app.start - down_since):
            runs.append(run)
        else:
            from daemon.runs.run import end_abandoned

            await end_abandoned(run, routine, app.runs.parts.contexts.take())
            try:
                # at no later start: interrupted runs may be those of a restored backup
                await app.runs.conversations.answer_late_messages(run)
            except DaemonError as error:  # damaged steps, a full disk
                log.error("message.unanswered", run=run.id, problem=str(error))  # noqa: TRY400  no traceback
    return runs


async def _last_sign_of_life(app: App, earlier_runs: Sequence[Run]) -> datetime:
    """Return the latest moment of which it is known that an earlier process was alive: it was
    stopped then, or one of its runs got on. A run may have waited for long without a step.
    """
    journal = app.store.journal
    times = [time for run in earlier_runs for time in (run.created, run.started) if time]
    for run in earlier_runs:
        with suppress(DaemonError):  # damaged steps: `supervise` ends the run and says so
            times += [step.at for step in (await journal.runs.get_steps(run.id))[-1:] if step.at]
        approvals = await journal.approvals.find_of_run(run.id)
        times += [approval.decided for approval in approvals if approval.decided]
    if stopped_at := await journal.key_values.get(STOPPED_AT):
        times.append(datetime.fromisoformat(stopped_at))
    return min(max(times), app.start)  # later ones were written while the clock was wrong


async def _wait_for_end(run: Run, events: AsyncIterator[Json], app: App) -> None:
    """Return once the run has ended or waits for a person, however often it is put off until then
    and whichever process has it.
    """
    timeout = POLL_SECONDS if app.store.database.shared else None
    while True:
        try:
            async with asyncio.timeout(timeout):
                event = await anext(events, None)
        except TimeoutError:
            status = (await app.store.journal.runs.get(run.id)).status
            if status.has_ended or status is Status.WAITING:
                return
            continue
        if event is None or (
            event["run"] == run.id and event["type"] in ("run_ended", "run_waiting")
        ):
            return
