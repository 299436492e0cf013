"""Runs and their steps: which process owns a run, what the run did, how it ended.

Every write names the fence of the run's claim. The fence is raised whenever a run changes its owner
(claimed, suspended, recovered), so that an earlier owner can write nothing more: Fenced.

Steps are numbered by `append`, and a write succeeds only if every step before it was written. So
`append` may be left un-awaited: if the disk refuses one step, no later one is written either, and
the journal never has a hole.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from daemon.errors import Fenced, NotFound, Refused
from daemon.models import Json, Reason, Run, Status, Step
from daemon.store.approval_rows import void_open_requests
from daemon.store.connection import Connection
from daemon.store.database import Database, Repository
from daemon.store.incidents import IncidentRepository
from daemon.store.outbox import enqueue
from daemon.store.rows import (
    MICROSECOND,
    PUT_VALUE,
    RUN_COLUMNS,
    STEP_COLUMNS,
    clean,
    decode,
    events_below,
    row_checksum,
    run_of,
    runs_in,
    step_of,
    to_microseconds,
)
from daemon.store.run_rows import (
    CLAIM,
    CLAIM_IN_TURN,
    CLAIM_SHARED,
    PendingSteps,
    find_run,
    make_fenced,
    release_run,
    select_last,
    unclaimed_state,
)
from daemon.store.seen_items import ReportedItemRecord, record_reported_items
from daemon.store.texts import BodyReader, encode
from daemon.system.clock import seconds_since_boot

if TYPE_CHECKING:
    from sqlmodel import Session

# Only where several daemons share a database: where one has its own, the lock on the state folder
# says that no other process runs.
LEASE = timedelta(seconds=60)
RENEW = (
    "UPDATE run SET lease_until = ? WHERE id = ? AND fence = ? AND status = 'running' RETURNING "
    "cancel"
)
AFTER_EVERY_MOMENT = 2**62  # microseconds

# How many runs that were opened just now can be claimed lazily, and for how long: memory is not to
# grow with ten thousand runs that are due at once. Others are claimed by `claim`.
_MAX_FRESH, _FRESH_FOR = 256, timedelta(seconds=5)
# How many successes are cached, and how many characters the report of each may have.
_MAX_CACHED, _MAX_CACHED_REPORT = 256, 20_000

# One seek for each routine, by the index of the routines; a GROUP BY would read all runs of each
# ("loose index scan").
_NEWEST_OF_EACH = (
    "WHERE id IN (WITH name (routine) AS (VALUES %s)"
    " SELECT (SELECT max(id) FROM run WHERE routine = name.routine) FROM name)"
)


_REQUEST_CANCEL = f"UPDATE run SET cancel = 1 WHERE id = ? RETURNING {RUN_COLUMNS}"

_CANCEL = (
    "UPDATE run SET cancel = 1, status = 'cancelled', ended = ?, fence = fence + 1 WHERE id = ? "
    f"RETURNING {RUN_COLUMNS}"
)


# Events of a conversation or of a parent are `NAME/NUMBER`: a range of the index over events, as
# '0' follows '/'.
_TURNS = (
    "WHERE id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
    " AND id < ? ORDER BY id DESC LIMIT ?"
)
# Of these, those that ended with a report, later than a run.
_ANSWERED_TURNS = (
    "WHERE id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
    " AND id < ? AND id > ? AND status IN ('succeeded', 'failed') AND report <> ''"
    " ORDER BY id DESC LIMIT ?"
)
_CHILDREN = (
    "WHERE status IN ('queued', 'running', 'waiting')"
    " AND id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
)
_BY_MESSAGE = "WHERE id = (SELECT run_id FROM told WHERE event = ? ORDER BY id LIMIT 1)"
# The runs that have not ended, by the index of the status. Their ids come from a query of its own:
# by the statistics of a year SQLite would read all runs there ever were, in the order of their ids.
_ACTIVE_ONLY = "WHERE id IN (SELECT id FROM run WHERE status IN ('queued', 'running', 'waiting'))"
_ACTIVE = f"{_ACTIVE_ONLY} AND (CAST(? AS TEXT) IS NULL OR routine = ?) ORDER BY id"
_ACTIVE_IDS = f"SELECT routine, id FROM run {_ACTIVE_ONLY} ORDER BY id"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMessage:
    """One message that a person sent to a run under way."""

    id: int
    run: str
    text: str
    event: str
    """The sender's id of the message."""


class RunRepository(Repository):
    """Runs, their steps, and the messages that people send to them.

    Tables: run, step, text, definition, input, told.
    """

    def __init__(
        self,
        db: Database,
        *,
        clock: Callable[[], datetime],
        incidents: IncidentRepository,
        lease: timedelta = LEASE,
        in_turn: bool = False,
    ) -> None:
        """`lease`: how long a claim holds without a renewal, where daemons share the database.

        `in_turn`: a run is claimed only while no other run of its routine is running or waits.
        """
        super().__init__(db, clock=clock)
        self._incidents = incidents
        self._in_turn = in_turn
        self.lease = lease
        self._lease_microseconds = lease // MICROSECOND
        self.on_ended: Callable[[Run], None] = lambda run: None
        """Called with each run that ended, after the commit; a missed call can be made up from the
        journal.
        """
        self._claims: dict[str, tuple[int, int]] = {}
        """The runs this process has claimed, by id: the fence and the number of the next step."""
        self._renewed_at: dict[str, float] = {}
        """When the lease of each of them was renewed last, in seconds since the boot."""
        self._fresh: dict[str, Run] = {}
        """Runs that this process opened, until they are claimed or cancelled."""
        self._lazy_claims: dict[str, asyncio.Future[list[Step]]] = {}
        """Lazy claims by run id, until they are committed or the run is released."""
        self._pending: dict[str, PendingSteps] = {}
        """The last steps submitted of each run; until they are flushed, more can be added."""
        self._cached_since = clock()
        self._successes: dict[str, Run] = {}
        """By routine, the newest succeeded run of those created since `_cached_since`."""

    # --- executing a run

    async def claim(self, run_id: str, *, owner: str, takeover: bool = False) -> Run | None:
        """Claim a queued run for `owner`; None if it is not queued or not to be started yet.

        Where daemons share the database, a run whose owner's lease has expired is claimed as well;
        with `takeover` (a sub-agent of a run that was taken over) even while it is leased. With
        `in_turn`, None also while another run of its routine is running or waits.
        """
        now, is_shared = to_microseconds(self._clock()), self._db.shared
        self._fresh.pop(run_id, None)
        statement = CLAIM
        if is_shared:
            statement = CLAIM_IN_TURN if self._in_turn else CLAIM_SHARED

        def work(connection: Connection) -> tuple[Run, int] | None:
            database_now = connection.lease_clock(now)
            lease_until = database_now + self._lease_microseconds
            values: tuple[str | int, ...] = (owner, lease_until, now, run_id, now)
            if is_shared:
                values += (AFTER_EVERY_MOMENT if takeover else database_now,)
                if self._in_turn:
                    values += (database_now,)
            row = connection.execute(statement, values).fetchone()
            return None if row is None else (run_of(row[:-1]), row[-1])

        # a server that crashes must not forget a fence: two owners would have the same
        asked_at = seconds_since_boot()
        row = await self._db.write(work, durable=is_shared)
        if row is None:
            return None
        run, steps = row
        self._claims[run.id] = (run.fence, steps)
        self._renewed_at[run.id] = asked_at
        return run

    def note_renewal(self, runs: Iterable[str], asked_at: float) -> None:
        """Note that leases were renewed by a write that was begun at `asked_at`, in seconds since
        the boot.
        """
        self._renewed_at.update((run, asked_at) for run in runs if run in self._claims)

    async def confirm_lease(self, run: Run) -> None:
        """Return if no other process can have taken a run: at once as long as its lease holds, else
        once it is renewed. Raises Fenced if another process has it, StoreFull if that cannot be
        written.

        The lease is counted from when its renewal was begun, by a clock that goes on while this
        process or the machine stands still.
        """
        now, clock_now = seconds_since_boot(), to_microseconds(self._clock())
        renewed_at = self._renewed_at.get(run.id, -math.inf)
        if not self.shared or now - renewed_at < self.lease.total_seconds():
            return
        fence, _ = self._claims.get(run.id, (None, 0))

        def work(connection: Connection) -> bool:
            lease_until = connection.lease_clock(clock_now) + self._lease_microseconds
            return bool(connection.execute(RENEW, (lease_until, run.id, fence)).fetchall())

        if fence != run.fence or not await self._db.write(work):
            raise make_fenced(run)
        self.note_renewal([run.id], now)

    def claim_lazily(self, run_id: str, *, owner: str) -> Run | None:
        """Claim a run that this process opened just now, in the commit of whatever is written next.

        Returns None if the run has to be claimed by `claim`, as another state of it may be in the
        journal, or if it is not to be started yet.

        If the claim cannot be written, no later write of the run can either: each raises Fenced
        where the run was cancelled meanwhile, StoreFull where the disk was full. An action that
        writes nothing and needs the claim has to wait for `confirm_claim`.
        """
        queued_run, now = self._fresh.pop(run_id, None), self._clock()
        if queued_run is None or not timedelta() <= now - queued_run.created <= _FRESH_FOR:
            return None
        if queued_run.not_before is not None and queued_run.not_before > now:
            return None
        run = queued_run.to(
            Status.RUNNING,
            started=now,
            not_before=None,
            fence=queued_run.fence + 1,
            attempt=queued_run.attempt + 1,
            fruitless_attempts=queued_run.fruitless_attempts + 1,
        )
        lazy_claim = self._submit(PendingSteps(run, 0, owner, to_microseconds(now)), lazily=True)
        lazy_claim.add_done_callback(lambda claim: self._forget_lazy_claim(run, claim))
        self._lazy_claims[run.id] = lazy_claim
        self._claims[run.id] = (run.fence, 0)
        return run

    def _forget_lazy_claim(self, run: Run, claim: asyncio.Future[list[Step]]) -> None:
        """Forget a lazy claim that was committed; if another process was faster, the run as well.

        A claim that failed otherwise stays, so that `confirm_claim` raises its error.
        """
        error = None if claim.cancelled() else claim.exception()
        if error is None:
            self._lazy_claims.pop(run.id, None)
        elif isinstance(error, Fenced):
            self.forget_claim(run)

    async def confirm_claim(self, run: Run) -> None:
        """Wait until the claim of a run is committed. Raises Fenced or StoreFull if it was not."""
        if lazy_claim := self._lazy_claims.get(run.id):
            await asyncio.shield(lazy_claim)
        elif run.id not in self._claims:
            raise make_fenced(run)

    def keep_fresh(self, runs: Iterable[Run]) -> None:
        """Remember runs that were opened just now, for `claim_lazily`; does nothing where other
        processes share the database.
        """
        if self._db.shared:
            return
        self._fresh.update((run.id, run) for run in runs)
        # The oldest go all at once: to find its first key, a dict steps over all deleted ones.
        if len(self._fresh) > 2 * _MAX_FRESH:
            excess = len(self._fresh) - _MAX_FRESH
            self._fresh = dict(islice(self._fresh.items(), excess, None))

    def append(
        self,
        run: Run,
        *steps: Step,
        durable: bool = False,
        lazily: bool = False,
        active: float | None = None,
    ) -> asyncio.Future[list[Step]]:
        """Submit steps of a run and return the future of their commit, with their numbers.

        `durable`: the commit survives a power loss. `lazily`: with whatever is written next.
        `active`: the seconds that the run was under way, for its row.

        The future raises Fenced if the run has another owner by now, StoreFull if the disk refused
        these steps or earlier ones of the run: suspend it then, the journal is whole up to there.
        """
        now = self._clock()
        at = to_microseconds(now)
        fence, first = self._claims.get(run.id, (None, 0))
        if fence != run.fence:
            failure: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
            failure.set_exception(make_fenced(run))
            return failure
        # Encoded here, so that later changes by the caller are not written; deflated in the
        # writer's thread.
        bodies = [encode(step) for step in steps]
        pending_steps = self._pending.get(run.id)
        if durable or pending_steps is None or pending_steps.flushes != self._db.flushes:
            pending_steps = PendingSteps(run, first)
        pending_steps.at, pending_steps.active = at, active
        for seq, (step, body) in enumerate(zip(steps, bodies, strict=True), first):
            # not by `replace`, which takes ten times as long: this is done for every step there is
            numbered_step = Step(
                kind=step.kind,
                iteration=step.iteration,
                body=step.body,
                call_id=step.call_id,
                seq=seq,
                at=now,
            )
            pending_steps.steps.append((numbered_step, at, body))
        self._claims[run.id] = (run.fence, first + len(steps))
        return self._submit(pending_steps, durable=durable, lazily=lazily)

    def _submit(
        self, pending_steps: PendingSteps, *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[list[Step]]:
        """Submit steps to the writer; steps that were added to a submission that is still pending
        only flush it.
        """
        if pending_steps.commit is None:
            pending_steps.flushes = self._db.flushes
            pending_steps.commit = self._db.submit(
                lambda connection: pending_steps.write(connection, self._lease_microseconds),
                durable=durable,
                lazily=lazily,
            )
            self._pending[pending_steps.run.id] = pending_steps
        elif not lazily:
            self._db.flush()
        return pending_steps.commit

    async def get_steps(self, run_id: str) -> list[Step]:
        """Return the steps of a run so far, in order."""
        if claim := self._claims.get(run_id):
            _, next_step = claim
            if next_step == 0:
                return []
            await self._db.drain()  # pending steps are steps of the run

        def work(connection: Connection) -> list[Step]:
            rows = connection.execute(
                f"SELECT {STEP_COLUMNS} FROM step WHERE run_id = ? ORDER BY seq", (run_id,)
            )
            read_body = BodyReader(connection)
            return [step_of(row, read_body) for row in rows]

        return await self._db.read(work)

    async def get_input(self, run_id: str) -> Any:
        """Return the JSON value that the event of a run brought along; None if nothing."""

        def work(connection: Connection) -> bytes | None:
            row = connection.execute(
                "SELECT body FROM input WHERE run_id = ?", (run_id,)
            ).fetchone()
            return None if row is None else row[0]

        body = await self._db.read(work)
        return None if body is None else decode(body)

    async def has_intact_steps(self, run_id: str) -> bool:
        """Return whether the steps of a run are those that were written.

        True also for runs of versions that kept no checksum, and where the steps were deleted.
        """

        def work(connection: Connection) -> bool:
            (seal,) = connection.execute("SELECT seal FROM run WHERE id = ?", (run_id,)).fetchone()
            rows = connection.execute(
                f"SELECT {STEP_COLUMNS} FROM step WHERE run_id = ?", (run_id,)
            ).fetchall()
            return not seal or not rows or seal == sum(map(row_checksum, rows))

        return await self._db.read(work)

    async def end(
        self,
        run: Run,
        deliveries: Sequence[tuple[str, Json]] = (),
        *,
        reason: Reason = Reason.GATE,
        zone: str = "UTC",
        reported_items: ReportedItemRecord | None = None,
    ) -> Run:
        """Write the end of a run and its deliveries (target, options) in one durable commit.

        `run` is already in its ended status (`run.to(...)`). The deliveries of a silent run are
        written as suppressed. A skipped run makes its slot skipped, for `reason`. `zone` is the one
        its report is dated in. Raises Fenced; StoreFull as `append` does.
        """
        if not run.status.has_ended:
            raise ValueError(f"run {run.id} is {run.status}, which is no end")
        now = run.ended or self._clock()
        ended_run = (
            run
            if run.ended and run.not_before is None
            else replace(run, ended=now, not_before=None)
        )
        fence, steps = self._claims.get(run.id, (None, None))
        expected_steps = steps if fence == run.fence else None

        def work(connection: Connection) -> Run:
            final = release_run(connection, ended_run, expected_steps)
            if final.status is Status.SKIPPED:
                connection.execute(
                    "UPDATE slot SET outcome = 'skipped', reason = ? WHERE run_id = ?",
                    (reason, run.id),
                )
            enqueue(connection, final, deliveries, zone, self._incidents.settings)
            if final.attempt > 1:  # a run that waited for an answer was claimed again since
                void_open_requests(connection, run.id, to_microseconds(now))
            if reported_items is not None:
                record_reported_items(connection, final.routine, final.id, reported_items, now)
            return final

        final = await self._db.write(work, durable=True)
        self.forget_claim(run)
        self._cache_success(final)
        self.on_ended(final)
        return final

    def _cache_success(self, run: Run) -> None:
        """Keep a succeeded run in memory as the newest success of its routine.

        Not where other processes share the database, and not a run with a long report.
        """
        if (
            self._db.shared
            or run.status is not Status.SUCCEEDED
            or run.created < self._cached_since
        ):
            return
        cached_run = self._successes.pop(run.routine, run)
        if len(run.report or "") <= _MAX_CACHED_REPORT:
            self._successes[run.routine] = max(cached_run, run, key=lambda success: success.id)
        if len(self._successes) > _MAX_CACHED:
            del self._successes[next(iter(self._successes))]

    def get_cached_success(self, routine: str, *, before: str) -> Run | None:
        """Return the newest succeeded run of a routine, older than the run `before`, if it is
        cached.

        None means that it is unknown: `get_last` reads it from the journal.
        """
        run = self._successes.get(routine)
        return run if run and run.id < before else None

    def drop_cached_successes(self) -> None:
        """Clear the cache of succeeded runs: call it when ended runs are changed or deleted."""
        self._successes.clear()

    async def suspend(
        self, run: Run, *, not_before: datetime | None = None, detail: str | None = None
    ) -> Run:
        """Queue a running run again, to be resumed from its steps. Raises Fenced.

        With `not_before`, a transient fault stopped it: the attempt counts as fruitless unless it
        made a step. Without, the daemon stops or its disk was full: the attempt does not count.
        """
        since = None if not_before is None else self._clock()
        queued_run = run.to(Status.QUEUED, not_before=not_before, detail=detail)

        # Un-awaited steps are written before this work. If the disk refused one, the run is
        # suspended all the same: it resumes from the steps in the journal.
        def work(connection: Connection) -> Run:
            current = find_run(connection, run.id)
            if (current.fence, current.status) == unclaimed_state(run):
                return current  # the lazy claim was refused, so it is still queued
            return release_run(
                connection,
                queued_run,
                None,
                suspended=True,
                attempt_counts=not_before is not None,
                since=since,
            )

        suspended_run = await self._db.write(work)
        self.forget_claim(run)
        return suspended_run

    def forget_claim(self, run: Run) -> None:
        """Forget the claim of a run that was released in the journal.

        A later claim of the same run, with another fence, is left alone.
        """
        fence, _ = self._claims.get(run.id, (None, 0))
        if fence == run.fence:
            del self._claims[run.id]
            self._renewed_at.pop(run.id, None)
            self._lazy_claims.pop(run.id, None)
            self._pending.pop(run.id, None)

    async def recover(self, owner: str) -> list[Run]:
        """Queue the runs whose process died, and return every queued run, oldest first.

        To be called at start, under the lock on the state folder, which says that no other process
        uses it: all running runs are those of dead processes. Where daemons share the database,
        only those whose lease expired, and those of this state folder: their owner begins like
        `owner`, up to the colon.
        """
        now, is_shared = to_microseconds(self._clock()), self._db.shared
        home = f"{owner.partition(':')[0]}:"

        def work(connection: Connection) -> list[Run]:
            connection.execute(
                "UPDATE run SET status = 'queued', fence = fence + 1, owner = NULL, lease_until = "
                "NULL WHERE status = 'running'"
                f"{' AND (lease_until < ? OR substr(owner, 1, ?) = ?)' if is_shared else ''}",
                (connection.lease_clock(now), len(home), home) if is_shared else (),
            )
            return runs_in(connection, "WHERE status = 'queued' ORDER BY id")

        return await self._db.write(work)

    async def request_cancel(self, run_id: str) -> Run:
        """Cancel a run that does not run now, or set the mark `cancel` of a running one, which its
        owner then stops.

        `run_id` may be a part of an id. Raises NotFound; Refused if the run has ended.
        """
        now = to_microseconds(self._clock())
        self._fresh.clear()  # the run may be one of them

        def work(connection: Connection) -> Run:
            run = find_run(connection, run_id)
            if run.status.has_ended:
                raise Refused(f"run {run.id} has already ended ({run.status})")
            if run.status is Status.RUNNING:
                return run_of(connection.execute(_REQUEST_CANCEL, (run.id,)).fetchone())
            void_open_requests(connection, run.id, now)
            return run_of(connection.execute(_CANCEL, (now, run.id)).fetchone())

        run = await self._db.write(work, durable=True)
        if run.status.has_ended:
            self.on_ended(run)
        return run

    # --- reading runs

    async def get(self, id_or_part: str) -> Run:
        """Return the run with this id, or the only one whose id begins or ends with it (>= 4
        characters).

        Raises NotFound.
        """
        return await self._db.read(lambda connection: find_run(connection, id_or_part))

    async def find(
        self,
        routine: str | None = None,
        *,
        status: Status | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Run]:
        """Return runs, newest first, starting behind the run `before`."""

        def query(session: Session) -> list[Run]:
            from daemon.store.queries.runs import find_runs

            return find_runs(session, routine, status, before, limit)

        return await self._db.query(query)

    async def get_last(
        self, routine: str, *, statuses: Collection[Status], before: str | None = None
    ) -> Run | None:
        """Return the newest run of a routine in one of these statuses, older than the run
        `before`.
        """
        return await self._db.read(select_last(routine, statuses, before))

    async def get_last_by_routine(self, routines: Collection[str]) -> dict[str, Run]:
        """Return the newest run of each of these routines that ever had one, by routine."""
        if not routines:
            return {}
        newest_of_each = _NEWEST_OF_EACH % ", ".join(["(?)"] * len(routines))
        runs = await self._db.read(
            lambda connection: runs_in(connection, newest_of_each, tuple(routines))
        )
        return {run.routine: run for run in runs}

    async def find_active(self, routine: str | None = None) -> list[Run]:
        """Return the runs that have not ended, of one routine or all, oldest first."""
        return await self._db.read(
            lambda connection: runs_in(connection, _ACTIVE, (routine, routine))
        )

    async def get_active_ids(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of all runs that have not ended, by routine, oldest first.

        Only ids, as ten thousand runs may be queued.
        """

        def work(connection: Connection) -> dict[str, tuple[str, ...]]:
            ids: dict[str, tuple[str, ...]] = {}
            for routine, run in connection.execute(_ACTIVE_IDS):
                ids[routine] = (*ids.get(routine, ()), run)
            return ids

        return await self._db.read(work)

    async def get_definition(self, hash_: str) -> str:
        """Return the definition that a run keeps, as JSON text. Raises NotFound."""

        def work(connection: Connection) -> str:
            row = connection.execute(
                "SELECT body FROM definition WHERE hash = ?", (hash_,)
            ).fetchone()
            if row is None:
                raise NotFound(f"there is no definition {hash_}")
            return str(row[0])

        return await self._db.read(work)

    @property
    def claimed_fences(self) -> Mapping[str, int]:
        """The fence of each run that this process has claimed, by run id."""
        return {run: fence for run, (fence, _) in self._claims.items()}

    # --- messages, and runs that belong together by the beginning of their events

    async def send_message(
        self, run: str, text: str, *, event: str, key_values: Mapping[str, str] | None = None
    ) -> RunMessage | None:
        """Write a message for a run, durably; None if the run has ended.

        `key_values` of the table meta are written with it, in one transaction.

        `event` is the sender's id of the message: a message with the same one is returned, not
        written again.
        """

        def work(connection: Connection) -> RunMessage | None:
            row = connection.execute(
                "SELECT id, text FROM told WHERE run_id = ? AND event = ?", (run, event)
            ).fetchone()
            if row:
                return RunMessage(id=row[0], run=run, text=row[1], event=event)
            active = connection.execute(
                "SELECT 1 FROM run WHERE id = ? AND status IN ('queued', 'running', 'waiting')",
                (run,),
            )
            if active.fetchone() is None:
                return None
            (number,) = connection.execute(
                "INSERT INTO told (run_id, event, text, at) VALUES (?, ?, ?, ?) RETURNING id",
                (run, event, clean(text), to_microseconds(self._clock())),
            ).fetchone()
            if key_values:
                connection.executemany(PUT_VALUE, list(key_values.items()))
            return RunMessage(id=int(number), run=run, text=clean(text), event=event)

        return await self._db.write(work, durable=True)

    async def find_of_message(self, event: str) -> Run | None:
        """Return the run to which a message with this event was sent while it was under way; None
        if there is none.
        """

        def work(connection: Connection) -> Run | None:
            return next(iter(runs_in(connection, _BY_MESSAGE, (event,))), None)

        return await self._db.read(work)

    async def find_messages(self, run: str | None = None) -> list[RunMessage]:
        """Return the messages to a run, or to all runs that have not ended, in order, whether the
        run has read them or not.
        """
        condition = (
            "run_id = ?"
            if run
            else "run_id IN (SELECT id FROM run WHERE status IN ('queued', 'running', 'waiting'))"
        )
        query = f"SELECT id, run_id, text, event FROM told WHERE {condition} ORDER BY id"

        def work(connection: Connection) -> list[RunMessage]:
            rows = connection.execute(query, (run,) if run else ())
            return [
                RunMessage(id=number, run=name, text=text, event=event)
                for number, name, text, event in rows
            ]

        return await self._db.read(work)

    async def find_messages_to_ended(self, since: datetime) -> list[RunMessage]:
        """Return the messages sent since then to runs that have ended, in order, whether the run
        has read them or not. Not those to runs that a person cancelled, nor to interrupted ones:
        a backup that is restored has interrupted all that were under way.
        """
        query = (
            "SELECT told.id, run_id, text, told.event FROM told JOIN run ON run.id = run_id"
            " WHERE told.at >= ? AND ended IS NOT NULL"
            " AND status NOT IN ('cancelled', 'interrupted') ORDER BY told.id"
        )

        def work(connection: Connection) -> list[RunMessage]:
            rows = connection.execute(query, (to_microseconds(since),))
            return [
                RunMessage(id=number, run=name, text=text, event=event)
                for number, name, text, event in rows
            ]

        return await self._db.read(work)

    async def find_turns(self, routine: str, session: str, *, before: str, limit: int) -> list[Run]:
        """Return the runs of a conversation, older than the run `before`, newest first: those
        whose event begins with `session/`.
        """
        values = (routine, *events_below(session), before, limit)
        return await self._db.read(lambda connection: runs_in(connection, _TURNS, values))

    async def find_answered_turns(
        self, routine: str, session: str, *, after: str, before: str, limit: int
    ) -> list[Run]:
        """Return the runs of a conversation that ended with a report, between the runs `after` and
        `before`, newest first; `after` is empty for those from the first on.
        """
        values = (routine, *events_below(session), before, after, limit)
        return await self._db.read(lambda connection: runs_in(connection, _ANSWERED_TURNS, values))

    async def find_children(self, routine: str, parent: str) -> list[Run]:
        """Return the runs of a routine that the run `parent` started and that have not ended."""
        values = (routine, *events_below(parent))
        return await self._db.read(lambda connection: runs_in(connection, _CHILDREN, values))
