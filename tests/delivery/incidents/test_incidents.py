"""A database that refuses writes for a while delays runs and loses nothing: no tool starts on an
unwritten step.

The troubles are real ones where they can be made: SQLite's own "full", a lock that another program
holds. Only the disk's own error is raised in its place.
"""

from __future__ import annotations

import logging
import resource
import shutil
import sqlite3
import subprocess
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from daemon.delivery.channels.file import FileChannel
from daemon.delivery.outbox import Outbox
from daemon.models import DeliveryStatus
from daemon.store.database import Database
from tests.crash.checks import check, outcome
from tests.crash.process import Process, scenario_in, settle
from tests.delivery.conftest import clock, end_run, journal, workspace  # noqa: F401  fixtures

SCRIPT = [("look", "look", "act"), ("act", "sign", "redo"), ("act", "look")]


class Sick(Database):
    """A database that takes none of a few writes in a row, for a reason that is true."""

    trouble, first, lasts = "", -1, 0
    writes = refusals = 0
    _lock_holder: sqlite3.Connection | None = None

    def submit(self, work, *, durable=False, lazily=False):
        number, self.writes = self.writes, self.writes + 1
        if self.first < 0 or number < self.first or self.refusals >= self.lasts:
            self._let_go()
            return super().submit(work, durable=durable, lazily=lazily)
        self.refusals += 1
        return super().submit(getattr(self, self.trouble)(work), durable=durable, lazily=lazily)

    def full(self, work):
        def fill_and_write(connection):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
            try:
                connection.execute("INSERT INTO meta VALUES ('filler', zeroblob(10000000))")
            finally:
                connection.execute("PRAGMA max_page_count = 1000000")

        return fill_and_write

    def busy(self, work):
        if self._lock_holder is None:
            self._lock_holder = sqlite3.connect(
                self.path, isolation_level=None, timeout=20, check_same_thread=False
            )
            self._lock_holder.execute("BEGIN IMMEDIATE")
        return work

    def ioerr(self, work):
        def fail(connection):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

        return fail

    def _let_go(self):
        if self._lock_holder is not None:
            self._lock_holder.close()
            self._lock_holder = None


@pytest.fixture
def quiet():
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "fault_text"),
    [
        ("full", "the disk is full; make room"),
        ("busy", "another program holds a lock"),
        ("ioerr", "check the space"),
    ],
)
async def test_run_waits_during_a_database_fault_and_continues_at_the_same_step(
    tmp_path, quiet, trouble, fault_text
):
    settings = await settle(tmp_path)

    async def execute(name, first=-1, lasts=0):
        scenario = scenario_in(tmp_path / name, settings, SCRIPT)
        database = await Sick.open(scenario.file)
        await database.run_outside_transaction(
            lambda connection: connection.execute("PRAGMA busy_timeout = 1").fetchone()
        )
        process = Process(scenario, settings, database)
        process.run_contexts.full_disk_retry = 0.001
        await process.memory.open()
        queued_run = await process.open_run()
        database.trouble, database.lasts, database.writes = trouble, lasts, 0
        database.first = first
        await process.executor.submit(queued_run)
        run = await process.until_ended(queued_run)
        await process.outbox.flush()
        await database.close()
        return scenario, run, database

    scenario, run, database = await execute("well")
    expected, writes = outcome(scenario, run), database.writes
    scenario.close()
    for first in range(len(trouble) % 2, writes - 3, 2):  # the last are of deliveries, see below
        with capture_logs() as logs:
            scenario, run, database = await execute(f"from {first}", first, lasts=1 + first % 3)
        failures = [
            line for line in logs if line["event"] in ("run.write_failed", "run.claim_failed")
        ]
        assert database.refusals
        assert all(
            fault_text in line["detail"] or "an earlier step" in line["detail"] for line in failures
        ), failures
        check(scenario, run, expected, deaths=database.refusals)
        scenario.close()
        shutil.rmtree(scenario.folder)


# --- a report that finds no room


@contextmanager
def no_room_in(folder: Path):
    """Let no file of this process grow: what it is told is 'File too large' where a full disk says
    so otherwise.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class CrampedChannel:
    """The channel of files, on a disk that has no room yet."""

    def __init__(self, folder, room):
        self._inner, self._room, self.is_cramped = FileChannel(folder), room, True

    async def send(self, delivery):
        if not self.is_cramped:
            return await self._inner.send(delivery)
        with self._room():
            return await self._inner.send(delivery)


async def test_report_without_disk_space_waits_in_the_outbox_and_arrives_later(
    journal,  # noqa: F811
    end_run,  # noqa: F811
    workspace,  # noqa: F811
    clock,  # noqa: F811
):
    channel = CrampedChannel(workspace, lambda: no_room_in(workspace))
    await _arrives_when_there_is_room(journal, end_run, workspace, clock, channel, lambda: None)


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("mount"), reason="root: needs mount: apt-get install mount")
async def test_a_report_is_delivered_once_a_full_disk_has_room(
    journal,  # noqa: F811
    end_run,  # noqa: F811
    workspace,  # noqa: F811
    clock,  # noqa: F811
):
    result = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", workspace],
        check=False,
        capture_output=True,
    )
    if result.returncode:
        pytest.skip("this container may mount nothing")
    try:
        filler = workspace / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"x" * 100_000)
        await _arrives_when_there_is_room(
            journal, end_run, workspace, clock, FileChannel(workspace), filler.unlink
        )
    finally:
        subprocess.run(["umount", "-l", workspace], check=True)


async def _arrives_when_there_is_room(journal, end_run, workspace, clock, channel, make_room):  # noqa: F811
    outbox = Outbox(journal=journal, channel=lambda name: channel, clock=clock)
    run = await end_run([("file", {"path": "report.md"})], report="All is well. " * 500)
    await outbox.flush()
    (delivery,) = await journal.outbox.find(run=run.id)
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.PENDING, 1)
    assert "space left" in delivery.error or "too large" in delivery.error
    assert list(workspace.rglob("*.md")) == []
    make_room()
    if isinstance(channel, CrampedChannel):
        channel.is_cramped = False
    clock.move_to(clock.now() + timedelta(seconds=31))
    await outbox.flush()
    (arrived_delivery,) = await journal.outbox.find(run=run.id)
    assert arrived_delivery.status is DeliveryStatus.DELIVERED
    assert (workspace / "report.md").read_text().count("All is well.") == 500
