"""What of a run's text becomes which row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.memory.segments import PIECE_CHARACTERS, pieces, split
from daemon.models import SegmentType
from tests.memory.conftest import said
from tests.properties import scaled_settings


def test_a_long_text_is_cut_at_the_ends_of_sentences() -> None:
    text = " ".join(f"Sentence number {n} ends here." for n in range(100))
    parts = split(text)
    assert all(part.endswith("here.") for part in parts)
    assert " ".join(parts) == text
    chinese = split("备份在凌晨三点失败了。" * 200)
    assert all(part.endswith("。") for part in chinese)


@scaled_settings(100)
@given(st.text(max_size=3000))
def test_nothing_but_blanks_is_lost_and_no_part_is_too_long(text: str) -> None:
    parts = split(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part.strip() and len(part) <= PIECE_CHARACTERS for part in parts)


def test_of_a_huge_text_the_ends_are_kept() -> None:
    rows = list(pieces("daily", said("The beginning. " + "x" * 10_000_000 + " The end.")))
    assert len(rows) < 30
    assert rows[0].text.startswith("The beginning.")
    assert rows[-1].text.endswith("The end.")


def test_parts_of_a_text_share_its_place() -> None:
    rows = list(pieces("daily", said("One. " * 400, "short", "   ")))
    assert [(row.iteration, row.part) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_the_same_again_is_known_by_its_digest_whatever_its_spacing() -> None:
    long = "The backup of the photo library was completed without any error."
    (first,) = pieces("daily", said(long))
    (again,) = pieces("daily", said(f"  {long.upper()}\n"))
    assert again.digest == first.digest
    (elsewhere,) = pieces("weekly", said(long))
    (shown,) = pieces("daily", said(long, type=SegmentType.TOOL_RESULT))
    assert first.digest not in (elsewhere.digest, shown.digest)


def test_a_short_answer_is_the_same_only_after_the_same_question() -> None:
    def answer_to(question: str) -> int:
        return list(pieces("ask", said(question, "Yes.")))[1].digest

    assert (
        answer_to("Is the disk full?")
        == answer_to("Is the disk full?")
        != answer_to("Is the fan broken?")
    )


def test_half_a_surrogate_pair_is_kept_as_a_question_mark() -> None:
    (row,) = pieces("daily", said("file \ud800 name"))
    assert row.text == "file ? name"
