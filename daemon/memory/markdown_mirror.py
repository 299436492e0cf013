"""MEMORY.md: pinned and core items as a file to read and to edit, kept equal to memory in both
directions.

Theory of operation. What was last written to the file is known by digests. Against them both sides
are compared: a section that differs was edited by a person, an item that differs was changed by a
run, and only where both did is there a conflict: then the person's text stands, and the other
beside it under a key of its own. A section that is missing says least: the file may have been cut
off by an editor, or be an old copy. So nothing is ever deleted by it: taken out of a file that is
whole, an item is no longer core and no longer mirrored; otherwise it is put back.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from daemon.errors import Refused
from daemon.memory.erasure.memory_rows import SEEDS
from daemon.memory.memory import Memory, MemoryItem
from daemon.system.watch import DirectoryWatcher

log = structlog.get_logger()

NAME = "MEMORY.md"
DEBOUNCE = (
    1.0  # seconds the file must be left alone before it is read: editors write one in several goes
)
_MAX_BYTES = 4_000_000  # bytes; more is no list of thoughts

_STATE = "memory.mirror"
_HEAD = """\
# Memory

Pinned and core items of agentd's memory. Edit a text and it is kept so; add a section (`## key`) and it becomes an
item. A section taken out is no longer shown here, but kept: `agentctl memory forget --key KEY` deletes it.
"""  # noqa: E501
_END = "<!-- the end: leave this line, it tells a whole file from a torn one -->"
_ABOUT = re.compile(r"\*(core|daily|conversation|custom)\b.*\*")


class Facts(Protocol):
    """Where small facts outlive a restart."""

    def remember(self, key: str, value: str) -> Awaitable[None]: ...
    async def recall(self, key: str) -> str | None: ...


class MarkdownFile(NamedTuple):
    """What a file says."""

    sections: dict[str, str]
    is_complete: bool


class Merge(NamedTuple):
    """What has to be done to memory so that it says what the file says."""

    keep: dict[str, str]
    """Texts by key."""
    aside: dict[str, str]
    """Texts of runs that a person's edit replaced, to be kept beside it."""
    demote: list[str]
    """Keys of items that were taken out."""


def render(items: Mapping[str, MemoryItem]) -> str:
    """Return the file for these items."""
    blocks = [_HEAD]
    for item in sorted(items.values(), key=lambda item: (not item.pinned, item.key)):
        marks = [
            item.category,
            "pinned" if item.pinned else "",
            "untrusted" if item.tainted else "",
        ]
        about = " · ".join([*filter(None, marks), f"{item.updated:%Y-%m-%d %H:%M} UTC"])
        text = re.sub(r"^(?=\\*(## |<!-- the end))", r"\\", item.content, flags=re.MULTILINE)
        blocks.append(f"## {item.key}\n*{about}*\n\n{text}\n")
    return "\n".join([*blocks, _END, ""])


def parse(text: str) -> MarkdownFile:
    """Return the sections of a file, without what we put around them."""
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    is_complete = is_after_heading = False
    if "\r\n" in text.partition("\n")[0] + "\n":
        text = text.replace("\r\n", "\n")  # saved by an editor of Windows
    for line in text.split("\n"):  # not splitlines: it knows ends of lines that texts may hold
        if line == _END:
            is_complete = True
            break
        if line.startswith("## "):
            current = sections.setdefault(line[3:].strip(), [])
            is_after_heading = True
            continue
        if current is not None and not (is_after_heading and _ABOUT.fullmatch(line)):
            current.append(re.sub(r"^\\(?=\\*(## |<!-- the end))", "", line))
        is_after_heading = False
    return MarkdownFile(
        {key: "\n".join(lines).strip() for key, lines in sections.items() if key}, is_complete
    )


def merge(
    file: MarkdownFile, base: Mapping[str, str], items: Mapping[str, MemoryItem], now: datetime
) -> Merge:
    """Compare what the file says and what memory says with what was last written."""
    keep, aside = {}, {}
    for key, text in file.sections.items():
        item = items.get(key)
        if not text or (item and text == item.content) or digest(text) == base.get(key):
            continue  # as it was, or emptied, which says as little as a missing section
        if item and not file.is_complete and item.content.startswith(text):
            continue  # where a torn file ends
        keep[key] = text
        if item and digest(item.content) != base.get(key):
            aside[f"{key[:150]} (before {now:%Y-%m-%d %H:%M:%S})"] = item.content
    removed = [key for key in base if key not in file.sections and key in items]
    is_deliberate = file.is_complete and any(key in file.sections for key in base)
    return Merge(keep, aside, removed if is_deliberate else [])


def digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


_FileVersion = tuple[
    int, int, int
]  # what changes when somebody saves: inode, size and time of a file


def _file_version(stat: os.stat_result) -> _FileVersion:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class Mirror:
    """Keeps the file and memory equal while `run` runs."""

    def __init__(
        self,
        memory: Memory,
        workspace: Path,
        facts: Facts,
        *,
        clock: Callable[[], datetime],
        directory_watcher: DirectoryWatcher | None = None,
        debounce: float = DEBOUNCE,
    ) -> None:
        self._memory, self._facts, self._clock = memory, facts, clock
        self._directory_watcher = directory_watcher or DirectoryWatcher()
        self._debounce = debounce
        self.path = workspace / NAME

    async def run(self) -> None:
        """Sleep until the file or memory changes, and make them equal again."""
        change_event = self._memory.watch()
        timer: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()

        def schedule_sync(_paths: frozenset[Path]) -> None:
            nonlocal timer
            if timer:
                timer.cancel()
            timer = loop.call_later(self._debounce, change_event.set)

        subscription = self._directory_watcher.subscribe([self.path.parent], schedule_sync)
        try:
            while True:
                change_event.clear()
                await self.attempt()
                await change_event.wait()
        finally:
            subscription.close()
            if timer:
                timer.cancel()

    async def attempt(self) -> None:
        """Make file and memory equal, or log why that cannot be."""
        try:
            await self.sync()
        except Exception as error:  # noqa: BLE001  one background task: it is tried again at the next change
            # an edit too long for an item, a link in its place, bytes that are no text: the file is
            # left as it is
            log.warning("memory.mirror_failed", file=str(self.path), error=str(error))

    async def sync(self) -> None:
        """Take in what was edited, then write what memory says; Refused for what cannot be kept:
        the file stays.
        """
        text, version = await asyncio.to_thread(self._read)
        base: dict[str, str] = json.loads(await self._facts.recall(_STATE) or "{}")
        if text is not None:
            await self._apply(merge(parse(text), base, await self._items(), self._clock()))
        items = await self._items()
        new_text = render(items)
        if new_text != text and not await asyncio.to_thread(self._write, new_text, version):
            await self.sync()  # somebody saved an edit since we read: theirs first
            return
        digests = {key: digest(item.content) for key, item in items.items()}
        if digests != base:
            await self._facts.remember(_STATE, json.dumps(digests))

    async def _apply(self, changes: Merge) -> None:
        items = await self._items()
        for key, text in changes.aside.items():
            await self._memory.store(key, text)
        for key, text in changes.keep.items():
            existing = items.get(key) or await self._memory.item(key)
            category = existing.category if existing else "core"
            await self._memory.store(
                key, text, category=category, tainted=bool(existing and existing.tainted)
            )
            log.info("memory.mirror_read", key=key)
        for key in changes.demote:
            await self._memory.demote(key)
            log.info("memory.mirror_taken_out", key=key)

    async def _items(self) -> dict[str, MemoryItem]:
        mirrored_items = await self._memory.mirrored_items()
        return {item.key: item for item in mirrored_items if not item.key.startswith(SEEDS)}

    def _read(self) -> tuple[str | None, _FileVersion | None]:
        try:
            # a link could lead anywhere, and tools may write where this file is
            descriptor = os.open(
                self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return None, None
        with os.fdopen(descriptor, "rb") as file:
            version = _file_version(
                os.fstat(descriptor)
            )  # before reading: what is written meanwhile makes another one
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise Refused(f"it is over {_MAX_BYTES} bytes")
        return data.decode("utf-8"), version

    def _write(self, text: str, expected_version: _FileVersion | None) -> bool:
        """Replace the file, unless it is no longer the one that was seen."""
        draft = self.path.with_name(f".{NAME}.{os.getpid()}")
        with suppress(FileNotFoundError):
            draft.unlink()
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            current_version = _file_version(self.path.lstat())
        except FileNotFoundError:
            current_version = None
        if current_version != expected_version:
            draft.unlink()
            return False
        draft.replace(self.path)
        return True
