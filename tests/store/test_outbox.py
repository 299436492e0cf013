"""A delivery exists from the commit that ends its run until it is delivered or fails."""

from __future__ import annotations

from datetime import timedelta

import pytest

from daemon.errors import NotFound, Refused
from daemon.models import DeliveryStatus, Run, Status
from daemon.testing import FakeClock
from tests.store.conftest import Ledger


async def end_run(ledger: Ledger, status: Status = Status.SUCCEEDED, **changes: object) -> Run:
    run = await ledger.start_run()
    deliveries = [("file", {"path": "{slot:%d}.md"}), ("log", {})]
    return await ledger.journal.runs.end(
        run.to(status, **changes), deliveries, zone="Europe/Berlin"
    )


async def test_deliveries_of_an_ended_run_are_due_at_once(ledger: Ledger, clock: FakeClock) -> None:
    run = await end_run(ledger, report="# All well")
    file, log = await ledger.journal.outbox.find_due(clock.now())
    assert (file.target, file.options, file.attempts, file.created) == (
        "file",
        {"path": "{slot:%d}.md"},
        0,
        run.ended,
    )
    assert (file.report.text, file.report.slot, file.report.scheduled_zone) == (
        "# All well",
        run.slot,
        "Europe/Berlin",
    )
    assert (log.target, log.report.status, log.routine) == ("log", Status.SUCCEEDED, "daily")
    assert await ledger.journal.outbox.get_next_due() == clock.now()


async def test_a_failed_run_without_a_report_delivers_the_reason(
    ledger: Ledger, clock: FakeClock
) -> None:
    await end_run(ledger, Status.FAILED, detail="the model gave no answer")
    due = await ledger.journal.outbox.find_due(clock.now())
    assert {delivery.report.text for delivery in due} == {"the model gave no answer"}


async def test_deliveries_of_a_silent_run_are_suppressed(ledger: Ledger, clock: FakeClock) -> None:
    run = await end_run(ledger, report="NOTHING", silent=True)
    assert await ledger.journal.outbox.find_due(clock.now() + timedelta(days=9)) == []
    assert await ledger.journal.outbox.get_next_due() is None
    deliveries = await ledger.journal.outbox.find(run=run.id)
    assert {delivery.status for delivery in deliveries} == {DeliveryStatus.SUPPRESSED}


async def test_a_delivered_delivery_is_due_no_more(ledger: Ledger, clock: FakeClock) -> None:
    await end_run(ledger)
    file, log = await ledger.journal.outbox.find_due(clock.now())
    await ledger.journal.outbox.mark_delivered(file.id, "/reports/02.md")
    assert [delivery.id for delivery in await ledger.journal.outbox.find_due(clock.now())] == [
        log.id
    ]
    (delivered_file,) = await ledger.journal.outbox.find(status=DeliveryStatus.DELIVERED)
    assert (
        delivered_file.receipt,
        delivered_file.attempts,
        delivered_file.next_at,
        delivered_file.error,
    ) == (
        "/reports/02.md",
        1,
        None,
        None,
    )


async def test_a_failed_delivery_is_due_again_at_its_retry_time(
    ledger: Ledger, clock: FakeClock
) -> None:
    await end_run(ledger)
    file, log = await ledger.journal.outbox.find_due(clock.now())
    later = clock.now() + timedelta(seconds=30)
    await ledger.journal.outbox.mark_failed(file.id, "disk \udcff full", later)
    assert await ledger.journal.outbox.get_next_due(busy=["log", "mail"]) == later
    assert await ledger.journal.outbox.get_next_due(busy=["file", "log"]) is None
    await ledger.journal.outbox.mark_delivered(log.id, "logged")
    assert await ledger.journal.outbox.find_due(clock.now()) == []
    assert await ledger.journal.outbox.get_next_due() == later
    (again,) = await ledger.journal.outbox.find_due(later)
    assert (again.id, again.attempts, again.error, again.status) == (
        file.id,
        1,
        "disk ? full",
        DeliveryStatus.PENDING,
    )


async def test_a_delivery_given_up_is_listed_as_failed(ledger: Ledger, clock: FakeClock) -> None:
    run = await end_run(ledger)
    file, _ = await ledger.journal.outbox.find_due(clock.now())
    await ledger.journal.outbox.mark_failed(file.id, "no such folder", None)
    (delivery,) = await ledger.journal.outbox.find(run=run.id, status=DeliveryStatus.FAILED)
    assert (delivery.error, delivery.attempts) == ("no such folder", 1)


async def test_deliveries_are_found_for_several_runs_at_once(ledger: Ledger) -> None:
    runs = [await end_run(ledger) for _ in range(3)]
    deliveries = await ledger.journal.outbox.find_of_runs([runs[0].id, runs[2].id])
    assert [delivery.run for delivery in deliveries] == [runs[2].id] * 2 + [runs[0].id] * 2
    assert await ledger.journal.outbox.find_of_runs([]) == []
    assert len(await ledger.journal.outbox.find(limit=5)) == 5


async def test_an_unknown_delivery_is_not_found(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="there is no delivery 7"):
        await ledger.journal.outbox.mark_delivered(7, "there")


async def test_a_delivery_given_up_can_be_sent_again_with_all_retries(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [("mail", {})])
    [delivery] = await ledger.journal.outbox.find()
    await ledger.journal.outbox.mark_failed(delivery.id, "no such mailbox", None)
    again = await ledger.journal.outbox.send_again(delivery.id)
    assert (again.status, again.attempts) == (DeliveryStatus.PENDING, 0)
    assert again.next_at is not None
    assert [
        due_delivery.id for due_delivery in await ledger.journal.outbox.find_due(again.next_at)
    ] == [delivery.id]
    await ledger.journal.outbox.mark_delivered(delivery.id, "there")
    with pytest.raises(Refused, match="is delivered already"):
        await ledger.journal.outbox.send_again(delivery.id)


async def test_a_dropped_delivery_is_no_longer_failed(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [("mail", {})])
    [delivery] = await ledger.journal.outbox.find()
    await ledger.journal.outbox.mark_failed(delivery.id, "no such mailbox", None)
    dropped_delivery = await ledger.journal.outbox.drop(delivery.id)
    assert (dropped_delivery.status, dropped_delivery.error) == (
        DeliveryStatus.SUPPRESSED,
        "no such mailbox; dropped by a person",
    )
    with pytest.raises(Refused):
        await ledger.journal.outbox.drop(delivery.id)
    with pytest.raises(NotFound):
        await ledger.journal.outbox.drop(99)
