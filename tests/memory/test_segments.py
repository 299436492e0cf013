"""What of a run's text becomes which row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.memory.segments import MAX_PART_CHARACTERS, make_segment_parts, split
from daemon.models import SegmentType
from tests.memory.conftest import make_segments
from tests.properties import scaled_settings


def test_a_long_segment_is_split_at_sentence_ends() -> None:
    text = " ".join(f"Sentence number {n} ends here." for n in range(100))
    parts = split(text)
    assert all(part.endswith("here.") for part in parts)
    assert " ".join(parts) == text
    chinese = split("备份在凌晨三点失败了。" * 200)
    assert all(part.endswith("。") for part in chinese)


@scaled_settings(100)
@given(st.text(max_size=3000))
def test_splitting_a_segment_loses_only_blanks_and_respects_the_limit(text: str) -> None:
    parts = split(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part.strip() and len(part) <= MAX_PART_CHARACTERS for part in parts)


def test_a_huge_segment_keeps_its_beginning_and_end() -> None:
    rows = list(
        make_segment_parts(
            "daily", make_segments("The beginning. " + "x" * 10_000_000 + " The end.")
        )
    )
    assert len(rows) < 30
    assert rows[0].text.startswith("The beginning.")
    assert rows[-1].text.endswith("The end.")


def test_parts_of_a_segment_share_its_iteration_and_number() -> None:
    rows = list(make_segment_parts("daily", make_segments("One. " * 400, "short", "   ")))
    assert [(row.iteration, row.part) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_repeated_text_has_the_same_digest_despite_case_and_spacing() -> None:
    long = "The backup of the photo library was completed without any error."
    (first,) = make_segment_parts("daily", make_segments(long))
    (again,) = make_segment_parts("daily", make_segments(f"  {long.upper()}\n"))
    assert again.digest == first.digest
    (elsewhere,) = make_segment_parts("weekly", make_segments(long))
    (part,) = make_segment_parts("daily", make_segments(long, type=SegmentType.TOOL_RESULT))
    assert first.digest not in (elsewhere.digest, part.digest)


def test_a_short_answer_has_the_same_digest_only_after_the_same_question() -> None:
    def answer_to(question: str) -> int:
        return list(make_segment_parts("ask", make_segments(question, "Yes.")))[1].digest

    assert (
        answer_to("Is the disk full?")
        == answer_to("Is the disk full?")
        != answer_to("Is the fan broken?")
    )


def test_half_a_surrogate_pair_is_kept_as_a_question_mark() -> None:
    (row,) = make_segment_parts("daily", make_segments("file \ud800 name"))
    assert row.text == "file ? name"
