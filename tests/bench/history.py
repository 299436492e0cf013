"""A state folder in which much has happened: runs, slots, calls to models, deliveries and memory of
a month.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from daemon.models import Json

ROUTINES = (
    "daily-report",
    "heartbeat",
    "inbox-watch",
    "backup-check",
    "news",
    "certificates",
    "mail-triage",
    "disks",
)
_STATUS = ("succeeded",) * 16 + ("skipped", "failed", "timed_out", "cancelled")
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_WORDS = (
    "disk", "load", "backup", "certificate", "update", "mail", "nothing", "unusual", "restarted", (
        "failed"
    ), (
        "free"
    ),
    "space", "report", "host", "kernel",
)  # fmt: skip


async def fill(
    path: Path, runs: int, *, end: datetime, days: int = 30, routines: Sequence[str] = ROUTINES
) -> str:
    """Write so many runs into a journal, spread over the days up to `end`; return the id of one
    with a transcript.
    """
    from daemon.memory.memory import Memory
    from daemon.memory.segments import Segment
    from daemon.models import SegmentType
    from daemon.store.database import Database

    chance = random.Random(7)
    database = await Database.open(path)
    memory = Memory(database, clock=lambda: end)
    await memory.open()
    archival, last = None, ""
    for number in range(runs):
        at = end - timedelta(days=days) * ((runs - number) / (runs + 1))
        last = _id(at, number)
        routine = routines[number % len(routines)]
        report = _report(chance)
        row = _Run(last, routine, at, chance.choice(_STATUS), report, chance.randrange(500, 9000))
        await database.write(lambda connection, row=row: row.write(connection))
        segments = [
            Segment(
                iteration=1,
                segment=0,
                type=SegmentType.RESPONSE,
                timestamp=at,
                text=report,
                speaker="agent",
            )
        ]
        archival = memory.archive(
            run=last,
            routine=routine,
            goal="Write.",
            status="succeeded",
            segments=segments,
            started=at,
            ended=at,
        )
    if archival is not None:
        await archival
    await database.close()
    return last


class _Run:
    """One run with all that hangs on it."""

    def __init__(
        self, id_: str, routine: str, at: datetime, status: str, report: str, tokens: int
    ) -> None:
        self.id, self.routine, self.status, self.report, self.tokens = (
            id_,
            routine,
            status,
            report,
            tokens,
        )
        self.at = int(at.timestamp() * 1_000_000)

    def write(self, connection: sqlite3.Connection) -> None:
        from daemon.store.rows import encode

        at, output = self.at, self.tokens // 9
        connection.execute("INSERT OR IGNORE INTO definition (hash, body) VALUES ('bench', '{}')")
        connection.execute(
            'INSERT INTO run (definition, "trigger", attempt, active, goal, provider, model, '
            "iterations, steps,"
            " id, routine, slot, status, created, started, ended, report, detail, input, output)"
            " VALUES ('bench', 'cron', 1, 3.0, 'Write the report.', 'bench', 'm-1', 2, 6,"
            " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(self.id, self.routine, at, self.status, at, at, at + 3_000_000, self.report),
                *(None if self.status == "succeeded" else "it took too long", self.tokens, output),
            ),
        )
        connection.execute(
            "INSERT INTO slot (routine, first, last, outcome, run_id) VALUES (?, ?, ?, 'ran', ?)",
            (self.routine, at, at, self.id),
        )
        connection.executemany(
            (
                "INSERT INTO step (run_id, seq, kind, iteration, call_id, fence, at, body) VALUES "
                "(?, ?, ?, ?, ?, 1, ?, ?)"
            ),
            [
                (self.id, seq, kind, iteration, call, at + seq * 1000, encode(body))
                for seq, (kind, iteration, call, body) in enumerate(self._steps())
            ],
        )
        connection.executemany(
            "INSERT INTO spending (at, run_id, routine, provider, model, outcome, input, output, "
            "cost)"
            " VALUES (?, ?, ?, 'bench', 'm-1', 'answered', ?, ?, ?)",
            [(at, self.id, self.routine, self.tokens // 2, output // 2, self.tokens * 300)] * 2,
        )
        status, receipt = (
            ("failed", None) if self.status == "failed" else ("delivered", "reports/today.md")
        )
        connection.execute(
            "INSERT INTO outbox (run_id, target, options, zone, status, attempts, created, receipt)"
            " VALUES (?, 'file', '{}', 'UTC', ?, 1, ?, ?)",
            (self.id, status, at, receipt),
        )

    def _steps(self) -> Iterator[tuple[str, int, str | None, Json]]:
        usage = {
            "input": self.tokens // 2,
            "cache_read": 0,
            "cache_write": 0,
            "output": self.tokens // 18,
        }
        system = "You are agentd.\n\nBe careful."
        functions = [{"name": "shell", "description": "run", "parameters": {}}]
        yield "prompt", 0, None, {
            "system": system, "sections": {"identity": 15, "safety": 11}, "functions": functions, (
                "model"
            ): (
                "m-1"
            ),
        }  # fmt: skip
        yield "message", 0, None, {"text": "Write the report.", "source": "goal"}
        answer: Json = {
            "content": "Let me look.",
            "calls": [],
            "finish": "stop",
            "model": "m-1",
            "seconds": 0.5,
        }
        yield "llm", 1, None, answer | {"usage": usage}
        verdict = {"effect": "allow", "rule": "rule 1 (shell)"}
        arguments = {"command": "df -h"}
        yield (
            "call",
            1,
            "1.0",
            {"tool": "shell", "arguments": arguments, "repeatable": True, "verdict": verdict},
        )
        yield (
            "result",
            1,
            "1.0",
            {"tool": "shell", "ok": True, "text": self.report, "seconds": 0.01, "taint": "tainted"},
        )
        yield "llm", 2, None, answer | {"content": self.report, "usage": usage}


def _id(at: datetime, number: int) -> str:
    """Return an id as models.new_id makes them, of this moment."""
    value = int(at.timestamp() * 1000) << 80 | number
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def _report(chance: random.Random) -> str:
    lines = [" ".join(chance.choices(_WORDS, k=12)) for _ in range(chance.randrange(3, 20))]
    return "\n".join([f"# {lines[0]}", *lines[1:]])


def now() -> datetime:
    return datetime.now(UTC)
