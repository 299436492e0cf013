"""The audit: each tool call with its verdict and result, and what people decided about calls,
chained by hashes.

It holds digests of arguments and results, never the texts: those are in the journal, where they can
be erased without breaking the chain. An entry is written in the transaction of what it records, so
neither exists without the other. The chain proves that no entry before the last one was changed,
removed or inserted; a person who has noted the last hash can prove that none was cut off behind it.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from daemon.errors import NotFound
from daemon.models import Json, Run, Step, StepKind, new_id
from daemon.store.connection import (
    SHORTEST_PART,
    Connection,
    Row,
)
from daemon.store.database import Repository
from daemon.store.records import AuditEntry, QuarantinedResult
from daemon.store.rows import clean, deflate, encode

if TYPE_CHECKING:
    from sqlmodel import Session

_COLUMNS = "seq, at, kind, run_id, routine, call_id, tool, actor, body"
_ROWS_AT_ONCE = 2_000  # verified in one read, between which others read
# The newest stay: a person reads only a few of results that are withheld again and again.
MAX_QUARANTINED = 1_000

_QUARANTINE_COLUMNS = "id, run_id, routine, call_id, tool, reason, at, body"


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditCheck:
    """The result of verifying the chain."""

    rows: int
    """How many rows were verified."""
    head: str
    """The hash of the last row: noted elsewhere, it proves that nothing was cut off since."""
    broken: int | None = None
    """The number of the first row that does not follow from the one before it."""


def add_entry(
    connection: Connection,
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
    """Add an entry to the chain, in the transaction of what it records; `at` in microseconds."""
    last = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    number, previous_hash = last or (0, "")
    details = _sorted_json(body or {})
    row = (number + 1, at, kind, run, routine, clean(call_id), clean(tool), actor, details)
    connection.execute(
        f"INSERT INTO audit ({_COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, _chain_hash(previous_hash, row)),
    )


def add_step_entry(connection: Connection, run: Run, step: Step, at: int) -> None:
    """Add an entry if the step of a run is a call or a result."""
    body = step.body
    if step.kind is StepKind.CALL:
        verdict = body.get("verdict") or {}
        details = {
            "arguments": digest(body.get("arguments")),
            "effect": verdict.get("effect", ""),
            "rule": verdict.get("rule", ""),
            "taint": body.get("taint", ""),
        }
        optional_keys: tuple[str, ...] = ("policy", "sandbox", "approval")
    elif step.kind is StepKind.RESULT:
        text = str(body.get("text", ""))
        details = {
            "ok": body.get("ok"),
            "result": digest(text),
            "bytes": len(text.encode(errors="replace")),
            "taint": body.get("taint", ""),
            "seconds": body.get("seconds", 0),
        }
        optional_keys = ("sandbox",)
    else:
        return
    details |= {key: body[key] for key in optional_keys if body.get(key)}
    add_entry(
        connection,
        step.kind.value,
        at,
        run=run.id,
        routine=run.routine,
        call_id=str(step.call_id),
        tool=str(body.get("tool", "")),
        body=details,
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return sha256(_sorted_json(value).encode()).hexdigest()


# The encoders are made once: json.dumps makes one for each call, which takes longer than encoding
# these values.
_sorted_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_plain_json = json.JSONEncoder(separators=(",", ":")).encode


def _chain_hash(previous_hash: str, row: Row) -> str:
    return sha256(_plain_json([previous_hash, *row]).encode()).hexdigest()


class AuditRepository(Repository):
    """The audit, the results withheld from models, and the policies that were in force.

    Tables: audit, quarantine, policy.
    """

    async def write(
        self, kind: str, *, actor: str = "", routine: str = "", body: Json | None = None
    ) -> None:
        """Add an entry about an act that is recorded in no other table."""
        at = self._now()
        await self._db.write(
            lambda connection: add_entry(
                connection, kind, at, actor=actor, routine=routine, body=body
            ),
            durable=True,
        )

    async def find(
        self, *, run: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[AuditEntry]:
        """Return entries, newest first, of one run or all, starting behind the entry `before`."""

        def query(session: Session) -> list[AuditEntry]:
            from daemon.store.queries.audit import find_entries

            return find_entries(session, run, before, limit)

        return await self._db.query(query)

    async def verify(self) -> AuditCheck:
        """Verify the whole chain, part by part, up to the first row that breaks it."""
        rows, head = 0, ""
        while True:
            part = await self._db.query(partial(_get_chain_part, after=rows))
            for row in part:
                number, row_hash = row[0], row[-1]
                if (
                    number != rows + 1
                    or bytes in map(type, row)  # a damaged row, which has no JSON
                    or row_hash != _chain_hash(head, row[:-1])
                ):
                    return AuditCheck(rows=rows, head=head, broken=rows + 1)
                rows, head = number, row_hash
            if len(part) < _ROWS_AT_ONCE:
                return AuditCheck(rows=rows, head=head)

    # --- results withheld from the models because they gave orders: for a person to read

    async def quarantine(
        self, *, run: str, routine: str, call_id: str, tool: str, reason: str, text: str
    ) -> str:
        """Keep a withheld result, and add it to the audit; return its id in the quarantine."""
        now, id_ = self._now(), new_id()
        body = deflate(encode({"text": text}))

        def work(connection: Connection) -> None:
            connection.execute(
                f"INSERT INTO quarantine ({_QUARANTINE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (id_, run, routine, call_id, tool, clean(reason), now, body),
            )
            connection.execute(
                "DELETE FROM quarantine WHERE id <="
                " (SELECT id FROM quarantine ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (MAX_QUARANTINED,),
            )
            add_entry(
                connection,
                "quarantined",
                now,
                run=run,
                routine=routine,
                call_id=call_id,
                tool=tool,
                body={"quarantine": id_, "reason": reason, "result": digest(text)},
            )

        await self._db.write(work)
        return id_

    async def find_quarantined(
        self, *, limit: int = 50, before: str | None = None
    ) -> list[QuarantinedResult]:
        """Return quarantined results, newest first, starting behind the id `before`."""

        def query(session: Session) -> list[QuarantinedResult]:
            from daemon.store.queries.audit import find_quarantined

            return find_quarantined(session, before, limit)

        return await self._db.query(query)

    async def get_quarantined(self, id_or_part: str) -> QuarantinedResult:
        """Return the result with this id, or the only one whose id begins or ends with it (>= 4
        characters).

        Raises NotFound.
        """
        part = id_or_part.upper()
        if len(part) < SHORTEST_PART:
            raise NotFound(
                f"there is no such text: {id_or_part!r}; give at least {SHORTEST_PART} characters "
                "of an id"
            )

        def query(session: Session) -> list[QuarantinedResult]:
            from daemon.store.queries.audit import find_quarantined_by_part

            return find_quarantined_by_part(session, part, 2)

        texts = await self._db.query(query)
        if len(texts) != 1:
            problem = "there is no such text" if not texts else "several texts have such an id"
            raise NotFound(f"{problem}: {id_or_part!r}; `agentctl quarantine` shows what is kept")
        return texts[0]

    # --- policies, each text once: a replay is judged by the policy of its run

    def keep_policy(self, hash_: str, text: str) -> None:
        """Keep the text of a policy under its hash, with whatever is written next."""

        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO policy (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (hash_, text),
            )

        # Nobody waits for this write: a full disk is noticed by the next write of a run.
        self._db.submit(work, lazily=True).add_done_callback(
            lambda write: write.cancelled() or write.exception()
        )

    async def get_policy(self, hash_: str) -> str | None:
        """Return the text of a policy that was in force; None if the journal does not have it."""

        def work(connection: Connection) -> str | None:
            row = connection.execute("SELECT body FROM policy WHERE hash = ?", (hash_,)).fetchone()
            return row and str(row[0])

        return await self._db.read(work)


def _get_chain_part(session: Session, *, after: int) -> list[Row]:
    from daemon.store.queries.audit import get_chain_part

    return get_chain_part(session, after, _ROWS_AT_ONCE)
