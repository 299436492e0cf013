"""Runs and their steps: who owns a run, what it did, how it ended.

Every write names the fence of the run it was handed. The fence moves whenever a run changes hands
(taken, suspended, recovered), so whoever held it before can write nothing more: Fenced.

Steps are numbered when they are handed in, and a write holds only if every step before it is there.
So `append` may be left un-awaited: if the disk refuses one step, nothing after it is written
either, and a journal never has a hole.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from daemon.errors import DaemonError, Fenced, NotFound, Refused
from daemon.models import Json, Reason, Run, Status, Step
from daemon.store.approval_rows import drop_open
from daemon.store.database import Database
from daemon.store.incidents import IncidentRepository
from daemon.store.outbox import enqueue
from daemon.store.repository import Repository
from daemon.store.rows import (
    MICROSECOND,
    RUN,
    STEP,
    clean,
    decode,
    run_of,
    runs_in,
    seal_of,
    step_of,
    to_microseconds,
)
from daemon.store.run_rows import (
    TAKE,
    TAKE_IN_TURN,
    TAKE_OVER,
    PendingSteps,
    fenced,
    find_run,
    leave,
    newest,
    unbegun,
)
from daemon.store.seen_items import Sightings, keep_sightings
from daemon.store.statements import Connection
from daemon.store.texts import BodyReader, encode

if TYPE_CHECKING:
    from sqlmodel import Session

# Only stores that several daemons share ever look at it: here the lock on the state folder says who
# lives.
LEASE = timedelta(seconds=60)
AFTER_ALL_TIME = 2**62  # microseconds

# At least so many runs are known to wait as they were opened, for so long; of what is due all at
# once, or has to wait for its turn, the record has to be asked.
_FRESH, _FRESH_FOR = 256, timedelta(seconds=5)
_SHORT = 20_000  # characters of a report

# One seek per routine instead of a walk through the history (https://sqlite.org/forum: "loose index
# scan").
# By the index of the routines: a GROUP BY would read all runs of each.
_NEWEST_OF_EACH = (
    "WHERE id IN (WITH name (routine) AS (VALUES %s)"
    " SELECT (SELECT max(id) FROM run WHERE routine = name.routine) FROM name)"
)


_MARK = f"UPDATE run SET cancel = 1 WHERE id = ? RETURNING {RUN}"

_CANCEL = (
    "UPDATE run SET cancel = 1, status = 'cancelled', ended = ?, fence = fence + 1 WHERE id = ? "
    f"RETURNING {RUN}"
)


# 'ask' and a session make a range of the index over events: '0' follows '/'.
_TURNS = (
    "WHERE id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
    " AND id < ? ORDER BY id DESC LIMIT ?"
)
_CHILDREN = (
    "WHERE status IN ('queued', 'running', 'waiting')"
    " AND id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMessage:
    """One message that a person sent to a run under way."""

    id: int
    run: str
    text: str


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
        """`lease`: how long a run stays its owner's without a sign of life, where several daemons
        share the store.

        `in_turn`: runs of a routine are taken one at a time, whoever asks.
        """
        super().__init__(db, clock=clock)
        self._incidents = incidents
        self._in_turn = in_turn
        self.lease = lease
        """How long a run stays its owner's without a sign of life."""
        self._lease = lease // MICROSECOND
        self.when_ended: Callable[[Run], None] = lambda run: None
        """Called with each run that ended, after the commit; a missed call can be made up from the
        journal.
        """
        # run → (fence under which this process took it, number of the next step)
        self._taken: dict[str, tuple[int, int]] = {}
        self._fresh: dict[str, Run] = {}
        """Runs that this process opened, until they are claimed or cancelled."""
        self._begun: dict[str, asyncio.Future[list[Step]]] = {}
        """Runs that were claimed lazily, until the claim is committed or the run is released."""
        self._loads: dict[str, PendingSteps] = {}
        """The last steps written of each run; until they are flushed, more can be added."""
        self._since = clock()
        self._latest: dict[str, Run] = {}
        """By routine, the newest succeeded run of those created since `_since`."""

    # --- living a run

    async def claim(self, run_id: str, *, owner: str, takeover: bool = False) -> Run | None:
        """Claim a queued run for `owner`; None if it is not queued or not to be started yet.

        Where daemons share the store, a run whose owner's lease has expired is claimed as well;
        with `takeover` (a sub-agent of a run that was taken over) even while it is leased. With
        `in_turn`, None also while another run of its routine is running or waits.
        """
        now, shared = to_microseconds(self._clock()), self._db.shared
        self._fresh.pop(run_id, None)
        query = (TAKE_IN_TURN if self._in_turn else TAKE_OVER) if shared else TAKE

        def work(connection: Connection) -> tuple[Run, int] | None:
            there = connection.lease_clock(now)
            values: tuple[str | int, ...] = (owner, there + self._lease, now, run_id, now)
            expired = AFTER_ALL_TIME if takeover else there
            if shared:
                values += (expired, there) if self._in_turn else (expired,)
            row = connection.execute(query, values).fetchone()
            return None if row is None else (run_of(row[:-1]), row[-1])

        # a server that crashes must not forget a fence: two owners would have the same
        taken = await self._db.write(work, durable=shared)
        if taken is None:
            return None
        run, steps = taken
        self._taken[run.id] = (run.fence, steps)
        return run

    def claim_lazily(self, run_id: str, *, owner: str) -> Run | None:
        """Make a run ours that was opened here just now, with whatever is written next.

        None if it has to be taken, as anything else may have become of it, or it is not to be
        started yet.

        Nothing is lost with a begin that is not kept: each later write of the run stands behind it,
        and is refused (Fenced where somebody cancelled it meanwhile, StoreFull where the disk was
        full). What may not be done before the run is ours for certain, and writes nothing, has to
        wait for `confirm_claim`.
        """
        queued, now = self._fresh.pop(run_id, None), self._clock()
        if queued is None or not timedelta() <= now - queued.created <= _FRESH_FOR:
            return None
        if queued.not_before is not None and queued.not_before > now:
            return None
        run = queued.to(
            Status.RUNNING,
            started=now,
            not_before=None,
            fence=queued.fence + 1,
            attempt=queued.attempt + 1,
            fruitless_attempts=queued.fruitless_attempts + 1,
        )
        begun = self._begun[run.id] = self._send(
            PendingSteps(run, 0, owner, to_microseconds(now)), lazily=True
        )
        begun.add_done_callback(lambda done: self._settle_begin(run, done))
        self._taken[run.id] = (run.fence, 0)
        return run

    def _settle_begin(self, run: Run, done: asyncio.Future[list[Step]]) -> None:
        fault = None if done.cancelled() else done.exception()
        if fault is None:
            self._begun.pop(run.id, None)
        elif isinstance(fault, Fenced):
            self.release(run)

    async def confirm_claim(self, run: Run) -> None:
        """Wait until the claim of a run is committed. Raises Fenced or StoreFull if it was not."""
        if begun := self._begun.get(run.id):
            await asyncio.shield(begun)
        elif run.id not in self._taken:
            raise fenced(run)

    def keep_fresh(self, runs: Iterable[Run]) -> None:
        """Remember runs that were opened just now, for `claim_lazily`; does nothing where other
        processes share the store.
        """
        if self._db.shared:
            return
        self._fresh.update((run.id, run) for run in runs)
        # not one by one: to find the first of what is left, a dict looks past all that was taken
        # out before
        if len(self._fresh) > 2 * _FRESH:
            self._fresh = dict(islice(self._fresh.items(), len(self._fresh) - _FRESH, None))

    def append(
        self,
        run: Run,
        *steps: Step,
        durable: bool = False,
        lazily: bool = False,
        active: float | None = None,
    ) -> asyncio.Future[list[Step]]:
        """Write steps down; await it and they are committed, with `durable` even against power
        loss.

        `lazily`: with whatever is written next, as nobody waits for it.

        Fenced if the run is somebody else's by now, StoreFull if the disk took this step or an
        earlier one of the run not: suspend it, the journal is whole up to there.
        """
        now = self._clock()
        at = to_microseconds(now)
        fence, first = self._taken.get(run.id, (None, 0))
        if fence != run.fence:
            return _failed(fenced(run))
        # encoded here, so that what the caller changes afterwards is not written; deflated over
        # there
        bodies = [encode(step) for step in steps]
        load = self._loads.get(run.id)
        if durable or load is None or load.flushes != self._db.flushes:
            load = PendingSteps(run, first)
        load.at, load.active = at, active
        for seq, (step, body) in enumerate(zip(steps, bodies, strict=True), first):
            # not by `replace`, which takes ten times as long: this is done for every step there is
            numbered = Step(
                kind=step.kind,
                iteration=step.iteration,
                body=step.body,
                call_id=step.call_id,
                seq=seq,
                at=now,
            )
            load.steps.append((numbered, at, body))
        self._taken[run.id] = (run.fence, first + len(steps))
        return self._send(load, durable=durable, lazily=lazily)

    def _send(
        self, load: PendingSteps, *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[list[Step]]:
        """Let a load set out, or the one that has been waiting for that since before it got more to
        carry.
        """
        if load.kept is None:
            load.flushes = self._db.flushes
            load.kept = self._db.submit(
                lambda connection: load.write(connection, self._lease),
                durable=durable,
                lazily=lazily,
            )
            self._loads[load.run.id] = load
        elif not lazily:
            self._db.flush()
        return load.kept

    async def get_steps(self, run_id: str) -> list[Step]:
        """Return what a run did so far, in order."""
        if taken := self._taken.get(run_id):
            if taken[1] == 0:
                return []  # it is ours, and has not begun
            await self._db.drain()  # pending steps are steps of the run

        def work(connection: Connection) -> list[Step]:
            rows = connection.execute(
                f"SELECT {STEP} FROM step WHERE run_id = ? ORDER BY seq", (run_id,)
            )
            read = BodyReader(connection)
            return [step_of(row, read) for row in rows]

        return await self._db.read(work)

    async def get_input(self, run_id: str) -> Any:
        """Return what the event of a run brought along; None if nothing."""

        def work(connection: Connection) -> bytes | None:
            row = connection.execute(
                "SELECT body FROM input WHERE run_id = ?", (run_id,)
            ).fetchone()
            return None if row is None else row[0]

        body = await self._db.read(work)
        return None if body is None else decode(body)

    async def has_intact_steps(self, run_id: str) -> bool:
        """Tell whether the steps of a run are those that were written, as far as that is known."""

        def work(connection: Connection) -> bool:
            (seal,) = connection.execute("SELECT seal FROM run WHERE id = ?", (run_id,)).fetchone()
            rows = connection.execute(
                f"SELECT {STEP} FROM step WHERE run_id = ?", (run_id,)
            ).fetchall()
            return not (seal and rows) or seal == sum(
                map(seal_of, rows)
            )  # without rows they were let go, on purpose

        return await self._db.read(work)

    async def end(
        self,
        run: Run,
        deliveries: Sequence[tuple[str, Json]] = (),
        *,
        reason: Reason = Reason.GATE,
        zone: str = "UTC",
        found: Sightings | None = None,
    ) -> Run:
        """Write down how a run ended and its deliveries (target, options), in one durable commit.

        `run` is already in its ended status (`run.to(...)`). The deliveries of a silent run are
        kept as suppressed. A skipped run makes its slot skipped, for `reason`. `zone` is the one
        its report is dated in. What was `found` is known as reported from then on. Fenced;
        StoreFull as for `append`.
        """
        if not run.status.has_ended:
            raise ValueError(f"run {run.id} is {run.status}, which is no end")
        now = run.ended or self._clock()
        ended = (
            run
            if run.ended and run.not_before is None
            else replace(run, ended=now, not_before=None)
        )
        fence, written = self._taken.get(run.id, (None, None))
        expected = written if fence == run.fence else None

        def work(connection: Connection) -> Run:
            final = leave(connection, ended, expected)
            if final.status is Status.SKIPPED:
                connection.execute(
                    "UPDATE slot SET outcome = 'skipped', reason = ? WHERE run_id = ?",
                    (reason, run.id),
                )
            enqueue(connection, final, deliveries, zone, self._incidents.alerting)
            if (
                final.attempt > 1
            ):  # who waits for an answer is let go of, and was taken up again since
                drop_open(connection, run.id, to_microseconds(now))
            if found is not None:
                keep_sightings(connection, final.routine, final.id, found, now)
            return final

        final = await self._db.write(work, durable=True)
        self.release(run)
        self._keep_latest(final)
        self.when_ended(final)
        return final

    def _keep_latest(self, run: Run) -> None:
        """Know of a run that succeeded; not where others share the store, and not of what is
        big.
        """
        if self._db.shared or run.status is not Status.SUCCEEDED or run.created < self._since:
            return
        known = self._latest.pop(run.routine, run)
        if len(run.report or "") <= _SHORT:
            self._latest[run.routine] = max(known, run, key=lambda each: each.id)
        if len(self._latest) > _FRESH:
            del self._latest[next(iter(self._latest))]

    def get_cached_success(self, routine: str, *, before: str) -> Run | None:
        """Return the newest run of a routine that succeeded, older than the run `before`, if no
        look is needed for it.

        None says nothing: see `get_last`.
        """
        run = self._latest.get(routine)
        return run if run and run.id < before else None

    def forget_cached_successes(self) -> None:
        """Rely on nothing that is known of runs that have ended: somebody rewrites history."""
        self._latest.clear()

    async def suspend(
        self, run: Run, *, not_before: datetime | None = None, detail: str | None = None
    ) -> Run:
        """Let go of a running run: queued again, to be resumed from its steps. Fenced.

        With `not_before` because something transient stood in its way: the attempt counts as
        fruitless unless it made a step. Without, because we were asked to stop: no run is the
        worse for that.
        """
        since = None if not_before is None else self._clock()
        queued = run.to(Status.QUEUED, not_before=not_before, detail=detail)

        # Un-awaited steps stand before this in the queue. Should the disk have refused one, that is
        # no reason to stop here: the run resumes from what is in the journal.
        def work(connection: Connection) -> Run:
            found = find_run(connection, run.id)
            if (found.fence, found.status) == unbegun(
                run
            ):  # the disk did not even take the beginning
                return found
            return leave(
                connection, queued, None, suspended=True, forgiven=not_before is None, since=since
            )

        suspended = await self._db.write(work)
        self.release(run)
        return suspended

    def release(self, run: Run) -> None:
        """Forget the claim of a run that was let go of in the record."""
        if (
            self._taken.get(run.id, (None, 0))[0] == run.fence
        ):  # it may have been taken again already
            del self._taken[run.id]
            self._begun.pop(run.id, None)
            self._loads.pop(run.id, None)

    async def recover(self, owner: str) -> list[Run]:
        """Queue the runs whose process died and return every queued run, oldest first.

        To be called at start, under the lock on the state folder: it says that nobody else lives
        here. Where daemons share the store, dead are those whose lease ran out, and those of our
        own home: what `owner` begins with.
        """
        now, shared = to_microseconds(self._clock()), self._db.shared
        home = f"{owner.partition(':')[0]}:"

        def work(connection: Connection) -> list[Run]:
            connection.execute(
                "UPDATE run SET status = 'queued', fence = fence + 1, owner = NULL, lease_until = "
                "NULL"
                " WHERE status = "
                f"'running'{' AND (lease_until < ? OR substr(owner, 1, ?) = ?)' if shared else ''}",
                (connection.lease_clock(now), len(home), home) if shared else (),
            )
            return runs_in(connection, "WHERE status = 'queued' ORDER BY id")

        return await self._db.write(work)

    async def request_cancel(self, run_id: str) -> Run:
        """Cancel a run that waits, or mark (`cancel`) the one that runs, for its owner to stop.

        NotFound, Refused.
        """
        now = to_microseconds(self._clock())
        self._fresh.clear()  # it may be one of them, given by a part of its id

        def work(connection: Connection) -> Run:
            run = find_run(connection, run_id)
            if run.status.has_ended:
                raise Refused(f"run {run.id} has already ended ({run.status})")
            if run.status is Status.RUNNING:
                return run_of(connection.execute(_MARK, (run.id,)).fetchone())
            drop_open(connection, run.id, now)
            return run_of(connection.execute(_CANCEL, (now, run.id)).fetchone())

        run = await self._db.write(work, durable=True)
        if run.status.has_ended:
            self.when_ended(run)
        return run

    # --- looking at runs

    async def get(self, run_id_or_prefix: str) -> Run:
        """Return the run of that id; its beginning or its end (>= 4 characters) is enough.

        NotFound.
        """
        return await self._db.read(lambda connection: find_run(connection, run_id_or_prefix))

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
        return await self._db.read(newest(routine, statuses, before))

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
        # by the index of the status: that of the routine holds all runs there ever were
        unended = (
            "WHERE status IN ('queued', 'running', 'waiting')"
            " AND (CAST(? AS TEXT) IS NULL OR routine = ?) ORDER BY id"
        )
        return await self._db.read(
            lambda connection: runs_in(connection, unended, (routine, routine))
        )

    async def get_active_ids(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of all runs that have not ended by routine, oldest first: ten thousand may
        wait their turn.
        """
        unended = (
            "SELECT routine, id FROM run WHERE status IN ('queued', 'running', 'waiting') ORDER BY "
            "id"
        )

        def work(connection: Connection) -> dict[str, tuple[str, ...]]:
            found: dict[str, tuple[str, ...]] = {}
            for routine, run in connection.execute(unended):
                found[routine] = (*found.get(routine, ()), run)
            return found

        return await self._db.read(work)

    async def get_definition(self, hash_: str) -> str:
        """Return the definition that a run keeps, as JSON text. NotFound."""

        def work(connection: Connection) -> str:
            row = connection.execute(
                "SELECT body FROM definition WHERE hash = ?", (hash_,)
            ).fetchone()
            if row is None:
                raise NotFound(f"there is no definition {hash_}")
            return str(row[0])

        return await self._db.read(work)

    @property
    def held(self) -> Mapping[str, int]:
        """The fence of each run that this process has claimed, by run id."""
        return {run: fence for run, (fence, _) in self._taken.items()}

    # --- messages, and runs that belong together by the beginning of their events

    async def send_message(self, run: str, text: str, *, event: str) -> RunMessage | None:
        """Keep a message for a run, durably; the same event gives the same message.

        None if the run has ended.
        """

        def work(connection: Connection) -> RunMessage | None:
            known = connection.execute(
                "SELECT id, text FROM told WHERE run_id = ? AND event = ?", (run, event)
            )
            if row := known.fetchone():
                return RunMessage(id=row[0], run=run, text=row[1])
            alive = connection.execute(
                "SELECT 1 FROM run WHERE id = ? AND status IN ('queued', 'running', 'waiting')",
                (run,),
            )
            if alive.fetchone() is None:
                return None
            (number,) = connection.execute(
                "INSERT INTO told (run_id, event, text, at) VALUES (?, ?, ?, ?) RETURNING id",
                (run, event, clean(text), to_microseconds(self._clock())),
            ).fetchone()
            return RunMessage(id=int(number), run=run, text=clean(text))

        return await self._db.write(work, durable=True)

    async def find_messages(self, run: str | None = None) -> list[RunMessage]:
        """Return what a run was told, or all runs that have not ended, in order; heard or not."""
        where = (
            "run_id = ?"
            if run
            else "run_id IN (SELECT id FROM run WHERE status IN ('queued', 'running', 'waiting'))"
        )
        query = (
            f"SELECT id, run_id, text FROM told WHERE {where} ORDER BY id"  # both halves are ours
        )

        def work(connection: Connection) -> list[RunMessage]:
            rows = connection.execute(query, (run,) if run else ())
            return [RunMessage(id=number, run=name, text=text) for number, name, text in rows]

        return await self._db.read(work)

    async def find_turns(self, routine: str, session: str, *, before: str, limit: int) -> list[Run]:
        """Return the runs whose event begins with `session/`, before a run, newest first."""
        values = (routine, f"{session}/", f"{session}0", before, limit)
        return await self._db.read(lambda connection: runs_in(connection, _TURNS, values))

    async def find_children(self, routine: str, parent: str) -> list[Run]:
        """Return the runs of a routine that a run has begun and that have not ended."""
        values = (routine, f"{parent}/", f"{parent}0")
        return await self._db.read(lambda connection: runs_in(connection, _CHILDREN, values))


def _failed(error: DaemonError) -> asyncio.Future[list[Step]]:
    future: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
