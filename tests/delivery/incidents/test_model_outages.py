"""A vendor outage with failover: one alert and one recovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.models import Status
from tests.fakes.vendor import FakeVendor
from tests.replaying import ReplayedApp

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
