"""Look at everything that `doctor` judges; nothing is changed by looking."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.api.listener import peer
from daemon.app.doctor.checks import ProviderFacts, Survey
from daemon.app.doctor.confinement import Confinement, confinement
from daemon.app.doctor.rights import holdings
from daemon.app.doctor.upkeep import look
from daemon.app.doctor.vendors import ask_vendors
from daemon.definitions.paths import config_paths, user_home
from daemon.errors import ConfigError, Fault
from daemon.store.lock import NETWORK, filesystem
from daemon.system.clock import host_zone

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.routine import Routine
    from daemon.policy.policy import Policy


def survey(file: Path | None, state: Path, where: Path, env: Mapping[str, str]) -> Survey:
    """Return what there is to see of an installation: its config file, state folder and socket."""
    log = state / "logs" / "agentd.jsonl"
    folder = _existing(state)
    kind = filesystem(folder)
    definitions = _definitions(file) if file else _Definitions()
    config = definitions.config
    chosen = config.timezone if config else None
    listener, pid = _who_listens(where)
    about = state.stat() if state.is_dir() else None
    return Survey(
        python=tuple(sys.version_info[:3]),
        executable=sys.executable,
        sqlite=sqlite3.sqlite_version_info,
        fts5=_has_fts5(),
        uid=os.geteuid(),
        config=file,
        config_tried=tuple(config_paths(env, Path.cwd(), user_home())),
        policy=config.policy_path if config else None,
        config_faults=definitions.config_faults,
        policy_faults=definitions.policy_faults,
        routine_faults=definitions.routine_faults,
        routines=tuple(sorted(definitions.routines)),
        holdings=holdings(definitions.routines, definitions.policy),
        providers=tuple(_providers(config, definitions.routines, env)) if config else (),
        state=state,
        state_mode=stat.S_IMODE(about.st_mode) if about else None,
        group=config is not None and (config.control.group or config.hooks.group) is not None,
        state_owner=about.st_uid if about else os.geteuid(),
        open_files=tuple(_readable_by_others(state)),
        filesystem=kind,
        network=kind in NETWORK,
        free=shutil.disk_usage(folder).free,
        confinement=_confinement(definitions, state),
        upkeep=look(config, state, env),
        socket=where,
        socket_found=listener,
        socket_pid=pid,
        log=log,
        log_writable=os.access(_existing(log), os.W_OK),
        log_size=log.stat().st_size if log.is_file() else None,
        zone=chosen or host_zone(env),
        zone_from_config=chosen is not None,
        now=datetime.now(UTC),
        newest_write=_newest_write(state),
        synchronised=_synchronised(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Definitions:
    """Config, policy and routines as far as they could be read, and why not further."""

    config: Config | None = None
    routines: Mapping[str, Routine] = field(default_factory=dict)
    config_faults: tuple[Fault, ...] = ()
    policy: Policy | None = None
    policy_faults: tuple[Fault, ...] = ()
    routine_faults: tuple[Fault, ...] = ()


def _definitions(file: Path) -> _Definitions:
    from daemon.definitions.config.loading import load_config
    from daemon.definitions.routines.folder import load_folder
    from daemon.policy.policy import Policy
    from daemon.scheduler.routine_rules import routine_rules

    try:
        config = load_config(file)
    except ConfigError as error:
        return _Definitions(config_faults=error.faults)
    policy, faults = None, tuple[Fault, ...]()
    try:
        policy = Policy.load(config.policy_path, workspace=config.workspace_path(Path("/")))
    except ConfigError as error:
        faults = error.faults
    try:
        loaded = load_folder(config.routines_path, rules=routine_rules(config))
    except ConfigError as error:
        return _Definitions(
            config=config, policy=policy, policy_faults=faults, routine_faults=error.faults
        )
    broken = tuple(fault for error in loaded.faults.values() for fault in error.faults)
    return _Definitions(
        config=config,
        routines=loaded.routines,
        policy=policy,
        policy_faults=faults,
        routine_faults=broken,
    )


def _providers(
    config: Config, routines: Mapping[str, Routine], env: Mapping[str, str]
) -> Iterator[ProviderFacts]:
    used = {config.provider}
    for routine in routines.values():
        used |= {name for name in (routine.run.provider, *routine.run.fallback) if name}
    # those in use are asked; a provider that only stands in the config may have a server that is
    # seldom on
    vendors = ask_vendors(config, env, sorted(used & config.provider_names - {"offline"}))
    for name in sorted({*config.providers, *used}):
        settings, key, fault = config.provider_config(name), "", ""
        try:
            key = _key_of(config, name, env)
        except ConfigError as error:
            fault = "; ".join(str(fault) for fault in error.faults)
        yield ProviderFacts(
            name=name,
            kind=settings.kind,
            model=settings.model,
            used=name in used,
            key=key,
            fault=fault,
            vendor=vendors.get(name),
        )


def _key_of(config: Config, name: str, env: Mapping[str, str]) -> str:
    """Return where a provider's key comes from; ConfigError if it is missing."""
    if config.secret(name, env) is None:
        return "none needed"
    settings, credentials = config.provider_config(name), env.get("CREDENTIALS_DIRECTORY")
    if credentials and (Path(credentials) / name).is_file():
        return "a credential"
    if settings.api_key_file:
        return "a file"
    return (
        "environment"
        if settings.api_key_env and env.get(settings.api_key_env, "").strip()
        else "config.toml"
    )


def _confinement(definitions: _Definitions, state: Path) -> Confinement:
    workspace = (
        definitions.config.workspace_path(state) if definitions.config else state / "workspace"
    )
    return confinement(
        definitions.policy.sandbox if definitions.policy else "prefer", state, workspace
    )


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _has_fts5() -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5 (text)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def _readable_by_others(state: Path) -> Iterator[Path]:
    for name in ("agentd.db", "agentd.db-wal", "agentd.db-shm", "logs/agentd.jsonl"):
        path = state / name
        if path.is_file() and path.stat().st_mode & 0o077:
            yield path


def _newest_write(state: Path) -> datetime | None:
    times = [
        path.stat().st_mtime
        for name in ("agentd.db", "agentd.db-wal")
        if (path := state / name).is_file()
    ]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def _who_listens(path: Path) -> tuple[str, int | None]:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return "blocked", None
    except OSError:
        return "nothing", None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return "dead", None
        except OSError:
            return "blocked", None
        return "daemon", peer(probe)[1]


def _synchronised(run: Path = Path("/run/systemd/timesync")) -> bool | None:
    """Ask systemd-timesyncd, if it runs here; other time servers leave no sign that is as cheap to
    read.
    """
    return (run / "synchronized").exists() if run.is_dir() else None
