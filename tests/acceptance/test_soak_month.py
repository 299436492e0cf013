"""Weeks of operation in seconds, with everything going wrong by lot: `pytest -m soak --soak-seconds
600`.

The real daemon lives under a clock that the test turns: hours at a time, over suspends, and back.
Its model fails in all the ways vendors do, its receivers refuse, hang and lie, and it is killed,
stopped and told to reload in between. Then all is well for a day or two, and the books are looked
at: every slot is accounted for once, every report has a receipt or is in the open as a dead letter,
and nobody was called twice about one thing.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.story import Home
from tests.acceptance.test_faketime import LIBRARY, Clock
from tests.delivery.receivers import Receiver
from tests.fakes.vendor import FakeVendor

pytestmark = [
    pytest.mark.process,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime: apt install faketime"),
]

START = datetime(2026, 3, 20, 6, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
CONFIG = """
provider = "vendor"
[providers.vendor]
kind = "open_source"
model = "m"
base_url = "{vendor}/v1"
timeout = "1s"
[targets.far]
kind = "webhook"
url = "{far}"
timeout = "0.5s"
[targets.phone]
kind = "webhook"
url = "{phone}"
timeout = "2s"
[incidents]
to = ["phone"]
remind = "365d"
[daemon]
grace = "1s"
"""
ROUTINE = """
[trigger]
cron = "{cron}"
catch_up = "{catch_up}"
[run]
prompt = "Report."
memory = "none"
{more}
[run.retry]
attempts = 2
backoff = "1s"
max = "1s"
[[deliver]]
to = "far"
[[deliver]]
to = "file"
path = "reports/{{routine}}/{{slot:%Y-%m-%dT%H%M}}.md"
"""
ROUTINES = {
    "hourly": ROUTINE.format(cron="0 * * * *", catch_up="once", more=""),
    "half": ROUTINE.format(cron="*/30 * * * *", catch_up="none", more='fallback = ["offline"]'),
    "night": ROUTINE.format(cron="30 2 * * *", catch_up="6h", more=""),
}
WELL = {"text": "All is well."}
FAULTS: list[Any] = [
    {"error": 500}, {"error": 503}, {"error": 401}, {"error": 429, "retry_after": 1}, {(
        "hang"
    ): True}, {(
        "reset"
    ): True},
    {"empty": True}, {"raw": "<html>log in</html>", "content_type": "text/html"}, {**WELL, (
        "truncate"
    ): 40},
]  # fmt: skip
MOVED = b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n"
ANSWERS: list[Any] = [503, 500, None, "cut", 429, MOVED, 410]


def mostly(lot: random.Random, good: Any, bad: list[Any], share: float) -> Iterator[Any]:
    while True:
        yield lot.choice(bad) if lot.random() < share else good


class Moody(list[Any]):
    """A plan without an end, of which each answer is drawn when it is due; `well` ends the
    moods.
    """

    def __init__(self, lot: random.Random, good: Any, bad: list[Any]) -> None:
        super().__init__([{}])
        self._behavior, self._good, self.well = mostly(lot, good, bad, 0.4), good, False

    def pop(self, _index: Any = 0) -> Any:
        return self._good if self.well else next(self._behavior)


class Month:
    """The home, its clock, and everybody it speaks to."""

    def __init__(self, home: Home, clock: Clock, lot: random.Random) -> None:
        self.home, self.clock, self.lot, self.now = home, clock, lot, START
        self.deeds: Counter[str] = Counter()

    def turn(self, by: timedelta) -> None:
        self.now += by
        self.clock.set(self.now.replace(tzinfo=None).isoformat())

    async def act_at_random(self) -> None:
        """Do what may happen to a daemon, after some hours."""
        deed = self.lot.choice(
            ["pass", "pass", "pass", "jump", "back", "kill", "kill", "stop", "reload"]
        )
        self.deeds[deed] += 1
        match deed:
            case "pass":
                for _ in range(self.lot.randint(1, 4)):
                    self.turn(timedelta(minutes=self.lot.randint(5, 45)))
                    await asyncio.sleep(self.lot.uniform(0, 0.3))
            case "jump":
                self.turn(self.lot.uniform(1, 30) * HOUR)
            case "back":
                self.turn(-self.lot.uniform(0.1, 3) * HOUR)
            case "kill" | "stop":
                await (self.home.kill() if deed == "kill" else self.home.stop())
                self.turn(self.lot.choice([0, 0, 1, 9, 40]) * HOUR)
                await self.home.start()
            case "reload":
                self.home.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(self.lot.uniform(0, 0.4))

    async def wait_until_settled(self) -> None:
        """Let hours pass until nothing is under way any more."""
        for name in ROUTINES:
            assert (await self.home.agentctl("pause", name)).code == 0
        async with asyncio.timeout(600):
            while True:
                self.turn(HOUR)
                status = (await self.home.agentctl("status", "--json")).json
                deliveries = status["counts"].get("deliveries") or {}
                if not status["active"] and not deliveries.get("pending"):
                    return
                await asyncio.sleep(0.2)


def rows(home: Home, query: str) -> list[tuple[Any, ...]]:
    with closing(
        sqlite3.connect(f"{(home.state / 'agentd.db').as_uri()}?mode=ro", uri=True)
    ) as connection:
        return connection.execute(query).fetchall()


async def test_after_weeks_of_faults_every_slot_report_and_incident_is_accounted_for(
    home: Home, tmp_path: Path, request: Any
) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    lot, clock = random.Random(seed), Clock(home, tmp_path)
    far, phone = Receiver(), Receiver()
    far.plan = Moody(lot, 204, ANSWERS)
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(FakeVendor([], strict=False))
        moods = vendor.script.turns = Moody(lot, WELL, FAULTS)
        for receiver in (far, phone):
            await stack.enter_async_context(receiver.open())
        home.write("config.toml", CONFIG.format(vendor=vendor.url, far=far.url, phone=phone.url))
        for name, text in ROUTINES.items():
            home.routine(name, text)
        month = Month(home, clock, lot)
        month.turn(timedelta())
        await home.start()
        end = time.monotonic() + request.config.getoption("--soak-seconds")
        while time.monotonic() < end or sum(month.deeds.values()) < 15:
            await month.act_at_random()
        moods.well = far.plan.well = True
        trouble = time.monotonic()
        await month.wait_until_settled()
        print(f"settled after {time.monotonic() - trouble:.0f} s")
        assert await home.stop() == 0
    print(dict(month.deeds), month.now.isoformat())
    _every_slot_is_accounted_for_once(home)
    _every_report_arrived_or_lies_in_the_open(home, far)
    _nobody_was_called_twice(home, phone)


def _every_slot_is_accounted_for_once(home: Home) -> None:
    for name, period in (("hourly", 3600), ("half", 1800)):
        minutes: list[int] = []
        for first, last, count in rows(
            home, f"SELECT first, last, count FROM slot WHERE routine = '{name}'"
        ):
            run = list(range(first // 10**6, last // 10**6 + 1, period))
            assert len(run) == count, (name, first, last, count)
            minutes += run
        assert len(minutes) == len(set(minutes)), f"a slot of {name} stands in two rows"
        assert sorted(minutes) == list(range(min(minutes), max(minutes) + 1, period)), (
            f"a slot of {name} was lost"
        )
    twice = rows(
        home,
        (
            "SELECT routine, slot, count(*) FROM run WHERE event IS NULL GROUP BY 1, 2 HAVING "
            "count(*) > 1"
        ),
    )
    assert not twice
    assert not rows(home, "SELECT id, status FROM run WHERE ended IS NULL")


def _every_report_arrived_or_lies_in_the_open(home: Home, far: Receiver) -> None:
    deliveries = rows(home, "SELECT status, receipt, error FROM outbox")
    assert deliveries and {status for status, _, _ in deliveries} <= {
        "delivered",
        "failed",
        "suppressed",
    }
    assert all(receipt for status, receipt, _ in deliveries if status == "delivered")
    assert all(error for status, _, error in deliveries if status == "failed")
    ended_runs = {
        run
        for (run,) in rows(home, "SELECT id FROM run WHERE status NOT IN ('skipped', 'cancelled')")
    }
    reported_runs = {
        run for (run,) in rows(home, "SELECT run_id FROM outbox WHERE target = 'file'")
    }
    assert ended_runs <= reported_runs, "the end of a run and its deliveries are one commit"
    webhook_ids = {post.headers["webhook-id"] for post in far.posts}
    receipts = rows(
        home, "SELECT run_id, id FROM outbox WHERE target = 'far' AND status = 'delivered'"
    )
    assert {f"{run or 'notice'}-{id_}" for run, id_ in receipts} <= webhook_ids, (
        "a receipt for what never came"
    )


def _nobody_was_called_twice(home: Home, phone: Receiver) -> None:
    assert len({post.headers["webhook-id"] for post in phone.posts}) == len(phone.posts), (
        "it took every call at once"
    )
    alerts: Counter[tuple[str, Any]] = Counter()
    for options, status in rows(home, "SELECT options, status FROM outbox WHERE target = 'phone'"):
        options_of_delivery = json.loads(options)
        if status != "suppressed" and options_of_delivery.get("incident"):
            alerts["incident", options_of_delivery["incident"]] += 1
    assert set(alerts.values()) <= {1}, alerts
    incident_count = rows(home, "SELECT count(*) FROM incident")[0][0]
    calls = rows(
        home, "SELECT options FROM outbox WHERE target = 'phone' AND status != 'suppressed'"
    )
    notices = Counter(json.loads(text).get("notice") or "alert" for (text,) in calls)
    assert notices["alert"] + notices["incident.opened"] <= incident_count, (
        notices,
        incident_count,
    )
