"""Incidents: one alert for each cause, reminders while it lasts, one notice when it is over.

Theory of operation. A failure of a routine has a signature: its error without what differs from
time to time. The first failure opens an incident and is an alert. While the incident is open,
further ones only count, and their deliveries are written as suppressed, until a reminder is due. A
success closes every incident of its routine, and the alerted targets get one notice. The same
failure soon after is the same incident again: its row is opened anew, without a new alert. All of
that is decided in the transaction that ends the run, so that no crash alerts twice or never.

A run of which the injection check withheld an answer opens another incident of its routine, also if
it succeeded: it may know less than it should. The next success of which nothing was withheld closes
it.

A target that takes nothing is an incident too; its alert goes to the next target of `[incidents]
to`.

A run that waits for a person is an incident of its routine's approvals while a request is pending.
Each new request goes once to each target of its notice: the routine's own that want it, and those
of `[incidents] to`. One reminder goes to the same targets before the request expires, and one
notice if it does; there is none of an answer: the person who answered knows.
"""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from daemon.errors import NotFound
from daemon.models import FAILURES, DeliveryStatus, Incident, Json, Run, Status, WaitingNotice
from daemon.plurals import pluralize
from daemon.store.connection import Connection, Row
from daemon.store.database import Database, Repository
from daemon.store.rows import (
    INCIDENT_COLUMN_NAMES,
    PUT_VALUE,
    REPORT,
    clean,
    incident_of,
    kind_of,
    read_intact_rows,
    to_microseconds,
)

if TYPE_CHECKING:
    from sqlmodel import Session

log = structlog.get_logger()

# Triggers of runs whose failures do not count: a person tries the routine out.
BY_HAND = ("manual", "once", "rehearsal")
# Characters; the ends of longer errors differ from time to time.
_MAX_SIGNATURE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentSettings:
    """The settings of `[incidents]`."""

    remind: timedelta = timedelta(hours=24)
    """How long after an alert the next one of the same incident may come."""
    cool_down: timedelta = timedelta(hours=1)
    """A failure so soon after the end of an incident belongs to that incident."""
    to: tuple[str, ...] = ()
    """Targets, in order, of alerts whose routine names none."""
    record_targets: frozenset[str] = frozenset({"file", "log"})
    """Targets that call nobody: what they are sent is a record, and never suppressed."""


_COLUMNS = ", ".join(INCIDENT_COLUMN_NAMES)

# ULIDs, addresses in memory, hashes and UUIDs, numbers and times.
_NUMBER = re.compile(
    r"(?i)\b[0-9a-hjkmnp-tv-z]{26}\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{8,}(?:-[0-9a-f]+)*\b"
    r"|\d+(?:[.,:]\d+)*"
)


def signature_of(error: str) -> str:
    """Return the signature of an error: its words in lower case, with `#` for numbers and ids."""
    return " ".join(_NUMBER.sub("#", error.lower()).split())[:_MAX_SIGNATURE]


class IncidentRepository(Repository):
    """Incidents, and the notices about them.

    Table: incident.
    """

    def __init__(
        self, db: Database, *, clock: Callable[[], datetime], settings: IncidentSettings
    ) -> None:
        super().__init__(db, clock=clock)
        self.settings = settings
        """The settings in force; a reload replaces them."""
        self.unwritten: Incident | None = None
        """The incident of a journal that takes no writes, and so does not take this one."""

    async def find(self, *, closed: bool = False, limit: int = 50) -> list[Incident]:
        """Return the open incidents, the latest first; with `closed` those that are over as
        well.
        """

        def query(session: Session) -> list[Incident]:
            from daemon.store.queries.incidents import find_incidents

            return find_incidents(session, closed=closed, limit=limit)

        return self._with_unwritten(await self._db.query(query), limit)

    async def find_open(self, *, limit: int = 50) -> list[Incident]:
        """Return the open incidents, the latest first; for `status`, without SQLModel."""
        clauses = "WHERE closed IS NULL ORDER BY seen DESC, id DESC LIMIT ?"
        incidents = await self._db.read(
            lambda connection: _incidents_in(connection, clauses, (limit,))
        )
        return self._with_unwritten(incidents, limit)

    def _with_unwritten(self, incidents: list[Incident], limit: int) -> list[Incident]:
        open_subjects = [incident.subject for incident in incidents if incident.closed is None]
        if self.unwritten is None or self.unwritten.subject in open_subjects:
            return incidents
        return [self.unwritten, *incidents][:limit]

    async def get_open_subjects(self) -> set[str]:
        """Return the subjects of the open incidents in the journal."""
        return await self._db.read(_open_subjects)

    async def acknowledge(self, id_: int, *, existing_subjects: Iterable[str]) -> Incident:
        """Send no more reminders of an incident, as a person knows of it. Raises NotFound.

        If its subject is not among the existing ones any more, such as a routine that was removed,
        the incident is closed.
        """
        now, subjects = to_microseconds(self._clock()), frozenset(existing_subjects)

        def work(connection: Connection) -> Incident:
            connection.execute(
                "UPDATE incident SET acked = coalesce(acked, ?) WHERE id = ?", (now, id_)
            )
            incidents = _incidents_in(connection, "WHERE id = ?", (id_,))
            if not incidents:
                raise NotFound(
                    f"there is no incident {id_}; `agentctl incidents` shows those there are"
                )
            if incidents[0].closed is None and incidents[0].subject not in subjects:
                connection.execute(
                    "UPDATE incident SET closed = ?, targets = '[]' WHERE id = ?", (now, id_)
                )
                incidents = _incidents_in(connection, "WHERE id = ?", (id_,))
            return incidents[0]

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
    ) -> None:
        """Count a failure that is not a run's, and alert the first target of `[incidents] to` that
        has no open incident itself. If there is none, only the log and `agentctl status` show it.

        `delivery` is the id of a delivery that the target `subject` did not take: if it is an
        alert, it goes to the other target as well. `cause` is what errors that differ have in
        common; `advice` is added to the alert; `since` is when the fault began, if not now.
        """
        now = self._clock()

        def work(connection: Connection) -> Incident | None:
            incident, is_alert = _count_failure(
                connection, subject, error, None, since or now, self.settings, cause=cause
            )
            open_subjects = _open_subjects(connection)
            targets = [name for name in self.settings.to if f"target {name}" not in open_subjects]
            if delivery is not None and targets:
                send_to_other_target(connection, delivery, targets[0], now)
            if not is_alert:
                return None
            _add_alerted_targets(connection, incident, targets[:1], now)
            if not targets:
                return incident
            text = f"{error}\n\n{advice}".strip()
            enqueue_notice(connection, targets[:1], OPENED, f"{subject} is in trouble", text, now)
            return None

        undeliverable = await self._db.write(work, durable=True)
        if undeliverable:
            log.error(
                "incident.undeliverable",
                incident=undeliverable.id,
                subject=undeliverable.subject,
                error=undeliverable.detail,
            )

    async def warn_once(
        self,
        key: str,
        period: str,
        level: int,
        *,
        title: str,
        text: str,
        kind: str = "budget.warning",
    ) -> bool:
        """Send a notice of this kind to the first target of `[incidents] to` that has no open
        incident itself, unless one of this level or a higher one was written for the same `period`
        already, here or by another process. Returns whether it is new; without a target it is
        marked only.
        """
        now = self._clock()

        def work(connection: Connection) -> bool:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            last_period, _, last_level = str(row[0] if row else "").partition(" ")
            if last_period == period and int(last_level) >= level:
                return False
            connection.execute(PUT_VALUE, (key, f"{period} {level}"))
            open_subjects = _open_subjects(connection)
            targets = [name for name in self.settings.to if f"target {name}" not in open_subjects]
            enqueue_notice(connection, targets[:1], kind, title, text, now)
            return True

        return await self._db.write(work, durable=True)

    async def close_of_removed(self, routines: Collection[str]) -> None:
        """Close the open incidents of routines that were removed, and tell the alerted targets."""
        subjects = {f"routine {name}": name for name in routines}
        subjects |= {withheld_subject(name): name for name in routines}
        now = self._clock()

        def work(connection: Connection) -> list[str]:
            removed_subjects = sorted(_open_subjects(connection) & set(subjects))
            for subject in removed_subjects:
                text = f"{subjects[subject]} was removed, and its incident is closed"
                close_incidents(connection, subject, None, "UTC", now, title=text)
            return removed_subjects

        if subjects and not subjects.keys().isdisjoint(await self.get_open_subjects()):
            for subject in await self._db.write(work, durable=True):
                log.info("incident.closed", subject=subject, reason="it was removed")

    async def resolve(
        self, subject: str, *, zone: str = "UTC", title: str = "", cause: str | None = None
    ) -> None:
        """Close the incidents of a subject that is not a routine, with a `cause` only those that
        were reported with it, and tell the alerted targets; the notice says that the subject works
        again, unless it has a `title`.
        """
        now = self._clock()
        await self._db.write(
            lambda connection: close_incidents(
                connection, subject, None, zone, now, title=title, cause=cause
            ),
            durable=True,
        )


def replace_detail(connection: Connection, id_: int, detail: str) -> None:
    """Replace the detail of an incident, as texts in it are erased. If its signature was made of
    the detail, it is replaced, too, so that the next failure is a new incident.
    """
    connection.execute(
        "UPDATE incident SET detail = ?, signature = CASE WHEN signature = ? THEN signature"
        " ELSE 'forgotten ' || id END WHERE id = ?",
        (detail, signature_of(_WAITING_CAUSE), id_),
    )


def _open_subjects(connection: Connection) -> set[str]:
    rows = connection.execute("SELECT subject FROM incident WHERE closed IS NULL")
    return {subject for (subject,) in rows}


# The kinds of a delivery about a run that waits for a person, or has waited in vain; webhooks have
# them as `type`.
WAITING = "approval.asked"
REMINDER = "approval.reminder"
EXPIRED = "approval.expired"
# What the errors of all incidents of runs that wait have in common.
_WAITING_CAUSE = "waits for a person"
# What the errors of all incidents of withheld answers have in common.
_WITHHELD_CAUSE = "answers were withheld"
_WITHHELD_ADVICE = (
    "It gave orders to the model. The run went on without it, so it may have missed something."
)
# The kinds of the notices that an incident is open, and that it is over.
OPENED = "incident.opened"
RECOVERED = "incident.recovered"


def waiting_subject(routine: str) -> str:
    """Return the subject of the incident of a run of this routine that waits for a person."""
    return f"approval for {routine}"


def withheld_subject(routine: str) -> str:
    """Return the subject of the incident of a routine of whose runs answers were withheld."""
    return f"injection check of {routine}"


def describe_withheld(count: int) -> str:
    """Return how many answers of a run were withheld, and what shows them."""
    verb = "was" if count == 1 else "were"
    return (
        f"{pluralize(count, 'answer')} {verb} withheld by the injection check: agentctl quarantine"
    )


def open_waiting_incident(
    connection: Connection,
    run: Run,
    notice: WaitingNotice,
    questions: Sequence[tuple[str, str]],
    detail: str,
    now: datetime,
    settings: IncidentSettings,
) -> None:
    """Open the incident of a run that waits and put its questions into the outbox, in the
    transaction that parks it.

    `questions` are pairs of the id of an approval and the text about it.
    """
    subject = waiting_subject(run.routine)
    incident, _ = _count_failure(
        connection, subject, detail, run, now, settings, cause=_WAITING_CAUSE
    )
    connection.execute(
        "UPDATE incident SET told = ? WHERE id = ?", (to_microseconds(now), incident.id)
    )
    text = "\n\n".join([notice.head, *(text for _, text in questions)])
    options: Json = {"cleaned": True, "approvals": [id_ for id_, _ in questions]}
    if notice.is_tainted:
        options["tainted"] = True
    enqueue_notice(
        connection, notice.targets, WAITING, notice.title, text, now, run_id=run.id, options=options
    )


def add_waiting_notices(
    connection: Connection,
    kind: str,
    notices: Mapping[str, WaitingNotice],
    approvals: Collection[str],
    now: datetime,
) -> None:
    """Put later notices of waits into the outbox, for the targets of the first notice of each run.

    `notices` are by run; of their questions only those of `approvals` are sent, as others may have
    had an answer since the notice was worded.
    """
    for run, notice in notices.items():
        texts = {id_: text for id_, text in notice.questions if id_ in approvals}
        if not texts:
            continue
        rows = connection.execute(
            "SELECT target, kind, options FROM outbox WHERE run_id = ? ORDER BY id", (run,)
        )
        targets: dict[str, None] = {}
        for target, row_kind, row_options in rows.fetchall():
            first = json.loads(row_options)
            is_first = kind_of(row_kind, first) == WAITING and not first.get("instead_of")
            if is_first and not texts.keys().isdisjoint(first.get("approvals", ())):
                targets[target] = None
        options: Json = {"cleaned": True, "approvals": list(texts)}
        if notice.is_tainted:
            options["tainted"] = True
        text = "\n\n".join([notice.head, *texts.values()])
        enqueue_notice(
            connection, targets, kind, notice.title, text, now, run_id=run, options=options
        )


def close_waiting_incidents(
    connection: Connection, routines: Collection[str], runs: Sequence[str], now: int
) -> None:
    """Close the incidents of these routines and suppress the unsent notices of these runs, where no
    approval is pending any more.
    """
    for routine in routines:
        connection.execute(
            "UPDATE incident SET closed = ? WHERE subject = ? AND closed IS NULL AND NOT EXISTS"
            " (SELECT 1 FROM approval WHERE status = 'pending' AND routine = ?)",
            (now, waiting_subject(routine), routine),
        )
    for run in runs:
        connection.executemany(
            "UPDATE outbox SET status = 'suppressed', next_at = NULL,"
            " error = 'nothing is asked any more' WHERE id = ? AND status = 'pending'"
            " AND NOT EXISTS (SELECT 1 FROM approval WHERE status = 'pending' AND run_id = ?)",
            [(id_, run) for id_ in waiting_notices_of(connection, run, (WAITING, REMINDER))],
        )


def waiting_notices_of(
    connection: Connection, run: str, kinds: Collection[str] = (WAITING, REMINDER, EXPIRED)
) -> list[int]:
    """Return the ids of the deliveries of these kinds that quote a call of this run."""
    rows = connection.execute("SELECT id, kind, options FROM outbox WHERE run_id = ?", (run,))
    return [
        id_ for id_, kind, options in rows.fetchall() if kind_of(kind, json.loads(options)) in kinds
    ]


def enqueue_notice(
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
    """Put a notice into the outbox, a row for each target."""
    # older versions that send from the same database read `notice`
    notice = {"notice": kind, "title": clean(title), "text": clean(text), **(options or {})}
    for target in targets:
        _insert_delivery(connection, run_id, target, kind, notice, zone, now)


def _insert_delivery(
    connection: Connection,
    run_id: str | None,
    target: str,
    kind: str,
    options: Json,
    zone: str,
    now: datetime,
) -> None:
    at, text = to_microseconds(now), json.dumps(options, separators=(",", ":"))
    connection.execute(
        "INSERT INTO outbox (run_id, target, kind, options, zone, status, created, next_at,"
        " waits_since) VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?)",
        (run_id, target, kind, text, zone, at, at, at),
    )


DecidedDelivery = tuple[str, Json, DeliveryStatus, str | None]
"""The target of a delivery, its options, whether it is pending or suppressed, and why if so."""


def decide_deliveries(
    connection: Connection,
    run: Run,
    deliveries: Sequence[tuple[str, Json]],
    zone: str,
    settings: IncidentSettings,
) -> list[DecidedDelivery]:
    """Decide which deliveries of an ended run are sent, and open, count or close the incidents of
    its routine.

    `deliveries` are pairs of target and options. An alert of a routine that calls nobody gets the
    targets of `[incidents] to` as well.
    """
    assert run.ended is not None  # noqa: S101  the caller has just ended it
    subject = f"routine {run.routine}"
    _note_withheld(connection, run, deliveries, zone, settings)
    report_status = DeliveryStatus.SUPPRESSED if run.silent else DeliveryStatus.PENDING
    decided_deliveries: list[DecidedDelivery] = []
    for target, options in deliveries:
        status = DeliveryStatus.PENDING if options.get("ping") else report_status
        decided_deliveries.append((target, options, status, None))
    if run.status is Status.SUCCEEDED:
        close_incidents(connection, subject, run, zone, run.ended)
        return decided_deliveries
    # whoever asks, in a chat too, is answered with the failure
    if run.status not in FAILURES or run.trigger in BY_HAND or run.trigger == "ask":
        return decided_deliveries
    incident, is_alert = _count_failure(
        connection, subject, run.detail or run.status.value, run, run.ended, settings
    )
    if not is_alert:
        reason = f"told already of incident {incident.id}; `agentctl incidents` shows it"
        return [
            delivery
            if _is_record(delivery[0], delivery[1], settings)
            else (delivery[0], delivery[1], DeliveryStatus.SUPPRESSED, reason)
            for delivery in decided_deliveries
        ]
    alerted_targets = _own_targets(deliveries, settings)
    if not alerted_targets:
        alerted_targets = [name for name in settings.to if name not in dict(deliveries)]
        options = dict(deliveries[0][1]) if deliveries else {}
        options.pop("path", None)
        decided_deliveries += [(name, options, report_status, None) for name in alerted_targets]
    _add_alerted_targets(connection, incident, alerted_targets, run.ended)
    alert_options = {
        "incident": incident.id,
        "times": incident.count,
        "since": incident.opened.isoformat(),
    }
    return [
        (target, {**options, **alert_options}, status, reason)
        for target, options, status, reason in decided_deliveries
    ]


def _note_withheld(
    connection: Connection,
    run: Run,
    deliveries: Sequence[tuple[str, Json]],
    zone: str,
    settings: IncidentSettings,
) -> None:
    """Open or count the incident of a routine of whose run answers were withheld; close it if the
    run succeeded and none was.

    A person who starts a run, or asks in a chat, reads in its last line what was withheld.
    """
    assert run.ended is not None  # noqa: S101  the caller has just ended it
    subject = withheld_subject(run.routine)
    query = "SELECT count(*) FROM quarantine WHERE run_id = ?"
    (count,) = connection.execute(query, (run.id,)).fetchone()
    if not count:
        if run.status is Status.SUCCEEDED:
            title = f"nothing was withheld from {run.routine} any more"
            close_incidents(connection, subject, run, zone, run.ended, title=title)
        return
    if run.trigger in BY_HAND or run.trigger == "ask":
        return
    detail = describe_withheld(count)
    incident, is_alert = _count_failure(
        connection, subject, detail, run, run.ended, settings, cause=_WITHHELD_CAUSE
    )
    if not is_alert:
        return
    targets = _own_targets(deliveries, settings) or settings.to
    _add_alerted_targets(connection, incident, targets, run.ended)
    title, text = f"{run.routine}: an answer was withheld", f"{detail}\n\n{_WITHHELD_ADVICE}"
    enqueue_notice(connection, targets, OPENED, title, text, run.ended, run_id=run.id, zone=zone)


def _own_targets(deliveries: Sequence[tuple[str, Json]], settings: IncidentSettings) -> list[str]:
    """Return the targets of a routine's deliveries that call somebody."""
    return [target for target, options in deliveries if not _is_record(target, options, settings)]


def _is_record(target: str, options: Json, settings: IncidentSettings) -> bool:
    """Return whether a delivery is written to a file, the log or a dead man's switch: it calls
    nobody.
    """
    return target in settings.record_targets or bool(options.get("path") or options.get("ping"))


def _count_failure(
    connection: Connection,
    subject: str,
    error: str,
    run: Run | None,
    now: datetime,
    settings: IncidentSettings,
    *,
    cause: str | None = None,
) -> tuple[Incident, bool]:
    """Count a failure; return its incident, and whether an alert or a reminder is due."""
    signature, error = signature_of(cause or error), clean(error)
    same_incidents = _incidents_in(
        connection,
        "WHERE subject = ? AND signature = ? AND (closed IS NULL OR closed >= ?)"
        " ORDER BY closed IS NOT NULL, id DESC LIMIT 1",
        (subject, signature, to_microseconds(now - settings.cool_down)),
    )
    run_id = run and run.id
    if not same_incidents:
        values = (subject, signature, error, to_microseconds(now), to_microseconds(now), run_id)
        row = connection.execute(
            "INSERT INTO incident (subject, signature, detail, opened, seen, run_id)"
            f" VALUES (?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}",
            values,
        ).fetchone()
        return incident_of(row), True
    row = connection.execute(
        "UPDATE incident SET count = count + 1, seen = ?, detail = ?, run_id = coalesce(?, run_id),"
        " closed = NULL, acked = CASE WHEN closed IS NULL THEN acked END WHERE id = ? RETURNING "
        f"{_COLUMNS}",
        (to_microseconds(now), error, run_id, same_incidents[0].id),
    ).fetchone()
    incident = incident_of(row)
    # a run each day ends a little earlier or later: half an hour of 24 is not waited for
    wait = settings.remind - settings.remind / 48
    is_due = incident.last_alert is None or now - incident.last_alert >= wait
    return incident, is_due and incident.acked is None


def _add_alerted_targets(
    connection: Connection, incident: Incident, targets: Iterable[str], now: datetime
) -> None:
    """Write that these targets are alerted now: they get the notice of its end, too."""
    all_targets = list(dict.fromkeys([*incident.targets, *targets]))
    values = (to_microseconds(now), json.dumps(all_targets), incident.id)
    connection.execute("UPDATE incident SET told = ?, targets = ? WHERE id = ?", values)


def close_incidents(
    connection: Connection,
    subject: str,
    run: Run | None,
    zone: str,
    now: datetime,
    *,
    title: str = "",
    cause: str | None = None,
) -> None:
    """Close the open incidents of a subject, with a `cause` only those of this one, and send one
    notice of that to the alerted targets.

    `run` is the run whose success ended them, if any; the notice says that the subject works again,
    unless it has a `title`. Where an incident of another cause is still open, it names the `cause`
    instead.
    """
    condition, values = "subject = ? AND closed IS NULL", [subject]
    if cause is not None:
        condition += " AND signature = ?"
        values.append(signature_of(cause))
    incidents = _incidents_in(connection, f"WHERE {condition} ORDER BY id", tuple(values))
    if not incidents:
        return
    targets = dict.fromkeys(target for incident in incidents for target in incident.targets)
    # Without targets: if an incident is opened anew soon, its next end is announced to nobody.
    connection.execute(
        f"UPDATE incident SET closed = ?, targets = '[]' WHERE {condition}",
        (to_microseconds(now), *values),
    )
    count = sum(incident.count for incident in incidents)
    since = min(incident.opened for incident in incidents)
    times = "once" if count == 1 else f"{count} times"
    verb = "happened" if subject.startswith(withheld_subject("")) else "failed"
    text = f"It had {verb} {times} since {{since}}: {incidents[-1].detail}"
    if not title and cause is not None and subject in _open_subjects(connection):
        title = f'{subject}: the incident "{cause}" is over, another one is open'
    elif not title:
        title = f"{run.routine if run else subject} works again"
    options: Json = {"since": since.isoformat()}
    run_id = run.id if run else None
    enqueue_notice(
        connection,
        targets,
        RECOVERED,
        title,
        text,
        now,
        run_id=run_id,
        zone=zone,
        options=options,
    )


def send_to_other_target(
    connection: Connection, delivery: int, other_target: str, now: datetime
) -> None:
    """Send a delivery that its target does not take to another target as well, once.

    Only alerts and messages of the daemon's own: reports are not for other targets.
    """
    row = connection.execute(
        "SELECT run_id, target, kind, options, zone, created FROM outbox WHERE id = ?", (delivery,)
    ).fetchone()
    if row is None:
        return
    run_id, target, kind, text, zone, created = row
    options = json.loads(text)
    kind = kind_of(kind, options)
    is_plain_report = kind == REPORT and not options.get("incident")
    if target == other_target or is_plain_report or options.get("instead_of"):
        return
    values: Row
    if run_id is not None:
        condition, values = "run_id = ?", (other_target, run_id)
    else:  # written with this delivery, or after it: by then the clock may have been set back
        condition = "run_id IS NULL AND (created >= ? OR id > ?)"
        values = (other_target, created, delivery)
    query = f"SELECT options FROM outbox WHERE target = ? AND {condition}"
    for (other_text,) in connection.execute(query, values):
        other_options = json.loads(other_text)
        if all(other_options.get(key) == options.get(key) for key in ("incident", "title")):
            return  # it was sent there anyway, or at an earlier attempt
    other_options = {**options, "instead_of": target}
    _insert_delivery(connection, run_id, other_target, kind, other_options, zone, now)


def _incidents_in(connection: Connection, clauses: str, values: Row) -> list[Incident]:
    """Return the incidents that `SELECT … FROM incident` with these clauses finds."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM incident {clauses}", values)
    return read_intact_rows(incident_of, rows, "incident")
