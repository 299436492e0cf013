"""The ledger of slots: every scheduled moment of a routine once, with what became of it."""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

from daemon.errors import NotFound
from daemon.models import Outcome, Reason, Run, new_ids, utc
from daemon.store.repository import Repository
from daemon.store.rows import (
    Row,
    clean,
    deflate,
    encode,
    moment,
    moment_or_none,
    runs_in,
    stamp,
    stamp_or_none,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutineState:
    """What the record keeps of a routine besides its file."""

    name: str
    schedule_key: str
    baseline: datetime
    """No slot at or before it is due."""
    paused: bool
    paused_until: datetime | None = None
    """When it goes on by itself."""
    paused_why: str | None = None
    """Set where it was the daemon that paused it, not a person."""
    forgiven: datetime | None = None
    """Failures up to then count no more."""

    def pausing(self, now: datetime) -> bool:
        """Tell whether the pause holds at this moment."""
        return self.paused and (self.paused_until is None or now < self.paused_until)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A slot that somebody wants to run."""

    routine: str
    definition: str
    """The routine as JSON text: the run keeps it whatever is edited meanwhile."""
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
    """What the event brought along, as JSON."""
    beside: int | None = None
    """Beside how many unended runs of the routine it may be started; None: beside any."""
    files: tuple[tuple[str, str], ...] = ()
    """Versions of watched files, as (path, version): given to this run and to no other of the
    routine.
    """


# So many rows go into one statement; as a ledger's slices are as large, its text is mostly the
# same.
TOGETHER = 250


@lru_cache(
    maxsize=20_000
)  # ten thousand that are due together have the ones they had the last time
def fingerprint(definition: str) -> str:
    """Return the name under which a definition is kept."""
    return hashlib.blake2b(definition.encode(), digest_size=16).hexdigest()


class Slots(Repository):
    """Routines' states and slots."""

    # --- what is kept of a routine

    async def routine_states(self) -> dict[str, RoutineState]:
        """Return what is kept of every routine ever seen, by name."""
        return await self._db.read(_states)

    async def set_baselines(self, keys: Mapping[str, str]) -> dict[str, RoutineState]:
        """Start a new baseline for each routine that is new or has another schedule key; return all
        states.

        Routines that are not named keep what they have.
        """
        now = stamp(self._clock())

        def work(connection: sqlite3.Connection) -> dict[str, RoutineState]:
            known = dict(connection.execute("SELECT name, schedule_key FROM routine").fetchall())
            connection.executemany(
                "INSERT INTO routine (name, schedule_key, baseline, paused, paused_why) VALUES (?, "
                "?, ?,"
                # after a restore even what is new stands still
                " (SELECT count(*) FROM meta WHERE key = 'hold'), (SELECT value FROM meta WHERE key "  # noqa: E501
                "= 'hold'))"
                " ON CONFLICT (name) DO UPDATE SET schedule_key = excluded.schedule_key, baseline = "  # noqa: E501
                "excluded.baseline",
                [(name, key, now) for name, key in keys.items() if known.get(name) != key],
            )
            return _states(connection)

        return await self._db.write(work, durable=True)

    async def pause(
        self,
        routine: str,
        *,
        until: datetime | None = None,
        since: datetime | None = None,
        why: str | None = None,
    ) -> None:
        """Pause a routine, or change how long it is paused. NotFound.

        `since` is when a pause of so many hours began; None for one until a date, which no wrong
        clock moves.
        """
        values = (stamp_or_none(until), stamp_or_none(since), why, routine)
        changes = "paused = 1, paused_until = ?, paused_since = ?, paused_why = ?"
        await self._change(routine, f"{changes} WHERE name = ?", values)

    async def resume(self, routine: str, *, since: datetime | None = None) -> None:
        """Let a routine go on from now, or `since`: what fell due until then stays past.

        NotFound.
        """
        now = stamp(self._clock())
        values = (stamp_or_none(since) or now, now, routine)
        # the baseline may be later than the end of the pause: it was edited or turned off in
        # between
        baseline = "CASE WHEN paused = 1 THEN max(baseline, ?) ELSE baseline END"
        changes = (
            f"baseline = {baseline}, forgiven = ?, paused = 0, paused_until = NULL, paused_since = "
            "NULL"
        )
        await self._change(routine, f"{changes}, paused_why = NULL WHERE name = ?", values)

    async def let_go(self) -> None:
        """End the hold that a restore put on everything: what is new from now on is not paused."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM meta WHERE key = 'hold'")

        await self._db.write(work)

    async def _change(self, routine: str, changes: str, values: Row) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if connection.execute(f"UPDATE routine SET {changes}", values).rowcount == 0:
                raise NotFound(f"there is no routine {routine!r}")

        await self._db.write(work, durable=True)

    # --- slots

    async def open_slots(self, claims: Sequence[Claim]) -> list[Run | None]:
        """Give each claim its slot and a queued run, all or none of them.

        None where the slot is taken, or where more runs are unended than the claim may stand
        beside.
        """
        now = self._clock()
        hashes = [fingerprint(claim.definition) for claim in claims]
        # What is due together has mostly one moment, the same object. And told apart as objects: in
        # the hour that the clock shows twice, Python takes the two moments for equal.
        moments = {id(claim.slot): claim.slot for claim in claims}
        instants = {place: utc(slot) for place, slot in moments.items()}
        stamps = {place: stamp(slot) for place, slot in instants.items()}
        slots = [stamps[id(claim.slot)] for claim in claims]

        def work(connection: sqlite3.Connection) -> list[Run | None]:
            _keep(
                connection,
                {hash_: claim.definition for hash_, claim in zip(hashes, claims, strict=True)},
            )
            taken = _taken(connection, claims, slots)
            runs = [
                None
                if number in taken
                else _run_of(id_, claim, instants[id(claim.slot)], hashes[number], now)
                for number, (claim, id_) in enumerate(
                    zip(claims, new_ids(len(claims)), strict=True)
                )
            ]
            opened = [
                (claim, run, slot)
                for claim, run, slot in zip(claims, runs, slots, strict=True)
                if run
            ]
            _write(connection, opened, stamp(now))
            return runs

        return await self._db.write(work, durable=True)

    async def run_of_event(self, routine: str, event: str) -> Run | None:
        """Return the run that an event started, if it did."""

        def work(connection: sqlite3.Connection) -> Run | None:
            return next(iter(runs_in(connection, _BY_EVENT, (routine, event))), None)

        return await self._db.read(work)


_BY_EVENT = "WHERE id = (SELECT run_id FROM slot WHERE routine = ? AND event = ?)"


def _states(connection: sqlite3.Connection) -> dict[str, RoutineState]:
    return {
        name: RoutineState(
            name=name,
            schedule_key=key,
            baseline=moment(baseline),
            paused=bool(paused),
            paused_until=moment_or_none(until),
            paused_why=why,
            forgiven=moment_or_none(forgiven),
        )
        for name, key, baseline, paused, until, why, forgiven in connection.execute(
            (  # noqa: UP034
                "SELECT name, schedule_key, baseline, paused, paused_until, paused_why, forgiven "
                "FROM routine"
            )
        )
    }


def _run_of(id_: str, claim: Claim, slot: datetime, definition: str, now: datetime) -> Run:
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


def _keep(connection: sqlite3.Connection, definitions: Mapping[str, str]) -> None:
    """Write down those of these definitions, by their names, that are new: mostly none is."""
    hashes = list(definitions)
    for start in range(0, len(hashes), TOGETHER):
        some = hashes[start : start + TOGETHER]
        known = f"FROM definition WHERE hash IN ({', '.join('?' * len(some))})"
        # counted first: for each row that is fetched the loop is asked for the interpreter
        if connection.execute(f"SELECT count(*) {known}", some).fetchone() == (len(some),):
            continue
        there = {hash_ for (hash_,) in connection.execute(f"SELECT hash {known}", some)}
        new = [(hash_, definitions[hash_]) for hash_ in some if hash_ not in there]
        _insert(connection, "definition (hash, body)", new, "ON CONFLICT DO NOTHING")


def _write(
    connection: sqlite3.Connection, opened: Sequence[tuple[Claim, Run, int]], now: int
) -> None:
    # `.value`, as everywhere where it is done often: sqlite3 takes four times as long to bind a
    # member of an enum
    _insert(
        connection,
        (
            'run (id, routine, definition, "trigger", slot, event, status, created, not_before, '
            "waits_since, goal)"
        ),
        [
            (
                *(
                    run.id,
                    run.routine,
                    run.definition,
                    run.trigger,
                    slot,
                    run.event,
                    run.status.value,
                    now,
                ),
                *(stamp_or_none(run.not_before), now if run.not_before else None, run.goal),
            )
            for _, run, slot in opened
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
            for claim, run, slot in opened
        ],
    )
    _insert(
        connection,
        "input (run_id, body)",
        [
            (run.id, deflate(encode(claim.input)))
            for claim, run, _ in opened
            if claim.input is not None
        ],
    )
    _insert(
        connection,
        "seen (routine, path, version, at)",
        [
            (claim.routine, path, version, now)
            for claim, _, _ in opened
            for path, version in claim.files
        ],
        "ON CONFLICT DO NOTHING",
    )


def _insert(connection: sqlite3.Connection, into: str, rows: Sequence[Row], rest: str = "") -> None:
    """Insert rows, many with one statement: only while that is under way has the loop the GIL for
    itself.

    With a statement for each row the two threads would wait for each other at every one of them.
    """
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        marks = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
        connection.execute(
            f"INSERT INTO {into} VALUES {marks} {rest}", [*chain.from_iterable(some)]
        )


# Rows of one routine never overlap, so only the one that begins last before a slot can cover it.
_COVERED = """
WITH claim (number, routine, slot) AS (VALUES {})
SELECT number FROM claim WHERE slot <= (
    SELECT last FROM slot WHERE routine = claim.routine AND event IS NULL AND first <= claim.slot
    ORDER BY first DESC LIMIT 1
)
"""


def _taken(
    connection: sqlite3.Connection, claims: Sequence[Claim], slots: Sequence[int]
) -> set[int]:
    """Return the places of those claims whose slot or event somebody has, or that would be one run
    too many.
    """
    taken, seen = set[int](), set[tuple[str, str | int]]()
    asked: list[int | str] = []
    for number, (claim, slot) in enumerate(zip(claims, slots, strict=True)):
        key = (claim.routine, claim.event or slot)
        if key in seen:
            taken.add(number)
            continue
        seen.add(key)
        if claim.event is None:
            asked += (number, claim.routine, slot)
        elif connection.execute(_OF_EVENT, (claim.routine, claim.event)).fetchone():
            taken.add(number)
        if (
            claim.beside is not None
            and connection.execute(_TOO_MANY, (claim.routine, claim.beside)).fetchone()
        ):
            taken.add(number)
    for start in range(0, len(asked), 3 * TOGETHER):
        some = asked[start : start + 3 * TOGETHER]
        marks = ", ".join(["(?, ?, ?)"] * (len(some) // 3))
        taken.update(number for (number,) in connection.execute(_COVERED.format(marks), some))
    return taken


_OF_EVENT = "SELECT 1 FROM slot WHERE routine = ? AND event = ?"
# `+`: by the index of what is active, which is short
_TOO_MANY = (
    "SELECT 1 FROM run WHERE status IN ('queued', 'running', 'waiting') AND +routine = ? LIMIT 1 "
    "OFFSET ?"
)
