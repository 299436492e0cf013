"""What spares a recall work changes nothing in what it finds: answers that are kept, items that are never read."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.memory import Memory, fulltext
from tests.memory.conftest import Library, in_a_file
from tests.memory.test_index import MOVES, in_a_library, make

QUESTIONS = ("a b", "备份 a")


async def told(memory: Memory, question: str, limit: int = 10, **more: Any) -> list[tuple[str | None, str, float]]:
    hits = await memory.search(question, limit, **more)
    return [(hit.text.key, hit.text.text, hit.relevance) for hit in hits]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(MOVES)
def test_whatever_happened_in_between_who_asks_again_is_told_what_a_newcomer_is_told(
    moves: list[tuple[Any, ...]],
) -> None:
    async def story(library: Library) -> None:
        for move in moves:
            await make(library, move)
            if move == ("rebuild",):
                await library.memory.shelf.renew()
            newcomer = Memory(library.db, clock=library.clock)
            for question in QUESTIONS:
                assert await told(library.memory, question) == await told(newcomer, question)

    in_a_library(story)


async def test_the_index_is_not_asked_again_as_long_as_nothing_comes_in(library: Library) -> None:
    asked = 0

    def find(connection: Any, terms: tuple[str, ...], pool: int) -> dict[int, float]:
        nonlocal asked
        asked += 1
        return fulltext.of(connection).best(connection, terms, pool)

    async def ask(*terms: str) -> dict[int, float]:
        return await library.db.read(lambda connection: lately.best(connection, terms, 10, find))

    lately = fulltext.Lately()
    await library.memory.store("a", "the walrus sleeps")
    first = await ask("walrus")
    first.clear()  # what somebody does with an answer is his own affair
    assert len(await ask("walrus")) == 1
    assert asked == (2 if library.db.shared else 1)  # a server does not tell that nothing came in
    await ask("badger")
    await library.memory.store("b", "the walrus eats")
    assert len(await ask("walrus")) == 2
    await library.memory.forget("a")
    assert len(await ask("walrus")) == 1
    assert asked >= 4


@in_a_file
async def test_of_many_questions_the_last_ones_are_kept(library: Library) -> None:
    await library.memory.store("a", "the walrus sleeps")
    lately, asked = fulltext.Lately(), []

    def find(connection: sqlite3.Connection, terms: tuple[str, ...], pool: int) -> dict[int, float]:
        asked.append(terms[0])
        return {}

    async def ask(number: int) -> None:
        await library.db.read(lambda connection: lately.best(connection, (f"w{number}",), 10, find))

    for number in range(100):
        await ask(0)
        await ask(number)
    assert len(asked) == 100
    await ask(1)
    assert len(asked) == 101


TEXTS = st.lists(
    st.tuples(
        st.sampled_from(["item", "run"]), st.lists(st.sampled_from(["walrus", "gull", "tea", "in", "7"]), max_size=4)
    ),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    TEXTS,
    st.sampled_from(
        ["walrus gull", "when did the walrus see the gull", "the tea of yesterday", "how many gulls", "item 3"]
    ),
    st.integers(1, 6),
)
def test_a_short_answer_begins_as_a_long_one_does(
    texts: list[tuple[str, list[str]]], question: str, limit: int
) -> None:
    async def story(library: Library) -> None:
        for number, (kind, words) in enumerate(texts):
            library.clock.turn(hours=number % 3)
            text = " ".join((*words, "gull" if number % 2 else "walrus"))  # short: none stands for another
            if kind == "run":
                await library.run(f"r{number}", text, routine=f"r{number}")
            else:
                await library.memory.store(f"item {number}", text, run="r0" if number % 4 else None)
        await library.memory.store("item 3", "gull walrus")  # its number is old, and it is new
        for own in (None, "r0"):
            everything = await told(library.memory, question, 40, exclude_run=own)
            assert await told(library.memory, question, limit, exclude_run=own) == everything[:limit]

    in_a_library(story)


async def test_what_the_run_that_asks_has_kept_is_no_measure_for_the_rest(library: Library) -> None:
    for number in range(5):
        await library.memory.store(f"mine {number}", "walrus walrus walrus", run="01A")
    await library.memory.store("other", "a walrus among many other animals, and things to fill the line")
    assert [(key, share) for key, _, share in await told(library.memory, "walrus", 1, exclude_run="01A")] == [
        ("other", 1.0)
    ]
