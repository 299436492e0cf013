"""Runs and steps as rows: taken, begun, grown, let go of.

Functions of a connection, to be handed to the writer.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from daemon.errors import DaemonError, Fenced, NotFound, StoreFull
from daemon.models import MOVES, Run, Status, Step, StepKind
from daemon.store.approval_rows import use
from daemon.store.audit import note_step
from daemon.store.database import Work
from daemon.store.rows import RUN, checksum, clean_or_none, run_of, runs_in, to_microseconds_or_none
from daemon.store.statements import (
    AFTER_EVERY_ID,
    ID_PART,
    SHORTEST_PART,
    Connection,
    id_part_values,
    placeholders,
)
from daemon.store.texts import Parted, column_of

# Where a run may come from, by where it goes to.
_BEFORE = {
    status: [source.value for source, targets in MOVES.items() if status in targets]
    for status in Status
}

TAKE = f"""
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
# Where daemons share a store, whoever did not renew the lease is taken for dead.
TAKE_OVER = TAKE.replace(
    "status = 'queued' AND (not_before IS NULL OR not_before <= ?)",
    (
        "(status = 'queued' AND (not_before IS NULL OR not_before <= ?) OR status = 'running' AND "
        "lease_until < ?)"
    ),
)
# Of a routine one run lives at a time: in one process its executor sees to that. Sub-agents live
# beside each other.
TAKE_IN_TURN = TAKE_OVER.replace(
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


@dataclass(slots=True)
class PendingSteps:
    """Steps of one run on their way to the record, and its beginning where that is not there
    yet.
    """

    run: Run
    first: int
    """The number of the first step."""
    owner: str | None = None
    """The owner if these steps come with the claim of the run, else None."""
    at: int = 0
    """When the last step was added, in microseconds since 1970."""
    active: float | None = None
    steps: list[tuple[Step, int, bytes | Parted]] = field(default_factory=list)
    """Each step with its time in microseconds, and its body encoded when it was added."""
    flushes: int = 0
    """The count of `Database.flushes` when the load was submitted."""
    kept: asyncio.Future[list[Step]] | None = None

    def write(self, connection: Connection, lease: int) -> list[Step]:
        """Insert the steps and update the run's row; in the writer's thread, when no step can be
        added any more.

        `lease` is in microseconds. Raises Fenced if the run has another owner, StoreFull if an
        earlier step of the run was not written.
        """
        run, made = self.run, self.run.created
        rows = [(step, at, column_of(connection, body, made, at)) for step, at, body in self.steps]
        seal, until = (
            sum(checksum(step, column) for step, _, column in rows),
            connection.lease_clock(self.at) + lease,
        )
        grown = (len(rows), seal, self.active, until, run.id)
        if self.owner is not None:
            begun = (
                self.owner,
                to_microseconds_or_none(run.started),
                run.fence,
                run.attempt,
                0 if rows else run.fruitless_attempts,
            )
            if connection.execute(_BEGIN, (*begun, *grown, run.fence - 1)).rowcount != 1:
                raise fenced(run)
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


_LEAVE = f"""
UPDATE run SET status = ?, ended = ?, not_before = ?, waits_since = ?, waits_moved = 0, active = ?, report = ?,
    silent = ?, detail = ?, provider = ?, model = ?, input = ?, cache_read = ?, cache_write = ?, output = ?,
    reasoning = ?, iterations = ?, taint = ?, sandbox = ?, fence = fence + ?, barren = CASE WHEN barren > 0 THEN barren - ? ELSE 0 END,
    owner = NULL, lease_until = NULL
WHERE id = ? AND fence = ? AND steps = coalesce(?, steps) AND status IN (%s)
RETURNING {RUN}
"""  # noqa: E501


def newest(
    routine: str, statuses: Collection[Status], before: str | None = None
) -> Work[Run | None]:
    """Return the look for `Runs.last`, for who looks for something else as well."""
    rest = (
        f"WHERE routine = ? AND status IN ({placeholders(statuses)}) AND id < ?"
        " ORDER BY id DESC LIMIT 1"
    )
    values = (routine, *statuses, before or AFTER_EVERY_ID)
    return lambda connection: next(iter(runs_in(connection, rest, values)), None)


def leave(
    connection: Connection,
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
        _LEAVE % placeholders(sources),
        (
            run.status.value, to_microseconds_or_none(run.ended), to_microseconds_or_none(run.not_before), to_microseconds_or_none(since), run.active,  # noqa: E501
            clean_or_none(run.report), int(run.silent), clean_or_none(run.detail), run.provider, run.model,  # noqa: E501
            run.usage.input, run.usage.cache_read, run.usage.cache_write, run.usage.output, run.usage.reasoning,  # noqa: E501
            run.iterations, run.taint.value, run.sandbox, int(suspended), int(forgiven),
            run.id, run.fence, steps, *sources,
        ),
    ).fetchone()  # fmt: skip
    if row is None:
        raise _refusal(connection, run)
    return run_of(row)


def _refusal(connection: Connection, run: Run) -> DaemonError:
    """Return why a write of this run's owner found no row."""
    row = connection.execute("SELECT fence, status FROM run WHERE id = ?", (run.id,)).fetchone()
    if row == (run.fence, Status.RUNNING) or row == unbegun(run):
        return StoreFull(
            f"run {run.id}: an earlier step could not be written; it resumes from the ones before"
        )
    return fenced(run)


def unbegun(run: Run) -> tuple[int, Status]:
    """Return the fence and the status of a run of which the record does not know that we have begun
    it.
    """
    return run.fence - 1, Status.QUEUED


def fenced(run: Run) -> Fenced:
    return Fenced(
        f"run {run.id} is no longer in these hands: it was taken over, suspended or ended"
    )


def find_run(connection: Connection, part: str) -> Run:
    """Return the run of that id, or the only one whose id begins or ends so. NotFound."""
    exact = runs_in(connection, "WHERE id = ?", (part,))
    if exact:
        return exact[0]
    id_or_part, part = part, part.upper()
    if len(part) < SHORTEST_PART:
        raise NotFound(
            f"there is no run {id_or_part!r}; give at least {SHORTEST_PART} characters of an id"
        )
    runs = runs_in(
        connection,
        f"WHERE {ID_PART} ORDER BY id DESC LIMIT 2",
        id_part_values(part),
    )
    if not runs:
        raise NotFound(f"there is no run {id_or_part!r}; `agentctl runs` shows what there is")
    if len(runs) > 1:
        raise NotFound(
            (  # noqa: UP034
                f"{id_or_part!r} fits several runs, {runs[0].id} and {runs[1].id} among them; give "
                "more of the id"
            )
        )
    return runs[0]
