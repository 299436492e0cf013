"""Everything wired by hand, from the config to the socket, and the life of the process.

Read `App.open` from top to bottom to know what there is, `App.serve` to know what runs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self
from zoneinfo import ZoneInfo

import structlog
from pydantic import SecretStr

from daemon import __version__
from daemon.chain import Providers
from daemon.clock import Clock, SystemClock, host_zone
from daemon.config import Config, load_config
from daemon.control.server import Server
from daemon.control.surface import Surface
from daemon.control.views import CheckView, ProcessView, ReloadView, fault_views, iso
from daemon.delivery import CHANNELS, Outbox
from daemon.due import may_resume
from daemon.engine import RoutineEngine
from daemon.errors import ConfigError, DaemonError, Fault
from daemon.events import Events
from daemon.executors import Lane, LocalExecutor
from daemon.forget import Forgetting
from daemon.functions import FunctionRegistry
from daemon.ledger import schedule_of
from daemon.log import configure
from daemon.memory import Memory
from daemon.memory.keeper import Keeper
from daemon.mirror import Mirror
from daemon.models import Json, Run, new_id
from daemon.notify import Notifier
from daemon.places import hooks_beside
from daemon.policy import Policy
from daemon.recollection import remember, retention_of
from daemon.redact import Secrets
from daemon.reload import Reloads, zone_bell
from daemon.routines import Loaded, against, load_folder
from daemon.store import Database, Journal, lock_state
from daemon.timer import system_timer
from daemon.tools import files, finish, self_info, shell, sysinfo
from daemon.tools import memory as memory_tools

if TYPE_CHECKING:
    from daemon.control.hooks import HookServer
    from daemon.host import RunHost

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where this daemon lives."""

    config: Config
    state: Path
    socket: Path
    log_file: Path
    console: bool
    """Whether the log is also written to stderr."""
    env: Mapping[str, str]
    secrets: Secrets


class App:
    """The daemon, built; `serve` or `once` lets it live."""

    place: Place
    clock: Clock
    zone: ZoneInfo
    journal: Journal
    memory: Memory
    events: Events
    policy: Policy
    providers: Providers
    registry: FunctionRegistry
    engine: RoutineEngine
    executor: LocalExecutor
    outbox: Outbox
    boot: datetime
    owner: str
    """Who holds the leases of this process."""
    reload_fault: str | None = None
    hooks: HookServer | None = None
    """The webhook socket, from the first routine on that wants one."""
    _hooks_secret: SecretStr | None
    _retired: list[Providers]
    _tasks: asyncio.TaskGroup

    @classmethod
    @asynccontextmanager
    async def open(cls, place: Place, *, clock: Clock | None = None) -> AsyncIterator[Self]:
        """Build the daemon on its state folder, and take it apart again.

        Raises ConfigError for a policy or state that cannot be used, StateBusy if another daemon lives there.
        """
        app = cls()
        app.place, app.clock = place, clock or SystemClock()
        config, app.boot = place.config, app.clock.now()
        app.zone = ZoneInfo(config.timezone or host_zone())
        app.owner = f"{os.uname().nodename}:{os.getpid()}:{new_id()}"
        lock = lock_state(place.state)
        try:
            workspace = _workspace(place)
            app._open_log()
            app.policy = app._read_policy(config)
            app._take_hooks_secret(config.hooks_secret())
            database = await Database.open(place.state / "agentd.db")
            try:
                app.journal = Journal(database, clock=app.clock.now)
                app.memory = remember(
                    database, config, place.env, place.secrets, clock=app.clock.now, zone=lambda: app.zone
                )
                await app.memory.open()
                app.events = Events()
                app._retired = []
                app.providers = Providers(config, place.env, place.secrets)
                app.providers.get(config.provider)  # a missing key is told at start, not at 08:30
                app.registry = app._tools()
                app.outbox = Outbox(journal=app.journal, channels=CHANNELS, clock=app.clock, workspace=workspace)
                app.executor = LocalExecutor(
                    app._live,
                    max_concurrent=config.daemon.max_concurrent,
                    clock=app.clock.now,
                    lane_of=app._lane_of,
                )
                app.engine = RoutineEngine(
                    journal=app.journal,
                    submit=app.executor.submit,
                    cancel=app.cancel,
                    clock=app.clock,
                    zone=app.zone.key,
                    timer=system_timer(app.clock, place.env),
                    workspace=workspace,
                )
                try:
                    yield app
                finally:
                    app.events.close()
                    await app.memory.close()
                    for providers in (app.providers, *app._retired):
                        await providers.close()
            finally:
                await database.close()
        finally:
            lock.release()

    def _read_policy(self, config: Config) -> Policy:
        """Return the policy; ConfigError if it, or the workspace it speaks of, opens what is the daemon's own."""
        place = self.place
        private = (config.file, place.state / "agentd.db", place.log_file.parent, place.socket)
        return Policy.load(config.policy_path, workspace=config.workspace_path(place.state), private=private)

    def _open_log(self) -> None:
        settings = self.config.log
        configure(
            level=settings.level,
            console=self.place.console,
            file=self.place.log_file,
            secrets=self.secrets,
            max_bytes=settings.max_mb * 1_000_000,
            keep=settings.keep,
        )

    def _tools(self) -> FunctionRegistry:
        registry = FunctionRegistry()
        finish.register(registry)
        sysinfo.register(registry)
        files.register(registry, lambda: self.policy)
        shell.register(registry, lambda: self.policy, zone=self.zone.key)
        memory_tools.register(registry, self.memory)
        self_info.register(registry, self.describe, self.describe_routine)
        return registry

    @property
    def config(self) -> Config:
        return self.place.config

    @property
    def secrets(self) -> Secrets:
        return self.place.secrets

    @cached_property
    def host(self) -> RunHost:
        """What runs find around themselves; like all that only they need, it is not there before READY without need."""
        from daemon.host import RunHost

        return RunHost(self, self.config.workspace_path(self.place.state))

    async def _live(self, run_id: str) -> Run | None:
        from daemon.run import live

        run = await live(run_id, self.host)
        if run is not None and run.status.ended:
            await asyncio.shield(self.engine.ended(run))
        return run

    def _lane_of(self, run: Run) -> Lane:
        """Return which provider a run will ask first, as its routine stands now."""
        routine = self.engine.routines.get(run.routine)
        name = (routine and routine.run.provider) or self.config.provider
        if name not in self.config.provider_names:  # it was taken out of the config meanwhile
            return Lane(name=name)
        settings = self.config.provider_config(name)
        return Lane(name=name, limit=settings.max_concurrency, asks=settings.kind != "offline")

    # --- what the control API and self_info ask ---

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run wherever it is; Refused if it has ended, NotFound if there is none."""
        run = await self.journal.request_cancel(run_id)
        self.executor.interrupt(run.id)
        return run

    def describe(self) -> Json:
        """Say what this daemon knows of itself."""
        return {
            "version": __version__,
            "provider": self.place.config.provider,
            "routines": {
                name: [moment.isoformat() for moment in self.engine.next_fires(name, 1)]
                for name in self.engine.routines
            },
            "workspace": str(self.place.config.workspace_path(self.place.state)),
            "tools": self.registry.names(),
            "timezone": self.zone.key,
        }

    def describe_routine(self, name: str) -> Json:
        """Say what a routine may do and how far it may go."""
        routine = self.engine.routines.get(name)
        if routine is None:
            return {}
        spec = routine.run
        return {
            "when": self.engine.words(routine),
            "tools": self.registry.names(spec.tools),
            "policy": self.policy.summary(name, self.registry.names(spec.tools), language=self.config.agent.language),
            "max_iterations": spec.max_iterations,
            "max_tool_calls": spec.max_tool_calls,
            "timeout": str(spec.timeout),
        }

    def _surface(self) -> Surface:
        """Return what the control API touches."""
        return Surface(
            version=__version__,
            journal=self.journal,
            engine=self.engine,
            executor=self.executor,
            events=self.events,
            clock=self.clock.now,
            process=self._process,
            reload=self.reload,
            check=self._check,
            words=self.engine.words,
            elsewhere=self.engine.elsewhere,
            uids=frozenset({os.getuid(), 0}),
            log_file=self.place.log_file,
            memory=self.memory,
            forgetting=Forgetting(self.memory, clock=self.clock.now, out_of_reach=self._out_of_reach()),
        )

    def _out_of_reach(self) -> list[str]:
        """Return where what runs saw and said may stand besides the database."""
        return [
            "backups of the database, and what was exported from it",
            f"the log, which names runs and faults: {self.place.log_file.parent}",
            "what was sent to models and what tools did",
        ]

    def _process(self) -> ProcessView:
        return {
            "pid": os.getpid(),
            "started": iso(self.boot),
            "config": str(self.place.config.file),
            "state": str(self.place.state),
            "socket": str(self.place.socket),
            "zone": self.zone.key,
            "log": str(self.place.log_file),
            "fault": self.reload_fault,
        }

    async def _definitions(self) -> Loaded:
        """Read the routines; one that names an unknown provider or tool is as invalid as one that is misspelt."""
        config = self.place.config
        return await asyncio.to_thread(
            load_folder,
            config.routines_path,
            check=against(config.provider_names, self.registry.names()),
        )

    async def _check(self) -> Sequence[CheckView]:
        from daemon.doctor import examine

        return await asyncio.to_thread(examine, self.place.config, self.place.state, self.place.socket, self.place.env)

    def _seeds(self) -> dict[str, str]:
        """Return what every agent should be able to find out about its home."""
        state, config = self.place.state, self.place.config
        return {
            "agentd:database": f"The journal and memory are in {state / 'agentd.db'} (SQLite); tools cannot reach it.",
            "agentd:logs": f"The log is {self.place.log_file}, one JSON object per line; `agentctl logs` shows it.",
            "agentd:config": f"The config is {config.file}, routines are in {config.routines_path}, the policy is "
            f"{config.policy_path}. People edit them; the daemon reads them again by itself.",
            "agentd:tools": f"Tools that exist here: {', '.join(self.registry.names())}. The policy judges each call.",
        }

    # --- definitions, read again ---

    def _definition_folders(self) -> list[Path]:
        config = self.place.config
        return list(dict.fromkeys([config.folder, config.routines_path, config.policy_path.parent]))

    async def reload(self) -> ReloadView:
        """Read config, policy and routines again; ConfigError if config or policy cannot be used: nothing changes.

        A routine that cannot be used is listed as invalid while the others change.
        """
        old = self.place.config
        try:
            config = await asyncio.to_thread(load_config, old.file)
            if config.workspace != old.workspace:
                problem = "cannot change while the daemon runs"
                raise ConfigError(
                    Fault(
                        file=str(old.file),
                        key="workspace",
                        found=str(config.workspace),
                        problem=problem,
                        hint="restart",
                    )
                )
            policy = await asyncio.to_thread(self._read_policy, config)
            providers = Providers(config, self.place.env, self.place.secrets)
            providers.get(config.provider)
            secret = config.hooks_secret()
        except ConfigError as error:
            self.reload_fault = str(error)
            raise
        self.reload_fault = None
        self.place, self.policy = replace(self.place, config=config), policy
        self._take_hooks_secret(secret)
        if config.log != old.log:
            self._open_log()
        if config.providers != old.providers or config.provider != old.provider:
            self._retired.append(self.providers)  # runs under way still ask them
            self.providers = providers
        self.executor.allow(config.daemon.max_concurrent)
        loaded = await self._definitions()
        self.zone = ZoneInfo(config.timezone or host_zone())
        told = {fault for error in self.engine.faults.values() for fault in error.faults}
        changes = await self.engine.reload(loaded, zone=self.zone.key)
        try:
            await self._open_hooks()
        except DaemonError as error:
            self.reload_fault = str(error)
            log.warning("hooks.closed", fault=str(error))
        faults = [fault for error in loaded.faults.values() for fault in error.faults]
        if changes or config != old:
            log.info("definitions.reloaded", added=changes.added, changed=changes.changed, removed=changes.removed)
        for fault in faults:
            if fault not in told:  # and not again whenever another file changes
                log.warning("routine.invalid", fault=str(fault))
        return {
            "added": list(changes.added),
            "changed": list(changes.changed),
            "removed": list(changes.removed),
            "faults": [view for error in loaded.faults.values() for view in fault_views(error)],
        }

    # --- webhooks ---

    async def _open_hooks(self) -> None:
        """Take webhooks, if a routine wants them; ConfigError or SocketBusy where their socket cannot be made."""
        if self.hooks or not self.engine.hooks:
            return
        from daemon.control.hooks import Hooks, HookServer  # few need it, and all would wait for it

        hooks = Hooks(
            version=__version__, start=self.engine.hook, secret=self._secret_of_hooks, redact=self.secrets.redact_json
        )
        self.hooks = HookServer(hooks, hooks_beside(self.place.socket), self.place.env)
        self._tasks.create_task(self.hooks.serve(), name="webhook socket")
        await self.hooks.ready()
        log.info("hooks.opened", socket=str(self.hooks.path), signed=self._hooks_secret is not None)

    def _take_hooks_secret(self, secret: SecretStr | None) -> None:
        self._hooks_secret = secret
        if secret:
            self.secrets.add(secret.get_secret_value())

    def _secret_of_hooks(self) -> str | None:
        return self._hooks_secret.get_secret_value() if self._hooks_secret else None

    # --- the life of the process ---

    async def once(self, name: str) -> Run:
        """Run one routine here and now, to its delivered end; NotFound if there is none of that name.

        A run of it that an earlier process left goes first; those of other routines wait for a daemon.
        """
        if self.memory.meaning:
            await self.memory.meaning.load(self.memory.shelf)
        await self.engine.load(await self._definitions())
        events = self.events.follow()
        try:
            left = [run for run in await self._left_over() if run.routine == name]
            await self.executor.submit_all(left)
            for run in left:
                await _end_of(run, events)
            run = await self.engine.trigger(name, event=new_id(), trigger="once")
            await _end_of(run, events)
            await self.outbox.flush()
        finally:
            await self.executor.stop(0)
        return await self.journal.get(run.id)

    async def _left_over(self) -> list[Run]:
        """Return the runs of an earlier process that are still worth going on with; the others end as interrupted."""
        going_on = []
        for run in await self.journal.recover(self.owner):
            try:
                routine = await self.host.routine_of(run)
            except DaemonError:
                going_on.append(run)  # `live` ends it and says why
                continue
            steps = await self.journal.steps(run.id)
            alive = max(filter(None, (run.created, run.started, steps[-1].at if steps else None)))
            schedule = schedule_of(routine, zone=self.zone.key)
            if run.event is not None or may_resume(schedule, run.slot, self.boot - alive):
                going_on.append(run)
            else:
                from daemon.run import give_up

                await give_up(run, routine, self.host)
        return going_on

    async def serve(self, announce: Callable[[App], Awaitable[None]]) -> None:
        """Live until SIGTERM or SIGINT; SIGHUP reads the definitions again. `announce` is told when all is ready."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        notifier = Notifier(self.place.env)
        server = Server(self._surface(), self.place.socket, self.place.env)
        async with asyncio.TaskGroup() as tasks:

            def told_to_stop() -> None:
                if stop.is_set():  # Ctrl-C once more: whoever presses it does not want to wait for the runs
                    tasks.create_task(self.executor.stop(0), name="hurry")
                stop.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, told_to_stop)
            serving = tasks.create_task(server.serve(), name="control socket")
            background = [
                tasks.create_task(self.outbox.run(), name="outbox"),
                tasks.create_task(notifier.feed_watchdog(), name="watchdog"),
            ]
            await self.memory.seed(self._seeds())
            loaded = await self._definitions()
            await self.engine.load(loaded)
            # what an earlier process left goes first: it has waited longest
            await self.executor.submit_all(await self._left_over())
            await self.engine.start(loaded)
            gc.collect()
            gc.freeze()  # what is here stays; walking it again would hold the loop up 0.1 s for 10,000 routines
            self._tasks = tasks
            await self._open_hooks()
            await server.ready()
            reloads = Reloads(self.reload, self._definition_folders)
            zone = zone_bell(reloads.ring, env=self.place.env)
            loop.add_signal_handler(signal.SIGHUP, reloads.ring)
            notifier.send("READY=1", f"STATUS={len(self.engine.routines)} routines")
            keeper = Keeper(self.memory, clock=self.clock.now, retention=lambda: retention_of(self.config))
            background.append(tasks.create_task(keeper.run(), name="memory keeper"))
            if self.config.memory.mirror:
                workspace = self.config.workspace_path(self.place.state)
                mirror = Mirror(self.memory, workspace, self.journal, clock=self.clock.now)
                background.append(tasks.create_task(mirror.run(), name="memory mirror"))
            await announce(self)
            await stop.wait()
            notifier.send("STOPPING=1")
            log.info("daemon.stopping", runs=len(self.executor.running))
            reloads.close()
            zone.close()
            if self.hooks:
                self.hooks.stop()
            await self.engine.stop()
            await self.executor.stop(self.place.config.daemon.grace.total_seconds())
            server.stop()
            await serving
            for task in background:
                task.cancel()


async def _end_of(run: Run, events: AsyncIterator[Json]) -> None:
    """Return once the run has ended, however often it is put off until then."""
    async for event in events:
        if event["run"] == run.id and event["type"] in ("run_ended", "run_waiting"):
            return


def _workspace(place: Place) -> Path:
    """Return the folder agents work in, made if need be."""
    folder = place.config.workspace_path(place.state)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        problem = f"cannot be the folder agents work in: {error.strerror}"
        fault = Fault(file=str(place.config.file), key="workspace", found=str(folder), problem=problem)
        raise ConfigError(fault) from error
    return folder
