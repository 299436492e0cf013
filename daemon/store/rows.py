"""Convert between values and columns: times, JSON bodies, runs, steps."""

# ruff: noqa: S608  what is put into statements are constants of this package; values are bound
from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from daemon.errors import DaemonError
from daemon.models import Json, Run, Status, Step, StepKind, Taint, Usage
from daemon.store.statements import Connection, Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
DEFLATE_FROM = 4096  # bytes: below, deflating costs more than the page it saves


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970; TypeError for a time without zone."""
    return (moment - EPOCH) // MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Return the time, in UTC, of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=value)


def to_microseconds_or_none(value: datetime | None) -> int | None:
    return None if value is None else to_microseconds(value)


def from_microseconds_or_none(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)


def clean(text: str) -> str:
    """Return `text` with `?` for each half of a surrogate pair, as odd file names yield: UTF-8, and
    so a database, cannot hold them.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_or_none(text: str | None) -> str | None:
    return None if text is None else clean(text)


# Inserts or replaces a fact of the daemon by its key.
KEEP_FACT = (
    "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = "
    "excluded.value"
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
    """Return what the column is to hold of an encoded body.

    In zlib's format, but with tables of half the size (the 14 and the 7): filling those takes
    `zlib.compress` longer than all it then does for a body of a few kilobytes, and what comes out
    is as short to a few bytes.
    """
    if len(body) < DEFLATE_FROM:
        return body
    packer = zlib.compressobj(1, zlib.DEFLATED, -14, 7)
    return b"".join(
        (b"x\x01", packer.compress(body), packer.flush(), zlib.adler32(body).to_bytes(4, "big"))
    )


def decode(column: bytes) -> Json:
    """Return the body that `deflate(encode(body))` was made of."""
    body: Json = json.loads(zlib.decompress(column) if column[:1] == b"x" else column)
    return body


def checksum(step: Step, column: bytes) -> int:
    """Return the checksum of a step as it is kept: CRC-32, which no single changed byte escapes,
    over all it says.
    """
    return _sum(column, step.seq, step.kind, step.iteration, step.call_id)


def seal_of(row: Row) -> int:
    """Return the checksum of a row of STEP's columns."""
    kind, iteration, body, call_id, seq, _ = row
    # whoever edits it by hand makes a text of it
    column = body if isinstance(body, bytes) else str(body).encode(errors="replace")
    return _sum(column, seq, kind, iteration, call_id)


def _sum(column: bytes, *place: object) -> int:
    return zlib.crc32(column, zlib.crc32(" ".join(map(str, place)).encode(errors="replace")))


RUN = (
    'id, routine, definition, "trigger", slot, event, status, attempt, barren, fence, created, '
    "started, ended,"
    " not_before, active, cancel, goal, report, silent, detail, provider, model,"
    " input, cache_read, cache_write, output, reasoning, iterations, taint, sandbox, waits_moved"
)


def run_of(row: Row) -> Run:
    """Return the run that a row of RUN's columns holds."""
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


def runs_in(connection: Connection, rest: str, values: Row = ()) -> list[Run]:
    """Return the runs that `SELECT … FROM run` with this rest finds."""
    return [run_of(row) for row in connection.execute(f"SELECT {RUN} FROM run {rest}", values)]


# The last run that was made before a moment: ids are in the order of their moments, so behind it
# are all later ones.
LAST_BEFORE = "coalesce((SELECT id FROM run WHERE created < ? ORDER BY id DESC LIMIT 1), '')"


STEP = "kind, iteration, body, call_id, seq, at"


def step_of(row: Row, read: Callable[[bytes], Json]) -> Step:
    """Return the step that a row of STEP's columns holds; DaemonError if it is
    corrupt.

    `read` makes a body of what the column holds (texts.BodyReader).
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
        problem = f"step {seq} ({kind}) of the run is harmed and cannot be read ({error})"
        raise DaemonError(f"{problem}; a backup may still have it: agentctl doctor") from error
