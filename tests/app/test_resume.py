"""What a start makes of the runs that an earlier process has left."""

from __future__ import annotations

from pathlib import Path

from daemon.app.lifecycle import once
from daemon.models import Status, Step, StepKind
from daemon.store.journal import Claim
from daemon.testing import TestApp


async def test_a_run_with_a_damaged_step_ends_and_keeps_nothing_else_from_starting(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write_routine("hello", '[run]\nprompt = "Say hello."\n')
    async with app:
        journal = app.daemon.store.journal
        routine = app.daemon.scheduling.engine.routines["hello"]
        claim = Claim(
            routine="hello",
            definition=routine.dump(),
            trigger="every",
            slot=app.clock.now(),
            goal="Say hello.",
        )
        await journal.slots.claim([claim])
        (queued_run,) = await journal.runs.find("hello")
        damaged_run = await journal.runs.claim(queued_run.id, owner="dead")
        assert damaged_run
        await journal.runs.append(damaged_run, Step(kind=StepKind.PROMPT, iteration=0, body={}))
        await journal._db.write(
            lambda connection: connection.execute("UPDATE step SET body = 'x no JSON'")
        )
    async with app:
        app.model.enqueue("Hello.")
        assert (await once(app.daemon, "hello")).report == "Hello."
        run = await app.daemon.store.journal.runs.get(damaged_run.id)
        assert run.status is Status.FAILED
        assert "step 0 (prompt) of the run is damaged" in (run.detail or "")
