"""What `agentctl top` draws, by the library rich (extra `top`)."""

from __future__ import annotations

import select
import sys
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daemon.cli.client import Lost, Unreachable
from daemon.cli.render import RUN_SIGNS, one_line, relative, short, span, words
from daemon.cli.top_state import SHOWN, Watched, spent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

COLOURS = {"31": "red", "32": "green", "33": "yellow", "34": "blue", "2": "dim", "": ""}


def show(watched: Watched) -> None:
    """Draw until a key says that it is enough, or the daemon is gone."""
    with _keys(), Live(screen=True, auto_refresh=False) as live:
        while not watched.gone:
            if watched.stale.is_set():
                try:
                    watched.ask()
                except (Lost, Unreachable):
                    watched.gone = True
                    return
            live.update(picture(watched, live.console.height, live.console.width), refresh=True)
            if _pressed(1.0) in ("q", "Q", "\x1b", "\x03", "\x04"):
                return


def picture(watched: Watched, height: int, width: int) -> RenderableType:
    """Return the screen: as much as there is room for, what runs first."""
    status, now = watched.told["status"], datetime.now().astimezone()
    head = Text.assemble(
        ("agentd ", "bold"),
        f"{status['version']}, up for {span((now - _at(status['started'])).total_seconds())}, ",
        (
            f"{status['routines']['on']} routines on, "
            f"{spent(watched.told['today'], watched.told['usage'])} today"
        ),
        no_wrap=True,
        overflow="ellipsis",
    )
    under_way = [run for run in status["active"] if run["status"] == "running"]
    queue = [run for run in status["active"] if run["status"] != "running"]
    lists = [
        ("Under way", [_running(run, watched.doing, now) for run in under_way]),
        ("Waiting", [_queued(run, status["waiting"], now) for run in queue]),
        (
            "Next",
            [
                (Text("◌"), fire["routine"], relative(_at(fire["at"]), now), "")
                for fire in status["next"]
            ],
        ),
        ("Latest", [_ended(run, now) for run in watched.told["latest"]]),
    ]
    lists = [each for each in lists if each[1] or each[0] != "Waiting"]
    parts: list[RenderableType] = [head]
    room = height - 2  # for the first line and the last
    if room >= 3 * len(lists) + 1:
        parts.append(Text())
        room -= 1
    shown = _most_telling(lists, room // 2)  # a title and a row are the least
    for place, (title, rows) in enumerate(shown):
        lines = room // (len(shown) - place)
        drawn, taken = _table(title, rows, min(lines - 1, SHOWN + 1), width)
        parts.append(drawn)
        room -= taken
    return Group(*parts, Text("q quits", style="dim"))


Row: TypeAlias = "tuple[Text, str, str, str]"


def _most_telling(lists: Sequence[tuple[str, list[Row]]], most: int) -> list[tuple[str, list[Row]]]:
    """Return so many of the lists, in their order: what runs and what has ended before what
    comes.
    """
    worth = sorted(
        lists, key=lambda each: ("Under way", "Latest", "Waiting", "Next").index(each[0])
    )
    return [each for each in lists if each in worth[:most]]


def _table(title: str, rows: Sequence[Row], room: int, width: int) -> tuple[RenderableType, int]:
    """Return a list in so many rows below its title, and how many lines that takes."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        expand=True,
        show_header=False,
    )
    table.add_column(width=1)
    # routine, when, what: what a narrow terminal has no room for is left out rather than cut to a
    # letter
    kept = (0, 1, 2) if width >= 60 else (0, 2) if width >= 32 else (0,)
    for place in kept:
        table.add_column(ratio=(2, 2, 5)[place], no_wrap=True, overflow="ellipsis")
    blank = [Text()] * (len(kept) - 1)
    fitting = rows if len(rows) <= room else rows[: max(1, room - 1)]
    for sign, *cells in fitting:
        table.add_row(sign, *(Text(one_line(_safe(cells[place]))) for place in kept))
    lines = 1 + len(fitting)
    if not rows:
        table.add_row(Text(), Text("nothing", style="dim"), *blank)
        lines += 1
    elif len(fitting) < len(rows) and room > 1:
        table.add_row(Text(), Text(f"… {len(rows) - len(fitting)} more", style="dim"), *blank)
        lines += 1
    return table, lines


def _running(run: Mapping[str, Any], doing: Mapping[str, str], now: datetime) -> Row:
    since = span((now - _at(run["started"] or run["created"])).total_seconds())
    return _sign("running"), run["routine"], f"for {since}", doing.get(run["id"], "")


def _queued(run: Mapping[str, Any], waiting: Mapping[str, int], now: datetime) -> Row:
    before = waiting.get(run["id"])
    place = f"{before} before it" if before else run["detail"] or words(run["status"])
    return (
        _sign(run["status"]),
        run["routine"],
        f"since {relative(_at(run['created']), now)}",
        place,
    )


def _ended(run: Mapping[str, Any], now: datetime) -> Row:
    about = (
        run["detail"]
        or run["headline"]
        or ("nothing to report" if run["silent"] else words(run["status"]))
    )
    return (
        _sign(run["status"]),
        run["routine"],
        f"{short(run['id'])} {relative(_at(run['created']), now)}",
        about,
    )


def _sign(status: str) -> Text:
    sign, colour = RUN_SIGNS.get(status, ("?", ""))
    return Text(sign, style=COLOURS.get(colour, ""))


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
