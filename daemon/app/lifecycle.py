"""The life of the process: serve until told to stop, or run one routine and go."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from daemon.api.server import ApiServer
from daemon.app.memory import retention_of
from daemon.app.reload import Reloads, watch_zone
from daemon.app.wiring import App
from daemon.errors import DaemonError, StoreFull
from daemon.models import Json, Run, Status, new_id
from daemon.scheduler.routine_times import schedule_of
from daemon.scheduler.slots import may_resume
from daemon.system.notify import Notifier
from daemon.system.timer import clock_watcher
from daemon.tools.builtin.subagent import SUBAGENT

if TYPE_CHECKING:
    from daemon.api.public import PublicServer
    from daemon.store.maintenance import JournalMaintenance
    from daemon.store.retention import Keep

log = structlog.get_logger()


async def serve(app: App, announce: Callable[[App], Awaitable[None]]) -> None:
    """Live until SIGTERM or SIGINT; SIGHUP reads the definitions again.

    `announce` is told when all is ready.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    notifier = Notifier(app.place.env)
    server = ApiServer(app.api(), app.place.socket, app.place.env, group=app.config.control.group)
    app.place = replace(
        app.place, socket=server.path
    )  # systemd may hold it elsewhere than we would
    async with asyncio.TaskGroup() as tasks:
        app.tasks = tasks

        def told_to_stop() -> None:
            if (
                stop.is_set()
            ):  # Ctrl-C once more: whoever presses it does not want to wait for the runs
                tasks.create_task(app.executor.stop(0), name="hurry")
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told_to_stop)
        # before anything here starts a run or writes to one: both read what an earlier process left
        left = await app.journal.recover(app.owner)
        await app.talk.open()
        serving = tasks.create_task(server.serve(), name="control socket")
        background = [tasks.create_task(notifier.feed_watchdog(), name="watchdog")]
        background += await _join(app, tasks)
        await app.memory.seed(app.seeds())
        reloads = Reloads(_reload_of(app, notifier), app.definition_folders, app.directory_watcher)
        definition_folders = await reloads.note_files()
        loaded = await app.definitions(app.config)
        app.tell([fault for error in loaded.faults.values() for fault in error.faults])
        await app.engine.load(loaded)
        app.executor.hold_parked(
            run for run in await app.journal.active() if run.status is Status.WAITING
        )
        # what an earlier process left goes first: it has waited longest
        await app.executor.submit_all(await _left_over(app, left))
        background.append(tasks.create_task(app.approvals.run(), name="approvals"))
        await app.engine.start(loaded)
        await app.webhooks.open(tasks)
        await server.ready()
        public = await _open_to_the_network(app, tasks)
        reloads.start(definition_folders)
        background.append(
            tasks.create_task(watch_zone(reloads.ring, env=app.place.env), name="zone")
        )
        loop.add_signal_handler(signal.SIGHUP, reloads.ring)
        notifier.send("READY=1", f"STATUS={len(app.engine.routines)} routines")
        by_and_by = _do_when_possible("by and by", partial(_by_and_by, app))
        background.append(tasks.create_task(by_and_by, name="by and by"))
        if app.fleet:
            app.fleet.take_runs(loaded.routines.values(), app.engine.is_for_this_host)
        await announce(app)
        await stop.wait()
        notifier.send("STOPPING=1")
        log.info("daemon.stopping", runs=len(app.executor.running))
        reloads.close()
        app.webhooks.stop()
        if public:
            public.stop()
        await app.engine.stop()
        await _drain(app)
        server.stop()
        await serving
        await _leave(app, background)


async def _join(app: App, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
    """Begin to send reports; of daemons on one database, whoever leads does that."""
    if not app.shared:
        return [tasks.create_task(app.outbox.run(), name="outbox")]
    fleet = await app.join(
        "daemon",
        lambda: [
            ("outbox", app.outbox.run()),
            *((name, _do_when_possible(name, begin)) for name, begin in _keeping(app)),
        ],
    )
    return [tasks.create_task(each, name=name) for name, each in fleet.background_tasks()]


async def _drain(app: App) -> None:
    """Let the runs under way end, as far as there is time for that."""
    if app.fleet:
        await app.fleet.stop_taking_runs()
    await app.executor.stop(app.place.config.daemon.grace.total_seconds())


async def _leave(app: App, background: Iterable[asyncio.Task[None]]) -> None:
    for task in background:
        task.cancel()
    if app.fleet:
        await app.fleet.leave()


async def work(app: App, announce: Callable[[App], Awaitable[None]]) -> None:
    """Live runs that daemons on the same database start, until SIGTERM or SIGINT; SIGHUP reads
    definitions again.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    notifier = Notifier(app.place.env)
    async with asyncio.TaskGroup() as tasks:
        app.tasks = tasks
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        fleet = await app.join("worker")
        await app.journal.recover(app.owner)
        reloads = Reloads(_reload_of(app, notifier), app.definition_folders, app.directory_watcher)
        definition_folders = await reloads.note_files()
        loaded = await app.definitions(app.config)
        app.tell([fault for error in loaded.faults.values() for fault in error.faults])
        await app.engine.load(loaded)
        reloads.start(definition_folders)
        loop.add_signal_handler(signal.SIGHUP, reloads.ring)
        work = [
            *fleet.background_tasks(),
            ("rest of the house", _complete(app)),
            ("meanings", _know_meanings(app)),
            ("watchdog", notifier.feed_watchdog()),
            ("sandbox", app.sandbox_detection.climb()),
        ]
        background = [tasks.create_task(each, name=name) for name, each in work]
        await fleet.heartbeat.has_beaten.wait()
        fleet.take_runs(loaded.routines.values(), app.engine.is_for_this_host)
        notifier.send("READY=1", "STATUS=a worker")
        await announce(app)
        await stop.wait()
        notifier.send("STOPPING=1")
        log.info("daemon.stopping", runs=len(app.executor.running))
        reloads.close()
        await _drain(app)
        await _leave(app, background)


def _reload_of(app: App, notifier: Notifier) -> Callable[[], Awaitable[None]]:
    """Return what reads the definitions again, and tells systemd meanwhile."""

    async def reload() -> None:
        notifier.reloading()
        try:
            await app.reload()
        finally:
            notifier.send("READY=1", f"STATUS={len(app.engine.routines)} routines")

    return reload


async def _by_and_by(app: App) -> None:
    """Do what can wait until everything is ready, and go on with it for as long as we live."""
    await asyncio.sleep(_BREATH)
    chores = list(
        _chores(app)
    )  # imports what they are made of: that may fail before the first has begun, not after
    async with asyncio.TaskGroup() as tasks:
        for name, begin in chores:
            tasks.create_task(_do_when_possible(name, begin), name=name)


async def _do_when_possible(name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do a chore, and again from its beginning after what the machine had no room for: files,
    processes, the disk.
    """
    was_logged = False
    while True:
        try:
            await begin()
        except (OSError, StoreFull) as error:
            if not was_logged:
                log.warning("chore.retry_scheduled", chore=name, detail=str(error), seconds=_AGAIN)
            was_logged = True
            await asyncio.sleep(_AGAIN)
        else:
            return


# Seconds: whoever waited for READY asks something now, and is answered before we keep both
# processors busy.
_BREATH = 0.1


Chore = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
"""A name, and what begins the work."""


def _chores(app: App) -> Iterator[Chore]:
    yield "rest of the house", partial(_complete, app)
    if app.shared:
        yield "meanings", partial(_know_meanings, app)
    else:
        yield from _keeping(app)
    if app.config.memory.mirror:
        from daemon.memory.markdown_mirror import Mirror

        workspace = app.config.workspace_path(app.place.state)
        mirror = Mirror(
            app.memory,
            workspace,
            app.journal,
            clock=app.clock.now,
            directory_watcher=app.directory_watcher,
        )
        yield "memory mirror", mirror.run
    yield "sandbox", app.sandbox_detection.climb
    yield "doctor", partial(_examine, app)


def _keeping(app: App) -> Iterator[Chore]:
    """Yield how the house is kept; of daemons that share a database, one does it."""
    from daemon.delivery.digest import Digest
    from daemon.memory.maintenance import MemoryMaintenance

    keeper = MemoryMaintenance(
        app.memory, clock=app.clock.now, retention=lambda: retention_of(app.config)
    )
    yield "memory keeper", keeper.run
    yield "journal upkeep", upkeep_of(app).run
    digest = Digest(
        app.journal,
        now=app.clock.now,
        zone=lambda: app.zone,
        config=lambda: app.config.digest,
        wake=app.outbox.wake,
    )
    yield "digest", digest.run


async def _complete(app: App) -> None:
    """Read what only runs need, before an upgrade on disk can mix two versions in one process."""
    await asyncio.to_thread(import_the_rest)
    await asyncio.to_thread(app.registry.read)


async def _know_meanings(app: App) -> None:
    """Learn what texts mean: one of several processes embeds them, and each is asked."""
    while app.memory.meaning:
        try:
            await app.memory.meaning.load(app.memory.memory_store)
            break
        except DaemonError as error:  # the database is away, and comes back
            log.warning("memory.embeddings_load_failed", detail=str(error))
            await asyncio.sleep(_AGAIN)


_AGAIN = 10.0  # seconds


def import_the_rest() -> None:
    """Import what only runs need."""
    import daemon.memory.context
    import daemon.runs.context
    import daemon.runs.rehearsal.rehearsals
    import daemon.runs.run  # noqa: F401


async def _examine(app: App) -> None:
    """Look once for what is wrong with the installation; whoever reads the log need not have asked.

    In a process of its own: what it loads, the daemon may never need. Not at once: others want the
    processor now.
    """
    await asyncio.sleep(_SETTLED)
    words = (sys.executable, "-m", "daemon.app.main", "doctor", "--json")
    places = ("--config", os.fspath(app.config.file), "--state", os.fspath(app.place.state))
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *words, *places, stdin=none, stdout=pipe, stderr=none
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:  # we are being stopped
            process.kill()
            await process.wait()  # before the event loop that watches the process is closed
    try:
        checks = json.loads(said)["checks"]
    except (ValueError, KeyError):
        log.warning("doctor.crashed", exit=process.returncode)
        return
    for row in checks:
        if row["state"] != "ok":
            say = log.warning if row["state"] == "fail" else log.info
            say(
                "doctor.found",
                check=row["name"],
                state=row["state"],
                found=row["found"],
                fix=row["fix"],
            )
    log.info("doctor.looked", checks=len(checks))


# Seconds after the start: a daemon that is stopped again at once was not meant to be looked at.
_SETTLED = 10.0


async def _open_to_the_network(app: App, tasks: asyncio.TaskGroup) -> PublicServer | None:
    """Listen on the port that `[listen]` names, if it names one; ConfigError where that cannot
    be.
    """
    wanted = app.config.listen
    if wanted.address is None:
        return None
    from daemon.api.public import PublicServer

    hooks = app.webhooks.touched() if wanted.hooks else None
    server = PublicServer(wanted.address, app.api(), metrics=wanted.metrics, hooks=hooks)
    tasks.create_task(server.serve(), name="public port")
    await server.ready()
    log.info("listen.opened", address=wanted.address, metrics=wanted.metrics, hooks=wanted.hooks)
    return server


def upkeep_of(app: App) -> JournalMaintenance:
    """Return what keeps the journal in order."""
    from daemon.store.maintenance import JournalMaintenance
    from daemon.store.retention import Keep

    def keep() -> Keep:
        wanted = app.config.keep
        most = wanted.max_mb and wanted.max_mb * 1_000_000
        return Keep(runs=wanted.runs, steps=wanted.steps, reports=wanted.reports, max_bytes=most)

    return JournalMaintenance(
        app.database,
        app.journal,
        clock=app.clock.now,
        keep=keep,
        workspace=app.config.workspace_path(app.place.state),
        idle=lambda: not app.executor.running,
    )


async def once(app: App, name: str) -> Run:
    """Run one routine here and now, to its delivered end; NotFound if there is none of that name.

    A run of it that an earlier process left goes first; those of other routines wait for a daemon.
    """
    if app.memory.meaning:
        await app.memory.meaning.load(app.memory.memory_store)
    await app.engine.load(await app.definitions(app.config))
    events = app.events.follow()
    moving: list[asyncio.Task[None]] = []

    async def move_waits() -> None:
        for run in (await app.journal.move_waits()).runs:
            if run.routine == name:
                await app.executor.submit(run)

    # no engine is started here, which does so in a daemon
    watcher = clock_watcher(app.clock, app.place.env)
    watcher.start(lambda: moving.append(asyncio.create_task(move_waits(), name="clock set")))
    try:
        queued = await app.journal.recover(app.owner)
        await app.talk.open()
        left = [run for run in await _left_over(app, queued) if run.routine == name]
        await app.executor.submit_all(left)
        for run in left:
            await _end_of(run, events, app)
        run = await app.engine.trigger(name, event=new_id(), trigger="once")
        await _end_of(run, events, app)
        await app.outbox.flush()
    finally:
        watcher.stop()
        await app.executor.stop(0)
        await asyncio.gather(*moving)
    return await app.journal.get(run.id)


async def _left_over(app: App, left: list[Run]) -> list[Run]:
    """Return the runs of an earlier process that are still worth going on with; end the others as
    interrupted.

    `left` is what `recover` returned.
    """
    going_on = []
    if app.shared:
        return left  # others may live, and wait for their turn
    for run in left:
        if run.trigger == SUBAGENT:
            continue  # its parent takes it up again
        try:
            routine = await app.run_context.routine_of(run)
        except DaemonError:
            going_on.append(run)  # `live` ends it and says why
            continue
        steps = await app.journal.steps(run.id)
        answers = [asked.decided for asked in await app.journal.approvals(run=run.id)]
        alive = max(
            filter(None, (run.created, run.started, steps[-1].at if steps else None, *answers))
        )
        schedule = schedule_of(routine, zone=app.zone.key)
        if run.event is not None or may_resume(schedule, run.slot, app.boot - alive):
            going_on.append(run)
        else:
            from daemon.runs.run import end_abandoned

            await end_abandoned(run, routine, app.run_context)
    return going_on


async def _end_of(run: Run, events: AsyncIterator[Json], app: App) -> None:
    """Return once the run has ended, however often it is put off until then, and whoever lives
    it.
    """
    look = _LOOK if app.database.shared else None
    while True:
        try:
            async with asyncio.timeout(look):
                event = await anext(events, None)
        except TimeoutError:
            status = (await app.journal.get(run.id)).status
            if status.ended or status is Status.WAITING:
                return
            continue
        if event is None or (
            event["run"] == run.id and event["type"] in ("run_ended", "run_waiting")
        ):
            return


# Seconds between looks at a run that a worker may have got before us: no event of it reaches this
# process.
_LOOK = 1.0
