"""Questions to a person, as rows: asked, answered, used up.

Functions of a connection, to be handed to the writer.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from daemon.errors import NotFound, Refused
from daemon.models import Approval, ApprovalRequest, ApprovalStatus, Run, Taint
from daemon.store import audit
from daemon.store.incidents import close_waiting
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
from daemon.store.statements import (
    ID_PART,
    SHORTEST_PART,
    Connection,
    Row,
    id_part_values,
    placeholders,
)

_A = ApprovalStatus
_COLUMNS = (
    "id, run_id, routine, call_id, tool, request, digest, rule, reason, taint, status, created, "
    "expires, decided, actor"
)


def use(connection: Connection, run: Run, id_: str) -> None:
    """Use an approval up, in the transaction of the step that stands before the call's start;
    Refused if it cannot.
    """
    used = connection.execute(
        "UPDATE approval SET status = 'used' WHERE id = ? AND run_id = ? AND status = 'approved'",
        (id_, run.id),
    )
    if used.rowcount != 1:
        raise Refused(
            f"approval {id_} does not stand (any more) for this call: nothing was started"
        )


def drop_open(connection: Connection, run: str, now: int) -> None:
    """Let go of what a run waited for that goes on no more."""
    settle(connection, "status IN ('pending', 'approved') AND run_id = ?", (run,), _A.VOID, now, "")


def ask(
    connection: Connection,
    run: Run,
    asked: ApprovalRequest,
    now: datetime,
    patience: timedelta,
    id_: str,
) -> Literal["asked", "pending", "answered"]:
    """Write a question down under an id unless it stands there already, pending or answered
    meanwhile.
    """
    place = (run.id, asked.call_id)
    rows = connection.execute(
        (
            "SELECT status FROM approval WHERE run_id = ? AND call_id = ? AND digest = ? ORDER BY "
            "id DESC LIMIT 1"
        ),
        (*place, asked.digest),
    ).fetchone()
    if rows and rows[0] == _A.PENDING:
        return "pending"
    if rows and rows[0] in (_A.APPROVED, _A.REJECTED, _A.EXPIRED):
        return "answered"
    before = "status IN ('pending', 'approved') AND run_id = ? AND call_id = ?"
    settle(connection, before, place, _A.VOID, to_microseconds(now), "")
    row = (
        id_, run.id, run.routine, asked.call_id, asked.tool, deflate(encode(asked.request)), asked.digest,  # noqa: E501
        clean(asked.rule), clean(asked.reason), asked.taint, _A.PENDING, to_microseconds(now), to_microseconds(now + patience), None, "",  # noqa: E501
    )  # fmt: skip
    connection.execute(f"INSERT INTO approval ({_COLUMNS}) VALUES ({placeholders(row)})", row)
    _note(connection, "asked", _approval_of(row), to_microseconds(now), "")
    return "asked"


def settle(
    connection: Connection,
    where: str,
    values: Row,
    status: ApprovalStatus,
    now: int,
    by: str,
) -> tuple[list[Approval], list[Run]]:
    """Give questions their answer, and queue the runs that waited for them."""
    rows = connection.execute(
        (
            f"UPDATE approval SET status = ?, decided = ?, actor = ? WHERE {where} RETURNING "
            f"{_COLUMNS}"
        ),
        (status, now, by, *values),
    ).fetchall()
    answered = [_approval_of(row) for row in rows]
    for each in answered:
        _note(connection, status.value, each, now, by)
    runs = sorted({each.run for each in answered})
    if not runs:
        return [], []
    marks = placeholders(runs)
    close_waiting(connection, {each.routine for each in answered}, runs, now)
    connection.execute(
        "UPDATE run SET status = 'queued', detail = NULL, not_before = NULL, fence = fence + 1"
        f" WHERE status = 'waiting' AND id IN ({marks})",
        runs,
    )
    return answered, runs_in(
        connection, f"WHERE status = 'queued' AND id IN ({marks}) ORDER BY id", tuple(runs)
    )


def _note(connection: Connection, kind: str, asked: Approval, now: int, by: str) -> None:
    approval_request = asked.approval_request
    audit.note(
        connection,
        kind,
        now,
        run=asked.run,
        routine=asked.routine,
        call_id=approval_request.call_id,
        tool=approval_request.tool,
        actor=by,
        body={
            "approval": asked.id,
            "request": approval_request.digest,
            "rule": approval_request.rule,
            "taint": approval_request.taint,
        },
    )


def find_approval(connection: Connection, part: str) -> Approval:
    if exact := approvals_in(connection, "WHERE id = ?", (part,)):
        return exact[0]
    id_or_part, part = part, part.upper()
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
            (  # noqa: UP034
                f"{id_or_part!r} fits several approvals, {approvals[0].id} and {approvals[1].id} among them; give "  # noqa: E501
                "more of the id"
            )
        )
    return approvals[0]


def approvals_in(connection: Connection, rest: str, values: Row) -> list[Approval]:
    return [
        _approval_of(row)
        for row in connection.execute(f"SELECT {_COLUMNS} FROM approval {rest}", values)
    ]


def _approval_of(row: Row) -> Approval:
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
