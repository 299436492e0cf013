"""Trigger events and their input: each is handled once and none is lost."""

from __future__ import annotations

from datetime import timedelta

from daemon.models import Outcome, Reason, Run, Status
from tests.store.conftest import START, Ledger

FILE = ("inbox/a.csv", "1-2-3")


async def end_run(
    ledger: Ledger, routine: str = "backup", status: Status = Status.SUCCEEDED
) -> Run:
    run = await ledger.start_run(routine)
    return await ledger.journal.runs.end(run.to(status))


async def test_the_input_of_an_event_is_stored_with_its_run(ledger: Ledger) -> None:
    event_input = {"paths": ["inbox/中.csv", "inbox/\udc80"] * 1000}
    run = await ledger.queue_run(event="a", input=event_input)
    other_run = await ledger.queue_run(event="b")
    assert await ledger.journal.runs.get_input(run.id) == event_input
    assert await ledger.journal.runs.get_input(other_run.id) is None


async def test_the_input_of_an_event_may_be_any_json(ledger: Ledger) -> None:
    for number, body in enumerate(([1, 2], "text", 0, False, {})):
        run = await ledger.queue_run(event=str(number), input=body)
        assert await ledger.journal.runs.get_input(run.id) == body


async def test_a_file_version_is_recorded_for_the_routine_that_handled_it(
    ledger: Ledger,
) -> None:
    await ledger.queue_run("inbox", event="a", files=(FILE,))
    await ledger.queue_run("inbox", event="b", files=(FILE, ("inbox/b.csv", "4-5-6")))
    assert await ledger.journal.slots.get_seen_files("inbox") == {FILE, ("inbox/b.csv", "4-5-6")}
    assert await ledger.journal.slots.get_seen_files("other") == set()


async def test_a_repeated_event_records_no_file_versions(ledger: Ledger) -> None:
    await ledger.queue_run("inbox", event="a")
    assert await ledger.journal.slots.claim([ledger.claim("inbox", event="a", files=(FILE,))]) == [
        None
    ]
    assert await ledger.journal.slots.get_seen_files("inbox") == set()


async def forget_daily(ledger: Ledger, days: int, present: dict[str, str]) -> None:
    for _ in range(days):
        now = ledger.clock.advance(days=1)
        before = now - timedelta(days=90)
        await ledger.journal.slots.forget_files("inbox", present=present, before=before)


async def test_a_folder_that_is_away_for_a_while_starts_no_runs_for_its_old_files(
    ledger: Ledger,
) -> None:
    await ledger.queue_run("inbox", event="a", files=(FILE,))
    await forget_daily(ledger, 200, dict([FILE]))
    await forget_daily(ledger, 50, {})  # the disk is not mounted
    assert await ledger.journal.slots.get_seen_files("inbox") == {FILE}
    await forget_daily(ledger, 100, {})
    assert await ledger.journal.slots.get_seen_files("inbox") == set()


async def test_earlier_versions_of_a_file_that_is_still_there_are_forgotten(
    ledger: Ledger,
) -> None:
    path, version = FILE
    for number in range(3):
        await ledger.queue_run("inbox", event=f"e{number}", files=((path, f"{number}"),))
    await ledger.queue_run("inbox", event="last", files=(FILE,))
    await forget_daily(ledger, 100, {path: version})
    assert await ledger.journal.slots.get_seen_files("inbox") == {FILE}


async def test_versions_of_long_removed_files_are_forgotten(ledger: Ledger) -> None:
    await ledger.queue_run("inbox", event="a", files=(FILE, ("inbox/gone.csv", "1")))
    await ledger.queue_run("other", event="a", files=(("inbox/gone.csv", "1"),))
    now = ledger.clock.advance(days=100)
    await ledger.queue_run("inbox", event="b", files=(("inbox/new.csv", "1"),))
    await ledger.journal.slots.forget_files("inbox", present=dict([FILE]), before=now)
    assert await ledger.journal.slots.get_seen_files("inbox") == {FILE, ("inbox/new.csv", "1")}
    assert len(await ledger.journal.slots.get_seen_files("other")) == 1


async def test_an_ended_run_is_unanswered_until_an_after_trigger_has_a_slot(ledger: Ledger) -> None:
    first, second = await end_run(ledger), await end_run(ledger)

    async def find_missed_ends() -> list[str]:
        filters = {"parents": ["backup", "sync"], "statuses": {Status.SUCCEEDED}, "since": START}
        return [run.id for run in await ledger.journal.slots.find_missed_ends("report", **filters)]

    assert await find_missed_ends() == [first.id, second.id]
    await ledger.queue_run("report", event=first.id)
    await ledger.queue_run("other", event=second.id)
    assert await find_missed_ends() == [second.id]
    await ledger.journal.slots.skip_event("report", second.id, slot=START, reason=Reason.OVERLAP)
    assert await find_missed_ends() == []


async def test_unanswered_runs_are_filtered_by_routine_status_and_time(ledger: Ledger) -> None:
    await end_run(ledger)
    since = ledger.clock.now()
    ledger.clock.advance(seconds=1)
    await end_run(ledger, "unrelated")
    failed_run, running_run = (
        await end_run(ledger, status=Status.FAILED),
        await ledger.start_run("backup"),
    )
    unanswered_runs = await ledger.journal.slots.find_missed_ends(
        "report", parents=["backup"], statuses={Status.SUCCEEDED, Status.FAILED}, since=since
    )
    assert [run.id for run in unanswered_runs] == [failed_run.id]
    assert running_run.status is Status.RUNNING


async def test_a_skipped_event_has_one_row_and_starts_no_later_run(
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
    assert await ledger.journal.slots.claim([ledger.claim("report", event="e")]) == [None]
    assert await ledger.journal.slots.get_accounted_until("report") is None


async def test_an_ended_run_is_announced_right_after_its_commit(ledger: Ledger) -> None:
    announcements: list[tuple[str, Status]] = []
    ledger.journal.runs.on_ended = lambda run: announcements.append((run.id, run.status))
    ended_run = await end_run(ledger)
    waiting_run, running_run = await ledger.queue_run("backup"), await ledger.start_run("sync")
    await ledger.journal.runs.request_cancel(waiting_run.id)
    await ledger.journal.runs.request_cancel(running_run.id)
    assert announcements == [(ended_run.id, Status.SUCCEEDED), (waiting_run.id, Status.CANCELLED)]
    assert ledger.clock.now() - START < timedelta(hours=1)
