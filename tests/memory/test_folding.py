"""Reports that differ in numbers only: one of a day is found, and each with a new extreme."""

from __future__ import annotations

from functools import partial

from daemon.memory import rows
from daemon.memory.retention import MemoryRetention, apply_retention
from daemon.memory.segments import Segment
from daemon.models import SegmentType
from tests.memory.conftest import Library, make_segments

REPORT = "The root disk is {} % full and nothing else on this machine needs attention."


def make_run(report: str, library: Library, goal: str = "Report on the disk.") -> list[Segment]:
    """Return the segments of a run as the daemon archives them: its goal, then its answer."""
    at = library.clock.now()
    return [
        *make_segments(("goal", goal), at=at, type=SegmentType.USER_MESSAGE),
        Segment(
            iteration=1,
            segment=0,
            type=SegmentType.RESPONSE,
            timestamp=at,
            text=report,
            speaker="agent",
        ),
    ]


async def report_each_hour(library: Library, *percentages: int, first: int = 0) -> None:
    for number, percentage in enumerate(percentages, first):
        await library.archive(f"01{number:03}", make_run(REPORT.format(percentage), library))
        library.clock.advance(hours=1)


async def found_reports(library: Library) -> set[str]:
    return {text for text in await library.find_texts("root disk full", 50) if "root disk" in text}


async def test_of_reports_that_differ_in_numbers_only_the_first_of_a_day_is_found(
    library: Library,
) -> None:
    await report_each_hour(library, 60, 80, 70, 65, 75)
    # 80 was beyond any before
    assert await found_reports(library) == {REPORT.format(60), REPORT.format(80)}


async def test_a_number_beyond_any_before_is_found(library: Library) -> None:
    await report_each_hour(library, 60, 61, 60, 100, 60, 12)
    assert {REPORT.format(100), REPORT.format(12)} <= await found_reports(library)


async def test_the_next_day_has_a_report_of_its_own(library: Library) -> None:
    await report_each_hour(library, 60, 80, 70)
    library.clock.advance(days=1)
    await report_each_hour(library, 71, 72, first=10)
    assert await found_reports(library) == {REPORT.format(n) for n in (60, 80, 71)}


async def test_a_report_that_stands_for_its_day_is_found_though_it_comes_again(
    library: Library,
) -> None:
    await report_each_hour(library, 60, 80, 70)
    library.clock.advance(days=1)
    await report_each_hour(library, 60, first=10)
    (count,) = await library.db.read(
        lambda connection: connection.execute(
            "SELECT count(*) FROM memory_segment WHERE superseded IS NULL AND text = ?",
            (REPORT.format(60),),
        ).fetchone()
    )
    assert count == 2


async def test_what_a_person_says_is_never_folded(library: Library) -> None:
    for number, distance in enumerate((5, 9, 7)):
        message = f"I went running in the park this morning and came {distance} kilometres far."
        await library.run(
            f"01{number}", ("person", message), type=SegmentType.USER_MESSAGE, routine="ask"
        )
    assert len(await library.find_texts("running in the park")) == 3


async def test_reports_on_different_goals_are_not_folded(library: Library) -> None:
    for number, goal in enumerate(("the disk of oak", "the disk of elm", "the disk of ash")):
        await library.archive(f"01{number}", make_run(REPORT.format(70 - number), library, goal))
    assert len(await found_reports(library)) == 3


async def test_a_folded_report_is_shown_in_its_run(library: Library) -> None:
    await report_each_hour(library, 60, 80, 70)
    segments = await library.db.read(lambda connection: rows.texts_of_run(connection, "01002"))
    assert REPORT.format(70) in [text.text for text in segments]


async def test_a_folded_report_is_found_when_the_one_before_it_is_deleted(
    library: Library,
) -> None:
    await report_each_hour(library, 60, 80, 70)
    await library.memory.memory_store.write(partial(rows.drop_run, run="01000"))
    assert await found_reports(library) == {REPORT.format(80), REPORT.format(70)}


async def test_wordings_that_do_not_come_again_are_forgotten_by_retention(
    library: Library,
) -> None:
    await report_each_hour(library, 60, 80)
    library.clock.advance(days=30)
    await library.archive("01Z", make_run("Something else happened at 9 o'clock today.", library))
    await library.memory.memory_store.write(
        partial(apply_retention, retention=MemoryRetention(), now=library.clock.now())
    )
    (count,) = await library.db.read(
        lambda connection: connection.execute("SELECT count(*) FROM memory_template").fetchone()
    )
    assert count == 1


async def test_what_a_tool_brings_is_folded_whatever_its_numbers_are(library: Library) -> None:
    for uptime in range(5):
        result = make_segments(
            ("sysinfo", f"walrus up {uptime} hours"), type=SegmentType.TOOL_RESULT
        )
        await library.archive(f"01{uptime}", result)
    assert len(await library.find_texts("walrus")) == 1
