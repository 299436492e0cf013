"""A full disk is an open incident until the database accepts writes again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from daemon.api.incidents import list_incidents
from daemon.api.status import show_status
from daemon.app.api_context import api_context
from daemon.delivery.incidents.full_disk import FullDiskIncident
from daemon.errors import StoreFull
from daemon.store.database import Database
from daemon.store.incidents import IncidentSettings
from daemon.store.journal import Journal
from tests.replaying import ReplayedApp

BEGIN = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


@pytest.fixture
async def database(tmp_path):
    database = await Database.open(tmp_path / "agentd.db")
    yield database
    await database.close()


async def limit(database, pages):
    await database.run_outside_transaction(
        lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    )


async def fill_up(database, journal):
    """Let SQLite itself say that there is no more room."""
    await limit(database, 1)  # which means: no more than there are
    with pytest.raises(StoreFull, match="the disk is full; make room"):
        await journal.key_values.put("filler", "x" * 1_000_000)


async def until(true):
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


async def test_a_full_disk_is_an_open_incident_until_there_is_room(database):
    now = [BEGIN]
    journal = Journal(
        database, clock=lambda: now[0], incident_settings=IncidentSettings(to=("mail",))
    )
    wakeups = []
    incident = FullDiskIncident(
        journal,
        SimpleNamespace(wake=lambda: wakeups.append(True)),
        clock=SimpleNamespace(now=lambda: now[0]),
        retry=0.01,
    )
    database.when_refused = incident.record
    await fill_up(database, journal)
    await until(lambda: journal.incidents.unwritten and journal.incidents.unwritten.count > 2)
    (lasting,) = await journal.incidents.find()
    assert (lasting.subject, lasting.opened, lasting.closed) == ("database", BEGIN, None)
    assert "the disk is full; make room" in lasting.detail
    wakeups.clear()

    now[0] = BEGIN.replace(hour=9)
    await limit(database, 1_000_000)
    await until(lambda: wakeups)
    assert await journal.incidents.find() == []
    (over,) = await journal.incidents.find(closed=True)
    assert (over.subject, over.opened, over.closed) == ("database", BEGIN, now[0])
    titles = [delivery.options["title"] for delivery in await journal.outbox.find()]
    assert sorted(titles) == ["database is in trouble", "database works again"]

    await fill_up(database, journal)
    await until(lambda: journal.incidents.unwritten)
    await incident.close()


async def test_status_and_incidents_report_a_full_disk(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write("config.toml", "")
    async with app:
        database = app.daemon.store.database
        await fill_up(database, app.journal)
        await until(lambda: app.journal.incidents.unwritten)
        api = api_context(app.daemon)
        for incidents in (
            (await list_incidents(api))["items"],
            (await show_status(api))["incidents"],
        ):
            assert [(incident["subject"], incident["closed"]) for incident in incidents] == [
                ("database", None)
            ]
            assert "the disk is full" in incidents[0]["detail"]
        await limit(database, 1_000_000)
        (line,) = app.log("store.refused")
        assert "the disk is full" in line["detail"]
