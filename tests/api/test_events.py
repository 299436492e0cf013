from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from daemon.api.events import follow_one
from daemon.models import Run, Status, Step
from daemon.runs.events import BACKLOG, retry_of
from tests.api.harness import NOW, STEPS, ApiHarness, ask, open_harness


@dataclass
class Stream:
    """A client that listens by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def event(self) -> dict[str, Any]:
        """Return the next event; an empty one when the stream has ended."""
        while True:
            size = int(await self.reader.readline() or b"0", 16)
            frame = (await self.reader.readexactly(size)).decode()
            await self.reader.readline()
            if not size:
                return {}
            for line in frame.splitlines():
                if line.startswith("data: "):
                    return dict(json.loads(line.removeprefix("data: ")))

    async def read_remaining(self) -> list[dict[str, Any]]:
        events = []
        while event := await self.event():
            events.append(event)
        return events


@asynccontextmanager
async def following(harness: ApiHarness, run_id: str, query: str = "") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_unix_connection(os.fspath(harness.path))
    writer.write(f"GET /v1/runs/{run_id}/events{query} HTTP/1.1\r\nHost: agentd\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert head.startswith("HTTP/1.1 200")
    assert "text/event-stream" in head
    try:
        yield Stream(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


WHOLE = [
    "run_started",
    "tool_started",
    "tool_finished",
    "message",
    "tool_started",
    "tool_finished",
    "run_ended",
]


async def test_a_run_is_streamed_from_its_first_event_to_its_last(harness: ApiHarness) -> None:
    run = await harness.claim()
    async with following(harness, run.id) as stream:
        run = await harness.journal.runs.claim(run.id, owner="test") or run
        for step in STEPS[:2]:
            await harness.write_steps(run, step)
        run_start, start, finish = [await stream.event() for _ in range(3)]
        harness.events.publish(run.id, {"type": "thinking"})
        thinking = await stream.event()
        await harness.write_steps(run, *STEPS[2:])
        await harness.end(run)
        later_events = await stream.read_remaining()
    assert (run_start["type"], run_start["goal"]) == ("run_started", "Write the report.")
    assert start["args"] == {"parts": ["load"]}
    assert (finish["ok"], finish["preview"], finish["seconds"]) == (True, "load 0.1", 0.012)
    assert (thinking["type"], thinking["routine"]) == ("thinking", "daily-report")
    assert [event["type"] for event in later_events] == WHOLE[3:]
    assert later_events[2]["preview"] == "[failed] denied\nby default\nor not"
    assert (later_events[-1]["status"], later_events[-1]["report"]) == (
        "succeeded",
        "# All is well\n\nNothing to do.",
    )
    assert all(
        event["run"] == run.id and event["at"] for event in [start, finish, thinking, *later_events]
    )


async def test_a_late_follower_receives_all_earlier_events(harness: ApiHarness) -> None:
    run = await harness.complete_run()
    async with following(harness, run.id[-8:]) as stream:
        assert [event["type"] for event in await stream.read_remaining()] == WHOLE


async def test_a_follower_joining_a_running_run_receives_each_event_once(
    harness: ApiHarness,
) -> None:
    run = await harness.take()
    async with following(harness, run.id) as early:
        for number, step in enumerate(STEPS):
            await harness.write_steps(run, step)
            if number == 3:
                late = following(harness, run.id)
                stream = await late.__aenter__()
        await harness.end(run)
        for follower in (early, stream):
            events = await follower.read_remaining()
            assert [event["type"] for event in events] == WHOLE
            numbers = [event["id"] for event in events if "id" in event]
            assert numbers == sorted(set(numbers))
        await late.__aexit__(None, None, None)


async def test_a_follower_resumes_after_its_last_event_id(
    harness: ApiHarness,
) -> None:
    run = await harness.complete_run()
    async with following(harness, run.id, "?after=4") as stream:
        assert [event["type"] for event in await stream.read_remaining()] == WHOLE[4:]


async def test_a_disconnected_follower_does_not_affect_other_followers(harness: ApiHarness) -> None:
    run = await harness.take()
    async with following(harness, run.id) as patient:
        async with following(harness, run.id) as hasty:
            await hasty.event()
            hasty.writer.transport.abort()
        await harness.write_steps(run, *STEPS)
        await harness.end(run)
        assert [event["type"] for event in await patient.read_remaining()] == WHOLE
    assert (await ask(harness.path, "GET", "/v1/status")).status == 200
    for _ in range(100):  # the server hears of the disconnect on one of its next turns
        await asyncio.sleep(0)
    assert not harness.events._followers


async def test_a_slow_follower_delays_no_run_and_loses_no_step(
    harness: ApiHarness,
) -> None:
    run = await harness.take()
    async with following(harness, run.id) as stream:
        await stream.event()
        await harness.write_steps(run, *STEPS[:2])
        # more than is kept for one follower: the oldest are dropped, steps among them
        for _ in range(BACKLOG + 10):
            harness.events.publish(run.id, {"type": "delta", "text": "x"})
        await harness.write_steps(run, *STEPS[2:])
        await harness.end(run)
        event_types = [
            event["type"] for event in await stream.read_remaining() if event["type"] != "delta"
        ]
    assert event_types == WHOLE[1:]


async def test_events_dropped_by_the_bus_are_read_from_the_journal(harness: ApiHarness) -> None:
    run = await harness.take()
    await harness.write_steps(run, *STEPS[:2])
    events = follow_one(run.id, harness.journal.runs, harness.events)
    event_types = [(await anext(events))["type"] for _ in range(2)]
    await harness.write_steps(run, *STEPS[2:])
    for _ in range(BACKLOG):
        harness.events.publish(run.id, {"type": "delta", "text": "x"})
    await harness.end(run)
    event_types += [event["type"] async for event in events if event["type"] != "delta"]
    assert event_types == WHOLE


async def test_an_unpaired_surrogate_does_not_break_an_answer(harness: ApiHarness) -> None:
    run = await harness.take()
    harness.events.publish(run.id, {"type": "delta", "text": "never sent"})
    async with following(harness, run.id) as stream:
        await stream.event()
        harness.events.publish(run.id, {"type": "delta", "text": "caf\udce9"})
        assert (await stream.event())["text"] == "caf?"
    answer = await ask(harness.path, "GET", "/v1/routines/caf%ED%B3%A9")
    assert answer.status == 404


class Late:
    """A journal of which a run begins just after its row was read."""

    def __init__(self, harness: ApiHarness) -> None:
        self.harness, self.has_begun = harness, False

    async def get(self, run_id: str) -> Run:
        run = await self.harness.journal.runs.get(run_id)
        if not self.has_begun:
            self.has_begun = True
            claimed_run = await self.harness.journal.runs.claim(run_id, owner="test")
            assert claimed_run is not None
            await self.harness.write_steps(claimed_run, *STEPS)
            await self.harness.end(claimed_run)
        return run

    async def get_steps(self, run_id: str) -> list[Step]:
        return await self.harness.journal.runs.get_steps(run_id)


async def test_a_run_starting_while_its_row_is_read_is_followed_from_its_first_event(
    harness: ApiHarness,
) -> None:
    run = await harness.claim()
    events = follow_one(run.id, Late(harness), harness.events)
    assert [event["type"] async for event in events] == WHOLE


async def test_cancelling_a_queued_run_ends_its_event_stream(harness: ApiHarness) -> None:
    run = await harness.claim()
    async with following(harness, run.id) as stream:
        await ask(harness.path, "POST", f"/v1/runs/{run.id}/cancel")
        (end,) = await stream.read_remaining()
    assert (end["type"], end["status"]) == ("run_ended", "cancelled")


async def test_a_suspended_run_keeps_its_followers(harness: ApiHarness) -> None:
    run = await harness.take()
    async with following(harness, run.id) as stream:
        await harness.write_steps(run, *STEPS[:2])
        run = await harness.journal.runs.suspend(run)
        run = await harness.journal.runs.claim(run.id, owner="test") or run
        await harness.write_steps(run, *STEPS[2:])
        await harness.end(run, Status.SUCCEEDED)
        assert [event["type"] for event in await stream.read_remaining()] == WHOLE


async def test_a_run_that_was_put_off_says_until_when_and_why(harness: ApiHarness) -> None:
    run = await harness.take()
    until = NOW + timedelta(seconds=30)
    async with following(harness, run.id) as stream:
        assert (await stream.event())["type"] == "run_started"
        run = await harness.journal.runs.suspend(run, not_before=until, detail="nobody listens")
        harness.events.publish(run.id, retry_of(run) or {})
        event = await stream.event()
    assert (event["type"], event["detail"]) == ("run_retry_scheduled", "nobody listens")
    assert datetime.fromisoformat(event["until"]) == until
    async with following(harness, run.id) as stream:  # who comes late is told as well
        assert [(await stream.event())["type"] for _ in range(2)] == [
            "run_started",
            "run_retry_scheduled",
        ]


async def test_streams_end_cleanly_when_the_daemon_stops(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run = await harness.take()
        async with following(harness, run.id) as stream:
            await stream.event()
            harness.server.stop()
            assert await stream.read_remaining() == []
