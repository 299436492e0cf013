"""Slots given to claims: each slot once, each with a queued run.

Functions of a connection, to be handed to the writer.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

from daemon.models import Outcome, Reason, Run
from daemon.store.rows import clean, deflate, encode, to_microseconds_or_none
from daemon.store.statements import Connection, Row, placeholders


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A request to run a slot: the slot and what its run would be."""

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


# Rows of one statement. The slot ledger claims batches of this size, so that the text of the
# statement is mostly the same and stays prepared.
ROWS_PER_STATEMENT = 250


@lru_cache(maxsize=20_000)  # more than the routines that are due at once; definitions seldom change
def fingerprint(definition: str) -> str:
    """Return the hash of a definition, the key of the table `definition`."""
    return hashlib.blake2b(definition.encode(), digest_size=16).hexdigest()


def run_for(id_: str, claim: Claim, slot: datetime, definition: str, now: datetime) -> Run:
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


def keep_definitions(connection: Connection, definitions: Mapping[str, str]) -> None:
    """Insert the definitions, by their hashes, that the table does not have yet: mostly none."""
    hashes = list(definitions)
    for start in range(0, len(hashes), ROWS_PER_STATEMENT):
        batch = hashes[start : start + ROWS_PER_STATEMENT]
        existing = f"FROM definition WHERE hash IN ({placeholders(batch)})"
        # Counted first: sqlite3 takes the GIL again for each row that it fetches.
        if connection.execute(f"SELECT count(*) {existing}", batch).fetchone() == (len(batch),):
            continue
        rows = connection.execute(f"SELECT hash {existing}", batch)
        existing_hashes = {hash_ for (hash_,) in rows}
        new = [(hash_, definitions[hash_]) for hash_ in batch if hash_ not in existing_hashes]
        _insert(connection, "definition (hash, body)", new, "ON CONFLICT DO NOTHING")


def write_runs(connection: Connection, opened: Sequence[tuple[Claim, Run, int]], now: int) -> None:
    """Write what claims have opened: runs, their slots, their inputs and the files they saw.

    `opened` has each claim with its run and its slot in microseconds.
    """
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
                *(
                    to_microseconds_or_none(run.not_before),
                    now if run.not_before else None,
                    run.goal,
                ),
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


def _insert(connection: Connection, into: str, rows: Sequence[Row], rest: str = "") -> None:
    """Insert rows, ROWS_PER_STATEMENT with each statement.

    sqlite3 releases the GIL while a statement runs: with one statement for each row the writer's
    thread and the loop would wait for each other at every row.
    """
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        batch = rows[start : start + ROWS_PER_STATEMENT]
        marks = ", ".join([f"({placeholders(batch[0])})"] * len(batch))
        connection.execute(
            f"INSERT INTO {into} VALUES {marks} {rest}", [*chain.from_iterable(batch)]
        )


# Rows of one routine never overlap, so only the one that begins last before a slot can cover it.
_COVERED = """
WITH claim (number, routine, slot) AS (VALUES {})
SELECT number FROM claim WHERE slot <= (
    SELECT last FROM slot WHERE routine = claim.routine AND event IS NULL AND first <= claim.slot
    ORDER BY first DESC LIMIT 1
)
"""


def find_taken(connection: Connection, claims: Sequence[Claim], slots: Sequence[int]) -> set[int]:
    """Return the indexes of the claims whose slot or event is taken, or whose routine has as many
    active runs as it may.
    """
    taken, seen = set[int](), set[tuple[str, str | int]]()
    values: list[int | str] = []
    for number, (claim, slot) in enumerate(zip(claims, slots, strict=True)):
        key = (claim.routine, claim.event or slot)
        if key in seen:
            taken.add(number)
            continue
        seen.add(key)
        if claim.event is None:
            values += (number, claim.routine, slot)
        elif connection.execute(_OF_EVENT, (claim.routine, claim.event)).fetchone():
            taken.add(number)
        if (
            claim.beside is not None
            and connection.execute(_TOO_MANY, (claim.routine, claim.beside)).fetchone()
        ):
            taken.add(number)
    for start in range(0, len(values), 3 * ROWS_PER_STATEMENT):
        batch = values[start : start + 3 * ROWS_PER_STATEMENT]
        marks = ", ".join(["(?, ?, ?)"] * (len(batch) // 3))
        taken.update(number for (number,) in connection.execute(_COVERED.format(marks), batch))
    return taken


_OF_EVENT = "SELECT 1 FROM slot WHERE routine = ? AND event = ?"
# Materialized, so that only what is active is read, and not all that the routine ever did.
_TOO_MANY = """
WITH active AS MATERIALIZED (SELECT routine FROM run WHERE status IN ('queued', 'running', 'waiting'))
SELECT 1 FROM active WHERE routine = ? LIMIT 1 OFFSET ?
"""  # noqa: E501
