"""Verbs that `agentd` runs itself, as they must work without a daemon.

A daemon that answers names the config and the state folder that are meant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from daemon.cli.call import Call
from daemon.cli.client import Unreachable


def exec_agentd(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by `agentd` with these arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "daemon.app.main_for_agentctl", *arguments])  # noqa: S606 - no shell is wanted


def new(call: Call) -> int:
    """Write a routine file, beside the config of the daemon if there is one."""
    exec_agentd(["new", *with_daemon_paths(call, call.rest)])


def validate(call: Call) -> int:
    """Check config, policy and routines: those of the daemon, unless a folder is named. A name
    that is no folder may be a routine's.
    """
    arguments = list(call.rest)
    if all(
        argument == "--json" or not (argument.startswith("-") or os.path.exists(argument))  # noqa: PTH110 - pathlib takes 10 ms to import
        for argument in arguments
    ):
        with suppress(Unreachable):
            config = call.client.request("GET", "/v1/status")["config"]
            if config:
                arguments += ["--config", config]
    exec_agentd(["validate", *arguments])


def policy(call: Call) -> int:
    """Check, explain, test, backtest or suggest a policy: that of the daemon, if one answers."""
    subcommand, arguments = call.rest[:1], list(call.rest[1:])
    if subcommand == ["--json"]:  # `agentctl --json policy check`
        subcommand, arguments = arguments[:1], ["--json", *arguments[1:]]
    if not subcommand or subcommand[0].startswith("-"):
        exec_agentd(["policy", *call.rest])  # it says which subcommands there are
    # options after `--` belong to the command that is explained
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = with_daemon_paths(call, arguments[:end])
    exec_agentd(["policy", *subcommand, *options, *arguments[end:]])


def observe(call: Call) -> int:
    """Begin or end the trial of a routine, in the policy of the daemon, if one answers."""
    exec_agentd(["observe", *with_daemon_paths(call, call.rest)])


def backup(call: Call) -> int:
    """Copy all that a daemon knows into one file."""
    exec_agentd(["backup", *with_daemon_paths(call, call.rest)])


def restore(call: Call) -> int:
    """Put a backup back."""
    exec_agentd(["restore", *with_daemon_paths(call, call.rest)])


def service(call: Call) -> int:
    """Install or uninstall a systemd unit."""
    exec_agentd(["service", *call.rest])


def setup(call: Call) -> int:
    """Set up a model, a target of reports and a first routine."""
    exec_agentd(["setup", *with_daemon_paths(call, call.rest, socket=True)])


def target(call: Call) -> int:
    """Send a test message to a target of reports."""
    exec_agentd(["target", *with_daemon_paths(call, call.rest)])


def export(call: Call) -> int:
    """Write routines with their history into one file."""
    exec_agentd(["export", *with_daemon_paths(call, call.rest)])


def import_(call: Call) -> int:
    """Import routines with their history from another machine."""
    exec_agentd(["import", *with_daemon_paths(call, call.rest)])


def import_crontab(call: Call) -> int:
    """Turn the lines of a crontab into routines, beside the config of the daemon if there is
    one.
    """
    exec_agentd(["import-crontab", *with_daemon_paths(call, call.rest)])


def with_daemon_paths(call: Call, arguments: Sequence[str], *, socket: bool = False) -> list[str]:
    """Return the arguments with --state and --config of the daemon that answers, and its --socket
    if that is wanted, if they lack them and no variable names another place.

    Without a daemon the arguments are returned unchanged.
    """
    arguments = list(arguments)
    try:
        status = call.client.request("GET", "/v1/status")
    except Unreachable:
        return arguments
    for name in ("state", "config", *(["socket"] if socket else [])):
        option = f"--{name}"
        is_given = any(
            argument == option or argument.startswith(f"{option}=") for argument in arguments
        )
        is_in_environment = bool(os.environ.get(f"AGENTD_{name.upper()}"))
        if status[name] and not is_given and not is_in_environment:
            arguments += [option, status[name]]
    return arguments
