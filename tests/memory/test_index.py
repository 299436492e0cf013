"""The full-text index always equals the tables it is derived from."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.memory import index, rows
from daemon.memory.fulltext.words import WORDS_VERSION
from daemon.store.database import Database
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database
from tests.memory.conftest import START, Library, in_a_file
from tests.properties import scaled_settings


async def contents(library: Library) -> list[tuple[Any, ...]]:
    """Return every word of the index with its place: two indexes with equal contents answer
    alike.
    """

    def work(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
        if library.db.shared:
            return connection.execute(
                "SELECT rowid, CAST(document AS TEXT) FROM memory_fts ORDER BY rowid"
            ).fetchall()
        connection.execute(
            "CREATE VIRTUAL TABLE temp.v USING fts5vocab('main', 'memory_fts', 'instance')"
        )
        rows = connection.execute(
            "SELECT doc, col, offset, term FROM temp.v ORDER BY doc, col, offset"
        ).fetchall()
        connection.execute("DROP TABLE temp.v")
        return rows

    return await library.db.write(work)


async def outdate(library: Library, **state: int) -> None:
    """Pretend that the index was made by another version."""
    value = json.dumps([state.get("version", 0), state.get("low", 0), state.get("high", 0)])
    await library.db.write(
        lambda connection: connection.execute(
            (
                "INSERT INTO meta VALUES ('memory.index', ?) ON CONFLICT (key) DO UPDATE SET value "
                "= excluded.value"
            ),
            (value,),
        )
    )


async def test_rebuilt_index_equals_the_incremental_index(library: Library) -> None:
    for n in range(40):
        await library.run(
            f"01{n}",
            f"run {n} begins",
            "All is well, as ever, on this fine machine.",
            f"run {n} ends",
        )
        await library.memory.store(f"key{n % 7}", f"text {n}")
    grown_contents = await contents(library)
    await outdate(library)
    await library.memory.refresh()
    assert await contents(library) == grown_contents
    assert await library.db.write(index.state) == (WORDS_VERSION, 40, 40, 7, 7)


async def test_a_rebuild_in_parts_includes_concurrent_changes(
    library: Library,
) -> None:
    for n in range(12):
        await library.run(f"01{n}", *(f"run {n} says {m} walruses" for m in range(100)))
    await outdate(library)
    assert not await library.db.write(index.rebuild_some)
    assert 0 < await library.count_index_rows() < 1_200
    await library.run("02", "a badger came in between")
    await library.run("0111", "run 11 was archived anew")
    await library.run("010", "run 0 was archived anew")
    await library.memory.memory_store.write(lambda connection: rows.drop_run(connection, "0110"))
    await library.memory.refresh()
    assert await library.count_index_rows() == 1_200 - 300 + 3
    grown_contents = await contents(library)
    await outdate(library)
    await library.memory.refresh()
    assert await contents(library) == grown_contents


async def test_the_index_of_an_empty_memory_is_up_to_date(library: Library) -> None:
    await library.memory.open()
    assert await library.db.write(index.state) == (WORDS_VERSION, 0, 0, 0, 0)
    assert await library.db.write(index.rebuild_some)


TEXTS = st.text(
    st.one_of(
        st.sampled_from("ab \n.?\"'*():-^的备份失败猫"), st.characters(exclude_categories=())
    ),
    max_size=60,
)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from("kl"), TEXTS),
        st.tuples(st.just("forget"), st.sampled_from("kl")),
        st.tuples(st.just("archive"), st.sampled_from("rst"), st.lists(TEXTS, max_size=4)),
        st.tuples(st.just("drop"), st.sampled_from("rst")),
        st.tuples(st.just("rebuild")),
    ),
    max_size=12,
)


async def make(library: Library, move: tuple[Any, ...]) -> None:
    """Make one of MOVES, but for a rebuild: there are several ways to come to one."""
    library.clock.advance(minutes=1)
    match move:
        case ("store", key, text):
            if text.strip():
                await library.memory.store(key, text)
        case ("forget", key):
            await library.memory.delete_item(key)
        case ("archive", run, texts):
            await library.run(run, *texts)
        case ("drop", run):
            await library.memory.memory_store.write(partial(rows.drop_run, run=run))


@scaled_settings(60)
@given(MOVES)
def test_index_equals_a_rebuild_after_any_operations(
    moves: list[tuple[Any, ...]],
) -> None:
    async def story(library: Library) -> None:
        for move in moves:
            await make(library, move)
            if move == ("rebuild",):
                await outdate(library)
                await library.memory.refresh()
        await library.count_index_rows()
        grown_contents = await contents(library)
        await outdate(library)
        await library.memory.refresh()
        assert grown_contents == await contents(library)

    in_a_library(story)


WORDS = st.text(st.sampled_from("bcdfgklmnprtvwz"), min_size=4, max_size=9).filter(
    lambda word: len(set(word)) > 1
)


@scaled_settings(60)
@given(
    st.lists(st.lists(WORDS, min_size=2, max_size=5, unique=True), min_size=1, max_size=8),
    st.data(),
)
def test_every_stored_text_is_found_by_its_own_words(
    texts: list[list[str]], data: st.DataObject
) -> None:
    async def story(library: Library) -> None:
        for n, text in enumerate(texts):
            await library.memory.store(f"item {n}", f"about zq{n}zq and {' '.join(text)}")
        removed_numbers = data.draw(st.sets(st.integers(0, len(texts) - 1)))
        for n in removed_numbers:
            await library.memory.delete_item(f"item {n}")
        for n, text in enumerate(texts):
            question = f'tell me "of" zq{n}zq AND ({text[0]}*'
            keys = [chunk.key for chunk in await library.memory.retrieve(question)]
            assert (f"item {n}" in keys) == (n not in removed_numbers)
            if n not in removed_numbers:
                assert keys[0] == f"item {n}"

    in_a_library(story)


@scaled_settings(100)
@given(
    st.lists(st.text(st.characters(exclude_categories=()), max_size=80), min_size=20, max_size=20)
)
def test_any_question_can_be_searched(questions: list[str]) -> None:
    async def story(library: Library) -> None:
        await library.run("r", "some text", "另一段文字", *questions[:5])
        for question in questions:
            await library.memory.retrieve(question)
            await library.memory.excerpt(question)

    in_a_library(story)


def in_a_library(story: Any) -> None:
    """Tell a story in a library of its own: hypothesis shares no fixture between examples."""

    async def tell(folder: Path) -> None:
        database = await Database.open(copy_empty_database(folder / "agentd.db"))
        try:
            await story(Library(database, FakeClock(START + timedelta(0))))
        finally:
            await database.close()

    with tempfile.TemporaryDirectory() as folder:
        work: Coroutine[Any, Any, None] = tell(Path(folder))
        asyncio.run(work)


@in_a_file
async def test_an_index_grown_in_small_writes_has_few_segments(
    library: Library,
) -> None:
    for number in range(60):
        await library.memory.store(f"item:{number}", f"The walrus of house {number} weighs a ton.")
        await library.run(f"r{number}", f"Today the gulls of harbour {number} were counted.")
    count = "SELECT count(DISTINCT segid) FROM memory_fts_idx"
    (parts,) = await library.db.read(lambda connection: connection.execute(count).fetchone())
    assert parts <= 12  # by itself it lets sixteen of each size come together
    assert await library.memory.memory_store.examine() == []
    assert len(await library.memory.retrieve("walrus", limit=60)) == 60
