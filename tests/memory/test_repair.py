"""Bad luck and bad input: a clear answer each, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from daemon.errors import ConfigError, Refused, StateBusy, StoreFull
from daemon.memory import index
from daemon.memory.fulltext import fts5
from daemon.memory.memory import MAX_ITEM_CHARACTERS, Memory
from daemon.store.database import MIGRATIONS, Database
from daemon.store.lock import lock_state
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database
from tests.memory.conftest import Library


@pytest.fixture
async def library(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Library]:
    """In a file alone, which can be damaged; a server looks after its own."""
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    library = Library(database, clock)
    await library.memory.open()
    yield library
    await database.close()


async def fill(library: Library) -> None:
    for n in range(30):
        await library.run(
            f"01{n}",
            f"run {n} begins",
            "All is well, as ever, on this fine machine.",
            f"walrus {n} ends",
        )
        await library.memory.store(f"key{n}", f"text {n} about badgers")


def scribble_blocks(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE memory_fts_data SET block = zeroblob(length(block)) WHERE id > 10")


def scribble_structure(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE memory_fts_data SET block = x'ffffffffffffffff' WHERE id = 10")


def forget_texts(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO memory_fts (memory_fts) VALUES ('delete-all')")


def lose_a_table(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE memory_fts_data")


def lose_the_config(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE memory_fts_config")


def lose_all(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE memory_fts")


def cut_structure(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE memory_fts_data SET block = substr(block, 1, 5) WHERE id = 10")


def lose_the_places(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE memory_fts_idx")


def empty_averages(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE memory_fts_data SET block = x'00000000000000' WHERE id = 1")


def falsify_averages(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE memory_fts_data SET block = x'03050505050505' WHERE id = 1")


def scribble_progress(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE meta SET value = '7' WHERE key = 'memory.index'")


DAMAGES = (
    scribble_structure,
    cut_structure,
    lose_a_table,
    lose_the_places,
    lose_the_config,
    lose_all,
)


async def damage_and_open(
    library: Library, damage: Callable[[sqlite3.Connection], None]
) -> Library:
    """Return the library opened again on a file that was damaged meanwhile."""
    await library.db.close()
    connection = sqlite3.connect(library.db.path)
    damage(connection)
    connection.commit()
    connection.close()
    new_library = Library(await Database.open(library.db.path), library.clock)
    await new_library.memory.open()
    return new_library


@pytest.mark.parametrize("damage", [*DAMAGES, empty_averages, scribble_progress])
async def test_a_search_rebuilds_a_damaged_index(
    library: Library, damage: Callable[..., None]
) -> None:
    await fill(library)
    new_library = await damage_and_open(library, damage)
    assert await new_library.find_texts("walrus 17", 1) == ["walrus 17 ends"]
    assert await new_library.find_texts("badgers in text 3", 1) == ["text 3 about badgers"]
    await new_library.memory.refresh()
    assert await new_library.db.write(index.find_faults) == []
    await new_library.db.close()


@pytest.mark.parametrize("damage", [*DAMAGES, scribble_progress])
async def test_a_write_rebuilds_a_damaged_index(
    library: Library, damage: Callable[..., None]
) -> None:
    await fill(library)
    new_library = await damage_and_open(library, damage)
    await asyncio.gather(
        new_library.memory.store("new", "a quokka came in"),
        new_library.run("02", "an ibex came in"),
        new_library.memory.delete_item("key3"),
    )
    assert await new_library.find_texts("quokka") == ["a quokka came in"]
    assert await new_library.find_texts("ibex", 1) == ["an ibex came in"]
    await new_library.memory.refresh()
    assert await new_library.db.write(index.find_faults) == []
    await new_library.db.close()


@pytest.mark.parametrize(
    "damage", [*DAMAGES, scribble_blocks, forget_texts, empty_averages, falsify_averages]
)
async def test_the_integrity_check_finds_index_damage_that_no_query_meets(
    library: Library, damage: Callable[..., None]
) -> None:
    await fill(library)
    new_library = await damage_and_open(library, damage)
    assert await new_library.memory.memory_store.examine() != []
    assert await new_library.memory.memory_store.examine() == []
    assert await new_library.find_texts("walrus 17", 1) == ["walrus 17 ends"]
    await new_library.memory.refresh()
    assert await new_library.db.write(index.find_faults) == []
    await new_library.db.close()


async def test_a_corrupted_index_page_loses_no_text(library: Library) -> None:
    await fill(library)
    pages: list[int] = []

    def tear(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        try:
            page_numbers = connection.execute(
                "SELECT pageno FROM dbstat WHERE name = 'memory_fts_data'"
            ).fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite cannot tell which page is whose (dbstat)")
        pages.extend(page for (page,) in page_numbers)

    await library.db.close()
    connection = sqlite3.connect(library.db.path)
    tear(connection)
    connection.close()
    with library.db.path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xde\xad\xbe\xef" * 1024)
    new_library = Library(await Database.open(library.db.path), library.clock)
    await new_library.memory.open()
    assert await new_library.find_texts("walrus 17", 1) == ["walrus 17 ends"]
    await new_library.memory.refresh()
    assert await new_library.db.write(index.find_faults) == []
    assert len(await new_library.memory.items()) == 30
    assert await new_library.db.run_outside_transaction(
        lambda connection: connection.execute("PRAGMA integrity_check").fetchone()
    ) == ("ok",)
    await new_library.db.close()


async def test_damage_outside_the_index_is_reported_without_endless_rebuilds(
    library: Library,
) -> None:
    await fill(library)
    await library.db.close()
    connection = sqlite3.connect(library.db.path)
    try:
        pages = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'memory_item'"
        ).fetchall()
    except sqlite3.OperationalError:
        pytest.skip("this SQLite cannot tell which page is whose (dbstat)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    with library.db.path.open("r+b") as file:
        file.seek((pages[0][0] - 1) * 4096)
        file.write(b"\xde\xad\xbe\xef" * 1024)
    database = await Database.open(library.db.path)
    memory = Memory(database, clock=library.clock.now)
    for _ in range(3):
        with pytest.raises(
            StoreFull, match="the file is damaged; stop the daemon and restore a backup"
        ):
            await memory.get("key1")
    await database.close()


async def test_the_index_table_equals_its_declaration(library: Library) -> None:
    def read_declaration(connection: sqlite3.Connection) -> str:
        (sql,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'memory_fts'"
        ).fetchone()
        return " ".join(sql.split())

    assert await library.db.read(read_declaration) == " ".join(fts5.CREATE.split())


async def test_a_memory_of_a_newer_version_is_refused_and_unchanged(library: Library) -> None:
    await fill(library)
    await library.db.write(
        lambda connection: connection.execute("INSERT INTO migration VALUES (999, 'later', 0)")
    )
    await library.db.close()
    before = library.db.path.read_bytes()
    with pytest.raises(ConfigError, match="was written by a newer version of agentd"):
        await Database.open(library.db.path)
    assert library.db.path.read_bytes() == before


async def test_an_index_of_another_version_is_emptied_before_a_write(
    library: Library,
) -> None:
    await fill(library)
    state = json.dumps([0, 0, 0, 0, 0])
    await library.db.write(
        lambda connection: connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'memory.index'", (state,)
        )
    )
    memory = Memory(library.db, clock=library.clock.now)
    await memory.open()
    assert await library.count_index_rows() == 0
    await memory.store("key3", "text 3 about otters")  # an item whose turn has not come yet
    await memory.delete_item("key4")
    await memory.refresh()
    assert await library.db.write(index.find_faults) == []
    assert [chunk.content for chunk in await memory.retrieve("otters")] == ["text 3 about otters"]


LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO meta VALUES ('other', 'process')")
print("locked", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


async def test_concurrent_writers_of_a_memory_wait_for_each_other(library: Library) -> None:
    other_process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", LOCKER, str(library.db.path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert other_process.stdout and other_process.stdin
    assert await other_process.stdout.readline() == b"locked\n"
    storing = asyncio.create_task(library.memory.store("mine", "a quokka"))
    assert await library.find_texts("quokka") == []  # reading goes on
    other_process.stdin.close()
    await other_process.wait()
    await storing
    assert await library.find_texts("quokka") == ["a quokka"]
    row = await library.db.read(
        lambda connection: connection.execute(
            "SELECT value FROM meta WHERE key = 'other'"
        ).fetchone()
    )
    assert row == ("process",)


HOLDER = """
import sys
from pathlib import Path
from daemon.store.lock import lock_state
lock = lock_state(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_second_daemon_cannot_open_the_memory(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    other_process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", HOLDER, str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(MIGRATIONS.parents[2])},
    )
    assert other_process.stdout and other_process.stdin
    assert await other_process.stdout.readline() == b"held\n"
    with pytest.raises(StateBusy, match=f"is in use by process {other_process.pid}"):
        lock_state(tmp_path)
    other_process.stdin.close()
    await other_process.wait()


async def test_ten_megabytes_are_refused_as_an_item_and_cut_as_a_segment(library: Library) -> None:
    huge = "The walrus sings. " + "la " * 3_400_000 + "Then the badger sleeps."
    with pytest.raises(
        Refused,
        match=f"an item holds at most {MAX_ITEM_CHARACTERS} characters, this has {len(huge)}",
    ):
        await library.memory.store("song", huge)
    await library.run("01A", "before", huge, "after")
    assert (await library.find_texts("walrus sings", 1))[0].startswith("The walrus sings.")
    assert (await library.find_texts("badger sleeps", 1))[0].endswith("Then the badger sleeps.")
    texts = await library.db.read(
        lambda connection: connection.execute(
            "SELECT sum(length(text)) FROM memory_segment"
        ).fetchone()
    )
    assert texts[0] < 25_000


@pytest.mark.parametrize(
    "question",
    [
        *(
            '"',
            "' OR 1=1 --",
            "walrus AND",
            "NEAR(walrus, 3)",
            "body: walrus",
            "^walrus*",
            "walrus NOT -",
            "(walrus",
        ),
        *(
            "walrus\0wolf",
            "walrus \ud83d",
            "\ud800",
            "{walrus}",
            "a" * 100_000,
            "walrus " * 10_000,
            "walrus\u202e",
        ),
    ],
)
async def test_any_query_is_plain_text_and_no_search_syntax(
    library: Library, question: str
) -> None:
    await library.run("01A", "There is a walrus.", "And an otter.")
    texts = await library.find_texts(question, 1)
    assert texts == (["There is a walrus."] if "walrus" in question else [])


async def test_texts_with_nul_and_broken_characters_are_archived_and_found(
    library: Library,
) -> None:
    await library.run("01A", "wal\0rus \udcff badger", "\0", "\ud800")
    assert (await library.find_texts("badger", 1))[0].endswith("? badger")
    assert await library.db.write(index.find_faults) == []


async def test_clock_set_back_harms_no_operation(library: Library, clock: FakeClock) -> None:
    await library.memory.store("a", "walrus one")
    clock.advance(days=-400)
    await library.memory.store("a", "walrus two")
    await library.run("01A", "walrus three")
    assert await library.find_texts("walrus two yesterday", 1) == ["walrus two"]
    assert await library.db.write(index.find_faults) == []
