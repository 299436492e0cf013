"""Read the neighbours of texts: around one anchor, and around the best hits for a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from daemon import tokens
from daemon.errors import NotFound
from daemon.memory.texts import ITEM_ITERATION, Text, by_ids, chunk, of_run
from daemon.models import Anchor, ExpandedContext, MemoryChunk
from daemon.store.rows import from_microseconds
from daemon.store.statements import Connection

if TYPE_CHECKING:
    from daemon.memory.recall import RecallHit

_OUR_TAG = re.compile(r"<(?=[\s/]*memory)", re.IGNORECASE)
# Share of the best hit's relevance; hits below it seldom have more than a word in common with the
# question.
MIN_RELEVANCE = 0.3
# Characters of a hit, and of a neighbour of a hit, in a prompt.
HIT_CHARACTERS = 800
NEIGHBOUR_CHARACTERS = 200


def expand(connection: Connection, anchor: Anchor, window: int) -> ExpandedContext:
    """Return the text at an anchor, and `window` texts of its run before and after it; raises
    NotFound.
    """
    if anchor.iteration == ITEM_ITERATION:
        texts = list(by_ids(connection, [-anchor.segment]).values())
    else:
        texts = of_run(connection, anchor.run_id)
    by_position = {
        position: _join_parts(group)
        for position, group in groupby(texts, lambda text: (text.iteration, text.segment))
    }
    if (anchor.iteration, anchor.segment) not in by_position:
        msg = (
            f"nothing is remembered of run {anchor.run_id or '-'} at "
            f"{anchor.iteration}/{anchor.segment}"
        )
        raise NotFound(msg)
    index = list(by_position).index((anchor.iteration, anchor.segment))
    chunks = tuple(by_position.values())
    return ExpandedContext(
        run=anchor.run_id,
        focus=chunks[index],
        before=chunks[max(0, index - window) : index],
        after=chunks[index + 1 : index + 1 + window],
    )


def _join_parts(texts: Iterable[Text]) -> MemoryChunk:
    head, *tail = texts
    return replace(chunk(head), content="\n".join((head.text, *(text.text for text in tail))))


def excerpt(connection: Connection, hits: Sequence[RecallHit], budget: int) -> tuple[str, bool]:
    """Return the hits and their neighbours as text for a prompt, and whether any of it is tainted.

    The oldest text comes first. With at most `budget` tokens, better hits take precedence. The text
    is fenced: no remembered text can close the fence, or look like a heading with time, source and
    trust.
    """
    hit_texts = {hit.text.id: hit.text for hit in hits if hit.relevance >= MIN_RELEVANCE}
    neighbour_ids = {id_ + step for id_ in hit_texts if id_ > 0 for step in (-1, 1)}
    texts = by_ids(connection, neighbour_ids - hit_texts.keys()) | hit_texts
    lines: dict[int, str] = {}
    remaining = budget - tokens.estimate(_fence(()))
    for id_, text in hit_texts.items():
        neighbours = [
            neighbour
            for neighbour in (id_ - 1, id_ + 1)
            if neighbour in texts and 0 < texts[neighbour].run == text.run
        ]
        for line_ids in ([id_, *neighbours], [id_]):
            new_lines = {
                line_id: _line_of(texts[line_id], line_id in hit_texts)
                for line_id in line_ids
                if line_id not in lines
            }
            cost = tokens.estimate(_heading(text, tainted=True)) + sum(
                map(tokens.estimate, new_lines.values())
            )
            if cost <= remaining:
                lines |= new_lines
                remaining -= cost
                break
    blocks = []
    for group in _group_adjacent([texts[id_] for id_ in sorted(lines)]):
        head = _heading(group[0], tainted=any(text.tainted for text in group))
        blocks.append("\n".join((head, *(lines[text.id] for text in group))))
    return _fence(blocks) if blocks else "", any(texts[id_].tainted for id_ in lines)


def _group_adjacent(texts: Sequence[Text]) -> list[list[Text]]:
    """Group texts that follow each other in one run, the oldest group first."""
    groups: list[list[Text]] = []
    for text in texts:
        previous = groups[-1][-1] if groups else None
        if previous and 0 < previous.run == text.run and previous.id + 1 == text.id:
            groups[-1].append(text)
        else:
            groups.append([text])
    return sorted(groups, key=lambda group: group[0].at)


def _heading(text: Text, *, tainted: bool) -> str:
    source = f" · {text.source or text.key}" if text.source or text.key else ""
    return f"[{_minute(text.at // 60_000_000)}{source}{' · untrusted' if tainted else ''}]"


@lru_cache(maxsize=64)  # the hits of a search are often of one hour, and found again
def _minute(number: int) -> str:
    return (
        from_microseconds(number * 60_000_000).isoformat(" ", "minutes").replace("+00:00", " UTC")
    )


def _line_of(text: Text, is_hit: bool) -> str:
    return quote_line(
        text.who, shorten(text.text, HIT_CHARACTERS if is_hit else NEIGHBOUR_CHARACTERS)
    )


def shorten(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, with an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit].rstrip()} …"


def quote_line(speaker: str, text: str) -> str:
    """Return a text as a prompt shows it: a list item with the speaker, further lines indented."""
    # Headings begin at the margin: indented, a remembered text cannot imitate one, nor the tag.
    text = "\n  ".join(text.splitlines())
    if "<" in text:
        text = _OUR_TAG.sub("‹", text)
    return f"- {speaker}: {text}" if speaker else f"- {text}"


def _fence(blocks: Iterable[str]) -> str:
    return "\n".join(("<memory>", "\n\n".join(blocks), "</memory>"))
