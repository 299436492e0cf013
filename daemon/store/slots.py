"""The ledger of slots: every scheduled moment of a routine once, with what became of it; and the
events that start runs besides the clock.

Slots that were not started stand in as few rows as there are reasons. Rows of one routine never
overlap. A row says more than its own slots: between it and the baseline everything is told. Only a
run whose slot still lay ahead when the clock was put back says no more than that it ran (`ahead`):
what was told of the slots around it is dropped with the time that did not pass, and they come
again.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from daemon.models import Outcome, Reason, Run, Status, new_ids, utc
from daemon.store.database import Database
from daemon.store.repository import Repository
from daemon.store.rows import from_microseconds, runs_in, to_microseconds
from daemon.store.runs import RunRepository
from daemon.store.slot_claims import (
    Claim,
    find_taken,
    fingerprint,
    keep_definitions,
    run_for,
    write_runs,
)
from daemon.store.statements import Connection, Row, placeholders


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRow:
    """What became of a slot, or of `count` slots in a row that were not started for the same
    reason.
    """

    routine: str
    first: datetime
    last: datetime
    count: int
    event: str | None
    outcome: Outcome
    reason: Reason | None
    run: str | None
    lateness: float
    rule: str | None = None
    """The key that let it pass, as it was then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Portion:
    """Slots of a schedule that follow each other."""

    first: datetime
    last: datetime
    count: int


# Returns the slots that a schedule has strictly between two moments, if there are any.
Between: TypeAlias = Callable[[datetime, datetime], Portion | None]


class SlotRepository(Repository):
    """Slots, what became of them, and the events that start runs besides the clock.

    Tables: slot, seen.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], runs: RunRepository) -> None:
        super().__init__(db, clock=clock)
        self._runs = runs

    # --- slots that are started

    async def open(self, claims: Sequence[Claim]) -> list[Run | None]:
        """Write the slot and a queued run of each claim, in one durable transaction.

        Returns the runs in the order of the claims, with None for a claim whose slot is taken
        already, or whose routine has more unended runs than the claim allows (`Claim.beside`).
        """
        now = self._clock()
        hashes = [fingerprint(claim.definition) for claim in claims]
        # What is due together has mostly one moment, the same object. And told apart as objects: in
        # the hour that the clock shows twice, Python takes the two moments for equal.
        moments = {id(claim.slot): claim.slot for claim in claims}
        instants = {place: utc(slot) for place, slot in moments.items()}
        stamps = {place: to_microseconds(slot) for place, slot in instants.items()}
        slots = [stamps[id(claim.slot)] for claim in claims]

        def work(connection: Connection) -> list[Run | None]:
            keep_definitions(
                connection,
                {hash_: claim.definition for hash_, claim in zip(hashes, claims, strict=True)},
            )
            taken = find_taken(connection, claims, slots)
            runs = [
                None
                if number in taken
                else run_for(id_, claim, instants[id(claim.slot)], hashes[number], now)
                for number, (claim, id_) in enumerate(
                    zip(claims, new_ids(len(claims)), strict=True)
                )
            ]
            opened = [
                (claim, run, slot)
                for claim, run, slot in zip(claims, runs, slots, strict=True)
                if run
            ]
            write_runs(connection, opened, to_microseconds(now))
            return runs

        runs = await self._db.write(work, durable=True)
        self._runs.keep_fresh(run for run in runs if run)
        return runs

    async def get_run_of_event(self, routine: str, event: str) -> Run | None:
        """Return the run that an event started, if it did."""

        def work(connection: Connection) -> Run | None:
            return next(iter(runs_in(connection, _BY_EVENT, (routine, event))), None)

        return await self._db.read(work)

    # --- slots that are accounted for

    async def account(
        self,
        routine: str,
        *,
        first: datetime,
        last: datetime,
        count: int,
        outcome: Outcome,
        reason: Reason,
        rule: str | None = None,
        between: Between | None = None,
    ) -> list[Portion]:
        """Write down `count` slots from `first` to `last` that are not started; return what was new
        of them.

        To be told in the order they fell due: they join the row before them if that says the same,
        and a row takes every moment between its first and its last. What is told already is not
        told again: the same call twice changes nothing, and of a stretch that is told in part
        `between` finds out what is left.
        """
        wanted = Portion(first=first, last=last, count=count)

        def work(connection: Connection) -> list[Portion]:
            spans = connection.execute(
                _SPANS, (routine, to_microseconds(first), to_microseconds(last))
            ).fetchall()
            new = list(_left(wanted, spans, between)) if spans else [wanted]
            for portion in new:
                _add(connection, routine, portion, (outcome, reason, rule))
            return new

        return await self._db.write(work, durable=True)

    async def find(
        self,
        routine: str | None = None,
        *,
        since: datetime | None = None,
        now: datetime | None = None,
        limit: int = 50,
    ) -> list[SlotRow]:
        """Return what became of the latest slots, newest first; `since`: of those that lie there or
        later.

        What lies behind `now` comes last: it ran by a clock that was ahead, and has been put back
        since.
        """
        asked: dict[str, Row] = {}
        if routine is not None:
            asked["routine = ?"] = (routine,)
        if since is not None:
            asked["last >= ?"] = (to_microseconds(since),)
        parts: list[dict[str, Row]] = [{}]
        if now is not None:
            parts = [{"last <= ?": (to_microseconds(now),)}, {"last > ?": (to_microseconds(now),)}]

        def work(connection: Connection) -> list[SlotRow]:
            rows: list[SlotRow] = []
            for part in parts:
                wanted = asked | part
                rest = f"WHERE {' AND '.join(wanted) or 'true'} ORDER BY last DESC, id DESC LIMIT ?"
                values = (*(value for row in wanted.values() for value in row), limit - len(rows))
                rows += _slots_in(connection, rest, values)
            return rows

        return await self._db.read(work)

    async def find_within(
        self, routine: str, first: datetime, until: datetime, *, limit: int = 50
    ) -> list[SlotRow]:
        """Return the rows that tell of any moment from `first` until before `until`, oldest
        first.
        """
        rest = "WHERE routine = ? AND last >= ? AND first < ? ORDER BY last, id LIMIT ?"
        values = (routine, to_microseconds(first), to_microseconds(until), limit)
        return await self._db.read(lambda connection: _slots_in(connection, rest, values))

    async def get_accounted_until(self, routine: str) -> datetime | None:
        """Return the slot up to which all are accounted for, from the baseline on.

        A slot of the future is one from a time when the clock was wrong; it says nothing about
        today's.
        """
        now = self._now()

        def work(connection: Connection) -> int | None:
            (newest,) = connection.execute(
                (
                    "SELECT max(last) FROM slot WHERE routine = ? AND event IS NULL AND ahead = 0 "
                    "AND last <= ?"
                ),
                (routine, now),
            ).fetchone()
            return newest  # type: ignore[no-any-return]  # a row of sqlite3 is untyped

        newest = await self._db.read(work)
        return None if newest is None else from_microseconds(newest)

    async def take_back(self, kept: Callable[[SlotRow, datetime], Portion | None]) -> None:
        """Take back what is told of slots still to come: they will be accounted for anew, as they
        come.

        A clock that had jumped to 2031 and was put right left them, and they would mute their
        routines until then. What ran has run. Of a row that ends after now and began before, `kept`
        says by it and the routine's baseline what remains.
        """
        now = self._now()

        def told_ahead(connection: Connection) -> bool:
            statement = f"{_AHEAD} SELECT 1 FROM ahead LIMIT 1"
            return connection.execute(statement, (now,)).fetchone() is not None

        def work(connection: Connection) -> None:
            connection.execute(
                f"DELETE FROM slot WHERE id IN ({_AHEAD} SELECT id FROM ahead"
                f" WHERE {_UNSTARTED} AND first > ?)",
                (now, now),
            )
            for id_, baseline, *told in connection.execute(_UNSTARTED_AHEAD, (now,)).fetchall():
                if portion := kept(_slot_of(told), from_microseconds(baseline)):
                    changes = to_microseconds(portion.last), portion.count, id_
                    connection.execute("UPDATE slot SET last = ?, count = ? WHERE id = ?", changes)
                else:
                    connection.execute("DELETE FROM slot WHERE id = ?", (id_,))
            connection.execute(
                f"UPDATE slot SET ahead = 1 WHERE id IN ({_AHEAD} SELECT id FROM ahead)", (now,)
            )

        # Nearly always there is nothing, and a start has no time for a commit that changes nothing.
        if await self._db.read(told_ahead):
            await self._db.write(work, durable=True)

    # --- events: files that came to rest, runs that ended, and what such an event said

    async def get_seen_files(self, routine: str) -> set[tuple[str, str]]:
        """Return each (path, version) that a run of the routine was given."""

        def work(connection: Connection) -> set[tuple[str, str]]:
            return set(
                connection.execute("SELECT path, version FROM seen WHERE routine = ?", (routine,))
            )

        return await self._db.read(work)

    async def forget_files(
        self, routine: str, *, present: Collection[str], before: datetime
    ) -> None:
        """Forget the files given to runs before then, except those that are still present."""

        def work(connection: Connection) -> None:
            old = connection.execute(
                "SELECT path FROM seen WHERE routine = ? AND at < ?",
                (routine, to_microseconds(before)),
            )
            gone = {path for (path,) in old} - set(present)
            connection.executemany(
                "DELETE FROM seen WHERE routine = ? AND path = ? AND at < ?",
                [(routine, path, to_microseconds(before)) for path in gone],
            )

        await self._db.write(work)

    async def find_unanswered(
        self,
        routine: str,
        *,
        parents: Collection[str],
        statuses: Collection[Status],
        since: datetime,
    ) -> list[Run]:
        """Return the runs of the parents that ended so since then and have no slot in this routine,
        oldest first.
        """
        condition = _UNANSWERED % (placeholders(parents), placeholders(statuses))
        values = (*parents, *statuses, to_microseconds(since), routine)
        return await self._db.read(lambda connection: runs_in(connection, condition, values))

    async def skip_event(
        self, routine: str, event: str, *, slot: datetime, reason: Reason, rule: str | None = None
    ) -> None:
        """Account for an event that starts no run, so that it never will; nothing if it has its
        slot already.
        """

        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO slot (routine, first, last, event, outcome, reason, rule) VALUES (?, "
                "?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (
                    routine,
                    to_microseconds(slot),
                    to_microseconds(slot),
                    event,
                    Outcome.SKIPPED,
                    reason,
                    rule,
                ),
            )

        await self._db.write(work, durable=True)


_BY_EVENT = "WHERE id = (SELECT run_id FROM slot WHERE routine = ? AND event = ?)"

_UNANSWERED = """
WHERE routine IN (%s) AND status IN (%s) AND ended > ?
    AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.routine = ? AND slot.event = run.id)
ORDER BY ended, id
"""

_COLUMNS = "routine, first, last, count, event, outcome, reason, run_id, lateness, rule"
# Materialized, so that only the few slots to come are read, and not all that have no run.
_AHEAD = """
WITH later AS MATERIALIZED (SELECT * FROM slot WHERE last > ?),
    ahead AS (SELECT * FROM later WHERE event IS NULL AND ahead = 0)
"""
# The run of a slot that was started may have been forgotten since.
_UNSTARTED = "run_id IS NULL AND outcome IN ('missed', 'skipped')"
_UNSTARTED_AHEAD = f"""{_AHEAD}
SELECT id, coalesce((SELECT baseline FROM routine WHERE name = ahead.routine), first), {_COLUMNS}
FROM ahead WHERE {_UNSTARTED}
"""
# Materialized, so that only the rows from the beginning of the span on are read, and not all of the
# routine.
_SPANS = """
WITH later AS MATERIALIZED (SELECT first, last, event FROM slot WHERE routine = ? AND last >= ?)
SELECT first, last FROM later WHERE event IS NULL AND first <= ? ORDER BY last
"""
INSTANT = timedelta(microseconds=1)


def _left(wanted: Portion, told: Sequence[Row], between: Between | None) -> Iterator[Portion]:
    """Yield what of a stretch lies before, between and behind the spans that are told, in order."""
    edge = wanted.first - INSTANT
    for first, last in (*told, (to_microseconds(wanted.last) + 1, None)):
        if between and (portion := between(edge, from_microseconds(first))):
            yield portion
        if last is not None:
            edge = max(edge, from_microseconds(last))


def _slots_in(connection: Connection, rest: str, values: Row) -> list[SlotRow]:
    return [
        _slot_of(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM slot {rest}", values)
    ]


def _slot_of(row: Row) -> SlotRow:
    routine, first, last, count, event, outcome, reason, run, lateness, rule = row
    return SlotRow(
        routine=routine,
        first=from_microseconds(first),
        last=from_microseconds(last),
        count=count,
        event=event,
        outcome=Outcome(outcome),
        reason=None if reason is None else Reason(reason),
        run=run,
        lateness=lateness,
        rule=rule,
    )


# The row before, if it is no older than the baseline: what lies between was never due.
_BEFORE = """
SELECT id, outcome, reason, rule, run_id FROM slot WHERE routine = ? AND event IS NULL AND first < ?
AND last > coalesce((SELECT baseline FROM routine WHERE name = slot.routine), first - 1)
ORDER BY first DESC LIMIT 1
"""


def _add(
    connection: Connection,
    routine: str,
    portion: Portion,
    told: tuple[Outcome, Reason, str | None],
) -> None:
    first, last = to_microseconds(portion.first), to_microseconds(portion.last)
    before = connection.execute(_BEFORE, (routine, first)).fetchone()
    if before is not None and before[1:] == (*told, None):
        connection.execute(
            "UPDATE slot SET last = ?, count = count + ? WHERE id = ?",
            (last, portion.count, before[0]),
        )
    else:
        connection.execute(
            (
                "INSERT INTO slot (routine, first, last, count, outcome, reason, rule) VALUES (?, "
                "?, ?, ?, ?, ?, ?)"
            ),
            (routine, first, last, portion.count, *told),
        )
