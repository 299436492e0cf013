"""How far long work is: a line on a terminal, nothing anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

WIDEST = 30  # columns of the bar itself
STEP = 200  # things done between two looks at how far it is


def bar(title: str) -> Callable[[float], None]:
    """Return what shows on stderr how much is done, from 0 to 1."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return lambda done: None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        columns = 80
    width = max(0, min(WIDEST, columns - len(title) - 9))
    said = ""

    def show(done: float) -> None:
        nonlocal said
        filled = round(width * done)
        rail = f"[{'#' * filled}{'.' * (width - filled)}] " if width > 3 else ""
        line = f"{title} {rail}{done:4.0%}"
        if line != said:
            stream.write(f"\r{line}" + ("\n" if done >= 1 and not said.endswith("100%") else ""))
            stream.flush()
            said = line

    return show


def counting(things: Iterable[T], number: int, progress: Callable[[float], None]) -> Iterator[T]:
    """Yield so many things, and tell how far that is."""
    for done, thing in enumerate(things):
        if done % STEP == 0:
            progress(done / number if number else 1.0)
        yield thing
    progress(1.0)
