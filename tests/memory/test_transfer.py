"""What is imported answers as what was exported."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from daemon.errors import Refused
from daemon.memory import transfer
from daemon.memory.maintenance import MemoryMaintenance
from daemon.memory.memory import Memory
from daemon.memory.retention import MemoryRetention
from daemon.memory.segments import GOAL_SPEAKER, Segment
from daemon.models import SegmentType
from daemon.store.database import Database
from daemon.testing import FakeClock
from tests.bench.reports import ODD_REPORTS, ROUTINES, reports
from tests.empty_database import copy_empty_database
from tests.memory.conftest import START, Library, make_segments

DAY = timedelta(days=1)
# What the readings of every run begin with: retention leaves nothing else of them.
HEADER = {"form": transfer.FORMAT}
HEAD = "These readings are of the sensors in the cellar, in the order of their numbers. " * 8


@pytest.fixture
async def library(tmp_path) -> AsyncIterator[Library]:
    async for library in _open(tmp_path / "exported.db", FakeClock(START)):
        yield library


@pytest.fixture
async def other(tmp_path, library) -> AsyncIterator[Library]:
    """An empty memory with the clock of the first one."""
    async for other in _open(tmp_path / "imported.db", library.clock):
        yield other


async def _open(path, clock) -> AsyncIterator[Library]:
    copy_empty_database(path)
    db = await Database.open(path)
    library = Library(db, clock)
    await library.memory.open()
    yield library
    await db.close()


async def remember_two_weeks(library: Library) -> None:
    """Archive the reports of two weeks, with a retention of three days applied each night."""
    maintenance = MemoryMaintenance(
        library.memory,
        clock=library.clock.now,
        retention=lambda: MemoryRetention(tools=3 * DAY, reasoning=3 * DAY),
    )
    night = None
    for number, (routine, at, report) in enumerate(reports(700, end=START, days=14)):
        night = night or at + DAY
        if at >= night:
            library.clock.move_to(night)
            await maintenance.retain()
            night += DAY
        library.clock.move_to(at)
        texts = [
            (SegmentType.USER_MESSAGE, GOAL_SPEAKER, routine.goal),
            (SegmentType.TOOL_RESULT, "readings", HEAD + report.result),
            (SegmentType.RESPONSE, "agent", report.text),
        ]
        segments = [
            Segment(iteration=n, segment=0, type=type_, timestamp=at, text=text, speaker=speaker)
            for n, (type_, speaker, text) in enumerate(texts)
        ]
        await library.archive(f"01RUN{number:08}", segments, routine=routine.name, line=report.text)
    await library.memory.store("wine", "Ada likes Riesling", category="core")


async def move(source: Library, target: Library, *, change=lambda line: line) -> None:
    cursor = None
    while True:
        page = await source.db.read(lambda connection, at=cursor: transfer.export(connection, at))
        lines = [json.dumps(change(line)) for line in page.lines]
        work = transfer.parse_lines(lines)
        await target.db.write(lambda connection, work=work: transfer.import_rows(connection, work))
        cursor = page.next_cursor
        if cursor is None:
            return


@pytest.mark.parametrize("cursor", [f"item:{'9' * 20}", f"run:{'9' * 20}", "item:-1", "run:x"])
async def test_a_cursor_that_no_page_has_returned_is_refused(library: Library, cursor: str) -> None:
    with pytest.raises(ValueError, match=r"no row has the id|invalid literal"):
        await library.db.read(lambda connection: transfer.export(connection, cursor))


@pytest.mark.parametrize("line", ["[]", "1", "null", '"item"'])
def test_a_line_that_is_no_object_is_named(line: str) -> None:
    with pytest.raises(Refused, match="line 7 is no line of an export: it is no JSON object"):
        transfer.parse_lines([line], 7)


def fifty_questions() -> list[str]:
    subjects = ("disk", "load", "backup", "certificate", "mail", "login", "web", "service")
    return [
        *(routine.goal for routine in ROUTINES),
        *(odd.question for odd in ODD_REPORTS),
        *(f"what about {subject} two days ago" for subject in subjects),
        *(f"when was {subject} worse than before" for subject in subjects),
        *("wine", "磁盘还有多少空间", "昨天的备份", "who logged in for the first time",
          "which package was upgraded", "容器为什么被重启", "free memory", "cellar sensors"),
    ]  # fmt: skip


async def answers(memory: Memory) -> list[list[tuple[object, ...]]]:
    return [
        [
            (chunk.content, chunk.anchor.run_id, round(chunk.relevance, 6))
            for chunk in await memory.retrieve(question, 10)
        ]
        for question in fifty_questions()
    ]


async def test_an_imported_memory_answers_fifty_questions_as_the_exported_one(
    library: Library, other: Library
) -> None:
    await remember_two_weeks(library)
    await move(library, other)
    assert len(fifty_questions()) == 50
    assert await other.count_index_rows() == await library.count_index_rows()
    assert await answers(other.memory) == await answers(library.memory)


async def test_an_export_of_an_older_version_can_be_imported(
    library: Library, other: Library
) -> None:
    await library.run("01A", "The kettle is red and stands on the stove.")
    library.clock.advance(days=1)
    await library.run("01B", "The kettle is red and stands on the stove.")

    def make_old(line):
        for text in line.get("texts", ()):
            text.pop("digest")
            text.pop("repeats", None)
        return line

    await move(library, other, change=make_old)
    assert await other.find_texts("kettle") == ["The kettle is red and stands on the stove."]
    assert await other.count_index_rows() == 1


async def test_what_an_import_names_as_repeated_and_is_not_there_is_found_itself(
    library: Library, other: Library
) -> None:
    text = "The {} kettles are red and stand on the stove, as on any other day."
    await library.archive("01A", make_segments(text.format(3), at=library.clock.now()))
    await library.archive("01B", make_segments(text.format(5), at=library.clock.now()))
    await library.archive("01C", make_segments(text.format(4), at=library.clock.now()))
    assert await library.count_index_rows() == 2  # of the three one lies within the others

    await move(
        library, other, change=lambda line: HEADER if line.get("archived") == "01A" else line
    )
    assert await other.count_index_rows() == 2
    assert text.format(4) in await other.find_texts("kettles")


async def test_the_imported_line_of_a_run_that_is_archived_already_is_not_a_hit(
    library: Library, other: Library
) -> None:
    segments = make_segments("The walrus weighs 912 kg.", at=library.clock.now())
    await library.archive(
        "01A", segments, line="daily: how is the walrus → The walrus weighs 912 kg."
    )
    await other.archive("01A", segments)  # its line was deleted there
    await move(library, other)
    assert await other.find_texts("walrus") == ["The walrus weighs 912 kg."]
