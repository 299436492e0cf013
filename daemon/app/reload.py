"""Reloading: config, policy and routines are read again, and take effect if they have no faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from daemon.api.schemas import ReloadView, views_of_faults
from daemon.app.installation import Installation, open_log
from daemon.app.settings import incident_settings_of, log_overlay_error, open_tracer, read_settings
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.restart import (
    find_changed_secrets,
    find_restart_keys,
    read_secret_versions,
)
from daemon.definitions.paths import OVERLAY
from daemon.definitions.routines.folder import (
    AGENT_FOLDER,
    FileCache,
    FolderContents,
    RoutineChanges,
    diff,
    load_folder,
)
from daemon.definitions.words import display
from daemon.errors import ConfigError, DaemonError, Fault
from daemon.policy.output_files import folders_in_use
from daemon.scheduler.routine_checks import routine_checks
from daemon.tools import user_tools

if TYPE_CHECKING:
    from daemon.app.webhooks import Webhooks
    from daemon.definitions.config.config import Config
    from daemon.definitions.reading import CrossFieldCheck
    from daemon.definitions.routines.routine import Routine, RoutineDefinition
    from daemon.delivery.outbox import Outbox
    from daemon.runs.settings import LiveSettings, Settings
    from daemon.scheduler.cluster.cluster import Cluster
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.tools.registry import FunctionRegistry

log = structlog.get_logger()

# Seconds for which `agentctl reload` also reports what the daemon has reloaded by itself.
_REPORT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _AutomaticReloads:
    """What the daemon has reloaded by itself, as files had changed, since the last request."""

    since: float
    """When the first of these reloads was, in seconds of `time.monotonic`."""
    routines: dict[str, Routine]
    """The routines as they were before the first one."""
    files: dict[str, None]
    """What else has changed, in order."""


class Reloader:
    """Reads the definitions again, and lets them take effect."""

    def __init__(
        self,
        *,
        installation: Installation,
        settings: LiveSettings,
        own_tools: FunctionRegistry,
        sources: dict[str, str],
        registry: FunctionRegistry,
        journal: Journal,
        clock: Clock,
        outbox: Outbox,
        queue: LocalRunQueue,
        engine: RoutineEngine,
        webhooks: Webhooks,
        cluster: Cluster | None,
    ) -> None:
        self._installation, self._settings = installation, settings
        self._own_tools, self._sources, self._registry = own_tools, sources, registry
        self._tool_versions = user_tools.read_versions(settings.config)
        self._config_at_start = settings.config
        self._config_is_blank = _is_blank(settings.config.file)
        """Whether the config in force was read from a file without text."""
        self._secrets_at_start = read_secret_versions(settings.config)
        self._applied_settings = settings.current
        """The settings of the last reload that came to its end; those in force may be newer, as a
        reload that fails halfway has put its own in force.
        """
        self._restart_keys: list[str] = []
        """What has changed since the start, by the last reload, and takes a restart."""
        self._journal, self._clock = journal, clock
        self._outbox, self._queue, self._engine = outbox, queue, engine
        self._webhooks, self._cluster = webhooks, cluster
        self._lock = asyncio.Lock()
        self._files = FileCache()
        self._logged_faults: frozenset[Fault] = frozenset()
        self._automatic_reloads: _AutomaticReloads | None = None
        """None after a request."""
        self.fault = log_overlay_error(settings.config)
        """What was wrong at the last reload, in words; None if nothing was."""

    def folders(self) -> list[Path]:
        """Return the folders whose files are definitions."""
        config = self._settings.config
        routines_of_agents = self._installation.state / AGENT_FOLDER
        folders = [config.folder, config.routines_path, config.policy_path.parent]
        if config.tools.files:
            folders.append(config.folder / "tools")
        if routines_of_agents.is_dir():
            folders.append(routines_of_agents)
        return list(dict.fromkeys(folders))

    def calendars_in_force(self) -> dict[Path, tuple[int, ...]]:
        """Return the calendars that routines skip, by path with the version that was read."""
        return {
            self._installation.workspace / calendar.path: calendar.version
            for routine in self._engine.routines.values()
            for calendar in routine.calendars
        }

    async def load_routines(
        self,
        config: Config | None = None,
        own_tools: FunctionRegistry | None = None,
        *,
        versions: Mapping[str, tuple[int, ...]] | None = None,
    ) -> FolderContents:
        """Read the routines that `config` names, for a daemon with `own_tools`; by default with
        the config and the tools in force.

        A routine that names an unknown provider or tool is as invalid as one that is misspelt.
        `versions`: as for `reload`.
        """
        config = config or self._settings.config
        registries = (self._registry, own_tools or self._own_tools)
        # the definitions themselves, not their ids: as long as they are kept here, none is reused
        tools = [
            [registry.get_function(name) for name in registry.names()] for registry in registries
        ]
        self._files.begin((config, tools), in_force=self._engine.routines, versions=versions)
        contents = await asyncio.to_thread(
            load_folder,
            config.routines_path,
            agent_folder=self._installation.state / AGENT_FOLDER,
            checks=self.routine_checks(config, own_tools),
            cache=self._files,
            workspace=self._installation.workspace,
        )
        # noted before any of them can run or watch; earlier ones run until they are replaced
        old_routines = self._engine.routines
        await self._note_folders_in_use(
            config,
            [
                routine
                for name, routine in contents.routines.items()
                if routine is not old_routines.get(name)
            ],
            besides=self._settings.policy.folders_in_use,
        )
        return contents

    def routine_checks(
        self, config: Config | None = None, own_tools: FunctionRegistry | None = None
    ) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
        """Return the checks of routines for a daemon with this config and `own_tools`; by default
        those in force.
        """
        tools = set(self._registry.names())
        registries = [self._registry]
        if own_tools is not None:
            tools = (tools - set(self._own_tools.names())) | set(own_tools.names())
            registries.insert(0, own_tools)
        return routine_checks(
            config or self._settings.config,
            tools,
            registries=registries,
            workspace=self._installation.workspace,
        )

    async def _note_folders_in_use(
        self, config: Config, routines: Iterable[Routine], *, besides: Iterable[str] = ()
    ) -> None:
        """Give the policy the folders of the workspace that these routines watch or deliver to, and
        those of `besides`.
        """
        # In a thread: to look at ten thousand routines takes some 25 ms.
        folders = await asyncio.to_thread(
            folders_in_use, config, tuple(routines), self._installation.workspace
        )
        self._settings.set_folders_in_use(tuple(sorted({*folders, *besides})))

    def log_faults(self, errors: Iterable[ConfigError]) -> None:
        """Log what is wrong with routines, each fault once for as long as it is there."""
        faults = [fault for error in errors for fault in error.faults]
        for fault in faults:
            if fault not in self._logged_faults:
                log.warning("routine.invalid", fault=str(fault))
        self._logged_faults = frozenset(faults)

    async def reload(self, versions: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Read config, policy and routines again.

        `versions` are those of files that were looked at a moment ago, by path: a routine file that
        had the same version at the last load is not read again.

        Raises ConfigError, and changes nothing, if config, policy or the folder of routines cannot
        be read. A single routine with faults is listed as invalid while the others change.
        """
        async with self._lock:  # a command and a changed file may both ask for it
            routines = dict(self._engine.routines)
            changes, changed_files, _ = await self._reload(versions)
            automatic_reloads = self._get_recent_automatic_reloads()
            if automatic_reloads is not None:
                automatic_reloads.files.update(dict.fromkeys(changed_files))
            elif changes or changed_files:
                self._automatic_reloads = _AutomaticReloads(
                    time.monotonic(), routines, dict.fromkeys(changed_files)
                )

    async def reload_by_request(self) -> ReloadView:
        """Reload as `reload` does, and return what changed.

        What the daemon has just reloaded by itself is named as well: it reads a file two seconds
        after a person has written it, and that person asks what became of the file.
        """
        async with self._lock:
            changes, changed_files, faults = await self._reload()
            automatic_reloads = self._get_recent_automatic_reloads()
            if automatic_reloads is not None:
                # In a thread: to compare ten thousand takes 0.1 s.
                changes = await asyncio.to_thread(
                    diff, automatic_reloads.routines, dict(self._engine.routines)
                )
                changed_files = list(dict.fromkeys([*automatic_reloads.files, *changed_files]))
            self._automatic_reloads = None
        return {
            "added": list(changes.added),
            "changed": list(changes.changed),
            "removed": list(changes.removed),
            "files": changed_files,
            "restart": self._restart_keys,
            "faults": [view for error in faults for view in views_of_faults(error)],
        }

    async def reload_if_serving(self) -> None:
        """Reload where a daemon serves; `agentd once` leaves that to the next daemon."""
        if self._engine.is_started:
            await self.reload()

    async def reload_if_valid(self) -> None:
        """Reload where a daemon serves; what is wrong with a definition is logged."""
        try:
            await self.reload_if_serving()
        except ConfigError:  # another file is faulty; the change counts once that file is mended
            log.warning("definitions.kept", fault=self.fault)

    def _get_recent_automatic_reloads(self) -> _AutomaticReloads | None:
        """Return the reloads that nobody asked for; None if there are none or they are too old."""
        automatic_reloads = self._automatic_reloads
        if (
            automatic_reloads is None
            or time.monotonic() - automatic_reloads.since > _REPORT_SECONDS
        ):
            return None
        return automatic_reloads

    async def _reload(
        self, versions: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[RoutineChanges, list[str], list[ConfigError]]:
        """Read everything again; return how the routines changed, which other files did, and what
        is wrong with single routines.
        """
        settings, old_settings = self._settings, self._settings.current
        applied_settings = self._applied_settings
        try:
            is_blank = await asyncio.to_thread(_is_blank, old_settings.config.file)
            if is_blank and not self._config_is_blank:
                raise _emptied_config(old_settings.config)
            config = await asyncio.to_thread(
                load_config, old_settings.config.file, self._installation.state / OVERLAY
            )
            _refuse_another_workspace(config, old_settings.config)
            own_tools, sources = self._own_tools, self._sources
            tool_versions = user_tools.read_versions(config)
            if tool_versions != self._tool_versions:
                sources = {}
                own_tools = await asyncio.to_thread(user_tools.load, config, sources=sources)
            new_settings = await asyncio.to_thread(
                read_settings, self._installation, config, own_tools, old_settings=old_settings
            )
            contents = await self.load_routines(config, own_tools, versions=versions)
            tracer = settings.tracer
            if config.otel.endpoint != applied_settings.config.otel.endpoint:
                tracer = open_tracer(
                    self._installation, config, settings, self._journal, self._clock
                )
            changed_files = _changed_files(applied_settings, new_settings)
            restart_keys = await asyncio.to_thread(self._find_restart_keys, config)
            if own_tools is not self._own_tools:
                changed_files += user_tools.find_changed_files(self._tool_versions, tool_versions)
                self._replace_own_tools(config, own_tools)
                self._sources.clear()
                self._sources.update(sources)
                self._tool_versions = tool_versions
        except ConfigError as error:
            self.fault = str(error)
            raise
        self.fault = log_overlay_error(config)
        self._config_is_blank = is_blank
        settings.replace(new_settings)
        if targets := _changed_targets(applied_settings, new_settings):
            await self._journal.outbox.retry_now(targets)
            self._outbox.wake()
        self._journal.audit.keep_policy(new_settings.policy.hash, new_settings.policy.text)
        self._journal.incidents.settings = incident_settings_of(config)
        if config.log != applied_settings.config.log:
            open_log(self._installation, config)
        if tracer is not settings.tracer:
            earlier_tracer, settings.tracer = settings.tracer, tracer
            if earlier_tracer:
                await earlier_tracer.close()
        self._queue.set_max_concurrent(config.daemon.max_concurrent)
        changes = await self._apply_routines(contents)
        if config.budget != applied_settings.config.budget:
            self._engine.recheck_starts()
        await self._note_folders_in_use(config, self._engine.routines.values())
        self._applied_settings = new_settings
        old_restart_keys, self._restart_keys = self._restart_keys, restart_keys
        if (
            changes
            or changed_files
            or config != applied_settings.config
            or restart_keys != old_restart_keys
        ):
            log.info(
                "definitions.reloaded",
                added=changes.added,
                changed=changes.changed,
                removed=changes.removed,
                **({"files": changed_files} if changed_files else {}),
                **({"restart": restart_keys} if restart_keys else {}),
            )
        faults = list(contents.faults.values())
        self.log_faults(faults)
        return changes, changed_files, faults

    def _find_restart_keys(self, config: Config) -> list[str]:
        """Return what in `config`, and in the files with secrets that it names, has changed since
        the start and takes a restart.
        """
        keys = list(find_restart_keys(self._config_at_start, config))
        versions = read_secret_versions(config)
        return keys + find_changed_secrets(self._secrets_at_start, versions, keys)

    def _replace_own_tools(self, config: Config, own_tools: FunctionRegistry) -> None:
        """Put other tools of `[tools]` in force; ConfigError for a name that another tool has."""
        try:
            self._registry.replace(self._own_tools, own_tools)
        except ValueError as error:
            raise ConfigError(
                Fault(
                    file=display(config.file),
                    key="tools",
                    found="",
                    problem=str(error),
                    hint="rename yours",
                )
            ) from None
        self._own_tools.replace(self._own_tools, own_tools)
        log.info("tools.reloaded", tools=own_tools.names())

    async def _apply_routines(self, contents: FolderContents) -> RoutineChanges:
        """Give the routines to the engine and the cluster, and open the webhook socket if one needs
        it.
        """
        engine = self._engine
        changes = RoutineChanges()
        if engine.is_started:
            changes = await engine.reload(contents, zone=self._settings.zone.key)
        else:  # a worker
            await engine.load(contents)
        if self._cluster:
            self._cluster.take_runs(contents.routines.values(), engine.is_for_this_host)
        try:
            if engine.is_started:
                await self._webhooks.open()
        except DaemonError as error:
            self.fault = str(error)
            log.warning("hooks.closed", fault=str(error))
        return changes


def _changed_files(old_settings: Settings, new_settings: Settings) -> list[str]:
    """Return what has changed besides routines and tools, as a person calls it."""
    names = []
    if new_settings.config != old_settings.config:
        names.append(new_settings.config.file.name)
    if new_settings.policy.hash != old_settings.policy.hash:
        names.append(new_settings.config.policy_path.name)
    keys, addresses = old_settings.providers.keys, old_settings.targets.addresses
    names += [
        f"the key of [providers.{name}]"
        for name, key in new_settings.providers.keys.items()
        if name in keys and key != keys[name]
    ]
    names += [
        f"the address of [targets.{name}]"
        for name, address in new_settings.targets.addresses.items()
        if name in addresses and address != addresses[name]
    ]
    secrets = old_settings.targets.signing_secrets
    names += [
        f"the secret of [targets.{name}]"
        for name, secret in new_settings.targets.signing_secrets.items()
        if name in secrets and secret != secrets[name]
    ]
    if new_settings.webhook_secret != old_settings.webhook_secret:
        names.append("the secret of [hooks]")
    names += [
        f"the secret of [hooks.senders.{name}]"
        for name, sender in new_settings.senders.items()
        if name in old_settings.senders and sender.secret != old_settings.senders[name].secret
    ]
    return names


def _changed_targets(old_settings: Settings, new_settings: Settings) -> list[str]:
    """Return the targets that lead elsewhere, or are spoken to in another way: what they did not
    take, they may take now.
    """
    old, new = old_settings.targets, new_settings.targets
    return [
        name
        for name, table in new_settings.config.targets.items()
        if table != old_settings.config.targets.get(name)
        or old.addresses.get(name) != new.addresses.get(name)
        or old.signing_secrets.get(name) != new.signing_secrets.get(name)
    ]


def _is_blank(file: Path) -> bool:
    """Return whether a file is there and has no text, not even a comment."""
    try:
        return not file.read_bytes().strip()
    except OSError:
        return False  # `load_config` says what is wrong with it


def _emptied_config(config: Config) -> ConfigError:
    # an editor or a shell that failed halfway leaves such a file; nobody removes all settings so
    return ConfigError(
        Fault(
            file=display(config.file),
            key="",
            found="",
            problem="is empty now, so the settings of before stay in force",
            hint="write it again; a comment line alone sets everything to its default",
        )
    )


def _refuse_another_workspace(new_config: Config, old_config: Config) -> None:
    if new_config.workspace != old_config.workspace:
        raise ConfigError(
            Fault(
                file=str(old_config.file),
                key="workspace",
                found=str(new_config.workspace),
                problem="cannot change while the daemon runs",
                hint="restart",
            )
        )
