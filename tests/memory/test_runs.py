"""Archived runs: found again with their place, replaced, superseded, dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from daemon.errors import NotFound
from daemon.memory import rows
from daemon.memory.memory import Memory
from daemon.models import Anchor, SegmentType
from tests.memory.conftest import START, Library, make_segments


async def test_a_segment_is_recalled_with_its_anchor(library: Library) -> None:
    await library.run(
        "01A", ("person", "How full is the disk?"), ("agent", "The disk is 84 % full.")
    )
    (chunk, *_) = await library.memory.retrieve("disk full")
    assert chunk.content == "The disk is 84 % full."
    assert chunk.anchor == Anchor(
        run_id="01A",
        iteration=1,
        segment=0,
        type=SegmentType.RESPONSE,
        timestamp=START + timedelta(minutes=1),
    )
    assert (chunk.source, chunk.speaker, chunk.key, chunk.tainted) == (
        "daily",
        "agent",
        None,
        False,
    )


async def test_taint_survives_storage(library: Library) -> None:
    await library.run("01A", "a page about walruses", tainted=True)
    (chunk,) = await library.memory.retrieve("walruses")
    assert chunk.tainted


async def test_a_short_answer_is_found_by_the_question_before_it(library: Library) -> None:
    await library.run("01A", "Has anybody seen my umbrella?", "Under the stairs.")
    assert "Under the stairs." in await library.find_texts("umbrella")


async def test_expanding_an_anchor_shows_neighbours_of_the_same_run_only(library: Library) -> None:
    await library.run("01A", "one", "two", "three walrus", "four", "five")
    await library.run("01B", "six")
    (chunk, *_) = await library.memory.retrieve("walrus", 1)
    around = await library.memory.expand(chunk.anchor, 1)
    assert [chunk.content for chunk in (*around.before, around.focus, *around.after)] == [
        "two",
        "three walrus",
        "four",
    ]
    around = await library.memory.expand(chunk.anchor, 9)
    assert [chunk.content for chunk in around.before + around.after] == [
        "one",
        "two",
        "four",
        "five",
    ]
    assert around.run == "01A"


async def test_expanding_a_part_of_a_segment_shows_the_whole_text(library: Library) -> None:
    text = (
        " ".join(f"Sentence {n} is about something." for n in range(60))
        + " The last one mentions a walrus."
    )
    await library.run("01A", "before", text, "after")
    (chunk, *_) = await library.memory.retrieve("walrus", 1)
    assert len(chunk.content) < len(text)
    focus = (await library.memory.expand(chunk.anchor)).focus
    assert focus.content.split() == text.split()


async def test_an_unknown_anchor_is_not_found(memory: Memory) -> None:
    anchor = Anchor(
        run_id="01X", iteration=3, segment=1, type=SegmentType.RESPONSE, timestamp=START
    )
    with pytest.raises(NotFound, match="nothing is remembered of run 01X at 3/1"):
        await memory.expand(anchor)


async def test_archiving_a_run_again_replaces_its_segments(library: Library) -> None:
    await library.run("01A", "the first version speaks of otters", "and more")
    await library.run("01A", "the second version speaks of badgers")
    assert await library.find_texts("otters") == []
    assert await library.find_texts("badgers") == ["the second version speaks of badgers"]
    assert await library.count_index_rows() == 1


async def test_a_repeated_report_is_recalled_once_from_its_latest_run(library: Library) -> None:
    report = "All backups are complete and every disk is healthy."
    for day in range(5):
        library.clock.advance(days=1)
        await library.run(f"01{day}", ("goal", "Write the report."), ("agent", report))
    hits = await library.memory.retrieve("are the backups complete?")
    assert [(chunk.content, chunk.anchor.run_id) for chunk in hits if chunk.content == report] == [
        (report, "014")
    ]
    assert await library.count_index_rows() == 2


async def test_dropping_the_latest_run_restores_the_earlier_repeated_report(
    library: Library,
) -> None:
    report = "All backups are complete and every disk is healthy."
    for run in ("01A", "01B", "01C"):
        library.clock.advance(days=1)
        await library.run(run, report)
    for removed_run, remaining_run in (("01B", "01C"), ("01C", "01A")):
        assert await library.memory.memory_store.write(partial(rows.drop_run, run=removed_run))
        (chunk,) = await library.memory.retrieve("backups")
        assert chunk.anchor.run_id == remaining_run
        assert await library.count_index_rows() == 1
    assert not await library.memory.memory_store.write(
        lambda connection: rows.drop_run(connection, "01C")
    )


async def test_of_repeated_reports_of_one_day_the_first_is_recalled(library: Library) -> None:
    report = "All backups are complete and every disk is healthy."
    for run in ("01A", "01B", "01C"):
        library.clock.advance(hours=1)
        await library.run(run, report)
    for removed_run, remaining_run in (("", "01A"), ("01A", "01C"), ("01B", "01C")):
        await library.memory.memory_store.write(partial(rows.drop_run, run=removed_run))
        (chunk,) = await library.memory.retrieve("backups")
        assert chunk.anchor.run_id == remaining_run
        assert await library.count_index_rows() == 1


async def test_a_run_with_a_report_repeated_across_midnight_can_be_dropped(
    library: Library,
) -> None:
    report = "All backups are complete and every disk is healthy."
    await library.run("01A", report)
    library.clock.move_to(datetime(2026, 3, 3, 23, 58, tzinfo=UTC))
    await library.run("01B", report)
    library.clock.advance(minutes=1)
    await library.run("01C", report, report)
    for removed_run, remaining_run in (("", "01C"), ("01B", "01C"), ("01C", "01A")):
        await library.memory.memory_store.write(partial(rows.drop_run, run=removed_run))
        (chunk,) = await library.memory.retrieve("backups")
        assert chunk.anchor.run_id == remaining_run
        assert await library.count_index_rows() == 1


async def test_the_line_about_a_removed_run_is_recalled(
    library: Library,
) -> None:
    await library.archive(
        "01A",
        make_segments("The walrus sleeps."),
        line="zoo, 2026-11-20: How is the walrus? → It sleeps.",
    )
    assert await library.find_texts("walrus") == ["The walrus sleeps."]
    assert await library.find_texts("run:01A") == [
        "zoo, 2026-11-20: How is the walrus? → It sleeps."
    ]
    await library.memory.memory_store.write(partial(rows.drop_run, run="01A"))
    assert await library.find_texts("walrus") == [
        "zoo, 2026-11-20: How is the walrus? → It sleeps."
    ]
    await library.archive(
        "01A",
        make_segments("The walrus sleeps."),
        line="zoo, 2026-11-20: How is the walrus? → It sleeps.",
    )
    assert await library.find_texts("walrus") == ["The walrus sleeps."]


async def test_a_dropped_run_leaves_no_word_in_the_index(library: Library) -> None:
    await library.run(
        "01A", "a secret about walruses", "another about otters", "a third about badgers", "Yes."
    )
    await library.memory.memory_store.write(lambda connection: rows.drop_run(connection, "01A"))
    assert await library.vocabulary() == set()
    assert await library.count_index_rows() == 0


async def test_a_failed_archive_leaves_no_segment_or_index_entry(library: Library) -> None:
    twice = [*make_segments("one walrus"), *make_segments("two walruses")]  # the same place twice
    with pytest.raises(Exception, match=r"UNIQUE constraint failed|violates unique constraint"):
        await library.archive("01A", twice)
    assert await library.find_texts("walrus") == []
    assert await library.vocabulary() == set()


async def test_a_run_without_text_can_be_archived(library: Library) -> None:
    await library.run("01A")
    assert await library.count_index_rows() == 0


async def test_an_empty_run_hides_no_other_run_of_its_day(library: Library) -> None:
    await library.run("01A", "the walrus is well")
    await library.run("01B", "")
    assert await library.find_texts("what was it today?") == ["the walrus is well"]
