"""A journal, a fake clock, and runs that end with deliveries."""

from datetime import UTC, datetime

import pytest

from daemon.models import Delivery, DeliveryStatus, Report, Run, Status, new_id
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database

SLOT = datetime(2026, 11, 20, 7, 30, tzinfo=UTC)


@pytest.fixture
def clock():
    return FakeClock(SLOT)


@pytest.fixture
async def journal(tmp_path, clock):
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield Journal(database, clock=clock.now)
    await database.close()


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def end_run(journal, clock):
    """End a run with deliveries: `await ended([("file", {"path": …})], report=…)`."""

    async def end(
        deliveries,
        *,
        routine="daily-report",
        status=Status.SUCCEEDED,
        report="All is well.",
        **more,
    ) -> Run:
        claim = Claim(
            routine=routine,
            definition="{}",
            trigger="manual",
            slot=clock.now(),
            goal="g",
            event=new_id(),
        )
        [run] = await journal.slots.claim([claim])
        run = await journal.runs.claim(run.id, owner="me")
        return await journal.runs.end(
            run.to(status, report=report, **more), deliveries, zone="Europe/Berlin"
        )

    return end


@pytest.fixture
def delivery():
    """Make a delivery as the journal would return it."""

    def make(
        text="All is well.",
        *,
        id_=1,
        run="01JAAAAAAAAAAAAAAAAAAAAAAA",
        target="file",
        status=Status.SUCCEEDED,
        **options,
    ):
        report = Report(
            run=run,
            routine="daily-report",
            slot=SLOT,
            status=status,
            text=text,
            scheduled_zone="Europe/Berlin",
        )
        whole = {"path": "reports/{routine}/{slot:%Y-%m-%d}.md", "trigger": "cron"} | options
        return Delivery(
            id=id_,
            run=run,
            routine=report.routine,
            target=target,
            options=whole,
            status=DeliveryStatus.PENDING,
            attempts=0,
            created=SLOT,
            next_at=SLOT,
            receipt=None,
            error=None,
            report=report,
        )

    return make
