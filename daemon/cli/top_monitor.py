"""What `agentctl top` shows, as the API tells it.

The daemon is asked again after an event of a run, not all the time; once a second only the times on
the screen are updated.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any

from daemon.cli.client import ApiError, Client, ConnectionLost, Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ROWS = 8  # of each list


class Monitor:
    """The state of the daemon as the screen shows it; `is_stale` is set when it has changed."""

    def __init__(self, socket: str, *, is_trusted: bool = False) -> None:
        """`is_trusted`: the daemon there may be another user's."""
        self.socket, self._is_trusted = socket, is_trusted
        self.is_stale = Event()
        self.is_daemon_gone = False
        self.activities: dict[str, str] = {}
        """What each run is doing, by its id."""
        self.snapshot: dict[str, Any] = {}
        """The latest answers of the API: status, latest runs, today's runs, usage."""

    def refresh(self) -> None:
        """Ask the daemon for a new snapshot; raises what Client.request raises."""
        client = Client(self.socket, is_trusted=self._is_trusted)
        self.is_stale.clear()
        self.snapshot = {
            "status": client.request("GET", "/v1/status?counts=false"),
            "latest": client.request("GET", f"/v1/runs?limit={MAX_ROWS}")["items"],
            "today": client.request("GET", "/v1/days?days=1")["items"],
            "usage": client.request("GET", "/v1/usage?days=1"),
        }

    def follow_events(self) -> None:
        """Note the events of all runs until the daemon stops; runs in a thread of its own."""
        with suppress(ConnectionLost, Unreachable, ApiError):
            client = Client(self.socket, is_trusted=self._is_trusted)
            for event in client.stream("/v1/events"):
                self.note_event(event)
        self.is_daemon_gone = True
        self.is_stale.set()

    def note_event(self, event: Mapping[str, Any]) -> None:
        """Update the activity of the run of an event."""
        run = str(event["run"])
        match event["type"]:
            case "thinking" if not event.get("text"):
                self.activities[run] = f"asks {event.get('provider') or 'its model'}"
            case "tool_started":
                self.activities[run] = f"calls {event['tool']}"
            case "run_retry_scheduled":
                self.activities[run] = f"is put off: {event['detail']}"
            case "run_ended":
                self.activities.pop(run, None)
        if event["type"] != "delta":
            self.is_stale.set()


def describe_spending(days: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> str:
    """Return the runs, tokens and dollars of today, with the cap of a day if there is one."""
    runs = sum(
        count
        for day in days
        for outcome, count in day["outcomes"].items()
        if outcome not in ("missed", "skipped")
    )
    tokens = sum(count for day in days for count in day["tokens"].values())
    daily_limits = [
        cap["limit"]
        for cap in usage["caps"]
        if cap["routine"] is None and cap["unit"] == "usd" and cap["period"] == "day"
    ]
    usd = usage["total"]["usd"]
    if not usd and not daily_limits:
        return f"{runs} runs and {tokens:,} tokens"
    limit = f" of ${daily_limits[0]:,.2f}" if daily_limits else ""
    return f"{runs} runs, {tokens:,} tokens and ${usd:,.2f}{limit}"
