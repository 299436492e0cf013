"""Pages of lists, and the cursors that lead from one page to the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def page_of_keys(keys: list[str], limit: int, cursor: str | None) -> tuple[list[str], str | None]:
    """Return up to `limit` of the sorted keys behind the cursor, and the cursor of the next page.

    The cursor is a key; None where no key is left.
    """
    start = bisect_right(keys, cursor) if cursor else 0
    page = keys[start : start + limit]
    return page, page[-1] if start + limit < len(keys) else None


def next_offset(rows: Sequence[object], end: int) -> str | None:
    """Return the cursor of the page that begins at `end`; None if `rows` has none behind it."""
    return str(end) if len(rows) > end else None
