"""Loading the policy, for the daemon and for commands without one: both refuse the same faults."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.policy.output_files import folders_in_use
from daemon.policy.policy import Policy

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.routine import Routine


def load_policy(
    config: Config,
    *,
    state: Path,
    socket: Path,
    own_tools: Collection[str],
    file: Path | None = None,
) -> Policy:
    """Read `file`, by default the policy of `config`, for a daemon with this state folder.

    `own_tools` are the names of the tools of `[tools]`. Raises ConfigError, also for a policy that
    opens what is the daemon's own.
    """
    return Policy.load(
        file or config.policy_path,
        workspace=config.workspace_path(state),
        private=(
            config.file,
            config.scripts_path,
            state / "agentd.db",
            state / "approvals.toml",
            state / "memory",
            state / "logs",
            socket,
        ),
        tools=own_tools,
    )


def with_folders_in_use(
    policy: Policy, config: Config, routines: Iterable[Routine], *, state: Path
) -> Policy:
    """Return a policy that knows what the daemon of this state folder watches or delivers to, as
    the policy in force knows it.
    """
    folders = folders_in_use(config, routines, config.workspace_path(state))
    return replace(policy, folders_in_use=folders)
