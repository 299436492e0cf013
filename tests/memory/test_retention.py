"""What goes by itself after a while, and what stays."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from daemon.memory import index
from daemon.memory.maintenance import MemoryMaintenance
from daemon.memory.retention import BEGINNING_CHARACTERS, MemoryRetention, apply_retention
from daemon.memory.segments import Segment
from daemon.models import SegmentType
from tests.memory.conftest import Library

LONG = "The beginning names a walrus. " + "And so it goes on. " * 30 + "The end names an otter."


async def kept_for(library: Library, **days: int) -> None:
    """Let retention do all it has to."""
    retention = MemoryRetention(**{name: timedelta(days=number) for name, number in days.items()})
    await MemoryMaintenance(
        library.memory, clock=library.clock.now, retention=lambda: retention
    ).retain()
    assert await library.db.write(index.find_faults) == []


async def with_a_run(library: Library) -> None:
    at = library.clock.now()
    kinds = (
        SegmentType.USER_MESSAGE,
        SegmentType.REASONING,
        SegmentType.TOOL_RESULT,
        SegmentType.RESPONSE,
    )
    segments = [
        Segment(iteration=0, segment=n, type=kind, timestamp=at, text=f"{kind}: {LONG}")
        for n, kind in enumerate(kinds)
    ]
    await library.archive("01A", segments)


async def lengths(library: Library) -> dict[str, int]:
    rows = await library.db.read(
        lambda connection: connection.execute(
            "SELECT type, length(text) FROM memory_segment"
        ).fetchall()
    )
    return dict(rows)


async def test_retention_shortens_tool_results_and_thinking(library: Library) -> None:
    await with_a_run(library)
    library.clock.advance(days=40)
    await kept_for(library, tools=90, reasoning=30)
    lengths_by_type = await lengths(library)
    assert lengths_by_type["reasoning"] == BEGINNING_CHARACTERS
    assert lengths_by_type["tool_result"] > BEGINNING_CHARACTERS
    library.clock.advance(days=60)
    await kept_for(library, tools=90, reasoning=30)
    lengths_by_type = await lengths(library)
    assert lengths_by_type["tool_result"] == BEGINNING_CHARACTERS
    assert min(lengths_by_type["user_message"], lengths_by_type["response"]) > BEGINNING_CHARACTERS
    assert len(await library.find_texts("walrus")) == 4  # at their anchors they are found as before
    assert (
        len(
            [
                text
                for text in await library.find_texts("otter")
                if text.startswith(("reasoning", "tool_result"))
            ]
        )
        == 0
    )


async def test_retention_examines_old_runs_once_and_later_runs_too(library: Library) -> None:
    await with_a_run(library)
    library.clock.advance(days=100)
    await kept_for(library, tools=90)
    library.clock.advance(days=1)
    await library.run("02", LONG, type=SegmentType.TOOL_RESULT)
    await kept_for(library, tools=90)
    assert await library.find_texts("otter", 20) != []
    library.clock.advance(days=100)
    await kept_for(library, tools=90)
    assert len(await library.find_texts("walrus")) == 5


async def test_a_run_of_a_clock_that_was_ahead_keeps_no_later_run_whole(library: Library) -> None:
    text = {"type": SegmentType.TOOL_RESULT}
    library.clock.advance(days=2_000)
    await library.run("01A", f"One. {LONG}", **text)
    library.clock.advance(days=-2_000)
    await library.run("01B", f"Two. {LONG}", **text)
    library.clock.advance(days=40)
    await library.run("01C", f"Three. {LONG}", **text)
    library.clock.advance(days=60)
    await kept_for(library, tools=90)
    texts = await library.db.read(
        lambda connection: connection.execute(
            "SELECT length(text) FROM memory_segment ORDER BY id"
        ).fetchall()
    )
    assert [length <= BEGINNING_CHARACTERS for (length,) in texts] == [True, True, False]


async def test_many_runs_of_a_clock_that_was_ahead_keep_no_later_run_whole(
    library: Library,
) -> None:
    text = {"type": SegmentType.TOOL_RESULT}
    library.clock.advance(days=2_000)
    for n in range(200):  # as many as one transaction handles
        await library.run(f"01A{n}", f"walrus number {n}", routine=f"r{n}", **text)
    library.clock.advance(days=-2_000)
    await library.run("01B", LONG, **text)
    library.clock.advance(days=100)
    await kept_for(library, tools=90)
    (longest,) = await library.db.read(
        lambda connection: connection.execute(
            "SELECT max(length(text)) FROM memory_segment"
        ).fetchone()
    )
    assert longest == BEGINNING_CHARACTERS


async def test_retention_removes_daily_items_and_keeps_pinned_items(library: Library) -> None:
    for key, category in (("a", "daily"), ("b", "daily"), ("c", "conversation"), ("d", "core")):
        await library.memory.store(key, f"walrus {key}", category=category)
    await library.memory.pin("b")
    library.clock.advance(days=10)
    await library.memory.store("e", "walrus e", category="daily")
    await kept_for(library, daily=7, conversation=20)
    assert sorted(item.key for item in await library.memory.items()) == ["b", "c", "d", "e"]
    library.clock.advance(days=15)
    await library.memory.pin("b", False)
    await kept_for(library, daily=7, conversation=20)
    assert sorted(item.key for item in await library.memory.items()) == ["d"]


async def test_retention_removes_old_archived_runs(library: Library) -> None:
    for n in range(450):
        library.clock.advance(hours=1)
        await library.run(f"01{n}", f"walrus number {n}", routine=f"r{n}")
    await kept_for(library, runs=5)
    assert await library.count_index_rows() == 121
    await kept_for(library)
    assert await library.count_index_rows() == 121


async def test_retention_works_in_small_batches_and_reports_completion(library: Library) -> None:
    for n in range(450):
        await library.run(f"01{n}", LONG, type=SegmentType.TOOL_RESULT, routine=f"r{n}")
    library.clock.advance(days=100)
    work = partial(
        apply_retention,
        retention=MemoryRetention(tools=timedelta(days=90)),
        now=library.clock.now(),
    )
    assert [await library.db.write(work) for _ in range(4)] == [False, False, True, True]
    assert await library.db.write(index.find_faults) == []
