from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime
from typing import Any

from daemon.agent.call_events import preview
from daemon.models import Run, Status, Step, StepKind
from daemon.runs.events import BACKLOG, EventBus, begin_of, from_steps, of_step

AT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
RUN = Run(
    id="R1",
    routine="daily",
    definition="d",
    trigger="cron",
    slot=AT,
    created=AT,
    started=AT,
    status=Status.RUNNING,
)


def step(kind: StepKind, **body: Any) -> Step:
    return Step(kind=kind, iteration=1, body=body, call_id="1.0", seq=4, at=AT)


async def test_follower_receives_all_later_events_of_its_run_only() -> None:
    events = EventBus()
    events.publish("R1", {"type": "before"})
    one, every = events.follow("R1"), events.follow()
    events.publish("R1", {"type": "thinking"})
    events.publish("R2", {"type": "thinking"})
    events.close()
    assert [event["run"] async for event in one] == ["R1"]
    assert [event["run"] async for event in every] == ["R1", "R2"]


async def test_a_waiting_follower_is_woken() -> None:
    events = EventBus()
    follower = events.follow("R1")
    waiting = asyncio.create_task(anext(follower))
    await asyncio.sleep(0)
    events.publish("R1", {"type": "thinking"})
    event = await waiting
    assert event["type"] == "thinking"
    assert datetime.fromisoformat(event["at"]).tzinfo is not None


async def test_following_a_closed_bus_ends_at_once() -> None:
    events = EventBus()
    events.close()
    assert [event async for event in events.follow()] == []


async def test_a_follower_that_is_dropped_or_closed_costs_nothing_more() -> None:
    events = EventBus()
    closed = events.follow()
    closed.close()
    events.follow()
    gc.collect()
    assert not events._followers
    events.publish("R1", {"type": "thinking"})
    assert [event async for event in closed] == []


async def test_a_follower_that_does_not_keep_up_is_told_so_and_memory_stays_bounded() -> None:
    events = EventBus()
    slow = events.follow()
    for number in range(BACKLOG):
        events.publish("R1", {"type": "delta", "text": str(number)})
    assert not slow.missed
    events.publish("R1", {"type": "delta", "text": "last"})
    assert slow.missed
    events.close()
    kept = [event["text"] async for event in slow]
    assert (len(kept), kept[0], kept[-1]) == (BACKLOG, "1", "last")


def test_steps_stand_for_events_with_their_number_as_id() -> None:
    stamp = {"id": 4, "run": "R1", "routine": "daily", "at": "2026-11-20T08:30:00.000+00:00"}
    call = step(StepKind.CALL, tool="shell", arguments={"command": "ls"})
    where = {"call": "1.0", "iteration": 1}
    assert of_step(RUN, call) == {
        "type": "tool_started", **stamp, "tool": "shell", "args": {"command": "ls"}, **where
    }  # fmt: skip
    result = step(StepKind.RESULT, tool="shell", ok=True, text="a\nb", seconds=0.5)
    assert of_step(RUN, result) == {
        "type": "tool_finished", **stamp, "tool": "shell", "ok": True, "preview": "a", (
            "seconds"
        ): 0.5, **where
    }  # fmt: skip
    said = step(StepKind.LLM, content="hello", calls=[])
    assert of_step(RUN, said) == {"type": "message", **stamp, "text": "hello", "iteration": 1}


def test_steps_that_say_nothing_to_a_watcher_stand_for_no_event() -> None:
    assert of_step(RUN, step(StepKind.PROMPT, system="…")) is None
    assert of_step(RUN, step(StepKind.LLM, content=" \n", calls=[])) is None
    assert of_step(RUN, step(StepKind.MESSAGE, text="goal")) is None
    assert of_step(RUN, step(StepKind.FAILOVER, to="local")) is None


def test_a_run_is_told_from_its_row_and_steps() -> None:
    steps = [step(StepKind.PROMPT, system="…"), step(StepKind.LLM, content="hello", calls=[])]
    assert [event["type"] for event in from_steps(RUN, steps)] == ["run_started", "message"]
    ended = RUN.to(Status.FAILED, detail="no key", report=None, ended=AT)
    *_, end = from_steps(ended, steps)
    told = {
        "type": "run_ended",
        "status": "failed",
        "detail": "no key",
        "report": None,
        "silent": False,
    }
    assert end.items() >= told.items()
    assert begin_of(RUN)["goal"] == ""


def test_a_preview_is_one_line_of_a_success_and_three_of_a_failure() -> None:
    text = "\none\ntwo\nthree\nfour\n"
    assert preview(True, text) == "one"
    assert preview(False, text) == "one\ntwo\nthree"
    assert preview(True, "") == ""
