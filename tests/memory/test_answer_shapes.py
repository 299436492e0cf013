"""The expected shape of an answer, by the wording of a question, breaks ties between hits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.memory.answer_shapes import make_answer_test
from tests.memory.conftest import Library
from tests.properties import scaled_settings


@pytest.mark.parametrize(
    ("question", "answer", "wrong_answer"),
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
def test_the_wording_of_a_question_predicts_the_shape_of_its_answer(
    question: str, answer: str, wrong_answer: str
) -> None:
    fits = make_answer_test(question)
    assert fits is not None
    assert fits(answer)
    assert not fits(wrong_answer)


@pytest.mark.parametrize("question", ["What did Ada say?", "Why?", "", "为什么失败?"])
def test_ordinary_questions_have_no_answer_shape(question: str) -> None:
    assert make_answer_test(question) is None


@scaled_settings()
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_question_has_an_answer_shape_or_none(question: str, text: str) -> None:
    fits = make_answer_test(question)
    assert fits is None or fits(text) in (True, False)


@pytest.mark.slow
async def test_of_two_equal_hits_the_hit_with_a_time_answers_when(library: Library) -> None:
    await library.run("01A", "The backup of the old server failed, which nobody liked.")
    await library.run("01B", "The backup of the old server failed on Tuesday evening.")
    assert (await library.find_texts("When did the backup of the server fail?", 1))[0].endswith(
        "Tuesday evening."
    )


async def test_the_segment_after_a_matching_question_is_recalled(library: Library) -> None:
    await library.run(
        "01A",
        "What is the name of your walrus?",
        "Clementine, like the fruit.",
        "I see.",
        "So it goes on.",
    )
    await library.run("01B", *(f"filler {n}" for n in range(10)))
    assert "Clementine, like the fruit." in await library.find_texts("name of the walrus", 2)
    hits = await library.memory.search("name of the walrus", 2)
    assert any(hit.reasons.get("answers", 0) > 0 for hit in hits)
