"""Convert between values and columns of the database: times, JSON, runs, steps,
incidents, deliveries."""

# ruff: noqa: S608  what is put into statements are constants of this package; values are bound
from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, TypeVar

import structlog

from daemon.errors import DaemonError, StoreDamaged
from daemon.models import (
    Delivery,
    DeliveryStatus,
    Incident,
    Json,
    Report,
    Run,
    Status,
    Step,
    StepKind,
    Taint,
    Usage,
)
from daemon.store.connection import Connection, Row

T = TypeVar("T")
log = structlog.get_logger()

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
DEFLATE_FROM = 4096  # bytes: below, deflating costs more than the page it saves


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970; TypeError for a time without zone."""
    return (moment - EPOCH) // MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Return the time, in UTC, of microseconds since 1970; StoreDamaged for what is no time."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except (TypeError, OverflowError):
        problem = f"the database is damaged: a time in it is {value!r:.40}"
        raise StoreDamaged(f"{problem}; stop the daemon and restore a backup") from None


def to_microseconds_or_none(value: datetime | None) -> int | None:
    return None if value is None else to_microseconds(value)


def from_microseconds_or_none(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)


def clean(text: str) -> str:
    """Return `text` with `?` for each half of a surrogate pair.

    File names that are not UTF-8 have them in Python; a database, which holds UTF-8, cannot.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_or_none(text: str | None) -> str | None:
    return None if text is None else clean(text)


def events_below(parent: str) -> tuple[str, str]:
    """Return the first event `parent/…`, and the first one behind all of these: the sub-agents of
    a run and the turns of a conversation have such events.
    """
    return f"{parent}/", f"{parent}0"  # 0 is the character behind /


# Inserts or replaces a value by its key.
PUT_VALUE = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


def encode(body: Any) -> bytes:
    """Return a step's body, or a part of it, as JSON in UTF-8; in ASCII where it holds half a
    surrogate pair.
    """
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def deflate(body: bytes) -> bytes:
    """Return the value of the column for an encoded body: compressed by zlib if it is long.

    With tables of half the usual size (the 14 and the 7), which yield the same length to a few
    bytes: to fill larger ones takes longer than to compress a body of a few kilobytes.
    """
    if len(body) < DEFLATE_FROM:
        return body
    packer = zlib.compressobj(1, zlib.DEFLATED, -14, 7)
    return b"".join(
        (b"x\x01", packer.compress(body), packer.flush(), zlib.adler32(body).to_bytes(4, "big"))
    )


def decode(column: bytes) -> Json:
    """Return the body of a column that `deflate(encode(body))` returned."""
    # `x` is the first byte of zlib's format, and no JSON begins with it
    body: Json = json.loads(zlib.decompress(column) if column[:1] == b"x" else column)
    return body


def checksum(step: Step, column: bytes) -> int:
    """Return the CRC-32 of a step's row, whose body is `column`; it detects any single changed
    byte.
    """
    return _crc32(column, step.seq, step.kind, step.iteration, step.call_id)


def row_checksum(row: Row) -> int:
    """Return the checksum of a row with STEP_COLUMNS, as `checksum` returns it for the step."""
    kind, iteration, body, call_id, seq, _ = row
    # a body that was edited by hand in SQLite is a text
    column = body if isinstance(body, bytes) else str(body).encode(errors="replace")
    return _crc32(column, seq, kind, iteration, call_id)


def _crc32(column: bytes, *other_columns: object) -> int:
    text = " ".join(map(str, other_columns))
    return zlib.crc32(column, zlib.crc32(text.encode(errors="replace")))


RUN_COLUMN_NAMES = (
    *("id", "routine", "definition", "trigger", "slot", "event", "status", "attempt", "barren"),
    *("fence", "created", "started", "ended", "not_before", "active", "cancel", "goal", "report"),
    *("silent", "detail", "provider", "model", "input", "cache_read", "cache_write", "output"),
    *("reasoning", "iterations", "taint", "sandbox", "waits_moved"),
)
# In quotes, as `trigger` is a word of SQL.
RUN_COLUMNS = ", ".join(f'"{name}"' for name in RUN_COLUMN_NAMES)


def read_intact_rows(read: Callable[[Row], T], rows: Iterable[Row], noun: str) -> list[T]:
    """Return what `read` makes of each row, without the rows that are damaged: a list must not fail
    for one of them. The log names each, by the noun for the rows and its first column.
    """
    results = []
    for row in rows:
        try:
            results.append(read(row))
        except StoreDamaged as error:
            text, name = str(error), f"{noun} {row[0]}"
            log.error("database.row_damaged", row=name, detail=text, counted=noun)  # noqa: TRY400
    return results


def refuse_damaged_row(noun: str) -> Callable[[Callable[[Row], T]], Callable[[Row], T]]:
    """Have a function that reads a row raise StoreDamaged where a column cannot be read."""

    def decorate(read: Callable[[Row], T]) -> Callable[[Row], T]:
        @wraps(read)
        def read_or_refuse(row: Row) -> T:
            try:
                # these rows have no column of bytes: a damaged record may have some in its place
                if bytes in map(type, row):
                    raise TypeError("bytes in place of a text or a number")
                return read(row)
            except (
                ValueError,
                TypeError,
                OverflowError,
                AttributeError,
                StoreDamaged,
            ) as error:
                message = f"the row of {noun} {row[0]} is damaged and cannot be read ({error})"
                raise StoreDamaged(
                    f"{message}; a backup may still have it: agentctl doctor"
                ) from error

        return read_or_refuse

    return decorate


@refuse_damaged_row("run")
def run_of(row: Row) -> Run:
    """Return the run of a row with RUN_COLUMNS. Raises StoreDamaged."""
    (
        id_, routine, definition, trigger, slot, event, status, attempt, barren, fence, created, started, ended,  # noqa: E501
        not_before, active, cancel, goal, report, silent, detail, provider, model,
        input_, cache_read, cache_write, output, reasoning, iterations, taint, sandbox, waits_moved,
    ) = row  # fmt: skip
    return Run(
        id=id_,
        routine=routine,
        definition=definition,
        trigger=trigger,
        slot=from_microseconds(slot),
        event=event,
        status=Status(status),
        attempt=attempt,
        fruitless_attempts=barren,
        fence=fence,
        created=from_microseconds(created),
        started=from_microseconds_or_none(started),
        ended=from_microseconds_or_none(ended),
        not_before=from_microseconds_or_none(not_before),
        active=float(active),
        cancel=bool(cancel),
        goal=goal,
        report=report,
        silent=bool(silent),
        detail=detail,
        provider=provider,
        model=model,
        usage=Usage(
            input=input_,
            cache_read=cache_read,
            cache_write=cache_write,
            output=output,
            reasoning=reasoning,
        ),
        iterations=iterations,
        taint=Taint(taint),
        sandbox=sandbox,
        waits_moved=bool(waits_moved),
    )


def runs_in(connection: Connection, clauses: str, values: Row = ()) -> list[Run]:
    """Return the runs that `SELECT … FROM run` with these clauses finds."""
    rows = connection.execute(f"SELECT {RUN_COLUMNS} FROM run {clauses}", values)
    return read_intact_rows(run_of, rows, "run")


# The id of the last run that was created before a moment. Ids are in the order of creation, so a
# comparison with it finds later runs by the primary key.
LAST_BEFORE = "coalesce((SELECT id FROM run WHERE created < ? ORDER BY id DESC LIMIT 1), '')"


STEP_COLUMNS = "kind, iteration, body, call_id, seq, at"


def step_of(row: Row, read: Callable[[bytes], Json]) -> Step:
    """Return the step of a row with STEP_COLUMNS. Raises DaemonError if the row is damaged.

    `read` decodes the body column: a texts.BodyReader.
    """
    kind, iteration, body, call_id, seq, at = row
    try:
        return Step(
            kind=StepKind(kind),
            iteration=iteration,
            body=read(body),
            call_id=call_id,
            seq=seq,
            at=from_microseconds(at),
        )
    except (ValueError, TypeError, AttributeError, LookupError, zlib.error) as error:
        problem = f"step {seq} ({kind}) of the run is damaged and cannot be read ({error})"
        raise DaemonError(f"{problem}; a backup may still have it: agentctl doctor") from error


INCIDENT_COLUMN_NAMES = (
    "id", "subject", "signature", "detail", "opened", "seen", "count", "told", "targets",
    "acked", "closed", "run_id",
)  # fmt: skip


@refuse_damaged_row("incident")
def incident_of(row: Row) -> Incident:
    """Return the incident of a row with INCIDENT_COLUMN_NAMES. Raises StoreDamaged."""
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


DELIVERY_COLUMN_NAMES = (
    "id", "run_id", "target", "kind", "options", "zone", "status", "attempts", "next_at",
    "receipt", "error", "created",
)  # fmt: skip
# Of the run whose report is delivered; all None for a message of the daemon's own.
DELIVERED_RUN_COLUMN_NAMES = ("routine", "slot", "status", "report", "detail", "taint")
REPORT = "report"  # the kind of a delivery that is a run's report


@refuse_damaged_row("delivery")
def delivery_of(row: Row) -> Delivery:
    """Return the delivery of a row with DELIVERY_COLUMN_NAMES of the table outbox, then
    DELIVERED_RUN_COLUMN_NAMES of the table run. Raises StoreDamaged.
    """
    (
        id_, run, target, kind, options_text, zone, status, attempts, next_at, receipt, error,
        created, routine, slot, run_status, report, detail, taint,
    ) = row  # fmt: skip
    options = json.loads(options_text)
    return Delivery(
        id=id_,
        run=run or "",
        routine=routine or "",
        target=target,
        content=kind_of(kind, options),
        options=options,
        status=DeliveryStatus(status),
        attempts=attempts,
        created=from_microseconds(created),
        next_at=from_microseconds_or_none(next_at),
        receipt=receipt,
        error=error,
        report=Report(
            run=run or "",
            routine=routine or "",
            slot=from_microseconds(created if slot is None else slot),
            status=Status(run_status or Status.SUCCEEDED),
            text=report if report is not None else detail or "",
            scheduled_zone=zone,
            taint=Taint(taint or ""),
        ),
    )


def kind_of(kind: str | None, options: Json) -> str:
    """Return the kind of a delivery; an older version wrote it only into the options."""
    return kind or str(options.get("notice") or REPORT)
