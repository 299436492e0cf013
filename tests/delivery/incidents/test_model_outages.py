"""A vendor outage with failover: one alert and one recovery."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from daemon.delivery.incidents.model_outages import ModelOutages
from daemon.models import Status
from daemon.store.database import Database
from daemon.store.incidents import IncidentSettings
from daemon.store.journal import Journal
from tests.fakes.vendor import FakeVendor
from tests.replaying import ReplayedApp

BEGIN = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
CONFIG = """
provider = "far"
[providers.far]
kind = "open_source"
model = "big"
base_url = "{far}/v1"
[providers.near]
kind = "open_source"
model = "small"
base_url = "{near}/v1"
[targets.phone]
kind = "webhook"
url = "http://127.0.0.1:9/phone"
[incidents]
to = ["phone"]
"""
ROUTINE = (
    '[run]\nprompt = "Report."\nmemory = "none"\nfallback = ["near"]\n[[deliver]]\nto = "log"\n'
)


@pytest.fixture
def app(tmp_path: Path) -> ReplayedApp:
    app = ReplayedApp(tmp_path)
    for name in ("one", "two"):
        app.write_routine(name, ROUTINE)
    return app


async def test_outage_noticed_by_many_runs_is_one_incident_until_the_vendor_answers(
    app: ReplayedApp,
) -> None:
    down: list[Any] = [{"error": 401}, {"error": 503}, {"error": 400}]
    async with (
        FakeVendor([*down, "I am back.", "Still here."]) as far,
        FakeVendor(["A"] * 3) as near,
    ):
        app.write("config.toml", CONFIG.format(far=far.url, near=near.url))
        async with app:
            for name in ("one", "two"):
                run = await app.run(name)
                assert (run.status, run.provider) == (Status.SUCCEEDED, "near")
        async with app:  # another process knows of it
            journal = app.journal
            (incident,) = await journal.incidents.find()
            assert (incident.subject, incident.count, incident.targets) == (
                "provider far",
                2,
                ("phone",),
            )
            run = await app.run("one")
            assert run.provider == "far"
            await app.run("two")
        async with app:
            journal = app.journal
            assert await journal.incidents.find() == []
            kinds = [
                delivery.options["notice"]
                for delivery in await journal.outbox.find()
                if delivery.target == "phone"
            ]
            assert sorted(kinds) == ["incident.opened", "incident.recovered"]
            (opening,) = [
                delivery
                for delivery in await journal.outbox.find()
                if delivery.options.get("notice") == "incident.opened"
            ]
            assert (
                "provider far is in trouble" in opening.options["title"]
                and "chain" in opening.options["text"]
            )


async def test_watcher_of_a_run_sees_the_change_of_model(app: ReplayedApp) -> None:
    async with FakeVendor([{"error": 401}]) as far, FakeVendor(["A"]) as near:
        app.write("config.toml", CONFIG.format(far=far.url, near=near.url))
        async with app:
            events = app.daemon.runs.events.follow()
            run = await app.run("one")
            app.daemon.runs.events.close()
            failovers = [event async for event in events if event["type"] == "failed_over"]
            assert [
                (failover["run"], failover["from"], failover["to"]) for failover in failovers
            ] == [(run.id, "far", "near")]


def outages_of(journal: Journal, **more: Any) -> ModelOutages:
    return ModelOutages(
        journal.incidents,
        SimpleNamespace(wake=lambda: None),  # type: ignore[arg-type]
        settings=SimpleNamespace(zone=ZoneInfo("UTC")),  # type: ignore[arg-type]
        **more,
    )


async def wait_for_queue() -> None:
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == "model outages"])


async def test_an_answer_to_one_machine_ends_the_incident_that_another_has_opened(
    tmp_path: Path,
) -> None:
    """Whoever opened it may be gone, or execute nothing for days."""
    moment = 0.0
    database = await Database.open(tmp_path / "agentd.db")
    try:
        journal = Journal(
            database, clock=lambda: BEGIN, incident_settings=IncidentSettings(to=("phone",))
        )
        other = outages_of(journal, shared=True)
        outages = outages_of(journal, shared=True, now=lambda: moment)
        outages.record_answer("far")
        await wait_for_queue()
        other.record_failure("far", "503")
        await other.close()
        outages.record_answer("far")  # the journal is not asked for each answer
        assert await journal.incidents.get_open_subjects() == {"provider far"}
        moment = 60.0
        outages.record_answer("far")
        await outages.close()
        assert await journal.incidents.get_open_subjects() == set()
    finally:
        await database.close()


async def test_outages_that_the_journal_refuses_to_write_are_written_by_the_retry(
    tmp_path: Path,
) -> None:
    """Nor is what was written before the refusal undone."""

    async def execute(statement: str) -> None:
        def work(connection: Connection) -> None:
            connection.execute(statement)

        await database.write(work)

    async def open_incidents() -> dict[str, int]:
        return {incident.subject: incident.count for incident in await journal.incidents.find()}

    database = await Database.open(tmp_path / "agentd.db")
    try:
        journal = Journal(
            database, clock=lambda: BEGIN, incident_settings=IncidentSettings(to=("phone",))
        )
        outages = outages_of(journal)
        await execute(
            "CREATE TRIGGER refuse_insert BEFORE INSERT ON incident"
            " WHEN NEW.subject = 'provider far' BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        outages.record_failure("near", "503")
        outages.record_failure("far", "401")
        await wait_for_queue()
        assert await open_incidents() == {"provider near": 1}
        await execute("DROP TRIGGER refuse_insert")
        outages.record_failure("third", "timeout")  # the queue does not wait for its retry then
        await wait_for_queue()
        assert await open_incidents() == {
            "provider near": 1,
            "provider far": 1,
            "provider third": 1,
        }
        notices = [delivery.options["notice"] for delivery in await journal.outbox.find()]
        assert notices == ["incident.opened"] * 3

        await execute(
            "CREATE TRIGGER refuse_update BEFORE UPDATE ON incident"
            " WHEN NEW.subject = 'provider far' BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        outages.record_answer("near")
        outages.record_answer("far")
        await wait_for_queue()
        assert await open_incidents() == {"provider far": 1, "provider third": 1}
        await execute("DROP TRIGGER refuse_update")
        outages.record_answer("third")
        await wait_for_queue()
        assert await open_incidents() == {}
        await outages.close()
    finally:
        await database.close()
