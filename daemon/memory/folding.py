"""Fold the reports of a routine that differ in numbers only: of one day the first is indexed.

A routine that reports each quarter of an hour would fill the index with one text. So of texts of a
routine, a goal, a type and a day that have all words in common, the first stands for the others,
and a report with a number beyond any that these words had before is indexed as well: it may be the
one that people ask about. The others stay in their runs, in the table.

The table memory_template keeps, for each such wording, the text that stands for its day and the
least and greatest number at each place.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from daemon.memory.segments import GOAL_SPEAKER, SegmentPart
from daemon.models import SegmentType
from daemon.store.connection import Connection, padded, placeholders

# A counter in the output of a tool (an uptime) would be beyond any before each time: such texts are
# folded whatever their numbers are.
_TOOLS = (SegmentType.TOOL_CALL.value, SegmentType.TOOL_RESULT.value)
# Never the words of a person: "I ran 5 km" and "I ran 7 km" are two facts.
_FOLDED = (*_TOOLS, SegmentType.RESPONSE.value, SegmentType.REASONING.value)
# Characters. A shorter answer ("12 of 40.") says nothing without what it answers.
_SHORT_ANSWER = 40

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# Digits of a number: those of longer ones (identifiers, hashes) are not compared.
_DIGITS = 15


class Template(NamedTuple):
    """A text without its numbers, as a digest, and the numbers in their order."""

    digest: int
    numbers: tuple[float, ...]
    """Empty where numbers do not matter."""


class StoredTemplate(NamedTuple):
    """What is kept of a wording."""

    segment: int
    """The indexed text that stands for the texts of its day."""
    at: int | None
    """When that was, in microseconds; None if it is not indexed any more."""
    bounds: tuple[tuple[float, float], ...]
    """The least and the greatest number at each place."""

    def is_within_bounds(self, numbers: Sequence[float]) -> bool:
        """Tell whether no number is beyond those before."""
        return len(numbers) == len(self.bounds) and all(
            least <= number <= greatest
            for number, (least, greatest) in zip(numbers, self.bounds, strict=True)
        )


def make_templates(routine: str, parts: Sequence[SegmentPart]) -> list[Template | None]:
    """Return the template of each part of a run; None for a part that is not folded.

    Nothing is folded in a run in which a person spoke.
    """
    user_messages = [part for part in parts if part.type == SegmentType.USER_MESSAGE.value]
    if any(part.speaker != GOAL_SPEAKER for part in user_messages):
        return [None] * len(parts)
    goal = _NUMBER.sub("0", "\0".join(part.text for part in user_messages))
    return [_make_template(f"{routine}\0{goal}", part) for part in parts]


def _make_template(source: str, part: SegmentPart) -> Template | None:
    if part.type not in _FOLDED:
        return None
    is_tool = part.type in _TOOLS
    if len(part.text) < _SHORT_ANSWER and not is_tool:
        return None
    words, count = _NUMBER.subn("0", part.text)
    if not count:
        return None
    key = "\0".join((source, part.type, str(part.tainted), " ".join(words.split()).casefold()))
    digest = blake2b(key.encode(), digest_size=8).digest()
    numbers: tuple[float, ...] = ()
    if not is_tool:
        numbers = tuple(
            float(number) if len(number) <= _DIGITS else 0.0
            for number in _NUMBER.findall(part.text)
        )
    return Template(int.from_bytes(digest, signed=True), numbers)


def find_templates(
    connection: Connection, templates: Iterable[Template | None]
) -> dict[int, StoredTemplate]:
    """Return what is stored of these templates, by digest."""
    digests = list(dict.fromkeys(template.digest for template in templates if template))
    templates_by_digest: dict[int, StoredTemplate] = {}
    for begin in range(0, len(digests), _PER_QUERY):
        batch = padded(digests[begin : begin + _PER_QUERY], digests[begin])
        rows = connection.execute(
            "SELECT t.digest, t.segment, s.at, t.bounds FROM memory_template t"
            " LEFT JOIN memory_segment s ON s.id = t.segment AND s.superseded IS NULL"
            f" WHERE t.digest IN ({placeholders(batch)})",
            batch,
        )
        for digest, segment, at, bounds in rows:
            pairs = tuple((least, greatest) for least, greatest in json.loads(bounds))
            templates_by_digest[digest] = StoredTemplate(segment, at, pairs)
    return templates_by_digest


_PER_QUERY = 64


def store_templates(
    connection: Connection, templates: Iterable[tuple[int, StoredTemplate]]
) -> None:
    """Store templates, by digest."""
    connection.executemany(
        "INSERT INTO memory_template (digest, segment, bounds) VALUES (?, ?, ?)"
        " ON CONFLICT (digest) DO UPDATE SET segment = excluded.segment, bounds = excluded.bounds",
        [
            (digest, template.segment, json.dumps(template.bounds, separators=(",", ":")))
            for digest, template in templates
        ],
    )


def widen(
    stored_template: StoredTemplate | None, numbers: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Return the bounds that hold these numbers as well."""
    if stored_template is None or len(stored_template.bounds) != len(numbers):
        return tuple((number, number) for number in numbers)
    return tuple(
        (min(least, number), max(greatest, number))
        for number, (least, greatest) in zip(numbers, stored_template.bounds, strict=True)
    )


def find_representatives(connection: Connection, ids: Collection[int]) -> set[int]:
    """Return the texts among these that stand for texts with other numbers."""
    if not ids:
        return set()
    rows = connection.execute(
        "SELECT DISTINCT kept.id FROM memory_segment kept"
        " JOIN memory_segment folded ON folded.superseded = kept.id"
        f" WHERE kept.id IN ({placeholders(ids)}) AND folded.digest <> kept.digest",
        list(ids),
    )
    return {id_ for (id_,) in rows}


def forget_old_templates(connection: Connection, before: int, now: int) -> None:
    """Delete the templates whose last text is of a run that ended before `before` (microseconds).
    Runs that ended later than `now` are not asked, as the clock was ahead then.

    A model seldom words a report twice alike: its wordings would pile up.
    """
    connection.execute(
        "DELETE FROM memory_template WHERE segment < (SELECT min(id) FROM memory_segment"
        " WHERE memory_run = (SELECT min(id) FROM memory_run WHERE ended BETWEEN ? AND ?))",
        (before, now),
    )


def forget_templates(connection: Connection) -> None:
    """Delete all templates, as their numbers may be of a text that is being erased."""
    connection.execute("DELETE FROM memory_template")
