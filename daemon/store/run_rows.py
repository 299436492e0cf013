"""The rows of runs and steps: how a run is claimed, gets steps, is released and found.

The functions take the connection of a transaction: the caller passes them to `Database.write`.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from daemon.errors import DaemonError, Fenced, NotFound, StoreFull
from daemon.models import MOVES, Run, Status, Step, StepKind
from daemon.store.approval_rows import use_approval
from daemon.store.audit import add_step_entry
from daemon.store.connection import (
    AFTER_EVERY_ID,
    ID_PART,
    SHORTEST_PART,
    Connection,
    id_part_values,
    placeholders,
)
from daemon.store.database import Work
from daemon.store.rows import (
    RUN_COLUMNS,
    checksum,
    clean_or_none,
    run_of,
    runs_in,
    to_microseconds_or_none,
)
from daemon.store.texts import SplitBody, store_body

# The statuses from which a run may move to a status: MOVES the other way round.
_SOURCES = {
    status: [source.value for source, targets in MOVES.items() if status in targets]
    for status in Status
}

CLAIM = f"""
UPDATE run SET status = 'running', owner = ?, lease_until = ?, started = coalesce(started, ?), not_before = NULL,
    fence = fence + 1, attempt = attempt + 1, barren = barren + 1
WHERE id = ? AND status = 'queued' AND (not_before IS NULL OR not_before <= ?)
RETURNING {RUN_COLUMNS}, steps
"""  # noqa: E501

_CLAIM_LAZILY = """
UPDATE run SET status = 'running', owner = ?, started = ?, not_before = NULL, fence = ?, attempt = ?, barren = ?,
    steps = ?, seal = ?, active = coalesce(?, active), lease_until = ?
WHERE id = ? AND status = 'queued' AND fence = ?
"""  # noqa: E501
# Where daemons share a database, a process that did not renew its lease counts as dead.
CLAIM_SHARED = CLAIM.replace(
    "status = 'queued' AND (not_before IS NULL OR not_before <= ?)",
    (
        "(status = 'queued' AND (not_before IS NULL OR not_before <= ?) OR status = 'running' AND "
        "lease_until < ?)"
    ),
)
# One run of a routine at a time, which in a single process the run queue sees to. Sub-agents all
# have the same routine name and run side by side.
CLAIM_IN_TURN = CLAIM_SHARED.replace(
    "RETURNING",
    "AND (trigger = 'subagent' OR NOT EXISTS (SELECT 1 FROM run AS other WHERE other.routine = "
    "run.routine"
    " AND other.id <> run.id AND (other.status = 'waiting' OR other.status = 'running' AND "
    "other.lease_until >= ?)))\n"
    "RETURNING",
)

_ADD_STEPS = """
UPDATE run SET steps = steps + ?, seal = seal + ?, barren = 0, active = coalesce(?, active), lease_until = ?
WHERE id = ? AND fence = ? AND steps = ? AND status = 'running'
"""  # noqa: E501

_INSERT_STEP = (
    "INSERT INTO step (run_id, seq, kind, iteration, call_id, fence, at, body) VALUES (?, ?, ?, ?, "
    "?, ?, ?, ?)"
)


@dataclass(slots=True)
class PendingSteps:
    """Steps of one run that share a commit, and the lazy claim of the run if they are its first."""

    run: Run
    first: int
    """The number of the first step."""
    owner: str | None = None
    """The owner if these steps come with the claim of the run, else None."""
    at: int = 0
    """When the last step was added, in microseconds since 1970."""
    active: float | None = None
    """Seconds that the run was under way, for its row; None leaves the row's value."""
    steps: list[tuple[Step, int, bytes | SplitBody]] = field(default_factory=list)
    """Each step with its time in microseconds, and its body encoded when it was added."""
    flushes: int = 0
    """The count of `Database.flushes` when these steps were submitted."""
    commit: asyncio.Future[list[Step]] | None = None
    """The future that has the steps once they are committed; None until they are submitted."""

    def write(self, connection: Connection, lease: int) -> list[Step]:
        """Insert the steps and update the run's row; in the writer's thread, when no step can be
        added any more.

        `lease` is in microseconds. Raises Fenced if the run has another owner, StoreFull if an
        earlier step of the run was not written.
        """
        run = self.run
        rows = [
            (step, at, store_body(connection, body, run.created, at))
            for step, at, body in self.steps
        ]
        seal = sum(checksum(step, column) for step, _, column in rows)
        lease_until = connection.lease_clock(self.at) + lease
        steps_values = (len(rows), seal, self.active, lease_until, run.id)
        if self.owner is not None:
            claim_values = (
                self.owner,
                to_microseconds_or_none(run.started),
                run.fence,
                run.attempt,
                0 if rows else run.fruitless_attempts,
            )
            cursor = connection.execute(
                _CLAIM_LAZILY, (*claim_values, *steps_values, run.fence - 1)
            )
            if cursor.rowcount != 1:
                raise make_fenced(run)
        else:
            cursor = connection.execute(_ADD_STEPS, (*steps_values, run.fence, self.first))
            if cursor.rowcount != 1:
                raise _refusal(connection, run)
        connection.executemany(
            _INSERT_STEP,
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
            add_step_entry(connection, run, step, at)
            if step.kind is StepKind.CALL and (approval := step.body.get("approval")):
                use_approval(connection, run, approval)
        return [step for step, _, _ in rows]


_RELEASE = f"""
UPDATE run SET status = ?, ended = ?, not_before = ?, waits_since = ?, waits_moved = 0, active = ?, report = ?,
    silent = ?, detail = ?, provider = ?, model = ?, input = ?, cache_read = ?, cache_write = ?, output = ?,
    reasoning = ?, iterations = ?, taint = ?, sandbox = ?, fence = fence + ?, barren = CASE WHEN barren > 0 THEN barren - ? ELSE 0 END,
    owner = NULL, lease_until = NULL
WHERE id = ? AND fence = ? AND steps = coalesce(?, steps) AND status IN (%s)
RETURNING {RUN_COLUMNS}
"""  # noqa: E501


def select_last(
    routine: str, statuses: Collection[Status], before: str | None = None
) -> Work[Run | None]:
    """Return the work that reads the newest run of a routine in one of these statuses, older than
    the run `before`; a caller may read more in the same transaction.
    """
    # the status is put together: by its index SQLite would walk over the runs of all routines
    clauses = (
        f"WHERE routine = ? AND status || '' IN ({placeholders(statuses)}) AND id < ?"
        " ORDER BY id DESC LIMIT 1"
    )
    values = (routine, *statuses, before or AFTER_EVERY_ID)

    def work(connection: Connection) -> Run | None:
        runs = runs_in(connection, clauses, values)
        return runs[0] if runs else None

    return work


def release_run(
    connection: Connection,
    run: Run,
    steps: int | None,
    *,
    suspended: bool = False,
    attempt_counts: bool = True,
    since: datetime | None = None,
) -> Run:
    """Write the row of a run whose owner releases it: ended, waiting or queued again.

    `steps` is how many steps its owner has written; None: not checked. `suspended` raises the
    fence. `attempt_counts` is False where the attempt is not to count as fruitless. `since` is when
    the wait until `run.not_before` began. Raises Fenced, or StoreFull if a step is missing.
    """
    sources = _SOURCES[run.status]
    row = connection.execute(
        _RELEASE % placeholders(sources),
        (
            run.status.value, to_microseconds_or_none(run.ended), to_microseconds_or_none(run.not_before), to_microseconds_or_none(since), run.active,  # noqa: E501
            clean_or_none(run.report), int(run.silent), clean_or_none(run.detail), run.provider, run.model,  # noqa: E501
            run.usage.input, run.usage.cache_read, run.usage.cache_write, run.usage.output, run.usage.reasoning,  # noqa: E501
            run.iterations, run.taint.value, run.sandbox, int(suspended), int(not attempt_counts),
            run.id, run.fence, steps, *sources,
        ),
    ).fetchone()  # fmt: skip
    if row is None:
        raise _refusal(connection, run)
    return run_of(row)


def _refusal(connection: Connection, run: Run) -> DaemonError:
    """Return why a write of this run's owner found no row."""
    row = connection.execute("SELECT fence, status FROM run WHERE id = ?", (run.id,)).fetchone()
    if row == (run.fence, Status.RUNNING) or row == unclaimed_state(run):
        return StoreFull(
            f"run {run.id}: an earlier step could not be written; it resumes from the ones before"
        )
    return make_fenced(run)


def unclaimed_state(run: Run) -> tuple[int, Status]:
    """Return the fence and the status of a run's row if its lazy claim was not written."""
    return run.fence - 1, Status.QUEUED


def make_fenced(run: Run) -> Fenced:
    """Return the error for a write to a run whose latest fence is not that of `run`."""
    return Fenced(
        f"run {run.id} does not belong to this process any more: it was taken over, suspended or "
        "ended"
    )


def find_run(connection: Connection, id_or_part: str) -> Run:
    """Return the run with this id, or the only one whose id begins or ends with it.

    Raises NotFound, and StoreDamaged if its row cannot be read.
    """
    statement = f"SELECT {RUN_COLUMNS} FROM run WHERE id = ?"
    if exact := connection.execute(statement, (id_or_part,)).fetchone():
        return run_of(exact)
    part = id_or_part.upper()
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
            f"{id_or_part!r} fits several runs, {runs[0].id} and {runs[1].id} among them;"
            " give more of the id"
        )
    return runs[0]
