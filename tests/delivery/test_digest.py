"""The digest, sent when due and once; and ping targets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from daemon.definitions.config.tables import DigestConfig
from daemon.delivery.channels.ping import PingChannel
from daemon.delivery.digest import Digest, digest_body, digest_line, last_due, next_due
from daemon.errors import DeliveryFailed
from daemon.models import DeliveryStatus, Outcome, Reason, Status
from daemon.store.history import DigestTotals, RoutineDigest
from daemon.testing import FakeClock
from tests.delivery.receivers import Receiver
from tests.store.conftest import Ledger, db, ledger  # noqa: F401  fixtures

BERLIN = ZoneInfo("Europe/Berlin")
DAILY, WEEKLY = DigestConfig(every="day"), DigestConfig(every="week", day="fri", at="17:30")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("config", "now", "last", "next_"),
    [
        (DAILY, "2026-11-20 08:00", "2026-11-20 08:00", "2026-11-21 08:00"),
        (DAILY, "2026-11-20 07:59", "2026-11-19 08:00", "2026-11-20 08:00"),
        (
            DAILY,
            "2026-03-29 12:00",
            "2026-03-29 08:00",
            "2026-03-30 08:00",
        ),  # a night of 23 hours lies before it
        (WEEKLY, "2026-11-20 17:29", "2026-11-13 17:30", "2026-11-20 17:30"),
        (WEEKLY, "2026-11-20 18:00", "2026-11-20 17:30", "2026-11-27 17:30"),
    ],
)
def test_digest_is_due_at_the_same_local_hour(config, now, last, next_):
    assert (last_due(config, at(now), BERLIN), next_due(config, at(now), BERLIN)) == (
        at(last),
        at(next_),
    )


def test_digest_summarizes_the_day_in_one_line():
    totals = DigestTotals(
        routines=(
            RoutineDigest(routine="heartbeat", runs=46, quiet=46),
            RoutineDigest(routine="report", runs=1, failures=1, missed=2),
        ),
        undelivered=1,
        dollars=0.0251,
    )
    assert (
        digest_line(totals)
        == "47 checks, 46 quiet, 1 alert, 2 missed, 1 report not delivered, $0.03"
    )
    text = digest_body(totals, at("2026-11-19 08:00"), at("2026-11-20 08:00"))
    assert "- report: 1 run, 1 alert, 2 missed" in text and "- quiet: heartbeat" in text
    assert "2026-11-19 08:00 to 2026-11-20 08:00 CET" in text


@pytest.fixture
def clock():
    return FakeClock(datetime(2026, 11, 20, 6, 0, tzinfo=UTC))


def digest(ledger, clock, *, to=("log",)):  # noqa: F811
    config = DigestConfig(every="day", to=to)
    return Digest(
        ledger.journal,
        SimpleNamespace(wake=lambda: None),
        clock=clock,
        settings=SimpleNamespace(zone=BERLIN, config=SimpleNamespace(digest=config)),
    )


async def test_digest_is_sent_once_a_day_and_a_missed_digest_later(ledger, clock):  # noqa: F811
    for status, silent in ((Status.SUCCEEDED, True), (Status.FAILED, False)):
        run = await ledger.start_run()
        await ledger.journal.runs.end(run.to(status, silent=silent, detail="x"))
    clock.move_to(clock.now() + timedelta(hours=2))  # 09:02 in Berlin
    for _ in range(3):
        await digest(ledger, clock).send_if_due()
    [delivery] = await ledger.journal.outbox.find()
    assert (delivery.options["notice"], delivery.options["title"]) == (
        "digest",
        "2 checks, 1 quiet, 1 alert, 0 missed, $0.00",
    )
    assert (delivery.run, delivery.target) == ("", "log")
    clock.move_to(clock.now() + timedelta(days=3))
    for _ in range(2):
        await digest(ledger, clock).send_if_due()
    assert len(await ledger.journal.outbox.find()) == 2, "one for the days nobody was there"


async def test_a_run_that_fails_after_a_digest_is_an_alert_of_the_next(ledger, clock):  # noqa: F811
    run = await ledger.start_run()
    titles = []
    for _ in range(3):
        clock.move_to(clock.now() + timedelta(days=1))
        await digest(ledger, clock).send_if_due()
        if not titles:
            await ledger.journal.runs.end(run.to(Status.FAILED, detail="x"))
        titles.append(await ledger.journal.outbox.find(limit=1))
    assert [deliveries[0].options["title"] for deliveries in titles if deliveries] == [
        "1 check, 0 quiet, 1 alert, 0 missed, $0.00",
        "0 checks, 0 quiet, 0 alerts, 0 missed, $0.00",
    ]


async def test_slots_that_are_missed_each_night_are_counted_once(ledger, clock):  # noqa: F811
    for _ in range(3):
        await ledger.journal.slots.account(
            "nightly",
            first=clock.now(),
            last=clock.now(),
            count=1,
            outcome=Outcome.MISSED,
            reason=Reason.DOWN,
        )
        clock.move_to(clock.now() + timedelta(days=1))
        await digest(ledger, clock).send_if_due()
    titles = {delivery.options["title"] for delivery in await ledger.journal.outbox.find()}
    assert titles == {"0 checks, 0 quiet, 0 alerts, 1 missed, $0.00"}


async def test_a_report_that_was_tried_for_a_day_is_counted_when_it_is_given_up(ledger, clock):  # noqa: F811
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [("mail", {})])
    [delivery] = await ledger.journal.outbox.find()
    titles = []
    for next_at in (clock.now() + timedelta(days=1), None, None):
        if delivery.status is DeliveryStatus.PENDING:
            await ledger.journal.outbox.mark_failed(delivery.id, "nobody there", next_at)
        clock.move_to(clock.now() + timedelta(days=1))
        await digest(ledger, clock).send_if_due()
        [sent, *_] = await ledger.journal.outbox.find(limit=1)
        titles.append(sent.options["title"])
        [delivery] = await ledger.journal.outbox.find(run=run.id)
    assert ["1 report not delivered" in title for title in titles] == [False, True, False]


async def test_first_start_sends_no_digest(ledger, clock):  # noqa: F811
    await digest(ledger, clock).send_if_due()
    assert (
        await ledger.journal.outbox.find() == []
        and await ledger.journal.outbox.get_digest_mark() is not None
    )


async def test_ping_target_receives_start_success_and_failure(home):
    async with Receiver(200, 200, 200, 200).open() as receiver:
        home.write(
            "config.toml",
            f'[targets.alive]\nkind = "ping"\nurl = "http://127.0.0.1:{receiver.port}/uuid"\n',
        )
        home.routine("good", 'ping = "alive"\n[run]\nprompt = "x"\nsilent_token = "x"\n')
        await home.start()
        assert (await home.agentctl("run", "good")).code == 0
        await home.wait_for_log("delivery.arrived", target="alive")
        await home.stop()
    start, end = sorted(receiver.posts, key=lambda post: "start" not in post.target)
    assert start.target.startswith("/uuid/start?rid=") and end.target.startswith("/uuid?rid=")
    assert start.target.partition("rid=")[2] == end.target.partition("rid=")[2], "the same run"


async def test_a_late_ping_is_dropped(delivery_of_old):
    with pytest.raises(DeliveryFailed, match="too late") as error:
        await PingChannel("http://127.0.0.1:1/x").send(delivery_of_old)
    assert not error.value.retry


async def test_a_ping_that_was_put_off_hides_no_later_one(delivery_of_old):
    now = datetime.now(UTC)
    success = replace(delivery_of_old, created=now)
    failure = replace(
        delivery_of_old,
        id=2,
        attempts=0,
        options={"ping": "fail"},
        created=now + timedelta(minutes=1),
    )
    async with Receiver(200, 200).open() as receiver:
        channel = PingChannel(f"http://127.0.0.1:{receiver.port}/uuid")
        await channel.send(failure)
        receipt = await channel.send(success)
    assert [post.target.partition("?")[0] for post in receiver.posts] == ["/uuid/fail"]
    assert receipt.detail == "not sent, as a later one was sent meanwhile"


async def test_a_ping_that_was_put_off_is_sent_after_one_of_another_routine(delivery_of_old):
    now = datetime.now(UTC)
    failure = replace(delivery_of_old, options={"ping": "fail"}, created=now)
    other_success = replace(
        delivery_of_old, id=2, routine="y", attempts=0, created=now + timedelta(minutes=1)
    )
    async with Receiver(503, 200, 200).open() as receiver:
        channel = PingChannel(f"http://127.0.0.1:{receiver.port}/uuid")
        with pytest.raises(DeliveryFailed, match="503"):
            await channel.send(replace(failure, attempts=0))
        await channel.send(other_success)
        receipt = await channel.send(failure)
    paths = [post.target.partition("?")[0] for post in receiver.posts]
    assert paths == ["/uuid/fail", "/uuid", "/uuid/fail"]
    assert receipt.detail == "200 for fail"


@pytest.fixture
def delivery_of_old():
    from daemon.models import Delivery, DeliveryStatus, Report

    old = datetime(2020, 1, 1, tzinfo=UTC)
    report = Report(run="r", routine="x", slot=old, status=Status.SUCCEEDED, text="")
    return Delivery(
        id=1, run="r", routine="x", target="alive", options={"ping": "success"}, status=DeliveryStatus.PENDING,  # noqa: E501
        attempts=1, next_at=None, receipt=None, error=None, report=report, created=old,
    )  # fmt: skip
