"""The rows of approval requests and their answers.

The functions take the connection of a transaction: the caller passes them to `Database.write`.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from daemon.errors import NotFound, Refused
from daemon.models import Approval, ApprovalRequest, ApprovalStatus, Run, Taint
from daemon.store import audit
from daemon.store.connection import (
    ID_PART,
    SHORTEST_PART,
    Connection,
    Row,
    id_part_values,
    placeholders,
)
from daemon.store.incidents import close_waiting_incidents
from daemon.store.rows import (
    clean,
    decode,
    deflate,
    encode,
    from_microseconds,
    from_microseconds_or_none,
    runs_in,
    to_microseconds,
)

APPROVAL_COLUMN_NAMES = (
    "id", "run_id", "routine", "call_id", "tool", "request", "digest", "rule", "reason",
    "taint", "status", "created", "expires", "decided", "actor",
)  # fmt: skip
_COLUMNS = ", ".join(APPROVAL_COLUMN_NAMES)

# The share of its timeout after which people are reminded of a pending approval. Of a day six hours
# are left then, so that a person who sleeps meanwhile still finds it pending.
REMINDER_SHARE = 0.75


def use_approval(connection: Connection, run: Run, id_: str) -> None:
    """Mark an approval as used, in the transaction of the `call` step that it allows.

    Raises Refused if it is not approved, or no longer.
    """
    cursor = connection.execute(
        "UPDATE approval SET status = 'used' WHERE id = ? AND run_id = ? AND status = 'approved'",
        (id_, run.id),
    )
    if cursor.rowcount != 1:
        raise Refused(
            f"approval {id_} does not stand (any more) for this call: nothing was started"
        )


def void_open_requests(connection: Connection, run: str, now: int) -> None:
    """Void all open approvals of a run that goes on without them."""
    close_requests(
        connection,
        "status IN ('pending', 'approved') AND run_id = ?",
        (run,),
        ApprovalStatus.VOID,
        now,
        "",
    )


def add_request(
    connection: Connection,
    run: Run,
    request: ApprovalRequest,
    now: datetime,
    timeout: timedelta,
    id_: str,
) -> Literal["added", "pending", "answered"]:
    """Insert a pending approval with the id `id_`, which expires after `timeout`; a reminder is due
    at three quarters of that.

    Returns `pending` or `answered`, and inserts nothing, if the same call was asked for already
    and its approval is still open or has its answer. Other open approvals of the call are voided.
    """
    row = connection.execute(
        "SELECT status FROM approval WHERE run_id = ? AND call_id = ? AND digest = ?"
        " ORDER BY id DESC LIMIT 1",
        (run.id, request.call_id, request.digest),
    ).fetchone()
    status = row and row[0]
    if status == ApprovalStatus.PENDING:
        return "pending"
    if status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED):
        return "answered"
    close_requests(
        connection,
        "status IN ('pending', 'approved') AND run_id = ? AND call_id = ?",
        (run.id, request.call_id),
        ApprovalStatus.VOID,
        to_microseconds(now),
        "",
    )
    values = (
        id_, run.id, run.routine, request.call_id, request.tool,
        deflate(encode(request.request)), request.digest, clean(request.rule),
        clean(request.reason), request.taint, ApprovalStatus.PENDING, to_microseconds(now),
        to_microseconds(now + timeout), None, "",
    )  # fmt: skip
    connection.execute(
        f"INSERT INTO approval ({_COLUMNS}, remind_at) VALUES ({placeholders(values)}, ?)",
        (*values, to_microseconds(now + timeout * REMINDER_SHARE)),
    )
    _add_audit_entry(connection, "asked", approval_of(values), to_microseconds(now), "")
    return "added"


def close_requests(
    connection: Connection,
    condition: str,
    values: Row,
    status: ApprovalStatus,
    now: int,
    by: str,
) -> tuple[list[Approval], list[Run]]:
    """Set the status of the approvals that `condition` selects, and queue the runs that waited for
    them.

    `condition` is SQL with the parameters `values`; `by` is the user who answered, or empty.
    Returns these approvals, and those of their runs that are queued now. Incidents and unsent
    notices of these runs are closed with their last pending approval.
    """
    rows = connection.execute(
        f"UPDATE approval SET status = ?, decided = ?, actor = ? WHERE {condition}"
        f" RETURNING {_COLUMNS}",
        (status, now, by, *values),
    ).fetchall()
    approvals = [approval_of(row) for row in rows]
    for approval in approvals:
        _add_audit_entry(connection, status.value, approval, now, by)
    runs = sorted({approval.run for approval in approvals})
    if not runs:
        return [], []
    marks = placeholders(runs)
    routines = {approval.routine for approval in approvals}
    close_waiting_incidents(connection, routines, runs, now)
    connection.execute(
        "UPDATE run SET status = 'queued', detail = NULL, not_before = NULL, fence = fence + 1"
        f" WHERE status = 'waiting' AND id IN ({marks})",
        runs,
    )
    queued_runs = runs_in(
        connection, f"WHERE status = 'queued' AND id IN ({marks}) ORDER BY id", tuple(runs)
    )
    return approvals, queued_runs


def _add_audit_entry(
    connection: Connection, kind: str, approval: Approval, now: int, by: str
) -> None:
    request = approval.approval_request
    audit.add_entry(
        connection,
        kind,
        now,
        run=approval.run,
        routine=approval.routine,
        call_id=request.call_id,
        tool=request.tool,
        actor=by,
        body={
            "approval": approval.id,
            "request": request.digest,
            "rule": request.rule,
            "taint": request.taint,
        },
    )


def find_approval(connection: Connection, id_or_part: str) -> Approval:
    """Return the approval with this id, or the only one whose id begins or ends with it.

    Raises NotFound if there is none or several, or fewer than SHORTEST_PART characters are given.
    """
    if exact := approvals_in(connection, "WHERE id = ?", (id_or_part,)):
        return exact[0]
    part = id_or_part.upper()
    if len(part) < SHORTEST_PART:
        raise NotFound(
            f"there is no approval {id_or_part!r};"
            f" give at least {SHORTEST_PART} characters of an id"
        )
    approvals = approvals_in(
        connection, f"WHERE {ID_PART} ORDER BY id DESC LIMIT 2", id_part_values(part)
    )
    if not approvals:
        raise NotFound(
            f"there is no approval {id_or_part!r};"
            " `agentctl approvals` shows what waits for an answer"
        )
    if len(approvals) > 1:
        raise NotFound(
            f"{id_or_part!r} fits several approvals, {approvals[0].id} and {approvals[1].id}"
            " among them; give more of the id"
        )
    return approvals[0]


def approvals_in(connection: Connection, clauses: str, values: Row) -> list[Approval]:
    """Return the approvals that `SELECT … FROM approval` with these clauses finds."""
    return [
        approval_of(row)
        for row in connection.execute(f"SELECT {_COLUMNS} FROM approval {clauses}", values)
    ]


def approval_of(row: Row) -> Approval:
    """Return the approval of a row with APPROVAL_COLUMN_NAMES."""
    (
        id_, run, routine, call_id, tool, request, digest, rule, reason, taint, status,
        created, expires, decided, actor,
    ) = row  # fmt: skip
    return Approval(
        id=id_,
        run=run,
        routine=routine,
        approval_request=ApprovalRequest(
            call_id=call_id,
            tool=tool,
            request=decode(request),
            digest=digest,
            rule=rule,
            reason=reason,
            taint=Taint(taint),
        ),
        status=ApprovalStatus(status),
        created=from_microseconds(created),
        expires=from_microseconds(expires),
        decided=from_microseconds_or_none(decided),
        by=actor,
    )
