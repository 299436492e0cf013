"""A daemon at work while something is done to it, and what is broken at the end."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from daemon.store.rows import decode
from tests.acceptance.story import ProcessHome
from tests.acceptance.test_story import AGENT, EFFECT, POLICY, config, effects
from tests.fakes.vendor import VendorProcess

TICKS, WORKERS = 3, 2
# Seconds between the slots of a routine without a model, and of one that asks one.
TICK, WORK = 2, 3
# Seconds in which everything ends once the faults are over, on a machine with other work.
SETTLE = 180.0
# Slots at the end that may not be taken yet, as others load the machine.
TAIL = 10
SECOND = 1_000_000

TICK_ROUTINE = f"""
[trigger]
every = "{TICK}s"
[run]
mode = "script"
[[gather]]
name = "load"
tool = "sysinfo"
args = {{ parts = ["load"] }}
[[deliver]]
to = "file"
path = "reports/{{routine}}.md"
"""
# So often killed before its first step, a run would be given up as one that kills the daemon.
WORK_ROUTINE = f'{AGENT}\n[trigger]\nevery = "{WORK}s"\n[run.retry]\nattempts = 1000\n'


@dataclass(kw_only=True)
class Broken:
    """What a part has done, and what it has broken."""

    lost: int = 0
    twice: int = 0
    stuck: int = 0
    asked_again: int = 0
    silent: int = 0
    slots: int = 0
    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to the daemons, and how often."""
    examples: list[str] = field(default_factory=list)
    """What was broken, in words: the first of each kind."""

    def add(self, column: str, count: int, example: str) -> None:
        if count > 0:
            setattr(self, column, getattr(self, column) + count)
            self.examples.append(f"{column}: {count} x {example}")

    def __iadd__(self, other: Broken) -> Self:
        for column in (*COLUMNS, "slots", "runs"):
            setattr(self, column, getattr(self, column) + getattr(other, column))
        self.faults += other.faults
        self.examples += other.examples
        return self

    @property
    def is_broken(self) -> bool:
        return any(getattr(self, column) for column in COLUMNS)


COLUMNS = ("lost", "twice", "stuck", "asked_again", "silent")


class Storm:
    """A daemon with routines that are due every few seconds, and a vendor that logs."""

    def __init__(self, folder: Path, *, seed: int | None = None) -> None:
        folder.mkdir(parents=True)
        self.home = ProcessHome(folder)
        self.lot = random.Random(seed)
        self.breaches = Broken()
        self._log = folder / "requests.jsonl"
        self.is_clock_right = True
        """Whether the daemon has the vendor's clock, so that moments can be compared."""

    async def __aenter__(self) -> Self:
        # what a program printed is in the report that the next run is shown, which would ask before
        # it changes anything
        trust = "".join(
            f'[routine.work-{number}]\ntainted_tools = ["shell"]\n' for number in range(WORKERS)
        )
        allow = '[[rule]]\ntool = "sysinfo"\neffect = "allow"\n'
        self.home.write("policy.toml", f"{POLICY}\n{allow}{trust}")
        for number in range(TICKS):
            self.home.routine(f"tick-{number}", TICK_ROUTINE)
        for number in range(WORKERS):
            self.home.routine(f"work-{number}", WORK_ROUTINE)
        self.vendor = VendorProcess(
            [EFFECT, "Done."], by="conversation", latency=0.05, log=self._log
        )
        self.vendor.__enter__()
        self.home.write("config.toml", config(self.vendor))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.home.is_running:
            await self.home.kill()
        self.vendor.__exit__(None, None, None)

    def note(self, fault: str) -> None:
        self.breaches.faults[fault] += 1

    async def calm(self, seconds: float) -> None:
        """Let the daemon work undisturbed, about so long."""
        await asyncio.sleep(self.lot.uniform(0.3, 1.7) * seconds)

    # --- the end

    async def settle(self) -> Broken:
        """Wait until all that was begun has ended, stop the daemon, and count what is broken."""
        if not self.home.is_running:
            await self.home.start()
        # routines stand still, so that what is under way can end
        paused_at = time.time()
        result = await self.home.agentctl("pause", "--all")
        self.breaches.add("silent", result.code != 0, f"pause: {result.err}")
        until = time.monotonic() + SETTLE
        while self._active() and time.monotonic() < until:
            await asyncio.sleep(0.3)
        for activity in self._active():
            self.breaches.add("stuck", 1, activity)
        code = await self.home.stop()
        self.breaches.add("silent", code != 0, f"the stop ended with {code}")
        self._count_slots(paused_at)
        self._count_effects()
        self._count_questions()
        self._count_silent()
        return self.breaches

    def rows(self, query: str) -> list[Any]:
        path = (self.home.state / "agentd.db").absolute().as_uri() + "?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def _active(self) -> list[str]:
        runs = self.rows(
            "SELECT routine || ' run ' || id || ' is ' || status || coalesce(': ' || detail, '')"
            " FROM run WHERE ended IS NULL"
        )
        deliveries = self.rows(
            "SELECT 'delivery ' || id || ' to ' || target || ' is pending: ' || coalesce(error, '')"
            " FROM outbox WHERE status = 'pending'"
        )
        return [text for (text,) in (*runs, *deliveries)]

    def _count_slots(self, paused_at: float) -> None:
        """Compare the ledger with the schedule: slots have no gap, from the first to the last."""
        intervals = {f"tick-{number}": TICK for number in range(TICKS)}
        intervals |= {f"work-{number}": WORK for number in range(WORKERS)}
        # A slot behind that moment ran by a clock that was ahead; those before it are to come.
        now = int(paused_at * SECOND)
        for routine, interval in intervals.items():
            step = interval * SECOND
            rows = self.rows(
                f"SELECT first, last, count FROM slot WHERE routine = '{routine}'"
                f" AND event IS NULL AND first <= {now} ORDER BY first"
            )
            if not rows:
                self.breaches.add("lost", 1, f"{routine} has no slot at all")
                continue
            expected = rows[0][0]
            for first, last, count in rows:
                self.breaches.add("lost", (first - expected) // step, f"{routine} before {first}")
                self.breaches.add("twice", (expected - first) // step, f"{routine} at {first}")
                self.breaches.add("lost", (last - first) // step + 1 - count, f"{routine} in a row")
                self.breaches.slots += count
                expected = last + step
            behind = (now - expected) // step
            self.breaches.add("lost", behind - TAIL, f"{routine} took nothing at the end")
        runs = self.rows(
            "SELECT count(*) FROM run WHERE event IS NULL GROUP BY routine, slot"
            " HAVING count(*) > 1"
        )
        self.breaches.add("twice", len(runs), "a slot with two runs")
        ((self.breaches.runs,),) = self.rows("SELECT count(*) FROM run")

    def _count_effects(self) -> None:
        """Compare what programs did with what results say, and reports with deliveries."""
        results = [
            decode(bytes(body))
            for (body,) in self.rows(
                "SELECT body FROM step JOIN run ON run.id = run_id"
                " WHERE kind = 'result' AND routine LIKE 'work-%'"
            )
        ]
        unknown = sum("outcome unknown" in body["text"] for body in results)
        success_count = sum(body["ok"] for body in results)
        effect_count = len(effects(self.home))
        self.breaches.add("lost", success_count - effect_count, "an effect that a result speaks of")
        self.breaches.add("twice", effect_count - success_count - unknown, "an effect")
        reports = self.rows(
            "SELECT routine FROM run WHERE status = 'succeeded' AND silent = 0 AND event IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM outbox WHERE run_id = run.id)"
        )
        self.breaches.add("lost", len(reports), "a report without a delivery")

    def _count_questions(self) -> None:
        """Find questions whose answer was recorded: a first one by the number of attempts, a second
        one by the call that it holds and the moment at which its answer was recorded, or the number
        of attempts where moments say nothing.
        """
        call_ids: set[str] = set()
        answered_at: dict[str, float] = {}
        last_call: dict[str, str] = {}
        attempts_left: Counter[str] = Counter()
        for run, attempt, body, at in self.rows(
            "SELECT run_id, attempt, body, at FROM step JOIN run ON run.id = run_id"
            " WHERE kind = 'llm' AND routine LIKE 'work-%' ORDER BY run_id, seq"
        ):
            if run in last_call:
                answered_at[last_call[run]] = at / SECOND
            for call in decode(bytes(body)).get("calls", ()):
                call_ids.add(call["id"])
                last_call[run] = call["id"]
                attempts_left[call["id"]] = attempt
        first_questions = again = strange = 0
        for request in self.vendor.requests():
            messages = request["body"].get("messages", ())
            ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
            if not ids:
                first_questions += 1
            elif ids[-1] not in call_ids:
                strange += 1
            elif self.is_clock_right:
                again += request["at"] > answered_at.get(ids[-1], float("inf"))
            else:
                attempts_left[ids[-1]] -= 1
                again += attempts_left[ids[-1]] < 0
        ((attempts,),) = self.rows(
            "SELECT coalesce(sum(attempt), 0) FROM run WHERE routine LIKE 'work-%'"
        )
        self.breaches.add("asked_again", first_questions - attempts, "a first question")
        self.breaches.add("asked_again", again, "a question whose answer was recorded")
        self.breaches.add("asked_again", strange, "with a call that is not in the journal")

    def _count_silent(self) -> None:
        runs = self.rows(
            "SELECT routine, status FROM run WHERE coalesce(detail, '') = ''"
            " AND status NOT IN ('succeeded', 'running', 'queued', 'waiting')"
        )
        self.breaches.add("silent", len(runs), f"an end without a word {runs[:1]}")
        slots = self.rows(
            "SELECT routine, outcome FROM slot WHERE outcome IN ('missed', 'skipped')"
            " AND coalesce(reason, '') = ''"
        )
        self.breaches.add("silent", len(slots), f"a slot without a reason {slots[:1]}")


def table(results: Sequence[tuple[str, float, Broken]]) -> str:
    """Return the results as a table in Markdown."""
    columns = ("part", "seconds", "done to it", "slots", "runs", *COLUMNS)
    lines = [f"| {' | '.join(columns).replace('_', ' ')} |", "|---" * len(columns) + "|"]
    for name, seconds, breaches in results:
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(breaches.faults.items()))
        counts = " | ".join(str(getattr(breaches, column)) for column in COLUMNS)
        lines.append(
            f"| {name} | {seconds:.0f} | {faults} | {breaches.slots} | {breaches.runs} | {counts} |"
        )
    return "\n".join(lines)
