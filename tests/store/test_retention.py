"""Old history is removed in slices, and recent history is kept."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.errors import StoreDamaged
from daemon.models import DeliveryStatus, Status, Step, StepKind
from daemon.store.database import Database
from daemon.store.integrity import PARTS, SMALL_DATABASE, find_faults
from daemon.store.maintenance import JournalMaintenance
from daemon.store.retention import RetentionLimits, delete_slice, find_old_reports
from daemon.testing import FakeClock
from tests.store.conftest import Ledger, in_a_file
from tests.store.damage import change_entry, empty_index

DAY = timedelta(days=1)


async def execute_runs(ledger: Ledger, times: int, routine: str = "daily") -> None:
    for number in range(times):
        run = await ledger.start_run(routine)
        await ledger.journal.runs.append(
            run, Step(kind=StepKind.LLM, iteration=1, body={"text": f"said {number} " * 400})
        )
        path = {"path": "reports/{slot:%Y%m%d%H%M%S}.md"}
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED, report="fine"), [("file", path)])


async def deliver(ledger: Ledger, folder: Path, name: str = "") -> None:
    """Write the receipts of all pending deliveries: each is a file in the folder, of this name or
    of its number.
    """
    folder.mkdir(exist_ok=True)
    for delivery in await ledger.journal.outbox.find(status=DeliveryStatus.PENDING, limit=500):
        path = folder / (name or f"{delivery.id}.md")
        path.write_text("fine")
        await ledger.journal.outbox.mark_delivered(delivery.id, str(path))


async def all_gone(ledger: Ledger, clock: FakeClock, **keep: timedelta | int) -> int:
    count = 0
    while some := await ledger.db.write(
        lambda connection: delete_slice(connection, RetentionLimits(**keep), clock.now())
    ):  # type: ignore[arg-type]
        count += some
    return count


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


@pytest.mark.parametrize("keep", [{"steps": DAY}, {"runs": DAY}, {"max_bytes": 1}])
async def test_the_last_success_of_a_routine_stays_with_its_steps_for_the_gate_to_compare(
    ledger: Ledger, clock: FakeClock, keep: dict[str, Any]
) -> None:
    statuses = [Status.SUCCEEDED] * 2 + [Status.FAILED] + [Status.SKIPPED] * 11
    for status in statuses:
        run = await ledger.start_run()
        await ledger.journal.runs.append(
            run, Step(kind=StepKind.LLM, iteration=1, body={"text": "said"})
        )
        await ledger.journal.runs.end(run.to(status))
    await execute_runs(ledger, 1, "another")
    clock.move_to(clock.now() + 2 * DAY)
    await all_gone(ledger, clock, **keep)
    runs = await ledger.journal.runs.find("daily")
    with_steps = [run.status for run in runs if await ledger.journal.runs.get_steps(run.id)]
    assert with_steps == [Status.SKIPPED] * 10 + [Status.SUCCEEDED]


async def test_what_events_and_people_brought_goes_with_the_steps(
    ledger: Ledger, clock: FakeClock
) -> None:
    for number in range(12):
        run = await ledger.start_run("hook", input={"body": "x" * 100}, event=f"e{number}")
        await ledger.journal.runs.send_message(run.id, "hurry", event="m")
        await ledger.journal.runs.append(run, Step(kind=StepKind.LLM, iteration=1, body={}))
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    question = await ledger.start_run("ask", input={"session": "s"}, trigger="ask")
    await ledger.journal.runs.end(question.to(Status.SUCCEEDED))
    await execute_runs(ledger, 10, "ask")
    clock.move_to(clock.now() + 100 * DAY)
    assert await all_gone(ledger, clock, steps=90 * DAY) == 2
    runs = await ledger.journal.runs.find("hook")
    assert [bool(await ledger.journal.runs.get_input(run.id)) for run in runs] == [
        *[True] * 10,
        *[False] * 2,
    ]
    assert [len(await ledger.journal.runs.find_messages(run.id)) for run in runs] == [
        *[1] * 10,
        *[0] * 2,
    ]
    assert await ledger.journal.runs.get_input(question.id) == {"session": "s"}


async def test_the_input_of_a_run_without_steps_goes_as_late(
    ledger: Ledger, clock: FakeClock
) -> None:
    run = await ledger.start_run("hook", input={"body": "x"}, event="e")
    await ledger.journal.runs.end(run.to(Status.CANCELLED))
    await execute_runs(ledger, 10, "hook")
    clock.move_to(clock.now() + 100 * DAY)
    assert await all_gone(ledger, clock, steps=90 * DAY) == 1
    assert not await ledger.journal.runs.get_input(run.id)


@in_a_file
async def test_what_retention_does_in_a_night_does_not_grow_with_the_runs_whose_steps_are_gone(
    ledger: Ledger, clock: FakeClock
) -> None:
    def count_instructions(connection: sqlite3.Connection) -> int:
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        connection.set_progress_handler(tick, 10)  # of SQLite's virtual machine
        assert delete_slice(connection, RetentionLimits(steps=DAY), clock.now()) == 0
        connection.set_progress_handler(None, 0)
        return ticks

    counts = []
    for runs in (20, 200):
        await execute_runs(ledger, runs)
        clock.move_to(clock.now() + 2 * DAY)
        await all_gone(ledger, clock, steps=DAY)
        counts.append(await ledger.db.write(count_instructions))
    assert counts[1] < 2 * counts[0]


async def test_retention_removes_old_runs_but_the_last_of_each_routine(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await execute_runs(ledger, 15)
    await execute_runs(ledger, 3, "rare")
    clock.move_to(clock.now() + 100 * DAY)
    await execute_runs(ledger, 10)
    await deliver(ledger, tmp_path)
    assert await all_gone(ledger, clock, runs=90 * DAY) == 15
    assert {run.routine for run in await ledger.journal.runs.find(limit=100)} == {"daily", "rare"}
    counts = await ledger.journal.history.count()
    assert (counts["runs"]["succeeded"], counts["deliveries"]["delivered"], counts["steps"]) == (
        13,
        13,
        13,
    )
    assert len(await ledger.journal.slots.find(limit=100)) == 28, (
        "that they were due is not forgotten"
    )


@pytest.mark.slow
async def test_a_database_over_its_size_limit_loses_the_oldest_steps(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 150)
    before = (await ledger.journal.history.count())["steps"]
    assert await all_gone(ledger, clock, max_bytes=1) > 0
    assert before == 150 and (await ledger.journal.history.count())["steps"] == 10


async def test_a_size_limit_that_cannot_be_kept_is_reported(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await execute_runs(ledger, 12)
    await deliver(ledger, tmp_path / "reports")
    for limit, count in ((1_000_000_000, 0), (1, 1)):
        with capture_logs() as lines:
            await apply_retention(ledger, clock, tmp_path, max_bytes=limit)
        assert [line["event"] for line in lines].count("retention.too_large") == count


async def test_without_retention_limits_nothing_is_removed(
    ledger: Ledger, clock: FakeClock
) -> None:
    await execute_runs(ledger, 30)
    clock.move_to(clock.now() + 10_000 * DAY)
    assert await all_gone(ledger, clock) == 0


@in_a_file
async def test_the_database_file_shrinks_after_many_removals(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await execute_runs(ledger, 150)
    await deliver(ledger, tmp_path)
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


SHRINK = """
import os, resource, sys
from pathlib import Path
from daemon.store.connection import open_writer
from daemon.store.database import MIGRATIONS

connection = open_writer(Path(sys.argv[1]), MIGRATIONS)
connection.execute("BEGIN")
connection.execute("CREATE TABLE filling (id INTEGER PRIMARY KEY, body BLOB)")
rows = ((os.urandom(4000),) for _ in range(15_000))
connection.executemany("INSERT INTO filling (body) VALUES (?)", rows)
connection.execute("COMMIT")
connection.execute("DELETE FROM filling WHERE id % 2 = 1")
connection.truncate_log()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert connection.shrink(1_000_000) > 20_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_database_is_not_held_in_memory_while_its_file_shrinks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHRINK, str(tmp_path / "agentd.db")]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(process.stdout) < 15_000, "KiB; some 30,000 are left in the file"


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
    await apply_retention(ledger, clock, workspace, reports=90 * DAY)
    assert [path.exists() for path in places] == [False, False, True, True]
    old_reports, _ = await ledger.db.read(
        lambda connection: find_old_reports(connection, clock.now())
    )
    assert old_reports == []


async def test_a_report_that_is_on_its_way_is_not_removed(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await execute_runs(ledger, 30)
    assert await all_gone(ledger, clock, max_bytes=1) > 0
    assert (await ledger.journal.history.count())["deliveries"] == {"pending": 30}
    await deliver(ledger, tmp_path)
    await all_gone(ledger, clock, max_bytes=1)
    assert (await ledger.journal.history.count())["deliveries"] == {"delivered": 10}


async def test_report_files_that_stay_longer_than_their_runs_are_removed_later(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await execute_runs(ledger, 12)
    await deliver(ledger, tmp_path / "reports")
    keep = {"runs": 90 * DAY, "reports": 365 * DAY}
    clock.move_to(clock.now() + 100 * DAY)
    await apply_retention(ledger, clock, tmp_path, **keep)
    assert len(await ledger.journal.runs.find(limit=100)) == 10
    assert len(list((tmp_path / "reports").iterdir())) == 12
    clock.move_to(clock.now() + 300 * DAY)
    await apply_retention(ledger, clock, tmp_path, **keep)
    assert list((tmp_path / "reports").iterdir()) == []
    assert len(await ledger.journal.outbox.find()) == 10, "that of a deleted run goes with its file"


async def test_the_delivery_of_a_deleted_run_keeps_nothing_but_the_path(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    options = {"path": "reports/{slot:%Y}.md", "detail": "exit 1", "trigger": "cron"}
    for _ in range(11):
        run = await ledger.start_run()
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [("file", options)])
    await deliver(ledger, tmp_path / "reports")
    clock.move_to(clock.now() + 100 * DAY)
    await apply_retention(ledger, clock, tmp_path, runs=90 * DAY, reports=365 * DAY)
    deliveries = await ledger.journal.outbox.find(limit=100)
    assert [delivery.options for delivery in deliveries if not delivery.run] == [
        {"path": "reports/{slot:%Y}.md"}
    ]


async def test_a_report_file_that_was_written_anew_is_not_removed_for_the_old_one(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    for days in (80, 20):  # the first was moved away, the second has its name
        await execute_runs(ledger, 1)
        await deliver(ledger, tmp_path / "reports", "Monday.md")
        clock.move_to(clock.now() + days * DAY)
    await apply_retention(ledger, clock, tmp_path, reports=90 * DAY)
    assert (tmp_path / "reports/Monday.md").exists()
    clock.move_to(clock.now() + 80 * DAY)
    await apply_retention(ledger, clock, tmp_path, reports=90 * DAY)
    assert not (tmp_path / "reports/Monday.md").exists()
    receipts = [delivery.receipt for delivery in await ledger.journal.outbox.find()]
    assert receipts == [
        f"removed by [keep] reports: {tmp_path / 'reports/Monday.md'}",
        f"replaced by a later report: {tmp_path / 'reports/Monday.md'}",
    ]


async def test_report_files_of_a_target_with_a_path_of_its_own_are_removed(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    for target, options in (("archive", {}), ("latest", {}), ("archive", {"path": "last.md"})):
        run = await ledger.start_run()
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [(target, options)])
    await deliver(ledger, tmp_path / "reports")
    clock.move_to(clock.now() + 100 * DAY)
    await apply_retention(
        ledger, clock, tmp_path, reports=90 * DAY, file_targets=frozenset({"archive"})
    )
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == ["2.md", "3.md"]


async def apply_retention(ledger: Ledger, clock: FakeClock, workspace: Path, **keep: Any) -> None:
    upkeep = JournalMaintenance(
        ledger.db,
        ledger.journal,
        clock=lambda: clock.now(),
        limits=lambda: RetentionLimits(**keep),
        workspace=workspace,
        is_idle=lambda: True,
    )
    await upkeep.apply_retention()


@in_a_file
async def test_the_integrity_check_detects_a_damaged_database(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    assert find_faults(ledger.db.path) == []
    assert [find_faults(ledger.db.path, part=part) for part in range(7)] == [[]] * 7
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    assert find_faults(tmp_path / "broken.db") != []


async def make_database(path: Path, clock: FakeClock) -> None:
    """Make a database with three runs."""
    database = await Database.open(path)
    await execute_runs(Ledger(database, clock), 3)
    await database.close()


def maintenance_of(database: Database, ledger: Ledger, clock: FakeClock) -> JournalMaintenance:
    return JournalMaintenance(
        database,
        ledger.journal,
        clock=clock.now,
        limits=RetentionLimits,
        workspace=database.path.parent,
        is_idle=lambda: True,
    )


@pytest.mark.parametrize("index", ["outbox_run", "sqlite_autoindex_step_1"])
async def test_an_index_that_lacks_rows_is_found_and_renewed(
    clock: FakeClock, tmp_path: Path, index: str
) -> None:
    path = tmp_path / "agentd.db"
    await make_database(path, clock)
    empty_index(path, index)
    assert any(index in fault for fault in find_faults(path))
    database = await Database.open(path)
    ledger = Ledger(database, clock)
    with capture_logs() as lines:
        await maintenance_of(database, ledger, clock).check()
    assert [line["index"] for line in lines if line["event"] == "database.index_renewed"] == [index]
    assert find_faults(path) == []
    assert await ledger.journal.incidents.get_open_subjects() == set()
    await database.close()


async def test_an_index_whose_rows_contradict_each_other_is_an_incident(
    clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "agentd.db"
    await make_database(path, clock)
    empty_index(path, "sqlite_autoindex_step_1")
    with closing(sqlite3.connect(path)) as connection, connection:
        # as a daemon does that looks its earlier steps up in the empty index
        connection.execute("INSERT INTO step SELECT * FROM step")
    database = await Database.open(path)
    ledger = Ledger(database, clock)
    with capture_logs() as lines:
        await maintenance_of(database, ledger, clock).check()
    assert "database.damaged" in [line["event"] for line in lines]
    assert await ledger.journal.incidents.get_open_subjects() == {"database"}
    await database.close()


@pytest.mark.parametrize("restarts", [False, True])
async def test_within_seven_checks_each_index_of_a_large_database_was_checked(
    clock: FakeClock, tmp_path: Path, restarts: bool
) -> None:
    path = tmp_path / "agentd.db"
    await make_database(path, clock)
    change_entry(path, "outbox_run")
    os.truncate(path, SMALL_DATABASE + 4096)  # SQLite ignores what is behind the last page
    assert find_faults(path) == [], "nothing is wrong with the pages of a large database"
    assert find_faults(path, deep=True) != []
    events: list[str] = []
    for _ in range(PARTS):
        database = await Database.open(path)
        maintenance = maintenance_of(database, Ledger(database, clock), clock)
        with capture_logs() as lines:
            await maintenance.check(is_start=restarts)
        events += [line["event"] for line in lines]
        await database.close()
        os.truncate(path, SMALL_DATABASE + 4096)
    assert events.count("database.index_renewed") == 1
    assert find_faults(path, deep=True) == []


@pytest.mark.parametrize(
    "damage",
    [
        "status = 'odd'",
        "created = 'x'",
        "slot = 9000000000000000000",
        "active = 'x'",
        "taint = 7",
    ],
)
@in_a_file
async def test_a_damaged_row_is_left_out_of_lists_and_named_where_it_is_asked_for(
    ledger: Ledger, damage: str
) -> None:
    runs = [await ledger.start_run() for _ in range(3)]
    await ledger.db.write(
        lambda connection: connection.execute(
            f"UPDATE run SET {damage} WHERE id = ?", (runs[1].id,)
        )
    )
    with capture_logs() as lines:
        runs_left = await ledger.journal.runs.find(limit=10)
    assert {run.id for run in runs_left} == {runs[0].id, runs[2].id}
    assert [line["row"] for line in lines] == [f"run {runs[1].id}"]
    with pytest.raises(StoreDamaged, match="agentctl doctor"):
        await ledger.journal.runs.get(runs[1].id)


@in_a_file
async def test_a_text_that_is_no_text_any_more_is_a_damage(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.db.write(
        lambda connection: connection.execute(
            "UPDATE run SET goal = CAST(x'ff00ff' AS TEXT) WHERE id = ?", (run.id,)
        )
    )
    with pytest.raises(StoreDamaged):
        await ledger.journal.runs.find(limit=10)
