"""Every report is delivered or fails visibly, and targets do not affect each other."""

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from daemon.definitions.config.config import Config
from daemon.delivery.outbox import Outbox, wait_after
from daemon.delivery.targets import Targets
from daemon.errors import DeliveryFailed, StoreFull, TargetAbsent
from daemon.models import DeliveryStatus, Receipt, Status
from daemon.store.incidents import IncidentSettings
from daemon.store.outbox import OutboxRepository
from daemon.telemetry.redaction import Secrets

REPORT = ("file", {"path": "reports/{routine}/{slot:%Y-%m-%d}.md", "trigger": "manual"})


class Target:
    """A target that does what it is told, in order, and in the end takes everything."""

    def __init__(self, *plan) -> None:
        self.plan, self.texts, self.call_event = list(plan), [], asyncio.Event()

    async def send(self, delivery):
        self.call_event.set()
        match self.plan.pop(0) if self.plan else None:
            case asyncio.Event() as gate:
                await gate.wait()
            case Exception() as error:
                raise error
        self.texts.append(delivery.report.text)
        return Receipt(detail=f"got {delivery.id}")


@pytest.fixture
def channel(workspace):
    """The real channels of a config without targets of its own."""
    return Targets(Config(), workspace=workspace, env={}, secrets=Secrets()).channel


@pytest.fixture
def outbox_of(journal, clock, channel):
    """Build an outbox over these targets (by default the real channels)."""
    return lambda **targets: Outbox(
        journal=journal,
        channel=targets.__getitem__ if targets else channel,
        clock=clock,
        redact=str,
    )


@asynccontextmanager
async def run_outbox(outbox):
    """Let the outbox run for the length of a block."""
    task = asyncio.create_task(outbox.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(journal, *statuses, limit=60.0):
    """Wait until the deliveries, oldest first, have these statuses; each look lets everything else
    go on.
    """
    async with asyncio.timeout(limit):
        while True:
            current = [delivery.status.value for delivery in reversed(await journal.outbox.find())]
            if current == list(statuses):
                return
            await asyncio.sleep(0)


def test_retry_delay_doubles_from_half_a_minute_to_an_hour_for_a_day():
    waits, attempts = [], 1
    while (wait := wait_after(attempts)) is not None:
        waits.append(wait)
        attempts += 1
    assert [wait.total_seconds() for wait in waits[:8]] == [30, 60, 120, 240, 480, 960, 1920, 3600]
    assert set(waits[7:]) == {timedelta(hours=1)}
    assert timedelta(hours=22) < sum(waits, timedelta()) <= timedelta(hours=24)


async def test_a_report_arrives_and_its_receipt_is_kept(journal, end_run, outbox_of, workspace):
    run = await end_run([REPORT])
    async with run_outbox(outbox_of()) as task:  # nobody rings: it looks by itself when it starts
        await until(journal, "delivered")
        assert not task.done()
    [delivery] = await journal.outbox.find(run=run.id)
    assert delivery.receipt == str(workspace / "reports/daily-report/2026-11-20.md")


async def test_wake_makes_an_idle_outbox_deliver(journal, end_run, outbox_of):
    target = Target()
    outbox = outbox_of(log=target)
    async with run_outbox(outbox):
        await end_run([("log", {})], report="one")
        outbox.wake()
        await until(journal, "delivered")
        await end_run([("log", {})], report="two")
        outbox.wake()
        await until(journal, "delivered", "delivered")
    assert target.texts == ["one", "two"]


async def test_a_failed_delivery_is_retried_exactly_when_due(journal, end_run, outbox_of, clock):
    target = Target(DeliveryFailed("the door is shut"))
    outbox = outbox_of(log=target)
    await end_run([("log", {})])
    await outbox.flush()
    [delivery] = await journal.outbox.find()
    assert (delivery.status, delivery.attempts, delivery.error) == (
        DeliveryStatus.PENDING,
        1,
        "the door is shut",
    )
    assert delivery.next_at == clock.now() + timedelta(seconds=30)
    clock.advance(seconds=29)
    await outbox.flush()
    assert target.texts == []
    clock.advance(seconds=1)
    await outbox.flush()
    assert target.texts == ["All is well."]


async def test_the_outbox_wakes_by_itself_for_the_next_retry(journal, end_run, outbox_of, clock):
    target = Target(DeliveryFailed("not yet"))
    await end_run([("log", {})])
    await outbox_of(log=target).flush()
    clock.advance(seconds=29.95)
    async with run_outbox(outbox_of(log=target)):
        # it sets its timer for the twentieth of a second that is left
        while not asyncio.get_running_loop()._scheduled:
            await journal.outbox.get_next_due()
        clock.advance(seconds=0.05)
        await until(journal, "delivered")


async def test_permanent_error_gives_up_at_once(journal, end_run, outbox_of):
    await end_run([("log", {})])
    with capture_logs() as logs:
        await outbox_of(log=Target(DeliveryFailed("no such place", retry=False))).flush()
    [delivery] = await journal.outbox.find()
    assert (delivery.status, delivery.error) == (DeliveryStatus.FAILED, "no such place")
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("delivery.failed", "error"),
        ("incident.undeliverable", "error"),  # there is no other place to say it
    ]


async def test_an_absent_target_is_left_out_with_one_note_and_without_an_incident(
    journal, end_run, outbox_of
):
    journal.incidents.settings = IncidentSettings(to=("desktop", "pager"))
    absent, pager = [TargetAbsent("no desktop")] * 9, Target()
    outbox = outbox_of(desktop=Target(*absent), pager=pager)
    with capture_logs() as logs:
        for _ in range(3):
            await end_run([("desktop", {})])
            await outbox.flush()
    assert [(item.status, item.error) for item in await journal.outbox.find()] == [
        (DeliveryStatus.SUPPRESSED, "left out: no desktop")
    ] * 3
    assert [line["event"] for line in logs if line["log_level"] != "debug"] == ["delivery.left_out"]
    assert await journal.incidents.find() == [] and pager.texts == []


async def test_an_alert_for_an_absent_target_goes_to_another(journal, outbox_of):
    journal.incidents.settings = IncidentSettings(to=("desktop", "pager"))
    pager = Target()
    outbox = outbox_of(desktop=Target(*[TargetAbsent("no desktop")] * 9), pager=pager)
    await journal.incidents.report("disk", "it is full")
    await outbox.flush()
    await outbox.flush()
    assert len(pager.texts) == 1
    statuses = {item.target: item.status for item in await journal.outbox.find()}
    assert statuses == {
        "desktop": DeliveryStatus.SUPPRESSED,
        "pager": DeliveryStatus.DELIVERED,
    }


async def test_a_delivery_fails_for_good_after_a_day_of_retries(journal, end_run, outbox_of, clock):
    outbox = outbox_of(log=Target(*[DeliveryFailed("down")] * 100))
    await end_run([("log", {})])
    began = clock.now()
    while due := await journal.outbox.get_next_due():
        clock.move_to(max(clock.now(), due))
        await outbox.flush()
    [delivery] = await journal.outbox.find()
    assert delivery.status is DeliveryStatus.FAILED
    assert timedelta(hours=22) < clock.now() - began <= timedelta(hours=24)


async def test_a_delivery_is_retried_after_a_week_of_downtime(journal, end_run, outbox_of, clock):
    target = Target(DeliveryFailed("down"))
    outbox = outbox_of(log=target)
    await end_run([("log", {})])
    await outbox.flush()
    clock.advance(days=7)
    await outbox.flush()
    assert target.texts == ["All is well."]


async def test_a_crashing_channel_does_not_affect_other_deliveries(journal, end_run, outbox_of):
    target = Target()
    await end_run([("broken", {}), ("log", {})])
    with capture_logs() as logs:
        await outbox_of(broken=Target(ZeroDivisionError("oops")), log=target).flush()
    broken_delivery, good_delivery = reversed(await journal.outbox.find())
    assert (broken_delivery.status, broken_delivery.error) == (
        DeliveryStatus.PENDING,
        "ZeroDivisionError: oops",
    )
    assert good_delivery.status is DeliveryStatus.DELIVERED
    assert "delivery.crashed" in [line["event"] for line in logs]


async def test_hanging_target_delays_no_other_target(journal, end_run, outbox_of):
    gate, target = asyncio.Event(), Target()
    outbox = outbox_of(slow=Target(gate), log=target)
    async with run_outbox(outbox):
        await end_run([("slow", {}), ("log", {})])
        outbox.wake()
        await until(journal, "pending", "delivered")
        await end_run([("log", {})])
        outbox.wake()
        await until(journal, "pending", "delivered", "delivered")
        gate.set()
        await until(journal, "delivered", "delivered", "delivered")


async def test_hanging_target_delays_no_retry_of_another_target(journal, end_run, outbox_of, clock):
    """Nobody wakes the outbox: the busy target's delivery is not the next one that is due."""
    slow, target = Target(asyncio.Event()), Target(DeliveryFailed("not yet"))
    await end_run([("log", {})])
    await outbox_of(log=target).flush()
    clock.advance(seconds=29.95)
    await end_run([("slow", {})])
    async with run_outbox(outbox_of(slow=slow, log=target)):
        await slow.call_event.wait()
        clock.advance(seconds=0.05)
        await until(journal, "delivered", "pending")


async def test_reports_reach_one_target_in_order(journal, end_run, outbox_of):
    target = Target()
    for number in range(5):
        await end_run([("log", {})], report=str(number))
    await outbox_of(log=target).flush()
    assert target.texts == ["0", "1", "2", "3", "4"]


async def test_a_report_added_while_its_target_is_busy_is_delivered(journal, end_run, outbox_of):
    gate = asyncio.Event()
    target = Target(gate)
    outbox = outbox_of(log=target)
    async with run_outbox(outbox):
        await end_run([("log", {})], report="one")
        outbox.wake()
        await target.call_event.wait()
        await end_run([("log", {})], report="two")
        outbox.wake()
        gate.set()
        await until(journal, "delivered", "delivered")
    assert target.texts == ["one", "two"]


async def test_a_delivery_to_a_removed_target_stays_pending(journal, end_run, outbox_of):
    await end_run([("mail", {})])
    await outbox_of().flush()
    [delivery] = await journal.outbox.find()
    assert delivery.status is DeliveryStatus.PENDING
    assert delivery.error == "there is no target 'mail'; known are desktop, file, log"


async def test_a_silent_run_has_a_suppressed_delivery(journal, end_run, outbox_of):
    target = Target()
    await end_run([("log", {})], silent=True)
    await outbox_of(log=target).flush()
    assert target.texts == []
    assert [delivery.status for delivery in await journal.outbox.find()] == [
        DeliveryStatus.SUPPRESSED
    ]


async def test_a_delivery_interrupted_by_a_shutdown_is_sent_after_the_next_start(
    journal, end_run, outbox_of
):
    hanging_target = Target(asyncio.Event())
    await end_run([("log", {})])
    async with run_outbox(outbox_of(log=hanging_target)):
        await hanging_target.call_event.wait()
    target = Target()
    await outbox_of(log=target).flush()
    assert target.texts == ["All is well."]


async def test_a_report_sent_without_a_recorded_receipt_is_still_one_file(
    journal, end_run, outbox_of, channel, workspace
):
    """As after kill -9 between the file and the receipt."""
    await end_run([REPORT])
    [delivery] = await journal.outbox.find_due((await journal.outbox.find())[0].next_at)
    await channel("file").send(delivery)
    await outbox_of().flush()
    assert [delivery.status for delivery in await journal.outbox.find()] == [
        DeliveryStatus.DELIVERED
    ]
    assert len(list((workspace / "reports/daily-report").iterdir())) == 1


async def test_failure_is_delivered_like_a_report(journal, end_run, outbox_of, workspace):
    await end_run([REPORT], status=Status.FAILED, report=None, detail="the key is wrong")
    await outbox_of().flush()
    text = (workspace / "reports/daily-report/2026-11-20.md").read_text()
    assert text.startswith("# daily-report failed, 2026-11-20 08:30 CET\n")
    assert "the key is wrong" in text


async def test_the_log_channel_writes_one_event_with_the_text(journal, end_run, outbox_of):
    await end_run([("log", {})], report="# Morning\n\nAll is well.")
    with capture_logs() as logs:
        await outbox_of().flush()
    [log_line] = [line for line in logs if line["event"] == "report.written"]
    assert (log_line["title"], log_line["text"], log_line["status"]) == (
        "Morning",
        "All is well.",
        "succeeded",
    )
    assert log_line["log_level"] == "info"


async def test_a_notice_of_no_routine_is_logged_with_its_kind(journal, outbox_of):
    journal.incidents.settings = IncidentSettings(to=("log",))
    await journal.incidents.report("disk", "it is full")
    with capture_logs() as logs:
        await outbox_of().flush()
    [arrival] = [line for line in logs if line["event"] == "delivery.arrived"]
    assert (arrival["routine"], arrival["notice"]) == ("", "incident.opened")


class FullOutbox(OutboxRepository):
    """A repository whose disk is full when a receipt is to be written."""

    def __init__(self, journal) -> None:
        super().__init__(journal._db, clock=journal._clock)
        self.attempt_event = asyncio.Event()

    async def mark_delivered(self, id_, receipt):
        self.attempt_event.set()
        raise StoreFull("the disk is full")


async def test_full_disk_neither_stops_the_outbox_nor_makes_it_spin(journal, end_run, clock):
    target, full = Target(), FullOutbox(journal)
    journal.outbox = full
    outbox = Outbox(journal=journal, channel=lambda name: target, clock=clock)
    with capture_logs() as logs:
        await end_run([("log", {})])
        async with run_outbox(outbox) as task:
            await full.attempt_event.wait()
            for _ in range(50):
                outbox.wake()
                await asyncio.sleep(0)
            assert not task.done()
    assert len(target.texts) == 1
    assert [line["event"] for line in logs] == ["delivery.arrived", "delivery.unrecorded"]


async def test_an_outbox_with_nothing_to_do_sets_no_timer(journal, outbox_of):
    async with run_outbox(outbox_of()):
        await until(journal)
        loop = asyncio.get_running_loop()
        for _ in range(20):
            await journal.outbox.get_next_due()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


async def test_a_report_that_arrived_is_not_sent_again_while_the_disk_is_full(
    journal, end_run, clock
):
    target, repository = Target(), journal.outbox
    journal.outbox = FullOutbox(journal)
    outbox = Outbox(journal=journal, channel=lambda name: target, clock=clock)
    await end_run([("log", {})])
    full_disk = asyncio.create_task(outbox.flush())
    await journal.outbox.attempt_event.wait()
    full_disk.cancel()
    with suppress(asyncio.CancelledError):
        await full_disk
    journal.outbox = repository
    await outbox.flush()
    [delivery] = await journal.outbox.find()
    assert (len(target.texts), delivery.status, delivery.receipt) == (
        1,
        DeliveryStatus.DELIVERED,
        f"got {delivery.id}",
    )


async def test_a_full_disk_that_a_channel_meets_is_no_failure_of_its_target(
    journal, end_run, outbox_of
):
    target = Target(StoreFull("the disk is full"))
    outbox = outbox_of(log=target)
    await end_run([("log", {})])
    with capture_logs() as logs:
        full_disk = asyncio.create_task(outbox.flush())
        await target.call_event.wait()
        full_disk.cancel()
        with suppress(asyncio.CancelledError):
            await full_disk
    assert [line["event"] for line in logs] == ["delivery.unrecorded"]
    await outbox.flush()
    [delivery] = await journal.outbox.find()
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.DELIVERED, 1)


class HeldTarget(Target):
    """A target that answers when it is let go: with an error, if one is given."""

    def __init__(self, error=None) -> None:
        self.release_event = asyncio.Event()
        super().__init__(self.release_event)
        self.error = error

    async def send(self, delivery):
        receipt = await super().send(delivery)
        if self.error:
            raise self.error
        return receipt


async def test_a_delivery_that_is_dropped_while_it_is_sent_stays_dropped(
    journal, end_run, outbox_of
):
    target = HeldTarget(DeliveryFailed("no answer"))
    await end_run([("log", {})])
    sending = asyncio.create_task(outbox_of(log=target).flush())
    await target.call_event.wait()
    [delivery] = await journal.outbox.find()
    await journal.outbox.drop(delivery.id)
    target.release_event.set()
    with capture_logs() as logs:
        await sending
    [delivery] = await journal.outbox.find()
    assert (delivery.status, delivery.next_at) == (DeliveryStatus.SUPPRESSED, None)
    assert logs == [], "nothing is tried again"


async def test_a_delivery_that_is_dropped_while_it_waits_for_its_target_is_not_sent(
    journal, end_run, outbox_of
):
    target = HeldTarget()
    await end_run([("log", {})], report="one")
    await end_run([("log", {})], report="two")
    sending = asyncio.create_task(outbox_of(log=target).flush())
    await target.call_event.wait()
    second, _ = await journal.outbox.find()
    await journal.outbox.drop(second.id)
    target.release_event.set()
    await sending
    assert target.texts == ["one"]


async def test_a_late_report_does_not_replace_a_newer_one(
    journal, end_run, outbox_of, workspace, clock
):
    deliveries = [("file", {"path": "latest.md"})]
    (workspace / "latest.md").mkdir()
    await end_run(deliveries, report="The older one.")
    await outbox_of().flush()
    (workspace / "latest.md").rmdir()
    newer_run = await end_run(deliveries, report="The newer one.")
    await outbox_of().flush()
    clock.advance(seconds=30)
    await outbox_of().flush()
    assert "The newer one." in (workspace / "latest.md").read_text()
    _, late = await journal.outbox.find()
    assert late.receipt == f"{workspace / 'latest.md'}, where run {newer_run.id} is already"
    assert sorted(path.name for path in workspace.iterdir()) == ["latest.md"]
