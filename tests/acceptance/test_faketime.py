"""The real process under a clock that is stepped while it runs: suspends, set clocks and long
outages.

Debian's libfaketime steps the wall clock of one process. The kernel's timerfd does not see that, so
the daemon is asked to look at the clock itself (AGENTD_LONGEST_SLEEP), as it does where there is no
timerfd. What the timerfd does when the clock is set is tested in tests/system/test_timer.py; a real
suspend is tested nowhere.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.acceptance.story import Home, Vendor
from tests.acceptance.test_story import AGENT, EFFECT, config
from tests.delivery.receivers import Receiver

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime: apt install faketime"),
]

DAILY = """
[trigger]
cron = "0 9 * * *"
[run]
prompt = "Say good morning."
"""
MINUTELY = DAILY.replace("0 9 * * *", "* * * * *")


class Clock:
    """The wall clock of everything that runs in a home."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home, self._file = home, folder / "clock"
        self._file.write_text("+0")
        home.env |= {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # else a thread that waits for the interpreter does so by a busy loop
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
            "AGENTD_LONGEST_SLEEP": "0.05",
            "TZ": "UTC",
        }

    def set(self, moment: str) -> None:
        """Set the clock, of whoever runs at this instant too."""
        offset = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() - time.time()
        self._write(f"{offset:+.6f}")

    def hold(self, moment: str) -> None:
        """Let the clock stand still at a moment: however long a start takes on a busy machine, it
        is that moment.
        """
        self._write(moment.replace("T", " "))

    def _write(self, text: str) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(text)
        beside.rename(self._file)

    async def slots(self, enough: Callable[[list[str]], bool] = bool) -> list[str]:
        """Return what became of the slots, oldest first, once there are enough of them."""
        async with asyncio.timeout(120):
            while True:
                slots = (await self.home.agentctl("slots", "--json")).json["items"]
                rows = [_words(row) for row in reversed(slots)]
                if enough(rows):
                    return rows

    async def due(self, moment: str) -> None:
        """Wait until this is the next slot."""
        async with asyncio.timeout(120):
            while (
                not (await self.home.agentctl("next", "--json"))
                .json["items"][0]["at"]
                .startswith(moment)
            ):
                pass


def _words(row: dict[str, Any]) -> str:
    count = f" x{row['count']}" if row["count"] > 1 else ""
    return f"{row['last'][:16]} {row['outcome']}{count}"


@pytest.fixture
async def clock(home: Home, tmp_path: Path) -> AsyncIterator[Clock]:
    return Clock(home, tmp_path)


async def test_a_slot_during_suspend_runs_when_the_machine_wakes(clock: Clock) -> None:
    home = clock.home
    home.routine("morning", DAILY)
    clock.set("2026-01-05T08:50")
    await home.start()
    clock.set("2026-01-05T13:02")
    assert await clock.slots() == ["2026-01-05T09:00 late"]
    why = await home.agentctl("why", "morning", "--at", "09:00")
    assert (
        "morning started 4 h 2 min late for Mon 05 Jan 09:00 UTC: the machine slept over it"
        in why.out
    )
    clock.set("2026-01-06T08:59:59")
    # in the instant of the slot it may still be listed as one of the future, before the others
    await clock.slots(lambda rows: rows[1:] == ["2026-01-06T09:00 ran"])


async def test_the_prompt_of_a_late_run_names_due_time_and_reason(clock: Clock) -> None:
    """OC#73644: the model has to know that eleven o'clock is long past."""
    home = clock.home
    home.routine("market", DAILY.replace("0 9", "0 11"))
    async with Vendor(["Too late for that."]) as vendor:
        settings = f'kind = "open_source"\nmodel = "m"\nbase_url = "{vendor.url}/v1"'
        home.write("config.toml", f'provider = "local"\n[providers.local]\n{settings}\n')
        clock.set("2026-01-05T10:00")
        await home.start()
        await home.stop()
        clock.set("2026-01-05T22:10")
        await home.start()
        async with asyncio.timeout(120):
            await vendor.wait_for_requests(1)
    prompt = str(vendor.requests[0].body)
    assert "2026-01-05 11:00" in prompt
    assert "2026-01-05 22:10" in prompt
    assert "down" in prompt


async def test_a_clock_set_back_repeats_no_slot(clock: Clock) -> None:
    home = clock.home
    home.routine("morning", DAILY)
    clock.set("2026-01-05T08:50")
    await home.start()
    clock.set("2026-01-05T08:59:59")
    assert await clock.slots() == ["2026-01-05T09:00 ran"]
    clock.set("2026-01-05T06:00")
    await clock.due("2026-01-05T09:00")
    clock.set("2026-01-05T08:59:59")
    await clock.due("2026-01-06T09:00")
    clock.set("2026-01-06T08:59:59")
    rows = await clock.slots(lambda rows: len(rows) >= 2)
    assert rows == ["2026-01-05T09:00 ran", "2026-01-06T09:00 ran"]


async def test_a_minutely_job_down_for_ninety_days_is_one_row_and_one_run(clock: Clock) -> None:
    home = clock.home
    home.routine("pulse", MINUTELY)
    clock.hold("2026-01-05T08:50:30")
    await home.start()
    await home.stop()
    clock.hold("2026-04-05T08:50:15")
    await home.start()
    missed_row, ran, *_ = await clock.slots(lambda rows: len(rows) >= 2)
    assert missed_row == "2026-04-05T08:49 missed x129599"
    assert ran == "2026-04-05T08:50 ran"
    why = await home.agentctl("why", "pulse", "--at", "2026-02-14T12:00Z")
    assert "pulse missed Sat 14 Feb 12:00 UTC, as 129599 slots in a row were" in why.out


async def test_a_corrected_clock_of_2031_mutes_no_routine(clock: Clock) -> None:
    home = clock.home
    home.routine("morning", DAILY)
    clock.set("2031-05-05T08:50")
    await home.start()
    clock.set("2031-05-05T08:59:59")
    assert await clock.slots() == ["2031-05-05T09:00 ran"]
    await home.stop()
    clock.set("2026-01-05T08:30")
    await home.start()
    assert "05 Jan 09:00 UTC" in (await home.agentctl("next")).out
    clock.set("2026-01-05T08:59:59")
    rows = await clock.slots(lambda rows: any("2026-01-05" in row for row in rows))
    assert "2026-01-05T09:00 ran" in rows


async def test_a_pause_ends_by_itself_on_time_over_a_restart(clock: Clock) -> None:
    home = clock.home
    home.routine("morning", DAILY)
    clock.set("2026-01-05T08:00")
    await home.start()
    result = await home.agentctl("pause", "morning", "--until", "2026-01-06 12:00")
    assert result.out.startswith("morning is paused until Tue 12:00 UTC")
    await home.kill()
    clock.set("2026-01-06T08:30")
    await home.start()
    assert "paused until" in (await home.agentctl("list")).out
    clock.set("2026-01-07T08:59:59")
    rows = await clock.slots(lambda rows: len(rows) >= 2)
    assert rows == ["2026-01-06T09:00 skipped x2", "2026-01-07T09:00 ran"]


class Waiting:
    """A home in which everything waits that can, and what it waits for."""

    routines: ClassVar = {
        "again": '[run]\nprompt = "Try this later."\n[run.retry]\nattempts = 3\n',
        "says": '[run]\nprompt = "Say this."\n[[deliver]]\nto = "hook"\n',
        "asks": AGENT,
        "rests": DAILY,
        "dated": DAILY,
    }
    turns = (
        {"when": "Try this later.", "error": 529, "message": "Overloaded", "retry_after": 3600},
        {"when": "Try this later.", "text": "Got through."},
        {"when": "Say this.", "text": "Said."},
        {"when": "Append one line.", **EFFECT},
        {"when": "Append one line.", "text": "Nobody answered."},
    )
    policy = 'version = 1\n[[rule]]\ntool = "shell"\neffect = "ask"\n'

    def __init__(self, home: Home, vendor: Vendor) -> None:
        self.home = home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        hook = f'[targets.hook]\nkind = "webhook"\nurl = "http://127.0.0.1:{self.port}/"\n'
        home.write("config.toml", config(vendor, hook))
        home.write("policy.toml", self.policy)
        for name, text in self.routines.items():
            home.routine(name, text)

    async def begin(self) -> None:
        """Let a run be put off, a report not arrive, a question be asked, and routines be
        paused.
        """
        home = self.home
        self.runs = {}
        for name, event in (
            ("again", "run.retry_scheduled"),
            ("says", "delivery.retry_scheduled"),
            ("asks", "run.waiting"),
        ):
            self.runs[name] = (await home.agentctl("run", name, "--detach")).out.strip()
            await home.wait_for_log(event, run=self.runs[name])
        assert (await home.agentctl("pause", "rests", "--until", "2h")).code == 0
        assert (await home.agentctl("pause", "dated", "--until", "2060-01-01")).code == 0

    async def instants(self) -> dict[str, str]:
        """Return until when everything waits, to the hour."""
        home = self.home
        (run,) = [
            item
            for item in (await home.agentctl("runs", "--json")).json["items"]
            if item["routine"] == "again"
        ]
        (delivery,) = (await home.agentctl("deliveries", "--json")).json["items"]
        (question,) = (await home.agentctl("approvals", "--json")).json["items"]
        pauses = {
            routine["name"]: routine
            for routine in (await home.agentctl("list", "--json")).json["items"]
        }
        instants = {
            "run": run["not_before"],
            "delivery": delivery["next_at"],
            "question": question["expires"],
        }
        instants |= {name: pauses[name]["paused_until"] for name in ("rests", "dated")}
        return {name: instant[:13] for name, instant in instants.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize(
    "ahead", ["2026-01-08T08:00", "2046-01-05T08:00"], ids=["3 days", "20 years"]
)
async def test_retries_and_approvals_begun_with_a_clock_ahead_keep_their_waiting_time(
    clock: Clock, ahead: str, is_stopped: bool
) -> None:
    home, turns = clock.home, list(Waiting.turns)
    async with Vendor(turns) as vendor:
        waits = Waiting(home, vendor)
        clock.set(ahead)
        await home.start()
        await waits.begin()
        if is_stopped:
            await home.kill()
        clock.set("2026-01-05T08:05")
        if is_stopped:
            await home.start()
        (log_line,) = await home.wait_for_log("clock.waits_moved")
        assert (log_line["runs"], log_line["pauses"]) == ([waits.runs["again"]], ["rests"])
        assert (len(log_line["deliveries"]), len(log_line["questions"])) == (1, 1)
        # the engine reads the pauses after it was logged that they were moved
        async with asyncio.timeout(120):
            while (instants := await waits.instants())["rests"] != "2026-01-05T10":
                pass
        assert instants == {
            "run": "2026-01-05T09",
            "delivery": "2026-01-05T08",
            "question": "2026-01-06T08",
            "rests": "2026-01-05T10",
            "dated": "2060-01-01T00",
        }
        result = await home.agentctl("inspect", waits.runs["again"])
        assert "its time was moved, as the clock was set back" in result.out
        assert "queued until 09:0" in (await home.agentctl("status")).out

        receiver = Receiver()
        async with await asyncio.start_server(receiver._serve, "127.0.0.1", waits.port):
            clock.set("2026-01-05T09:30")
            await home.wait_for_log("delivery.arrived", run=waits.runs["says"])
            assert (await home.until(waits.runs["again"], "run_ended"))["report"] == "Got through."
        clock.set("2026-01-06T08:30")
        assert (await home.until(waits.runs["asks"], "run_ended"))["report"] == "Nobody answered."
        assert await home.stop() == 0
    assert [line for line in home.log_lines() if line["event"] == "clock.waits_moved"] == [log_line]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
async def test_late_starts_spread_with_a_clock_ahead_start_within_their_spread(
    clock: Clock, is_stopped: bool
) -> None:
    home, names = clock.home, [f"late-{number}" for number in range(20)]
    for name in names:
        home.routine(name, DAILY)
    clock.set("2026-01-08T08:50")
    await home.start()
    await home.stop()
    clock.hold("2026-01-08T10:00:00")
    await home.start()  # the last one starts 57 s later
    if is_stopped:
        await home.kill()
    clock.set("2026-01-05T10:00")
    if is_stopped:
        await home.start()
    (log_line,) = await home.wait_for_log("clock.waits_moved")
    assert log_line["runs"]
    clock.set("2026-01-05T10:03")
    ended_runs = await home.wait_for_log("run.finished", times=len(names))
    assert {line["routine"] for line in ended_runs} == set(names)
    rows = await clock.slots()
    assert sorted(rows) == ["2026-01-08T09:00 caught_up"] * len(names), "each slot once"
