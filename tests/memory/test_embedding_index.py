"""Finding by meaning: a help that may fail at any time, and that nobody waits for."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from daemon.memory import vectors
from daemon.memory.embedders.base import Embedder, EmbedderFailed
from daemon.memory.embedders.openai_compatible import OpenAICompatible
from daemon.memory.embedding_index import (
    LONGEST_PAUSE,
    MAX_TIMEOUTS,
    PAUSE,
    QUERY_TIMEOUT,
    EmbeddingIndex,
)
from daemon.memory.maintenance import MemoryMaintenance
from daemon.memory.memory import Memory
from daemon.store.opening import open_database
from tests.fakes.embeddings import FakeEmbeddings
from tests.memory.conftest import Library, by_meaning

# seconds: a question waits that long for a server which answers, however busy the machine is
BUSY = 30.0


@pytest.fixture
async def server() -> AsyncIterator[FakeEmbeddings]:
    async with FakeEmbeddings() as running:
        yield running


class Time:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def meant(library: Library, server: FakeEmbeddings, time: Time) -> AsyncIterator[Library]:
    """A library with an embedder."""
    embedder = OpenAICompatible(base_url=f"{server.url}/v1", model="m", api_key="key-of-the-test")
    library.memory = Memory(
        library.db,
        clock=library.clock.now,
        embedding_index=EmbeddingIndex(embedder, query_timeout=BUSY, now=time),
    )
    yield library
    await library.memory.close()


def meaning(library: Library) -> EmbeddingIndex:
    assert library.memory.embedding_index
    return library.memory.embedding_index


async def backfill(library: Library) -> None:
    await meaning(library).backfill(library.memory.memory_store)


async def some(library: Library) -> None:
    await library.run(
        "01A", "The automobile is in the garage.", "The puppy sleeps.", "It was chilly at night."
    )
    await library.memory.store("house:physician", "The physician is called Weber")
    await backfill(library)


@by_meaning
async def test_a_text_is_found_by_its_meaning_where_no_word_is_shared(meant: Library) -> None:
    await some(meant)
    assert await meant.found("whose vehicle?", 1) == ["The automobile is in the garage."]
    assert await meant.found("doctor", 1) == ["The physician is called Weber"]
    assert await meant.found("哪里有 汽车 ?", 1) == ["The automobile is in the garage."]
    hit, *_ = await meant.memory.search("vehicle", 1)
    assert hit.reasons["meaning"] > 0


@by_meaning
async def test_shared_words_rank_above_shared_meaning(meant: Library) -> None:
    await meant.run(
        "01A",
        "The walrus ate the vehicle manual.",
        "An automobile.",
        *(f"filler {n}" for n in range(20)),
    )
    await backfill(meant)
    assert await meant.found("vehicle manual of the walrus", 1) == [
        "The walrus ate the vehicle manual."
    ]


@by_meaning
async def test_texts_are_embedded_in_the_background_newest_first_and_once(
    meant: Library, server: FakeEmbeddings
) -> None:
    for n in range(50):
        await meant.run(f"01{n}", f"text number {n}", routine=f"r{n}")
    assert server.requests == 0  # never in the write path
    await backfill(meant)
    assert len(server.asked) == 50
    assert server.asked[0] == "text number 49"
    await backfill(meant)
    assert len(server.asked) == 50
    await meant.run("02", "one more")
    await backfill(meant)
    assert server.asked[50:] == ["one more"]
    assert server.keys == ["key-of-the-test"] * len(server.keys)


@by_meaning
async def test_vectors_survive_a_restart_and_are_rebuilt_for_another_model(
    meant: Library, server: FakeEmbeddings
) -> None:
    await some(meant)
    before = len(server.asked)
    again = EmbeddingIndex(
        OpenAICompatible(base_url=f"{server.url}/v1", model="m"), query_timeout=BUSY
    )
    await again.backfill(meant.memory.memory_store)
    assert len(server.asked) == before
    assert await again.embed_query("car", meant.memory.memory_store) is not None
    other = EmbeddingIndex(OpenAICompatible(base_url=f"{server.url}/v1", model="other"))
    await other.backfill(meant.memory.memory_store)
    assert sorted(server.asked[-before:]) == sorted(server.asked[:before])
    for each in (again, other):
        await each.close()


@by_meaning
async def test_what_changes_is_embedded_anew_and_what_goes_leaves_no_vector(meant: Library) -> None:
    await some(meant)
    await meant.memory.store("house:physician", "The hound is called Rex")
    assert await meant.found("dog", 1) != [
        "The hound is called Rex"
    ]  # its old meaning is gone at once
    await backfill(meant)
    assert "The hound is called Rex" in await meant.found("dog", 2)
    await meant.memory.forget("house:physician")
    await meant.run("01A", "nothing left")
    await backfill(meant)
    count = await meant.db.read(
        lambda each: each.execute("SELECT count(*) FROM memory_embedding").fetchone()
    )
    assert count == (1,)
    assert len(await meant.found("dog")) <= 1


@pytest.mark.parametrize("mode", ["error", "nonsense", "reset"])
async def test_an_embedder_that_fails_is_left_alone_for_a_while(
    meant: Library, server: FakeEmbeddings, time: Time, mode: str
) -> None:
    await some(meant)
    server.mode, before = mode, server.requests
    for _ in range(5):
        assert await meant.found("the automobile", 1) == [
            "The automobile is in the garage."
        ]  # words alone
    assert server.requests == before + 1
    assert meaning(meant).fault
    assert "key-of-the-test" not in str(meaning(meant).fault)
    time.now += PAUSE + 1
    assert await meant.found("automobile", 1) != []
    assert server.requests == before + 2
    time.now += PAUSE + 1
    await meant.found("automobile", 1)
    assert server.requests == before + 2  # twice as long now
    server.mode = "ok"
    time.now += LONGEST_PAUSE
    assert await meant.found("vehicle", 1) == ["The automobile is in the garage."]
    assert meaning(meant).fault is None


@by_meaning
async def test_an_embedder_that_does_not_answer_delays_a_few_questions_a_little_and_then_none(
    meant: Library, server: FakeEmbeddings
) -> None:
    await some(meant)
    server.mode, before = "hang", server.requests
    meaning(meant).query_timeout = QUERY_TIMEOUT
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(20):
        assert await meant.found("automobile", 1) == ["The automobile is in the garage."]
    assert server.requests == before + MAX_TIMEOUTS
    assert loop.time() - begin < 60  # where a server that hangs is waited for, it is for ever


async def test_a_server_that_is_gone_is_no_reason_to_fail_and_its_return_is_noticed(
    meant: Library, server: FakeEmbeddings, time: Time
) -> None:
    await some(meant)
    await server.close()
    await meant.run("02", "The hound barks.")
    with pytest.raises(EmbedderFailed):
        await backfill(meant)
    assert await meant.found("automobile", 1) == ["The automobile is in the garage."]
    await server.open()
    time.now += PAUSE + 1
    await backfill(meant)
    assert "The hound barks." in await meant.found("dog", 2)


@by_meaning
async def test_the_keeper_embeds_what_comes_in(meant: Library, server: FakeEmbeddings) -> None:
    keeping = asyncio.create_task(MemoryMaintenance(meant.memory, clock=meant.clock.now).run())
    await meant.run("01A", "The automobile is in the garage.")
    await server.until_asked(1)
    await meant.memory.store("dog", "The hound is called Rex")
    await server.until_asked(2)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert server.asked == ["The automobile is in the garage.", "dog: The hound is called Rex"]


async def test_a_wrong_key_is_said_without_the_key(server: FakeEmbeddings) -> None:
    embedder = OpenAICompatible(base_url=f"{server.url}/v1/", model="m", api_key="wrong")
    with pytest.raises(
        EmbedderFailed, match=r"/v1/embeddings answered 401: .*not with \[redacted\]"
    ):
        await embedder.embed(["text"])
    await embedder.close()


class Odd(Embedder):
    """An embedder that answers as it likes."""

    name = "odd"

    def __init__(self, *answers: list[list[float]]) -> None:
        self.answers = list(answers)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return self.answers.pop(0)


@pytest.mark.parametrize(
    "answer", [[], [[]], [[0.0, 0.0]], [[math.nan, 1.0]], [[math.inf]], [[1.0], [1.0]]]
)
async def test_a_useless_answer_is_a_failure(library: Library, answer: list[list[float]]) -> None:
    await library.run("01A", "text")
    odd = EmbeddingIndex(Odd(answer))
    with pytest.raises(EmbedderFailed):
        await odd.backfill(library.memory.memory_store)
    assert odd.seconds_paused > 0


@by_meaning
async def test_vectors_of_another_length_are_not_compared(library: Library) -> None:
    await library.run("01A", "some text")
    library.memory.embedding_index = EmbeddingIndex(Odd([[1.0, 0.0]], [[1.0, 0.0, 0.0]]))
    await library.memory.embedding_index.backfill(library.memory.memory_store)
    assert await library.found("some text", 1) == ["some text"]


def test_the_nearest_by_signs_hold_the_nearest_of_all() -> None:
    chance = random.Random(7)
    texts = {n: vectors.unit([chance.gauss(0, 1) for _ in range(384)]) for n in range(2_000)}
    question = vectors.unit([a + 0.8 * chance.gauss(0, 0.05) for a in texts[1234]])
    meant = vectors.QueryEmbedding(
        "m", question, {n: vectors.signs(vector) for n, vector in texts.items()}
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        near = vectors.nearest(connection, meant)
    assert len(near) == vectors.MAX_NEAREST
    best = sorted(
        texts, key=lambda n: -sum(a * b for a, b in zip(question, texts[n], strict=True))
    )[:10]
    assert near[0] == best[0] == 1234
    assert len(set(best) & set(near)) >= 8


def test_a_vector_keeps_its_direction_in_a_row() -> None:
    vector = vectors.unit([3.0, -4.0, 0.001, 12.0])
    kept = vectors.unpack(vectors.pack(vector))
    assert sum(a * b for a, b in zip(vector, kept, strict=True)) == pytest.approx(1.0, abs=1e-3)


def vector(chance: random.Random, size: int = 16) -> list[float]:
    return [chance.gauss(0, 1) for _ in range(size)]


class Drawn(Embedder):
    """An embedder to whom a text means what a lot says that the text itself draws."""

    name = "drawn"

    def __init__(self, size: int = 16) -> None:
        self.size = size

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [vector(random.Random(text.rpartition(": ")[2]), self.size) for text in texts]


@by_meaning
@pytest.mark.parametrize("size", [16, 2_500])
async def test_hits_and_order_are_equal_for_every_comparison_backend(
    library: Library, tmp_path: Path, size: int
) -> None:
    alone = Library(await open_database(tmp_path / "alone.db", ""), library.clock)
    await alone.memory.open()
    for each in (library, alone):
        each.memory.embedding_index = EmbeddingIndex(Drawn(size))
        for n in range(30):
            await each.run(
                f"01{n:02}",
                f"the walrus number {n} sleeps",
                f"a fish called {n * n}",
                routine=f"r{n}",
            )
        await each.memory.store("house", "a walrus lives here")
        await each.memory.embedding_index.backfill(each.memory.memory_store)
    for question in (
        "where is the walrus?",
        "fish",
        "number 7",
        "nothing of all this",
        "a fish called 49",
    ):
        here, there = [await each.memory.search(question, 10) for each in (alone, library)]
        assert [hit.text.text for hit in here] == [hit.text.text for hit in there]
        assert [hit.relevance for hit in here] == pytest.approx(
            [hit.relevance for hit in there], abs=1e-3
        )
        assert [dict(hit.reasons) for hit in here] == [
            pytest.approx(dict(hit.reasons), abs=1e-3) for hit in there
        ]
    await alone.db.close()


@by_meaning
async def test_closest_text_is_found_among_thousands(library: Library) -> None:
    library.memory.embedding_index = meaning = EmbeddingIndex(Drawn())
    for n in range(60):
        await library.run(f"01{n:02}", *(f"w{n}x{m}" for m in range(50)), routine=f"r{n}")
    await meaning.backfill(library.memory.memory_store)
    meant = vectors.QueryEmbedding("drawn", vectors.unit(vector(random.Random("w7x7"))), None)
    asked = await meaning.embed_query("w7x7", library.memory.memory_store)
    assert asked
    assert asked.vector == pytest.approx(meant.vector)
    near = await library.db.read(lambda connection: vectors.nearest(connection, asked))
    assert len(near) == vectors.MAX_NEAREST
    cosines = await library.db.read(lambda connection: vectors.cosines(connection, asked, near))
    assert max(cosines, key=lambda id_: cosines[id_]) == near[0]
    assert cosines[near[0]] == pytest.approx(1.0, abs=1e-3)


on_a_server = pytest.mark.parametrize("library", ["postgresql", "pgvector"], indirect=True)


@on_a_server
async def test_what_one_process_embeds_another_finds_by_its_meaning(
    meant: Library, server: FakeEmbeddings, tmp_path: Path
) -> None:
    other = Library(
        await open_database(tmp_path / "other.db", getattr(meant.db, "url", "")), meant.clock
    )
    embedder = OpenAICompatible(base_url=f"{server.url}/v1", model="m", api_key="key-of-the-test")
    other.memory = Memory(
        other.db,
        clock=other.clock.now,
        embedding_index=EmbeddingIndex(embedder, query_timeout=BUSY),
    )
    await other.memory.open()
    await meaning(other).load(other.memory.memory_store)  # nothing yet
    assert await other.found("vehicle", 1) == []
    await some(meant)
    assert await other.found("whose vehicle?", 1) == ["The automobile is in the garage."]
    await meant.memory.store("house:physician", "The hound is called Rex")
    await backfill(meant)
    assert "The hound is called Rex" in await other.found("dog", 2)
    await meant.memory.forget("house:physician")
    assert "The hound is called Rex" not in await other.found("dog", 2)
    assert (await other.memory.stats())["embedder"]["known"] == 3
    await other.memory.close()
    await other.db.close()


@pytest.mark.parametrize("library", ["pgvector"], indirect=True)
async def test_a_server_knows_what_was_embedded_before_it_could_compare_and_goes_on_without_when_it_cannot(  # noqa: E501
    meant: Library,
) -> None:
    await some(meant)
    told = (await meant.memory.stats())["embedder"]
    assert (told["known"], told["compared"]) == (4, "by the server")

    async def do(*statements: str) -> None:
        await meant.db.write(lambda connection: [connection.control(each) for each in statements])  # type: ignore[attr-defined]

    await do(
        "DROP TABLE memory_meaning",
        "DROP EXTENSION vector CASCADE",
        "DROP FUNCTION agentd_meaning_changed CASCADE",
    )
    await do(  # as where somebody may not have extensions
        "CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'permission denied to create "
        "extension'; END $$",
        (
            "CREATE EVENT TRIGGER no ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION') EXECUTE "
            "FUNCTION no()"
        ),
    )
    assert await meant.found("whose vehicle?", 1) == ["The automobile is in the garage."]
    assert (await meant.memory.stats())["embedder"]["compared"] == "here"
    await meant.memory.store("house:dog", "The hound is called Rex")
    await backfill(meant)
    assert "The hound is called Rex" in await meant.found("dog", 2)

    await do("DROP EVENT TRIGGER no", "DROP FUNCTION no")
    await meaning(meant).load(meant.memory.memory_store)
    assert (await meant.memory.stats())["embedder"]["compared"] == "by the server"
    assert await meant.found("whose vehicle?", 1) == ["The automobile is in the garage."]
    assert "The hound is called Rex" in await meant.found("dog", 2)
    rows = await meant.db.read(
        lambda each: each.execute("SELECT count(*) FROM memory_meaning").fetchone()
    )
    assert rows == (5,)
