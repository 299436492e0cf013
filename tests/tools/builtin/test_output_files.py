"""What a tainted run writes unasked below `out/`: within bounds, through no link, dead text."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy import output_files
from daemon.policy.policy import Policy
from daemon.tools.builtin import files
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

POLICY = """
version = 1
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["out/**"]
"""


class Writer:
    """Writes as a tainted run of the routine `news` does."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (folder / "policy.toml").write_text(POLICY)
        self.policy = Policy.load(folder / "policy.toml", workspace=self.workspace)
        registry = FunctionRegistry()
        self.settings = SimpleNamespace(policy=self.policy)
        files.register(registry, self.settings)
        self.executor = ToolExecutor(registry)
        self.context = ToolContext(
            run="run", routine="news", workspace=self.workspace, tainted=True
        )

    async def write(self, path: str, content: Any = "text\n", **context: Any) -> ToolResult:
        call = FunctionCall(name="file_write", arguments={"path": path, "content": content})
        return await self.executor.run(call, replace(self.context, **context))


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


async def test_a_file_is_written_plain_and_not_executable(writer: Writer) -> None:
    writer.workspace.chmod(0o777)
    umask = os.umask(0)
    try:
        result = await writer.write("out/news/a/today.md", "# Today\n")
    finally:
        os.umask(umask)
    assert result.text == "wrote out/news/a/today.md (8 bytes)"
    file = writer.workspace / "out/news/a/today.md"
    assert file.read_text() == "# Today\n"
    assert stat.S_IMODE(file.stat().st_mode) & 0o133 == 0
    assert list(file.parent.iterdir()) == [file]


async def test_an_executable_file_is_replaced_by_one_that_is_not(writer: Writer) -> None:
    file = writer.workspace / "out/news/today.md"
    file.parent.mkdir(parents=True)
    file.write_text("old")
    file.chmod(0o4755)
    assert (await writer.write("out/news/today.md")).ok
    assert stat.S_IMODE(file.stat().st_mode) & 0o7111 == 0


async def test_links_and_pictures_in_a_text_are_dead(writer: Writer) -> None:
    text = "![x](https://evil.invalid/?q=secret)\n<img src=//evil.invalid/a>\nwww.evil.invalid\n"
    result = await writer.write("out/news/today.md", text)
    contents = (writer.workspace / "out/news/today.md").read_text()
    assert "nothing in it acts by itself" in result.text
    assert "https://" not in contents
    assert "<img" not in contents
    assert "](" not in contents


async def test_control_sequences_do_not_reach_a_terminal(writer: Writer) -> None:
    for ending in ("md", "txt"):
        assert (await writer.write(f"out/news/x.{ending}", "a\x1b]0;x\x07b\x1b[2Jc\n")).ok
        assert (writer.workspace / f"out/news/x.{ending}").read_text() == "abc\n"
    for ending in ("csv", "json"):
        assert not (await writer.write(f"out/news/y.{ending}", '"a\x1b]0;x\x07b\x9b2Jc"\n')).ok


@pytest.mark.parametrize("ending", ["csv", "tsv", "json"])
async def test_tables_and_json_are_written_byte_by_byte(writer: Writer, ending: str) -> None:
    content = '[\n"http://example.org/a,b;c",\t"名 é 🙂"\r\n]\n'
    assert (await writer.write(f"out/news/x.{ending}", content)).ok
    assert (writer.workspace / f"out/news/x.{ending}").read_bytes() == content.encode()


@pytest.mark.parametrize("path", ["out/other/x.md", "out/news/x.sh", "out/news/README.md"])
async def test_the_tool_itself_refuses_what_the_policy_denies(writer: Writer, path: str) -> None:
    assert not (await writer.write(path)).ok
    assert not (await writer.write(path, approved="an approval")).ok
    assert not (writer.workspace / "out").exists()


async def test_a_hard_link_is_not_written_through(writer: Writer) -> None:
    secret = writer.workspace / "notes.md"
    secret.write_text("mine")
    (writer.workspace / "out/news").mkdir(parents=True)
    os.link(secret, writer.workspace / "out/news/notes.md")
    assert not (await writer.write("out/news/notes.md")).ok
    assert secret.read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
async def test_what_is_no_file_is_not_replaced(writer: Writer, kind: str) -> None:
    path = writer.workspace / "out/news/today.md"
    path.parent.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(writer.workspace / "notes.md")
    assert not (await writer.write("out/news/today.md")).ok
    assert not (writer.workspace / "notes.md").exists()


async def test_a_name_that_was_a_file_and_is_a_folder_now_is_refused(writer: Writer) -> None:
    assert (await writer.write("out/news/a.md")).ok
    assert not (await writer.write("out/news/a.md/b.md")).ok  # no plain folder's name
    assert (await writer.write("out/news/b/c.md")).ok
    file = writer.workspace / "out/news/b"
    (file / "c.md").unlink()
    file.rmdir()
    file.write_text("a file stands where the folder was")
    assert not (await writer.write("out/news/b/c.md")).ok
    assert file.read_text() == "a file stands where the folder was"


@contextmanager
def swapping(folder: Path, target: Path) -> Iterator[None]:
    """Move a folder away, put a link in its place and take that away, again and again."""
    is_done = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            with suppress(OSError):
                folder.rename(target.parent / f"aside-{number}")
            with suppress(OSError):
                folder.symlink_to(target)
            with suppress(OSError):
                folder.unlink()
            if is_done.is_set():
                return

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


@pytest.mark.parametrize("name", ["out", "out/news", "out/news/sub"])
async def test_a_link_that_replaces_a_folder_meanwhile_leads_nowhere(
    writer: Writer, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "news/sub").mkdir(parents=True)
    (outside / "sub").mkdir()
    (writer.workspace / "out/news/sub").mkdir(parents=True)
    with swapping(writer.workspace / name, outside):
        for _ in range(150):
            await writer.write("out/news/sub/today.md")
    files_outside = [path for path in outside.rglob("*") if path.is_file()]
    assert files_outside == []


async def test_the_sum_of_a_routine_is_bounded(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_SUM_BYTES", 100)
    assert (await writer.write("out/news/a.txt", "x" * 60)).ok
    result = await writer.write("out/news/b.txt", "x" * 41)
    assert not result.ok
    assert "out/news is full" in result.text
    assert (await writer.write("out/news/a.txt", "x" * 100)).ok  # replaced, not added
    assert (await writer.write("out/other/b.txt", "x" * 41, routine="other")).ok


async def test_the_number_of_files_and_folders_is_bounded(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 4)
    assert (await writer.write("out/news/a/b/x.txt")).ok
    assert (await writer.write("out/news/a/b/y.txt")).ok
    assert not (await writer.write("out/news/a/b/z.txt")).ok
    assert not (await writer.write("out/news/c/x.txt")).ok
    assert (await writer.write("out/news/a/b/y.txt", "replaced")).ok


async def test_the_shipped_bounds_hold(writer: Writer) -> None:
    size = output_files.MAX_FILE_BYTES
    results = [
        await writer.write(f"out/news/{number}.txt", "x" * size)
        for number in range(output_files.MAX_SUM_BYTES // size + 1)
    ]
    assert [result.ok for result in results] == [True] * (len(results) - 1) + [False]
    total = sum(path.stat().st_size for path in (writer.workspace / "out").rglob("*.txt"))
    assert total == output_files.MAX_SUM_BYTES


async def test_a_text_that_grows_when_its_links_die_is_still_bounded(writer: Writer) -> None:
    link = "a.b.invalid/ "
    content = link * (output_files.MAX_FILE_BYTES // len(link))
    assert not (await writer.write("out/news/x.txt", content)).ok


async def test_routines_of_one_maker_share_its_room(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_SUM_BYTES", 100)
    assert (await writer.write("out/news/a.txt", "x" * 60)).ok
    assert not (await writer.write("out/news/b.txt", "x" * 60, routine="news/child")).ok


async def test_runs_that_write_at_once_do_not_exceed_the_sum(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_SUM_BYTES", 500)
    writes = [writer.write(f"out/news/{number}.txt", "x" * 100) for number in range(20)]
    results = await asyncio.gather(*writes)
    assert sum(result.ok for result in results) == 5
    assert len(list((writer.workspace / "out/news").iterdir())) == 5


async def test_a_folder_that_another_process_keeps_is_given_up(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(files, "_MAX_LOCK_SECONDS", 0.05)
    folder = writer.workspace / "out/news"
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert "another process keeps" in (await writer.write("out/news/a.txt")).text
    finally:
        os.close(descriptor)
    assert (await writer.write("out/news/a.txt")).ok


async def test_a_link_counts_and_is_not_followed_when_the_sum_is_counted(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    (writer.workspace / "big").mkdir()
    for number in range(9):
        (writer.workspace / f"big/{number}").write_text("x")
    (writer.workspace / "out/news").mkdir(parents=True)
    (writer.workspace / "out/news/link").symlink_to(writer.workspace / "big")
    assert (await writer.write("out/news/a.txt")).ok


async def test_a_folder_that_comes_into_use_is_refused_at_the_very_write(writer: Writer) -> None:
    assert (await writer.write("out/news/a.txt")).ok
    writer.settings.policy = replace(writer.policy, folders_in_use=("out/news",))
    assert not (await writer.write("out/news/b.txt")).ok


async def test_an_untainted_run_writes_as_before(writer: Writer) -> None:
    text = "[a link](https://example.org)"
    assert (await writer.write("out/else/Makefile", text, tainted=False)).ok
    assert (writer.workspace / "out/else/Makefile").read_text() == text
