"""`agentctl top`: what runs, what waits, what is next and what was spent, for as long as somebody looks.

The daemon is asked again when something has happened in a run, not all the time; once a second only the clock times on
the screen are written anew.
"""

from __future__ import annotations

import select
import sys
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daemon.control.call import DONE, NOT_SUCCEEDED, UNREACHABLE, Call, start_command
from daemon.control.client import Client, Lost, Problem, Unreachable
from daemon.control.render import RUN_SIGNS, one_line, relative, short, span, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

SHOWN = 8  # rows of each list
COLOURS = {"31": "red", "32": "green", "33": "yellow", "34": "blue", "2": "dim", "": ""}


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
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        call.err.say(
            "agentctl: top needs a terminal; `agentctl status` says it once, `agentctl top --json` for programs"
        )
        return NOT_SUCCEEDED
    Thread(target=watched.follow, name="events", daemon=True).start()
    with suppress(KeyboardInterrupt):  # at whatever it was: Ctrl-C ends it as q does
        _show(watched)
    if not watched.gone:
        return DONE
    call.err.say(f"the daemon stopped. Start it with: {start_command()}")
    return UNREACHABLE


def _show(watched: Watched) -> None:
    """Draw until a key says that it is enough, or the daemon is gone."""
    with _keys(), Live(screen=True, auto_refresh=False) as live:
        while not watched.gone:
            if watched.stale.is_set():
                try:
                    watched.ask()
                except (Lost, Unreachable):
                    watched.gone = True
                    return
            live.update(picture(watched, live.console.height), refresh=True)
            if _pressed(1.0) in ("q", "Q", "\x1b", "\x03", "\x04"):
                return


def picture(watched: Watched, height: int) -> RenderableType:
    """Return the screen."""
    status, now = watched.told["status"], datetime.now().astimezone()
    room = max(3, min(SHOWN, (height - 12) // 3))
    head = Text.assemble(
        ("agentd ", "bold"),
        f"{status['version']}, up for {span((now - _at(status['started'])).total_seconds())}, ",
        f"{status['routines']['on']} routines on, {_spent(watched.told['today'])} today",
    )
    under_way = [run for run in status["active"] if run["status"] == "running"]
    queue = [run for run in status["active"] if run["status"] != "running"]
    parts: list[RenderableType] = [head, Text()]
    parts.append(_table("Under way", [_running(run, watched.doing, now) for run in under_way[:room]], len(under_way)))
    if queue:
        rows = [_queued(run, status["waiting"], now) for run in queue[:room]]
        parts.append(_table("Waiting", rows, len(queue)))
    fires = [(Text("◌"), fire["routine"], relative(_at(fire["at"]), now), "") for fire in status["next"][:room]]
    parts.append(_table("Next", fires, len(fires)))
    parts.append(_table("Latest", [_ended(run, now) for run in watched.told["latest"][:room]], room))
    parts.append(Text("q quits", style="dim"))
    return Group(*parts)


def _table(title: str, rows: Sequence[tuple[Text, str, str, str]], total: int) -> RenderableType:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, expand=True, show_header=False)
    table.add_column(width=1)
    table.add_column(ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=5, no_wrap=True, overflow="ellipsis")
    for sign, *cells in rows:
        table.add_row(sign, *(Text(one_line(_safe(cell))) for cell in cells))
    if not rows:
        table.add_row(Text(), Text("nothing", style="dim"), Text(), Text())
    elif total > len(rows):
        table.add_row(Text(), Text(f"… {total - len(rows)} more", style="dim"), Text(), Text())
    return table


def _running(run: Mapping[str, Any], doing: Mapping[str, str], now: datetime) -> tuple[Text, str, str, str]:
    since = span((now - _at(run["started"] or run["created"])).total_seconds())
    return _sign("running"), run["routine"], f"for {since}", doing.get(run["id"], "")


def _queued(run: Mapping[str, Any], waiting: Mapping[str, int], now: datetime) -> tuple[Text, str, str, str]:
    before = waiting.get(run["id"])
    place = f"{before} before it" if before else run["detail"] or words(run["status"])
    return _sign(run["status"]), run["routine"], f"since {relative(_at(run['created']), now)}", place


def _ended(run: Mapping[str, Any], now: datetime) -> tuple[Text, str, str, str]:
    about = run["detail"] or run["headline"] or ("nothing to report" if run["silent"] else words(run["status"]))
    return _sign(run["status"]), run["routine"], f"{short(run['id'])} {relative(_at(run['created']), now)}", about


def _sign(status: str) -> Text:
    sign, colour = RUN_SIGNS.get(status, ("?", ""))
    return Text(sign, style=COLOURS.get(colour, ""))


def _spent(days: Sequence[Mapping[str, Any]]) -> str:
    runs = sum(count for day in days for kind, count in day["outcomes"].items() if kind not in ("missed", "skipped"))
    tokens = sum(count for day in days for count in day["tokens"].values())
    return f"{runs} runs and {tokens:,} tokens"


def _safe(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _at(iso: str) -> datetime:
    return datetime.fromisoformat(iso).astimezone()


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one while the body runs, and leave the terminal as it was."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(seconds: float) -> str:
    """Return the key that was pressed within so many seconds; empty if none was."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""
