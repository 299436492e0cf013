"""What a start makes of the runs that an earlier process has left."""

from __future__ import annotations

from pathlib import Path

from daemon.app.lifecycle import once
from daemon.models import Status, Step, StepKind
from daemon.store.connection import Connection
from daemon.store.journal import Claim
from daemon.store.rows import to_microseconds
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


async def test_a_message_to_a_run_that_is_not_resumed_is_answered(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine("hello", '[trigger]\nevery = "1h"\n[run]\nprompt = "Say hello."\n')
    async with app:
        runs = app.daemon.store.journal.runs
        claim = Claim(
            routine="hello",
            definition=app.daemon.scheduling.engine.routines["hello"].dump(),
            trigger="every",
            slot=app.clock.now(),
            goal="Say hello.",
        )
        await app.daemon.store.journal.slots.claim([claim])
        (queued_run,) = await runs.find("hello")
        assert await runs.claim(queued_run.id, owner="dead")
        assert await runs.send_message(queued_run.id, "In French.", event="e")
    app.clock.advance(days=2)
    async with app:
        app.model.enqueue("Hello.", "Hello.")
        await once(app.daemon, "hello")
        runs = app.daemon.store.journal.runs
        assert (await runs.get(queued_run.id)).status is Status.INTERRUPTED
        assert [run.goal for run in await runs.find("ask")] == ["In French."]


async def test_damaged_steps_of_one_run_keep_no_message_to_another_run_unanswered(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write_routine("hello", '[run]\nprompt = "Say hello."\n')
    async with app:
        app.model.enqueue("Hello.", "Hello.")
        damaged_run, run = [await app.run("hello") for _ in range(2)]
        at = to_microseconds(app.clock.now())

        def leave_messages(connection: Connection) -> None:
            connection.executemany(
                "INSERT INTO told (run_id, event, text, at) VALUES (?, 'e', 'In French.', ?)",
                [(damaged_run.id, at), (run.id, at)],
            )
            connection.execute(
                "UPDATE step SET body = 'x no JSON' WHERE run_id = ?", (damaged_run.id,)
            )

        await app.daemon.store.journal._db.write(leave_messages)
    async with app:
        app.model.enqueue("Bonjour.")
        await app.daemon.runs.conversations.answer_messages_left()
        (answer,) = await app.daemon.store.journal.runs.find("ask")
        assert (await app.finish(answer.id)).report == "Bonjour."
        (line,) = app.log("message.unanswered")
        assert line["run"] == damaged_run.id
