"""The audit records every call without its text, and detects every change."""

from __future__ import annotations

import pytest

from daemon.models import Status, Step, StepKind
from daemon.store.database import Database
from tests.store.conftest import Ledger

CALL = Step(
    kind=StepKind.CALL,
    iteration=1,
    call_id="1.0",
    body={
        "tool": "shell",
        "arguments": {"command": "cat private.txt"},
        "verdict": {"effect": "allow", "rule": "rule 3 (shell: cat)", "reason": "it is private"},
        "policy": "abc",
        "sandbox": "bubblewrap",
        "taint": "tainted",
    },
)
RESULT = Step(
    kind=StepKind.RESULT,
    iteration=1,
    call_id="1.0",
    body={"tool": "shell", "ok": True, "text": "mine", "seconds": 0.1},
)


async def fill(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.append(run, CALL)
    await ledger.journal.runs.append(run, RESULT)
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED))


async def test_a_call_and_its_result_are_audit_rows_with_verdict_policy_taint_and_sandbox(
    ledger: Ledger,
) -> None:
    await fill(ledger)
    end, call = await ledger.journal.audit.find()
    assert (call.kind, call.tool, call.call_id, call.routine) == ("call", "shell", "1.0", "daily")
    assert {key: call.body[key] for key in ("effect", "rule", "policy", "sandbox", "taint")} == {
        "effect": "allow",
        "rule": "rule 3 (shell: cat)",
        "policy": "abc",
        "sandbox": "bubblewrap",
        "taint": "tainted",
    }
    assert (end.kind, end.body["ok"], end.body["bytes"]) == ("result", True, 4)
    bodies = str([call.body, end.body])
    assert "private" not in bodies and "mine" not in bodies, "of words only digests are kept"
    assert (await ledger.journal.audit.verify()).rows == 2


async def test_the_audit_is_listed_by_page_and_by_run(ledger: Ledger) -> None:
    await fill(ledger)
    await fill(ledger)
    (newest,) = await ledger.journal.audit.find(limit=1)
    assert newest.seq == 4
    assert [row.seq for row in await ledger.journal.audit.find(before=3)] == [2, 1]
    assert [row.seq for row in await ledger.journal.audit.find(run=newest.run)] == [4, 3]


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit SET body = replace(body, 'allow', 'deny') WHERE seq = 3",
        "UPDATE audit SET at = at + 1 WHERE seq = 3",
        "UPDATE audit SET actor = 'uid 0' WHERE seq = 3",
        "DELETE FROM audit WHERE seq = 3",
        "UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 4) WHERE seq = 3",
    ],
)
async def test_changed_or_removed_audit_rows_are_detected(
    db: Database, ledger: Ledger, tampering: str
) -> None:
    for _ in range(3):
        await fill(ledger)
    await db.write(lambda connection: connection.execute(tampering))
    assert (await ledger.journal.audit.verify()).broken == 3


async def test_inserted_audit_rows_are_detected_and_truncation_changes_the_head(
    db: Database, ledger: Ledger
) -> None:
    await fill(ledger)
    head = (await ledger.journal.audit.verify()).head
    await db.write(
        lambda connection: connection.execute(
            "INSERT INTO audit (seq, at, kind, body, hash) VALUES (3, 0, 'call', '{}', 'x')"
        )
    )
    assert (await ledger.journal.audit.verify()).broken == 3
    await db.write(lambda connection: connection.execute("DELETE FROM audit WHERE seq >= 2"))
    proof = await ledger.journal.audit.verify()
    assert (proof.broken, proof.rows) == (None, 1)
    assert proof.head != head
