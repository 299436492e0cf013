"""Finding out everything that `doctor` judges, without changing anything."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.api.listener import peer_credentials
from daemon.app.doctor.checks import ProviderFacts, Survey
from daemon.app.doctor.confinement import Confinement, try_sandboxes
from daemon.app.doctor.service_checks import survey_service
from daemon.app.doctor.vendors import ask_vendors
from daemon.app.trifecta import find_trifectas
from daemon.definitions.paths import config_paths, user_home
from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault
from daemon.providers.programs import describe_missing_program, find_program
from daemon.sandbox.call_groups import is_memory_counted
from daemon.store.lock import NETWORK, filesystem, find_holder
from daemon.system.clock import host_zone

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.routine import Routine
    from daemon.policy.policy import Policy
    from daemon.tools.registry import FunctionRegistry


def survey(
    file: Path | None,
    state: Path,
    socket_path: Path,
    env: Mapping[str, str],
    *,
    own_tools: FunctionRegistry | None = None,
    deep: bool = False,
) -> Survey:
    """Return what can be found out about an installation: its config file, state folder and socket.

    `own_tools` are the tools of `[tools]`, which a daemon has loaded; None loads them.
    With `deep` all of the database is checked, which takes a while where it is large.
    """
    log = state / "logs" / "agentd.jsonl"
    folder = _find_existing(state)
    kind = filesystem(folder)
    definitions = _definitions(file, state, socket_path, env, own_tools) if file else _Definitions()
    config = definitions.config
    timezone = config.timezone if config else None
    listener, pid = _who_listens(socket_path)
    state_problem = _find_problem(state)
    state_stat = state.stat() if not state_problem and state.is_dir() else None
    log_stat = _stat_of_file(log)
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
        trifectas=find_trifectas(definitions.routines, definitions.policy),
        providers=tuple(_providers(config, definitions.routines, env)) if config else (),
        missing_keys=definitions.missing_keys,
        workspace_problems=definitions.workspace_problems,
        state=state,
        state_problem=state_problem,
        state_mode=stat.S_IMODE(state_stat.st_mode) if state_stat else None,
        group=config is not None and (config.control.group or config.hooks.group) is not None,
        state_owner=state_stat.st_uid if state_stat else os.geteuid(),
        open_files=tuple(_readable_by_others(state)),
        filesystem=kind,
        network=kind in NETWORK,
        free=shutil.disk_usage(folder).free,
        confinement=_try_sandboxes(definitions, state),
        service=survey_service(config, state, env, deep=deep),
        socket=socket_path,
        socket_found=listener,
        socket_pid=pid,
        log=log,
        log_writable=os.access(_find_existing(log), os.W_OK),
        log_size=log_stat.st_size if log_stat else None,
        zone=timezone or host_zone(env),
        zone_from_config=timezone is not None,
        now=datetime.now(UTC),
        newest_write=_newest_write(state),
        synchronised=_is_synchronised(),
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
    missing_keys: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    workspace_problems: tuple[str, ...] = ()


def _definitions(
    file: Path,
    state: Path,
    socket_path: Path,
    env: Mapping[str, str],
    own_tools: FunctionRegistry | None,
) -> _Definitions:
    """Check the files as `agentd validate` does, so that the two never disagree."""
    from daemon.app.commands.validate import (
        TOOLS,
        examine,
        find_missing_section_keys,
        find_unusable_workspace,
    )

    checkup = examine(
        file, env=env, state=state, tools=TOOLS, socket=socket_path, own_tools=own_tools
    )
    config = checkup.config
    config_file, policy_file = display(file), display(checkup.policy_file or "")
    faults: dict[str, list[Fault]] = {"config": [], "policy": [], "routines": []}
    for fault in checkup.faults:
        kind = {config_file: "config", policy_file: "policy"}.get(fault.file, "routines")
        faults[kind].append(fault)
    return _Definitions(
        config=config,
        routines=checkup.routines,
        config_faults=tuple(faults["config"]),
        policy=checkup.policy,
        policy_faults=tuple(faults["policy"]),
        routine_faults=tuple(faults["routines"]),
        missing_keys=find_missing_section_keys(config, env) if config else {},
        workspace_problems=tuple(find_unusable_workspace(config, state)) if config else (),
    )


def _providers(
    config: Config, routines: Mapping[str, Routine], env: Mapping[str, str]
) -> Iterator[ProviderFacts]:
    providers_used = config.providers_in_use
    for routine in routines.values():
        providers_used |= routine.named_providers
    # Only those in use are asked: the server of any other may seldom run.
    provider_names = {
        name
        for name in (providers_used & config.provider_names) - {"offline"}
        if config.provider_config(name).kind != "command"  # a program has no list of models
    }
    vendors = ask_vendors(config, env, sorted(provider_names))
    for name in sorted({*config.providers, *providers_used}):
        settings, key, fault = config.provider_config(name), "", ""
        try:
            key = _key_of(config, name, env)
        except ConfigError as error:
            fault = "; ".join(str(fault) for fault in error.faults)
        program = settings.command[0] if settings.kind == "command" else ""
        is_missing = program and not find_program(program, settings.program_environment(env))
        yield ProviderFacts(
            name=name,
            kind=settings.kind,
            model=settings.model,
            used=name in providers_used,
            key=key,
            fault=fault,
            missing_program=describe_missing_program(program) if is_missing else "",
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


def _try_sandboxes(definitions: _Definitions, state: Path) -> Confinement:
    workspace = (
        definitions.config.workspace_path(state) if definitions.config else state / "workspace"
    )
    confinement = try_sandboxes(
        definitions.policy.sandbox if definitions.policy else "prefer", state, workspace
    )
    daemon = find_holder(state)
    if daemon is None or not Path(f"/proc/{daemon}").exists():
        return confinement
    return replace(confinement, counts_calls=is_memory_counted(daemon))


def _find_existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is known to be there."""
    folders = (path, *path.parents)
    # a Path raises PermissionError where one may not look
    return next(folder for folder in folders if os.path.exists(folder))  # noqa: PTH110


def _find_problem(folder: Path) -> str:
    """Return why nothing in a folder can be read, in the words of the system; empty if it can, or
    if the folder is not there yet.
    """
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116  a Path leaves out the dot
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _stat_of_file(path: Path) -> os.stat_result | None:
    """Return the status of a file; None if there is none that one may look at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


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
        status = _stat_of_file(path)
        if status and status.st_mode & 0o077:
            yield path


def _newest_write(state: Path) -> datetime | None:
    times = [
        status.st_mtime
        for name in ("agentd.db", "agentd.db-wal")
        if (status := _stat_of_file(state / name))
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
        return "daemon", peer_credentials(probe)[1]


def _is_synchronised(run: Path = Path("/run/systemd/timesync")) -> bool | None:
    """Return whether systemd-timesyncd has set the clock; None if it does not run here, as other
    time services leave no such file.
    """
    return (run / "synchronized").exists() if run.is_dir() else None
