"""Runs that wait for a person's answer, and the answer.

A run that is parked is owned by no process: its row says `waiting`, and here stands what it waits
for. An answer queues it again, and it resumes from its steps like any other. That an approved call
starts at most once depends on two writes in one transaction: the step that stands before its
start, and the approval's being used up (approval_rows.use).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
from daemon.store.approval_rows import approvals_in, ask, find_approval, settle
from daemon.store.database import Database
from daemon.store.incidents import IncidentRepository, tell_of_waiting
from daemon.store.repository import Repository
from daemon.store.rows import (
    KEEP_FACT,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from daemon.store.run_rows import leave
from daemon.store.runs import RunRepository
from daemon.store.statements import Connection, placeholders

if TYPE_CHECKING:
    from sqlmodel import Session

_REMEMBERED = "approvals.remembered"  # queue.sql tells everybody of it


class ApprovalRepository(Repository):
    """What runs wait for.

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
        petitions: Sequence[ApprovalRequest],
        *,
        patience: timedelta,
        detail: str,
        notice: WaitingNotice | None = None,
    ) -> Run:
        """Let go of a running run until a person has answered, in one durable commit. Fenced.

        What was asked already stays asked, with its id and its time, and nobody is told of it
        again. Of what is asked for the first time people are told by `notice`, in this commit. A
        run that was answered in between is queued.
        """
        now = self._clock()
        ids = [id_ for id_, _ in notice.questions] if notice else [new_id() for _ in petitions]

        def work(connection: Connection) -> Run:
            states = [
                ask(connection, run, approval_request, now, patience, id_)
                for approval_request, id_ in zip(petitions, ids, strict=True)
            ]
            answered = "answered" in states
            parked = run.to(
                Status.QUEUED if answered else Status.WAITING,
                not_before=None,
                detail=None if answered else detail,
            )
            parked = leave(connection, parked, None, suspended=True, forgiven=True)
            if notice and "asked" in states:
                questions = [
                    question
                    for question, state in zip(notice.questions, states, strict=True)
                    if state == "asked"
                ]
                tell_of_waiting(
                    connection, run, notice, questions, detail, now, self._incidents.alerting
                )
            return parked

        parked = await self._db.write(work, durable=True)
        self._runs.release(run)
        return parked

    async def answer(
        self, id_: str, status: ApprovalStatus, *, by: str
    ) -> tuple[list[Approval], list[Run]]:
        """Write down a person's word; return what it answered and the runs that can go on.

        NotFound, Refused.

        All that waits for the same is answered at once: the same request, of the same routine.
        """
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> tuple[list[Approval], list[Run]]:
            asked = find_approval(connection, id_)
            if asked.status is not ApprovalStatus.PENDING or asked.expires <= from_microseconds(
                now
            ):
                state = (
                    ApprovalStatus.EXPIRED
                    if asked.status is ApprovalStatus.PENDING
                    else asked.status
                )
                raise Refused(
                    f"approval {asked.id} is {state.value}: it cannot be answered any more"
                )
            where = "status = 'pending' AND expires > ? AND routine = ? AND digest = ?"
            return settle(
                connection,
                where,
                (now, asked.routine, asked.approval_request.digest),
                status,
                now,
                by,
            )

        return await self._db.write(work, durable=True)

    async def void(self, ids: Collection[str], *, by: str = "") -> list[Run]:
        """Let questions go that are no longer what would happen; return the runs that go on and are
        judged anew.
        """
        now, marks = to_microseconds(self._clock()), placeholders(ids)

        def work(connection: Connection) -> list[Run]:
            return settle(
                connection,
                f"status = 'pending' AND id IN ({marks})",
                tuple(ids),
                ApprovalStatus.VOID,
                now,
                by,
            )[1]

        return await self._db.write(work, durable=True)

    async def expire(self) -> list[Run]:
        """Let questions go that nobody has answered in time; return the runs that can go on."""
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> list[Run]:
            return settle(
                connection,
                "status = 'pending' AND expires <= ?",
                (now,),
                ApprovalStatus.EXPIRED,
                now,
                "",
            )[1]

        return await self._db.write(work, durable=True)

    async def change_remembered(self, change: Callable[[str | None], str]) -> str:
        """Change what processes that share the database allow for good, and return it; None:
        nothing was kept yet.
        """

        def work(connection: Connection) -> str:
            row = connection.execute(
                "SELECT value FROM meta WHERE key = ?", (_REMEMBERED,)
            ).fetchone()
            kept = row and str(row[0])
            text = change(kept)
            if text != kept:  # who hears of a change looks, and changes nothing
                connection.execute(KEEP_FACT, (_REMEMBERED, text))
            return text

        return await self._db.write(work, durable=True)

    async def get_next_expiry(self) -> datetime | None:
        """Return when the next question expires; None if none is open."""

        def work(connection: Connection) -> datetime | None:
            (at,) = connection.execute(
                "SELECT min(expires) FROM approval WHERE status = 'pending'"
            ).fetchone()
            return from_microseconds_or_none(at)

        return await self._db.read(work)

    async def get(self, id_or_part: str) -> Approval:
        """Return the approval of that id; its beginning or its end (>= 4 characters) is enough.

        NotFound.
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
