"""The watcher of settled files: bursts, growing files, new folders, and idleness."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.system.settled_files import FileWatch, SettledFileWatcher, WatchLimits
from daemon.system.watch import DirectoryWatcher

SETTLE = 0.05


class Desk:
    """Looks whenever it is rung for, and takes what has come to rest."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.batches: list[dict[str, str]] = []
        self.looks = 0
        self.is_hindered = False
        self.rung: asyncio.Queue[str] = asyncio.Queue()
        self.watcher = SettledFileWatcher(
            root, self.rung.put_nowait, DirectoryWatcher(wake_every=0.05), **options
        )
        self._versions: set[tuple[str, str]] = set()

    def watch(self, *globs: str, settle: float = SETTLE, name: str = "inbox") -> None:
        self.watcher.watch({name: FileWatch(globs=globs, settle=settle)})

    async def once(self) -> dict[str, str]:
        """Answer one ring."""
        name = await self.rung.get()
        self.looks += 1
        files = await self.watcher.collect_settled(name, self._versions)
        if files and not self.is_hindered:
            self._versions |= set(files.items())
            self.batches.append(files)
        return files

    async def batch(self) -> list[str]:
        """Answer rings until something has come to rest."""
        async with asyncio.timeout(60):
            while not (files := await self.once()):
                pass
        return sorted(files)

    async def asleep(self) -> None:
        """Answer rings until its folders are watched and a look leaves nothing to wait for."""
        async with asyncio.timeout(60):
            while (
                any(state.timer for state in self.watcher._states.values())
                or not self.rung.empty()
                or not self.watches_all()
            ):
                await self.once()

    def watches_all(self) -> bool:
        """Tell whether the system watches every folder of its subscription."""
        subscription = self.watcher._subscription
        return (
            subscription is not None
            and subscription.folders <= self.watcher._directory_watcher._watched_folders
        )

    def put(self, path: str, text: str = "x") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


@pytest.fixture
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    new_desk = Desk(tmp_path, **getattr(request, "param", {}))
    yield new_desk
    new_desk.watcher.close()


async def test_existing_files_are_found(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.watch("inbox/*.csv")
    assert await desk.batch() == ["inbox/a.csv"]


async def test_a_landed_file_is_handled_once(desk: Desk) -> None:
    desk.put("inbox/old.txt")
    desk.watch("inbox/*.csv")
    await desk.once()
    desk.put("inbox/a.csv")
    assert await desk.batch() == ["inbox/a.csv"]
    desk.put("inbox/b.csv")
    assert await desk.batch() == ["inbox/b.csv"]


async def test_a_new_file_version_is_handled_again(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.watch("inbox/*.csv")
    await desk.batch()
    desk.put("inbox/a.csv", "more")
    assert await desk.batch() == ["inbox/a.csv"]


async def test_a_burst_is_one_batch(desk: Desk) -> None:
    desk.watch("inbox/*.csv", settle=0.3)
    await desk.once()
    for number in range(3000):
        desk.put(f"inbox/{number:04}.csv")
    assert len(await desk.batch()) == 3000
    assert desk.looks <= 6


@pytest.mark.parametrize("desk", [{"limits": WatchLimits(batch=4)}], indirect=True)
async def test_a_batch_of_files_is_limited_and_others_follow(desk: Desk) -> None:
    for number in range(10):
        desk.put(f"inbox/{number}.csv")
    desk.watch("inbox/*.csv")
    assert [len(await desk.batch()) for _ in range(3)] == [4, 4, 2]


async def test_a_growing_file_is_awaited(desk: Desk) -> None:
    desk.watch("inbox/*.csv")
    await desk.once()
    (desk.root / "inbox").mkdir()
    with (desk.root / "inbox/a.csv").open("w") as file:
        for _ in range(5):
            file.write("more")
            file.flush()
            assert await desk.once() == {}
        size = file.tell()
    await desk.batch()
    assert [f"-{size}-" in version for version in desk.batches[0].values()] == [True]
    assert len(desk.batches) == 1


@pytest.mark.parametrize("desk", [{"limits": WatchLimits(max_settles=3)}], indirect=True)
async def test_an_endlessly_growing_file_does_not_delay_other_files(desk: Desk) -> None:
    desk.put("inbox/done.csv")
    desk.watch("inbox/*.csv")
    with (desk.root / "inbox/endless.csv").open("w") as file:
        async with asyncio.timeout(60):
            while not desk.batches:
                file.write("more")
                file.flush()
                await desk.once()
    assert sorted(desk.batches[0]) == ["inbox/done.csv"]
    assert await desk.batch() == ["inbox/endless.csv"]


async def test_a_file_renamed_into_place_counts_and_its_draft_does_not(desk: Desk) -> None:
    (desk.root / "inbox").mkdir()
    desk.watch("inbox/*")
    await desk.once()
    draft = desk.put("inbox/.a.csv.part")
    draft.rename(desk.root / "inbox/a.csv")
    assert await desk.batch() == ["inbox/a.csv"]
    outside = desk.put("b.csv")
    outside.rename(desk.root / "inbox/b.csv")
    assert await desk.batch() == ["inbox/b.csv"]


async def test_a_link_in_the_place_of_a_file_is_logged_once(desk: Desk) -> None:
    (desk.root / "a.csv").symlink_to(desk.root / "gone")
    with capture_logs() as logs:
        desk.watch("*.csv")
        await desk.asleep()
        desk.put("b.csv")
        assert await desk.batch() == ["b.csv"]
    assert [(entry["event"], entry["problem"]) for entry in logs] == [
        (
            "watch.incomplete",
            "a.csv: is a symbolic link, which is not followed; put a copy in its place",
        )
    ]


async def test_later_folders_are_watched(desk: Desk) -> None:
    desk.watch("inbox/**/*.csv")
    await desk.once()
    desk.put("inbox/a.csv")
    assert await desk.batch() == ["inbox/a.csv"]
    desk.put("inbox/deep/deeper/b.csv")
    assert await desk.batch() == ["inbox/deep/deeper/b.csv"]
    desk.put("inbox/deep/deeper/c.csv")
    assert await desk.batch() == ["inbox/deep/deeper/c.csv"]


async def test_a_folder_that_is_moved_in_brings_its_files(desk: Desk) -> None:
    (desk.root / "inbox").mkdir()
    desk.put("draft/x/a.csv")
    desk.watch("inbox/**/*.csv")
    await desk.once()
    (desk.root / "draft").rename(desk.root / "inbox/in")
    assert await desk.batch() == ["inbox/in/x/a.csv"]


async def test_a_recreated_folder_is_watched(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.watch("inbox/*.csv")
    await desk.batch()
    shutil.rmtree(desk.root / "inbox")
    (desk.root / "inbox").mkdir()
    await desk.once()
    await desk.asleep()
    desk.put("inbox/b.csv")
    assert await desk.batch() == ["inbox/b.csv"]
    (desk.root / "inbox").rename(desk.root / "elsewhere")
    (desk.root / "inbox").mkdir()
    await desk.once()
    await desk.asleep()
    desk.put("inbox/c.csv")
    assert await desk.batch() == ["inbox/c.csv"]


async def test_files_not_accepted_are_offered_again(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.watch("inbox/*.csv")
    desk.is_hindered = True
    await desk.batch()
    desk.is_hindered = False
    desk.rung.put_nowait("inbox")
    assert await desk.batch() == ["inbox/a.csv"]


async def test_each_watch_is_woken_by_its_own_folders_only(desk: Desk) -> None:
    (desk.root / "one").mkdir()
    (desk.root / "two").mkdir()
    desk.watcher.watch(
        {name: FileWatch(globs=(f"{name}/*",), settle=SETTLE) for name in ("one", "two")}
    )
    await desk.asleep()
    desk.put("two/a")
    async with asyncio.timeout(60):
        assert await desk.rung.get() == "two"
    assert desk.rung.empty()


async def test_no_wakeup_after_all_files_are_handled(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.watch("inbox/*.csv")
    await desk.batch()
    await desk.asleep()
    assert all(state.timer is None for state in desk.watcher._states.values())
    assert desk.rung.empty()


async def test_unwatched_folder_causes_no_wakeup(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.watch("inbox/*.csv", settle=60)
    await desk.once()
    desk.watcher.watch({})
    assert await desk.watcher.collect_settled("inbox", ()) == {}
    assert desk.watcher._subscription is None
    assert desk.rung.empty()


async def test_a_changed_glob_of_a_watch_is_scanned_at_once(desk: Desk) -> None:
    desk.put("inbox/a.csv")
    desk.put("inbox/a.txt")
    desk.watch("inbox/*.csv")
    assert await desk.batch() == ["inbox/a.csv"]
    desk.watch("inbox/*.txt")
    assert await desk.batch() == ["inbox/a.txt"]


async def test_a_later_workspace_is_watched(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "workspace")
    desk.watch("inbox/*.csv")
    await desk.once()
    desk.put("inbox/a.csv")
    assert await desk.batch() == ["inbox/a.csv"]
    desk.watcher.close()


async def test_ten_thousand_files_are_one_batch(desk: Desk) -> None:
    desk.watch("inbox/*.csv", settle=0.3)
    await desk.once()
    for number in range(10_000):
        desk.put(f"inbox/{number:05}.csv")
    assert len(await desk.batch()) == 10_000
    await desk.asleep()
    desk.put("inbox/07777.csv", "again")
    assert await desk.batch() == ["inbox/07777.csv"]


async def test_a_file_whose_name_is_no_utf8_is_found_and_logged_once(desk: Desk) -> None:
    (desk.root / "inbox").mkdir()
    with capture_logs() as logs:
        desk.watch("inbox/*")
        await desk.once()
        await desk.asleep()
        Path(os.fsdecode(os.fsencode(desk.root) + b"/inbox/\xff.csv")).touch()
        assert await desk.batch() == ["inbox/\\udcff.csv"]
    problems = [entry["problem"] for entry in logs if entry["event"] == "watch.incomplete"]
    assert problems == [
        "inbox/\\udcff.csv: its name is not UTF-8, so that no run can read it; rename it"
    ]
