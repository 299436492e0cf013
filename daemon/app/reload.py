"""Reloading: config, policy and routines are read again, and put in force if they can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from daemon.api.schemas import ReloadView, fault_views
from daemon.app.installation import Installation, open_log
from daemon.app.settings import alerting_of, open_tracer, overlay_fault, read_settings
from daemon.definitions.config.loading import load_config
from daemon.definitions.paths import OVERLAY
from daemon.definitions.routines.folder import AGENT_FOLDER, Changes, Loaded, load_folder
from daemon.errors import ConfigError, DaemonError, Fault
from daemon.scheduler.routine_rules import routine_rules

if TYPE_CHECKING:
    from daemon.app.webhooks import Webhooks
    from daemon.definitions.config.config import Config
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.cluster.cluster import Cluster
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.tools.registry import FunctionRegistry

log = structlog.get_logger()


class Reloader:
    """Read the definitions again, and put them in force."""

    def __init__(
        self,
        *,
        installation: Installation,
        settings: LiveSettings,
        own_tools: FunctionRegistry,
        registry: FunctionRegistry,
        journal: Journal,
        clock: Clock,
        queue: LocalRunQueue,
        engine: RoutineEngine,
        webhooks: Webhooks,
        cluster: Cluster | None,
    ) -> None:
        self._installation, self._settings = installation, settings
        self._own_tools, self._registry = own_tools, registry
        self._journal, self._clock = journal, clock
        self._queue, self._engine = queue, engine
        self._webhooks, self._cluster = webhooks, cluster
        self._lock = asyncio.Lock()
        self._logged_faults: frozenset[Fault] = frozenset()
        self.fault = overlay_fault(settings.config)
        """What was wrong at the last attempt, in words; None if nothing was."""

    def folders(self) -> list[Path]:
        """Return the folders whose files are definitions."""
        config = self._settings.config
        routines_of_agents = self._installation.state / AGENT_FOLDER
        folders = [config.folder, config.routines_path, config.policy_path.parent]
        if routines_of_agents.is_dir():
            folders.append(routines_of_agents)
        return list(dict.fromkeys(folders))

    async def load_routines(self, config: Config | None = None) -> Loaded:
        """Read the routines that `config`, by default the one in force, names.

        A routine that names an unknown provider or tool is as invalid as one that is misspelt.
        """
        config = config or self._settings.config
        return await asyncio.to_thread(
            load_folder,
            config.routines_path,
            agent_folder=self._installation.state / AGENT_FOLDER,
            rules=routine_rules(config, self._registry.names()),
        )

    def log_faults(self, errors: Iterable[ConfigError]) -> None:
        """Log what is wrong with routines, each fault once for as long as it is there."""
        faults = [fault for error in errors for fault in error.faults]
        for fault in faults:
            if fault not in self._logged_faults:
                log.warning("routine.invalid", fault=str(fault))
        self._logged_faults = frozenset(faults)

    async def reload(self) -> ReloadView:
        """Read config, policy and routines again; ConfigError if one of the three cannot be read:
        nothing changes.

        A routine that cannot be used is listed as invalid while the others change.
        """
        async with self._lock:  # a command and a changed file may ask for it at the same time
            return await self._reload()

    async def reload_if_serving(self) -> None:
        """Reload where a daemon serves; `agentd once` leaves that to the next daemon."""
        if self._engine.started:
            await self.reload()

    async def reload_if_valid(self) -> None:
        """Reload where a daemon serves; what is wrong with a definition is logged."""
        try:
            await self.reload_if_serving()
        except ConfigError:  # it is in another file, and what changed counts once that is mended
            log.warning("definitions.kept", fault=self.fault)

    async def _reload(self) -> ReloadView:
        settings, old = self._settings, self._settings.current
        try:
            config = await asyncio.to_thread(
                load_config, old.config.file, self._installation.state / OVERLAY
            )
            _refuse_another_workspace(config, old.config)
            new = await asyncio.to_thread(
                read_settings, self._installation, config, self._own_tools, earlier=old
            )
            loaded = await self.load_routines(config)
            tracer = settings.tracer
            if config.otel.endpoint != old.config.otel.endpoint:
                tracer = open_tracer(
                    self._installation, config, settings, self._journal, self._clock
                )
        except ConfigError as error:
            self.fault = str(error)
            raise
        self.fault = overlay_fault(config)
        settings.replace(new)
        self._journal.audit.keep_policy(new.policy.hash, new.policy.text)
        self._journal.incidents.alerting = alerting_of(config)
        if config.log != old.config.log:
            open_log(self._installation, config)
        if tracer is not settings.tracer:
            earlier_tracer, settings.tracer = settings.tracer, tracer
            if earlier_tracer:
                await earlier_tracer.close()
        self._queue.set_max_concurrent(config.daemon.max_concurrent)
        changes = await self._take_up(loaded)
        if changes or config != old.config:
            log.info(
                "definitions.reloaded",
                added=changes.added,
                changed=changes.changed,
                removed=changes.removed,
            )
        self.log_faults(loaded.faults.values())
        return {
            "added": list(changes.added),
            "changed": list(changes.changed),
            "removed": list(changes.removed),
            "faults": [view for error in loaded.faults.values() for view in fault_views(error)],
        }

    async def _take_up(self, loaded: Loaded) -> Changes:
        """Hand the routines to the engine, to the cluster and to the webhooks."""
        engine = self._engine
        changes = Changes()
        if engine.started:
            changes = await engine.reload(loaded, zone=self._settings.zone.key)
        else:  # a worker
            await engine.load(loaded)
        if self._cluster:
            self._cluster.take_runs(loaded.routines.values(), engine.is_for_this_host)
        try:
            if engine.started:
                await self._webhooks.open()
        except DaemonError as error:
            self.fault = str(error)
            log.warning("hooks.closed", fault=str(error))
        return changes


def _refuse_another_workspace(new: Config, old: Config) -> None:
    if new.workspace != old.workspace:
        raise ConfigError(
            Fault(
                file=str(old.file),
                key="workspace",
                found=str(new.workspace),
                problem="cannot change while the daemon runs",
                hint="restart",
            )
        )
