"""Have the daemon that runs here read a config that was just written, and say what came of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from daemon.cli.client import ApiError, Client, ConnectionLost, Unreachable

IN_FORCE = "The daemon that runs here has taken it up: it is in force now."


def take_up(file: Path, sockets: Sequence[Path], *, is_trusted: bool = False) -> str:
    """Ask the daemon that uses this config to read it again; return in a sentence what came of it,
    or how to start one.

    `sockets` is where a daemon may listen; with `is_trusted` (a person named them) the daemon
    may be another user's.
    """
    other_config = ""
    for socket in sockets:
        client = Client(os.fspath(socket), is_trusted=is_trusted)
        try:
            config = client.request("GET", "/v1/status?counts=false")["config"]
            if Path(config).resolve() == file.resolve():
                return _describe_reload(client.request("POST", "/v1/reload"))
        except ApiError as error:
            return _describe_refusal(error)
        except ConnectionLost as error:
            return (
                f"The daemon that runs here gave no answer ({error}); `agentctl reload` asks it to "
                "take it up, and says what came of that."
            )
        except (Unreachable, OSError):
            continue
        other_config = other_config or config
    if other_config:
        return f"Next: the daemon that runs here uses {other_config}, not this file."
    return f"Next: start the daemon: agentd --config {quote(str(file))}"


def _describe_reload(answer: dict[str, Any]) -> str:
    if restart := answer.get("restart"):
        return f"{IN_FORCE} Restart agentd for this to count: {', '.join(restart)}."
    return IN_FORCE


def _describe_refusal(error: ApiError) -> str:
    """Return that the daemon goes on with its old settings, and the first thing that is wrong."""
    faults = [str(fault["text"]) for fault in error.body.get("faults") or ()]
    reason = faults[0] if faults else str(error)
    if len(faults) > 1:
        reason += f" (and {len(faults) - 1} more: agentctl validate)"
    return (
        "The daemon that runs here did not take it up, and goes on with what it has read before: "
        f"{reason}; once that is mended: agentctl reload"
    )
