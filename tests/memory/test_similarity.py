"""Texts that say the same are told once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.memory import similarity
from daemon.memory.similarity import DuplicateFinder
from tests.memory.conftest import Library
from tests.properties import scaled_settings

GREETING = (
    "Good morning! All systems are running well, every backup is complete, no disk is near its "
    "limit, the updates are"
    " in place and nothing needs your attention"
)


@pytest.mark.parametrize(
    ("text", "later_text", "is_same"),
    [
        (GREETING, GREETING.upper() + ".", True),
        (GREETING, GREETING.replace("Good", "Fine"), True),
        (GREETING, GREETING.replace("backup", "disk").replace("complete", "healthy"), False),
        (GREETING + " on 71 hosts", GREETING + " on 84 hosts", False),
        ("Yes, both.", "Yes, both.", False),  # short ones are alike by chance
        (
            "所有备份都已完成,磁盘状态良好,没有需要处理的问题,系统运行正常,一切平稳。" * 2,
            "天气很好,适合散步,猫在睡觉。" * 5,
            False,
        ),
        (
            "所有备份都已完成,磁盘状态良好,没有需要处理的问题。" * 3,
            "所有备份都已完成,磁盘状态良好,没有需要处理的问题!" * 3,
            True,
        ),
    ],
)
def test_texts_with_equal_numbers_and_few_other_words_are_duplicates(
    text: str, later_text: str, is_same: bool
) -> None:
    finder = DuplicateFinder()
    assert finder.find_or_add(text) is None
    assert (finder.find_or_add(later_text) == 0) is is_same


async def test_near_duplicates_are_recalled_once_with_the_newest(
    library: Library,
) -> None:
    words = ["Good", "fine", "nice", "sunny", "cloudy", "rainy", "windy", "foggy"]
    for n, word in enumerate(words):
        library.clock.advance(days=1)
        await library.run(f"01{n}", GREETING.replace("Good", word), routine=f"r{n % 3}")
    await library.run("02", "One backup needs attention: the walrus.")
    hits = await library.memory.retrieve("backup attention", 5)
    assert [chunk.content for chunk in hits if "morning" in chunk.content] == [
        GREETING.replace("Good", "foggy")
    ]
    assert any("walrus" in chunk.content for chunk in hits)


@scaled_settings()
@given(st.text(st.characters(max_codepoint=127)))
def test_words_and_numbers_of_ascii_text_equal_those_of_the_general_pattern(text: str) -> None:
    assert similarity._find_words(text) == frozenset(similarity._WORD.findall(text.casefold()))
    assert similarity._find_numbers(text) == frozenset(similarity._NUMBER.findall(text))
