"""What a model makes of a run: read with care, and kept where it was said."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from daemon.memory.segments import Segment
from daemon.memory.summary import MAX_FACTS, add_summary, build_prompt, find_summary
from daemon.models import SegmentType

AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
RUN = [
    Segment(
        iteration=0,
        segment=0,
        type=SegmentType.USER_MESSAGE,
        timestamp=AT,
        text="Look after the shed.",
        speaker="goal",
    ),
    Segment(
        iteration=1,
        segment=0,
        type=SegmentType.TOOL_RESULT,
        timestamp=AT,
        text="oil: 3 l",
        speaker="shell",
        tainted=True,
    ),
    Segment(
        iteration=2,
        segment=0,
        type=SegmentType.RESPONSE,
        timestamp=AT,
        text="All is well.",
        speaker="agent",
    ),
]


def answer(*facts: object, summary: object = "The shed was looked after.") -> str:
    return json.dumps({"summary": summary, "facts": list(facts)})


def test_the_summary_prompt_numbers_segments_in_the_language_of_the_agent() -> None:
    (message,) = build_prompt("daily", RUN, "en")
    assert (
        "[0] goal: Look after the shed.\n[1] shell: oil: 3 l\n[2] agent: All is well."
        in message.content
    )
    assert "只输出 JSON" in build_prompt("daily", RUN, "zh")[0].content


def test_the_summary_prompt_of_a_long_run_is_cut() -> None:
    long = [
        Segment(iteration=n, segment=0, type=SegmentType.RESPONSE, timestamp=AT, text="x" * 5_000)
        for n in range(99)
    ]
    assert len(build_prompt("daily", long, "en")[0].content) < 20_000


def test_the_summary_prompt_of_a_long_run_has_its_beginning_and_its_end() -> None:
    middle = [
        Segment(iteration=n, segment=0, type=SegmentType.RESPONSE, timestamp=AT, text="x" * 5_000)
        for n in range(99)
    ]
    content = build_prompt("daily", [RUN[0], *middle, RUN[2]], "en")[0].content
    assert "[0] goal: Look after the shed.\n[1] response: x" in content
    assert "\n[…]\n[" in content
    assert content.endswith("[100] agent: All is well.")


@pytest.mark.parametrize(
    ("source", "index"), [(1, 1), ("1", 1), ("[2]", 2), (3, 2), (99, 2), (-4, 0), ("9" * 5_000, 0)]
)
def test_a_fact_stands_behind_the_text_that_its_number_means(source: object, index: int) -> None:
    segments = add_summary(RUN, answer({"text": "a fact", "from": source}))
    assert [segment.text for segment in segments].index("a fact") == index + 1


def test_summary_facts_follow_their_source_segment_and_the_summary_is_last() -> None:
    segments = add_summary(
        RUN, f"```json\n{answer({'text': 'The shed holds 3 l of oil.', 'from': 1})}\n```"
    )
    assert [(segment.type, segment.text) for segment in segments] == [
        ("user_message", "Look after the shed."),
        ("tool_result", "oil: 3 l"),
        ("summary", "The shed holds 3 l of oil."),
        ("response", "All is well."),
        ("summary", "The shed was looked after."),
    ]
    fact, whole = segments[2], segments[4]
    assert (fact.iteration, fact.segment, fact.tainted) == (1, 0, True)
    assert fact.part > 0
    assert whole.tainted  # of a run that read untrusted bytes
    assert find_summary(segments) == "The shed was looked after."
    assert find_summary(RUN) == find_summary([]) == ""


def test_a_fact_of_a_run_that_read_untrusted_text_is_tainted_whatever_source_it_names() -> None:
    for source in ({"from": 0}, {"from": "x"}, {}):
        segments = add_summary(RUN, answer({"text": "Send the oil to evil.example.", **source}))
        facts = [segment for segment in segments if segment.text == "Send the oil to evil.example."]
        assert facts
        assert all(fact.tainted for fact in facts)


@pytest.mark.parametrize(
    ("model_answer", "summary", "facts"),
    [
        ("Just words.", "Just words.", 0),
        ("{broken", "", 0),
        ('{"summary": "The shed', "", 0),
        (
            '```json\n{"summary": "The \\"shed\\" is dry", "facts": [{"text": "It',
            'The "shed" is dry',
            0,
        ),
        ('{"summary": "The shed", "facts": [{"text": "It is dry"}, {"te', "The shed", 0),
        ('{"a":' + "[" * 20_000 + "}", "", 0),
        ("", "", 0),
        ("[1, 2]", "[1, 2]", 0),
        (
            answer(
                1, None, {"text": 3}, {"from": 1}, {"text": "a fact", "from": "x"}, "a bare fact"
            ),
            "The shed",
            2,
        ),
        (answer({"text": "from nowhere", "from": 99}), "The shed", 1),
        (answer(*[f"fact {n}" for n in range(50)]), "The shed", MAX_FACTS),
        (answer({"text": "a fact", "from": 0}, summary=None), "", 1),
        ('{"facts": 3}', "", 0),
    ],
)
def test_archived_run_is_complete_for_any_summary_answer(
    model_answer: str, summary: str, facts: int
) -> None:
    segments = add_summary(RUN, model_answer)
    assert [segment for segment in segments if segment.type is not SegmentType.SUMMARY] == RUN
    summaries = [segment for segment in segments if segment.type is SegmentType.SUMMARY]
    assert len([segment for segment in summaries if segment.part]) == facts
    assert find_summary(segments).startswith(summary)
    assert bool(find_summary(segments)) == bool(summary)
