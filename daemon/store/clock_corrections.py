"""Move the waits that began while the clock was ahead.

A wait is stored as the instant at which it ends, so that a restart finds it, and the instant at
which it began. If it began later than now, the clock was ahead when the row was written and has
been set back since; the wait is moved to begin now, with the same length. So no wait lasts longer
than it should, whatever the clock did.

Where several machines share a database, the clock of the database is used, as for leases.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import structlog

from daemon.models import WAIT_MOVED, Run
from daemon.store.connection import Connection
from daemon.store.rows import MICROSECOND, RUN_COLUMNS, run_of

log = structlog.get_logger()

DAY = timedelta(days=1) // MICROSECOND
"""Rows of older versions do not say when their wait began: a wait that ends later than in a day
ends now.
"""

# The new end of a wait that is moved, from the columns of its end and of when it began. Parameter:
# now.
_NEW_END = "? + CASE WHEN {since} IS NULL THEN 0 ELSE {end} - {since} END"
# The condition for a wait to be moved. Parameters: now, now + DAY.
_BEGAN_AHEAD = "({since} > ? OR {since} IS NULL AND {end} > ?)"

_RUN = {"end": "not_before", "since": "waits_since"}
_MOVE_RUNS = f"""
UPDATE run SET not_before = {_NEW_END.format(**_RUN)}, waits_since = ?, waits_moved = 1,
    detail = CASE WHEN waits_moved = 1 THEN detail WHEN detail IS NULL THEN '{WAIT_MOVED}'
        ELSE detail || '; {WAIT_MOVED}' END
WHERE status = 'queued' AND not_before IS NOT NULL AND {_BEGAN_AHEAD.format(**_RUN)}
RETURNING {RUN_COLUMNS}
"""
_DELIVERY = {"end": "next_at", "since": "waits_since"}
_MOVE_DELIVERIES = f"""
UPDATE outbox SET next_at = {_NEW_END.format(**_DELIVERY)}, waits_since = ?
WHERE status = 'pending' AND {_BEGAN_AHEAD.format(**_DELIVERY)} RETURNING id
"""
_MOVE_QUESTIONS = """
UPDATE approval SET expires = ? + expires - created, remind_at = ? + remind_at - created, created = ?
WHERE status = 'pending' AND created > ? RETURNING id
"""  # noqa: E501
_MOVE_PAUSES = """
UPDATE routine SET paused_until = ? + paused_until - paused_since, paused_since = ?
WHERE paused = 1 AND paused_until IS NOT NULL AND paused_since > ? RETURNING name
"""
# Reminders of an incident are counted from its last alert, its cool-down from its end.
_MOVE_INCIDENTS = """
UPDATE incident SET opened = CASE WHEN opened > ? THEN ? ELSE opened END,
    seen = CASE WHEN seen > ? THEN ? ELSE seen END, told = CASE WHEN told > ? THEN ? ELSE told END,
    closed = CASE WHEN closed > ? THEN ? ELSE closed END
WHERE opened > ? OR seen > ? OR told > ? OR closed > ?
"""
# The next digest is the first one due after the last.
_MOVE_DIGEST = (
    "UPDATE meta SET value = CAST(? AS TEXT) WHERE key = 'digest' AND CAST(value AS BIGINT) > ?"
)
# A cost with a date in the future would count for every day until then.
_MOVE_SPENDING = "UPDATE spending SET at = ? WHERE at > ?"


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedWaits:
    """The waits that were moved because they had begun while the clock was ahead."""

    runs: tuple[Run, ...] = ()
    deliveries: tuple[int, ...] = ()
    questions: tuple[str, ...] = ()
    pauses: tuple[str, ...] = ()
    """Names of routines."""

    def write_to_log(self) -> None:
        """Log all moved waits in one line; nothing if there are none."""
        if self.runs or self.deliveries or self.questions or self.pauses:
            log.warning(
                "clock.waits_moved",
                runs=[run.id for run in self.runs],
                deliveries=list(self.deliveries),
                questions=list(self.questions),
                pauses=list(self.pauses),
                why=(
                    "they began while the clock was ahead; each lasts as long as it was meant to, "
                    "from now on"
                ),
            )


def move_waits(connection: Connection, now: int, *, skew: int = 0) -> MovedWaits:
    """Move the waits that began later than `now` + `skew` (microseconds), in the transaction of
    `connection`.

    `skew` is the tolerated difference of the clocks of several machines. Deliveries are left out,
    as they wait by the clock of the process that sends them: see `move_deliveries`.
    """
    latest = now + skew
    runs = connection.execute(_MOVE_RUNS, (now, now, latest, now + DAY)).fetchall()
    questions = connection.execute(_MOVE_QUESTIONS, (now, now, now, latest)).fetchall()
    pauses = connection.execute(_MOVE_PAUSES, (now, now, latest)).fetchall()
    connection.execute(_MOVE_INCIDENTS, (latest, now) * 4 + (latest,) * 4)
    connection.execute(_MOVE_DIGEST, (now, latest))
    connection.execute(_MOVE_SPENDING, (now, latest))
    return MovedWaits(
        runs=tuple(sorted(map(run_of, runs), key=lambda run: run.id)),
        questions=tuple(sorted(id_ for (id_,) in questions)),
        pauses=tuple(sorted(name for (name,) in pauses)),
    )


def move_deliveries(connection: Connection, now: int) -> tuple[int, ...]:
    """Move the deliveries whose wait began later than `now` (microseconds), in the transaction of
    `connection`; return their ids.
    """
    rows = connection.execute(_MOVE_DELIVERIES, (now, now, now, now + DAY)).fetchall()
    return tuple(sorted(id_ for (id_,) in rows))
