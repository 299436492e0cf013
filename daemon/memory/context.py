"""What stood around a remembered text: around one for whoever asks, around the best few for a
prompt.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from daemon import tokens
from daemon.errors import NotFound
from daemon.memory.texts import ITEM, Text, by_ids, chunk, of_run
from daemon.models import Anchor, ExpandedContext, MemoryChunk
from daemon.store.rows import moment

if TYPE_CHECKING:
    from daemon.memory.recall import RecallHit

_OUR_TAG = re.compile(r"<(?=[\s/]*memory)", re.IGNORECASE)
# Hits below this share of the best one have a word in common with the question, and seldom more.
FLOOR = 0.3
# Of a text that was found, and of one that only stood beside it.
HIT_CHARACTERS = 800
BESIDE_CHARACTERS = 200


def expand(connection: sqlite3.Connection, anchor: Anchor, window: int) -> ExpandedContext:
    """Return the text at an anchor, and `window` texts of its run before and after it; raises
    NotFound.
    """
    if anchor.iteration == ITEM:
        texts = list(by_ids(connection, [-anchor.segment]).values())
    else:
        texts = of_run(connection, anchor.run_id)
    places = {
        place: _joined(parts)
        for place, parts in groupby(texts, lambda text: (text.iteration, text.segment))
    }
    if (anchor.iteration, anchor.segment) not in places:
        msg = (
            f"nothing is remembered of run {anchor.run_id or '-'} at "
            f"{anchor.iteration}/{anchor.segment}"
        )
        raise NotFound(msg)
    here = list(places).index((anchor.iteration, anchor.segment))
    chunks = tuple(places.values())
    return ExpandedContext(
        run=anchor.run_id,
        focus=chunks[here],
        before=chunks[max(0, here - window) : here],
        after=chunks[here + 1 : here + 1 + window],
    )


def _joined(parts: Iterable[Text]) -> MemoryChunk:
    first, *rest = parts
    return replace(chunk(first), content="\n".join((first.text, *(part.text for part in rest))))


def excerpt(
    connection: sqlite3.Connection, hits: Sequence[RecallHit], budget: int
) -> tuple[str, bool]:
    """Return the hits, and what stood beside them, as text for a prompt: oldest first, at most
    `budget` tokens.

    With it comes whether strangers may have had a hand in any of it.

    Where that is short, better hits go first. The text is fenced: nothing remembered can close the
    fence, or pass for one of our own lines that say when, where and how far to be trusted.
    """
    found = {hit.text.id: hit.text for hit in hits if hit.relevance >= FLOOR}
    near = {id_ + step for id_ in found if id_ > 0 for step in (-1, 1)}
    texts = by_ids(connection, near - found.keys()) | found
    kept: dict[int, str] = {}
    left = budget - tokens.estimate(_fence(()))
    for id_, text in found.items():
        beside = [
            near for near in (id_ - 1, id_ + 1) if near in texts and 0 < texts[near].run == text.run
        ]
        for wanted in ([id_, *beside], [id_]):
            said = {near: _said(texts[near], near in found) for near in wanted if near not in kept}
            cost = tokens.estimate(_head(text, tainted=True)) + sum(
                map(tokens.estimate, said.values())
            )
            if cost <= left:
                kept |= said
                left -= cost
                break
    blocks = []
    for stretch in _stretches([texts[id_] for id_ in sorted(kept)]):
        head = _head(stretch[0], tainted=any(text.tainted for text in stretch))
        blocks.append("\n".join((head, *(kept[text.id] for text in stretch))))
    return _fence(blocks) if blocks else "", any(texts[id_].tainted for id_ in kept)


def _stretches(texts: Sequence[Text]) -> list[list[Text]]:
    """Group what followed directly on each other, the oldest group first."""
    groups: list[list[Text]] = []
    for text in texts:
        last = groups[-1][-1] if groups else None
        if last and 0 < last.run == text.run and last.id + 1 == text.id:
            groups[-1].append(text)
        else:
            groups.append([text])
    return sorted(groups, key=lambda group: group[0].at)


def _head(text: Text, *, tainted: bool) -> str:
    whence = f" · {text.source or text.key}" if text.source or text.key else ""
    return f"[{_minute(text.at // 60_000_000)}{whence}{' · untrusted' if tainted else ''}]"


@lru_cache(maxsize=64)  # what is found together is often of one hour, and found again
def _minute(number: int) -> str:
    return moment(number * 60_000_000).isoformat(" ", "minutes").replace("+00:00", " UTC")


def _said(text: Text, found: bool) -> str:
    return said_by(text.who, cut(text.text, HIT_CHARACTERS if found else BESIDE_CHARACTERS))


def cut(text: str, limit: int) -> str:
    """Return as much of a text as a prompt shows."""
    return text if len(text) <= limit else f"{text[:limit].rstrip()} …"


def said_by(who: str, words: str) -> str:
    """Return the line, or the lines, in which a prompt shows what somebody said."""
    # Lines of ours begin at the margin; what was remembered never does, and cannot write our tag.
    words = "\n  ".join(words.splitlines())
    if "<" in words:
        words = _OUR_TAG.sub("‹", words)
    return f"- {who}: {words}" if who else f"- {words}"


def _fence(blocks: Iterable[str]) -> str:
    return "\n".join(("<memory>", "\n\n".join(blocks), "</memory>"))
