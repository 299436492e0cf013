"""Several daemons and workers on one PostgreSQL keep the promises of a single daemon."""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
import sys

import pytest

from tests.acceptance.cluster.site import POLICY, WORK, Site
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
        cluster_site = Site(tmp_path, postgres.url(name), vendor.url)
        cluster_site.rows = lambda query: postgres.sql(query, name)
        try:
            yield cluster_site
        finally:
            await cluster_site.close()
            postgres.drop(name)


async def test_a_run_started_by_a_daemon_is_executed_by_a_worker(site):
    site.routine("work", "")
    daemon, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(daemon.start(), worker.start())
    result = await daemon.agentctl("run", "work")
    assert (result.code, result.out) == (0, "Done.\n"), (result.err, worker.complaints)
    (run,) = (await daemon.agentctl("runs", "--json")).json["items"]
    run_view = (await daemon.agentctl("inspect", run["id"], "--json")).json
    assert run_view["attempt"] == 1
    assert daemon.log("run.started") == []
    assert [line["run"] for line in worker.log("run.started")] == [run["id"]]


async def test_status_lists_daemons_and_workers_with_their_last_heartbeat(site):
    daemon, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(daemon.start(), worker.start())
    processes = {
        process["kind"]: process
        for process in (await daemon.agentctl("status", "--json")).json["workers"]
    }
    assert processes.keys() == {"daemon", "worker"}
    assert (processes["worker"]["pid"], processes["worker"]["capacity"]) == (worker.process.pid, 4)
    assert processes["worker"]["silent"] < 30
    assert (processes["daemon"]["leads"], processes["worker"]["leads"]) == (True, False)
    output = (await daemon.agentctl("status")).out
    assert f":{worker.process.pid}" in output
    assert "sends the reports" in output
    assert await worker.stop() == 0
    assert [
        process["kind"] for process in (await daemon.agentctl("status", "--json")).json["workers"]
    ] == ["daemon"]


async def test_cancel_stops_a_tool_on_another_machine(site, long_vendor):
    site.vendor = long_vendor.url
    site.routine("work", "")
    daemon, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(daemon.start(), worker.start())
    run = (await daemon.agentctl("run", "work", "--detach")).out.strip()
    await wait_for_mark(site)
    result = await daemon.agentctl("cancel", run)
    assert result.code == 0, result.err
    assert (await wait_for_end(daemon, run))["status"] == "cancelled"
    assert "end" not in (site.home / "marks").read_text()


async def test_user_message_reaches_a_run_on_another_machine(site, long_vendor):
    site.vendor = long_vendor.url
    site.routine("work", "")
    daemon, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(daemon.start(), worker.start())
    run = (await daemon.agentctl("run", "work", "--detach")).out.strip()
    await wait_for_mark(site)
    # follows the run to its end
    telling = asyncio.create_task(daemon.agentctl("tell", run, "hurry", "up"))
    async with asyncio.timeout(120):
        while not site.rows("SELECT 1 FROM told"):
            await asyncio.sleep(0.05)
    site.let_go()
    assert (await telling).code == 0
    assert (await wait_for_end(daemon, run))["status"] == "succeeded"
    steps = (await daemon.agentctl("inspect", run, "--json")).json["steps"]
    assert [step["body"]["text"] for step in steps if step["body"].get("source") == "told"] == [
        "hurry up"
    ]


async def test_runs_of_one_routine_never_overlap_across_machines(site):
    site.routine("work", "", WORK.replace("[run]\n", '[run]\noverlap = "queue_one"\n'))
    # what the second is told of the first was read by a model that had called a tool
    site.write("policy.toml", f'{POLICY}[routine.work]\ntainted_tools = ["mark"]\n')
    daemon = site.daemon("one")
    workers = [site.worker(f"worker-{number}") for number in range(2)]
    await asyncio.gather(*(worker.start() for worker in (daemon, *workers)))
    runs = [(await daemon.agentctl("run", "work", "--detach")).out.strip() for _ in range(2)]
    assert {(await wait_for_end(daemon, run))["status"] for run in runs} == {"succeeded"}
    lines = [line.split()[2] for line in (site.home / "marks").read_text().splitlines()]
    assert lines == ["begin", "end"] * 2


async def test_once_ends_whichever_worker_executes_the_run(site):
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


async def test_a_pause_applies_on_every_daemon(site):
    site.routine("work", '[trigger]\nevery = "1h"\n')
    daemon, two = site.daemon("one"), site.daemon("two")
    await asyncio.gather(daemon.start(), two.start())

    async def state():
        return (await two.agentctl("show", "work", "--json")).json["state"]

    for verb, state_after in (("pause", "paused"), ("resume", "on")):
        assert (await daemon.agentctl(verb, "work")).code == 0
        async with asyncio.timeout(120):
            while await state() != state_after:
                await asyncio.sleep(0.2)


async def test_machines_binds_a_routine_to_the_workers_it_names(site):
    site.routine("far", '[trigger]\nevery = "1h"\nmachines = ["another-box"]\n')
    site.routine(
        "near", f'[trigger]\nevery = "1h"\nmachines = ["another-box", "{platform.node()}"]\n'
    )
    daemon, worker = site.daemon("one"), site.worker("worker")
    await asyncio.gather(daemon.start(), worker.start())
    far = (await daemon.agentctl("run", "far", "--detach")).out.strip()
    near = (await daemon.agentctl("run", "near", "--detach")).out.strip()
    assert (await wait_for_end(daemon, near))["status"] == "succeeded"
    assert (await daemon.agentctl("inspect", far, "--json")).json["status"] == "queued"


async def test_run_waits_for_a_worker_with_its_tools_and_the_missing_tool_is_shown(
    site,
):
    site.routine("work", "")
    site.write("policy.toml", f'{POLICY}[routine.work]\ntainted_tools = ["mark"]\n')
    daemon = site.daemon("one")
    without = site.worker("without", extra_end='[tools.machines]\n"mark.py" = ["another-box"]\n')
    await asyncio.gather(daemon.start(), without.start())
    run = (await daemon.agentctl("run", "work", "--detach")).out.strip()
    async with asyncio.timeout(120):
        while not without.log("run.passed_on"):
            await asyncio.sleep(0.1)
    status = await daemon.agentctl("status")
    assert (
        "waits for a machine with the tool mark: worker "
        f"{platform.node()}:{without.process.pid} lacks"
    ) in status.out
    assert "waits for a machine with the tool mark" in (await daemon.agentctl("why", "work")).out
    able = site.worker("able")
    await able.start()
    assert (await wait_for_end(daemon, run))["status"] == "succeeded"
    again = await daemon.agentctl("run", "work")
    assert (again.code, again.out) == (0, "Done.\n"), again.err
    assert len(able.log("run.started")) == 2
    assert without.log("run.started") == []


async def test_a_remembered_approval_holds_on_all_machines(site):
    site.routine("work", "", WORK.replace("[run]\n", '[run]\nmemory = "none"\n'))
    # what the second is told of the first was read by a model that had called a tool
    site.write(
        "policy.toml", POLICY.replace("allow", "ask") + '[routine.work]\ntainted_tools = ["mark"]\n'
    )
    daemon, two, worker = site.daemon("one"), site.daemon("two"), site.worker("worker")
    await asyncio.gather(daemon.start(), two.start(), worker.start())
    assert (await daemon.agentctl("run", "work")).code == 8
    (approval,) = (await daemon.agentctl("approvals", "--json")).json["items"]
    assert (await daemon.agentctl("approve", approval["id"], "--remember", "--yes")).code == 0
    assert (await wait_for_end(daemon, approval["run"]))["status"] == "succeeded"
    async with asyncio.timeout(120):
        while not (worker.state / "approvals.toml").exists():
            await asyncio.sleep(0.1)
    assert (await two.agentctl("run", "work")).code == 0
    async with asyncio.timeout(120):
        while (await two.agentctl("approvals", "--revoke", approval["id"])).code:
            await asyncio.sleep(0.1)
    async with asyncio.timeout(120):
        while approval["id"] in (worker.state / "approvals.toml").read_text():
            await asyncio.sleep(0.1)
    assert (await daemon.agentctl("run", "work")).code == 8


async def test_a_stopped_worker_returns_its_runs_to_the_queue_at_once(site, long_vendor):
    site.vendor, site.lease = long_vendor.url, "1h"
    site.routine("work", "", WORK.replace("[run]", '[run]\ntimeout = "10m"'))
    daemon, first, second = (
        site.daemon("one"),
        site.worker("first", extra='[daemon]\ngrace = "0.001s"\n'),
        site.worker("second"),
    )
    await asyncio.gather(daemon.start(), first.start())
    run = (await daemon.agentctl("run", "work", "--detach")).out.strip()
    await wait_for_mark(site)
    assert await first.stop() == 0
    await second.start()
    assert (await wait_for_end(daemon, run))["status"] == "succeeded"
    assert set(site.marks().values()) == {1}, "the tool was started twice"
    steps = (await daemon.agentctl("inspect", run, "--json")).json["steps"]
    assert [
        "outcome unknown" in step["body"]["text"] for step in steps if step["kind"] == "result"
    ] == [True]


def test_a_worker_without_a_queue_names_the_missing_config_key(tmp_path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "config.toml").chmod(0o600)
    result = subprocess.run(
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
    assert result.returncode == 78
    assert '[executor] kind = "procrastinate"' in result.stderr


async def wait_for_mark(site):
    """Wait until a tool has begun."""
    async with asyncio.timeout(120):
        while not site.marks():
            await asyncio.sleep(0.05)


async def wait_for_end(process, run):
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
