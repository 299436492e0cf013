"""Recall with a limit reads fewer items and returns the same hits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.memory.memory import Memory
from tests.memory.conftest import Library
from tests.memory.test_index import in_a_library
from tests.properties import scaled_settings


async def search_hits(
    memory: Memory, question: str, limit: int = 10, **more: Any
) -> list[tuple[str | None, str, float]]:
    hits = await memory.search(question, limit, **more)
    return [(hit.text.key, hit.text.text, hit.relevance) for hit in hits]


TEXTS = st.lists(
    st.tuples(
        st.sampled_from(["item", "run"]),
        st.lists(st.sampled_from(["walrus", "gull", "tea", "in", "7"]), max_size=4),
    ),
    min_size=1,
    max_size=25,
)


@scaled_settings(60)
@given(
    TEXTS,
    st.sampled_from(
        [
            "walrus gull",
            "when did the walrus see the gull",
            "the tea of yesterday",
            "how many gulls",
            "item 3",
        ]
    ),
    st.integers(1, 6),
)
def test_recall_with_a_limit_is_a_prefix_of_recall_without(
    texts: list[tuple[str, list[str]]], question: str, limit: int
) -> None:
    async def story(library: Library) -> None:
        for number, (kind, words) in enumerate(texts):
            library.clock.advance(hours=number % 3)
            # short: none stands for another
            text = " ".join((*words, "gull" if number % 2 else "walrus"))
            if kind == "run":
                await library.run(f"r{number}", text, routine=f"r{number}")
            else:
                await library.memory.store(f"item {number}", text, run="r0" if number % 4 else None)
        await library.memory.store("item 3", "gull walrus")  # its number is old, and it is new
        for excluded_run in (None, "r0"):
            all_hits = await search_hits(library.memory, question, 40, exclude_run=excluded_run)
            assert (
                await search_hits(library.memory, question, limit, exclude_run=excluded_run)
                == all_hits[:limit]
            )

    in_a_library(story)


async def test_items_of_the_excluded_run_do_not_set_the_relevance_scale(library: Library) -> None:
    for number in range(5):
        await library.memory.store(f"mine {number}", "walrus walrus walrus", run="01A")
    await library.memory.store(
        "other", "a walrus among many other animals, and things to fill the line"
    )
    assert [
        (key, share)
        for key, _, share in await search_hits(library.memory, "walrus", 1, exclude_run="01A")
    ] == [("other", 1.0)]
