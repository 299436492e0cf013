"""History goes when it is old, slice by slice, and what is recent stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from daemon.models import Status, Step, StepKind
from daemon.store.maintenance import JournalMaintenance, verdict_on
from daemon.store.retention import Keep, let_go_some, old_reports
from daemon.testing import FakeClock
from tests.store.conftest import Ledger, in_a_file

DAY = timedelta(days=1)


async def lived(ledger: Ledger, times: int, routine: str = "daily") -> None:
    for number in range(times):
        run = await ledger.running(routine)
        await ledger.journal.runs.append(
            run, Step(kind=StepKind.LLM, iteration=1, body={"text": f"said {number} " * 400})
        )
        path = {"path": "reports/{slot:%Y%m%d%H%M%S}.md"}
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED, report="fine"), [("file", path)])


async def all_gone(ledger: Ledger, clock: FakeClock, **keep: timedelta | int) -> int:
    gone = 0
    while some := await ledger.db.write(lambda each: let_go_some(each, Keep(**keep), clock.now())):  # type: ignore[arg-type]
        gone += some
    return gone


async def test_old_steps_go_and_their_runs_stay(ledger: Ledger, clock: FakeClock) -> None:
    await lived(ledger, 30)
    clock.move_to(clock.now() + 100 * DAY)
    await lived(ledger, 5)
    assert await all_gone(ledger, clock, steps=90 * DAY) == 25, (
        "the last ten stay whatever their age"
    )
    runs = await ledger.journal.runs.find(limit=100)
    assert len(runs) == 35
    assert [len(await ledger.journal.runs.get_steps(run.id)) for run in runs] == [1] * 10 + [0] * 25


async def test_old_runs_go_with_all_that_is_theirs_and_each_routine_keeps_its_last(
    ledger: Ledger, clock: FakeClock
) -> None:
    await lived(ledger, 15)
    await lived(ledger, 3, "rare")
    clock.move_to(clock.now() + 100 * DAY)
    await lived(ledger, 10)
    assert await all_gone(ledger, clock, runs=90 * DAY) == 15
    assert {run.routine for run in await ledger.journal.runs.find(limit=100)} == {"daily", "rare"}
    counts = await ledger.journal.history.count()
    assert (counts["runs"]["succeeded"], counts["deliveries"]["pending"], counts["steps"]) == (
        13,
        13,
        13,
    )
    assert len(await ledger.journal.slots.find(limit=100)) == 28, (
        "that they were due is not forgotten"
    )


async def test_a_database_that_grew_too_big_loses_the_oldest_first(
    ledger: Ledger, clock: FakeClock
) -> None:
    await lived(ledger, 150)
    before = (await ledger.journal.history.count())["steps"]
    assert await all_gone(ledger, clock, max_bytes=1) > 0
    assert before == 150 and (await ledger.journal.history.count())["steps"] == 10


async def test_nothing_is_let_go_that_is_to_stay_for_ever(ledger: Ledger, clock: FakeClock) -> None:
    await lived(ledger, 30)
    clock.move_to(clock.now() + 10_000 * DAY)
    assert await all_gone(ledger, clock) == 0


@in_a_file
async def test_room_is_given_back_when_there_is_much(ledger: Ledger, clock: FakeClock) -> None:
    await lived(ledger, 150)
    clock.move_to(clock.now() + 100 * DAY)
    assert (
        await ledger.db.run_outside_transaction(lambda connection: connection.shrink(64_000_000))
        == 0
    )
    await all_gone(ledger, clock, runs=90 * DAY)
    size = (await ledger.journal.history.count())["bytes"]
    assert (
        await ledger.db.run_outside_transaction(lambda connection: connection.shrink(100_000))
        > 100_000
    )
    assert (await ledger.journal.history.count())["bytes"] < size


async def test_old_report_files_go_and_nothing_outside_the_workspace(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside.md"
    (workspace / "reports").mkdir(parents=True)
    outside.write_text("mine")
    (workspace / "link").symlink_to(tmp_path)
    await lived(ledger, 4)
    places = [
        workspace / "reports/a.md",
        workspace / "reports/b.md",
        outside,
        workspace / "link/outside.md",
    ]
    for delivery, place in zip(reversed(await ledger.journal.outbox.find()), places, strict=True):
        place.write_text("x")
        await ledger.journal.outbox.mark_delivered(delivery.id, str(place))
    clock.move_to(clock.now() + 100 * DAY)
    keep = Keep(reports=90 * DAY)
    upkeep = JournalMaintenance(
        ledger.db,
        ledger.journal,
        clock=lambda: clock.now(),
        keep=lambda: keep,
        workspace=workspace,
        idle=lambda: True,
    )
    await upkeep.let_go()
    assert [place.exists() for place in places] == [False, False, True, True]
    assert await ledger.db.read(lambda connection: old_reports(connection, clock.now())) == []


@in_a_file
async def test_a_damaged_database_is_an_incident(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    assert verdict_on(ledger.db.path) == "ok"
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    assert verdict_on(tmp_path / "broken.db") != "ok"
