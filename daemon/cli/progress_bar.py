"""A progress bar for long work: a line on a terminal, nothing anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

MAX_BAR_WIDTH = 30  # columns
ITEMS_PER_UPDATE = 200


def make_progress_bar(title: str) -> Callable[[float], None]:
    """Return a function that shows on stderr which share of the work is done, from 0 to 1. It does
    nothing if stderr is no terminal.
    """
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return lambda share: None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        columns = 80
    width = max(0, min(MAX_BAR_WIDTH, columns - len(title) - 9))
    last_line = ""

    def show(share: float) -> None:
        nonlocal last_line
        filled_width = round(width * share)
        bar = f"[{'#' * filled_width}{'.' * (width - filled_width)}] " if width > 3 else ""
        line = f"{title} {bar}{share:4.0%}"
        if line != last_line:
            is_complete = share >= 1 and not last_line.endswith("100%")
            stream.write(f"\r{line}" + ("\n" if is_complete else ""))
            stream.flush()
            last_line = line

    return show


def track(items: Iterable[T], count: int, show_progress: Callable[[float], None]) -> Iterator[T]:
    """Yield the items, whose number is `count`, and show which share of them is done."""
    for number, item in enumerate(items):
        if number % ITEMS_PER_UPDATE == 0:
            show_progress(number / count if count else 1.0)
        yield item
    show_progress(1.0)
