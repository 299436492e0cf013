"""A run has one owner at a time, whose steps are kept."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.errors import Fenced, NotFound, Refused, StoreFull
from daemon.models import DeliveryStatus, Run, Status, StepKind, Usage
from daemon.store.database import Database, Work
from daemon.store.journal import Journal
from daemon.store.rows import DEFLATE_FROM
from daemon.testing import FakeClock
from tests.store.conftest import START, Ledger, in_a_file, step


async def numbers(ledger: Ledger, run: Run) -> list[int]:
    return [step.body["number"] for step in await ledger.journal.runs.get_steps(run.id)]


# --- taking, suspending, recovering


async def test_a_run_is_claimed_once(ledger: Ledger, clock: FakeClock) -> None:
    queued_run = await ledger.queue_run()
    claimed_runs = await asyncio.gather(
        *(ledger.journal.runs.claim(queued_run.id, owner=name) for name in "ab")
    )
    (run,) = (claimed_run for claimed_run in claimed_runs if claimed_run)
    assert (run.status, run.fence, run.attempt, run.fruitless_attempts) == (Status.RUNNING, 1, 1, 1)
    assert run.started == clock.now()
    assert await ledger.journal.runs.get(run.id) == run


async def test_a_run_is_not_claimed_before_its_time(ledger: Ledger, clock: FakeClock) -> None:
    queued_run = await ledger.queue_run(not_before=START + timedelta(hours=1))
    assert await ledger.journal.runs.claim(queued_run.id, owner="me") is None
    clock.advance(hours=1)
    run = await ledger.journal.runs.claim(queued_run.id, owner="me")
    assert run is not None
    assert run.not_before is None


async def test_an_unknown_or_ended_run_is_not_claimed(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    assert await ledger.journal.runs.claim(run.id, owner="me") is None
    assert await ledger.journal.runs.claim("nobody", owner="me") is None


async def test_a_suspended_run_continues_after_its_last_step(
    ledger: Ledger, clock: FakeClock
) -> None:
    first = await ledger.start_run()
    await ledger.journal.runs.append(first, step(number=0), step(number=1))
    used_run = replace(
        first, active=12.5, usage=Usage(input=9), iterations=2, provider="p", model="m"
    )
    queued_run = await ledger.journal.runs.suspend(used_run)
    assert (queued_run.status, queued_run.active, queued_run.usage, queued_run.iterations) == (
        "queued",
        12.5,
        Usage(input=9),
        2,
    )
    clock.advance(hours=1)
    second = await ledger.journal.runs.claim(first.id, owner="other")
    assert second is not None
    assert (second.attempt, second.started, second.model) == (2, first.started, "m")
    await ledger.journal.runs.append(second, step(number=2))
    assert await numbers(ledger, second) == [0, 1, 2]


async def test_a_former_owner_of_a_run_is_fenced(ledger: Ledger) -> None:
    stale = await ledger.start_run()
    queued_run = await ledger.journal.runs.suspend(stale)
    for attempt in (
        lambda: ledger.journal.runs.append(stale, step(number=0)),
        lambda: ledger.journal.runs.end(stale.to(Status.SUCCEEDED)),
        lambda: ledger.journal.runs.end(stale.to(Status.INTERRUPTED)),
        lambda: ledger.journal.runs.suspend(stale),
    ):
        with pytest.raises(Fenced, match="does not belong to this process any more"):
            await attempt()
    fresh = await ledger.journal.runs.claim(stale.id, owner="other")
    assert fresh is not None
    assert fresh.fence > queued_run.fence > stale.fence
    with pytest.raises(Fenced):
        await ledger.journal.runs.append(stale, step(number=0))
    await ledger.journal.runs.append(fresh, step(number=1))
    assert await numbers(ledger, fresh) == [1]


async def test_a_zombie_of_another_process_is_fenced_by_the_database(
    ledger: Ledger, db: Database
) -> None:
    zombie = await ledger.start_run()
    successor = Ledger(db, ledger.clock)
    await ledger.lapse()
    await successor.journal.runs.recover("other")
    with pytest.raises(Fenced):
        await ledger.journal.runs.append(zombie, step(number=0))
    await successor.journal.runs.claim(zombie.id, owner="other")
    with pytest.raises(Fenced):
        await ledger.journal.runs.end(zombie.to(Status.SUCCEEDED))
    assert (await ledger.journal.runs.get(zombie.id)).status is Status.RUNNING


async def test_runs_of_a_dead_process_are_queued_again(ledger: Ledger) -> None:
    finished_run, dead_run, waiting_run = (
        await ledger.start_run(),
        await ledger.start_run(),
        await ledger.queue_run(),
    )
    await ledger.journal.runs.end(finished_run.to(Status.SUCCEEDED))
    await ledger.lapse()
    recovered_runs = await ledger.journal.runs.recover("me")
    assert [(run.id, run.status) for run in recovered_runs] == [
        (dead_run.id, Status.QUEUED),
        (waiting_run.id, Status.QUEUED),
    ]
    again = await ledger.journal.runs.claim(dead_run.id, owner="me")
    assert again is not None
    assert again.fruitless_attempts == 2


async def test_only_attempts_without_a_new_step_are_fruitless(
    ledger: Ledger, clock: FakeClock
) -> None:
    run = await ledger.start_run()

    async def claim_again(queued_run: Run) -> Run:
        clock.advance(hours=1)
        claimed_run = await ledger.journal.runs.claim(queued_run.id, owner="me")
        assert claimed_run is not None
        return claimed_run

    run = await claim_again(await ledger.journal.runs.suspend(run))
    assert run.fruitless_attempts == 1, "a shutdown is nobody's fault"
    run = await claim_again(
        await ledger.journal.runs.suspend(run, not_before=clock.now(), detail="busy")
    )
    assert run.fruitless_attempts == 2, "a vendor that was busy counts"
    await ledger.journal.runs.append(run, step(number=0))
    run = await claim_again(await ledger.journal.runs.suspend(run, not_before=clock.now()))
    assert run.fruitless_attempts == 1, "a step makes up for all before"
    await ledger.journal.runs.append(run, step(number=1))
    run = await claim_again(await ledger.journal.runs.suspend(run))
    assert run.fruitless_attempts == 1


# --- begun without waiting for the record


async def test_a_lazy_claim_is_written_with_the_first_step(
    ledger: Ledger, clock: FakeClock
) -> None:
    queued_run = await ledger.queue_run()
    run = ledger.journal.runs.claim_lazily(queued_run.id, owner="me")
    if ledger.db.shared:  # somebody else may have it by now
        assert run is None
        return
    assert run is not None
    await ledger.journal.runs.append(run, step(number=0))
    stored_run = await ledger.journal.runs.get(run.id)
    assert (
        stored_run.status,
        stored_run.started,
        stored_run.fence,
        stored_run.attempt,
        stored_run.fruitless_attempts,
    ) == (
        Status.RUNNING,
        clock.now(),
        1,
        1,
        0,
    )
    assert stored_run == replace(run, fruitless_attempts=0)
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED))


async def test_a_lazily_claimed_run_cannot_be_claimed_again(ledger: Ledger) -> None:
    queued_run = await ledger.queue_run()
    if ledger.journal.runs.claim_lazily(queued_run.id, owner="me"):
        assert ledger.journal.runs.claim_lazily(queued_run.id, owner="me") is None
        assert await ledger.journal.runs.claim(queued_run.id, owner="other") is None


async def test_only_a_run_just_opened_by_this_process_is_claimed_lazily(
    ledger: Ledger, clock: FakeClock
) -> None:
    later = await ledger.queue_run(not_before=clock.now() + timedelta(hours=1))
    assert ledger.journal.runs.claim_lazily(later.id, owner="me") is None
    assert ledger.journal.runs.claim_lazily("nobody", owner="me") is None
    opened_run = await ledger.queue_run("known")
    assert Ledger(ledger.db, clock).journal.runs.claim_lazily(opened_run.id, owner="me") is None
    suspended_run = await ledger.journal.runs.suspend(await ledger.start_run("again"))
    assert ledger.journal.runs.claim_lazily(suspended_run.id, owner="me") is None
    old = await ledger.queue_run("old")
    clock.advance(minutes=1)
    assert ledger.journal.runs.claim_lazily(old.id, owner="me") is None
    called_off = await ledger.queue_run("called off")
    await ledger.journal.runs.request_cancel(called_off.id)
    assert ledger.journal.runs.claim_lazily(called_off.id, owner="me") is None


@in_a_file
async def test_a_lazily_claimed_run_can_be_cancelled(ledger: Ledger) -> None:
    run = ledger.journal.runs.claim_lazily((await ledger.queue_run()).id, owner="me")
    assert run is not None
    marked_run = await ledger.journal.runs.request_cancel(run.id)
    assert (marked_run.status, marked_run.cancel) == (Status.RUNNING, True)
    await ledger.journal.runs.end(run.to(Status.CANCELLED))


@in_a_file
async def test_a_lazy_claim_of_a_cancelled_run_writes_no_step(
    ledger: Ledger, clock: FakeClock
) -> None:
    queued_run = await ledger.queue_run()
    # of which our journal has not heard
    await Ledger(ledger.db, clock).journal.runs.request_cancel(queued_run.id)
    run = ledger.journal.runs.claim_lazily(queued_run.id, owner="me")
    assert run is not None
    behind = ledger.journal.runs.append(run, step(number=0))
    for write in (
        behind,
        ledger.journal.runs.confirm_claim(run),
        ledger.journal.runs.end(run.to(Status.SUCCEEDED)),
    ):
        with pytest.raises(Fenced):
            await write
    with pytest.raises(Fenced):
        await ledger.journal.runs.confirm_claim(run)
    assert (await ledger.journal.runs.get(run.id)).status is Status.CANCELLED
    assert await numbers(ledger, run) == []


class Refusing(Database):
    """A database that does not take the next write."""

    refusing = False

    def submit(
        self, work: Work[Any], *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[Any]:
        def fail(connection: sqlite3.Connection) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

        refusing, self.refusing = self.refusing, False
        return super().submit(fail if refusing else work, durable=durable, lazily=lazily)


async def test_a_lazy_claim_refused_by_a_full_disk_leaves_the_run_queued(
    tmp_path: Path, clock: FakeClock
) -> None:
    db = await Refusing.open(tmp_path / "agentd.db")
    assert isinstance(db, Refusing)
    ledger = Ledger(db, clock)
    queued_run = await ledger.queue_run()
    db.refusing = True
    run = ledger.journal.runs.claim_lazily(queued_run.id, owner="me")
    assert run is not None
    behind = ledger.journal.runs.append(run, step(number=0))
    for write in (
        behind,
        ledger.journal.runs.confirm_claim(run),
        ledger.journal.runs.end(run.to(Status.SUCCEEDED)),
    ):
        with pytest.raises(StoreFull):
            await write
    assert await ledger.journal.runs.suspend(run) == queued_run
    again = await ledger.journal.runs.claim(queued_run.id, owner="me")
    assert again is not None
    assert again.attempt == 1
    await ledger.journal.runs.append(again, step(number=1))
    await ledger.journal.runs.end(again.to(Status.SUCCEEDED))
    assert await numbers(ledger, again) == [1]
    await db.close()


# --- steps


async def test_steps_round_trip(ledger: Ledger, clock: FakeClock) -> None:
    run = await ledger.start_run()
    long = {"text": "中文 🙂 " * DEFLATE_FROM, "nested": [1, 2.5, None, {"a": True}]}
    odd = {"half a pair": "\ud83d", "zero": "\0"}
    steps = [
        step(StepKind.PROMPT, 0, **long),
        step(StepKind.LLM, 1, **odd),
        replace(step(StepKind.CALL, 1), call_id="call_1"),
    ]
    records = await ledger.journal.runs.append(run, *steps)
    assert [(record.seq, record.at) for record in records] == [
        (0, clock.now()),
        (1, clock.now()),
        (2, clock.now()),
    ]
    assert await ledger.journal.runs.get_steps(run.id) == records
    assert [replace(record, seq=-1, at=None) for record in records] == steps


async def test_long_step_bodies_are_compressed(ledger: Ledger, db: Database) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.append(run, step(text="x" * 100), step(text="x" * 100_000))
    short, long = await db.read(
        lambda connection: [
            body for (body,) in connection.execute("SELECT body FROM step ORDER BY seq")
        ]
    )
    assert short == b'{"text":"' + b"x" * 100 + b'"}'
    assert len(long) < 1_000
    assert zlib.decompress(long) == b'{"text":"' + b"x" * 100_000 + b'"}', (
        "as every version has read it"
    )


async def test_unawaited_steps_are_written_before_an_awaited_step(ledger: Ledger) -> None:
    run = await ledger.start_run()
    for number in range(10):
        ledger.journal.runs.append(run, step(number=number))
    await ledger.journal.runs.append(run, step(number=10), durable=True)
    assert await numbers(ledger, run) == list(range(11))


async def test_a_step_is_written_as_of_its_append(ledger: Ledger) -> None:
    run = await ledger.start_run()
    body = {"number": 1}
    write = ledger.journal.runs.append(run, replace(step(), body=body))
    body["number"] = 2
    await write
    assert await numbers(ledger, run) == [1]


async def test_a_step_body_that_is_no_json_is_refused_before_the_write(
    ledger: Ledger,
) -> None:
    run = await ledger.start_run()
    with pytest.raises(TypeError, match="not JSON serializable"):
        ledger.journal.runs.append(run, step(number=1), step(number=object()))
    await ledger.journal.runs.append(run, step(number=2))
    assert await numbers(ledger, run) == [2]


async def test_the_active_time_of_a_run_is_stored_with_its_step(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.append(run, step(number=0), active=4.5)
    await ledger.journal.runs.append(run, step(number=1))
    assert (await ledger.journal.runs.get(run.id)).active == 4.5


@in_a_file
async def test_no_step_is_written_after_a_refused_step(ledger: Ledger, db: Database) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.append(run, step(number=0))
    (pages,) = await db.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
    await db.write(
        lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    )
    # incompressible, so that it does not fit where a small one would
    refused_write = ledger.journal.runs.append(
        run, step(number=1, text="".join(chr(0x4E00 + i * 7919 % 20_000) for i in range(50_000)))
    )
    behind = ledger.journal.runs.append(run, step(number=2))
    for write in (refused_write, behind):
        with pytest.raises(StoreFull):
            await write
    await db.write(
        lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchone()
    )
    with pytest.raises(StoreFull, match="an earlier step could not be written"):
        await ledger.journal.runs.append(run, step(number=3))
    with pytest.raises(StoreFull, match="an earlier step could not be written"):
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    again = await ledger.journal.runs.claim((await ledger.journal.runs.suspend(run)).id, owner="me")
    assert again is not None
    await ledger.journal.runs.append(again, step(number=4))
    await ledger.journal.runs.end(again.to(Status.SUCCEEDED))
    assert await numbers(ledger, again) == [0, 4]


# --- ending, cancelling


async def test_the_end_of_a_run_is_stored_completely(ledger: Ledger, clock: FakeClock) -> None:
    run = await ledger.start_run()
    clock.advance(seconds=30)
    usage = Usage(input=10, cache_read=4, cache_write=3, output=2, reasoning=1)
    ended_run = await ledger.journal.runs.end(
        run.to(
            Status.FAILED, report="half \udc80", detail="why", active=29.5, provider=(
                "claude"
            ), model=(
                "m"
            ), usage=usage,
            iterations=3,
        )
    )  # fmt: skip
    assert (ended_run.ended, ended_run.report, ended_run.usage, ended_run.active) == (
        clock.now(),
        "half ?",
        usage,
        29.5,
    )
    assert await ledger.journal.runs.get(run.id) == ended_run


async def test_a_run_ends_once(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [("file", {})])
    with pytest.raises(Fenced):
        await ledger.journal.runs.end(run.to(Status.FAILED), [("file", {})])
    assert len(await ledger.journal.outbox.find()) == 1


async def test_a_run_cannot_end_with_a_running_status(ledger: Ledger) -> None:
    run = await ledger.start_run()
    with pytest.raises(ValueError, match="is running, which is no end"):
        await ledger.journal.runs.end(run)


async def test_a_queued_run_can_end_without_a_claim(ledger: Ledger) -> None:
    queued_run = await ledger.queue_run()
    ended_run = await ledger.journal.runs.end(
        queued_run.to(Status.INTERRUPTED, detail="down for three days")
    )
    assert ended_run.status is Status.INTERRUPTED


async def test_a_queued_run_is_cancelled_at_once(ledger: Ledger, clock: FakeClock) -> None:
    queued_run = await ledger.queue_run()
    cancelled_run = await ledger.journal.runs.request_cancel(queued_run.id)
    assert (cancelled_run.status, cancelled_run.ended) == (Status.CANCELLED, clock.now())
    assert await ledger.journal.runs.claim(queued_run.id, owner="me") is None


async def test_a_running_run_is_marked_for_cancellation(ledger: Ledger) -> None:
    run = await ledger.start_run()
    marked_run = await ledger.journal.runs.request_cancel(run.id[-6:])
    assert (marked_run.id, marked_run.status, marked_run.cancel) == (run.id, Status.RUNNING, True)
    await ledger.journal.runs.append(run, step(number=0))
    ended_run = await ledger.journal.runs.end(run.to(Status.CANCELLED))
    assert ended_run.cancel
    with pytest.raises(Refused, match=r"has already ended \(cancelled\)"):
        await ledger.journal.runs.request_cancel(run.id)
    with pytest.raises(NotFound):
        await ledger.journal.runs.request_cancel("nobody")


async def test_a_requested_cancellation_survives_a_restart(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.request_cancel(run.id)
    await ledger.lapse()
    (recovered_run,) = await ledger.journal.runs.recover("me")
    assert recovered_run.cancel


# --- looking


async def test_a_unique_part_of_an_id_finds_its_run(ledger: Ledger) -> None:
    first, second = await ledger.queue_run(), await ledger.queue_run()
    for text in (first.id, first.id.lower(), first.id[-4:], first.id[:-1], first.id[4:].lower()):
        assert await ledger.journal.runs.get(text) == first
    with pytest.raises(NotFound, match=f"fits several runs, {second.id} and {first.id} among them"):
        await ledger.journal.runs.get(first.id[:6])
    with pytest.raises(NotFound, match="there is no run 'zzzz'"):
        await ledger.journal.runs.get("zzzz")
    with pytest.raises(NotFound, match="at least 4 characters"):
        await ledger.journal.runs.get(first.id[-3:])
    with pytest.raises(NotFound, match="at least 4 characters"):
        await ledger.journal.runs.get("")


async def test_runs_are_listed_newest_first_page_by_page(ledger: Ledger) -> None:
    runs = [await ledger.queue_run(name) for name in "abababab"]
    newest = sorted((run.id for run in runs), reverse=True)
    assert [run.id for run in await ledger.journal.runs.find()] == newest
    page = await ledger.journal.runs.find(limit=3)
    assert [
        run.id for run in await ledger.journal.runs.find(limit=3, before=page[-1].id)
    ] == newest[3:6]
    found_ids = [run.id for run in await ledger.journal.runs.find("a", limit=2)]
    assert found_ids == [id_ for id_ in newest if id_ in {run.id for run in runs[::2]}][:2]


async def test_runs_are_found_by_status(ledger: Ledger) -> None:
    queued_run, failed_run, good_run = (
        await ledger.queue_run(),
        await ledger.start_run(),
        await ledger.start_run(),
    )
    await ledger.journal.runs.end(failed_run.to(Status.FAILED))
    await ledger.journal.runs.end(good_run.to(Status.SUCCEEDED))
    assert [run.id for run in await ledger.journal.runs.find(status=Status.FAILED)] == [
        failed_run.id
    ]
    assert [run.id for run in await ledger.journal.runs.find_active()] == [queued_run.id]
    last = await ledger.journal.runs.get_last("daily", statuses={Status.FAILED, Status.SUCCEEDED})
    assert last is not None
    assert last.id == good_run.id
    before = await ledger.journal.runs.get_last(
        "daily", statuses=[Status.FAILED, Status.SUCCEEDED], before=good_run.id
    )
    assert before is not None
    assert before.id == failed_run.id
    assert await ledger.journal.runs.get_last("daily", statuses={Status.TIMED_OUT}) is None


async def test_the_newest_run_of_each_routine_is_found_in_one_query(ledger: Ledger) -> None:
    get_last_by_routine = ledger.journal.runs.get_last_by_routine
    names = ["a", "b", "c", "never-ran"]
    assert await get_last_by_routine(names) == {}
    assert await get_last_by_routine([]) == {}
    runs = [await ledger.queue_run(name) for name in ("b", "a", "b", "c", "a")]
    newest = {run.routine: run.id for run in sorted(runs, key=lambda run: run.id)}
    assert {name: run.id for name, run in (await get_last_by_routine(names)).items()} == newest
    [(name, run)] = (await get_last_by_routine(["b"])).items()
    assert (name, run.id) == ("b", newest["b"])


@in_a_file
async def test_the_last_successful_run_of_this_process_is_cached(
    ledger: Ledger, clock: FakeClock
) -> None:
    journal = ledger.journal
    assert journal.runs.get_cached_success("daily", before="~") is None
    runs = [await ledger.start_run() for _ in range(3)]
    for run, status in zip(runs, (Status.SUCCEEDED, Status.SUCCEEDED, Status.FAILED), strict=True):
        await journal.runs.end(run.to(status, report=f"of {run.id}"))
    _, second, third = runs
    cached_run = journal.runs.get_cached_success("daily", before=third.id)
    assert cached_run == await journal.runs.get_last(
        "daily", statuses={Status.SUCCEEDED}, before=third.id
    )
    assert cached_run is not None and cached_run.report == f"of {second.id}"
    # what it does not know it leaves to a look
    assert journal.runs.get_cached_success("daily", before=second.id) is None
    assert journal.runs.get_cached_success("weekly", before="~") is None
    again = await ledger.start_run()
    await journal.routines.rename("daily", "weekly")
    assert (
        journal.runs.get_cached_success("daily", before=again.id)
        is journal.runs.get_cached_success("weekly", before=again.id)
        is None
    )


@in_a_file
async def test_runs_of_an_earlier_process_are_not_cached(ledger: Ledger, clock: FakeClock) -> None:
    old, young = await ledger.queue_run(), await ledger.start_run()
    await ledger.journal.runs.end(young.to(Status.SUCCEEDED))
    clock.advance(minutes=1)
    later = Journal(ledger.db, clock=clock.now)  # a daemon that was started anew
    claimed_run = await later.runs.claim(old.id, owner="me")
    assert claimed_run is not None
    await later.runs.end(claimed_run.to(Status.SUCCEEDED))
    assert later.runs.get_cached_success("daily", before="~") is None
    last = await later.runs.get_last("daily", statuses={Status.SUCCEEDED})
    assert last is not None and last.id == young.id


async def test_a_shared_store_caches_no_last_run(
    ledger: Ledger,
) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    assert bool(ledger.journal.runs.get_cached_success("daily", before="~")) is not ledger.db.shared


async def test_runs_heard_by_a_person_are_counted_for_the_day(
    ledger: Ledger, clock: FakeClock
) -> None:
    async def count_heard() -> int:
        return await ledger.journal.routines.count_runs_with_report("daily", since)

    async def end(status: Status, *deliveries: tuple[str, dict[str, str]], **how: Any) -> Run:
        return await ledger.journal.runs.end(
            (await ledger.start_run()).to(status, **how), list(deliveries)
        )

    await end(Status.SUCCEEDED)
    since = clock.advance(hours=1)
    for status in (Status.SKIPPED, Status.FAILED, Status.CANCELLED):
        await end(status)
    await end(Status.SUCCEEDED, ("file", {}), silent=True)
    await end(Status.SUCCEEDED, silent=True)
    assert await count_heard() == 0, "nobody heard of any of these"
    await end(Status.SUCCEEDED)
    assert await count_heard() == 1, "it said something, and there is nobody to deliver it to"
    failed_run = await end(Status.FAILED, ("file", {}), detail="why")
    assert await count_heard() == 2, "it is on its way"
    (delivery,) = await ledger.journal.outbox.find(run=failed_run.id)
    await ledger.journal.outbox.mark_failed(delivery.id, "nobody there", None)
    assert await count_heard() == 1, "it never arrived"
    run = await ledger.start_run()
    assert await count_heard() == 2, "it may still be heard"
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED), [("file", {})])
    (delivery,) = await ledger.journal.outbox.find(run=run.id)
    await ledger.journal.outbox.mark_delivered(delivery.id, "there")
    assert await count_heard() == 2
    assert await ledger.journal.routines.count_runs_with_report("other", since) == 0


async def test_pings_and_notices_are_no_reports_that_a_person_heard(
    ledger: Ledger, clock: FakeClock
) -> None:
    journal, since = ledger.journal, clock.now()
    ping, mail = ("alive", {"ping": "success", "trigger": "cron"}), ("mail", {"trigger": "cron"})

    async def end(status: Status, *deliveries: tuple[str, dict[str, str]], **how: Any) -> list[str]:
        """Return the kinds of what was delivered."""
        run = await journal.runs.end((await ledger.start_run()).to(status, **how), list(deliveries))
        pending = await journal.outbox.find(run=run.id, status=DeliveryStatus.PENDING)
        for delivery in pending:
            await journal.outbox.mark_delivered(delivery.id, "there")
        return [delivery.content for delivery in pending]

    async def count_heard() -> int:
        return await journal.routines.count_runs_with_report("daily", since)

    assert await end(Status.SUCCEEDED, ping, silent=True) == ["report"]
    assert await count_heard() == 0, "a ping tells nobody anything"
    await end(Status.FAILED, mail, detail="why")
    assert await count_heard() == 1
    kinds = await end(Status.SUCCEEDED, mail, silent=True)
    assert kinds == ["incident.recovered"]
    assert await count_heard() == 1, "it said nothing itself"
    await end(Status.SUCCEEDED, ping)
    assert await count_heard() == 2, "it said something, and there is nobody to deliver it to"
    await end(Status.SUCCEEDED, ("mail", {"detail": 'it said "ping":"success"'}))
    assert await count_heard() == 3


async def test_an_unknown_definition_is_not_found(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        await ledger.journal.runs.get_definition("0" * 32)
