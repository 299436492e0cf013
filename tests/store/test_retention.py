"""Old history is removed in slices, and recent history is kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from daemon.models import Status, Step, StepKind
from daemon.store.maintenance import JournalMaintenance, check_file
from daemon.store.retention import RetentionLimits, delete_slice, find_old_reports
from daemon.testing import FakeClock
from tests.store.conftest import Ledger, in_a_file

DAY = timedelta(days=1)


async def execute_runs(ledger: Ledger, times: int, routine: str = "daily") -> None:
    for number in range(times):
        run = await ledger.running(routine)
        await ledger.journal.runs.append(
            run, Step(kind=StepKind.LLM, iteration=1, body={"text": f"said {number} " * 400})
        )
        path = {"path": "reports/{slot:%Y%m%d%H%M%S}.md"}
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED, report="fine"), [("file", path)])


async def all_gone(ledger: Ledger, clock: FakeClock, **keep: timedelta | int) -> int:
    gone = 0
    while some := await ledger.db.write(
        lambda connection: delete_slice(connection, RetentionLimits(**keep), clock.now())
    ):  # type: ignore[arg-type]
        gone += some
    return gone


async def test_retention_removes_old_steps_and_keeps_their_runs(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 30)
    clock.move_to(clock.now() + 100 * DAY)
    await execute_runs(ledger, 5)
    assert await all_gone(ledger, clock, steps=90 * DAY) == 25, (
        "the last ten stay whatever their age"
    )
    runs = await ledger.journal.runs.find(limit=100)
    assert len(runs) == 35
    assert [len(await ledger.journal.runs.get_steps(run.id)) for run in runs] == [1] * 10 + [0] * 25


async def test_retention_removes_old_runs_but_the_last_of_each_routine(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 15)
    await execute_runs(ledger, 3, "rare")
    clock.move_to(clock.now() + 100 * DAY)
    await execute_runs(ledger, 10)
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


async def test_a_database_over_its_size_limit_loses_the_oldest_steps(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 150)
    before = (await ledger.journal.history.count())["steps"]
    assert await all_gone(ledger, clock, max_bytes=1) > 0
    assert before == 150 and (await ledger.journal.history.count())["steps"] == 10


async def test_without_retention_limits_nothing_is_removed(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 30)
    clock.move_to(clock.now() + 10_000 * DAY)
    assert await all_gone(ledger, clock) == 0


@in_a_file
async def test_the_database_file_shrinks_after_many_removals(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 150)
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


async def test_retention_removes_old_report_files_only_in_the_workspace(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside.md"
    (workspace / "reports").mkdir(parents=True)
    outside.write_text("mine")
    (workspace / "link").symlink_to(tmp_path)
    await execute_runs(ledger, 4)
    places = [
        workspace / "reports/a.md",
        workspace / "reports/b.md",
        outside,
        workspace / "link/outside.md",
    ]
    for delivery, path in zip(reversed(await ledger.journal.outbox.find()), places, strict=True):
        path.write_text("x")
        await ledger.journal.outbox.mark_delivered(delivery.id, str(path))
    clock.move_to(clock.now() + 100 * DAY)
    keep = RetentionLimits(reports=90 * DAY)
    upkeep = JournalMaintenance(
        ledger.db,
        ledger.journal,
        clock=lambda: clock.now(),
        limits=lambda: keep,
        workspace=workspace,
        is_idle=lambda: True,
    )
    await upkeep.apply_retention()
    assert [path.exists() for path in places] == [False, False, True, True]
    assert await ledger.db.read(lambda connection: find_old_reports(connection, clock.now())) == []


@in_a_file
async def test_the_integrity_check_detects_a_damaged_database(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    assert check_file(ledger.db.path) == "ok"
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    assert check_file(tmp_path / "broken.db") != "ok"
