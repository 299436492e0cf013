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
    async with asyncio.timeout(10):
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
