"""Recall by embeddings, which may fail at any time without affecting recall."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

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
    async with FakeEmbeddings() as fake_server:
        yield fake_server


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
async def embedding_library(
    library: Library, server: FakeEmbeddings, time: Time
) -> AsyncIterator[Library]:
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
async def test_a_text_without_a_shared_word_is_found_by_embedding(
    embedding_library: Library,
) -> None:
    await some(embedding_library)
    assert await embedding_library.find_texts("whose vehicle?", 1) == [
        "The automobile is in the garage."
    ]
    assert await embedding_library.find_texts("doctor", 1) == ["The physician is called Weber"]
    assert await embedding_library.find_texts("哪里有 汽车 ?", 1) == [
        "The automobile is in the garage."
    ]
    hit, *_ = await embedding_library.memory.search("vehicle", 1)
    assert hit.reasons["meaning"] > 0


@by_meaning
async def test_shared_words_rank_above_shared_meaning(embedding_library: Library) -> None:
    await embedding_library.run(
        "01A",
        "The walrus ate the vehicle manual.",
        "An automobile.",
        *(f"filler {n}" for n in range(20)),
    )
    await backfill(embedding_library)
    assert await embedding_library.find_texts("vehicle manual of the walrus", 1) == [
        "The walrus ate the vehicle manual."
    ]


@by_meaning
async def test_texts_are_embedded_in_the_background_newest_first_and_once(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    for n in range(50):
        await embedding_library.run(f"01{n}", f"text number {n}", routine=f"r{n}")
    assert server.requests == 0  # never in the write path
    await backfill(embedding_library)
    assert len(server.texts) == 50
    assert server.texts[0] == "text number 49"
    await backfill(embedding_library)
    assert len(server.texts) == 50
    await embedding_library.run("02", "one more")
    await backfill(embedding_library)
    assert server.texts[50:] == ["one more"]
    assert server.keys == ["key-of-the-test"] * len(server.keys)


@by_meaning
async def test_vectors_survive_a_restart_and_are_rebuilt_for_another_model(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    await some(embedding_library)
    before = len(server.texts)
    again = EmbeddingIndex(
        OpenAICompatible(base_url=f"{server.url}/v1", model="m"), query_timeout=BUSY
    )
    await again.backfill(embedding_library.memory.memory_store)
    assert len(server.texts) == before
    assert await again.embed_query("car", embedding_library.memory.memory_store) is not None
    other_index = EmbeddingIndex(OpenAICompatible(base_url=f"{server.url}/v1", model="other"))
    await other_index.backfill(embedding_library.memory.memory_store)
    assert sorted(server.texts[-before:]) == sorted(server.texts[:before])
    for index in (again, other_index):
        await index.close()


@by_meaning
async def test_changed_items_are_embedded_again_and_removed_texts_leave_no_vector(
    embedding_library: Library,
) -> None:
    await some(embedding_library)
    await embedding_library.memory.store("house:physician", "The hound is called Rex")
    # its old meaning is gone at once
    assert await embedding_library.find_texts("dog", 1) != ["The hound is called Rex"]
    await backfill(embedding_library)
    assert "The hound is called Rex" in await embedding_library.find_texts("dog", 2)
    await embedding_library.memory.delete_item("house:physician")
    await embedding_library.run("01A", "nothing left")
    await backfill(embedding_library)
    count = await embedding_library.db.read(
        lambda connection: connection.execute("SELECT count(*) FROM memory_embedding").fetchone()
    )
    assert count == (1,)
    assert len(await embedding_library.find_texts("dog")) <= 1


@pytest.mark.parametrize("mode", ["error", "nonsense", "reset"])
async def test_a_failing_embedder_is_paused(
    embedding_library: Library, server: FakeEmbeddings, time: Time, mode: str
) -> None:
    await some(embedding_library)
    server.mode, before = mode, server.requests
    for _ in range(5):
        # words alone
        assert await embedding_library.find_texts("the automobile", 1) == [
            "The automobile is in the garage."
        ]
    assert server.requests == before + 1
    assert meaning(embedding_library).fault
    assert "key-of-the-test" not in str(meaning(embedding_library).fault)
    time.now += PAUSE + 1
    assert await embedding_library.find_texts("automobile", 1) != []
    assert server.requests == before + 2
    time.now += PAUSE + 1
    await embedding_library.find_texts("automobile", 1)
    assert server.requests == before + 2  # twice as long now
    server.mode = "ok"
    time.now += LONGEST_PAUSE
    assert await embedding_library.find_texts("vehicle", 1) == ["The automobile is in the garage."]
    assert meaning(embedding_library).fault is None


@pytest.mark.parametrize("refusal", ["400 Bad Request", "500 Internal Server Error"])
async def test_a_text_that_is_too_long_for_the_model_keeps_no_other_from_being_found(
    embedding_library: Library, server: FakeEmbeddings, refusal: str
) -> None:
    server.max_characters, server.refusal = 100, refusal
    await embedding_library.run("01A", "The automobile is in the garage.", "walrus " * 20)
    await embedding_library.memory.store("long", "otter " * 20)
    await embedding_library.memory.store("house:physician", "The physician is called Weber")
    await backfill(embedding_library)
    assert await embedding_library.find_texts("vehicle", 1) == ["The automobile is in the garage."]
    assert await embedding_library.find_texts("doctor", 1) == ["The physician is called Weber"]
    requests = server.requests
    await backfill(embedding_library)
    assert server.requests == requests, "what was refused is not asked for again"
    await embedding_library.memory.store("long", "The puppy is called Rex")
    await backfill(embedding_library)
    assert await embedding_library.find_texts("hound", 1) == ["The puppy is called Rex"]
    assert meaning(embedding_library).fault is None


async def test_a_text_that_is_too_long_for_the_model_is_found_by_its_beginning(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    server.max_characters = 500
    text = f"The automobile is in the garage. {'w' * 600}"
    await embedding_library.run("01A", text)
    await backfill(embedding_library)
    assert await embedding_library.find_texts("vehicle", 1) == [text]


async def test_refused_texts_are_logged_in_one_line(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    server.max_characters = 100
    await embedding_library.run("01A", "walrus " * 20, "otter " * 20, "The puppy sleeps.")
    with capture_logs() as logs:
        await backfill(embedding_library)
    lines = [line for line in logs if line["event"] == "memory.texts_not_embedded"]
    assert [line["texts"] for line in lines] == [2]


async def test_a_question_that_is_too_long_for_the_model_does_not_pause_the_embedder(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    await some(embedding_library)
    server.max_characters = 100
    await embedding_library.find_texts("walrus " * 20)
    assert meaning(embedding_library).seconds_paused == 0
    assert await embedding_library.find_texts("vehicle", 1) == ["The automobile is in the garage."]


@by_meaning
async def test_a_hanging_embedder_delays_only_a_few_questions(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    await some(embedding_library)
    server.mode, before = "hang", server.requests
    meaning(embedding_library).query_timeout = QUERY_TIMEOUT
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(20):
        assert await embedding_library.find_texts("automobile", 1) == [
            "The automobile is in the garage."
        ]
    assert server.requests == before + MAX_TIMEOUTS
    assert loop.time() - begin < 60  # where a server that hangs is waited for, it is for ever


async def test_recall_works_without_the_embedding_server_and_uses_it_after_its_return(
    embedding_library: Library, server: FakeEmbeddings, time: Time
) -> None:
    await some(embedding_library)
    await server.close()
    await embedding_library.run("02", "The hound barks.")
    with pytest.raises(EmbedderFailed):
        await backfill(embedding_library)
    assert await embedding_library.find_texts("automobile", 1) == [
        "The automobile is in the garage."
    ]
    await server.open()
    time.now += PAUSE + 1
    await backfill(embedding_library)
    assert "The hound barks." in await embedding_library.find_texts("dog", 2)


@by_meaning
async def test_memory_maintenance_embeds_new_texts(
    embedding_library: Library, server: FakeEmbeddings
) -> None:
    keeping = asyncio.create_task(
        MemoryMaintenance(embedding_library.memory, clock=embedding_library.clock.now).run()
    )
    await embedding_library.run("01A", "The automobile is in the garage.")
    await server.until_asked(1)
    await embedding_library.memory.store("dog", "The hound is called Rex")
    await server.until_asked(2)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert server.texts == ["The automobile is in the garage.", "dog: The hound is called Rex"]


async def test_a_refused_embedder_key_is_reported_without_the_key(server: FakeEmbeddings) -> None:
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


class TakesProbeOnly(Embedder):
    """An embedder that takes the probe and fails at every other text."""

    name = "takes-probe-only"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if texts == ["text"]:
            return [[1.0]]
        if len(texts) > 1:
            raise EmbedderFailed("refused", status=500)
        raise EmbedderFailed("away", status=503)


async def test_a_failing_embedder_that_takes_the_probe_is_paused_longer_each_time(
    library: Library, time: Time
) -> None:
    await library.run("01A", "The puppy sleeps.", "It was chilly at night.")
    embedding_index = EmbeddingIndex(TakesProbeOnly(), now=time)
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        with pytest.raises(EmbedderFailed):
            await embedding_index.backfill(library.memory.memory_store)
        assert embedding_index.seconds_paused == pause
        time.now += pause


@pytest.mark.parametrize(
    "answer", [[], [[]], [[0.0, 0.0]], [[math.nan, 1.0]], [[math.inf]], [[1.0], [1.0]]]
)
async def test_an_invalid_embedding_is_a_failure(
    library: Library, answer: list[list[float]]
) -> None:
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
    assert await library.find_texts("some text", 1) == ["some text"]


def test_the_nearest_vectors_by_sign_include_the_nearest_vectors() -> None:
    chance = random.Random(7)
    texts = {
        n: vectors.scale_to_unit([chance.gauss(0, 1) for _ in range(384)]) for n in range(2_000)
    }
    question = vectors.scale_to_unit([a + 0.8 * chance.gauss(0, 0.05) for a in texts[1234]])
    query_embedding = vectors.QueryEmbedding(
        "m", question, {n: vectors.signs(vector) for n, vector in texts.items()}
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE memory_embedding (model TEXT, id INTEGER)")
        connection.executemany("INSERT INTO memory_embedding VALUES ('m', ?)", zip(texts))
        near = vectors.nearest(connection, query_embedding)
        # the signs of texts that were deleted since are still there
        connection.execute("DELETE FROM memory_embedding WHERE id <> 7")
        assert vectors.nearest(connection, query_embedding) == [7]
    assert len(near) == vectors.MAX_NEAREST
    best = sorted(
        texts, key=lambda n: -sum(a * b for a, b in zip(question, texts[n], strict=True))
    )[:10]
    assert near[0] == best[0] == 1234
    assert len(set(best) & set(near)) >= 8


def test_a_packed_vector_keeps_its_direction() -> None:
    vector = vectors.scale_to_unit([3.0, -4.0, 0.001, 12.0])
    vector_again = vectors.unpack(vectors.pack(vector))
    assert sum(a * b for a, b in zip(vector, vector_again, strict=True)) == pytest.approx(
        1.0, abs=1e-3
    )


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
    for side in (library, alone):
        side.memory.embedding_index = EmbeddingIndex(Drawn(size))
        for n in range(30):
            await side.run(
                f"01{n:02}",
                f"the walrus number {n} sleeps",
                f"a fish called {n * n}",
                routine=f"r{n}",
            )
        await side.memory.store("house", "a walrus lives here")
        await side.memory.embedding_index.backfill(side.memory.memory_store)
    for question in (
        "where is the walrus?",
        "fish",
        "number 7",
        "nothing of all this",
        "a fish called 49",
    ):
        here, there = [await side.memory.search(question, 10) for side in (alone, library)]
        assert [hit.text.text for hit in here] == [hit.text.text for hit in there]
        assert [hit.relevance for hit in here] == pytest.approx(
            [hit.relevance for hit in there], abs=1e-3
        )
        assert [dict(hit.reasons) for hit in here] == [
            pytest.approx(dict(hit.reasons), abs=1e-3) for hit in there
        ]
    await alone.db.close()


@by_meaning
async def test_closest_text_is_found_among_a_thousand(library: Library) -> None:
    library.memory.embedding_index = meaning = EmbeddingIndex(Drawn())
    for n in range(20):
        await library.run(f"01{n:02}", *(f"w{n}x{m}" for m in range(50)), routine=f"r{n}")
    await meaning.backfill(library.memory.memory_store)
    query_embedding = vectors.QueryEmbedding(
        "drawn", vectors.scale_to_unit(vector(random.Random("w7x7"))), None
    )
    query_vector = await meaning.embed_query("w7x7", library.memory.memory_store)
    assert query_vector
    assert query_vector.vector == pytest.approx(query_embedding.vector)
    near = await library.db.read(lambda connection: vectors.nearest(connection, query_vector))
    assert len(near) == vectors.MAX_NEAREST
    cosines = await library.db.read(
        lambda connection: vectors.cosines(connection, query_vector, near)
    )
    assert max(cosines, key=lambda id_: cosines[id_]) == near[0]
    assert cosines[near[0]] == pytest.approx(1.0, abs=1e-3)


on_a_server = pytest.mark.parametrize("library", ["postgresql", "pgvector"], indirect=True)


@on_a_server
async def test_processes_share_embeddings(
    embedding_library: Library, server: FakeEmbeddings, tmp_path: Path
) -> None:
    other_path = Library(
        await open_database(tmp_path / "other.db", getattr(embedding_library.db, "url", "")),
        embedding_library.clock,
    )
    embedder = OpenAICompatible(base_url=f"{server.url}/v1", model="m", api_key="key-of-the-test")
    other_path.memory = Memory(
        other_path.db,
        clock=other_path.clock.now,
        embedding_index=EmbeddingIndex(embedder, query_timeout=BUSY),
    )
    await other_path.memory.open()
    await meaning(other_path).load(other_path.memory.memory_store)  # nothing yet
    assert await other_path.find_texts("vehicle", 1) == []
    await some(embedding_library)
    assert await other_path.find_texts("whose vehicle?", 1) == ["The automobile is in the garage."]
    await embedding_library.memory.store("house:physician", "The hound is called Rex")
    await backfill(embedding_library)
    assert "The hound is called Rex" in await other_path.find_texts("dog", 2)
    await embedding_library.memory.delete_item("house:physician")
    assert "The hound is called Rex" not in await other_path.find_texts("dog", 2)
    assert (await other_path.memory.stats())["embedder"]["known"] == 3
    await other_path.memory.close()
    await other_path.db.close()


@pytest.mark.parametrize("library", ["pgvector"], indirect=True)
async def test_pgvector_uses_earlier_embeddings_and_recall_works_without_pgvector(
    embedding_library: Library,
) -> None:
    await some(embedding_library)
    embedder = (await embedding_library.memory.stats())["embedder"]
    assert (embedder["known"], embedder["compared"]) == (4, "by the server")

    async def do(*statements: str) -> None:
        await embedding_library.db.write(
            lambda connection: [connection.control(statement) for statement in statements]
        )  # type: ignore[attr-defined]

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
    assert await embedding_library.find_texts("whose vehicle?", 1) == [
        "The automobile is in the garage."
    ]
    assert (await embedding_library.memory.stats())["embedder"]["compared"] == "here"
    await embedding_library.memory.store("house:dog", "The hound is called Rex")
    await backfill(embedding_library)
    assert "The hound is called Rex" in await embedding_library.find_texts("dog", 2)

    await do("DROP EVENT TRIGGER no", "DROP FUNCTION no")
    await meaning(embedding_library).load(embedding_library.memory.memory_store)
    assert (await embedding_library.memory.stats())["embedder"]["compared"] == "by the server"
    assert await embedding_library.find_texts("whose vehicle?", 1) == [
        "The automobile is in the garage."
    ]
    assert "The hound is called Rex" in await embedding_library.find_texts("dog", 2)
    rows = await embedding_library.db.read(
        lambda connection: connection.execute("SELECT count(*) FROM memory_meaning").fetchone()
    )
    assert rows == (5,)
