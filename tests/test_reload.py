"""Definitions are read again once they have been left alone, and a bad file changes nothing."""

import asyncio

from daemon.errors import ConfigError, Fault
from daemon.reload import Reloads, zone_bell


class Definitions:
    def __init__(self, *faults):
        self.read = asyncio.Semaphore(0)
        self.times = 0
        self.faults = list(faults)

    async def __call__(self):
        self.times += 1
        self.read.release()
        if self.faults:
            raise self.faults.pop()

    async def times_read(self, count):
        async with asyncio.timeout(60):
            for _ in range(count):
                await self.read.acquire()


async def test_a_burst_of_changes_is_read_once(tmp_path):
    definitions = Definitions()
    reloads = Reloads(definitions, lambda: [tmp_path])
    for n in range(20):
        (tmp_path / f"{n}.toml").write_text("x")
    await definitions.times_read(1)
    assert definitions.times == 1
    reloads.close()


async def test_ringing_during_a_reload_reads_once_more(tmp_path):
    entered, go = asyncio.Event(), asyncio.Event()
    times = []

    async def slow():
        times.append(1)
        entered.set()
        await go.wait()

    reloads = Reloads(slow, lambda: [tmp_path])
    reloads.ring()
    await entered.wait()
    reloads.ring()
    reloads.ring()
    go.set()
    async with asyncio.timeout(60):
        while reloads._task and not reloads._task.done():
            await asyncio.sleep(0)
    assert len(times) == 2
    reloads.close()


async def test_a_bad_file_leaves_the_next_reload_possible(tmp_path):
    definitions = Definitions(ConfigError(Fault(file="a", key="b", found="c", problem="d")), RuntimeError("broken"))
    reloads = Reloads(definitions, lambda: [tmp_path])
    for _ in range(3):
        reloads.ring()
        await definitions.times_read(1)
        while reloads._task and not reloads._task.done():
            await asyncio.sleep(0)
    assert definitions.times == 3
    reloads.close()


async def test_a_folder_that_appears_later_is_watched_after_the_next_reload(tmp_path):
    definitions = Definitions()
    reloads = Reloads(definitions, lambda: [tmp_path, tmp_path / "routines"])
    (tmp_path / "routines").mkdir()
    await definitions.times_read(1)
    while reloads._task and not reloads._task.done():
        await asyncio.sleep(0)
    (tmp_path / "routines" / "a.toml").write_text("x")
    await definitions.times_read(1)
    reloads.close()


async def test_a_change_of_the_hosts_zone_is_noticed_and_nothing_else_of_etc(tmp_path):
    etc, rung = tmp_path / "etc", asyncio.Semaphore(0)
    etc.mkdir()
    zones = tmp_path / "usr/share/zoneinfo"
    (etc / "localtime").symlink_to(zones / "Europe/Berlin")
    bell = zone_bell(rung.release, env={}, root=tmp_path)
    (etc / "passwd").write_text("x")
    (etc / "localtime.new").symlink_to(zones / "Asia/Tokyo")
    async with asyncio.timeout(60):
        (etc / "localtime.new").rename(etc / "localtime")
        await rung.acquire()
        (etc / "localtime").unlink()
        await rung.acquire()  # UTC now
    assert rung.locked()
    bell.close()
