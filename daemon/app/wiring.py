"""Builds the daemon from its parts.

`open_app` makes all of them, in order; background.py lists the tasks that run beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog

from daemon.agent.conversations.conversations import Conversations
from daemon.app.cluster_member import ClusterMember, wake_waits
from daemon.app.installation import (
    Installation,
    lease_owner,
    make_workspace,
    open_log,
    open_store,
    store_url,
)
from daemon.app.lost_history import find_trace_of_lost_history, report_lost_history
from daemon.app.memory import open_memory
from daemon.app.parts import App, DeliveryServices, Role, RunExecution, Scheduling, Store, Tools
from daemon.app.reload import Reloader
from daemon.app.self_description import SelfDescription
from daemon.app.settings import incident_settings_of, open_tracer, read_settings
from daemon.app.skills import SkillFolder
from daemon.app.webhooks import Webhooks
from daemon.definitions.config_overlay import Overlay
from daemon.definitions.paths import OVERLAY
from daemon.definitions.routines.folder import AGENT_FOLDER
from daemon.definitions.words import display
from daemon.delivery.incidents.full_disk import FullDiskIncident
from daemon.delivery.incidents.model_outages import ModelOutages
from daemon.delivery.outbox import Outbox
from daemon.errors import ConfigError, Fault
from daemon.models import Run
from daemon.providers.budget import BudgetLedger
from daemon.runs.approvals.approvals import Approvals
from daemon.runs.approvals.remembered import RememberedCalls
from daemon.runs.approvals.request import CallDescriber
from daemon.runs.events import EventBus
from daemon.runs.parts import RunParts
from daemon.runs.services import RunServices
from daemon.runs.settings import LiveSettings
from daemon.sandbox.current import SandboxDetection
from daemon.sandbox.user import find_program_user
from daemon.scheduler.agent_routines import AgentRoutines
from daemon.scheduler.engine import RoutineEngine
from daemon.scheduler.run_queue import ConcurrencyGroup, LocalRunQueue, RunSupervisor
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.store.lock import lock_state
from daemon.system.clock import Clock, SystemClock
from daemon.system.timer import clock_watcher
from daemon.system.watch import DirectoryWatcher, seconds_between_wakes
from daemon.telemetry.metrics import Metrics
from daemon.tools import user_tools
from daemon.tools.builtin import config as config_tool
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
from daemon.tools.mcp.accepted_tools import AcceptedTools
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.chat.chats import Chats
    from daemon.delivery.channels.base import Channel
    from daemon.scheduler.cluster.cluster import Cluster

log = structlog.get_logger()


@asynccontextmanager
async def open_app(
    installation: Installation, *, clock: Clock | None = None, role: Role = "daemon"
) -> AsyncIterator[App]:
    """Build the daemon on its state folder, and take it apart again.

    Raises ConfigError for a policy or state that cannot be used, StateBusy if another daemon holds
    the state folder.
    """
    lock = lock_state(installation.state)
    try:
        make_workspace(installation)
        trace = find_trace_of_lost_history(installation)  # before this start has a log of its own
        open_log(installation, installation.config)
        if overrides := installation.config.overrides:
            log.info("config.overridden", variables=[item.variable for item in overrides])
        sources: dict[str, str] = {}
        own_tools = user_tools.load(installation.config, sources=sources)
        settings = LiveSettings(read_settings(installation, installation.config, own_tools))
        database = await open_store(installation)
        try:
            app = await _build(
                installation,
                clock=clock or SystemClock(),
                role=role,
                settings=settings,
                database=database,
                owner=lease_owner(lock, database),
                own_tools=own_tools,
                sources=sources,
            )
            if trace:
                await report_lost_history(app.store.journal.incidents, trace)
            watcher = clock_watcher(app.clock, installation.env)
            watcher.start(partial(handle_clock_change, app))
            try:
                yield app
            finally:
                watcher.stop()
                await _close(app)
        finally:
            await database.close()
    finally:
        lock.release()


async def _build(
    installation: Installation,
    *,
    clock: Clock,
    role: Role,
    settings: LiveSettings,
    database: Database,
    owner: str,
    own_tools: FunctionRegistry,
    sources: dict[str, str],
) -> App:
    """Build the parts, each from those above it."""
    config, secrets, state = installation.config, installation.secrets, installation.state
    workspace, start = installation.workspace, clock.now()
    tasks, metrics = asyncio.TaskGroup(), Metrics()

    # the store, and who is told when it takes nothing
    is_shared = config.executor.kind == "procrastinate" and role != "once"
    journal = Journal(
        database,
        clock=clock.now,
        incident_settings=incident_settings_of(config),
        lease=config.executor.lease,
        in_turn=is_shared,
    )
    events = EventBus()
    chats: Chats | None = None
    if config.chat:
        from daemon.chat.chats import Chats

        chats = Chats(settings, secrets=secrets, journal=journal, events=events)

    def channel(target: str) -> Channel:
        if chats and target in chats.channels:
            return chats.channels[target]
        return settings.channel(target)

    outbox = Outbox(
        journal=journal,
        channel=channel,
        clock=clock,
        redact=secrets.redact,
        metrics=metrics,
    )
    delivery = DeliveryServices(
        outbox=outbox,
        model_outages=ModelOutages(journal.incidents, outbox, settings=settings, shared=is_shared),
        full_disk=FullDiskIncident(journal, outbox, clock=clock),
    )
    database.when_refused = delivery.full_disk.record
    journal.audit.keep_policy(settings.policy.hash, settings.policy.text)
    await journal.move_waits()  # before anything that waits is read
    memory = await open_memory(database, config, installation, clock=clock, settings=settings)
    store = Store(database=database, journal=journal, memory=memory, owner=owner, shared=is_shared)
    settings.tracer = open_tracer(installation, config, settings, journal, clock)

    # tools; most are registered further down, when the parts that they use are there
    registry = FunctionRegistry(known_good=True)
    mcp_keys = {
        name: config.key_of(f"mcp.{name}", server, installation.env)
        for name, server in config.mcp.items()
    }
    for key in filter(None, mcp_keys.values()):
        secrets.add(key)
    tools = Tools(
        registry=registry,
        own=own_tools,
        sources=sources,
        mcp_servers=Servers(
            config.mcp,
            registry,
            secrets=mcp_keys,
            accepted_tools=AcceptedTools(journal, outbox, clock=clock.now),
        ),
        sandbox_detection=SandboxDetection(
            lambda: settings.policy.sandbox, state, find_program_user(workspace)
        ),
        skills=SkillFolder(settings),
    )

    # the queue starts runs, and runs queue further ones: it calls the supervisor built below
    async def run(run_id: str) -> Run | None:
        return await supervisor.run(run_id)

    def group_of(run: Run) -> ConcurrencyGroup:
        return supervisor.group_of(run)

    queue = _queue_class(shared=is_shared)(
        run, max_concurrent=config.daemon.max_concurrent, clock=clock, group_of=group_of
    )
    approvals = Approvals(
        journal,
        CallDescriber(settings),
        RememberedCalls(state / "approvals.toml"),
        queue=queue,
        clock=clock,
        shared=is_shared,
        outbox=outbox,
        find_zone=lambda: settings.zone.key,
        redact=secrets.redact,
    )

    async def cancel(run_id: str) -> None:
        queue.interrupt((await journal.runs.request_cancel(run_id)).id)

    budget_ledger = BudgetLedger(
        journal.spending,
        clock=clock,
        settings=settings,
        is_shared=is_shared,
        incidents=journal.incidents,
    )
    directory_watcher = DirectoryWatcher(wake_every=seconds_between_wakes(installation.env))
    engine = RoutineEngine(
        journal=journal,
        submit=queue.submit,
        cancel=cancel,
        clock=clock,
        zone=settings.zone.key,
        shared_journal=is_shared,
        workspace=workspace,
        directory_watcher=directory_watcher,
        find_used_up_cap=budget_ledger.find_used_up_cap,
        on_waits_moved=partial(wake_waits, queue, outbox, approvals),
    )
    conversations = Conversations(
        journal,
        memory,
        settings=settings,
        queue=queue,
        clock=clock,
        budget_ledger=budget_ledger,
        redact=secrets.redact,
    )
    chat_inbound = []
    if chats:
        from daemon.chat.inbound import InboundServices

        chat_inbound = chats.make_inbound(
            InboundServices(
                settings=settings,
                journal=journal,
                conversations=conversations,
                approvals=approvals,
                engine=engine,
                clock=clock,
                redact=secrets.redact,
            )
        )
    parts = RunParts(
        RunServices(
            settings=settings,
            workspace=workspace,
            owner=owner,
            start=start,
            clock=clock,
            secrets=secrets,
            journal=journal,
            memory=memory,
            events=events,
            outbox=outbox,
            approvals=approvals,
            conversations=conversations,
            registry=registry,
            mcp_servers=tools.mcp_servers,
            load_skills=tools.skills.load,
            budget_ledger=budget_ledger,
            model_outages=delivery.model_outages,
            sandbox_detection=tools.sandbox_detection,
        ),
        engine=engine,
        queue=queue,
    )
    supervisor = RunSupervisor(
        settings=settings,
        parts=parts,
        journal=journal,
        engine=engine,
        conversations=conversations,
        model_outages=delivery.model_outages,
        metrics=metrics,
        shared=is_shared,
    )
    runs = RunExecution(
        queue=queue,
        events=events,
        budget_ledger=budget_ledger,
        approvals=approvals,
        conversations=conversations,
        parts=parts,
        supervisor=supervisor,
    )

    webhooks = Webhooks(engine, installation, settings, tasks)
    cluster: Cluster | None = None
    if is_shared:
        from daemon.scheduler.cluster.cluster import Cluster, ClusterServices

        member = ClusterMember(
            installation=installation,
            clock=clock,
            settings=settings,
            store=store,
            delivery=delivery,
            tools=tools,
            queue=queue,
            approvals=approvals,
            engine=engine,
            supervisor=supervisor,
            chat_inbound=chat_inbound,
            tasks=tasks,
        )
        cluster = Cluster(
            ClusterServices(
                database=database,
                journal=journal,
                events=events,
                queue=queue,  # type: ignore[arg-type]  # a ClusterRunQueue where it is shared
                budget_ledger=budget_ledger,
                conversations=conversations,
                owner=owner,
                start=start,
            ),
            member,
            store_url(installation),
            kind=role,
            executes_runs=role == "worker" or config.executor.here,
            may_lead=role == "daemon",
        )
    reloader = Reloader(
        installation=installation,
        settings=settings,
        own_tools=own_tools,
        sources=sources,
        registry=registry,
        journal=journal,
        clock=clock,
        outbox=outbox,
        queue=queue,
        engine=engine,
        webhooks=webhooks,
        cluster=cluster,
    )
    agent_routines = AgentRoutines(
        folder=state / AGENT_FOLDER,
        settings=settings,
        engine=engine,
        journal=journal,
        registry=registry,
        runs=parts,
        reload=reloader.reload_if_valid,
        clock=clock,
    )
    overlay = Overlay(file=state / OVERLAY, settings=settings, reload=reloader.reload_if_serving)
    _register_tools(installation, settings, store, tools, engine, parts, agent_routines, overlay)
    return App(
        installation=installation,
        clock=clock,
        start=start,
        settings=settings,
        metrics=metrics,
        store=store,
        delivery=delivery,
        tools=tools,
        runs=runs,
        scheduling=Scheduling(
            engine=engine,
            agent_routines=agent_routines,
            webhooks=webhooks,
            directory_watcher=directory_watcher,
        ),
        role=role,
        cluster=cluster,
        reloader=reloader,
        chats=chats,
        chat_inbound=chat_inbound,
        tasks=tasks,
    )


def _queue_class(*, shared: bool) -> type[LocalRunQueue]:
    if not shared:
        return LocalRunQueue
    from daemon.scheduler.cluster.run_queue import ClusterRunQueue

    return ClusterRunQueue


def _register_tools(
    installation: Installation,
    settings: LiveSettings,
    store: Store,
    tools: Tools,
    engine: RoutineEngine,
    parts: RunParts,
    agent_routines: AgentRoutines,
    overlay: Overlay,
) -> None:
    """Fill the registry; ConfigError where a tool of the user's own has the name of another."""
    config, registry = installation.config, tools.registry
    sandbox = tools.sandbox_detection.sandbox

    def find_zone() -> str:
        return settings.zone.key

    description = SelfDescription(
        installation=installation, settings=settings, engine=engine, registry=registry
    )
    finish.register(registry)
    report_items.register(registry, store.journal.runs, store.journal.seen_items)
    sysinfo.register(registry)
    files.register(registry, settings)
    shell.register(registry, settings, sandbox=sandbox, find_zone=find_zone)
    git.register(registry, settings, sandbox=sandbox, find_zone=find_zone)
    script.register(registry, settings, sandbox=sandbox, find_zone=find_zone)
    http_request.register(registry, settings)
    memory_tools.register(registry, store.memory)
    self_info.register(registry, description.describe_daemon, description.describe_routine)
    subagent.register(registry, parts)
    skill.register(registry, tools.skills.load)
    routine.register(registry, agent_routines)
    config_tool.register(registry, overlay)
    search = config.search
    if search.kind:
        key = config.key_of("search", search, installation.env)
        if key:
            installation.secrets.add(key)
        web_search.register(
            registry, search.kind, base_url=search.base_url, key=key, contact=search.contact
        )
    try:
        registry.adopt(tools.own)
    except ValueError as error:
        file = display(config.file)
        raise ConfigError(
            Fault(file=file, key="tools", found="", problem=str(error), hint="rename yours")
        ) from None


def handle_clock_change(app: App) -> None:
    """Compute all waits anew: the clock was set, or the machine woke from suspend."""
    app.runs.queue.start_due()
    app.delivery.outbox.wake()
    app.runs.approvals.wake()
    app.scheduling.engine.handle_clock_change()


async def _close(app: App) -> None:
    if app.chats:
        await app.chats.close()
    await app.delivery.full_disk.close()
    await app.delivery.model_outages.close()
    await app.tools.mcp_servers.close()
    await app.tools.sandbox_detection.close()
    app.runs.events.close()
    await app.store.memory.close()
    await app.settings.close()
