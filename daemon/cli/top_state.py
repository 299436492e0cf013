"""What `agentctl top` shows, and how it is kept up to date."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

from daemon.cli.client import Client, Lost, Problem, Unreachable

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


def spent(days: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> str:
    """Return what today has taken, against the cap of a day if there is one."""
    runs = sum(
        count
        for day in days
        for kind, count in day["outcomes"].items()
        if kind not in ("missed", "skipped")
    )
    tokens = sum(count for day in days for count in day["tokens"].values())
    caps = [
        cap
        for cap in usage["caps"]
        if cap["routine"] is None and cap["unit"] == "usd" and "day" in cap["rule"]
    ]
    usd = usage["total"]["usd"]
    if not usd and not caps:
        return f"{runs} runs and {tokens:,} tokens"
    limit = f" of ${caps[0]['limit']:,.2f}" if caps else ""
    return f"{runs} runs, {tokens:,} tokens and ${usd:,.2f}{limit}"
