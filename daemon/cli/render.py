"""Text for people: tables that fit the terminal, absolute and relative times, signs and colours.

Every `agentctl` imports this module, so it uses the standard library only, and little of that.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from math import floor
from typing import TYPE_CHECKING

from daemon.durations import duration_in_words

if TYPE_CHECKING:
    from typing import Any, TextIO

# SGR parameters of ECMA-48, as they stand in an escape sequence.
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
# The states of checks, deliveries and routines.
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
# What stands for a sign on a terminal that is not in UTF-8.
ASCII_SIGNS = {"◌": ".", "»": ">", "⏸": "=", "✓": "+", "✗": "x"}

COLUMN_GAP = "  "
# A column is not squeezed below this width; a narrower terminal wraps lines.
MIN_COLUMN_WIDTH = 12
DEFAULT_TERMINAL_WIDTH = 80
# A narrower column of sentences would be a long one.
MIN_SENTENCE_WIDTH = 30


class OutputStream:
    """One output stream, with what its terminal can show: colours, signs, a width."""

    def __init__(self, stream: TextIO, env: Mapping[str, str]) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = self.is_terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
        self.has_unicode = "utf" in (getattr(stream, "encoding", None) or "").lower()
        if not self.has_unicode and isinstance(stream, TextIOWrapper):
            # a report in Chinese is no reason to end in a traceback
            stream.reconfigure(errors="replace")

    @property
    def width(self) -> int | None:
        """The number of columns of the terminal; None for a file or a pipe."""
        if not self.is_terminal:
            return None
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            return DEFAULT_TERMINAL_WIDTH
        return max(MIN_COLUMN_WIDTH, columns or DEFAULT_TERMINAL_WIDTH)

    def write_line(self, text: str = "") -> None:
        self.stream.write(text + "\n")

    def write_prose(
        self, text: str, *, colour: str = "", begin: str = "", indent: str = "  "
    ) -> None:
        """Write sentences; on a terminal they are broken between words, and go on below `indent`.

        `begin` stands before the text.
        """
        width = self.width
        if width is None:
            self.write_line(begin + self.paint(text, colour))
            return
        for line in text.split("\n"):
            for part in wrap_text(line, width - len(indent)):
                self.write_line(begin + self.paint(part, colour))
                begin = indent

    def write_title(self, text: str) -> None:
        """Write an empty line and a bold one."""
        self.write_line()
        self.write_line(self.paint(text, BOLD))

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, or unchanged if the stream or the text has none."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self.has_colour and colour and text else text

    def sign(self, status: str) -> str:
        """Return the sign of a status in its colour."""
        sign, colour = SIGNS.get(status, ("?", ""))
        return self.paint(sign if self.has_unicode else ASCII_SIGNS.get(sign, sign), colour)

    def sanitize(self, text: str) -> str:
        """Return text from elsewhere such that a terminal shows it and does not obey it.

        Text for a pipe or file is sanitized, too: `less -R` or `cat` may show it on a terminal.
        """
        return sanitize(text)

    def write_table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        elastic: int = -1,
        signs: bool = True,
        shows_headers: bool = True,
        wraps: bool = False,
    ) -> None:
        """Write rows in columns; the `elastic` column shrinks first on a narrow terminal.

        With `wraps` the last column holds sentences, and goes on in the next line where it does not
        fit.

        With `signs` the first column holds statuses, shown as their signs. Where even the narrowest
        columns do not fit side by side, the cells of a row stand below each other. A table that
        comes page by page shows its headers above the first page only.
        """
        body = [[one_line(self.sanitize(cell)) for cell in row] for row in rows]
        if signs:
            headers = ["", *headers[1:]]
        widths = [
            max(display_width(row[column]) for row in (headers, *body))
            for column in range(len(headers))
        ]
        if signs:
            widths[0] = 1
        available = (self.width or 0) - len(COLUMN_GAP) * (len(widths) - 1)
        last_width = available - sum(widths[:-1])
        if self.width is not None and wraps and last_width >= MIN_SENTENCE_WIDTH:
            body = _wrap_last_column(body, last_width)
        elif self.width is not None:
            drop_parentheses(headers, body, widths, available)
            if sum(min(width, MIN_COLUMN_WIDTH) for width in widths) > available:
                self._write_stacked_rows(headers, body, self.width, signs=signs)
                return
            cell_widths = [
                [display_width(row[column]) for row in body] for column in range(len(widths))
            ]
            shrink_columns(widths, available, cell_widths=cell_widths, elastic=elastic)
        if any(headers) and shows_headers:
            self.write_line(self.paint(self._format_row(headers, widths), DIM))
        for row in body:
            if signs:
                sign = self.sign(row[0]) if row[0] else " "
                text = sign + COLUMN_GAP + self._format_row(row[1:], widths[1:])
            else:
                text = self._format_row(row, widths)
            self.write_line(text)

    def _write_stacked_rows(
        self, headers: Sequence[str], body: Sequence[Sequence[str]], width: int, *, signs: bool
    ) -> None:
        for row in body:
            cells = [
                (header, cell)
                for header, cell in zip(headers[signs:], row[signs:], strict=True)
                if cell
            ]
            for number, (header, cell) in enumerate(cells):
                if number == 0 and signs:
                    self.write_line(f"{self.sign(row[0])} {self.truncate(cell, width - 2)}")
                elif number == 0:
                    self.write_line(self.truncate(cell, width))
                elif header:
                    self.write_line(self.truncate(f"  {header.lower()}: {cell}", width))
                else:
                    self.write_line(self.truncate(f"  {cell}", width))

    def _format_row(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = [
            pad(self.truncate(cell, width), width) for cell, width in zip(row, widths, strict=True)
        ]
        return COLUMN_GAP.join(cells).rstrip()

    def truncate(self, text: str, width: int) -> str:
        """Return at most `width` columns of a text, with a mark where something is missing."""
        return truncate(text, width, "…" if self.has_unicode else "~")


def _wrap_last_column(body: list[list[str]], width: int) -> list[list[str]]:
    """Return the rows, with the last cell of each in as many rows as its lines need."""
    rows = []
    for *cells, last in body:
        for number, line in enumerate(wrap_text(last, width)):
            rows.append([*([""] * len(cells) if number else cells), line])
    return rows


def drop_parentheses(
    headers: Sequence[str], body: list[list[str]], widths: list[int], available: int
) -> None:
    """Remove parentheses (`03:36 UTC (35 min ago)`) from the widest columns until the table fits.

    `body` and `widths` are changed in place. This comes before any word is cut in two.
    """
    for column in sorted(range(len(widths)), key=lambda column: -widths[column]):
        if sum(widths) <= available:
            return
        if any("(" in row[column] for row in body):
            for row in body:
                row[column] = remove_parentheses(row[column])
            widths[column] = max(display_width(row[column]) for row in (headers, *body))


def remove_parentheses(text: str) -> str:
    """Return a text without ` (…)`; parentheses are not nested."""
    name, opening, rest = text.partition(" (")
    _, closing, after = rest.partition(")")
    return name + remove_parentheses(after) if opening and closing else text


def shrink_columns(
    widths: list[int], available: int, *, cell_widths: Sequence[Sequence[int]], elastic: int = -1
) -> None:
    """Shrink `widths` in place until they fit, none below MIN_COLUMN_WIDTH.

    Each step takes a character from the column in which it cuts the fewest cells, so that one long
    cell does not cost all others their ends. Of equals the `elastic` column shrinks first, then the
    widest. `cell_widths` has the width of every cell, by column.
    """
    sorted_widths = [sorted(column) for column in cell_widths]
    elastic_column = range(len(widths))[elastic]

    def shrinking_order(column: int) -> tuple[int, bool, int]:
        cells = sorted_widths[column]
        cut_cells = len(cells) - bisect_left(cells, widths[column])
        return cut_cells, column != elastic_column, -widths[column]

    for _ in range(sum(widths) - available):
        shrinkable = [column for column, width in enumerate(widths) if width > MIN_COLUMN_WIDTH]
        if not shrinkable:
            return
        widths[min(shrinkable, key=shrinking_order)] -= 1


# str.isprintable() is false for both sets, and both are part of how people write: the spaces of
# other scripts (Chinese sets titles off with U+3000), and what joins letters of Persian and the
# parts of an emoji.
SPACES = frozenset(
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
JOINERS = frozenset("\u200c\u200d")
ALLOWED_UNPRINTABLE = frozenset("\n\t") | SPACES | JOINERS


def sanitize(text: str) -> str:
    """Return text without characters that steer a terminal, or turn or hide the text around."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in ALLOWED_UNPRINTABLE else "\ufffd"
        for char in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """Return a text with its lines joined by spaces."""
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def display_width(text: str) -> int:
    """Return how many columns a terminal uses for a text.

    Chinese and Japanese characters take two, combining ones none.
    """
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    width = 0
    for char in text:
        if category(char) in _COMBINING_CATEGORIES:
            continue
        width += 2 if east_asian_width(char) in "WF" else 1
    return width


# Marks and joiners are drawn on the character before them.
_COMBINING_CATEGORIES = ("Mn", "Me", "Cf")


def truncate(text: str, width: int, mark: str = "…") -> str:
    """Return at most `width` columns of a text, with a mark where something is missing: of a path
    its beginning, as its end tells what it is.
    """
    if display_width(text) <= width:
        return text
    if width > 0 and text.startswith("/") and " " not in text:
        end = next(
            text[index:] for index in range(len(text) + 1) if display_width(text[index:]) < width
        )
        return mark + end
    available = width - 1
    for index, char in enumerate(text):
        available -= display_width(char)
        if available < 0:
            return text[:index] + mark[: max(0, width)]
    return text


def wrap_text(text: str, width: int) -> list[str]:
    """Return the lines of a text that is broken between words.

    A path or a command that is longer than the width stays whole, so that it can be copied.
    """
    if display_width(text) <= width:
        return [text]
    import re

    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\(umask [^)]*\)\S*|\S+", text):
        if lines[-1] and display_width(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def local_now() -> datetime:
    return datetime.now().astimezone()


def parse_instant(iso: str) -> datetime:
    """Return an instant of the API in the local zone."""
    return datetime.fromisoformat(iso).astimezone()


def format_local_time(at: datetime, now: datetime) -> str:
    """Return a local time with its zone, and with the day where it is not today."""
    if at.date() == now.date():
        return at.strftime("%H:%M %Z")
    if abs((at.date() - now.date()).days) < 7:
        return at.strftime("%a %H:%M %Z")
    if at.year == now.year:
        return at.strftime("%d %b %H:%M %Z")
    return at.strftime("%d %b %Y %H:%M %Z")


def format_relative_time(at: datetime, now: datetime) -> str:
    """Return `in 5 h`, `3 min ago`, `2 s ago` or `now`."""
    seconds = (at - now).total_seconds()
    if -1 < seconds < 1:
        return "now"
    # nobody reads how many tenths of a second have gone by since
    distance = abs(seconds)
    text = f"{floor(distance + 0.5)} s" if distance < 9.95 else duration_in_words(distance)
    return f"in {text}" if seconds > 0 else f"{text} ago"


def format_instant(iso: str | None, now: datetime | None = None, *, never: str = "") -> str:
    """Return an instant of the API as `08:30 CET (in 5 h)`, and None as `never`."""
    if not iso:
        return never
    now = now or local_now()
    at = parse_instant(iso)
    return f"{format_local_time(at, now)} ({format_relative_time(at, now)})"


def format_bytes(count: float) -> str:
    """Return a number of bytes in decimal units: `999 bytes`, `1.2 kB`, `160 kB`."""
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def shorten_home(path: str) -> str:
    """Return an absolute path with `~` for the person's home folder, as a shell takes it; any other
    text as it is.
    """
    home = os.environ.get("HOME", "").rstrip("/")
    return f"~{path[len(home) :]}" if home and f"{path}/".startswith(f"{home}/") else path


def short_id(run_id: str) -> str:
    """Return the end of an id: the random part, enough to name a run by."""
    return run_id[-8:]


def humanize(identifier: str) -> str:
    """Return a status, trigger or reason of the API as words: `timed_out` is `timed out`."""
    return identifier.replace("_", " ")


def definition_lines(value: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a definition as `key = value` lines of TOML, with dotted keys where it is nested."""
    lines = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict):
            lines += definition_lines(item, f"{name}.")
        elif isinstance(item, list) and item and all(isinstance(table, dict) for table in item):
            for number, table in enumerate(item):
                lines += definition_lines(table, f"{name}[{number}].")
        elif item not in (None, "", [], {}):
            lines.append(f"{name} = {_format_toml_value(item)}")
    return lines


def _format_toml_value(value: Any) -> str:
    import json

    if isinstance(value, str) and "\n" in value:
        return '"""' + value.rstrip("\n") + '"""'
    return json.dumps(value, ensure_ascii=False)


def stdout_stream() -> OutputStream:
    return OutputStream(sys.stdout, os.environ)


def stderr_stream() -> OutputStream:
    return OutputStream(sys.stderr, os.environ)
