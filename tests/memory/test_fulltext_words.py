"""Words of texts in the index and of questions in queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.memory.fulltext.fts5 import any_of
from daemon.memory.fulltext.words import MAX_TERMS, query_of, text_for_index, words_of
from tests.properties import scaled_settings


@pytest.mark.parametrize(
    ("text", "index_words"),
    [
        ("went to Paris", "go to Paris"),
        ("Bought", "buy"),
        ("The children's books", "The child's books"),
        ("rose", "rose"),  # a flower as well as a verb: left alone
        ("ｆｕｌｌ　ｗｉｄｔｈ", "full width"),
        ("ﬁle №5", "file No5"),
    ],
)
def test_inflected_forms_are_indexed_as_one_word(text: str, index_words: str) -> None:
    assert text_for_index(text) == index_words


def test_chinese_is_indexed_as_pairs_and_single_characters() -> None:
    assert text_for_index("每日报告2026").split() == [
        "每日",
        "日报",
        "报告",
        "每",
        "日",
        "报",
        "告",
        "2026",
    ]
    assert text_for_index("猫").split() == ["猫"]


@pytest.mark.parametrize(
    ("question", "match"),
    [
        ("When did Caroline go to the museum?", '"caroline" OR "go" OR "museum"'),
        ("What did she buy, and who bought it?", '"buy"'),
        ("备份是什么时候失败的？", '"备份" OR "份是" OR "候失" OR "失败" OR "败的"'),
        ("猫？", '"猫"'),
        ("backup 失败", '"backup" OR "失败"'),
        ('"quoted" AND (NEAR) col:x* -y ^z', '"quoted" OR "near" OR "col" OR "x" OR "y" OR "z"'),
        ("?!…", ""),
        ("", ""),
    ],
)
def test_a_query_searches_for_any_significant_word_of_the_question(
    question: str, match: str
) -> None:
    assert any_of(query_of(question).terms) == match


def test_a_question_of_stop_words_searches_for_its_stop_words() -> None:
    assert query_of("who are you").terms == ("who", "are", "you")
    assert query_of("是谁").terms


def test_a_long_question_is_cut_to_its_most_frequent_words() -> None:
    question = " ".join(f"word{n}" for n in range(500)) + " backup backup"
    terms = query_of(question).terms
    assert len(terms) == MAX_TERMS
    assert terms[:3] == ("backup", "word0", "word1")


def test_a_name_matches_a_question_with_all_its_words() -> None:
    assert words_of("daily-report") == {"daily", "report"}
    assert words_of("daily-report") <= query_of("what did the Daily Report say?").words
    assert words_of("小明") <= query_of("小明喜欢什么？").words
    assert not words_of("小红") <= query_of("小明喜欢什么？").words


@scaled_settings(100)
@given(st.text())
def test_index_text_is_deterministic_and_accepted_by_databases(
    text: str,
) -> None:
    index_words = text_for_index(text)
    assert index_words == text_for_index(text)
    assert "\0" not in index_words
    index_words.encode()
    any_of(query_of(text).terms).encode()
