"""What becomes of a run that this process supervises once it has ended."""

from __future__ import annotations

from pathlib import Path

from daemon.scheduler.run_queue import RunSupervisor
from daemon.store.journal import Claim
from daemon.testing import TestApp, tool_call

POLICY = 'version = 1\n[[rule]]\ntool = "other__look"\neffect = "allow"\n'
ROUTINE = '[run]\nprompt = "Report."\nmode = "agent"\ntools = ["other__*"]\n'


async def test_a_message_that_another_process_took_is_answered_though_nothing_told_of_it(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    app.write_routine("work", ROUTINE)
    async with app:
        daemon, journal = app.daemon, app.daemon.store.journal
        claim = Claim(
            routine="work",
            definition=daemon.scheduling.engine.routines["work"].dump(),
            trigger="manual",
            slot=app.clock.now(),
            goal="Report.",
            event="by hand",
        )
        (queued_run,) = await journal.slots.claim([claim])
        assert queued_run

        async def look() -> str:
            """Look."""
            assert await journal.runs.send_message(queued_run.id, "And the disks?", event="e")
            return "looked"

        daemon.tools.registry.register("other__look", None, look, read_only=True)
        app.model.enqueue(tool_call("other__look"), "Done.", "The disks are fine.")
        supervisor = RunSupervisor(
            settings=daemon.settings,
            parts=daemon.runs.parts,
            journal=journal,
            engine=daemon.scheduling.engine,
            conversations=daemon.runs.conversations,
            model_outages=daemon.runs.parts.services.model_outages,
            metrics=daemon.metrics,
            shared=True,
        )
        run = await supervisor.run(queued_run.id)
        assert run and run.report == "Done."
        (answer,) = await journal.runs.find("ask")
        assert (answer.goal, (await app.finish(answer.id)).report) == (
            "And the disks?",
            "The disks are fine.",
        )
