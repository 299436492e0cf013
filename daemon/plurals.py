"""Counts as people read them: `1 run`, `2 runs`.

Standard library only, as the client imports this module, too.
"""

from __future__ import annotations


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun, which gets an s unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
