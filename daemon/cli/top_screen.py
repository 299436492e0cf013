"""The screen of `agentctl top`, drawn by the library rich (extra `top`)."""

from __future__ import annotations

import os
import select
import sys
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daemon.cli.client import ConnectionLost, Unreachable
from daemon.cli.render import (
    RUN_SIGNS,
    format_relative_time,
    humanize,
    one_line,
    parse_instant,
    short_id,
)
from daemon.cli.top_monitor import MAX_ROWS, Monitor, describe_spending
from daemon.durations import duration_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

# The styles of rich for the colours of `agentctl`, which are codes of ANSI (render.py).
STYLES = {"31": "red", "32": "green", "33": "yellow", "34": "blue", "2": "dim", "": ""}
QUIT_KEYS = frozenset("qQ\x03\x04")  # also Ctrl-C, Ctrl-D
ESCAPE = "\x1b"
KEY_WAIT_SECONDS = 1.0
# The titles of the lists; a small terminal shows only the first of them.
LIST_PRIORITY = ("Under way", "Latest", "Waiting", "Next")


class Row(NamedTuple):
    """A row of a list: its sign, a routine, a time and what happens."""

    sign: Text
    routine: str
    time: str
    activity: str


def show(monitor: Monitor) -> None:
    """Draw the screen until a key quits, or the daemon is gone."""
    with _unbuffered_keyboard(), Live(screen=True, auto_refresh=False) as live:
        while not monitor.is_daemon_gone:
            if monitor.is_stale.is_set():
                try:
                    monitor.refresh()
                except (ConnectionLost, Unreachable):
                    monitor.is_daemon_gone = True
                    return
            screen = draw_screen(monitor, live.console.height, live.console.width)
            live.update(screen, refresh=True)
            if _quits(_read_keys(KEY_WAIT_SECONDS)):
                return


def draw_screen(monitor: Monitor, height: int, width: int) -> RenderableType:
    """Return the screen: a head line, the lists that fit by LIST_PRIORITY, a foot line."""
    snapshot, now = monitor.snapshot, datetime.now().astimezone()
    status = snapshot["status"]
    uptime = (now - parse_instant(status["started"])).total_seconds()
    head = Text.assemble(
        ("agentd ", "bold"),
        f"{status['version']}, up for {duration_in_words(uptime)}, ",
        (
            f"{status['routines']['on']} routines on, "
            f"{describe_spending(snapshot['today'], snapshot['usage'])} today"
        ),
        no_wrap=True,
        overflow="ellipsis",
    )
    running_runs = [run for run in status["active"] if run["status"] == "running"]
    waiting_runs = [run for run in status["active"] if run["status"] != "running"]
    lists = {"Under way": [_running_row(run, monitor.activities, now) for run in running_runs]}
    if waiting_runs:
        lists["Waiting"] = [_waiting_row(run, status["waiting"], now) for run in waiting_runs]
    lists["Next"] = [
        Row(Text("◌"), start["routine"], format_relative_time(parse_instant(start["at"]), now), "")
        for start in status["next"]
    ]
    lists["Latest"] = [_ended_row(run, now) for run in snapshot["latest"]]

    parts: list[RenderableType] = [head]
    available = height - 2  # lines without head and foot
    if available >= 3 * len(lists) + 1:
        parts.append(Text())
        available -= 1
    max_lists = available // 2  # a list takes a title and a row at least
    by_priority = sorted(lists, key=LIST_PRIORITY.index)
    titles = [title for title in lists if title in by_priority[:max_lists]]
    for index, title in enumerate(titles):
        lines = available // (len(titles) - index)
        table, line_count = _draw_list(title, lists[title], min(lines - 1, MAX_ROWS + 1), width)
        parts.append(table)
        available -= line_count
    return Group(*parts, Text("q quits", style="dim"))


def _draw_list(
    title: str, rows: Sequence[Row], max_rows: int, width: int
) -> tuple[RenderableType, int]:
    """Return a list with at most `max_rows` rows below its title, and its number of lines."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        expand=True,
        show_header=False,
    )
    table.add_column(width=1)
    # a narrow terminal shows fewer columns, rather than each of them cut to a letter
    if width >= 60:
        columns, ratios = ["routine", "time", "activity"], [2, 2, 5]
    elif width >= 32:
        columns, ratios = ["routine", "activity"], [2, 5]
    else:
        columns, ratios = ["routine"], [2]
    for ratio in ratios:
        table.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    empty_cells = [Text()] * (len(columns) - 1)
    shown_rows = rows if len(rows) <= max_rows else rows[: max(1, max_rows - 1)]
    for row in shown_rows:
        cells = [Text(one_line(_sanitize(getattr(row, column)))) for column in columns]
        table.add_row(row.sign, *cells)
    line_count = 1 + len(shown_rows)
    if not rows:
        table.add_row(Text(), Text("nothing", style="dim"), *empty_cells)
        line_count += 1
    elif len(shown_rows) < len(rows) and max_rows > 1:
        text = Text(f"… {len(rows) - len(shown_rows)} more", style="dim")
        table.add_row(Text(), text, *empty_cells)
        line_count += 1
    return table, line_count


def _running_row(run: Mapping[str, Any], activities: Mapping[str, str], now: datetime) -> Row:
    seconds = (now - parse_instant(run["started"] or run["created"])).total_seconds()
    return Row(
        _sign("running"),
        run["routine"],
        f"for {duration_in_words(seconds)}",
        activities.get(run["id"], ""),
    )


def _waiting_row(run: Mapping[str, Any], runs_before: Mapping[str, int], now: datetime) -> Row:
    if count := runs_before.get(run["id"]):
        reason = f"{count} before it"
    else:
        reason = run["detail"] or humanize(run["status"])
    created = format_relative_time(parse_instant(run["created"]), now)
    return Row(_sign(run["status"]), run["routine"], f"since {created}", reason)


def _ended_row(run: Mapping[str, Any], now: datetime) -> Row:
    outcome = run["detail"] or run["headline"]
    if not outcome:
        outcome = "nothing to report" if run["silent"] else humanize(run["status"])
    created = format_relative_time(parse_instant(run["created"]), now)
    return Row(_sign(run["status"]), run["routine"], f"{short_id(run['id'])} {created}", outcome)


def _sign(status: str) -> Text:
    sign, colour = RUN_SIGNS.get(status, ("?", ""))
    return Text(sign, style=STYLES.get(colour, ""))


def _sanitize(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


@contextmanager
def _unbuffered_keyboard() -> Iterator[None]:
    """Make keys readable one by one in the block, and restore the terminal after it."""
    import termios
    import tty

    settings = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


def _read_keys(seconds: float) -> str:
    """Return what is typed, as soon as something is; empty if nothing is within `seconds`."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 64).decode(errors="replace") if ready else ""


def _quits(keys: str) -> bool:
    """Tell whether these keys end the screen: Escape does, but not an arrow or another key that a
    terminal sends as Escape with more behind it.
    """
    if keys.startswith(ESCAPE):
        return keys == ESCAPE
    return not QUIT_KEYS.isdisjoint(keys)
