"""The audit: every call with its verdict and its end, and what people decided about them, chained
by hashes.

It holds digests of what was asked and what came back, never the words: those are in the journal,
from which they can be forgotten without breaking the chain. A row is written in the transaction of
what it tells of, so neither is there without the other. The chain proves that no row was changed,
taken out or put in before its last one; whoever has noted the last hash can prove that nothing was
cut off behind it either.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from daemon.models import Json, Run, Step, StepKind
from daemon.store.repository import Repository
from daemon.store.rows import Row, clean, moment

_COLUMNS = "seq, at, kind, run_id, routine, call_id, tool, actor, body"
_AT_ONCE = 2_000  # rows looked at between two other readers


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """One row of the audit."""

    seq: int
    at: datetime
    kind: str
    """call, result, asked, approved, rejected, expired, void, remembered, revoked, quarantined"""
    run: str
    routine: str
    call_id: str
    tool: str
    actor: str
    body: Json
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What came of walking the chain."""

    rows: int
    head: str
    """The hash of the last row: noted elsewhere, it proves that nothing was cut off since."""
    broken: int | None = None
    """The first row that does not follow from the one before it."""


def note(
    connection: sqlite3.Connection,
    kind: str,
    at: int,
    *,
    run: str = "",
    routine: str = "",
    call_id: str = "",
    tool: str = "",
    actor: str = "",
    body: Json | None = None,
) -> None:
    """Add a row, in the transaction of what it tells of."""
    last = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    number, before = last or (0, "")
    told = _sorted(body or {})
    row = (number + 1, at, kind, run, routine, clean(call_id), clean(tool), actor, told)
    connection.execute(
        f"INSERT INTO audit ({_COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, _link(before, row)),
    )


def note_step(connection: sqlite3.Connection, run: Run, step: Step, at: int) -> None:
    """Add a row if the step of a run is a call or a result."""
    body = step.body
    if step.kind is StepKind.CALL:
        verdict = body.get("verdict") or {}
        told = {"arguments": digest(body.get("arguments")), "effect": verdict.get("effect", "")}
        told |= {"rule": verdict.get("rule", ""), "taint": body.get("taint", "")}
        told |= {key: body[key] for key in ("policy", "sandbox", "approval") if body.get(key)}
    elif step.kind is StepKind.RESULT:
        text = str(body.get("text", ""))
        told = {
            "ok": body.get("ok"),
            "result": digest(text),
            "bytes": len(text.encode(errors="replace")),
        }
        told |= {"taint": body.get("taint", ""), "seconds": body.get("seconds", 0)}
        told |= {"sandbox": body["sandbox"]} if body.get("sandbox") else {}
    else:
        return
    note(
        connection,
        step.kind.value,
        at,
        run=run.id,
        routine=run.routine,
        call_id=str(step.call_id),
        tool=str(body.get("tool", "")),
        body=told,
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, the same for the same value."""
    return sha256(_sorted(value).encode()).hexdigest()


# Made once: json.dumps makes one per call, which costs more than what is encoded here.
_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_plain = json.JSONEncoder(separators=(",", ":")).encode


def _link(before: str, row: Row) -> str:
    return sha256(_plain([before, *row]).encode()).hexdigest()


class Audit(Repository):
    """The audit, read and proved."""

    async def write_audit(
        self, kind: str, *, actor: str = "", routine: str = "", body: Json | None = None
    ) -> None:
        """Add a row about an act that stands in no other table."""
        at = self._now()
        await self._db.write(
            lambda connection: note(connection, kind, at, actor=actor, routine=routine, body=body),
            durable=True,
        )

    async def audit(
        self, *, run: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[AuditEntry]:
        """Return rows, newest first, of one run or all, starting behind the row `before`."""
        wanted = [("run_id = ?", run), ("seq < ?", before)]
        where = (
            " AND ".join(condition for condition, value in wanted if value is not None) or "TRUE"
        )
        values = [value for _, value in wanted if value is not None]
        statement = f"SELECT {_COLUMNS}, hash FROM audit WHERE {where} ORDER BY seq DESC LIMIT ?"

        def work(connection: sqlite3.Connection) -> list[AuditEntry]:
            return [_entry(row) for row in connection.execute(statement, (*values, limit))]

        return await self._db.read(work)

    async def prove_audit(self) -> Proof:
        """Walk the whole chain, part by part, and say where it breaks, if it does."""
        rows, head = 0, ""
        statement = f"SELECT {_COLUMNS}, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?"
        while True:
            part: Sequence[Row] = await self._db.read(
                lambda connection, after=rows: connection.execute(
                    statement, (after, _AT_ONCE)
                ).fetchall()  # type: ignore[misc]
            )
            for row in part:
                if row[0] != rows + 1 or row[-1] != _link(head, row[:-1]):
                    return Proof(rows=rows, head=head, broken=rows + 1)
                rows, head = row[0], row[-1]
            if len(part) < _AT_ONCE:
                return Proof(rows=rows, head=head)


def _entry(row: Row) -> AuditEntry:
    seq, at, kind, run, routine, call_id, tool, actor, body, hash_ = row
    return AuditEntry(
        seq=seq,
        at=moment(at),
        kind=kind,
        run=run,
        routine=routine,
        call_id=call_id,
        tool=tool,
        actor=actor,
        body=json.loads(body),
        hash=hash_,
    )
