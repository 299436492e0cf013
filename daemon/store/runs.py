"""Runs and their steps: who owns a run, what it did, how it ended.

Every write names the fence of the run it was handed. The fence moves whenever a run changes hands
(taken, suspended, recovered), so whoever held it before can write nothing more: Fenced.

Steps are numbered when they are handed in, and a write holds only if every step before it is there.
So `append` may be left un-awaited: if the disk refuses one step, nothing after it is written
either, and a journal never has a hole.
"""

# ruff: noqa: S608  what is put into statements are constants of this room; values are bound
from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from daemon.errors import DaemonError, Fenced, NotFound, Refused, StoreFull
from daemon.models import MOVES, Json, Reason, Run, Status, Step, StepKind
from daemon.store.approval_rows import drop_open, use
from daemon.store.audit import note_step
from daemon.store.database import Database, Work
from daemon.store.incidents import Alerting, Incidents
from daemon.store.outbox import enqueue
from daemon.store.rows import (
    AFTER_EVERY_ID,
    MICROSECOND,
    RUN,
    SHORTEST_PART,
    STEP,
    checksum,
    clean_or_none,
    now_in,
    run_of,
    runs_in,
    seal_of,
    stamp,
    stamp_or_none,
    step_of,
)
from daemon.store.seen_items import Sightings, keep_sightings
from daemon.store.texts import BodyReader, Parted, column_of, encode

# Only stores that several daemons share ever look at it: here the lock on the state folder says who
# lives.
LEASE = timedelta(seconds=60)
AFTER_ALL_TIME = 2**62  # microseconds

# Where a run may come from, by where it goes to.
_BEFORE = {
    status: [source.value for source, targets in MOVES.items() if status in targets]
    for status in Status
}

_TAKE = f"""
UPDATE run SET status = 'running', owner = ?, lease_until = ?, started = coalesce(started, ?), not_before = NULL,
    fence = fence + 1, attempt = attempt + 1, barren = barren + 1
WHERE id = ? AND status = 'queued' AND (not_before IS NULL OR not_before <= ?)
RETURNING {RUN}, steps
"""  # noqa: E501

_BEGIN = """
UPDATE run SET status = 'running', owner = ?, started = ?, not_before = NULL, fence = ?, attempt = ?, barren = ?,
    steps = ?, seal = ?, active = coalesce(?, active), lease_until = ?
WHERE id = ? AND status = 'queued' AND fence = ?
"""  # noqa: E501
# At least so many runs are known to wait as they were opened, for so long; of what is due all at
# once, or has to wait for its turn, the record has to be asked.
_FRESH, _FRESH_FOR = 256, timedelta(seconds=5)
_SHORT = 20_000  # characters of a report

# Where daemons share a store, whoever did not renew the lease is taken for dead.
_TAKE_OVER = _TAKE.replace(
    "status = 'queued' AND (not_before IS NULL OR not_before <= ?)",
    (
        "(status = 'queued' AND (not_before IS NULL OR not_before <= ?) OR status = 'running' AND "
        "lease_until < ?)"
    ),
)
# Of a routine one run lives at a time: in one process its executor sees to that. Sub-agents live
# beside each other.
_IN_TURN = _TAKE_OVER.replace(
    "RETURNING",
    "AND (trigger = 'subagent' OR NOT EXISTS (SELECT 1 FROM run AS other WHERE other.routine = "
    "run.routine"
    " AND other.id <> run.id AND (other.status = 'waiting' OR other.status = 'running' AND "
    "other.lease_until >= ?)))\n"
    "RETURNING",
)

_GROW = """
UPDATE run SET steps = steps + ?, seal = seal + ?, barren = 0, active = coalesce(?, active), lease_until = ?
WHERE id = ? AND fence = ? AND steps = ? AND status = 'running'
"""  # noqa: E501

_STEP = (
    "INSERT INTO step (run_id, seq, kind, iteration, call_id, fence, at, body) VALUES (?, ?, ?, ?, "
    "?, ?, ?, ?)"
)

# One seek per routine instead of a walk through the history (https://sqlite.org/forum: "loose index
# scan").
_NEWEST_OF_EACH = """
WHERE id IN (
    WITH RECURSIVE name (routine) AS (
        SELECT min(routine) FROM run
        UNION ALL
        SELECT (SELECT min(routine) FROM run WHERE routine > name.routine) FROM name WHERE name.routine IS NOT NULL
    )
    SELECT (SELECT max(id) FROM run WHERE routine = name.routine) FROM name
)
"""  # noqa: E501


@dataclass(slots=True)
class _Load:
    """Steps of one run on their way to the record, and its beginning where that is not there
    yet.
    """

    run: Run
    first: int
    """The number of the first step."""
    owner: str | None = None
    """Who begins the run with them."""
    at: int = 0
    """When the last of them was handed in."""
    active: float | None = None
    steps: list[tuple[Step, int, bytes | Parted]] = field(default_factory=list)
    """With their moments, and their bodies as they were then."""
    departure: int = 0
    """The one that it waits for."""
    kept: asyncio.Future[list[Step]] | None = None

    def write(self, connection: sqlite3.Connection, lease: int) -> list[Step]:
        """Write everything down; in the writer's thread, once nothing is put to it any more."""
        run, made = self.run, self.run.created
        rows = [(step, at, column_of(connection, body, made, at)) for step, at, body in self.steps]
        seal, until = (
            sum(checksum(step, column) for step, _, column in rows),
            now_in(connection, self.at) + lease,
        )
        grown = (len(rows), seal, self.active, until, run.id)
        if self.owner is not None:
            begun = (
                self.owner,
                stamp_or_none(run.started),
                run.fence,
                run.attempt,
                0 if rows else run.fruitless_attempts,
            )
            if connection.execute(_BEGIN, (*begun, *grown, run.fence - 1)).rowcount != 1:
                raise _fenced(run)
        elif connection.execute(_GROW, (*grown, run.fence, self.first)).rowcount != 1:
            raise _refusal(connection, run)
        connection.executemany(
            _STEP,
            [
                (
                    run.id,
                    step.seq,
                    step.kind.value,
                    step.iteration,
                    step.call_id,
                    run.fence,
                    at,
                    column,
                )
                for step, at, column in rows
            ],
        )
        for step, at, _ in rows:
            note_step(connection, run, step, at)
            if step.kind is StepKind.CALL and (approval := step.body.get("approval")):
                use(connection, run, approval)
        return [step for step, _, _ in rows]


_MARK = f"UPDATE run SET cancel = 1 WHERE id = ? RETURNING {RUN}"

_CANCEL = (
    "UPDATE run SET cancel = 1, status = 'cancelled', ended = ?, fence = fence + 1 WHERE id = ? "
    f"RETURNING {RUN}"
)

_LEAVE = f"""
UPDATE run SET status = ?, ended = ?, not_before = ?, waits_since = ?, waits_moved = 0, active = ?, report = ?,
    silent = ?, detail = ?, provider = ?, model = ?, input = ?, cache_read = ?, cache_write = ?, output = ?,
    reasoning = ?, iterations = ?, taint = ?, sandbox = ?, fence = fence + ?, barren = max(barren - ?, 0),
    owner = NULL, lease_until = NULL
WHERE id = ? AND fence = ? AND steps = coalesce(?, steps) AND status IN (%s)
RETURNING {RUN}
"""  # noqa: E501


class Runs(Incidents):
    """Runs and their steps."""

    def __init__(
        self,
        db: Database,
        *,
        clock: Callable[[], datetime],
        alerting: Alerting = Alerting(),  # noqa: B008  frozen
        lease: timedelta = LEASE,
        in_turn: bool = False,
    ) -> None:
        """`lease`: how long a run stays its owner's who is not heard of, where several daemons
        share the store.

        `in_turn`: runs of a routine are taken one at a time, whoever asks.
        """
        super().__init__(db, clock=clock)
        self._in_turn = in_turn
        self._lease = lease // MICROSECOND
        self.alerting = alerting
        self.when_ended: Callable[[Run], None] = lambda run: None
        """Is told of each end as soon as it is safe; whoever misses one finds it in the record."""
        # run → (fence under which this process took it, number of the next step)
        self._taken: dict[str, tuple[int, int]] = {}
        self._fresh: dict[str, Run] = {}
        """Runs that were opened here, and that nobody has taken or cancelled since."""
        self._begun: dict[str, asyncio.Future[list[Step]]] = {}
        """Runs that were taken without waiting for the record, until it says so, or they are let go
        of.
        """
        self._loads: dict[str, _Load] = {}
        """What was written last of each run; until it sets out, more can be put to it."""
        self._since = clock()
        self._latest: dict[str, Run] = {}
        """By routine, the newest run of those made since then that has succeeded."""

    # --- living a run

    async def take(self, run_id: str, *, owner: str, takeover: bool = False) -> Run | None:
        """Make a queued run ours; None if it is not queued (any more) or not to be started yet.

        Where daemons share the store, also one whose owner let its lease run out; with `takeover`
        (a sub-agent of a run that was taken over) at once. `in_turn`, none as well while another
        run of its routine lives or waits.
        """
        now, shared = stamp(self._clock()), self._db.shared
        self._fresh.pop(run_id, None)
        query = (_IN_TURN if self._in_turn else _TAKE_OVER) if shared else _TAKE

        def work(connection: sqlite3.Connection) -> tuple[Run, int] | None:
            there = now_in(connection, now)
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

    def begin(self, run_id: str, *, owner: str) -> Run | None:
        """Make a run ours that was opened here just now, with whatever is written next.

        None if it has to be taken, as anything else may have become of it, or it is not to be
        started yet.

        Nothing is lost with a begin that is not kept: each later write of the run stands behind it,
        and is refused (Fenced where somebody cancelled it meanwhile, StoreFull where the disk was
        full). What may not be done before the run is ours for certain, and writes nothing, has to
        wait for `sure`.
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
        begun = self._begun[run.id] = self._send(_Load(run, 0, owner, stamp(now)), lazily=True)
        begun.add_done_callback(lambda done: self._settle_begin(run, done))
        self._taken[run.id] = (run.fence, 0)
        return run

    def _settle_begin(self, run: Run, done: asyncio.Future[list[Step]]) -> None:
        fault = None if done.cancelled() else done.exception()
        if fault is None:
            self._begun.pop(run.id, None)
        elif isinstance(fault, Fenced):
            self._let_go(run)

    async def sure(self, run: Run) -> None:
        """Wait until a run is ours for certain. Fenced, StoreFull."""
        if begun := self._begun.get(run.id):
            await asyncio.shield(begun)
        elif run.id not in self._taken:
            raise _fenced(run)

    def _keep_fresh(self, runs: Iterable[Run]) -> None:
        """Know of runs that were opened just now; where others share the store, nothing is known
        for long.
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
        at = stamp(now)
        fence, first = self._taken.get(run.id, (None, 0))
        if fence != run.fence:
            return _failed(_fenced(run))
        # encoded here, so that what the caller changes afterwards is not written; deflated over
        # there
        bodies = [encode(step) for step in steps]
        load = self._loads.get(run.id)
        if durable or load is None or load.departure != self._db.departures:
            load = _Load(run, first)
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
        self, load: _Load, *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[list[Step]]:
        """Let a load set out, or the one that has been waiting for that since before it got more to
        carry.
        """
        if load.kept is None:
            load.departure = self._db.departures
            load.kept = self._db.submit(
                lambda connection: load.write(connection, self._lease),
                durable=durable,
                lazily=lazily,
            )
            self._loads[load.run.id] = load
        elif not lazily:
            self._db.hasten()
        return load.kept

    async def steps(self, run_id: str) -> list[Step]:
        """Return what a run did so far, in order."""
        if taken := self._taken.get(run_id):
            if taken[1] == 0:
                return []  # it is ours, and has not begun
            await self._db.settled()  # what rides belongs to it

        def work(connection: sqlite3.Connection) -> list[Step]:
            rows = connection.execute(
                f"SELECT {STEP} FROM step WHERE run_id = ? ORDER BY seq", (run_id,)
            )
            read = BodyReader(connection)
            return [step_of(row, read) for row in rows]

        return await self._db.read(work)

    async def unharmed(self, run_id: str) -> bool:
        """Tell whether the steps of a run are those that were written, as far as that is known."""

        def work(connection: sqlite3.Connection) -> bool:
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

        def work(connection: sqlite3.Connection) -> Run:
            final = leave(connection, ended, expected)
            if final.status is Status.SKIPPED:
                connection.execute(
                    "UPDATE slot SET outcome = 'skipped', reason = ? WHERE run_id = ?",
                    (reason, run.id),
                )
            enqueue(connection, final, deliveries, zone, self.alerting)
            if (
                final.attempt > 1
            ):  # who waits for an answer is let go of, and was taken up again since
                drop_open(connection, run.id, stamp(now))
            if found is not None:
                keep_sightings(connection, final.routine, final.id, found, now)
            return final

        final = await self._db.write(work, durable=True)
        self._let_go(run)
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

    def latest(self, routine: str, *, before: str) -> Run | None:
        """Return the newest run of a routine that succeeded, older than the run `before`, if no
        look is needed for it.

        None says nothing: see `last`.
        """
        run = self._latest.get(routine)
        return run if run and run.id < before else None

    def look_again(self) -> None:
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
        def work(connection: sqlite3.Connection) -> Run:
            found = find(connection, run.id)
            if (found.fence, found.status) == _unbegun(
                run
            ):  # the disk did not even take the beginning
                return found
            return leave(
                connection, queued, None, suspended=True, forgiven=not_before is None, since=since
            )

        suspended = await self._db.write(work)
        self._let_go(run)
        return suspended

    def _let_go(self, run: Run) -> None:
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
        now, shared = stamp(self._clock()), self._db.shared
        home = f"{owner.partition(':')[0]}:"

        def work(connection: sqlite3.Connection) -> list[Run]:
            connection.execute(
                "UPDATE run SET status = 'queued', fence = fence + 1, owner = NULL, lease_until = "
                "NULL"
                " WHERE status = "
                f"'running'{' AND (lease_until < ? OR substr(owner, 1, ?) = ?)' if shared else ''}",
                (now_in(connection, now), len(home), home) if shared else (),
            )
            return runs_in(connection, "WHERE status = 'queued' ORDER BY id")

        return await self._db.write(work)

    async def request_cancel(self, run_id: str) -> Run:
        """Cancel a run that waits, or mark (`cancel`) the one that runs, for its owner to stop.

        NotFound, Refused.
        """
        now = stamp(self._clock())
        self._fresh.clear()  # it may be one of them, given by a part of its id

        def work(connection: sqlite3.Connection) -> Run:
            run = find(connection, run_id)
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
        return await self._db.read(lambda connection: find(connection, run_id_or_prefix))

    async def runs(
        self,
        routine: str | None = None,
        *,
        status: Status | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Run]:
        """Return runs, newest first, starting behind the run `before`."""
        wanted = [("routine = ?", routine), ("status = ?", status), ("id < ?", before)]
        where = (
            " AND ".join(condition for condition, value in wanted if value is not None) or "TRUE"
        )
        values = [value for _, value in wanted if value is not None]
        return await self._db.read(
            lambda connection: runs_in(
                connection, f"WHERE {where} ORDER BY id DESC LIMIT ?", (*values, limit)
            )
        )

    async def last(
        self, routine: str, *, statuses: Collection[Status], before: str | None = None
    ) -> Run | None:
        """Return the newest run of a routine in one of these statuses, older than the run
        `before`.
        """
        return await self._db.read(newest(routine, statuses, before))

    async def last_runs(self) -> dict[str, Run]:
        """Return the newest run of every routine that ever had one."""
        newest = await self._db.read(lambda connection: runs_in(connection, _NEWEST_OF_EACH))
        return {run.routine: run for run in newest}

    async def active(self, routine: str | None = None) -> list[Run]:
        """Return the runs that have not ended, of one routine or all, oldest first."""
        # `+`: by the index of what is active, which is short, and not by that of all that a routine
        # ever did
        unended = (
            "WHERE status IN ('queued', 'running', 'waiting') AND (? IS NULL OR +routine = ?) ORDER "  # noqa: E501
            "BY id"
        )
        return await self._db.read(
            lambda connection: runs_in(connection, unended, (routine, routine))
        )

    async def under_way(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of all runs that have not ended by routine, oldest first: ten thousand may
        wait their turn.
        """
        unended = (
            "SELECT routine, id FROM run WHERE status IN ('queued', 'running', 'waiting') ORDER BY "
            "id"
        )

        def work(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
            found: dict[str, tuple[str, ...]] = {}
            for routine, run in connection.execute(unended):
                found[routine] = (*found.get(routine, ()), run)
            return found

        return await self._db.read(work)

    async def definition(self, hash_: str) -> str:
        """Return the definition that a run keeps, as JSON text. NotFound."""

        def work(connection: sqlite3.Connection) -> str:
            row = connection.execute(
                "SELECT body FROM definition WHERE hash = ?", (hash_,)
            ).fetchone()
            if row is None:
                raise NotFound(f"there is no definition {hash_}")
            return str(row[0])

        return await self._db.read(work)


def newest(
    routine: str, statuses: Collection[Status], before: str | None = None
) -> Work[Run | None]:
    """Return the look for `Runs.last`, for who looks for something else as well."""
    marks = ", ".join("?" * len(statuses))
    rest = f"WHERE routine = ? AND status IN ({marks}) AND id < ? ORDER BY id DESC LIMIT 1"
    values = (routine, *statuses, before or AFTER_EVERY_ID)
    return lambda connection: next(iter(runs_in(connection, rest, values)), None)


def leave(
    connection: sqlite3.Connection,
    run: Run,
    steps: int | None,
    *,
    suspended: bool = False,
    forgiven: bool = False,
    since: datetime | None = None,
) -> Run:
    """Write down a run that its owner lets go of, ended or queued again; `since` is when its wait
    began, if any.
    """
    sources = _BEFORE[run.status]
    row = connection.execute(
        _LEAVE % ", ".join("?" * len(sources)),
        (
            run.status.value, stamp_or_none(run.ended), stamp_or_none(run.not_before), stamp_or_none(since), run.active,  # noqa: E501
            clean_or_none(run.report), int(run.silent), clean_or_none(run.detail), run.provider, run.model,  # noqa: E501
            run.usage.input, run.usage.cache_read, run.usage.cache_write, run.usage.output, run.usage.reasoning,  # noqa: E501
            run.iterations, run.taint.value, run.sandbox, int(suspended), int(forgiven),
            run.id, run.fence, steps, *sources,
        ),
    ).fetchone()  # fmt: skip
    if row is None:
        raise _refusal(connection, run)
    return run_of(row)


def _refusal(connection: sqlite3.Connection, run: Run) -> DaemonError:
    """Return why a write of this run's owner found no row."""
    row = connection.execute("SELECT fence, status FROM run WHERE id = ?", (run.id,)).fetchone()
    if row == (run.fence, Status.RUNNING) or row == _unbegun(run):
        return StoreFull(
            f"run {run.id}: an earlier step could not be written; it resumes from the ones before"
        )
    return _fenced(run)


def _unbegun(run: Run) -> tuple[int, Status]:
    """Return the fence and the status of a run of which the record does not know that we have begun
    it.
    """
    return run.fence - 1, Status.QUEUED


def _fenced(run: Run) -> Fenced:
    return Fenced(
        f"run {run.id} is no longer in these hands: it was taken over, suspended or ended"
    )


def _failed(error: DaemonError) -> asyncio.Future[list[Step]]:
    future: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def find(connection: sqlite3.Connection, part: str) -> Run:
    """Return the run of that id, or the only one whose id begins or ends so. NotFound."""
    exact = runs_in(connection, "WHERE id = ?", (part,))
    if exact:
        return exact[0]
    asked, part = part, part.upper()
    if len(part) < SHORTEST_PART:
        raise NotFound(
            f"there is no run {asked!r}; give at least {SHORTEST_PART} characters of an id"
        )
    found = runs_in(
        connection,
        "WHERE (id >= ? AND id < ?) OR substr(id, ?) = ? ORDER BY id DESC LIMIT 2",
        (part, part + AFTER_EVERY_ID, -len(part), part),
    )
    if not found:
        raise NotFound(f"there is no run {asked!r}; `agentctl runs` shows what there is")
    if len(found) > 1:
        raise NotFound(
            (  # noqa: UP034
                f"{asked!r} fits several runs, {found[0].id} and {found[1].id} among them; give "
                "more of the id"
            )
        )
    return found[0]
