"""What a run is told of the time between its slot and its start."""

from datetime import timedelta

from daemon.store.journal import Claim
from daemon.testing import TestApp

HOURLY = '[trigger]\nevery = "1h"\nspread = "50m"\n[run]\nprompt = "Report."\n'


async def test_a_run_is_late_only_by_what_exceeds_its_spread(tmp_path):
    app = TestApp(tmp_path)
    app.write_routine("work", HOURLY)
    async with app:
        engine, slots = app.daemon.scheduling.engine, app.daemon.store.journal.slots
        routine, slot = engine.routines["work"], app.clock.now()
        delay = engine.schedule(routine).delay
        for late in (timedelta(), timedelta(minutes=5)):
            app.clock.move_to(slot + delay + late)
            claim = Claim(
                routine="work",
                definition=routine.dump(),
                trigger="every",
                slot=slot,
                goal="Report.",
            )
            (run,) = await slots.claim([claim])
            app.model.enqueue("Done.")
            await app.daemon.runs.queue.submit(run)
            await app.finish(run.id)
            slot += timedelta(hours=1)
        on_time, late = (call.messages[0].content for call in app.model.calls)
        assert "Scheduled for" not in on_time
        assert "(5 min late)" in late
