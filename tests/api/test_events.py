from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.api.events import watch
from daemon.models import Run, Status, Step
from daemon.runs.events import BACKLOG
from tests.api.harness import STEPS, ApiHarness, ask, open_harness


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

    async def rest(self) -> list[dict[str, Any]]:
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
        begun, started, finished = [await stream.event() for _ in range(3)]
        harness.events.publish(run.id, {"type": "thinking"})
        thinking = await stream.event()
        await harness.write_steps(run, *STEPS[2:])
        await harness.end(run)
        rest = await stream.rest()
    assert (begun["type"], begun["goal"]) == ("run_started", "Write the report.")
    assert started["args"] == {"parts": ["load"]}
    assert (finished["ok"], finished["preview"], finished["seconds"]) == (True, "load 0.1", 0.012)
    assert (thinking["type"], thinking["routine"]) == ("thinking", "daily-report")
    assert [event["type"] for event in rest] == WHOLE[3:]
    assert rest[2]["preview"] == "[failed] denied\nby default\nor not"
    assert (rest[-1]["status"], rest[-1]["report"]) == (
        "succeeded",
        "# All is well\n\nNothing to do.",
    )
    assert all(
        event["run"] == run.id and event["at"] for event in [started, finished, thinking, *rest]
    )


async def test_who_comes_late_is_told_what_has_happened(harness: ApiHarness) -> None:
    run = await harness.complete_run()
    async with following(harness, run.id[-8:]) as stream:
        assert [event["type"] for event in await stream.rest()] == WHOLE


async def test_who_comes_in_the_middle_misses_nothing_and_hears_nothing_twice(
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
        for each in (early, stream):
            events = await each.rest()
            assert [event["type"] for event in events] == WHOLE
            numbers = [event["id"] for event in events if "id" in event]
            assert numbers == sorted(set(numbers))
        await late.__aexit__(None, None, None)


async def test_a_client_that_lost_the_stream_goes_on_behind_its_last_event(
    harness: ApiHarness,
) -> None:
    run = await harness.complete_run()
    async with following(harness, run.id, "?after=4") as stream:
        assert [event["type"] for event in await stream.rest()] == WHOLE[4:]


async def test_a_client_that_disconnects_mid_stream_harms_nobody(harness: ApiHarness) -> None:
    run = await harness.take()
    async with following(harness, run.id) as patient:
        async with following(harness, run.id) as hasty:
            await hasty.event()
            hasty.writer.transport.abort()
        await harness.write_steps(run, *STEPS)
        await harness.end(run)
        assert [event["type"] for event in await patient.rest()] == WHOLE
    assert (await ask(harness.path, "GET", "/v1/status")).status == 200
    for _ in range(100):  # the server hears of the disconnect on one of its next turns
        await asyncio.sleep(0)
    assert not harness.events._followers


async def test_a_client_that_reads_nothing_holds_nobody_up_and_loses_no_step(
    harness: ApiHarness,
) -> None:
    run = await harness.take()
    async with following(harness, run.id) as stream:
        await stream.event()
        await harness.write_steps(run, *STEPS[:2])
        for _ in range(
            BACKLOG + 10
        ):  # more than is kept for one follower: the oldest are dropped, steps among them
            harness.events.publish(run.id, {"type": "delta", "text": "x"})
        await harness.write_steps(run, *STEPS[2:])
        await harness.end(run)
        told = [event["type"] for event in await stream.rest() if event["type"] != "delta"]
    assert told == WHOLE[1:]


async def test_what_the_bus_drops_while_the_past_is_told_is_read_again(harness: ApiHarness) -> None:
    run = await harness.take()
    await harness.write_steps(run, *STEPS[:2])
    events = watch(run.id, harness.journal.runs, harness.events)
    told = [(await anext(events))["type"] for _ in range(2)]
    await harness.write_steps(run, *STEPS[2:])
    for _ in range(BACKLOG):
        harness.events.publish(run.id, {"type": "delta", "text": "x"})
    await harness.end(run)
    told += [event["type"] async for event in events if event["type"] != "delta"]
    assert told == WHOLE


async def test_half_a_character_does_not_break_an_answer(harness: ApiHarness) -> None:
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
        self.harness, self.begun = harness, False

    async def get(self, run_id: str) -> Run:
        run = await self.harness.journal.runs.get(run_id)
        if not self.begun:
            self.begun = True
            taken = await self.harness.journal.runs.claim(run_id, owner="test")
            assert taken is not None
            await self.harness.write_steps(taken, *STEPS)
            await self.harness.end(taken)
        return run

    async def get_steps(self, run_id: str) -> list[Step]:
        return await self.harness.journal.runs.get_steps(run_id)


async def test_a_run_that_begins_while_its_row_is_read_is_told_from_its_first_event(
    harness: ApiHarness,
) -> None:
    run = await harness.claim()
    events = watch(run.id, Late(harness), harness.events)
    assert [event["type"] async for event in events] == WHOLE


async def test_a_run_that_is_cancelled_in_line_ends_its_stream(harness: ApiHarness) -> None:
    run = await harness.claim()
    async with following(harness, run.id) as stream:
        await ask(harness.path, "POST", f"/v1/runs/{run.id}/cancel")
        (end,) = await stream.rest()
    assert (end["type"], end["status"]) == ("run_ended", "cancelled")


async def test_a_suspended_run_is_followed_on(harness: ApiHarness) -> None:
    run = await harness.take()
    async with following(harness, run.id) as stream:
        await harness.write_steps(run, *STEPS[:2])
        run = await harness.journal.runs.suspend(run)
        run = await harness.journal.runs.claim(run.id, owner="test") or run
        await harness.write_steps(run, *STEPS[2:])
        await harness.end(run, Status.SUCCEEDED)
        assert [event["type"] for event in await stream.rest()] == WHOLE


async def test_streams_end_cleanly_when_the_daemon_stops(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run = await harness.take()
        async with following(harness, run.id) as stream:
            await stream.event()
            harness.server.stop()
            assert await stream.rest() == []
