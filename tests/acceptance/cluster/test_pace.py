"""Several daemons on one PostgreSQL start a routine with a pace once after each run."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.cluster.site import Site
from tests.fakes.vendor import VendorProcess

pytestmark = pytest.mark.timeout(600)

WATCH = '[trigger]\npace = "1s..1h"\n'
LOOK = '[run]\nmode = "agent"\nprompt = "Look."\n'
AGAIN = {"tool_calls": [{"name": "finish", "arguments": {"report": "Busy.", "next": "1s"}}]}


@pytest.fixture
async def site(tmp_path, postgres):
    name = postgres.create()
    with VendorProcess([AGAIN], by="conversation") as vendor:
        cluster_site = Site(tmp_path, postgres.url(name), vendor.url)
        cluster_site.rows = lambda query: postgres.sql(query, name)
        try:
            yield cluster_site
        finally:
            await cluster_site.close()
            postgres.drop(name)


async def wait_for_runs(site, number):
    """Return the ids and events of the runs, oldest first, once so many have succeeded."""
    async with asyncio.timeout(240):
        while True:
            rows = site.rows("SELECT id, event FROM run WHERE status = 'succeeded' ORDER BY id")
            if len(rows) >= number:
                return rows
            await asyncio.sleep(0.1)


async def test_each_run_is_followed_once_and_a_daemon_that_dies_is_no_loss(site):
    site.routine("watch", WATCH, LOOK)
    first_daemon, second_daemon, worker = (
        site.daemon("one"),
        site.daemon("two"),
        site.worker("worker"),
    )
    await asyncio.gather(first_daemon.start(), second_daemon.start(), worker.start())
    before = len(await wait_for_runs(site, 3))
    await first_daemon.kill()
    rows = await wait_for_runs(site, before + 2)
    events = [row[1] for row in rows]
    assert events[1:] == [f"pace {row[0]}" for row in rows[:-1]]
    assert events[0].startswith("pace 20")
