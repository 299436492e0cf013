"""What happened day by day: for the pictures of weeks, where a row per run would be too much to
carry.
"""

# ruff: noqa: S608  what is put into statements are constants of this room; values are bound
from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from daemon.store.repository import Repository
from daemon.store.rows import LAST_BEFORE, stamp

# Summed up where the rows are: to carry ten thousand of them over takes longer than all the rest.
# `+`: by the ids.
_ENDED = (
    "SELECT routine, {day} AS day, status, silent, count(*), sum(input), sum(output) FROM run "
    f"WHERE id > {LAST_BEFORE} AND created >= ? AND created < ? AND +ended IS NOT NULL GROUP BY 1, "
    "2, 3, 4"
)
_NOT_STARTED = (
    "SELECT routine, first, last, count, outcome FROM slot"
    " WHERE run_id IS NULL AND outcome IN ('missed', 'skipped') AND last >= ? AND first < ?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """What became of one routine on one day."""

    routine: str
    day: int
    """The place of the day among those that were asked about."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Runs by status (`silent` of its own), and slots that were `missed` or `skipped` without a
    run.
    """
    tokens: Counter[str] = field(default_factory=Counter)
    """`input` and `output`."""


class Days(Repository):
    """The journal, summed up by routine and day."""

    async def days(self, edges: Sequence[datetime]) -> list[Day]:
        """Return what became of each routine between each edge and the next one, where anything
        did.
        """
        marks = [stamp(edge) for edge in edges]

        def work(connection: sqlite3.Connection) -> list[Day]:
            found: dict[tuple[str, int], Day] = {}

            def of(routine: str, day: int) -> Day:
                return found.setdefault((routine, day), Day(routine=routine, day=day))

            which = " ".join(
                f"WHEN created < {mark} THEN {place}" for place, mark in enumerate(marks[1:])
            )
            ended = _ENDED.format(day=f"CASE {which} END")
            for routine, place, status, silent, count, sent, got in connection.execute(
                ended, (marks[0], marks[0], marks[-1])
            ):
                day = of(routine, place)
                day.outcomes["silent" if silent and status == "succeeded" else status] += count
                day.tokens["input"] += sent
                day.tokens["output"] += got
            for routine, first, last, count, outcome in connection.execute(
                _NOT_STARTED, (marks[0], marks[-1])
            ):
                # one row may tell of weeks; how many of its slots lay on which day it does not say
                begin = max(bisect_right(marks, first) - 1, 0)
                end = min(bisect_right(marks, last) - 1, len(marks) - 2)
                share, rest = divmod(count, end - begin + 1)
                for place in range(begin, end + 1):
                    of(routine, place).outcomes[outcome] += max(1, share + (place - begin < rest))
            return sorted(found.values(), key=lambda day: (day.routine, day.day))

        return await self._db.read(work)
