"""What a run, its readers and the metrics are told of the time between its slot and its start."""

from datetime import datetime, timedelta

from daemon.delivery.message import compose
from daemon.store.journal import Claim
from daemon.testing import TestApp

HOURLY = (
    '[trigger]\nevery = "1h"\nspread = "50m"\n[run]\nprompt = "Report."\n[[deliver]]\nto = "log"\n'
)


async def run_slot(app: TestApp, slot: datetime, start: datetime) -> tuple[str, str]:
    """Let the slot of the routine start at a moment; return the prompt, and what the message says
    about the run.
    """
    journal = app.daemon.store.journal
    app.clock.move_to(start)
    claim = Claim(
        routine="work",
        definition=app.daemon.scheduling.engine.routines["work"].dump(),
        trigger="every",
        slot=slot,
        goal="Report.",
    )
    (run,) = await journal.slots.claim([claim])
    app.model.enqueue("Done.")
    await app.daemon.runs.queue.submit(run)
    await app.finish(run.id)
    (delivery,) = await journal.outbox.find(run=run.id)
    return app.model.calls[-1].messages[0].content, compose(delivery).about


async def test_a_run_is_late_only_by_what_exceeds_its_spread(tmp_path):
    app = TestApp(tmp_path)
    app.write_routine("work", HOURLY)
    async with app:
        engine, slot = app.daemon.scheduling.engine, app.clock.now()
        delay = engine.schedule(engine.routines["work"]).delay
        on_time, about = await run_slot(app, slot, slot + delay)
        assert "Scheduled for" not in on_time
        assert "late" not in about
        assert app.daemon.runs.supervisor.metrics.lateness.total == 0
        slot += timedelta(hours=1)
        late, about = await run_slot(app, slot, slot + delay + timedelta(minutes=5))
        assert "(5 min late)" in late
        assert ", 5 min late" in about
        assert app.daemon.runs.supervisor.metrics.lateness.total == 300


async def test_a_slot_before_the_start_of_the_daemon_is_not_missed_if_its_spread_ends_later(
    tmp_path,
):
    app = TestApp(tmp_path)
    app.write_routine("work", HOURLY)
    async with app:
        engine = app.daemon.scheduling.engine
        delay = engine.schedule(engine.routines["work"]).delay
        slot = app.clock.now() - delay / 2
        late, _ = await run_slot(app, slot, slot + delay + timedelta(minutes=5))
        assert "(5 min late)" in late, "and not that the daemon was down"
