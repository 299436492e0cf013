"""The bell rings for a change, and keeps quiet otherwise."""

import asyncio
import select
from pathlib import Path

import pytest

from daemon.bell import Bell


@pytest.fixture
def rung():
    return asyncio.Event()


async def heard(event):
    async with asyncio.timeout(60):
        await event.wait()


@pytest.mark.parametrize("change", ["write", "rename", "delete", "chmod"])
async def test_a_changed_file_rings(tmp_path, rung, change):
    path = tmp_path / "a.toml"
    path.write_text("x")
    bell = Bell([tmp_path], rung.set)
    {
        "write": lambda: path.write_text("y"),
        "rename": lambda: path.rename(tmp_path / "b.toml"),
        "delete": path.unlink,
        "chmod": lambda: path.chmod(0o600),
    }[change]()
    await heard(rung)
    bell.close()


async def test_reading_does_not_ring(tmp_path, rung):
    path = tmp_path / "a.toml"
    path.write_text("x")
    bell = Bell([tmp_path], rung.set)
    path.read_text()
    list(tmp_path.iterdir())
    # the kernel queues an event before the call that caused it returns
    assert select.select([bell._fd], [], [], 0) == ([], [], [])
    bell.close()


async def test_each_write_rings_where_that_is_wanted(tmp_path, rung):
    with (tmp_path / "log").open("w") as file:
        bell = Bell([tmp_path], rung.set, writes=True)
        file.write("line\n")
        file.flush()
        await heard(rung)
        bell.close()


async def test_a_missing_folder_is_passed_over(tmp_path, rung):
    bell = Bell([tmp_path / "none", tmp_path], rung.set)
    (tmp_path / "new").touch()
    await heard(rung)
    bell.close()
    Bell([tmp_path / "none"], rung.set).close()


async def test_closing_gives_the_descriptor_back(tmp_path, rung):
    before = len(list(Path("/proc/self/fd").iterdir()))
    bell = Bell([tmp_path], rung.set)
    bell.close()
    bell.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_it_tells_in_which_folders_something_changed(tmp_path, rung):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    bell = Bell([one, two], rung.set)
    (two / "a").touch()
    assert bell.changed() == {two}, "also what it has not rung for yet"
    (one / "a").touch()
    (two / "b").touch()
    assert bell.changed() == {one, two}
    assert bell.changed() == set()
    bell.close()


async def test_after_ringing_it_rests_and_rings_for_what_came_meanwhile(tmp_path):
    times = asyncio.Semaphore(0)
    bell = Bell([tmp_path], times.release, writes=True, rest=0.05)
    async with asyncio.timeout(60):
        (tmp_path / "a").touch()
        await times.acquire()
        for number in range(100):
            (tmp_path / f"{number}").touch()
        await times.acquire()
    assert times.locked(), "once for the hundred"
    bell.close()


async def test_a_folder_that_went_away_is_not_listened_to_though_another_takes_its_place(tmp_path, rung):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    bell = Bell([tmp_path, one, two], rung.set)
    one.rmdir()
    two.rename(tmp_path / "elsewhere")
    one.mkdir()
    two.mkdir()
    assert {one, two} <= bell.changed()
    assert bell.folders == {tmp_path}
    bell.close()
