"""Everything wired by hand, from the config to the socket.

Read `App.open` from top to bottom to know what there is, `lifecycle.serve` to know what runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

import structlog

from daemon import __version__
from daemon.agent.conversations.conversations import ASK, Conversations, routine_of
from daemon.api.context import Access, ApiContext
from daemon.api.schemas import CheckView, ProcessView, ReloadView, fault_views, iso
from daemon.app.memory import remember
from daemon.app.webhooks import Webhooks
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.paths import OVERLAY
from daemon.definitions.reading import CrossFieldCheck
from daemon.definitions.routines.folder import MADE, Changes, Loaded, load_folder
from daemon.definitions.routines.routine import Routine, RoutineDefinition
from daemon.definitions.routines.rules import against
from daemon.definitions.skills import SkillCatalog
from daemon.definitions.words import display
from daemon.delivery.channels.base import Channel
from daemon.delivery.incidents.model_outages import ModelOutages
from daemon.delivery.outbox import Outbox
from daemon.delivery.targets import Targets
from daemon.errors import ConfigError, DaemonError, Fault
from daemon.memory.erasure.erasure import Forgetting
from daemon.memory.memory import Memory
from daemon.models import Json, Run, Status, new_id
from daemon.policy.policy import Policy
from daemon.providers.budget import BudgetLedger, price_checks
from daemon.providers.pool import Providers
from daemon.runs.approvals.approvals import Approvals
from daemon.runs.approvals.remembered import Remembered
from daemon.runs.approvals.request import CallDescriber
from daemon.runs.events import Events
from daemon.sandbox.current import SandboxDetection
from daemon.sandbox.user import settle, tenant
from daemon.scheduler.cluster.requirements import describe_missing_worker, having
from daemon.scheduler.engine import RoutineEngine
from daemon.scheduler.routine_times import matches_host
from daemon.scheduler.run_queue import ConcurrencyGroup, LocalRunQueue
from daemon.store.database import Database
from daemon.store.incidents import Alerting
from daemon.store.journal import Journal
from daemon.store.lock import StateLock, lock_state
from daemon.store.opening import open_database
from daemon.system.clock import Clock, SystemClock, host_zone
from daemon.system.notify import Notifier
from daemon.system.timer import clock_watcher
from daemon.system.watch import DirectoryWatcher
from daemon.telemetry.log import configure
from daemon.telemetry.metrics import Metrics
from daemon.telemetry.redaction import Secrets
from daemon.tools import user_tools
from daemon.tools.builtin import config as settings
from daemon.tools.builtin import (
    files,
    finish,
    git,
    http_request,
    report_items,
    routine,
    script,
    self_info,
    shell,
    skill,
    subagent,
    sysinfo,
    web_search,
)
from daemon.tools.builtin import memory as memory_tools
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.definitions.config_overlay import Overlay
    from daemon.delivery.incidents.full_disk import FullDiskIncident
    from daemon.runs.context import ReloadableParts, RunContext, RunServices
    from daemon.runs.rehearsal.rehearsals import Rehearsals
    from daemon.runs.replay.replays import Replays
    from daemon.runs.subagents import SubagentRunner
    from daemon.runs.tracing import Traces
    from daemon.scheduler.agent_routines import AgentRoutines
    from daemon.scheduler.cluster.cluster import Cluster

log = structlog.get_logger()
# Where the variables of OpenTelemetry say that spans go, and with which keys.
OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
OTLP_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
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
    """The daemon, built; lifecycle.py lets it live."""

    place: Installation
    clock: Clock
    zone: ZoneInfo
    database: Database
    journal: Journal
    memory: Memory
    events: Events
    policy: Policy
    providers: Providers
    budget_ledger: BudgetLedger
    registry: FunctionRegistry
    own_tools: FunctionRegistry
    servers: Servers
    directory_watcher: DirectoryWatcher
    engine: RoutineEngine
    executor: LocalRunQueue
    targets: Targets
    outbox: Outbox
    approvals: Approvals
    talk: Conversations
    traces: Traces | None = None
    """Who is told of runs for OpenTelemetry, where somebody wants that."""
    boot: datetime
    owner: str
    """Who holds the leases of this process."""
    shared: bool
    """Whether runs are handed on to whoever is there, of several processes on one database."""
    fleet: Cluster | None = None
    """What we are to others, where daemons share the database."""
    reload_fault: str | None = None
    _reloading: asyncio.Lock
    webhooks: Webhooks
    _told: frozenset[Fault] = frozenset()
    """What is wrong with routines, as the log knows it."""
    _broken_skills: set[str]
    """What is wrong with skills, as the log knows it."""
    _retired: list[Providers]
    tasks: asyncio.TaskGroup
    """What runs beside everything else, while the daemon serves."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, place: Installation, *, clock: Clock | None = None, alone: bool = False
    ) -> AsyncIterator[Self]:
        """Build the daemon on its state folder, and take it apart again; `alone`, it hands no run
        on to others.

        Raises ConfigError for a policy or state that cannot be used, StateBusy if another daemon
        lives there.
        """
        app = cls()
        app.place, app.clock = place, clock or SystemClock()
        config, app.boot = place.config, app.clock.now()
        app.zone = ZoneInfo(config.timezone or host_zone())
        lock = lock_state(place.state)
        try:
            workspace = _workspace(place)
            app._open_log()
            app._tell_of_overlay(config)
            app.own_tools = user_tools.load(config, sources=app._sources)
            app.policy = app._read_policy(config)
            secret = config.hooks_secret()
            app.targets = app._read_targets(config)
            app.database = database = await app._open_database()
            try:
                app.owner = _owner(lock, database)
                app.shared = config.executor.kind == "procrastinate" and not alone
                app.journal = app._journal(database)
                await app.journal.move_waits()  # before anything that waits is read
                app.memory = remember(
                    database,
                    config,
                    place.env,
                    place.secrets,
                    clock=app.clock.now,
                    zone=lambda: app.zone,
                )
                await app.memory.open()
                app.events = Events()
                app._retired, app._broken_skills = [], set()
                app.providers = Providers(config, place.env, place.secrets)
                app.providers.get(config.provider)  # a missing key is told at start, not at 08:30
                app.traces = app._traces(config)
                app.budget_ledger = app._budget_ledger()
                app.registry = app._tools()
                app.servers = Servers(config.mcp, app.registry, secret=app._server_key)
                app.outbox = app._outbox()
                app.executor = app._executor()
                app.directory_watcher, app._reloading = DirectoryWatcher(), asyncio.Lock()
                app.engine = RoutineEngine(
                    journal=app.journal,
                    submit=app.executor.submit,
                    cancel=app.cancel,
                    clock=app.clock,
                    zone=app.zone.key,
                    anywhere=app.shared,
                    workspace=workspace,
                    directory_watcher=app.directory_watcher,
                    find_used_up_cap=app._afford,
                    on_waits_moved=app._look_at_waits,
                )
                app.approvals = app._approvals()
                app.talk = app._talk()
                app.webhooks = Webhooks(
                    app.engine, place.socket, place.env, place.secrets, config.hooks.group
                )
                app.webhooks.sign_with(secret)
                watcher = clock_watcher(app.clock, place.env)
                watcher.start(app.clock_was_set)
                try:
                    yield app
                finally:
                    watcher.stop()
                    await app._close()
            finally:
                await database.close()
        finally:
            lock.release()

    async def _open_database(self) -> Database:
        """Open the database; a server that is away is waited for, and systemd and the log are told.

        ConfigError.
        """
        place, wait, notifier = self.place, self.config.store.wait, Notifier(self.place.env)

        def when_away(problem: str) -> None:
            # a start may take longer than the unit allows as long as it says that it goes on
            notifier.send(
                f"STATUS=waiting for the database: {problem}", "EXTEND_TIMEOUT_USEC=30000000"
            )

        url = _store_url(place)
        return await open_database(place.state / "agentd.db", url, wait=wait, when_away=when_away)

    def _budget_ledger(self) -> BudgetLedger:
        return BudgetLedger(
            self.journal,
            clock=self.clock,
            zone=lambda: self.zone,
            config=lambda: self.config,
            is_shared=self.shared,
        )

    def _traces(self, config: Config) -> Traces | None:
        """Return who tells OpenTelemetry of runs; None, and nothing imported, where nobody listens;
        ConfigError.
        """
        endpoint, env = config.otel.endpoint, self.place.env
        if not endpoint and not any(env.get(name) for name in OTLP):
            return None
        from daemon.runs.tracing import Traces
        from daemon.telemetry.span_exporter import SpanExporter, otlp_pipeline, wanted

        receiver = wanted(endpoint, env, file=display(config.file))
        if receiver is None:
            return None
        for name in OTLP_HEADERS:
            self.secrets.add_headers(env.get(name, ""))
        exporter, now = SpanExporter(lambda: otlp_pipeline(receiver)), self.clock.now
        return Traces(
            exporter, self.journal, config=lambda: self.config, now=now, redact=self.redact
        )

    def _journal(self, database: Database) -> Journal:
        lease, now = self.config.executor.lease, self.clock.now
        journal = Journal(
            database, clock=now, alerting=_alerting(self.config), lease=lease, in_turn=self.shared
        )
        journal.keep_policy(self.policy.hash, self.policy.text)
        database.when_refused = lambda fault: self.full_disk_incident.record(fault)
        return journal

    def _executor(self) -> LocalRunQueue:
        kind = LocalRunQueue
        if self.shared:
            from daemon.scheduler.cluster.run_queue import ClusterRunQueue

            kind = ClusterRunQueue
        most = self.config.daemon.max_concurrent
        return kind(self._live, max_concurrent=most, clock=self.clock.now, group_of=self._lane_of)

    def _talk(self) -> Conversations:
        return Conversations(
            self.journal,
            self.memory,
            routine=lambda: routine_of(self.config),
            provider=lambda: self.providers.chain(routine_of(self.config))[0],
            submit=self.executor.submit,
            clock=self.clock.now,
            language=lambda: self.config.agent.language,
            route=lambda: self.config.ask.auto_route,
        )

    def _approvals(self) -> Approvals:
        return Approvals(
            self.journal,
            CallDescriber(lambda: self.policy, lambda: self.config.scripts_path),
            Remembered(self.place.state / "approvals.toml"),
            submit=self.executor.submit,
            clock=self.clock,
            shared=self.shared,
        )

    async def _close(self) -> None:
        if self.traces:
            await self.traces.close()
        if "full_disk_incident" in vars(self):
            await self.full_disk_incident.close()
        await self.model_outages.close()
        await self.servers.close()
        await self.sandbox_detection.close()
        self.events.close()
        await self.memory.close()
        for providers in (self.providers, *self._retired):
            await providers.close()

    @cached_property
    def sandbox_detection(self) -> SandboxDetection:
        """What finds out how programs can be confined here; as root they run as somebody else."""
        workspace = self.config.workspace_path(self.place.state)
        return SandboxDetection(lambda: self.policy.sandbox, self.place.state, tenant(workspace))

    def _read_policy(self, config: Config) -> Policy:
        """Return the policy; ConfigError if it, or the workspace it speaks of, opens what is the
        daemon's own.
        """
        place = self.place
        private = (
            config.file,
            config.scripts_path,
            place.state / "agentd.db",
            place.state / "approvals.toml",
            place.log_file.parent,
            place.socket,
        )
        workspace = config.workspace_path(place.state)
        return Policy.load(
            config.policy_path, workspace=workspace, private=private, tools=self.own_tools.names()
        )

    def tell(self, faults: Sequence[Fault]) -> None:
        """Log what is wrong with routines, each fault once for as long as it is there."""
        for fault in faults:
            if fault not in self._told:
                log.warning("routine.invalid", fault=str(fault))
        self._told = frozenset(faults)

    def catalog(self) -> SkillCatalog:
        """Read the skills beside the config."""
        from daemon.definitions.skills import load

        found = load(self.config.folder / "skills")
        for fault in {str(fault) for fault in found.faults.values()} - self._broken_skills:
            log.warning("skill.invalid", fault=fault)
            self._broken_skills.add(fault)
        return found

    def _server_key(self, name: str) -> str | None:
        return self._known_secret(
            self.config.key_of(f"mcp.{name}", self.config.mcp[name], self.place.env)
        )

    def _known_secret(self, key: str | None) -> str | None:
        if key:
            self.secrets.add(key)
        return key

    def _read_targets(self, config: Config) -> Targets:
        """Return where reports may go; ConfigError if the address of one is missing."""
        place = self.place
        proxies = [value for name, value in place.env.items() if name.lower() in PROXIES]
        for url in (*config.addresses(), *proxies):
            place.secrets.add_address(url)
        for server in config.mcp.values():
            passed = {name: place.env[name] for name in server.pass_env if name in place.env}
            place.secrets.add_environment({**server.env, **passed})
        return Targets(
            config,
            workspace=config.workspace_path(place.state),
            env=place.env,
            secrets=place.secrets,
        )

    def _outbox(self) -> Outbox:
        return Outbox(
            journal=self.journal,
            channel=self._channel,
            clock=self.clock,
            redact=self.redact,
            count=self.metrics.sent,
        )

    @cached_property
    def model_outages(self) -> ModelOutages:
        """Who keeps count of models that do not answer."""
        return ModelOutages(self.journal, zone=lambda: self.zone.key, wake=self.outbox.wake)

    @cached_property
    def full_disk_incident(self) -> FullDiskIncident:
        """Who knows that the database takes nothing; most never need to."""
        from daemon.delivery.incidents.full_disk import FullDiskIncident

        return FullDiskIncident(self.journal, clock=self.clock.now, wake=self.outbox.wake)

    @cached_property
    def metrics(self) -> Metrics:
        """What has happened since the process began."""
        return Metrics()

    def redact(self, text: str) -> str:
        return self.place.secrets.redact(text)

    def _channel(self, target: str) -> Channel:
        return self.targets.channel(target)

    def _open_log(self) -> None:
        settings = self.config.log
        configure(
            level=settings.level,
            console=self.place.console,
            file=self.place.log_file,
            secrets=self.secrets,
            max_bytes=settings.max_mb * 1_000_000,
            keep=settings.keep,
            env=self.place.env,
        )

    def _tools(self) -> FunctionRegistry:
        registry = FunctionRegistry(known_good=True)
        finish.register(registry)
        report_items.register(registry, self.journal)
        sysinfo.register(registry)
        files.register(registry, lambda: self.policy)
        zone, confining = self.zone.key, self.sandbox_detection.sandbox
        shell.register(registry, lambda: self.policy, sandbox=confining, zone=zone)
        git.register(registry, lambda: self.policy, sandbox=confining, zone=zone)
        script.register(
            registry,
            lambda: self.policy,
            lambda: self.config.scripts_path,
            sandbox=confining,
            zone=zone,
        )
        http_request.register(registry, lambda: self.policy)
        memory_tools.register(registry, self.memory)
        self_info.register(registry, self.describe, self.describe_routine)
        subagent.register(registry, lambda: self.delegation)
        skill.register(registry, self.catalog)
        routine.register(registry, lambda: self.agent_routines)
        settings.register(registry, lambda: self.overlay)
        search = self.config.search
        if search.kind:
            key = self._known_secret(self.config.key_of("search", search, self.place.env))
            web_search.register(registry, search.kind, base_url=search.base_url, key=key)
        try:
            registry.adopt(self.own_tools)
        except ValueError as error:
            file = display(self.config.file)
            raise ConfigError(
                Fault(file=file, key="tools", found="", problem=str(error), hint="rename yours")
            ) from None
        return registry

    @property
    def config(self) -> Config:
        return self.place.config

    @property
    def secrets(self) -> Secrets:
        return self.place.secrets

    @cached_property
    def run_context(self) -> RunContext:
        """What runs find around themselves; like all that only they need, it is not there before
        READY without need.
        """
        from daemon.runs.context import RunContext

        return RunContext(self.run_services)

    @cached_property
    def run_services(self) -> RunServices:
        """What runs and replays use of the daemon."""
        from daemon.runs.context import RunServices

        return RunServices(
            current=self.reloadable_parts,
            workspace=self.config.workspace_path(self.place.state),
            owner=self.owner,
            start=self.boot,
            clock=self.clock,
            secrets=self.secrets,
            journal=self.journal,
            memory=self.memory,
            events=self.events,
            outbox=self.outbox,
            approvals=self.approvals,
            conversations=self.talk,
            registry=self.registry,
            mcp_servers=self.servers,
            load_skills=self.catalog,
            budget_ledger=self.budget_ledger,
            model_outages=self.model_outages,
            sandbox_detection=self.sandbox_detection,
        )

    def reloadable_parts(self) -> ReloadableParts:
        """Return what a reload of the definitions replaces, as it is now."""
        from daemon.runs.context import ReloadableParts

        return ReloadableParts(
            config=self.config,
            zone=self.zone,
            policy=self.policy,
            providers=self.providers,
            targets=self.targets,
            traces=self.traces,
        )

    @cached_property
    def delegation(self) -> SubagentRunner:
        from daemon.runs.subagents import SubagentRunner

        return SubagentRunner(self.run_context)

    @cached_property
    def agent_routines(self) -> AgentRoutines:
        """Who makes and steers routines for agents."""
        from daemon.scheduler.agent_routines import AgentRoutines

        return AgentRoutines(
            folder=self.place.state / MADE,
            home=lambda: self.config.routines_path,
            engine=self.engine,
            journal=self.journal,
            policy=lambda: self.policy,
            maker_of=lambda run: self.run_context.routine_of(run),
            rules=lambda: self._routine_rules(self.config),
            reload=self._take_up_if_it_can_be,
            now=self.clock.now,
        )

    @cached_property
    def overlay(self) -> Overlay:
        """Who reads and writes settings for agents."""
        from daemon.definitions.config_overlay import Overlay

        return Overlay(
            file=self.place.state / OVERLAY, config=lambda: self.config, reload=self._take_up
        )

    async def _take_up(self) -> None:
        """Read the definitions again, where a daemon serves: `agentd once` leaves that to the next
        one.
        """
        if self.engine.started:
            await self.reload()

    async def _take_up_if_it_can_be(self) -> None:
        try:
            await self._take_up()
        except (
            ConfigError
        ):  # of something else, and told as such; this is taken up once that is mended
            log.warning("definitions.kept", fault=self.reload_fault)

    def _tell_of_overlay(self, config: Config) -> None:
        """Say what of the settings that agents wrote cannot be used; without it, that nothing is
        wrong.
        """
        self.reload_fault = None
        if config.overlay_fault:
            self.reload_fault = (
                f"what agents wrote with the tool config does not count: {config.overlay_fault}"
            )
            log.warning("config.overlay_ignored", fault=str(config.overlay_fault))

    @cached_property
    def rehearsals(self) -> Rehearsals:
        """Who tries routines before they are trusted."""
        from daemon.runs.rehearsal.rehearsals import Rehearsals

        return Rehearsals(
            self.journal,
            self.engine,
            submit=self.executor.submit,
            afford=self._afford,
            clock=self.clock,
            zone=lambda: self.zone.key,
        )

    @cached_property
    def replays(self) -> Replays:
        """Who plays runs again."""
        from daemon.runs.replay.replays import Replays

        return Replays(self.run_services)

    def clock_was_set(self) -> None:
        """Reckon anew how long to wait for each instant: the clock was set, or the machine woke
        from suspend.
        """
        self.executor.start_due()
        self.outbox.wake()
        self.approvals.wake()
        self.engine.handle_clock_change()

    def _look_at_waits(self) -> None:
        """Look again at what waits for an instant: the clock was set, and some of these were
        moved.
        """
        self.executor.rebuild_order()
        self.outbox.wake()
        self.approvals.wake()

    async def _live(self, run_id: str) -> Run | None:
        from daemon.runs.run import supervise

        if self.fleet:  # what it was told elsewhere
            self.talk.inbox.put(await self.journal.told(run_id))
        try:
            with self.metrics.under_way():
                run = await supervise(run_id, self.run_context)
        finally:
            if self.traces:
                self.traces.look(run_id)
        if run is not None and run.status.ended:
            self.metrics.ran(run)
            if run.provider and run.status is Status.SUCCEEDED:
                self.model_outages.record_answer(run.provider)
            if not (self.engine.note_success(run) and self.talk.owes_nothing(run)):
                await asyncio.shield(self._after(run))
        return run

    async def _after(self, run: Run) -> None:
        await self.engine.note_end(run)
        await self.talk.ended(run)

    async def join(
        self, kind: str, lead: Callable[[], Sequence[tuple[str, Any]]] | None = None
    ) -> Cluster:
        """Be one of several on this database: a daemon, or a worker, which only lives what daemons
        start.
        """
        from daemon.scheduler.cluster.cluster import Cluster

        here = kind == "worker" or self.config.executor.here
        url = self.config.store_url(self.place.env)
        self.fleet = Cluster(
            self,  # type: ignore[arg-type]  # shared, it has a FleetExecutor
            url,
            kind=kind,
            lives=here,
            has=self._has,
            lead=lead,
            when_moved=self._moved,
            when_paused=self._paused,
            on_waits_moved=self._look_at_waits,
        )
        await self.fleet.join()
        return self.fleet

    @cached_property
    def _sources(self) -> dict[str, str]:
        """The file or package that each tool of the user's own comes from."""
        return {}

    def _has(self) -> Json:
        """Return what runs may need that this process has."""
        bound = self.config.tools.machines
        host = os.uname().nodename
        absent = {
            name
            for name, source in self._sources.items()
            if not matches_host(bound.get(source, ()), host)
        }
        return having(self.config, self.registry.names(), absent=absent, host=host)

    async def _waits_for(self, runs: Sequence[Run]) -> dict[str, str]:
        """Say of queued runs what they wait for that no process has which lives runs."""
        queued = [run for run in runs if run.status is Status.QUEUED and not run.not_before]
        if not self.fleet or not queued:
            return {}
        there = [each for each in await self.journal.workers() if each.silent < self.journal.lease]
        found = {
            run.id: describe_missing_worker(await self.journal.definition(run.definition), there)
            for run in queued
        }
        return {run: words for run, words in found.items() if words}

    def _moved(self, run: Run) -> None:
        """Hear that a run which lives elsewhere waits for a person, or has ended."""
        if run.status is Status.WAITING:
            self.approvals.wake()
        elif run.status.ended:
            self.outbox.wake()
            self.memory.ring()  # it may have left something behind that is to be embedded
            self.journal.when_ended(run)
            self.tasks.create_task(self._ended_elsewhere(run), name=f"end of {run.id}")

    def _paused(self) -> None:
        """Hear that somebody may have paused or resumed a routine, or allowed a call for good, on
        whichever machine.
        """
        self.tasks.create_task(self._heed(), name="pauses of others")

    async def _heed(self) -> None:
        try:
            await self.approvals.heed()
            await self.engine.refresh_states()
        except (
            DaemonError
        ) as error:  # the connection that tells us comes back with the database, and we look again
            log.warning("cluster.pause_missed", detail=str(error))

    async def _ended_elsewhere(self, run: Run) -> None:
        try:
            await self._after(run)
        except DaemonError as error:  # the ends that were missed are looked up at the next start
            log.warning("cluster.end_missed", run=run.id, detail=str(error))

    def _lane_of(self, run: Run) -> ConcurrencyGroup:
        """Return which provider a run will ask first, as its routine stands now."""
        routine = (
            routine_of(self.config) if run.routine == ASK else self.engine.routines.get(run.about)
        )
        name = (routine and routine.run.provider) or self.config.provider
        if name not in self.config.provider_names:  # it was taken out of the config meanwhile
            return ConcurrencyGroup(name=name)
        settings = self.config.provider_config(name)
        return ConcurrencyGroup(
            name=name, limit=settings.max_concurrency, asks=settings.kind != "offline"
        )

    async def _afford(self, routine: Routine) -> str | None:
        """Return the cap that leaves no room for a run of this routine; None if there is room."""
        name = routine.run.provider or self.config.provider
        if (
            name not in self.config.provider_names
            or self.config.provider_config(name).kind == "offline"
        ):
            return None
        return await self.budget_ledger.find_exhausted_cap(
            routine, lambda: self.budget_ledger.prices.load(name, routine.run.model)
        )

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
        routine = self.engine.routines.get(name.rpartition("/")[2])
        if routine is None:
            return {}
        spec = routine.run
        return {
            "when": self.engine.describe_schedule(routine),
            "tools": self.registry.names(spec.tools),
            "policy": self.policy.summary(
                name, self.registry.names(spec.tools), language=self.config.agent.language
            ),
            "max_iterations": spec.max_iterations,
            "max_tool_calls": spec.max_tool_calls,
            "timeout": str(spec.timeout),
        }

    def api(self) -> ApiContext:
        """Return what the control API touches."""
        return ApiContext(
            version=__version__,
            journal=self.journal,
            engine=self.engine,
            executor=self.executor,
            events=self.events,
            clock=self.clock.now,
            process=self._process,
            reload=self.reload,
            rename=self._rename,
            adopt=lambda name: self.agent_routines.adopt(name),
            remove=lambda name: self.agent_routines.removed(name),
            check=self._check,
            words=self.engine.describe_schedule,
            elsewhere=self.engine.describe_host_mismatch,
            wake_outbox=self.outbox.wake,
            preview=lambda routine: self.run_context.preview(routine),
            replays=lambda: self.replays,
            rehearsals=lambda: self.rehearsals,
            metrics=self.metrics,
            caps=lambda: (self.config.budget.day, self.config.budget.month),
            access=self._access,
            targets=lambda: self.config.target_names,
            providers=lambda: self.config.provider_names,
            log_file=self.place.log_file,
            memory=self.memory,
            budget_ledger=self.budget_ledger,
            approvals=self.approvals,
            talk=self.talk,
            waits_for=self._waits_for,
            forgetting=Forgetting(
                self.memory,
                clock=self.clock.now,
                out_of_reach=self._out_of_reach(),
                when_forgotten=self.journal.look_again,
            ),
        )

    async def _rename(self, old: str, new: str) -> list[str]:
        from daemon.app.commands.rename import rename

        still = await rename(self.engine, self.memory, self.policy, old, new)
        await self.reload()
        return still

    def _access(self) -> Access:
        control = self.config.control
        return Access(
            operators=frozenset({os.getuid(), 0, *control.operators}),
            readers=frozenset(control.readers),
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
            "provider": self.config.provider,
            "sandbox": self.sandbox_detection.known.level if self.sandbox_detection.known else None,
            "log": str(self.place.log_file),
            "fault": self.reload_fault,
        }

    async def definitions(self, config: Config) -> Loaded:
        """Read the routines; one that names an unknown provider or tool is as invalid as one that
        is misspelt.
        """
        made, rules = self.place.state / MADE, self._routine_rules(config)
        return await asyncio.to_thread(load_folder, config.routines_path, made=made, rules=rules)

    def _routine_rules(self, config: Config) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
        return (
            *against(config.provider_names, self.registry.names(), targets=config.target_names),
            *price_checks(config),
        )

    async def _check(self) -> Sequence[CheckView]:
        from daemon.app.doctor.command import examine

        return await asyncio.to_thread(
            examine, self.place.config, self.place.state, self.place.socket, self.place.env
        )

    def seeds(self) -> dict[str, str]:
        """Return what every agent should be able to find out about its home."""
        config = self.place.config
        return {
            "agentd:database": (
                f"The journal and memory are in {self.database.place}; tools cannot reach it."
            ),
            "agentd:logs": (
                f"The log is {self.place.log_file}, one JSON object per line; `agentctl logs` shows "  # noqa: E501
                "it."
            ),
            "agentd:config": f"The config is {config.file}, routines are in {config.routines_path}, "  # noqa: E501
            "the policy is "
            f"{config.policy_path}. People edit them; the daemon reads them again by itself.",
            "agentd:tools": (
                f"Tools that exist here: {', '.join(self.registry.names())}. The policy judges each "  # noqa: E501
                "call."
            ),
        }

    # --- definitions, read again ---

    def definition_folders(self) -> list[Path]:
        config = self.place.config
        made = self.place.state / MADE
        folders = [
            config.folder,
            config.routines_path,
            config.policy_path.parent,
            *([made] if made.is_dir() else ()),
        ]
        return list(dict.fromkeys(folders))

    async def reload(self) -> ReloadView:
        """Read config, policy and routines again; ConfigError if one of the three cannot be read:
        nothing changes.

        A routine that cannot be used is listed as invalid while the others change.
        """
        async with (
            self._reloading
        ):  # a command and a change of a file may ask for it at the same time
            return await self._reload()

    async def _reload(self) -> ReloadView:
        old = self.place.config
        try:
            config = await asyncio.to_thread(load_config, old.file, self.place.state / OVERLAY)
            _refuse_another_workspace(config, old)
            policy = await asyncio.to_thread(self._read_policy, config)
            providers = Providers(config, self.place.env, self.place.secrets)
            providers.get(config.provider)
            secret = config.hooks_secret()
            targets = self._read_targets(config)
            loaded = await self.definitions(config)
            traces = (
                self.traces if config.otel.endpoint == old.otel.endpoint else self._traces(config)
            )
        except ConfigError as error:
            self.reload_fault = str(error)
            raise
        self._tell_of_overlay(config)
        self.place, self.policy = replace(self.place, config=config), policy
        self.journal.keep_policy(policy.hash, policy.text)
        self.webhooks.sign_with(secret)
        self.journal.alerting, self.targets = _alerting(config), targets
        if config.log != old.log:
            self._open_log()
        if traces is not self.traces:
            before, self.traces = self.traces, traces
            if before:
                await before.close()
        if config.providers != old.providers or config.provider != old.provider:
            self._retired.append(self.providers)  # runs under way still ask them
            self.providers = providers
        self.executor.set_max_concurrent(config.daemon.max_concurrent)
        self.zone = ZoneInfo(config.timezone or host_zone())
        changes = Changes()
        if self.engine.started:
            changes = await self.engine.reload(loaded, zone=self.zone.key)
        else:  # a worker
            await self.engine.load(loaded)
        if self.fleet:
            self.fleet.take_runs(loaded.routines.values(), self.engine.is_for_this_host)
        try:
            if self.engine.started:
                await self.webhooks.open(self.tasks)
        except DaemonError as error:
            self.reload_fault = str(error)
            log.warning("hooks.closed", fault=str(error))
        faults = [fault for error in loaded.faults.values() for fault in error.faults]
        if changes or config != old:
            log.info(
                "definitions.reloaded",
                added=changes.added,
                changed=changes.changed,
                removed=changes.removed,
            )
        self.tell(faults)
        return {
            "added": list(changes.added),
            "changed": list(changes.changed),
            "removed": list(changes.removed),
            "faults": [view for error in loaded.faults.values() for view in fault_views(error)],
        }


def _store_url(place: Installation) -> str:
    url = place.config.store_url(place.env)
    place.secrets.add_address(url)
    return url


def _owner(lock: StateLock, database: Database) -> str:
    """Return who holds the leases of this process; where others have some too, it begins with the
    home it lives in.
    """
    process = f"{os.uname().nodename}:{os.getpid()}:{new_id()}"
    return f"{lock.home(new_id())}:{process}" if database.shared else process


def _refuse_another_workspace(new: Config, old: Config) -> None:
    if new.workspace != old.workspace:
        file, found, problem = (
            str(old.file),
            str(new.workspace),
            "cannot change while the daemon runs",
        )
        raise ConfigError(
            Fault(file=file, key="workspace", found=found, problem=problem, hint="restart")
        )


def _alerting(config: Config) -> Alerting:
    rules = config.incidents
    return Alerting(remind=rules.remind, cool_down=rules.cool_down, to=rules.to)


def _workspace(place: Installation) -> Path:
    """Return the folder agents work in, made if need be."""
    folder = place.config.workspace_path(place.state)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        problem = f"cannot be the folder agents work in: {error.strerror}"
        fault = Fault(
            file=str(place.config.file), key="workspace", found=str(folder), problem=problem
        )
        raise ConfigError(fault) from error
    if user := tenant(folder):
        settle(folder, user)
    return folder
