"""What spares a recall work changes nothing in what it finds: answers that are kept, items that are never read."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.memory import Memory, rows
from daemon.memory.lately import Lately
from tests.memory.conftest import Library, in_a_file, said
from tests.memory.test_index import MOVES, in_a_library, make

QUESTIONS = ("a b", "备份 a", "was a there today?")


async def told(memory: Memory, question: str, limit: int = 10, **more: Any) -> list[tuple[str | None, str, float]]:
    hits = await memory.search(question, limit, **more)
    return [(hit.text.key, hit.text.text, hit.relevance) for hit in hits]


# Runs that mostly have nothing new to say.
REPETITIONS = st.lists(
    st.tuples(
        st.just("archive"), st.sampled_from("rtuvw"), st.lists(st.sampled_from(["a is well", "备份 a"]), max_size=2)
    ),
    max_size=5,
)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(MOVES, REPETITIONS)
def test_whatever_happened_in_between_who_asks_again_is_told_what_a_newcomer_is_told(
    moves: list[tuple[Any, ...]], repetitions: list[tuple[Any, ...]]
) -> None:
    async def story(library: Library) -> None:
        for move in (*moves, *repetitions):
            await make(library, move)
            if move == ("rebuild",):
                await library.memory.shelf.renew()
            newcomer = Memory(library.db, clock=library.clock)
            for question in QUESTIONS:
                assert await told(library.memory, question) == await told(newcomer, question)
                for run in (None, "r"):
                    briefing = await library.memory.briefing(question, "k", exclude_run=run)
                    assert briefing == await newcomer.briefing(question, "k", exclude_run=run)

    in_a_library(story)


async def change_unseen(library: Library, key: str) -> None:
    """Take an item away without telling the memory, as only a process on another machine would."""
    await library.db.write(lambda connection: rows.drop_item(connection, key))


async def test_who_asks_again_is_answered_without_a_look_as_long_as_nothing_is_written(library: Library) -> None:
    await library.memory.store("a", "the walrus sleeps")
    await library.memory.store("b", "the walrus eats")
    first = await library.memory.search("walrus")
    first.clear()  # what somebody does with an answer is his own affair
    assert len(await told(library.memory, "walrus")) == 2
    await change_unseen(library, "a")
    # a server does not tell what others have written
    assert len(await told(library.memory, "walrus")) == (1 if library.db.shared else 2)
    await library.memory.store("c", "something else")
    assert len(await told(library.memory, "walrus")) == 1


@in_a_file
async def test_a_run_that_says_again_what_was_said_that_day_leaves_the_answers_as_they_are(library: Library) -> None:
    await library.memory.store("a", "the walrus sleeps")
    await library.run("01A", "the walrus eats")
    assert len(await told(library.memory, "walrus")) == 2
    await change_unseen(library, "a")
    library.clock.turn(hours=1)
    await library.archive("01B", said("the walrus eats"), line="daily: it eats")
    assert len(await told(library.memory, "walrus")) == 2
    assert [hit.text.key for hit in await library.memory.search("run:01B", 1)] == ["run:01B"]
    library.clock.turn(days=1)
    await library.archive("01C", said("the walrus eats", at=library.clock.now))
    assert len(await told(library.memory, "walrus")) == 1


async def test_what_is_told_beside_an_answer_is_looked_up_each_time(library: Library) -> None:
    await library.memory.store("a", "the walrus sleeps")
    for number in range(3):
        briefing = await library.memory.briefing("walrus", "a", beside=lambda _connection, n=number: n)  # type: ignore[misc]
        assert (briefing.kept, briefing.beside) == ("the walrus sleeps", number)
        assert "the walrus sleeps" in briefing.recalled


@in_a_file
async def test_what_is_written_counts_though_nobody_waits_for_it_any_more(library: Library) -> None:
    await library.memory.store("a", "the walrus sleeps")
    go_on = threading.Event()
    busy = asyncio.ensure_future(library.db.write(lambda _connection: go_on.wait(60)))
    storing = asyncio.ensure_future(library.memory.store("b", "the walrus eats"))
    await asyncio.sleep(0)  # both have begun
    storing.cancel()
    with suppress(asyncio.CancelledError):
        await storing
    assert len(await told(library.memory, "walrus")) == 1
    go_on.set()
    await busy
    await library.db.settled()
    assert len(await told(library.memory, "walrus")) == 2


def test_an_answer_that_was_looked_up_before_something_was_written_is_not_kept() -> None:
    lately = Lately()
    before = lately.turns
    lately.turn()
    lately.keep("what?", None, before, "an old answer", frozenset())
    assert lately.get("what?", None) is None
    lately.keep("what?", None, lately.turns, "a new answer", frozenset())
    assert lately.get("what?", None) == "a new answer"


def test_a_run_whose_own_texts_were_weighed_for_an_answer_is_given_another_one() -> None:
    lately = Lately()
    lately.keep("what?", "01A", lately.turns, "of all but 01A", {"01A", "01B"})
    assert lately.get("what?", "01C") is None
    lately.keep("what?", "01C", lately.turns, "of all", {"01A", "01B"})
    assert [lately.get("what?", run) for run in (None, "01A", "01C")] == ["of all", None, "of all"]


def test_of_many_questions_the_last_ones_are_kept() -> None:
    lately = Lately()
    for number in range(1_000):
        lately.keep(number, None, lately.turns, f"answer {number}", frozenset())
        assert lately.get(0, None) == "answer 0"
    known = [number for number in range(1_000) if lately.get(number, None) is not None]
    assert known == [0, *range(1_000 - len(known) + 1, 1_000)]


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
