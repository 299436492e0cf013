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
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from daemon.errors import NotFound
from daemon.models import Json, Run, Step, StepKind, new_id
from daemon.store.records import AuditEntry, QuarantinedResult
from daemon.store.repository import Repository
from daemon.store.rows import clean, deflate, encode
from daemon.store.statements import (
    SHORTEST_PART,
    Connection,
    Row,
)

if TYPE_CHECKING:
    from sqlmodel import Session

_COLUMNS = "seq, at, kind, run_id, routine, call_id, tool, actor, body"
_AT_ONCE = 2_000  # rows looked at between two other readers
# Evidence, not an archive: of what comes every hour a person reads one.
MOST = 1_000

_QUARANTINE = "id, run_id, routine, call_id, tool, reason, at, body"


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What came of walking the chain."""

    rows: int
    head: str
    """The hash of the last row: noted elsewhere, it proves that nothing was cut off since."""
    broken: int | None = None
    """The first row that does not follow from the one before it."""


def note(
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
    """Add a row, in the transaction of what it tells of."""
    last = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    number, before = last or (0, "")
    details = _sorted(body or {})
    row = (number + 1, at, kind, run, routine, clean(call_id), clean(tool), actor, details)
    connection.execute(
        f"INSERT INTO audit ({_COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, _link(before, row)),
    )


def note_step(connection: Connection, run: Run, step: Step, at: int) -> None:
    """Add a row if the step of a run is a call or a result."""
    body = step.body
    if step.kind is StepKind.CALL:
        verdict = body.get("verdict") or {}
        details = {"arguments": digest(body.get("arguments")), "effect": verdict.get("effect", "")}
        details |= {"rule": verdict.get("rule", ""), "taint": body.get("taint", "")}
        details |= {key: body[key] for key in ("policy", "sandbox", "approval") if body.get(key)}
    elif step.kind is StepKind.RESULT:
        text = str(body.get("text", ""))
        details = {
            "ok": body.get("ok"),
            "result": digest(text),
            "bytes": len(text.encode(errors="replace")),
        }
        details |= {"taint": body.get("taint", ""), "seconds": body.get("seconds", 0)}
        details |= {"sandbox": body["sandbox"]} if body.get("sandbox") else {}
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
        body=details,
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, the same for the same value."""
    return sha256(_sorted(value).encode()).hexdigest()


# Made once: json.dumps makes one per call, which costs more than what is encoded here.
_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_plain = json.JSONEncoder(separators=(",", ":")).encode


def _link(before: str, row: Row) -> str:
    return sha256(_plain([before, *row]).encode()).hexdigest()


class AuditRepository(Repository):
    """The audit, the texts kept from models, and the policies that were in force.

    Tables: audit, quarantine, policy.
    """

    async def write(
        self, kind: str, *, actor: str = "", routine: str = "", body: Json | None = None
    ) -> None:
        """Add a row about an act that stands in no other table."""
        at = self._now()
        await self._db.write(
            lambda connection: note(connection, kind, at, actor=actor, routine=routine, body=body),
            durable=True,
        )

    async def find(
        self, *, run: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[AuditEntry]:
        """Return rows, newest first, of one run or all, starting behind the row `before`."""

        def query(session: Session) -> list[AuditEntry]:
            from daemon.store.queries.audit import find_entries

            return find_entries(session, run, before, limit)

        return await self._db.query(query)

    async def prove(self) -> Proof:
        """Walk the whole chain, part by part, and say where it breaks, if it does."""
        rows, head = 0, ""
        while True:
            part = await self._db.query(partial(_get_chain_part, after=rows))
            for row in part:
                if row[0] != rows + 1 or row[-1] != _link(head, row[:-1]):
                    return Proof(rows=rows, head=head, broken=rows + 1)
                rows, head = row[0], row[-1]
            if len(part) < _AT_ONCE:
                return Proof(rows=rows, head=head)

    # --- texts kept from the models because they gave them orders: for a person to read

    async def quarantine(
        self, *, run: str, routine: str, call_id: str, tool: str, reason: str, text: str
    ) -> str:
        """Keep a text; return the id under which a person finds it."""
        now, id_ = self._now(), new_id()
        body = deflate(encode({"text": text}))

        def work(connection: Connection) -> None:
            connection.execute(
                f"INSERT INTO quarantine ({_QUARANTINE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (id_, run, routine, call_id, tool, clean(reason), now, body),
            )
            connection.execute(
                (
                    "DELETE FROM quarantine WHERE id <= (SELECT id FROM quarantine ORDER BY id DESC "  # noqa: E501
                    "LIMIT 1 OFFSET ?)"
                ),
                (MOST,),
            )
            note(
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
        """Return what is kept, newest first."""

        def query(session: Session) -> list[QuarantinedResult]:
            from daemon.store.queries.audit import find_quarantined

            return find_quarantined(session, before, limit)

        return await self._db.query(query)

    async def get_quarantined(self, id_or_part: str) -> QuarantinedResult:
        """Return the text of that id; its beginning or its end (>= 4 characters) is enough.

        NotFound.
        """
        part = id_or_part.upper()

        def query(session: Session) -> list[QuarantinedResult]:
            from daemon.store.queries.audit import find_quarantined_by_part

            return find_quarantined_by_part(session, part, 2)

        texts = await self._db.query(query) if len(part) >= SHORTEST_PART else []
        if len(texts) != 1:
            problem = "there is no such text" if not texts else "several texts have such an id"
            raise NotFound(f"{problem}: {id_or_part!r}; `agentctl quarantine` shows what is kept")
        return texts[0]

    # --- policies, each text once: a run that is played again is judged by the one of then

    def keep_policy(self, hash_: str, text: str) -> None:
        """Keep the text of a policy; one that is kept already costs nothing, and nobody waits for
        it.
        """

        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO policy (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (hash_, text),
            )

        # a disk that takes nothing shows itself in the first write that matters
        self._db.submit(work, lazily=True).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )

    async def get_policy(self, hash_: str) -> str | None:
        """Return the text of a policy that was in force; None if it was before they were kept."""

        def work(connection: Connection) -> str | None:
            row = connection.execute("SELECT body FROM policy WHERE hash = ?", (hash_,)).fetchone()
            return row and str(row[0])

        return await self._db.read(work)


def _get_chain_part(session: Session, *, after: int) -> list[Row]:
    from daemon.store.queries.audit import get_chain_part

    return get_chain_part(session, after, _AT_ONCE)
