"""A shared database whose clock was ahead is corrected: leases and waits end in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from daemon.store.journal import Claim, Journal
from daemon.store.opening import open_database
from daemon.store.workers import Worker

AHEAD = 3 * 86_400_000_000  # microseconds: three days


def now() -> datetime:
    return datetime.now(UTC)


def worker(name: str) -> Worker:
    return Worker(id=name, kind="daemon", host="box", pid=1, version="1", started=now(), seen=now())


async def test_runs_of_a_dead_process_and_delayed_runs_continue_after_a_clock_correction(
    postgres_url: str, tmp_path: Path
) -> None:
    database = await open_database(tmp_path / "x", postgres_url)
    dead, alive = (
        Journal(database, clock=now, lease=timedelta(seconds=60), in_turn=True) for _ in range(2)
    )
    claims = [
        Claim(routine=name, definition="{}", trigger="cron", slot=now(), goal="go")
        for name in ("a", "b", "c")
    ]
    lost_run, own_run, late_run = [run for run in await dead.slots.claim(claims) if run]
    assert await dead.runs.claim(lost_run.id, owner="dead")
    assert await alive.runs.claim(own_run.id, owner="alive")
    claimed_run = await alive.runs.claim(late_run.id, owner="alive")
    assert claimed_run
    await alive.runs.suspend(claimed_run, not_before=now() + timedelta(minutes=5))
    assert (await dead.workers.renew_leases(worker("dead"), may_lead=True)).is_leader
    assert not (await alive.workers.renew_leases(worker("alive"), may_lead=True)).is_leader

    def jump(
        connection: Any,
    ) -> None:  # all of it as if it had been written while the clock was ahead
        connection.execute("UPDATE run SET lease_until = lease_until + ?", (AHEAD,))
        connection.execute("UPDATE worker SET seen = seen + ?, leads = leads + ?", (AHEAD, AHEAD))
        assignments = "not_before = not_before + ?, waits_since = waits_since + ?"
        connection.execute(f"UPDATE run SET {assignments} WHERE status = 'queued'", (AHEAD, AHEAD))

    await database.write(jump)
    renewal = await alive.workers.renew_leases(worker("alive"), may_lead=True)
    assert (renewal.lost_runs, [run.id for run in renewal.waits.runs]) == ([], [late_run.id])
    (moved_run,) = renewal.waits.runs
    assert moved_run.not_before and moved_run.waits_moved
    assert timedelta(minutes=4) < moved_run.not_before - now() < timedelta(minutes=6)

    def look(connection: Any) -> tuple[int, int]:
        soon = "agentd_now() + 61000000"
        runs = f"SELECT count(*) FROM run WHERE status = 'running' AND lease_until <= {soon}"
        leaders = f"SELECT count(*) FROM worker WHERE leads > {soon}"
        return connection.execute(runs).fetchone()[0], connection.execute(leaders).fetchone()[0]

    assert await database.read(look) == (2, 0), (
        "each lease ends within its length, and so does the leadership"
    )
    await database.write(
        lambda connection: connection.execute("UPDATE run SET lease_until = 0 WHERE owner = 'dead'")
    )
    assert list((await alive.workers.renew_leases(worker("alive"), may_lead=True)).freed_runs) == [
        lost_run.id
    ]
    assert not (await alive.workers.renew_leases(worker("alive"), may_lead=True)).waits.runs, (
        "it is moved once"
    )
    await database.close()
