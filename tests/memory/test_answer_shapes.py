"""What a question asks for is looked for in the answer, in both languages, and decides only between
near equals.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.memory.answer_shapes import looks_like_answer
from tests.memory.conftest import Library
from tests.properties import scaled_settings


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("When did the backup fail?", "It failed last Tuesday.", "It failed badly."),
        ("Which month was it?", "In October, I think.", "It was cold."),
        ("How many disks are there?", "There are three of them.", "There are many of them."),
        ("how long did it take", "about 40 minutes", "longer than it should"),
        ("Where does Ada live?", "She moved to Berlin.", "She moved again."),
        ("In which folder are the logs?", "They lie in /var/log/agentd.", "They were moved."),
        ("备份什么时候失败的?", "昨天晚上失败了。", "失败得很彻底。"),
        ("有多少个磁盘?", "一共三个。", "很大。"),
        ("日志在哪里?", "在工作区。", "很长。"),
    ],
)
def test_the_form_of_a_question_tells_what_its_answer_holds(
    question: str, answer: str, other: str
) -> None:
    fits = looks_like_answer(question)
    assert fits is not None
    assert fits(answer)
    assert not fits(other)


@pytest.mark.parametrize("question", ["What did Ada say?", "Why?", "", "为什么失败?"])
def test_most_questions_ask_for_no_form(question: str) -> None:
    assert looks_like_answer(question) is None


@scaled_settings()
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_question_has_an_answer_shape_or_none(question: str, text: str) -> None:
    fits = looks_like_answer(question)
    assert fits is None or fits(text) in (True, False)


async def test_of_two_that_say_as_much_the_one_with_a_time_answers_when(library: Library) -> None:
    await library.run("01A", "The backup of the old server failed, which nobody liked.")
    await library.run("01B", "The backup of the old server failed on Tuesday evening.")
    assert (await library.found("When did the backup of the server fail?", 1))[0].endswith(
        "Tuesday evening."
    )


async def test_what_was_said_right_after_the_question_is_found(library: Library) -> None:
    await library.run(
        "01A",
        "What is the name of your walrus?",
        "Clementine, like the fruit.",
        "I see.",
        "So it goes on.",
    )
    await library.run("01B", *(f"filler {n}" for n in range(10)))
    assert "Clementine, like the fruit." in await library.found("name of the walrus", 2)
    hits = await library.memory.search("name of the walrus", 2)
    assert any(hit.reasons.get("answers", 0) > 0 for hit in hits)
