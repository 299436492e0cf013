"""Runs that wait for a person's answer, and the answer.

A parked run is owned by no process: its row says `waiting`, and its approvals are rows of their
own. An answer queues the run again, and it resumes from its steps like any other. An approved call
starts at most once, because two writes are in one transaction: the `call` step before its start,
and the approval's becoming `used` (approval_rows.use_approval).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from daemon.errors import Refused
from daemon.models import (
    Approval,
    ApprovalRequest,
    ApprovalStatus,
    Run,
    Status,
    WaitingNotice,
    new_id,
)
from daemon.store.approval_rows import add_request, approvals_in, close_requests, find_approval
from daemon.store.connection import Connection, placeholders
from daemon.store.database import Database, Repository
from daemon.store.incidents import (
    EXPIRED,
    REMINDER,
    IncidentRepository,
    add_waiting_notices,
    open_waiting_incident,
)
from daemon.store.rows import (
    PUT_VALUE,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from daemon.store.run_rows import release_run
from daemon.store.runs import RunRepository

if TYPE_CHECKING:
    from sqlmodel import Session

_REMEMBERED = "approvals.remembered"  # a trigger in queue.sql notifies all processes of a change


class ApprovalRepository(Repository):
    """Approval requests of runs, and their answers.

    Table: approval.
    """

    def __init__(
        self,
        db: Database,
        *,
        clock: Callable[[], datetime],
        runs: RunRepository,
        incidents: IncidentRepository,
    ) -> None:
        super().__init__(db, clock=clock)
        self._runs, self._incidents = runs, incidents

    async def park(
        self,
        run: Run,
        requests: Sequence[ApprovalRequest],
        *,
        timeout: timedelta,
        detail: str,
        notice: WaitingNotice | None = None,
    ) -> Run:
        """Release a running run until a person answers its approval requests, in one durable
        commit.

        A request that is pending already keeps its id and its expiry, and is not announced again.
        New requests are sent to the targets of `notice`, in this commit. The run is queued instead
        if one of its requests was answered meanwhile. Raises Fenced.
        """
        now = self._clock()
        ids = [id_ for id_, _ in notice.questions] if notice else [new_id() for _ in requests]

        def work(connection: Connection) -> Run:
            states = [
                add_request(connection, run, request, now, timeout, id_)
                for request, id_ in zip(requests, ids, strict=True)
            ]
            is_answered = "answered" in states
            parked_run = run.to(
                Status.QUEUED if is_answered else Status.WAITING,
                not_before=None,
                detail=None if is_answered else detail,
            )
            parked_run = release_run(
                connection, parked_run, None, suspended=True, attempt_counts=False
            )
            if notice and "added" in states:
                new_questions = [
                    question
                    for question, state in zip(notice.questions, states, strict=True)
                    if state == "added"
                ]
                open_waiting_incident(
                    connection, run, notice, new_questions, detail, now, self._incidents.settings
                )
            return parked_run

        parked_run = await self._db.write(work, durable=True)
        self._runs.forget_claim(run)
        return parked_run

    async def answer(
        self, id_: str, status: ApprovalStatus, *, by: str
    ) -> tuple[list[Approval], list[Run]]:
        """Answer a pending approval; return all approvals answered by that, and the queued runs.

        The answer holds for every pending approval of the same routine with the same request.
        `status` is `approved` or `rejected`. Raises NotFound; Refused if it has expired or has its
        answer already.
        """
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> tuple[list[Approval], list[Run]]:
            approval = find_approval(connection, id_)
            state = approval.status
            if state is ApprovalStatus.PENDING and approval.expires <= from_microseconds(now):
                state = ApprovalStatus.EXPIRED
            if state is not ApprovalStatus.PENDING:
                raise Refused(
                    f"approval {approval.id} is {state.value}: it cannot be answered any more"
                )
            return close_requests(
                connection,
                "status = 'pending' AND expires > ? AND routine = ? AND digest = ?",
                (now, approval.routine, approval.approval_request.digest),
                status,
                now,
                by,
            )

        return await self._db.write(work, durable=True)

    async def void(self, ids: Collection[str], *, by: str = "") -> list[Run]:
        """Void pending approvals whose calls would no longer do what was asked for; return the
        queued runs, whose calls are then judged anew.
        """
        now, marks = to_microseconds(self._clock()), placeholders(ids)

        def work(connection: Connection) -> list[Run]:
            _, runs = close_requests(
                connection,
                f"status = 'pending' AND id IN ({marks})",
                tuple(ids),
                ApprovalStatus.VOID,
                now,
                by,
            )
            return runs

        return await self._db.write(work, durable=True)

    async def expire(
        self, notices: Mapping[str, WaitingNotice] | None = None, *, until: datetime | None = None
    ) -> list[Run]:
        """Expire the approvals that nobody answered until `until` (default: now); return the queued
        runs.

        `notices`, by run, tell people of it: those who were asked.
        """
        now = until or self._clock()

        def work(connection: Connection) -> list[Run]:
            approvals, runs = close_requests(
                connection,
                "status = 'pending' AND expires <= ?",
                (to_microseconds(now),),
                ApprovalStatus.EXPIRED,
                to_microseconds(now),
                "",
            )
            ids = {approval.id for approval in approvals}
            add_waiting_notices(connection, EXPIRED, notices or {}, ids, now)
            return runs

        return await self._db.write(work, durable=True)

    async def remind(self, notices: Mapping[str, WaitingNotice], *, until: datetime) -> list[str]:
        """Send the reminders that are due at `until`, in the commit that notes that they were;
        return the ids of their approvals.

        `notices` are by run. An approval that was answered meanwhile, or of which another process
        reminded people, is left out.
        """

        def work(connection: Connection) -> list[str]:
            rows = connection.execute(
                "UPDATE approval SET remind_at = NULL"
                " WHERE status = 'pending' AND remind_at <= ? RETURNING id",
                (to_microseconds(until),),
            )
            ids = sorted(id_ for (id_,) in rows.fetchall())
            add_waiting_notices(connection, REMINDER, notices, ids, until)
            return ids

        return await self._db.write(work, durable=True)

    async def find_expired(self, now: datetime) -> list[Approval]:
        """Return the pending approvals whose time is up, the oldest first."""
        return await self._find_pending("expires <= ?", now)

    async def find_reminders(self, now: datetime) -> list[Approval]:
        """Return the pending approvals of which a reminder is due, the oldest first."""
        return await self._find_pending("remind_at <= ?", now)

    async def _find_pending(self, condition: str, now: datetime) -> list[Approval]:
        clauses = f"WHERE status = 'pending' AND {condition} ORDER BY id"
        return await self._db.read(
            lambda connection: approvals_in(connection, clauses, (to_microseconds(now),))
        )

    async def change_remembered(self, change: Callable[[str | None], str]) -> str:
        """Write what `change` makes of the remembered approvals, and return the new text.

        The text is that of approvals.toml, which processes that share a database share by this;
        `change` gets None if there is none yet.
        """

        def work(connection: Connection) -> str:
            row = connection.execute(
                "SELECT value FROM meta WHERE key = ?", (_REMEMBERED,)
            ).fetchone()
            old_text = row and str(row[0])
            text = change(old_text)
            if text != old_text:  # each write notifies every process, which then calls this
                connection.execute(PUT_VALUE, (_REMEMBERED, text))
            return text

        return await self._db.write(work, durable=True)

    async def get_next_due(self) -> datetime | None:
        """Return when the next pending approval expires or is to be reminded of; None if none is
        pending.
        """

        def work(connection: Connection) -> datetime | None:
            (earliest,) = connection.execute(
                "SELECT min(CASE WHEN remind_at < expires THEN remind_at ELSE expires END)"
                " FROM approval WHERE status = 'pending'"
            ).fetchone()
            return from_microseconds_or_none(earliest)

        return await self._db.read(work)

    async def get(self, id_or_part: str) -> Approval:
        """Return the approval with this id, or the one whose id begins or ends with it (>= 4
        characters).

        Raises NotFound, also where several fit.
        """
        return await self._db.read(lambda connection: find_approval(connection, id_or_part))

    async def find(
        self,
        *,
        run: str | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[Approval]:
        """Return approvals, newest first, starting behind `before`."""

        def query(session: Session) -> list[Approval]:
            from daemon.store.queries.approvals import find_approvals

            return find_approvals(session, run, status, before, limit)

        return await self._db.query(query)

    async def find_of_run(self, run: str) -> list[Approval]:
        """Return the approvals of a run, newest first."""
        return await self._db.read(
            lambda connection: approvals_in(connection, "WHERE run_id = ? ORDER BY id DESC", (run,))
        )
