"""A vendor that does not answer while runs go on without it: one alert, one word when it is
back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.models import Status
from tests.fakes.vendor import FakeVendor
from tests.inside import Home

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
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    for name in ("one", "two"):
        made.routine(name, ROUTINE)
    return made


async def test_however_many_runs_notice_an_outage_it_is_one_incident_and_over_when_the_vendor_answers(  # noqa: E501
    home: Home,
) -> None:
    down: list[Any] = [{"error": 401}, {"error": 503}, {"error": 400}]
    async with (
        FakeVendor([*down, "I am back.", "Still here."]) as far,
        FakeVendor(["A"] * 3) as near,
    ):
        home.write("config.toml", CONFIG.format(far=far.url, near=near.url))
        async with home.open() as daemon:
            for name in ("one", "two"):
                run = await daemon.run(name)
                assert (run.status, run.provider) == (Status.SUCCEEDED, "near")
        async with home.open() as daemon:  # another process knows of it
            journal = daemon.journal
            (incident,) = await journal.incidents()
            assert (incident.subject, incident.count, incident.targets) == (
                "provider far",
                2,
                ("phone",),
            )
            run = await daemon.run("one")
            assert run.provider == "far"
            await daemon.run("two")
        async with home.open() as daemon:
            journal = daemon.journal
            assert await journal.incidents() == []
            sent = [
                each.options["notice"]
                for each in await journal.deliveries()
                if each.target == "phone"
            ]
            assert sorted(sent) == ["incident.opened", "incident.recovered"]
            (opened,) = [
                each
                for each in await journal.deliveries()
                if each.options.get("notice") == "incident.opened"
            ]
            assert (
                "provider far is in trouble" in opened.options["title"]
                and "chain" in opened.options["text"]
            )


async def test_whoever_watches_a_run_sees_that_another_model_is_asked(home: Home) -> None:
    async with FakeVendor([{"error": 401}]) as far, FakeVendor(["A"]) as near:
        home.write("config.toml", CONFIG.format(far=far.url, near=near.url))
        async with home.open() as daemon:
            events = daemon.app.runs.events.follow()
            run = await daemon.run("one")
            daemon.app.runs.events.close()
            told = [event async for event in events if event["type"] == "failed_over"]
            assert [(each["run"], each["from"], each["to"]) for each in told] == [
                (run.id, "far", "near")
            ]
