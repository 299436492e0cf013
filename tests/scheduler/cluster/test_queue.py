"""The run queue in PostgreSQL: each queued run is executed, even after a worker dies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from daemon.definitions.routines.routine import Routine
from daemon.models import Status, new_id
from daemon.scheduler.cluster.queue import prepare_database, queue_of, repair_queue
from daemon.store.journal import Claim, Journal
from daemon.store.opening import open_database
from daemon.store.workers import Worker


def now():
    return datetime.now(UTC)


class Queue:
    """A journal with a queue, and a look into it."""

    def __init__(self, db, postgres, name):
        self.db, self._postgres, self._name = db, postgres, name
        self.journal = Journal(db, clock=now, in_turn=True)
        self.me = Worker(
            id="me", kind="worker", host="box", pid=1, version="1", started=now(), seen=now()
        )

    def sql(self, statement):
        return self._postgres.sql(statement, self._name)

    @property
    def jobs(self):
        return self.sql(
            "SELECT args ->> 'run', queue_name, status::text FROM procrastinate_jobs ORDER BY id"
        )

    async def queue_run(self, name="daily", **trigger):
        return await self.queued_as(
            Routine.model_validate({"name": name, "run": {"prompt": "x"}, "trigger": trigger})
        )

    async def queued_as(self, routine):
        claim = Claim(
            routine=routine.name,
            definition=routine.dump(),
            trigger="manual",
            slot=now(),
            goal="x",
            event=new_id(),
            input=None,
        )
        (run,) = await self.journal.slots.claim([claim])
        return run

    async def beat(self, heal=0):
        return await self.journal.workers.renew_leases(
            self.me, may_lead=True, repair=repair_queue(heal)
        )


@pytest.fixture
async def queue(tmp_path, postgres):
    # not one that others get afterwards: it has tables of procrastinate
    name = postgres.create(postgres.template)
    db = await open_database(tmp_path / "agentd.db", postgres.url(name))
    await prepare_database(db)
    await prepare_database(db)  # whoever comes second finds it there
    yield Queue(db, postgres, name)
    await db.close()
    postgres.drop(name)


async def test_a_run_is_enqueued_in_the_transaction_of_its_slot(queue):
    run = await queue.queue_run()
    assert queue.jobs == [(run.id, "any", "todo")]


async def test_a_run_bound_to_machines_is_in_their_queue(queue):
    await queue.queue_run(machines=["gpu-*", "über"], every="1h")
    assert [name for _, name, _ in queue.jobs] == [queue_of(["gpu-*", "über"])]


async def test_a_run_of_several_triggers_is_in_the_queue_of_their_machines(queue):
    trigger = {"every": "1h", "machines": ["gpu-*"]}
    routine = Routine.model_validate(
        {"name": "a", "run": {"prompt": "x"}, "trigger": [trigger, {**trigger, "every": "7h"}]}
    )
    await queue.queued_as(routine)
    anywhere = Routine.model_validate(
        {"name": "b", "run": {"prompt": "x"}, "trigger": [{"every": "1h"}, {"every": "7h"}]}
    )
    await queue.queued_as(anywhere)
    assert [name for _, name, _ in queue.jobs] == [queue_of(routine.machines), "any"]


async def test_the_next_run_of_a_routine_is_enqueued_when_the_earlier_run_ends(queue):
    first, second = await queue.queue_run(), await queue.queue_run()
    claimed_run = await queue.journal.runs.claim(first.id, owner="me")
    assert await queue.journal.runs.claim(second.id, owner="me") is None
    queue.sql("DELETE FROM procrastinate_jobs")
    await queue.journal.runs.end(claimed_run.to(Status.SUCCEEDED))
    assert queue.jobs == [(second.id, "any", "todo")]


async def test_a_released_run_is_enqueued_again(queue):
    run = await queue.queue_run()
    claimed_run = await queue.journal.runs.claim(run.id, owner="me")
    queue.sql("DELETE FROM procrastinate_jobs")
    await queue.journal.runs.suspend(claimed_run, not_before=now() + timedelta(hours=1))
    assert queue.jobs == [(run.id, "any", "todo")]
    assert queue.sql(
        "SELECT scheduled_at > now() + interval '50 minutes' FROM procrastinate_jobs"
    ) == [(True,)]


async def test_a_run_lost_in_the_queue_is_enqueued_at_the_next_heartbeat(queue):
    run = await queue.queue_run()
    queue.sql("DELETE FROM procrastinate_jobs")
    await queue.beat(heal=10**9)
    assert queue.jobs == [], "it may be on its way still"
    await queue.beat()
    await queue.beat()
    assert queue.jobs == [(run.id, "any", "todo")]


async def test_a_run_of_a_worker_dead_before_the_claim_is_enqueued_again(queue):
    run = await queue.queue_run()
    queue.sql("INSERT INTO procrastinate_workers DEFAULT VALUES")
    queue.sql(
        (  # noqa: UP034
            "UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT max(id) FROM "
            "procrastinate_workers)"
        )
    )
    await queue.beat(heal=5_000_000)
    assert queue.jobs == [(run.id, "any", "doing")], "its worker lives"
    queue.sql("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
    await queue.beat()
    assert (run.id, "any", "todo") in queue.jobs


async def test_one_process_leads_until_its_heartbeat_stops(queue):
    other_worker = Worker(
        id="other", kind="daemon", host="box", pid=2, version="1", started=now(), seen=now()
    )
    assert (await queue.beat()).is_leader
    assert not (await queue.journal.workers.renew_leases(other_worker, may_lead=True)).is_leader
    queue.sql("UPDATE worker SET leads = 0 WHERE id = 'me'")
    assert (await queue.journal.workers.renew_leases(other_worker, may_lead=True)).is_leader
    assert [(worker.id, worker.is_leader) for worker in await queue.journal.workers.find()] == [
        ("me", False),
        ("other", True),
    ]


async def test_a_heartbeat_renews_leases_and_recovers_runs_of_dead_processes(queue):
    own_run, dead_run, lost_run = [
        await queue.journal.runs.claim((await queue.queue_run(name)).id, owner="me")
        for name in ("mine", "dead", "lost")
    ]
    queue.sql(f"UPDATE run SET lease_until = 0 WHERE id = '{own_run.id}'")
    queue.sql(f"UPDATE run SET fence = fence + 1 WHERE id = '{lost_run.id}'")
    queue.sql(f"UPDATE run SET fence = fence + 1, lease_until = 0 WHERE id = '{dead_run.id}'")
    await queue.journal.runs.request_cancel(own_run.id)
    renewal = await queue.beat()
    assert (sorted(renewal.lost_runs), renewal.cancelled_runs, renewal.freed_runs) == (
        sorted([dead_run.id, lost_run.id]),
        [own_run.id],
        [dead_run.id],
    )
    assert queue.sql(f"SELECT lease_until > agentd_now() FROM run WHERE id = '{own_run.id}'") == [
        (True,)
    ]
    assert (await queue.journal.runs.get(dead_run.id)).status is Status.QUEUED
