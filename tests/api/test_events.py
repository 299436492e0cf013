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
from tests.api.house import STEPS, House, ask, built


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
async def following(house: House, run_id: str, query: str = "") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_unix_connection(os.fspath(house.path))
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


async def test_a_run_is_streamed_from_its_first_event_to_its_last(house: House) -> None:
    run = await house.claim()
    async with following(house, run.id) as stream:
        run = await house.journal.runs.claim(run.id, owner="test") or run
        for step in STEPS[:2]:
            await house.live(run, step)
        begun, started, finished = [await stream.event() for _ in range(3)]
        house.events.publish(run.id, {"type": "thinking"})
        thinking = await stream.event()
        await house.live(run, *STEPS[2:])
        await house.end(run)
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


async def test_who_comes_late_is_told_what_has_happened(house: House) -> None:
    run = await house.whole_run()
    async with following(house, run.id[-8:]) as stream:
        assert [event["type"] for event in await stream.rest()] == WHOLE


async def test_who_comes_in_the_middle_misses_nothing_and_hears_nothing_twice(house: House) -> None:
    run = await house.take()
    async with following(house, run.id) as early:
        for number, step in enumerate(STEPS):
            await house.live(run, step)
            if number == 3:
                late = following(house, run.id)
                stream = await late.__aenter__()
        await house.end(run)
        for each in (early, stream):
            events = await each.rest()
            assert [event["type"] for event in events] == WHOLE
            numbers = [event["id"] for event in events if "id" in event]
            assert numbers == sorted(set(numbers))
        await late.__aexit__(None, None, None)


async def test_a_client_that_lost_the_stream_goes_on_behind_its_last_event(house: House) -> None:
    run = await house.whole_run()
    async with following(house, run.id, "?after=4") as stream:
        assert [event["type"] for event in await stream.rest()] == WHOLE[4:]


async def test_a_client_that_disconnects_mid_stream_harms_nobody(house: House) -> None:
    run = await house.take()
    async with following(house, run.id) as patient:
        async with following(house, run.id) as hasty:
            await hasty.event()
            hasty.writer.transport.abort()
        await house.live(run, *STEPS)
        await house.end(run)
        assert [event["type"] for event in await patient.rest()] == WHOLE
    assert (await ask(house.path, "GET", "/v1/status")).status == 200
    for _ in range(100):  # the server hears of the disconnect on one of its next turns
        await asyncio.sleep(0)
    assert not house.events._followers


async def test_a_client_that_reads_nothing_holds_nobody_up_and_loses_no_step(house: House) -> None:
    run = await house.take()
    async with following(house, run.id) as stream:
        await stream.event()
        await house.live(run, *STEPS[:2])
        for _ in range(
            BACKLOG + 10
        ):  # more than is kept for one follower: the oldest are dropped, steps among them
            house.events.publish(run.id, {"type": "delta", "text": "x"})
        await house.live(run, *STEPS[2:])
        await house.end(run)
        told = [event["type"] for event in await stream.rest() if event["type"] != "delta"]
    assert told == WHOLE[1:]


async def test_what_the_bus_drops_while_the_past_is_told_is_read_again(house: House) -> None:
    run = await house.take()
    await house.live(run, *STEPS[:2])
    events = watch(run.id, house.journal.runs, house.events)
    told = [(await anext(events))["type"] for _ in range(2)]
    await house.live(run, *STEPS[2:])
    for _ in range(BACKLOG):
        house.events.publish(run.id, {"type": "delta", "text": "x"})
    await house.end(run)
    told += [event["type"] async for event in events if event["type"] != "delta"]
    assert told == WHOLE


async def test_half_a_character_does_not_break_an_answer(house: House) -> None:
    run = await house.take()
    house.events.publish(run.id, {"type": "delta", "text": "never sent"})
    async with following(house, run.id) as stream:
        await stream.event()
        house.events.publish(run.id, {"type": "delta", "text": "caf\udce9"})
        assert (await stream.event())["text"] == "caf?"
    answer = await ask(house.path, "GET", "/v1/routines/caf%ED%B3%A9")
    assert answer.status == 404


class Late:
    """Runs of which one begins just after its row was read."""

    def __init__(self, house: House) -> None:
        self.house, self.begun = house, False

    async def get(self, run_id: str) -> Run:
        run = await self.house.journal.runs.get(run_id)
        if not self.begun:
            self.begun = True
            taken = await self.house.journal.runs.claim(run_id, owner="test")
            assert taken is not None
            await self.house.live(taken, *STEPS)
            await self.house.end(taken)
        return run

    async def get_steps(self, run_id: str) -> list[Step]:
        return await self.house.journal.runs.get_steps(run_id)


async def test_a_run_that_begins_while_its_row_is_read_is_told_from_its_first_event(
    house: House,
) -> None:
    run = await house.claim()
    events = watch(run.id, Late(house), house.events)
    assert [event["type"] async for event in events] == WHOLE


async def test_a_run_that_is_cancelled_in_line_ends_its_stream(house: House) -> None:
    run = await house.claim()
    async with following(house, run.id) as stream:
        await ask(house.path, "POST", f"/v1/runs/{run.id}/cancel")
        (end,) = await stream.rest()
    assert (end["type"], end["status"]) == ("run_ended", "cancelled")


async def test_a_suspended_run_is_followed_on(house: House) -> None:
    run = await house.take()
    async with following(house, run.id) as stream:
        await house.live(run, *STEPS[:2])
        run = await house.journal.runs.suspend(run)
        run = await house.journal.runs.claim(run.id, owner="test") or run
        await house.live(run, *STEPS[2:])
        await house.end(run, Status.SUCCEEDED)
        assert [event["type"] for event in await stream.rest()] == WHOLE


async def test_streams_end_cleanly_when_the_daemon_stops(tmp_path: Path) -> None:
    async with built(tmp_path) as house:
        run = await house.take()
        async with following(house, run.id) as stream:
            await stream.event()
            house.server.stop()
            assert await stream.rest() == []
