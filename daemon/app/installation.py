"""The installation of a daemon: its folders, its log, its socket and its database."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.definitions.config.config import Config
from daemon.errors import ConfigError, Fault
from daemon.models import new_id
from daemon.sandbox.user import find_program_user, give_workspace_to_user
from daemon.store.opening import open_database
from daemon.system.notify import Notifier
from daemon.telemetry.log import configure
from daemon.telemetry.redaction import Secrets

if TYPE_CHECKING:
    from daemon.store.database import Database
    from daemon.store.lock import StateLock
    from daemon.telemetry.console import EventConsole


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """The paths of a daemon, and how it was started."""

    config: Config
    """The config at the start; `LiveSettings` has the one in force."""
    state: Path
    socket: Path
    log_file: Path
    console: bool
    """Whether the log is also written to stderr."""
    env: Mapping[str, str]
    secrets: Secrets
    event_console: EventConsole | None = None
    """What writes short lines to stderr, if the config wants them."""

    @property
    def workspace(self) -> Path:
        """The folder agents work in. It cannot change while the daemon runs."""
        return self.config.workspace_path(self.state)


def open_log(installation: Installation, config: Config) -> None:
    """Write the log as `config` says, from now on."""
    wants_short_lines = installation.console and (
        config.log.format == "short" or (config.log.format == "auto" and sys.stderr.isatty())
    )
    configure(
        level=config.log.level,
        console=installation.console,
        file=installation.log_file,
        secrets=installation.secrets,
        max_bytes=config.log.max_mb * 1_000_000,
        keep=config.log.keep,
        env=installation.env,
        event_console=installation.event_console if wants_short_lines else None,
    )


def make_workspace(installation: Installation) -> None:
    """Make the folder agents work in; raise ConfigError if that fails."""
    workspace = installation.workspace
    try:
        workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        fault = Fault(
            file=str(installation.config.file),
            key="workspace",
            found=str(workspace),
            problem=f"cannot be the folder agents work in: {error.strerror}",
        )
        raise ConfigError(fault) from error
    if user := find_program_user(workspace):
        give_workspace_to_user(workspace, user)


def store_url(installation: Installation) -> str:
    """Return the address of the database server, empty for a file in the state folder."""
    url = installation.config.store_url(installation.env)
    installation.secrets.add_address(url)
    return url


async def open_store(installation: Installation) -> Database:
    """Open the database; ConfigError. While a server is away it is waited for, which the log and
    systemd are told.
    """
    notifier = Notifier(installation.env)

    def when_away(problem: str) -> None:
        # a start may take longer than the unit allows as long as it says that it goes on
        notifier.send(f"STATUS=waiting for the database: {problem}", "EXTEND_TIMEOUT_USEC=30000000")

    return await open_database(
        installation.state / "agentd.db",
        store_url(installation),
        wait=installation.config.store.wait,
        when_away=when_away,
    )


def lease_owner(lock: StateLock, database: Database) -> str:
    """Return the name under which this process holds leases.

    On a shared database it begins with the id of the state folder.
    """
    process = f"{os.uname().nodename}:{os.getpid()}:{new_id()}"
    return f"{lock.folder_id(new_id())}:{process}" if database.shared else process
