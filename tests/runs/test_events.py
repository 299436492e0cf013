from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.agent.transcript import preview
from daemon.models import Run, Status, Step, StepKind
from daemon.runs.events import BACKLOG, EventBus, begin_of, event_of_step, from_steps
from daemon.testing import TestApp

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
    one_run, every = events.follow("R1"), events.follow()
    events.publish("R1", {"type": "thinking"})
    events.publish("R2", {"type": "thinking"})
    events.close()
    assert [event["run"] async for event in one_run] == ["R1"]
    assert [event["run"] async for event in every] == ["R1", "R2"]


async def test_a_waiting_follower_is_woken() -> None:
    events = EventBus()
    follower = events.follow("R1")
    next_event = asyncio.create_task(anext(follower))
    await asyncio.sleep(0)
    events.publish("R1", {"type": "thinking"})
    event = await next_event
    assert event["type"] == "thinking"
    assert datetime.fromisoformat(event["at"]).tzinfo is not None


async def test_following_a_closed_bus_ends_at_once() -> None:
    events = EventBus()
    events.close()
    assert [event async for event in events.follow()] == []


async def test_a_dropped_or_closed_follower_is_removed_from_the_bus() -> None:
    events = EventBus()
    closed_follower = events.follow()
    closed_follower.close()
    events.follow()
    gc.collect()
    assert not events._followers
    events.publish("R1", {"type": "thinking"})
    assert [event async for event in closed_follower] == []


async def test_a_slow_follower_misses_old_events_and_memory_stays_bounded() -> None:
    events = EventBus()
    slow = events.follow()
    for number in range(BACKLOG):
        events.publish("R1", {"type": "delta", "text": str(number)})
    assert not slow.missed
    events.publish("R1", {"type": "delta", "text": "last"})
    assert slow.missed
    events.close()
    texts = [event["text"] async for event in slow]
    assert (len(texts), texts[0], texts[-1]) == (BACKLOG, "1", "last")


def test_steps_become_events_with_the_step_number_as_id() -> None:
    stamp = {"id": 4, "run": "R1", "routine": "daily", "at": "2026-11-20T08:30:00.000+00:00"}
    call = step(StepKind.CALL, tool="shell", arguments={"command": "ls"})
    where = {"call": "1.0", "iteration": 1}
    assert event_of_step(RUN, call) == {
        "type": "tool_started", **stamp, "tool": "shell", "args": {"command": "ls"}, **where
    }  # fmt: skip
    result = step(StepKind.RESULT, tool="shell", ok=True, text="a\nb", seconds=0.5)
    assert event_of_step(RUN, result) == {
        "type": "tool_finished", **stamp, "tool": "shell", "ok": True, "preview": "a", (
            "seconds"
        ): 0.5, **where
    }  # fmt: skip
    answer = step(StepKind.LLM, content="hello", calls=[])
    assert event_of_step(RUN, answer) == {
        "type": "message",
        **stamp,
        "text": "hello",
        "iteration": 1,
    }


def test_steps_without_news_for_a_watcher_become_no_event() -> None:
    assert event_of_step(RUN, step(StepKind.PROMPT, system="…")) is None
    assert event_of_step(RUN, step(StepKind.LLM, content=" \n", calls=[])) is None
    assert event_of_step(RUN, step(StepKind.MESSAGE, text="goal")) is None
    assert event_of_step(RUN, step(StepKind.FAILOVER, to="local")) is None


def test_events_of_a_run_are_made_from_its_row_and_steps() -> None:
    steps = [step(StepKind.PROMPT, system="…"), step(StepKind.LLM, content="hello", calls=[])]
    assert [event["type"] for event in from_steps(RUN, steps)] == ["run_started", "message"]
    ended_run = RUN.to(Status.FAILED, detail="no key", report=None, ended=AT)
    *_, end = from_steps(ended_run, steps)
    expected = {
        "type": "run_ended",
        "status": "failed",
        "detail": "no key",
        "report": None,
        "silent": False,
    }
    assert end.items() >= expected.items()
    assert begin_of(RUN)["goal"] == ""


def test_a_preview_is_one_line_of_a_success_and_three_of_a_failure() -> None:
    text = "\none\ntwo\nthree\nfour\n"
    assert preview(True, text) == "one"
    assert preview(False, text) == "one\ntwo\nthree"
    assert preview(True, "") == ""


async def test_a_follower_of_all_runs_receives_each_run_from_its_start_in_order(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
    app.write_routine(
        "load", '[run]\nprompt = "Look."\nmode = "agent"\ntools = ["sysinfo"]\nmemory = "none"\n'
    )
    async with app:
        events = app.daemon.runs.events.follow()
        call = {"name": "sysinfo", "arguments": {"parts": ["load"]}}
        app.model.enqueue({"reasoning": "I need the load.", "tool_calls": [call]}, "It is idle.")
        await app.run("load")
    stream = [event async for event in events]
    assert [event["type"] for event in stream] == [
        "run_started",
        "thinking",
        "thinking",
        "tool_started",
        "tool_finished",
        "thinking",
        "message",
        "run_ended",
    ]
    assert stream[0]["goal"] == "Look."
    assert stream[2]["text"] == "I need the load."
    assert {event["routine"] for event in stream} == {"load"}
