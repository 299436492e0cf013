"""People are reminded once of an approval request before it expires, and told when it has."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from daemon.memory.erasure import journal_rows
from daemon.models import ApprovalStatus, DeliveryStatus
from daemon.runs.approvals.approvals import Approvals
from daemon.runs.approvals.remembered import RememberedCalls
from daemon.runs.approvals.request import CallDescriber
from daemon.store.incidents import IncidentSettings
from tests.runs.approvals.conftest import turn, write
from tests.runs.approvals.test_notice import telling

REMINDER, EXPIRED = "approval.reminder", "approval.expired"


def restart(harness: Any, **settings: Any) -> Approvals:
    """Return the approvals of a process that begins with what is in the journal."""
    remembered_calls = RememberedCalls(harness.state / "approvals.toml")
    return Approvals(
        harness.journal,
        CallDescriber(harness),
        remembered_calls,
        queue=harness,
        clock=harness.clock,
        **settings,
    )


async def notices(journal: Any, kind: str) -> list[Any]:
    return [item for item in await journal.outbox.find() if item.content == kind]


async def test_people_are_reminded_once_at_three_quarters_of_the_time_over_restarts(
    build_harness, journal, clock
):
    journal.incidents.settings = IncidentSettings(to=("pager",))
    harness = telling(build_harness(turn(write("a.md", "words")), "Done."))
    run, approval = await harness.run_to_question()
    clock.advance(hours=18, seconds=-0.05)
    assert await harness.approvals.handle_due() == approval.expires - timedelta(hours=6)
    assert await notices(journal, REMINDER) == []

    task = asyncio.create_task(harness.approvals.run())
    clock.advance(seconds=0.05)
    async with asyncio.timeout(30):
        while not await notices(journal, REMINDER):
            await asyncio.sleep(0)
    task.cancel()
    await restart(harness).handle_due()
    clock.advance(hours=1)
    await restart(harness).handle_due()
    reminders = await notices(journal, REMINDER)
    assert sorted(reminder.target for reminder in reminders) == ["mail", "pager"]
    assert {(item.run, item.kind, item.status) for item in reminders} == {
        (run.id, "question", DeliveryStatus.PENDING)
    }
    options = reminders[0].options
    assert options["approvals"] == [approval.id]
    assert "daily on " in options["title"] and "still waits" in options["title"]
    for words in (
        run.id, "since 2026-11-20 08:30 UTC", "file_write: ", "'words'", "rule 1",
        "by 2026-11-21 08:30 UTC", f"agentctl approve {approval.id}",
    ):  # fmt: skip
        assert words in options["text"], words


async def test_of_several_processes_one_reminds(build_harness, journal, clock):
    harness = telling(build_harness(turn(write()), "Done."))
    await harness.run_to_question()
    clock.advance(hours=20)
    due = await asyncio.gather(*(restart(harness).handle_due() for _ in range(3)))
    assert len(await notices(journal, REMINDER)) == 1
    assert set(due) == {clock.now() + timedelta(hours=4)}


async def test_a_reminder_that_fell_into_a_stop_is_sent_late_but_not_after_the_expiry(
    build_harness, journal, clock
):
    harness = telling(build_harness(turn(write()), "Done."))
    await harness.run_to_question()
    clock.advance(hours=23)
    await restart(harness).handle_due()
    assert len(await notices(journal, REMINDER)) == 1
    await telling(build_harness(turn(write("b.md")), "Done.")).execute()
    clock.advance(hours=30)
    await restart(harness).handle_due()
    assert len(await notices(journal, REMINDER)) == 1
    assert len(await notices(journal, EXPIRED)) == 2
    assert await harness.find_pending() == []


async def test_an_answer_withdraws_a_reminder_and_only_open_requests_are_in_one(
    build_harness, journal, clock
):
    harness = telling(build_harness(turn(write("a.md"), write("b.md")), "Done."))
    run = await harness.execute()
    second, first = await harness.find_pending()
    await harness.approvals.approve(first.id, by="uid 1000")
    await harness.execute(run)
    clock.advance(hours=18)
    await harness.approvals.handle_due()
    (reminder,) = await notices(journal, REMINDER)
    assert reminder.options["approvals"] == [second.id]
    assert first.id not in reminder.options["text"]
    await harness.approvals.reject(second.id, by="uid 1000")
    (reminder,) = await notices(journal, REMINDER)
    assert reminder.status is DeliveryStatus.SUPPRESSED
    clock.advance(hours=10)
    await harness.approvals.handle_due()
    assert await notices(journal, EXPIRED) == []


async def test_people_are_told_once_what_was_not_done_when_nobody_answered(
    build_harness, journal, clock
):
    zone = {"cron": "0 7 * * *", "timezone": "Asia/Tokyo"}
    harness = telling(build_harness(turn(write("a.md"), write("b.md", "s3cr3t")), "Done."))
    harness.routine = harness.routine.model_validate(
        {**harness.routine.model_dump(exclude_unset=True), "trigger": zone}
    )
    run = await harness.execute()
    clock.advance(hours=18)
    await harness.approvals.handle_due()
    clock.advance(hours=6)
    hide = {"redact": lambda text: text.replace("s3cr3t", "[redacted]")}
    await asyncio.gather(*(restart(harness, **hide).handle_due() for _ in range(3)))
    await restart(harness, **hide).handle_due()
    (expiry,) = await notices(journal, EXPIRED)
    assert (expiry.run, expiry.target, expiry.kind) == (run.id, "mail", "notice")
    assert "was not allowed a call in time" in expiry.options["title"]
    text = expiry.options["text"]
    for words in (
        run.id, "the call was not made", "path = 'a.md'", "path = 'b.md'", "[redacted]",
        "Nobody answered by 2026-11-21 17:30 JST", f"agentctl inspect {run.id}",
    ):  # fmt: skip
        assert words in text, words
    assert "agentctl approve" not in text and "s3cr3t" not in text
    withdrawn = [item for item in await journal.outbox.find() if item.kind == "question"]
    assert {item.status for item in withdrawn} == {DeliveryStatus.SUPPRESSED}
    assert expiry.status is DeliveryStatus.PENDING
    expired_approvals = await journal.approvals.find(status=ApprovalStatus.EXPIRED)
    assert len(expired_approvals) == 2
    assert [item.id for item in harness.queue] == [run.id]


async def test_the_erasure_of_a_run_removes_its_call_from_reminder_and_expiry(
    build_harness, journal, clock
):
    harness = telling(build_harness(turn(write("a.md", "4711-walrus")), "Done."))
    run, _ = await harness.run_to_question()
    for hours in (18, 6):
        clock.advance(hours=hours)
        await harness.approvals.handle_due()
    deliveries = await journal.outbox.find(run=run.id)
    assert len(deliveries) == 3
    assert all("walrus" in delivery.options["text"] for delivery in deliveries)
    await harness.execute(run)
    await journal._db.write(
        lambda connection: journal_rows.erase_run(connection, run.id, harness.now())
    )
    for delivery in await journal.outbox.find(run=run.id):
        assert "walrus" not in str(delivery.options), delivery.target


async def test_a_routine_that_asks_nobody_is_reminded_of_and_told_by_nothing(
    build_harness, journal, clock
):
    harness = telling(build_harness(turn(write()), "Done."), on=["succeeded"])
    await harness.run_to_question()
    for hours in (18, 6):
        clock.advance(hours=hours)
        await harness.approvals.handle_due()
    assert await journal.outbox.find() == []
    assert await harness.find_pending() == []


async def test_a_reminder_does_not_wait_for_a_clock_that_was_ahead(build_harness, journal, clock):
    clock.advance(hours=24 * 365)
    harness = telling(build_harness(turn(write()), "Done."))
    _, approval = await harness.run_to_question()
    clock.advance(hours=-24 * 365)
    await journal.move_waits()
    clock.advance(hours=18)
    await harness.approvals.handle_due()
    (reminder,) = await notices(journal, REMINDER)
    assert reminder.options["approvals"] == [approval.id]


async def test_a_run_whose_row_is_damaged_holds_up_no_reminder_or_expiry_of_others(
    build_harness, journal, clock
):
    damaged_run = await telling(build_harness(turn(write("a.md")), "Done.")).execute()
    harness = telling(build_harness(turn(write("b.md")), "Done."))
    run = await harness.execute()
    assert len(await harness.find_pending()) == 2
    await journal._db.write(
        lambda connection: connection.execute(
            "UPDATE run SET taint = 7 WHERE id = ?", (damaged_run.id,)
        )
    )
    for hours, kind in ((18, REMINDER), (6, EXPIRED)):
        clock.advance(hours=hours)
        await harness.approvals.handle_due()
        assert [notice.run for notice in await notices(journal, kind)] == [run.id]
    assert await harness.find_pending() == []
    assert [queued.id for queued in harness.queue] == [run.id]
