"""`agentctl top`: what runs, what waits, what is next and what was spent, for as long as somebody looks.

The daemon is asked again when something has happened in a run, not all the time; once a second only the clock times on
the screen are written anew.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from daemon.control.call import DONE, NOT_SUCCEEDED, UNREACHABLE, Call, start_command
from daemon.control.client import Client, Lost, Problem, Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN = 8  # rows of each list


class Watched:
    """What is on the screen, asked for again when `stale` is set."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.stale = Event()
        self.gone = False
        self.doing: dict[str, str] = {}
        """What each run is at, by its id."""
        self.told: dict[str, Any] = {}

    def ask(self) -> None:
        """Ask the daemon how things are."""
        client = Client(self.socket)
        self.stale.clear()
        self.told = {
            "status": client.ask("GET", "/v1/status"),
            "latest": client.ask("GET", f"/v1/runs?limit={SHOWN}")["items"],
            "today": client.ask("GET", "/v1/days?days=1")["items"],
            "usage": client.ask("GET", "/v1/usage?days=1"),
        }

    def follow(self) -> None:
        """Listen to what happens in all runs, until the daemon stops."""
        try:
            for event in Client(self.socket).stream("/v1/events"):
                self.heard(event)
        except (Lost, Unreachable, Problem):
            pass
        self.gone = True
        self.stale.set()

    def heard(self, event: Mapping[str, Any]) -> None:
        """Take note of what a run is at."""
        run = str(event["run"])
        match event["type"]:
            case "thinking":
                self.doing[run] = f"asks {event.get('provider') or 'its model'}"
            case "tool_started":
                self.doing[run] = f"calls {event['tool']}"
            case "run_ended":
                self.doing.pop(run, None)
        if event["type"] != "delta":
            self.stale.set()


def top(call: Call) -> int:
    """Show how things are until q or Ctrl-C; with --json once."""
    watched = Watched(call.client.path)
    watched.ask()
    if call.json:
        return call.say_json(watched.told)
    try:
        from daemon.control.top_screen import show
    except ModuleNotFoundError as error:
        call.err.say(
            f"agentctl: top needs the extra top ({error.name} is not installed): pip install 'agentd-routines[top]'; "
            "`agentctl status` says it once"
        )
        return NOT_SUCCEEDED
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        call.err.say(
            "agentctl: top needs a terminal; `agentctl status` says it once, `agentctl top --json` for programs"
        )
        return NOT_SUCCEEDED
    Thread(target=watched.follow, name="events", daemon=True).start()
    with suppress(KeyboardInterrupt):  # at whatever it was: Ctrl-C ends it as q does
        show(watched)
    if not watched.gone:
        return DONE
    call.err.say(f"the daemon stopped. Start it with: {start_command()}")
    return UNREACHABLE


def spent(days: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> str:
    """Return what today has taken, against the cap of a day if there is one."""
    runs = sum(count for day in days for kind, count in day["outcomes"].items() if kind not in ("missed", "skipped"))
    tokens = sum(count for day in days for count in day["tokens"].values())
    caps = [cap for cap in usage["caps"] if cap["routine"] is None and cap["unit"] == "usd" and "day" in cap["rule"]]
    usd = usage["total"]["usd"]
    if not usd and not caps:
        return f"{runs} runs and {tokens:,} tokens"
    limit = f" of ${caps[0]['limit']:,.2f}" if caps else ""
    return f"{runs} runs, {tokens:,} tokens and ${usd:,.2f}{limit}"
