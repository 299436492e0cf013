"""Events and what they brought along: each is answered once, and nothing of it is lost."""

from __future__ import annotations

from datetime import timedelta

from daemon.models import Outcome, Reason, Run, Status
from tests.store.conftest import START, Ledger

FILE = ("inbox/a.csv", "1-2-3")


async def ended(ledger: Ledger, routine: str = "backup", status: Status = Status.SUCCEEDED) -> Run:
    run = await ledger.running(routine)
    return await ledger.journal.runs.end(run.to(status))


async def test_what_an_event_brought_along_stays_with_its_run(ledger: Ledger) -> None:
    said = {"paths": ["inbox/中.csv", "inbox/\udc80"] * 1000}
    run = await ledger.queued(event="a", input=said)
    other = await ledger.queued(event="b")
    assert await ledger.journal.runs.get_input(run.id) == said
    assert await ledger.journal.runs.get_input(other.id) is None


async def test_any_json_may_come_along(ledger: Ledger) -> None:
    for number, body in enumerate(([1, 2], "text", 0, False, {})):
        run = await ledger.queued(event=str(number), input=body)
        assert await ledger.journal.runs.get_input(run.id) == body


async def test_a_version_of_a_file_is_kept_for_the_routine_that_was_given_it(
    ledger: Ledger,
) -> None:
    await ledger.queued("inbox", event="a", files=(FILE,))
    await ledger.queued("inbox", event="b", files=(FILE, ("inbox/b.csv", "4-5-6")))
    assert await ledger.journal.slots.get_seen_files("inbox") == {FILE, ("inbox/b.csv", "4-5-6")}
    assert await ledger.journal.slots.get_seen_files("other") == set()


async def test_a_claim_that_comes_too_late_takes_no_files(ledger: Ledger) -> None:
    await ledger.queued("inbox", event="a")
    assert await ledger.journal.slots.open([ledger.claim("inbox", event="a", files=(FILE,))]) == [
        None
    ]
    assert await ledger.journal.slots.get_seen_files("inbox") == set()


async def test_files_that_are_long_gone_are_forgotten(ledger: Ledger) -> None:
    await ledger.queued("inbox", event="a", files=(FILE, ("inbox/gone.csv", "1")))
    await ledger.queued("other", event="a", files=(("inbox/gone.csv", "1"),))
    now = ledger.clock.advance(days=100)
    await ledger.queued("inbox", event="b", files=(("inbox/new.csv", "1"),))
    await ledger.journal.slots.forget_files("inbox", present=["inbox/a.csv"], before=now)
    assert await ledger.journal.slots.get_seen_files("inbox") == {FILE, ("inbox/new.csv", "1")}
    assert len(await ledger.journal.slots.get_seen_files("other")) == 1


async def test_an_end_is_unanswered_until_it_has_a_slot(ledger: Ledger) -> None:
    first, second = await ended(ledger), await ended(ledger)

    async def unanswered() -> list[str]:
        wanted = {"parents": ["backup", "sync"], "statuses": {Status.SUCCEEDED}, "since": START}
        return [run.id for run in await ledger.journal.slots.find_unanswered("report", **wanted)]

    assert await unanswered() == [first.id, second.id]
    await ledger.queued("report", event=first.id)
    await ledger.queued("other", event=second.id)
    assert await unanswered() == [second.id]
    await ledger.journal.slots.skip_event("report", second.id, slot=START, reason=Reason.OVERLAP)
    assert await unanswered() == []


async def test_only_the_right_ends_after_a_moment_count(ledger: Ledger) -> None:
    await ended(ledger)
    since = ledger.clock.now()
    ledger.clock.advance(seconds=1)
    await ended(ledger, "unrelated")
    failed, running = await ended(ledger, status=Status.FAILED), await ledger.running("backup")
    found = await ledger.journal.slots.find_unanswered(
        "report", parents=["backup"], statuses={Status.SUCCEEDED, Status.FAILED}, since=since
    )
    assert [run.id for run in found] == [failed.id]
    assert running.status is Status.RUNNING


async def test_an_event_that_is_let_pass_is_told_once_and_starts_nothing_later(
    ledger: Ledger,
) -> None:
    for _ in range(2):
        await ledger.journal.slots.skip_event("report", "e", slot=START, reason=Reason.PAUSED)
    (row,) = await ledger.journal.slots.find("report")
    assert (row.outcome, row.reason, row.run, row.event) == (
        Outcome.SKIPPED,
        Reason.PAUSED,
        None,
        "e",
    )
    assert await ledger.journal.slots.open([ledger.claim("report", event="e")]) == [None]
    assert await ledger.journal.slots.get_accounted_until("report") is None


async def test_ends_are_told_as_soon_as_they_are_safe(ledger: Ledger) -> None:
    told: list[tuple[str, Status]] = []
    ledger.journal.runs.when_ended = lambda run: told.append((run.id, run.status))
    done = await ended(ledger)
    waiting, running = await ledger.queued("backup"), await ledger.running("sync")
    await ledger.journal.runs.request_cancel(waiting.id)
    await ledger.journal.runs.request_cancel(running.id)
    assert told == [(done.id, Status.SUCCEEDED), (waiting.id, Status.CANCELLED)]
    assert ledger.clock.now() - START < timedelta(hours=1)
