"""Several daemons and workers on one database do together what one daemon promises alone."""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
import sys

import pytest

from tests.acceptance.fleet.site import POLICY, WORK, Site
from tests.acceptance.story import ROOT
from tests.fakes.vendor import VendorProcess

pytestmark = pytest.mark.timeout(600)

MARKS = {"tool_calls": [{"name": "mark", "arguments": {"seconds": 0.2}}]}


LONG = {"tool_calls": [{"name": "mark", "arguments": {"seconds": 600}}]}


@pytest.fixture
def long_vendor():
    with VendorProcess([LONG, "Done."], by="conversation") as vendor:
        yield vendor


@pytest.fixture
async def site(tmp_path, postgres):
    name = postgres.create()
    with VendorProcess([MARKS, "Done."], by="conversation") as vendor:
        made = Site(tmp_path, postgres.url(name), vendor.url)
        made.rows = lambda query: postgres.sql(query, name)
        try:
            yield made
        finally:
            await made.close()
            postgres.drop(name)


async def test_a_daemon_starts_runs_that_a_worker_lives(site):
    site.routine("work", "")
    one, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(one.start(), worker.start())
    ran = await one.agentctl("run", "work")
    assert (ran.code, ran.out) == (0, "Done.\n"), (ran.err, worker.complaints)
    (run,) = (await one.agentctl("runs", "--json")).json["items"]
    shown = (await one.agentctl("inspect", run["id"], "--json")).json
    assert shown["attempt"] == 1
    assert one.log("run.started") == []
    assert [line["run"] for line in worker.log("run.started")] == [run["id"]]


async def test_status_lists_who_lives_runs_and_when_each_was_heard_of(site):
    one, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(one.start(), worker.start())
    told = {each["kind"]: each for each in (await one.agentctl("status", "--json")).json["workers"]}
    assert told.keys() == {"daemon", "worker"}
    assert (told["worker"]["pid"], told["worker"]["capacity"]) == (worker.process.pid, 4)
    assert told["worker"]["silent"] < 30
    assert (told["daemon"]["leads"], told["worker"]["leads"]) == (True, False)
    said = (await one.agentctl("status")).out
    assert f":{worker.process.pid}" in said
    assert "sends the reports" in said
    assert await worker.stop() == 0
    assert [each["kind"] for each in (await one.agentctl("status", "--json")).json["workers"]] == [
        "daemon"
    ]


async def test_a_cancel_reaches_a_tool_that_runs_on_another_machine(site, long_vendor):
    site.vendor = long_vendor.url
    site.routine("work", "")
    one, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(one.start(), worker.start())
    run = (await one.agentctl("run", "work", "--detach")).out.strip()
    await marked(site)
    cancelled = await one.agentctl("cancel", run)
    assert cancelled.code == 0, cancelled.err
    assert (await ended(one, run))["status"] == "cancelled"
    assert "end" not in (site.home / "marks").read_text()


async def test_what_a_run_on_another_machine_is_told_reaches_it(site, long_vendor):
    site.vendor = long_vendor.url
    site.routine("work", "")
    one, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(one.start(), worker.start())
    run = (await one.agentctl("run", "work", "--detach")).out.strip()
    await marked(site)
    telling = asyncio.create_task(
        one.agentctl("tell", run, "hurry", "up")
    )  # follows the run to its end
    async with asyncio.timeout(120):
        while not site.rows("SELECT 1 FROM told"):
            await asyncio.sleep(0.05)
    site.let_go()
    assert (await telling).code == 0
    assert (await ended(one, run))["status"] == "succeeded"
    steps = (await one.agentctl("inspect", run, "--json")).json["steps"]
    assert [step["body"]["text"] for step in steps if step["body"].get("source") == "told"] == [
        "hurry up"
    ]


async def test_of_a_routine_one_run_lives_at_a_time_on_all_machines(site):
    site.routine("work", "", WORK.replace("[run]\n", '[run]\noverlap = "queue_one"\n'))
    # what the second is told of the first was read by a model that had called a tool
    site.write("policy.toml", f'{POLICY}[routine.work]\ntainted_tools = ["mark"]\n')
    one = site.daemon("one")
    workers = [site.worker(f"worker-{number}") for number in range(2)]
    await asyncio.gather(*(each.start() for each in (one, *workers)))
    runs = [(await one.agentctl("run", "work", "--detach")).out.strip() for _ in range(2)]
    assert {(await ended(one, run))["status"] for run in runs} == {"succeeded"}
    lines = [line.split()[2] for line in (site.home / "marks").read_text().splitlines()]
    assert lines == ["begin", "end"] * 2


async def test_once_ends_whoever_lives_its_run(site):
    site.routine("work", "")
    site.write("policy.toml", f'{POLICY}[routine.work]\ntainted_tools = ["mark"]\n')
    worker, alone = site.worker("worker"), site.worker("alone")
    await worker.start()
    for _ in range(3):  # now the worker is first, now we are
        process = await site.spawn(
            "agentd", "once", "work", "--config", alone.config, "--state", alone.state
        )
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert (process.returncode, out.decode()) == (0, "Done.\n"), err.decode()


async def test_a_pause_is_known_to_every_daemon(site):
    site.routine("work", '[trigger]\nevery = "1h"\n')
    one, two = site.daemon("one"), site.daemon("two")
    await asyncio.gather(one.start(), two.start())

    async def state():
        return (await two.agentctl("show", "work", "--json")).json["state"]

    for verb, wanted in (("pause", "paused"), ("resume", "on")):
        assert (await one.agentctl(verb, "work")).code == 0
        async with asyncio.timeout(120):
            while await state() != wanted:
                await asyncio.sleep(0.2)


async def test_machines_binds_a_routine_to_the_workers_it_names(site):
    site.routine("far", '[trigger]\nevery = "1h"\nmachines = ["another-box"]\n')
    site.routine(
        "near", f'[trigger]\nevery = "1h"\nmachines = ["another-box", "{platform.node()}"]\n'
    )
    one, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(one.start(), worker.start())
    far = (await one.agentctl("run", "far", "--detach")).out.strip()
    near = (await one.agentctl("run", "near", "--detach")).out.strip()
    assert (await ended(one, near))["status"] == "succeeded"
    assert (await one.agentctl("inspect", far, "--json")).json["status"] == "queued"


async def test_a_run_is_lived_by_a_worker_that_has_its_tools_and_people_are_told_what_is_missing(
    site,
):
    site.routine("work", "")
    site.write("policy.toml", f'{POLICY}[routine.work]\ntainted_tools = ["mark"]\n')
    one = site.daemon("one")
    without = site.worker("without", extra_end='[tools.machines]\n"mark.py" = ["another-box"]\n')
    await asyncio.gather(one.start(), without.start())
    run = (await one.agentctl("run", "work", "--detach")).out.strip()
    async with asyncio.timeout(120):
        while not without.log("run.passed_on"):
            await asyncio.sleep(0.1)
    status = await one.agentctl("status")
    assert (
        "waits for a machine with the tool mark: worker "
        f"{platform.node()}:{without.process.pid} lacks"
    ) in status.out
    assert "waits for a machine with the tool mark" in (await one.agentctl("why", "work")).out
    able = site.worker("able")
    await able.start()
    assert (await ended(one, run))["status"] == "succeeded"
    again = await one.agentctl("run", "work")
    assert (again.code, again.out) == (0, "Done.\n"), again.err
    assert len(able.log("run.started")) == 2
    assert without.log("run.started") == []


async def test_what_is_approved_for_good_on_one_machine_holds_on_all(site):
    site.routine("work", "", WORK.replace("[run]\n", '[run]\nmemory = "none"\n'))
    # what the second is told of the first was read by a model that had called a tool
    site.write(
        "policy.toml", POLICY.replace("allow", "ask") + '[routine.work]\ntainted_tools = ["mark"]\n'
    )
    one, two, worker = site.daemon("one"), site.daemon("two"), site.worker("worker")
    await asyncio.gather(one.start(), two.start(), worker.start())
    assert (await one.agentctl("run", "work")).code == 8
    (asked,) = (await one.agentctl("approvals", "--json")).json["items"]
    assert (await one.agentctl("approve", asked["id"], "--remember", "--yes")).code == 0
    assert (await ended(one, asked["run"]))["status"] == "succeeded"
    async with asyncio.timeout(120):
        while not (worker.state / "approvals.toml").exists():
            await asyncio.sleep(0.1)
    assert (await two.agentctl("run", "work")).code == 0
    async with asyncio.timeout(120):
        while (await two.agentctl("approvals", "--revoke", asked["id"])).code:
            await asyncio.sleep(0.1)
    async with asyncio.timeout(120):
        while asked["id"] in (worker.state / "approvals.toml").read_text():
            await asyncio.sleep(0.1)
    assert (await one.agentctl("run", "work")).code == 8


async def test_a_worker_that_is_told_to_stop_hands_its_runs_back_at_once(site, long_vendor):
    site.vendor, site.lease = long_vendor.url, "1h"
    site.routine("work", "", WORK.replace("[run]", '[run]\ntimeout = "10m"'))
    one, first, second = (
        site.daemon("one"),
        site.worker("first", extra='[daemon]\ngrace = "0.001s"\n'),
        site.worker("second"),
    )
    await asyncio.gather(one.start(), first.start())
    run = (await one.agentctl("run", "work", "--detach")).out.strip()
    await marked(site)
    assert await first.stop() == 0
    await second.start()
    assert (await ended(one, run))["status"] == "succeeded"
    assert set(site.marks().values()) == {1}, "the tool was started twice"
    steps = (await one.agentctl("inspect", run, "--json")).json["steps"]
    assert [
        "outcome unknown" in step["body"]["text"] for step in steps if step["kind"] == "result"
    ] == [True]


def test_a_worker_without_a_queue_is_told_what_to_write(tmp_path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "config.toml").chmod(0o600)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "daemon.app.main",
            "worker",
            "--config",
            tmp_path / "config.toml",
            "--state",
            tmp_path / "s",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 78
    assert '[executor] kind = "procrastinate"' in done.stderr


async def marked(site):
    """Wait until a tool has begun."""
    async with asyncio.timeout(120):
        while not site.marks():
            await asyncio.sleep(0.05)


async def ended(process, run):
    """Follow a run to its end, and return its last event."""
    reader, writer = await asyncio.open_unix_connection(str(process.socket))
    writer.write(
        f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: agentd\r\nConnection: close\r\n\r\n".encode()
    )
    try:
        async with asyncio.timeout(120):
            while line := await reader.readline():
                if (
                    line.startswith(b"data:")
                    and (event := json.loads(line[5:]))["type"] == "run_ended"
                ):
                    return event
    finally:
        writer.close()
    raise AssertionError("the daemon said no more")
