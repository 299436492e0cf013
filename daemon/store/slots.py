"""The rows of slots: each slot of a routine once, with its outcome; and the events that start runs
besides the clock.

Consecutive slots that were not started, all for one reason, share one row. Rows of one routine
never overlap. All slots between the baseline and the last row are accounted for, so a row tells
about earlier slots, too. The exception is a row marked `ahead`, of a run whose slot lay in the
future when the clock was set back: the slots around it come again, and are accounted for then.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

from daemon.models import Outcome, Reason, Run, Status, new_ids, utc
from daemon.store.connection import Connection, Row, placeholders
from daemon.store.database import Database, Repository
from daemon.store.rows import (
    MICROSECOND,
    PUT_VALUE,
    clean,
    deflate,
    encode,
    from_microseconds,
    read_intact_rows,
    refuse_damaged_row,
    runs_in,
    to_microseconds,
    to_microseconds_or_none,
)
from daemon.store.runs import RunRepository


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A request to run a slot: the slot and what its run would be."""

    routine: str
    definition: str
    """The routine as JSON text, by which the run is executed even if the routine is edited."""
    trigger: str
    slot: datetime
    goal: str
    event: str | None = None
    """Makes the slot unique by this id instead of by its instant."""
    outcome: Outcome = Outcome.RAN
    reason: Reason | None = None
    lateness: float = 0.0
    """Seconds."""
    not_before: datetime | None = None
    input: Any = None
    """The JSON value that the event brought along."""
    max_other_runs: int | None = None
    """How many runs of the routine may be active when another one is claimed; None: any number."""
    files: tuple[tuple[str, str], ...] = ()
    """Watched files of this run as (path, version); no other run of the routine gets the same."""


# Rows of one statement. The slot ledger claims batches of this size, so that the text of the
# statement is mostly the same and stays prepared.
ROWS_PER_STATEMENT = 250


@lru_cache(maxsize=20_000)  # more than the routines that are due at once; definitions seldom change
def fingerprint(definition: str) -> str:
    """Return the hash of a definition, the key of the table `definition`."""
    return hashlib.blake2b(definition.encode(), digest_size=16).hexdigest()


def run_for(id_: str, claim: Claim, slot: datetime, definition: str, now: datetime) -> Run:
    """Return the queued run of a claim; `slot` is in UTC, `definition` the fingerprint."""
    return Run(
        id=id_,
        routine=claim.routine,
        definition=definition,
        trigger=claim.trigger,
        slot=slot,
        event=claim.event,
        created=now,
        not_before=claim.not_before,
        goal=clean(claim.goal),
    )


def insert_missing_definitions(connection: Connection, definitions: Mapping[str, str]) -> None:
    """Insert the definitions, by their hashes, that the table does not have yet: mostly none."""
    hashes = list(definitions)
    for start in range(0, len(hashes), ROWS_PER_STATEMENT):
        batch = hashes[start : start + ROWS_PER_STATEMENT]
        from_clause = f"FROM definition WHERE hash IN ({placeholders(batch)})"
        # Only the count is fetched at first: sqlite3 waits for the GIL at each row it returns.
        if connection.execute(f"SELECT count(*) {from_clause}", batch).fetchone() == (len(batch),):
            continue
        rows = connection.execute(f"SELECT hash {from_clause}", batch)
        existing_hashes = {hash_ for (hash_,) in rows}
        new = [(hash_, definitions[hash_]) for hash_ in batch if hash_ not in existing_hashes]
        _insert(connection, "definition (hash, body)", new, "ON CONFLICT DO NOTHING")


def write_runs(connection: Connection, claims: Sequence[tuple[Claim, Run, int]], now: int) -> None:
    """Insert the runs of claims, their slots, their inputs and the versions of their files.

    Each claim comes with its run and its slot in microseconds.
    """
    # `.value`, as in all frequent statements: sqlite3 takes four times as long to bind a member of
    # an enum
    _insert(
        connection,
        'run (id, routine, definition, "trigger", slot, event, status, created, not_before,'
        " waits_since, goal)",
        [
            (
                run.id,
                run.routine,
                run.definition,
                run.trigger,
                slot,
                run.event,
                run.status.value,
                now,
                to_microseconds_or_none(run.not_before),
                now if run.not_before else None,
                run.goal,
            )
            for _, run, slot in claims
        ],
    )
    _insert(
        connection,
        "slot (routine, first, last, event, outcome, reason, run_id, lateness)",
        [
            (
                claim.routine,
                slot,
                slot,
                claim.event,
                claim.outcome.value,
                claim.reason,
                run.id,
                claim.lateness,
            )
            for claim, run, slot in claims
        ],
    )
    _insert(
        connection,
        "input (run_id, body)",
        [
            (run.id, deflate(encode(claim.input)))
            for claim, run, _ in claims
            if claim.input is not None
        ],
    )
    _insert(
        connection,
        "seen (routine, path, version, at)",
        [
            (claim.routine, path, version, now)
            for claim, _, _ in claims
            for path, version in claim.files
        ],
        "ON CONFLICT DO NOTHING",
    )


def _insert(connection: Connection, into: str, rows: Sequence[Row], clause: str = "") -> None:
    """Insert rows into a table with its columns, ROWS_PER_STATEMENT with each statement.

    sqlite3 releases the GIL while a statement runs: with one statement for each row the writer's
    thread and the loop would wait for each other at every row.
    """
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        batch = rows[start : start + ROWS_PER_STATEMENT]
        marks = ", ".join([f"({placeholders(batch[0])})"] * len(batch))
        connection.execute(
            f"INSERT INTO {into} VALUES {marks} {clause}", [*chain.from_iterable(batch)]
        )


# Rows of one routine never overlap, so only the one that begins last before a slot can cover it.
_COVERED_CLAIMS = """
WITH claim (number, routine, slot) AS (VALUES {})
SELECT number FROM claim WHERE slot <= (
    SELECT last FROM slot WHERE routine = claim.routine AND event IS NULL AND first <= claim.slot
    ORDER BY first DESC LIMIT 1
)
"""


def find_taken_claims(
    connection: Connection, claims: Sequence[Claim], slots: Sequence[int]
) -> set[int]:
    """Return the indexes of the claims whose slot or event is taken, or whose routine has more
    active runs than the claim allows.

    `slots` has the slot of each claim in microseconds.
    """
    taken_indexes, claimed_keys = set[int](), set[tuple[str, str | int]]()
    values: list[int | str] = []
    for number, (claim, slot) in enumerate(zip(claims, slots, strict=True)):
        key = (claim.routine, claim.event or slot)
        if key in claimed_keys:  # by an earlier one of these claims
            taken_indexes.add(number)
            continue
        claimed_keys.add(key)
        if claim.event is None:
            values += (number, claim.routine, slot)
        elif connection.execute(_OF_EVENT, (claim.routine, claim.event)).fetchone():
            taken_indexes.add(number)
        if claim.max_other_runs is not None:
            limit_values = (claim.routine, claim.max_other_runs)
            if connection.execute(_MORE_ACTIVE_RUNS, limit_values).fetchone():
                taken_indexes.add(number)
    for start in range(0, len(values), 3 * ROWS_PER_STATEMENT):
        batch = values[start : start + 3 * ROWS_PER_STATEMENT]
        marks = ", ".join(["(?, ?, ?)"] * (len(batch) // 3))
        taken_indexes.update(
            number for (number,) in connection.execute(_COVERED_CLAIMS.format(marks), batch)
        )
    return taken_indexes


_OF_EVENT = "SELECT 1 FROM slot WHERE routine = ? AND event = ?"
# Materialized, so that only what is active is read, and not all that the routine ever did.
_MORE_ACTIVE_RUNS = """
WITH active AS MATERIALIZED (SELECT routine FROM run WHERE status IN ('queued', 'running', 'waiting'))
SELECT 1 FROM active WHERE routine = ? LIMIT 1 OFFSET ?
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRow:
    """The outcome of a slot, or of `count` slots in a row that were not started for the same
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
    """The key of the routine by which it was skipped, with its value at that time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRange:
    """Consecutive slots of a schedule."""

    first: datetime
    last: datetime
    count: int


SlotsBetween: TypeAlias = Callable[[datetime, datetime], SlotRange | None]
"""Returns the slots that a schedule has strictly between two moments; None if there are none."""


class SlotRepository(Repository):
    """Slots with their outcomes, and the events that start runs besides the clock.

    Tables: slot, seen; a claim also writes run, definition, input and meta.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], runs: RunRepository) -> None:
        super().__init__(db, clock=clock)
        self._runs = runs

    # --- slots that are started

    async def claim(
        self, claims: Sequence[Claim], *, key_values: Mapping[str, str] | None = None
    ) -> list[Run | None]:
        """Claim slots: write the slot and a queued run of each claim, in one durable transaction.

        `key_values` of the table meta are written with them: how far the source of the claims was
        read. Returns the runs in the order of the claims, with None for a claim whose slot is taken
        already, or whose routine has more active runs than `Claim.max_other_runs`.
        """
        now = self._clock()
        hashes = [fingerprint(claim.definition) for claim in claims]
        # Claims of one moment mostly share the datetime object: each object is converted once. They
        # are told apart by `id`, as datetimes that differ in `fold` only compare equal.
        moments = {id(claim.slot): claim.slot for claim in claims}
        utc_moments = {key: utc(slot) for key, slot in moments.items()}
        microseconds = {key: to_microseconds(slot) for key, slot in utc_moments.items()}
        slots = [microseconds[id(claim.slot)] for claim in claims]

        def work(connection: Connection) -> list[Run | None]:
            insert_missing_definitions(
                connection,
                {hash_: claim.definition for hash_, claim in zip(hashes, claims, strict=True)},
            )
            taken_indexes = find_taken_claims(connection, claims, slots)
            ids = new_ids(len(claims))
            runs: list[Run | None] = []
            free_claims: list[tuple[Claim, Run, int]] = []
            for number, claim in enumerate(claims):
                if number in taken_indexes:
                    runs.append(None)
                    continue
                slot = utc_moments[id(claim.slot)]
                run = run_for(ids[number], claim, slot, hashes[number], now)
                runs.append(run)
                free_claims.append((claim, run, slots[number]))
            write_runs(connection, free_claims, to_microseconds(now))
            if key_values:
                connection.executemany(PUT_VALUE, list(key_values.items()))
            return runs

        runs = await self._db.write(work, durable=True)
        self._runs.keep_fresh(run for run in runs if run)
        return runs

    async def get_run_of_event(self, routine: str, event: str) -> Run | None:
        """Return the run that an event of a routine has started; None if there is none."""

        def work(connection: Connection) -> Run | None:
            return next(iter(runs_in(connection, _BY_EVENT, (routine, event))), None)

        return await self._db.read(work)

    async def has_event(self, routine: str, event: str) -> bool:
        """Tell whether an event is accounted for; its run may be gone by now."""

        def work(connection: Connection) -> bool:
            query = "SELECT 1 FROM slot WHERE routine = ? AND event = ?"
            return connection.execute(query, (routine, event)).fetchone() is not None

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
        between: SlotsBetween | None = None,
    ) -> list[SlotRange]:
        """Write that the `count` slots from `first` to `last` are not started; return those of them
        that were not accounted for yet.

        To be called in the order in which slots fall due: slots join the row before them if it has
        the same outcome, reason and rule. The same call twice changes nothing. Of slots that are
        accounted for in part, `between` returns the others; without it nothing is written then.
        """
        slots = SlotRange(first=first, last=last, count=count)

        def work(connection: Connection) -> list[SlotRange]:
            recorded_spans = connection.execute(
                _SPANS, (routine, to_microseconds(first), to_microseconds(last))
            ).fetchall()
            new_ranges = (
                list(_unrecorded_ranges(slots, recorded_spans, between))
                if recorded_spans
                else [slots]
            )
            for new_range in new_ranges:
                _insert_or_extend(connection, routine, new_range, (outcome, reason, rule))
            return new_ranges

        return await self._db.write(work, durable=True)

    async def find(
        self,
        routine: str | None = None,
        *,
        since: datetime | None = None,
        now: datetime | None = None,
        limit: int = 50,
        scheduled: bool = False,
    ) -> list[SlotRow]:
        """Return the rows of the latest slots, newest first, those from `since` on.

        With `scheduled`, without the runs that a person or an event has started.
        Rows later than `now` come last: they are from a clock that was ahead, and has been put back
        since.
        """
        conditions: list[tuple[str, str | int]] = []
        if routine is not None:
            conditions.append(("routine = ?", routine))
        if since is not None:
            conditions.append(("last >= ?", to_microseconds(since)))
        if scheduled:
            conditions.append(("(event IS NULL OR outcome <> ?)", Outcome.RAN.value))
        parts = [conditions]
        if now is not None:
            past, future = ("last <= ?", to_microseconds(now)), ("last > ?", to_microseconds(now))
            parts = [[*conditions, past], [*conditions, future]]

        def work(connection: Connection) -> list[SlotRow]:
            rows: list[SlotRow] = []
            for part in parts:
                condition = " AND ".join(text for text, _ in part) or "true"
                clauses = f"WHERE {condition} ORDER BY last DESC, id DESC LIMIT ?"
                values = (*(value for _, value in part), limit - len(rows))
                rows += _slots_in(connection, clauses, values)
            return rows

        return await self._db.read(work)

    async def find_within(
        self, routine: str, first: datetime, until: datetime, *, limit: int = 50
    ) -> list[SlotRow]:
        """Return the rows that cover any moment from `first` until before `until`, oldest first."""
        clauses = "WHERE routine = ? AND last >= ? AND first < ? ORDER BY last, id LIMIT ?"
        values = (routine, to_microseconds(first), to_microseconds(until), limit)
        return await self._db.read(lambda connection: _slots_in(connection, clauses, values))

    async def get_accounted_until(self, routine: str) -> datetime | None:
        """Return the slot up to which all slots since the baseline are accounted for; None if none
        is.

        Slots in the future do not count: they were written while the clock was ahead.
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

    async def reopen_future_slots(
        self, past_part: Callable[[SlotRow, datetime], SlotRange | None]
    ) -> None:
        """Delete the records of skipped and missed slots that are still to come, so that these are
        accounted for as they come; mark those of started slots as `ahead`.

        A clock that had jumped to 2031 and was put right left such records: no slot would start
        until then. `past_part` returns, of a row that began before now and ends later, and for the
        routine's baseline, the slots to keep; None: none of them.
        """
        now = self._now()

        def has_future_rows(connection: Connection) -> bool:
            statement = f"{_AHEAD} SELECT 1 FROM ahead LIMIT 1"
            return connection.execute(statement, (now,)).fetchone() is not None

        def work(connection: Connection) -> None:
            connection.execute(
                f"DELETE FROM slot WHERE id IN ({_AHEAD} SELECT id FROM ahead"
                f" WHERE {_UNSTARTED} AND first > ?)",
                (now, now),
            )
            for id_, baseline, *row in connection.execute(_UNSTARTED_AHEAD, (now,)).fetchall():
                if past := past_part(_slot_of(tuple(row)), from_microseconds(baseline)):
                    values = (to_microseconds(past.last), past.count, id_)
                    connection.execute("UPDATE slot SET last = ?, count = ? WHERE id = ?", values)
                else:
                    connection.execute("DELETE FROM slot WHERE id = ?", (id_,))
            connection.execute(
                f"UPDATE slot SET ahead = 1 WHERE id IN ({_AHEAD} SELECT id FROM ahead)", (now,)
            )

        # Nearly always there are none, and a start has no time for a commit that changes nothing.
        if await self._db.read(has_future_rows):
            await self._db.write(work, durable=True)

    # --- events: files that have settled, and runs that ended

    async def get_seen_files(self, routine: str) -> set[tuple[str, str]]:
        """Return (path, version) of the watched files that runs of the routine were started for."""

        def work(connection: Connection) -> set[tuple[str, str]]:
            return set(
                connection.execute("SELECT path, version FROM seen WHERE routine = ?", (routine,))
            )

        return await self._db.read(work)

    async def forget_files(
        self, routine: str, *, present: Mapping[str, str], before: datetime
    ) -> None:
        """Delete the versions of files that runs were started for and that were not there any more
        since `before`; to be called every day.

        `present` are the versions by path that are there now. A folder may be away for a while, as
        a disk that is not mounted, and comes back with all its files.
        """
        now, limit = self._now(), to_microseconds(before)
        # each version that is there is written anew now and then, so that its age tells
        renewal = now - (now - limit) // 3

        def work(connection: Connection) -> None:
            old_versions = connection.execute(
                "SELECT path, version FROM seen WHERE routine = ? AND at < ?", (routine, renewal)
            )
            connection.executemany(
                "UPDATE seen SET at = ? WHERE routine = ? AND path = ? AND version = ?",
                [
                    (now, routine, path, version)
                    for path, version in old_versions.fetchall()
                    if present.get(path) == version
                ],
            )
            connection.execute("DELETE FROM seen WHERE routine = ? AND at < ?", (routine, limit))

        await self._db.write(work)

    async def find_missed_ends(
        self,
        routine: str,
        *,
        parents: Collection[str],
        statuses: Collection[Status],
        since: datetime,
    ) -> list[Run]:
        """Return the runs of the `parents` routines that ended since then with one of these
        statuses and have no slot of this routine, oldest first.
        """
        condition = _MISSED_ENDS % (placeholders(parents), placeholders(statuses))
        values = (*parents, *statuses, to_microseconds(since), routine)
        return await self._db.read(lambda connection: runs_in(connection, condition, values))

    async def skip_event(
        self, routine: str, event: str, *, slot: datetime, reason: Reason, rule: str | None = None
    ) -> None:
        """Write an event that starts no run as a skipped slot, so that it never will; does nothing
        if the event has a slot already.
        """

        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO slot (routine, first, last, event, outcome, reason, rule)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
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

_MISSED_ENDS = """
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
# Not by run_id alone: the run of a slot that was started may have been deleted since.
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


def _unrecorded_ranges(
    slots: SlotRange, recorded_spans: Sequence[Row], between: SlotsBetween | None
) -> Iterator[SlotRange]:
    """Yield the slots before, between and behind the recorded spans (first, last), in order."""
    edge = slots.first - MICROSECOND
    for first, last in (*recorded_spans, (to_microseconds(slots.last) + 1, None)):
        if between and (new_range := between(edge, from_microseconds(first))):
            yield new_range
        if last is not None:
            edge = max(edge, from_microseconds(last))


def count_slots_within(first: int, last: int, count: int, begin: int, end: int) -> int:
    """Return how many of the `count` slots of a row lie between `begin` and before `end`, all in
    microseconds.

    A row may cover weeks, and says nothing of the slots between the first and the last: the time
    between each two of them is taken to be the same.
    """
    if first == last:
        return count if begin <= first < end else 0
    counts_before = (
        max(0, min(count, -((first - moment) * (count - 1) // (last - first))))
        for moment in (begin, end)
    )
    before_begin, before_end = counts_before
    return before_end - before_begin


def _slots_in(connection: Connection, clauses: str, values: Row) -> list[SlotRow]:
    """Return the rows that `SELECT … FROM slot` with these clauses finds."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM slot {clauses}", values)
    return read_intact_rows(_slot_of, rows, "slot")


@refuse_damaged_row("slot")
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
        lateness=float(lateness),
        rule=rule,
    )


# The row before, unless it ends before the baseline: the slots between were never due.
_BEFORE = """
SELECT id, outcome, reason, rule, run_id FROM slot WHERE routine = ? AND event IS NULL AND first < ?
AND last > coalesce((SELECT baseline FROM routine WHERE name = slot.routine), first - 1)
ORDER BY first DESC LIMIT 1
"""


def _insert_or_extend(
    connection: Connection,
    routine: str,
    slots: SlotRange,
    cause: tuple[Outcome, Reason, str | None],
) -> None:
    """Insert a row for slots that are not started, or extend the row before if it has the same
    outcome, reason and rule.
    """
    first, last = to_microseconds(slots.first), to_microseconds(slots.last)
    row_before = connection.execute(_BEFORE, (routine, first)).fetchone()
    if row_before is not None and row_before[1:] == (*cause, None):
        connection.execute(
            "UPDATE slot SET last = ?, count = count + ? WHERE id = ?",
            (last, slots.count, row_before[0]),
        )
    else:
        connection.execute(
            "INSERT INTO slot (routine, first, last, count, outcome, reason, rule)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (routine, first, last, slots.count, *cause),
        )
