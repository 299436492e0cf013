"""Texts for models exist in both languages with the same placeholders."""

import re
import string

import pytest

from daemon.agent.texts import MESSAGES, PARAGRAPHS, paragraph, say


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("table", [MESSAGES, PARAGRAPHS])
def test_both_languages_have_every_text_with_the_same_placeholders(table):
    assert table["en"].keys() == table["zh"].keys()
    for key, text in table["en"].items():
        assert placeholders(text) == placeholders(table["zh"][key]), key


def test_chinese_texts_are_chinese():
    for key, text in {**MESSAGES["zh"], **PARAGRAPHS["zh"]}.items():
        assert re.search(r"[\u4e00-\u9fff]", text), key


def test_tool_error_texts_begin_with_the_marks_explained_in_the_prompt():
    for language, marks in (("en", ("[failed]", "[error]")), ("zh", ("[失败]", "[错误]"))):
        for key in ("interrupted", "over_limit", "malformed", "unknown_tool", "denied"):
            assert MESSAGES[language][key].startswith(marks), key
        assert all(mark in PARAGRAPHS[language]["tools"] for mark in marks)


def test_an_unknown_language_is_english():
    assert say("over_limit", "xx") == MESSAGES["en"]["over_limit"]
    assert paragraph("language", "xx") == PARAGRAPHS["en"]["language"]
