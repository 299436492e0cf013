"""A newer version replaces an older version, machine by machine, while runs are active.

The newer one is a copy of this, with a number of its own, a migration more, a key more in what it
writes of routines and one more in each step, of which this version knows nothing. Both are real
processes, on one PostgreSQL or one file.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.cluster.site import POLICY, WORK, Process, Site
from tests.acceptance.cluster.test_cluster import wait_for_end, wait_for_mark
from tests.acceptance.story import ROOT, ProcessHome, Vendor
from tests.acceptance.test_story import AGENT, EFFECT, config, effects
from tests.acceptance.test_story import POLICY as EFFECTS
from tests.fakes.vendor import VendorProcess

pytestmark = pytest.mark.timeout(600)

NEXT = "7.0.0"
MIGRATION = """
ALTER TABLE run ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';
CREATE TABLE later (id INTEGER NOT NULL PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO later VALUES (1, 'of a newer version');
"""
CHANGES = (
    ("__init__.py", '__version__ = "', f'__version__ = "{NEXT}"  # "'),
    (
        "definitions/routines/routine.py",
        'class RunSpec(Table):\n    """What to do."""\n',
        '\n    mood: str = "calm"\n',
    ),
    (
        "store/runs.py",
        "[encode(step)",
        '[encode(replace(step, body={**step.body, "mood": "calm"}))',
    ),
)
LONG = {"tool_calls": [{"name": "mark", "arguments": {"seconds": 600}}]}


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the newer version."""
    root = tmp_path_factory.mktemp("newer")
    package = root / "daemon"
    shutil.copytree(ROOT / "daemon", package)  # with what is compiled, but for the files below
    for folder in ("store/sql", "store/postgres/sql"):
        (package / folder / "900_later.sql").write_text(MIGRATION)
    for name, before, after in CHANGES:
        text = (package / name).read_text("utf-8")
        assert text.count(before) == 1, f"{name} has changed: this test makes a newer version of it"
        (package / name).write_text(
            text.replace(before, before + after if after[0] == "\n" else after), "utf-8"
        )
    return root


def upgrade(process: Process, newer: Path) -> Process:
    process.root = newer
    return process


async def test_two_versions_share_a_database_and_finish_each_others_runs(tmp_path, postgres, newer):
    name = postgres.create()
    with VendorProcess([LONG, "Done."], by="conversation") as vendor:
        site = Site(tmp_path, postgres.url(name), vendor.url)
        try:
            await _upgrade(site, newer)
        finally:
            await site.close()
            postgres.drop(name)


async def _upgrade(site: Site, newer: Path) -> None:
    site.write("policy.toml", f'{POLICY}[routine.work]\ntainted_tools = ["mark"]\n')
    for name in ("work", "other", "third"):
        site.routine(name, "", WORK.replace("[run]\n", '[run]\nmemory = "none"\n'))
    old, old_worker = (
        site.daemon("old"),
        site.worker("old-worker", extra='[daemon]\ngrace = "0.001s"\n'),
    )
    new, new_worker = site.daemon("new"), site.worker("new-worker")
    upgrade(new, newer)
    upgrade(new_worker, newer)
    await asyncio.gather(old.start(), old_worker.start())

    # the newer one brings the tables up to date while a run of the older one is under way
    run = (await old.agentctl("run", "work", "--detach")).out.strip()
    await wait_for_mark(site)
    await new.start()
    site.let_go()
    assert (await wait_for_end(old, run))["status"] == "succeeded"
    versions = {
        (worker["kind"], worker["version"])
        for worker in (await old.agentctl("status", "--json")).json["workers"]
    }
    assert {kind for kind, version in versions if version != NEXT} == {"daemon", "worker"}
    assert ("daemon", NEXT) in versions

    # what the older one cannot read it leaves to the newer one, and says so
    newer_run = (await new.agentctl("run", "other", "--detach")).out.strip()
    async with asyncio.timeout(120):
        while not (log_lines := old_worker.log("run.passed_on")):
            await asyncio.sleep(0.1)
    assert (log_lines[0]["run"], log_lines[0]["lacking"]) == (
        newer_run,
        ["a version that can read its definition"],
    )
    assert (await old.agentctl("inspect", newer_run, "--json")).json["status"] == "queued"

    # a run that the older worker began, and was stopped in the middle of, goes on under the newer
    # one
    site.hold_up()
    older_run = (await old.agentctl("run", "third", "--detach")).out.strip()
    async with asyncio.timeout(120):
        while len(site.marks()) < 2:
            await asyncio.sleep(0.05)
    assert await old_worker.stop() == 0
    site.let_go()
    await new_worker.start()
    assert (await wait_for_end(new, older_run))["status"] == "succeeded"
    assert (await wait_for_end(old, newer_run))["status"] == "succeeded"
    assert set(site.marks().values()) == {1}, "a tool was started twice"
    run_view = (await old.agentctl("inspect", older_run, "--json")).json
    assert [
        "outcome unknown" in step["body"]["text"]
        for step in run_view["steps"]
        if step["kind"] == "result"
    ] == [True]
    moods = [step["body"].get("mood") for step in run_view["steps"]]
    assert (moods[0], moods[-1]) == (None, "calm")
    assert {line["run"] for line in new_worker.log("run.started")} == {older_run, newer_run}

    # the older one goes on with what it has open, and is not started again on tables that it does
    # not know
    assert (await old.agentctl("list")).code == 0
    assert await old.stop() == 0
    process = await site.spawn(
        "agentd", "worker", "--config", old_worker.config, "--state", old_worker.state
    )
    _, err = await process.communicate()
    assert process.returncode == 78
    assert "was written by a newer version of agentd (schema 900" in err.decode()
    assert await asyncio.gather(new.stop(), new_worker.stop()) == [0, 0]


async def test_a_run_continues_after_an_upgrade_of_the_daemon(tmp_path, newer):
    home = ProcessHome(tmp_path)
    home.routine("work", AGENT)
    home.write("policy.toml", EFFECTS)
    async with Vendor([EFFECT, {"text": "never arrives", "hang": True}, "Done."]) as vendor:
        home.write("config.toml", config(vendor))
        try:
            await home.start()
            run = (await home.agentctl("run", "work", "--detach")).out.strip()
            await vendor.wait_for_requests(2)
            await home.kill()
            home.env["PYTHONPATH"] = str(newer)
            await home.start()
            assert (await home.until(run, "run_ended"))["status"] == "succeeded"
            assert json.loads((await home.agentctl("status", "--json")).out)["version"] == NEXT
            assert effects(home) == ["once"]
            assert vendor.requests[1].body["messages"] == vendor.requests[2].body["messages"], (
                "nothing is asked anew"
            )
            assert await home.stop() == 0
        finally:
            if home.is_running:
                await home.kill()
    with closing(sqlite3.connect(home.state / "agentd.db")) as database:
        assert database.execute("SELECT text FROM later").fetchall() == [("of a newer version",)]
    home.env["PYTHONPATH"] = str(ROOT)
    result = await home.agentd()
    assert result.code == 78
    assert "was written by a newer version of agentd (schema 900" in result.err
    assert "put back a copy from before the upgrade" in result.err
