"""Memory items stored under a key."""

from __future__ import annotations

import pytest

from daemon.errors import Refused
from daemon.memory.memory import MAX_ITEM_CHARACTERS, Memory
from daemon.models import SegmentType
from daemon.testing import FakeClock
from tests.memory.conftest import Library


async def test_an_item_is_read_by_its_exact_key(memory: Memory) -> None:
    await memory.store("routine:daily:approach", "ask df first")
    assert await memory.get("routine:daily:approach") == "ask df first"
    assert await memory.get("routine:daily") is None


async def test_storing_an_item_again_replaces_its_text_in_the_index(
    library: Library,
) -> None:
    await library.memory.store("editor", "The owner prefers emacs")
    await library.memory.store("editor", "The owner prefers helix", category="custom")
    assert await library.find_texts("emacs") == []
    assert await library.find_texts("which editor does the owner prefer?") == [
        "The owner prefers helix"
    ]
    assert await library.count_index_rows() == 1
    assert "emac" not in await library.vocabulary()


async def test_a_forgotten_item_leaves_no_hit_and_no_word_in_the_index(library: Library) -> None:
    await library.memory.store("pin", "The code of the bicycle lock is 4711")
    assert await library.memory.delete_item("pin")
    assert await library.find_texts("bicycle lock code 4711") == []
    assert await library.vocabulary() == set()
    assert not await library.memory.delete_item("pin")


async def test_an_item_has_its_origin_and_taint(memory: Memory, clock: FakeClock) -> None:
    await memory.store("page", "Penguins cannot fly", run="01RUN", tainted=True)
    (chunk,) = await memory.retrieve("penguins")
    assert (chunk.key, chunk.tainted, chunk.relevance) == ("page", True, 1.0)
    assert (chunk.anchor.run_id, chunk.anchor.type, chunk.anchor.timestamp) == (
        "01RUN",
        SegmentType.KNOWLEDGE,
        clock.now(),
    )
    around = await memory.expand(chunk.anchor)
    assert (around.focus.content, around.before, around.after) == ("Penguins cannot fly", (), ())


async def test_items_are_listed_by_category_newest_change_first(
    memory: Memory, clock: FakeClock
) -> None:
    for key, category in (("a", "core"), ("b", "daily"), ("c", "core")):
        clock.advance(minutes=1)
        await memory.store(key, f"text {key}", category=category)
    assert [item.key for item in await memory.items()] == ["c", "b", "a"]
    assert [item.key for item in await memory.items("core")] == ["c", "a"]
    assert [item.key for item in await memory.items(limit=1)] == ["c"]
    clock.advance(minutes=1)
    await memory.store("a", "changed")
    (item, *_) = await memory.items()
    assert (item.key, item.content, item.updated - item.created) == (
        "a",
        "changed",
        clock.now() - item.created,
    )


@pytest.mark.parametrize(
    ("key", "content", "says"),
    [
        ("", "text", "a key is 1 to 200 printable characters"),
        ("two\nlines", "text", "a key is 1 to 200 printable characters"),
        ("k" * 201, "text", "a key is 1 to 200 printable characters"),
        ("key", "  ", "nothing to keep under 'key'"),
        (
            "key",
            "x" * (MAX_ITEM_CHARACTERS + 1),
            f"at most {MAX_ITEM_CHARACTERS} characters, this has {MAX_ITEM_CHARACTERS + 1}",
        ),
    ],
)
async def test_invalid_item_is_refused_with_a_reason(
    memory: Memory, key: str, content: str, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        await memory.store(key, content)
    with pytest.raises(Refused, match="'secret' is not a category of items; there are core, daily"):
        await memory.store("key", "text", category="secret")
    assert await memory.items() == []


async def test_texts_with_nul_and_broken_characters_are_kept_and_found(library: Library) -> None:
    await library.memory.store("odd", "quokka\0wombat \ud800 platypus")
    nul = "\N{REPLACEMENT CHARACTER}" if library.db.shared else "\0"  # PostgreSQL's texts have none
    assert await library.memory.get("odd") == f"quokka{nul}wombat ? platypus"
    assert (
        len(await library.find_texts("wombat\0"))
        == len(await library.find_texts("platypus \udfff"))
        == 1
    )


async def test_seed_items_are_stored_once_and_follow_their_text(
    library: Library, clock: FakeClock
) -> None:
    await library.memory.seed(
        {"agentd:logs": "The logs are in /var/log", "agentd:db": "The journal is agentd.db"}
    )
    before = {item.key: item.updated for item in await library.memory.items()}
    clock.advance(days=1)
    await library.memory.seed(
        {"agentd:logs": "The logs are in /srv/log", "agentd:db": "The journal is agentd.db"}
    )
    after = {item.key: item.updated for item in await library.memory.items()}
    assert after["agentd:db"] == before["agentd:db"]
    assert after["agentd:logs"] > before["agentd:logs"]
    assert await library.find_texts("where are the logs?", 1) == ["The logs are in /srv/log"]


async def test_query_equal_to_a_key_returns_its_item_first(library: Library) -> None:
    await library.memory.store("daily report", "short, please")
    await library.run(
        "r1", "the daily report was long", "the daily report is daily", "a report, daily"
    )
    assert (await library.find_texts("daily report"))[0] == "short, please"
