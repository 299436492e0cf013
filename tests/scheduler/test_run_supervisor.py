"""What becomes of a run that this process supervises once it has ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from daemon.errors import StoreFull
from daemon.models import Run
from daemon.scheduler.run_queue import RunSupervisor
from daemon.store.journal import Claim, RunMessage
from daemon.testing import TestApp, tool_call

POLICY = 'version = 1\n[[rule]]\ntool = "other__look"\neffect = "allow"\n'
ROUTINE = '[run]\nprompt = "Report."\nmode = "agent"\ntools = ["other__*"]\n'


async def queue_run(app: TestApp) -> Run:
    """Return a queued run of the routine `work`, which this process does not take by itself."""
    claim = Claim(
        routine="work",
        definition=app.daemon.scheduling.engine.routines["work"].dump(),
        trigger="manual",
        slot=app.clock.now(),
        goal="Report.",
        event="by hand",
    )
    (queued_run,) = await app.daemon.store.journal.slots.claim([claim])
    assert queued_run
    return queued_run


def supervisor_of(app: TestApp, journal: Any) -> RunSupervisor:
    """Return a supervisor as a process of a cluster has it."""
    daemon = app.daemon
    return RunSupervisor(
        settings=daemon.settings,
        parts=daemon.runs.parts,
        journal=journal,
        engine=daemon.scheduling.engine,
        conversations=daemon.runs.conversations,
        model_outages=daemon.runs.parts.services.model_outages,
        metrics=daemon.metrics,
        shared=True,
    )


async def test_a_message_that_another_process_took_is_answered_though_nothing_told_of_it(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    app.write_routine("work", ROUTINE)
    async with app:
        daemon, journal = app.daemon, app.daemon.store.journal
        queued_run = await queue_run(app)

        async def look() -> str:
            """Look."""
            assert await journal.runs.send_message(queued_run.id, "And the disks?", event="e")
            return "looked"

        daemon.tools.registry.register("other__look", None, look, read_only=True)
        app.model.enqueue(tool_call("other__look"), "Done.", "The disks are fine.")
        run = await supervisor_of(app, journal).run(queued_run.id)
        assert run and run.report == "Done."
        (answer,) = await journal.runs.find("ask")
        assert (answer.goal, (await app.finish(answer.id)).report) == (
            "And the disks?",
            "The disks are fine.",
        )


class AwayAtTheEnd:
    """The messages of a database that does not answer any more when the run has ended."""

    def __init__(self) -> None:
        self.answers: list[list[RunMessage]] = [[]]

    async def find_messages(self, run: str) -> list[RunMessage]:
        if not self.answers:
            raise StoreFull("it cannot be reached")
        return self.answers.pop()


async def test_a_run_that_has_ended_counts_though_its_messages_cannot_be_read(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write_routine("work", ROUTINE)
    async with app:
        queued_run = await queue_run(app)
        app.model.enqueue("Done.")
        run = await supervisor_of(app, SimpleNamespace(runs=AwayAtTheEnd())).run(queued_run.id)
        assert run and run.report == "Done."
        (line,) = app.log("message.unanswered")
        assert line["run"] == run.id
