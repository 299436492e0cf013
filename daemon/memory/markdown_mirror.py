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
QUIET = (
    1.0  # seconds the file must be left alone before it is read: editors write one in several goes
)
_LARGEST = 4_000_000  # bytes; more is no list of thoughts

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
    whole: bool


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
    whole = headed = False
    if "\r\n" in text.partition("\n")[0] + "\n":
        text = text.replace("\r\n", "\n")  # saved by an editor of Windows
    for line in text.split("\n"):  # not splitlines: it knows ends of lines that texts may hold
        if line == _END:
            whole = True
            break
        if line.startswith("## "):
            current = sections.setdefault(line[3:].strip(), [])
            headed = True
            continue
        if current is not None and not (headed and _ABOUT.fullmatch(line)):
            current.append(re.sub(r"^\\(?=\\*(## |<!-- the end))", "", line))
        headed = False
    return MarkdownFile(
        {key: "\n".join(lines).strip() for key, lines in sections.items() if key}, whole
    )


def merge(
    page: MarkdownFile, base: Mapping[str, str], items: Mapping[str, MemoryItem], now: datetime
) -> Merge:
    """Compare what the file says and what memory says with what was last written."""
    keep, aside = {}, {}
    for key, text in page.sections.items():
        item = items.get(key)
        if not text or (item and text == item.content) or digest(text) == base.get(key):
            continue  # as it was, or emptied, which says as little as a missing section
        if item and not page.whole and item.content.startswith(text):
            continue  # where a torn file ends
        keep[key] = text
        if item and digest(item.content) != base.get(key):
            aside[f"{key[:150]} (before {now:%Y-%m-%d %H:%M:%S})"] = item.content
    gone = [key for key in base if key not in page.sections and key in items]
    deliberate = page.whole and any(key in page.sections for key in base)
    return Merge(keep, aside, gone if deliberate else [])


def digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


_Mark = tuple[int, int, int]  # what changes when somebody saves: inode, size and time of a file


def _mark_of(stat: os.stat_result) -> _Mark:
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
        quiet: float = QUIET,
    ) -> None:
        self._memory, self._facts, self._clock = memory, facts, clock
        self._directory_watcher = directory_watcher or DirectoryWatcher()
        self._quiet = quiet
        self.path = workspace / NAME

    async def run(self) -> None:
        """Sleep until the file or memory changes, and make them equal again."""
        changed = self._memory.watch()
        timer: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()

        def schedule_sync(_changed: frozenset[Path]) -> None:
            nonlocal timer
            if timer:
                timer.cancel()
            timer = loop.call_later(self._quiet, changed.set)

        subscription = self._directory_watcher.subscribe([self.path.parent], schedule_sync)
        try:
            while True:
                changed.clear()
                await self.attempt()
                await changed.wait()
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
        text, mark = await asyncio.to_thread(self._read)
        base: dict[str, str] = json.loads(await self._facts.recall(_STATE) or "{}")
        if text is not None:
            await self._take_in(merge(parse(text), base, await self._items(), self._clock()))
        items = await self._items()
        wanted = render(items)
        if wanted != text and not await asyncio.to_thread(self._write, wanted, mark):
            await self.sync()  # somebody saved an edit since we read: theirs first
            return
        written = {key: digest(item.content) for key, item in items.items()}
        if written != base:
            await self._facts.remember(_STATE, json.dumps(written))

    async def _take_in(self, found: Merge) -> None:
        items = await self._items()
        for key, text in found.aside.items():
            await self._memory.store(key, text)
        for key, text in found.keep.items():
            old = items.get(key) or await self._memory.item(key)
            category = old.category if old else "core"
            await self._memory.store(
                key, text, category=category, tainted=bool(old and old.tainted)
            )
            log.info("memory.mirror_read", key=key)
        for key in found.demote:
            await self._memory.demote(key)
            log.info("memory.mirror_taken_out", key=key)

    async def _items(self) -> dict[str, MemoryItem]:
        found = await self._memory.mirrored()
        return {item.key: item for item in found if not item.key.startswith(SEEDS)}

    def _read(self) -> tuple[str | None, _Mark | None]:
        try:
            # a link could lead anywhere, and tools may write where this file is
            descriptor = os.open(
                self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return None, None
        with os.fdopen(descriptor, "rb") as file:
            mark = _mark_of(
                os.fstat(descriptor)
            )  # before reading: what is written meanwhile makes another one
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise Refused(f"it is over {_LARGEST} bytes")
        return data.decode("utf-8"), mark

    def _write(self, text: str, seen: _Mark | None) -> bool:
        """Replace the file, unless it is no longer the one that was seen."""
        fresh = self.path.with_name(f".{NAME}.{os.getpid()}")
        with suppress(FileNotFoundError):
            fresh.unlink()
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            now = _mark_of(self.path.lstat())
        except FileNotFoundError:
            now = None
        if now != seen:
            fresh.unlink()
            return False
        fresh.replace(self.path)
        return True
