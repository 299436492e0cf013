"""What is forgotten is found by the words that people know of it, and leaves nothing in memory."""

from __future__ import annotations

import json

import pytest

from daemon.memory.erasure.erasure import Eraser, ErasurePlan, ErasureRequest
from daemon.models import SegmentType, Status, Step, StepKind
from daemon.store.journal import Claim, Journal
from tests.memory.conftest import Library, make_segments


def eraser_of(library: Library) -> Eraser:
    return Eraser(library.memory, clock=library.clock.now)


async def forget(library: Library, **request: str) -> ErasurePlan:
    eraser = eraser_of(library)
    plan = await eraser.plan(ErasureRequest(**request))
    return await eraser.erase(ErasureRequest(**request), plan.token)


async def execute_run(
    library: Library, *texts: str, routine: str = "daily", event: str | None = None
) -> str:
    """Let a run say these texts; memory does not archive it."""
    journal = Journal(library.db, clock=library.clock.now)
    claim = Claim(
        routine=routine,
        definition="{}",
        trigger="cron",
        slot=library.clock.now(),
        goal="go",
        event=event,
    )
    library.clock.advance(minutes=1)
    (queued_run,) = await journal.slots.claim([claim])
    assert queued_run is not None
    run = await journal.runs.claim(queued_run.id, owner="me")
    assert run is not None
    steps = [
        Step(kind=StepKind.LLM, iteration=number, body={"content": text, "calls": []})
        for number, text in enumerate(texts)
    ]
    await journal.runs.append(run, *steps)
    await journal.runs.end(run.to(Status.SUCCEEDED))
    return run.id


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("lost wallet", "Ada lost her wallet."),
        ("the people from Kiel", "People came from Kiel."),
        ("192.168.1.10", "The pump is at 192.168.1.10."),
        ("14:30", "The train leaves at 14:30."),
        ("bicycle locks", "The bicycle lock hangs in the hall."),
        ("iPhone", "我的iPhone手机坏了。"),
        ("自行车", "我的自行车锁在走廊里。"),
        ("1234", "The code is １２３４."),
    ],
)
async def test_an_item_is_forgotten_by_its_words(library: Library, query: str, text: str) -> None:
    await library.memory.store("note", text)
    await library.memory.store("other", "The wallaby has 12345 bicycles.")
    plan = await forget(library, query=query)
    assert [item.key for item in plan.items] == ["note"]
    assert await library.memory.get("note") is None


async def test_a_time_is_not_found_where_its_numbers_stand_apart(library: Library) -> None:
    await library.memory.store("train", "The train leaves at 14:30.")
    await library.memory.store("order", "Order 14 came in 30 days.")
    run = await execute_run(library, "At 14:30 all is well.")
    await execute_run(library, "Order 14 came in 30 days.")
    await library.run("01ARCHIVED", "Departure is at 14:30, as ever.")
    await library.run("01OTHER", "Order 14 came in 30 days.")
    plan = await eraser_of(library).plan(ErasureRequest(query="14:30"))
    assert [item.key for item in plan.items] == ["train"]
    assert set(plan.runs) == {run, "01ARCHIVED"}


async def test_a_run_is_forgotten_by_the_first_word_of_a_line(library: Library) -> None:
    run = await execute_run(library, "All is well.\nBicycles stand in the hall.\tLocks hang there.")
    plan = await forget(library, query="bicycles locks")
    assert plan.runs == (run,)


@pytest.mark.parametrize("request_key", ["run", "routine"])
async def test_sub_agents_are_forgotten_with_the_run_that_started_them(
    library: Library, request_key: str
) -> None:
    run = await execute_run(library, "Look for the walrus.")
    child = await execute_run(library, "A walrus.", routine="subagent", event=f"{run}/1.0")
    grandchild = await execute_run(library, "Ada.", routine="subagent", event=f"{child}/2.0")
    await execute_run(library, "A seal.", routine="subagent", event="01OTHER/1.0")
    plan = await forget(library, **{request_key: {"run": run, "routine": "daily"}[request_key]})
    assert set(plan.runs) == {run, child, grandchild}


async def test_sub_agents_of_a_run_under_way_are_kept(library: Library) -> None:
    journal = Journal(library.db, clock=library.clock.now)
    claim = Claim(
        routine="daily",
        definition="{}",
        trigger="cron",
        slot=library.clock.now(),
        goal="go",
    )
    (run_under_way,) = await journal.slots.claim([claim])
    assert run_under_way is not None
    event = f"{run_under_way.id}/1.0"
    await execute_run(library, "A walrus.", routine="subagent", event=event)
    plan = await eraser_of(library).plan(ErasureRequest(routine="daily"))
    assert plan.runs == ()
    assert plan.active == (run_under_way.id,)


async def test_a_plan_tells_of_sub_agents_that_the_journal_does_not_have_any_more(
    library: Library,
) -> None:
    run = await execute_run(library, "Look for the walrus.")
    child = await execute_run(library, "A walrus.", routine="subagent", event=f"{run}/1.0")
    await library.run(run, "Look for the walrus.")
    await library.db.write(
        lambda connection: connection.execute("DELETE FROM run WHERE id IN (?, ?)", (run, child))
    )
    plan = await eraser_of(library).plan(ErasureRequest(routine="daily"))
    assert plan.runs == (run,)
    assert any("1 of its sub-agents" in note for note in plan.unreachable)


async def test_a_repeated_report_is_forgotten_with_all_its_runs(library: Library) -> None:
    for day in range(3):
        await library.run(f"01RUN{day}", "The bicycle lock hangs in the hall, as it did before.")
        library.clock.advance(days=1)
    plan = await forget(library, query="bicycle locks")
    assert len(plan.runs) == 3
    assert await library.find_texts("bicycle lock") == []


async def test_what_a_run_recalled_of_a_forgotten_one_is_forgotten(library: Library) -> None:
    secret = 'The "bicycle lock" opens with the number of the house.'
    await library.run("01FIRST", ("agent", secret))
    library.clock.advance(days=1)
    recalled = make_segments(
        ("memory_recall", json.dumps([{"content": secret, "routine": "daily"}])),
        at=library.clock.now(),
        type=SegmentType.TOOL_RESULT,
    )
    await library.archive("01SECOND", recalled, routine="other")
    assert len(await library.find_texts("bicycle lock")) == 2
    await forget(library, run="01FIRST")
    assert [text for text in await library.find_texts("bicycle lock") if "house" in text] == []


async def test_an_empty_name_of_a_routine_is_that_of_none(library: Library) -> None:
    await library.memory.store("note", "The bicycle lock hangs in the hall.")
    assert (await eraser_of(library).plan(ErasureRequest(routine=""))).is_empty
