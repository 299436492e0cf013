"""What is wrong and who has been told: one alert per cause, a reminder, one word when it is over.

Theory of operation. A failure of a routine has a signature: its error without what differs from
time to time. The first one opens an incident and is an alert. While the incident is open, further
ones only count; what would have been sent is kept as suppressed, until a reminder is due. A success
closes every incident of its routine, and whoever was alerted is told once. The same failure soon
after is the same incident again: its row is opened anew, without a new alert. All of that is
decided in the transaction that ends the run, so that no crash alerts twice or never.

A target that takes nothing is an incident too; its alert goes to the other places that `[incidents]
to` names.

A run that waits for a person is an incident of its routine's approvals while a question is open.
Each new question goes once to each target of its notice: the routine's own that want it, and those
of `[incidents] to` besides. There is no reminder, and nobody is told when it is over: who answered
knows.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from daemon.errors import NotFound
from daemon.models import DeliveryStatus, Incident, Json, Run, Status, WaitingNotice
from daemon.store.database import Database
from daemon.store.repository import Repository
from daemon.store.rows import clean, from_microseconds, from_microseconds_or_none, to_microseconds
from daemon.store.statements import Connection, Row

if TYPE_CHECKING:
    from sqlmodel import Session

# Ends that say that something is wrong with the routine. A cancelled run says nothing, nor does a
# gate that was closed.
FAILURES = ("failed", "timed_out", "interrupted")
# A person who tries a routine out must not have it paused for that.
BY_HAND = ("manual", "once", "rehearsal")
# These keep a record and call nobody: each of them is written, whatever is known already.
RECORDS = ("file", "log")
# A detail is a line; what is longer differs in its end from time to time.
_LONGEST = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Alerting:
    """When people are told again, and where those are told whose routine says nothing of it."""

    remind: timedelta = timedelta(hours=24)
    cool_down: timedelta = timedelta(hours=1)
    to: tuple[str, ...] = ()


_COLUMNS = (
    "id, subject, signature, detail, opened, seen, count, told, targets, acked, closed, run_id"
)

_NUMBER = re.compile(
    (  # noqa: UP034
        r"(?i)\b[0-9a-hjkmnp-tv-z]{26}\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{8,}(?:-[0-9a-f]+)*\b|\d+(?:[.,:"
        r"]\d+)*"
    )
)


def signature_of(error: str) -> str:
    """Return what an error has in common with the next one of its kind: its words, without numbers
    and ids.
    """
    return " ".join(_NUMBER.sub("#", error.lower()).split())[:_LONGEST]


class IncidentRepository(Repository):
    """Incidents, and the notices about them.

    Table: incident.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], alerting: Alerting) -> None:
        super().__init__(db, clock=clock)
        self.alerting = alerting
        """As the config has it now."""
        self.lasting: Incident | None = None
        """What is wrong with the record itself, and so cannot be written there yet."""

    async def find(self, *, closed: bool = False, limit: int = 50) -> list[Incident]:
        """Return the open incidents, the latest first; with `closed` those that are over as
        well.
        """

        def query(session: Session) -> list[Incident]:
            from daemon.store.queries.incidents import find_incidents

            return find_incidents(session, closed=closed, limit=limit)

        return self._with_lasting(await self._db.query(query), limit)

    async def find_open(self, *, limit: int = 50) -> list[Incident]:
        """Return the open incidents, the latest first; for `status`, without SQLModel."""
        rest = "WHERE closed IS NULL ORDER BY seen DESC, id DESC LIMIT ?"
        incidents = await self._db.read(lambda connection: _found(connection, rest, (limit,)))
        return self._with_lasting(incidents, limit)

    def _with_lasting(self, incidents: list[Incident], limit: int) -> list[Incident]:
        open_subjects = [incident.subject for incident in incidents if incident.closed is None]
        if self.lasting is None or self.lasting.subject in open_subjects:
            return incidents
        return [self.lasting, *incidents][:limit]

    async def get_open_subjects(self) -> set[str]:
        """Return the subjects of the open incidents in the journal."""
        return await self._db.read(_open_subjects)

    async def acknowledge(self, id_: int, *, known: Iterable[str]) -> Incident:
        """Take note that a person knows of it: no more reminders until it is over. NotFound.

        An incident of something that is not among the `known` subjects any more is over by that.
        """
        now, there = to_microseconds(self._clock()), frozenset(known)

        def work(connection: Connection) -> Incident:
            connection.execute(
                "UPDATE incident SET acked = coalesce(acked, ?) WHERE id = ?", (now, id_)
            )
            for incident in _found(connection, "WHERE id = ? AND closed IS NULL", (id_,)):
                if incident.subject not in there:
                    connection.execute(
                        "UPDATE incident SET closed = ?, targets = '[]' WHERE id = ?", (now, id_)
                    )
            found = _found(connection, "WHERE id = ?", (id_,))
            if not found:
                raise NotFound(
                    f"there is no incident {id_}; `agentctl incidents` shows those there are"
                )
            return found[0]

        return await self._db.write(work, durable=True)

    async def report(
        self,
        subject: str,
        error: str,
        *,
        delivery: int | None = None,
        cause: str | None = None,
        advice: str = "",
        since: datetime | None = None,
    ) -> Incident | None:
        """Take note of trouble that is no run's; return the incident if nobody could be told of it.

        With `delivery`, an alert that this target did not take goes to the next place. `cause` is
        what errors that differ have in common; `advice` is what a person is told besides; `since`
        is when it began, if not just now.
        """
        now = self._clock()

        def work(connection: Connection) -> Incident | None:
            incident, alert = _happened(
                connection, subject, error, None, since or now, self.alerting, cause=cause
            )
            places = self._next_places(connection)
            if delivery is not None and places:
                _hand_on(connection, delivery, places[0], now)
            if not alert:
                return None
            _tell(connection, incident, places[:1], now)
            if not places:
                return incident
            text = f"{error}\n\n{advice}".strip()
            put_message(
                connection, places[:1], "incident.opened", f"{subject} is in trouble", text, now
            )
            return None

        return await self._db.write(work, durable=True)

    async def resolve(self, subject: str, *, zone: str = "UTC") -> None:
        """Take note that a trouble that was no run's is over; who was told of it is told that."""
        now = self._clock()
        await self._db.write(
            lambda connection: over(connection, subject, None, zone, now), durable=True
        )

    def _next_places(self, connection: Connection) -> list[str]:
        """Return the places for alerts that are not broken themselves."""
        broken = _open_subjects(connection)
        return [name for name in self.alerting.to if f"target {name}" not in broken]


def _open_subjects(connection: Connection) -> set[str]:
    rows = connection.execute("SELECT subject FROM incident WHERE closed IS NULL")
    return {subject for (subject,) in rows}


REPORT = "report"
WAITING = "approval.asked"
"""What the notices are that tell of a run that waits; in a webhook their `type`."""


def waiting_subject(routine: str) -> str:
    """Return the subject of the incident that a run of this routine waits for a person."""
    return f"approval for {routine}"


def tell_of_waiting(
    connection: Connection,
    run: Run,
    notice: WaitingNotice,
    questions: Sequence[tuple[str, str]],
    detail: str,
    now: datetime,
    alerting: Alerting,
) -> None:
    """Open the incident of a run that waits and put its questions into the outbox, in the
    transaction that parks it.
    """
    subject = waiting_subject(run.routine)
    incident, _ = _happened(
        connection, subject, detail, run, now, alerting, cause="waits for a person"
    )
    connection.execute(
        "UPDATE incident SET told = ? WHERE id = ?", (to_microseconds(now), incident.id)
    )
    text = "\n\n".join([notice.head, *(text for _, text in questions)])
    options: Json = {"cleaned": True, "approvals": [id_ for id_, _ in questions]}
    put_message(
        connection, notice.targets, WAITING, notice.title, text, now, run_id=run.id, options=options
    )


def close_waiting(
    connection: Connection, routines: Collection[str], runs: Sequence[str], now: int
) -> None:
    """End what tells of questions once none is open: the incidents of these routines, unsent
    notices of these runs.
    """
    for routine in routines:
        connection.execute(
            "UPDATE incident SET closed = ? WHERE subject = ? AND closed IS NULL AND NOT EXISTS"
            " (SELECT 1 FROM approval WHERE status = 'pending' AND routine = ?)",
            (now, waiting_subject(routine), routine),
        )
    for run in runs:
        connection.executemany(
            "UPDATE outbox SET status = 'suppressed', next_at = NULL, error = 'nothing is asked any "  # noqa: E501
            "more' WHERE id = ? AND status = 'pending' AND NOT EXISTS (SELECT 1 FROM approval WHERE "  # noqa: E501
            "status = 'pending' AND run_id = ?)",
            [(id_, run) for id_ in questions_of(connection, run)],
        )


def questions_of(connection: Connection, run: str) -> list[int]:
    """Return the ids of the deliveries that ask people about calls of this run."""
    rows = connection.execute("SELECT id, kind, options FROM outbox WHERE run_id = ?", (run,))
    return [
        id_
        for id_, kind, options in rows.fetchall()
        if kind_of(kind, json.loads(options)) == WAITING
    ]


def kind_of(kind: str | None, options: Json) -> str:
    """Return what a delivery is; an older version wrote it only into the options."""
    return kind or str(options.get("notice") or REPORT)


def put_message(
    connection: Connection,
    targets: Iterable[str],
    kind: str,
    title: str,
    text: str,
    now: datetime,
    *,
    run_id: str | None = None,
    zone: str = "UTC",
    options: Json | None = None,
) -> None:
    """Put a message of our own, a notice or a question, into the outbox."""
    # `notice` stands there for older versions that send from the same database
    message = {"notice": kind, "title": clean(title), "text": clean(text), **(options or {})}
    for target in targets:
        _put(connection, run_id, target, kind, message, zone, now)


def _put(
    connection: Connection,
    run_id: str | None,
    target: str,
    kind: str,
    options: Json,
    zone: str,
    now: datetime,
) -> None:
    connection.execute(
        "INSERT INTO outbox (run_id, target, kind, options, zone, status, created, next_at, "
        "waits_since)"
        " VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?)",
        (
            run_id,
            target,
            kind,
            json.dumps(options, separators=(",", ":")),
            zone,
            *[to_microseconds(now)] * 3,
        ),
    )


Wanted = tuple[str, Json, DeliveryStatus, str | None]
"""Where to, with which options, whether it is sent, and if not, why."""


def judge(
    connection: Connection,
    run: Run,
    deliveries: Sequence[tuple[str, Json]],
    zone: str,
    alerting: Alerting,
) -> list[Wanted]:
    """Return what becomes of each delivery of a run's end, and keep the incidents of its
    routine.
    """
    assert run.ended is not None  # noqa: S101  the caller has just ended it
    subject = f"routine {run.routine}"
    sent = DeliveryStatus.SUPPRESSED if run.silent else DeliveryStatus.PENDING
    plain: list[Wanted] = [
        (target, options, DeliveryStatus.PENDING if options.get("ping") else sent, None)
        for target, options in deliveries
    ]
    if run.status is Status.SUCCEEDED:
        over(connection, subject, run, zone, run.ended)
        return plain
    if run.status not in FAILURES or run.trigger in BY_HAND:
        return plain
    incident, alert = _happened(
        connection, subject, run.detail or run.status.value, run, run.ended, alerting
    )
    calling = [target for target, options in deliveries if not _is_record(target, options)]
    if not alert:
        why = f"told already of incident {incident.id}; `agentctl incidents` shows it"
        return [
            each
            if _is_record(each[0], each[1])
            else (each[0], each[1], DeliveryStatus.SUPPRESSED, why)
            for each in plain
        ]
    others = [name for name in alerting.to if not calling and name not in dict(deliveries)]
    told = {"incident": incident.id, "times": incident.count, "since": incident.opened.isoformat()}
    facts = next((options for _, options in deliveries), {})
    extra = [(name, {k: v for k, v in facts.items() if k != "path"}, sent, None) for name in others]
    _tell(connection, incident, [*calling, *others], run.ended)
    return [
        (target, {**options, **told}, status, why)
        for target, options, status, why in [*plain, *extra]
    ]


def _is_record(target: str, options: Json) -> bool:
    return target in RECORDS or bool(options.get("path") or options.get("ping"))


def _happened(
    connection: Connection,
    subject: str,
    error: str,
    run: Run | None,
    now: datetime,
    alerting: Alerting,
    *,
    cause: str | None = None,
) -> tuple[Incident, bool]:
    """Count a failure; return its incident and whether people are to be told now."""
    signature, error = signature_of(cause or error), clean(error)
    same = _found(
        connection,
        "WHERE subject = ? AND signature = ? AND (closed IS NULL OR closed >= ?)"
        " ORDER BY closed IS NOT NULL, id DESC LIMIT 1",
        (subject, signature, to_microseconds(now - alerting.cool_down)),
    )
    run_id = run and run.id
    if not same:
        values = (subject, signature, error, to_microseconds(now), to_microseconds(now), run_id)
        row = connection.execute(
            "INSERT INTO incident (subject, signature, detail, opened, seen, run_id) VALUES (?, ?, "
            "?, ?, ?, ?)"
            f" RETURNING {_COLUMNS}",
            values,
        ).fetchone()
        return _of(row), True
    row = connection.execute(
        "UPDATE incident SET count = count + 1, seen = ?, detail = ?, run_id = coalesce(?, run_id),"
        " closed = NULL, acked = CASE WHEN closed IS NULL THEN acked END WHERE id = ? RETURNING "
        f"{_COLUMNS}",
        (to_microseconds(now), error, run_id, same[0].id),
    ).fetchone()
    incident = _of(row)
    due = incident.last_alert is None or now - incident.last_alert >= alerting.remind
    return incident, due and incident.acked is None


def _tell(
    connection: Connection, incident: Incident, targets: Iterable[str], now: datetime
) -> None:
    """Take note of who is told of an incident now."""
    everybody = list(dict.fromkeys([*incident.targets, *targets]))
    values = (to_microseconds(now), json.dumps(everybody), incident.id)
    connection.execute("UPDATE incident SET told = ?, targets = ? WHERE id = ?", values)


def over(connection: Connection, subject: str, run: Run | None, zone: str, now: datetime) -> None:
    """Close the incidents of a subject, and tell once those who were told of them."""
    ended = _found(connection, "WHERE subject = ? AND closed IS NULL ORDER BY id", (subject,))
    if not ended:
        return
    targets = dict.fromkeys(target for incident in ended for target in incident.targets)
    # who was told is told once: should it come again soon, nobody hears of a second recovery
    connection.execute(
        "UPDATE incident SET closed = ?, targets = '[]' WHERE subject = ? AND closed IS NULL",
        (to_microseconds(now), subject),
    )
    times = sum(incident.count for incident in ended)
    since = min(incident.opened for incident in ended)
    many = "once" if times == 1 else f"{times} times"
    text = f"It had failed {many} since {{since}}: {ended[-1].detail}"
    title = f"{run.routine if run else subject} works again"
    options: Json = {"since": since.isoformat()}
    run_id = run.id if run else None
    put_message(
        connection,
        targets,
        "incident.recovered",
        title,
        text,
        now,
        run_id=run_id,
        zone=zone,
        options=options,
    )


def _hand_on(connection: Connection, delivery: int, place: str, now: datetime) -> None:
    """Send an alert that its target does not take to another place as well, once."""
    row = connection.execute(
        "SELECT run_id, target, kind, options, zone, created FROM outbox WHERE id = ?", (delivery,)
    ).fetchone()
    if row is None:
        return
    run_id, target, kind, text, zone, created = row
    options = json.loads(text)
    kind = kind_of(kind, options)
    if (
        target == place
        or (kind == REPORT and not options.get("incident"))
        or options.get("instead_of")
    ):
        return
    of_run = "run_id IS NULL" if run_id is None else "run_id = ?"
    there = f"SELECT options FROM outbox WHERE target = ? AND created >= ? AND {of_run}"
    values = (place, created) if run_id is None else (place, created, run_id)
    same = (options.get("incident"), options.get("title"))
    for (other,) in connection.execute(there, values):
        known = json.loads(other)
        if (known.get("incident"), known.get("title")) == same:
            return  # it went there anyway, or has been handed on at an earlier attempt
    _put(connection, run_id, place, kind, {**options, "instead_of": target}, zone, now)


def _found(connection: Connection, rest: str, values: Row) -> list[Incident]:
    return [
        _of(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM incident {rest}", values)
    ]


def _of(row: Row) -> Incident:
    id_, subject, signature, detail, opened, seen, count, told, targets, acked, closed, run = row
    return Incident(
        id=id_,
        subject=subject,
        signature=signature,
        detail=detail,
        opened=from_microseconds(opened),
        last_seen=from_microseconds(seen),
        count=count,
        last_alert=from_microseconds_or_none(told),
        targets=tuple(json.loads(targets)),
        acked=from_microseconds_or_none(acked),
        closed=from_microseconds_or_none(closed),
        run=run,
    )
