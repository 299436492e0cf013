"""Values as text for people: tables that fit the terminal, times both relative and absolute, colour
where it is wanted.

Standard library only, and little of that: it is imported by every `agentctl`.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from typing import Any, TextIO

RED, GREEN, YELLOW, BLUE, DIM, BOLD = "31", "32", "33", "34", "2", "1"

# Every status a run may have, with the sign and colour it is shown in. None of the signs is wide in
# any locale.
RUN_SIGNS = {
    "queued": ("◌", DIM),
    "running": ("»", BLUE),
    "waiting": ("⏸", YELLOW),
    "succeeded": ("✓", GREEN),
    "skipped": ("-", DIM),
    "failed": ("✗", RED),
    "timed_out": ("✗", RED),
    "cancelled": ("-", YELLOW),
    "interrupted": ("✗", RED),
}
OTHER_SIGNS = {
    "ok": ("✓", GREEN),
    "warn": ("!", YELLOW),
    "fail": ("✗", RED),
    "delivered": ("✓", GREEN),
    "pending": ("»", YELLOW),
    "suppressed": ("-", DIM),
    "paused": ("⏸", YELLOW),
    "disabled": ("-", DIM),
    "elsewhere": ("-", DIM),
    "held": ("⏸", YELLOW),
    "invalid": ("✗", RED),
    "never": ("◌", DIM),
}
SIGNS = RUN_SIGNS | OTHER_SIGNS
PLAIN_SIGNS = {
    "◌": ".",
    "»": ">",
    "⏸": "=",
    "✓": "+",
    "✗": "x",
}  # for a terminal that is not in UTF-8

GAP = "  "
NARROWEST = 12  # a column is not squeezed below this; then lines wrap, as nothing else helps


class OutputStream:
    """One output stream and what may be written to it."""

    def __init__(self, stream: TextIO, env: Mapping[str, str]) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.colour = self.terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
        self.unicode = "utf" in (getattr(stream, "encoding", None) or "").lower()
        if not self.unicode and isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a report in Chinese is no reason to end in a traceback

    @property
    def width(self) -> int | None:
        """How many columns there are; None where nobody counts them, as in a file."""
        if not self.terminal:
            return None
        try:
            return max(NARROWEST, os.get_terminal_size(self.stream.fileno()).columns or 80)
        except OSError:
            return 80

    def say(self, text: str = "") -> None:
        self.stream.write(text + "\n")

    def title(self, text: str) -> None:
        self.say()
        self.say(self.paint(text, BOLD))

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self.colour and colour and text else text

    def sign(self, status: str) -> str:
        sign, colour = SIGNS.get(status, ("?", ""))
        return self.paint(sign if self.unicode else PLAIN_SIGNS.get(sign, sign), colour)

    def safe(self, text: str) -> str:
        """Return text from elsewhere such that a terminal shows it and does not obey it.

        Into a pipe too: what is read there later, with `less -R` or `cat`, is read on a terminal.
        """
        return harmless(text)

    def table(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        elastic: int = -1,
        signs: bool = True,
    ) -> None:
        """Write rows in columns; the `elastic` one gives way where the terminal is too narrow.

        With `signs` the first column holds statuses, shown as their signs. Where even the narrowest
        columns have no room beside each other, the cells of a row stand below each other.
        """
        body = [[one_line(self.safe(cell)) for cell in row] for row in rows]
        if signs:
            heads = ["", *heads[1:]]
        widths = [max(columns(row[place]) for row in (heads, *body)) for place in range(len(heads))]
        if signs:
            widths[0] = 1
        if self.width is not None:
            room = self.width - len(GAP) * (len(widths) - 1)
            abridge(heads, body, widths, room)
            if sum(min(width, NARROWEST) for width in widths) > room:
                self._stacked(heads, body, self.width, signs=signs)
                return
            sizes = [[columns(row[place]) for row in body] for place in range(len(widths))]
            squeeze(widths, room, sizes=sizes, first=elastic)
        if any(heads):
            self.say(self.paint(self._line(heads, widths), DIM))
        for row in body:
            first = self.sign(row[0]) + GAP if signs else ""
            self.say(first + self._line(row[1:] if signs else row, widths[1:] if signs else widths))

    def _stacked(
        self, heads: Sequence[str], body: Sequence[Sequence[str]], width: int, *, signs: bool
    ) -> None:
        for row in body:
            lead = f"{self.sign(row[0])} " if signs else ""
            said = [
                (head, cell) for head, cell in zip(heads[signs:], row[signs:], strict=True) if cell
            ]
            for place, (head, cell) in enumerate(said):
                text = cell if not place else f"  {head.lower()}: {cell}" if head else f"  {cell}"
                self.say(
                    (lead if not place else "")
                    + self.cut(text, width - (2 if signs and not place else 0))
                )

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = (pad(self.cut(cell, width), width) for cell, width in zip(row, widths, strict=True))
        return GAP.join(cells).rstrip()

    def cut(self, text: str, width: int) -> str:
        """Return at most `width` columns of a text, with a sign where something is missing."""
        return cut(text, width, "…" if self.unicode else "~")


def abridge(heads: Sequence[str], body: list[list[str]], widths: list[int], room: int) -> None:
    """Leave out what stands in parentheses (`03:36 UTC (35 min ago)`), column by column, as long as
    the room is short.

    Sooner that than cutting a word in two.
    """
    for place in sorted(range(len(widths)), key=lambda place: -widths[place]):
        if sum(widths) <= room:
            return
        if any("(" in row[place] for row in body):
            for row in body:
                row[place] = without_asides(row[place])
            widths[place] = max(columns(row[place]) for row in (heads, *body))


def without_asides(text: str) -> str:
    before, bracket, rest = text.partition(" (")
    _, end, after = rest.partition(")")
    return before + without_asides(after) if bracket and end else text


def squeeze(
    widths: list[int], room: int, *, sizes: Sequence[Sequence[int]], first: int = -1
) -> None:
    """Make columns fit into the room, none below NARROWEST: each time the one gives way in which
    fewest cells are cut.

    So one long cell does not cost all others their ends. Of equals the `first` one gives way, then
    the widest. `sizes` are the columns of the cells, by column.
    """
    sorts = [sorted(column) for column in sizes]
    for _ in range(sum(widths) - room):
        wide = [place for place, width in enumerate(widths) if width > NARROWEST]
        if not wide:
            return
        elastic = range(len(widths))[first]
        place = min(
            wide,
            key=lambda at: (
                len(sorts[at]) - bisect_left(sorts[at], widths[at]),
                at != elastic,
                -widths[at],
            ),
        )
        widths[place] -= 1


# Neither of them is printable to Python, and both are part of how people write: the spaces of other
# scripts (Chinese sets titles off with U+3000), and what joins letters of Persian and the parts of
# an emoji.
SPACES = frozenset(
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
JOINERS = frozenset("\u200c\u200d")
KEPT = frozenset("\n\t") | SPACES | JOINERS


def harmless(text: str) -> str:
    """Return text without what would steer a terminal, or turn or hide the text around it."""
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n")
    return "".join(char if char.isprintable() or char in KEPT else "\ufffd" for char in lines)


def one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def columns(text: str) -> int:
    """Return how many columns a text takes: Chinese and Japanese characters take two, combining
    ones none.
    """
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    # marks and joiners (Mn, Me, Cf) stand on what is before them
    return sum(
        0 if category(char) in _ON_TOP else 2 if east_asian_width(char) in "WF" else 1
        for char in text
    )


_ON_TOP = ("Mn", "Me", "Cf")


def cut(text: str, width: int, mark: str = "…") -> str:
    """Return at most `width` columns of a text, with a mark where something is missing."""
    if columns(text) <= width:
        return text
    room = width - 1
    for place, char in enumerate(text):
        room -= columns(char)
        if room < 0:
            return text[:place] + mark[: max(0, width)]
    return text


def pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def span(seconds: float) -> str:
    """Return a length of time in one or two units: `12 ms`, `3.1 s`, `45 s`, `3 min`, `2 h 5 min`,
    `4 d`.
    """
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        rest = f" {minutes % 60} min" if minutes % 60 and minutes < 10 * 60 else ""
        return f"{minutes // 60} h{rest}"
    return f"{minutes // (24 * 60)} d"


def moment(iso: str) -> datetime:
    """Return an instant of the API in the zone of whoever looks."""
    return datetime.fromisoformat(iso).astimezone()


def now() -> datetime:
    return datetime.now().astimezone()


def absolute(at: datetime, today: datetime) -> str:
    """Return the local time with its zone, and the day where it is not today."""
    if at.date() == today.date():
        return at.strftime("%H:%M %Z")
    if abs((at.date() - today.date()).days) < 7:
        return at.strftime("%a %H:%M %Z")
    return at.strftime("%d %b %H:%M %Z" if at.year == today.year else "%d %b %Y %H:%M %Z")


def relative(at: datetime, today: datetime) -> str:
    seconds = (at - today).total_seconds()
    if -1 < seconds < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def when(iso: str | None, today: datetime | None = None, *, never: str = "") -> str:
    """Return an instant as `08:30 CET (in 5 h)`."""
    if not iso:
        return never
    today = today or now()
    at = moment(iso)
    return f"{absolute(at, today)} ({relative(at, today)})"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return (
                f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
            )
        count /= 1000
    return f"{count:.1f} TB"


def short(run_id: str) -> str:
    """Return the end of a run's id: the random part, enough to name it by."""
    return run_id[-8:]


def words(status: str) -> str:
    return status.replace("_", " ")


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def toml_like(value: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a definition as `key = value` lines, dotted where it is nested."""
    lines = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict):
            lines += toml_like(item, f"{name}.")
        elif isinstance(item, list) and item and all(isinstance(each, dict) for each in item):
            for number, each in enumerate(item):
                lines += toml_like(each, f"{name}[{number}].")
        elif item not in (None, "", [], {}):
            lines.append(f"{name} = {_literal(item)}")
    return lines


def _literal(value: Any) -> str:
    import json

    if isinstance(value, str) and "\n" in value:
        return '"""' + value.rstrip("\n") + '"""'
    return json.dumps(value, ensure_ascii=False)


def stdout_page() -> OutputStream:
    return OutputStream(sys.stdout, os.environ)


def stderr_page() -> OutputStream:
    return OutputStream(sys.stderr, os.environ)
