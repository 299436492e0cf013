"""What `agentd` does itself, as it must work without a daemon; one that answers says which folders
are meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from daemon.cli.call import DONE, NOT_SUCCEEDED, Call
from daemon.cli.client import Unreachable
from daemon.cli.render import YELLOW


def new(call: Call) -> int:
    """Write a routine file, beside the config of the daemon if there is one."""
    from contextlib import suppress

    rest = list(call.rest)
    if not any(word.startswith("--config") or word in ("-h", "--help") for word in rest):
        with suppress(Unreachable):  # then it is looked for as agentd does
            rest += ["--config", call.client.ask("GET", "/v1/status")["config"]]
    hand_over(["new", *rest])


def validate(call: Call) -> int:
    """Check config, policy and routines: those of the daemon, if there is one and no folder is
    named.
    """
    rest = list(call.rest)
    if all(word == "--json" for word in rest):
        try:
            config = call.client.ask("GET", "/v1/status")["config"]
        except Unreachable:
            config = None
        rest += ["--config", config] if config else []
    hand_over(["validate", *rest])


def doctor(call: Call) -> int:
    """Look for what is wrong here."""
    if not all(word == "--json" for word in call.rest):
        hand_over(["doctor", *call.rest])
    try:
        told = call.ask("GET", "/v1/doctor")
    except Unreachable as error:
        if not call.json:
            call.err.say(
                call.err.paint(
                    f"no daemon answers at {', '.join(path for path, _ in error.tried)}", YELLOW
                )
            )
        hand_over(["doctor", *call.rest])
    if told is None:
        return DONE
    from daemon.cli.inspection import checks

    checks(call.out, told["checks"])
    return DONE if told["ok"] else NOT_SUCCEEDED


def policy(call: Call) -> int:
    """Check, explain, test, backtest or suggest a policy: that of the daemon, if one answers."""
    verb, rest = call.rest[:1], list(call.rest[1:])
    at = rest.index("--") if "--" in rest else len(rest)
    hand_over(["policy", *verb, *_with_places(call, rest[:at]), *rest[at:]])


def backup(call: Call) -> int:
    """Copy all that a daemon knows, that of this socket if one answers."""
    hand_over(["backup", *_with_places(call)])


def restore(call: Call) -> int:
    """Put a backup back."""
    hand_over(["restore", *_with_places(call)])


def service(call: Call) -> int:
    """Install or remove a unit."""
    hand_over(["service", *call.rest])


def export(call: Call) -> int:
    """Write routines with their history."""
    hand_over(["export", *_with_places(call)])


def import_(call: Call) -> int:
    """Take in what was exported elsewhere."""
    hand_over(["import", *_with_places(call)])


def version(call: Call) -> int:
    """Tell which version this is, and which one the daemon."""
    from daemon import __version__

    try:
        daemon = call.client.ask("GET", "/v1/status")
    except Unreachable:
        daemon = None
    if call.json:
        return call.say_json({"agentctl": __version__, "agentd": daemon and daemon["version"]})
    call.out.say(f"agentctl {__version__}")
    call.out.say(
        f"agentd {daemon['version']}, process {daemon['pid']}"
        if daemon
        else "agentd is not running"
    )
    if daemon and daemon["version"] != __version__:
        call.err.say(call.err.paint("they differ: restart agentd to use what is installed", YELLOW))
    return DONE


def _with_places(call: Call, rest: Sequence[str] | None = None) -> list[str]:
    """Return the words of the command line, with the state folder and config of the daemon, if one
    answers.
    """
    from contextlib import suppress

    rest, told = list(call.rest if rest is None else rest), None
    with suppress(Unreachable):
        told = call.client.ask("GET", "/v1/status")
    for flag in ("state", "config"):
        if (
            told
            and told[flag]
            and not any(word == f"--{flag}" or word.startswith(f"--{flag}=") for word in rest)
        ):
            rest += [f"--{flag}", told[flag]]
    return rest


def hand_over(arguments: Sequence[str]) -> NoReturn:
    """Let `agentd` take over this process: what needs no daemon is its own work."""
    import os
    import sys

    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "daemon.app.main", *arguments])  # noqa: S606 - no shell is wanted
