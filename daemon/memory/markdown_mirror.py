"""MEMORY.md: pinned and core items as a file to read and to edit, kept equal to memory in both
directions.

Theory of operation. A three-way merge; its base is the digests of the texts that were last written
to the file. A section that differs from the base was edited by a person, an item that differs was
changed by a run. If both differ, the person's text stays under the key, and the item's text is
stored under a new key. A missing section is weak evidence: an editor may have cut the file off, or
the file may be an old copy. So the mirror never deletes an item: if the file is complete, the item
is no longer core and no longer mirrored, otherwise its section is written again.

The file lies in a folder of the state folder that no tool reaches, so what stands in it was written
by this daemon or by its owner. Where other users could have written it, its edits become tainted
items: whoever recalls them is tainted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

import structlog

from daemon.errors import Refused
from daemon.memory.memory import Memory, MemoryItem
from daemon.memory.rows import SEED_PREFIX
from daemon.system.watch import DirectoryWatcher

log = structlog.get_logger()

NAME = "MEMORY.md"
# The folder of the file in the state folder: of its own, as the database beside it changes all the
# time.
FOLDER = "memory"
# Seconds without a change before the file is read: editors save a file in several writes.
DEBOUNCE = 1.0
# A larger file is no list of items.
_MAX_BYTES = 4_000_000

_BASE_KEY = "memory.mirror"
# The digests of the texts of the latest attempt to write the file: if the daemon dies before it has
# stored them as the base, what the file holds is still known to be no edit.
_UNFINISHED_WRITE_KEY = "memory.mirror.writing"
_HEAD = """\
# Memory

Pinned and core items of agentd's memory. Edit a text and it is kept so; add a section (`## key`) and it becomes an
item. A section taken out is no longer shown here, but kept: `agentctl memory forget --key KEY` deletes it.
"""  # noqa: E501
_END = "<!-- the end: leave this line, it tells a whole file from a torn one -->"
# Where a line of a text begins, perhaps only after an editor has made its own line ends of others:
# there a text must not read as a heading or as the end of the file.
_LINE_START = r"(?:\A|(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]))"
_TO_ESCAPE = re.compile(_LINE_START + r"(?=\\*(?:## |<!-- the end))")
_ESCAPED = re.compile(_LINE_START + r"\\(?=\\*(?:## |<!-- the end))")
_MARK_LINE = re.compile(r"\*(core|daily|conversation|custom)\b.*\*")


# Inode, size and time of a file: they change when somebody saves it.
_FileVersion = tuple[int, int, int]


class KeyValueStore(Protocol):
    """A store of small values that survive a restart, by key."""

    def put(self, key: str, value: str) -> Awaitable[None]: ...
    async def get(self, key: str) -> str | None: ...


class MarkdownFile(NamedTuple):
    """The content of MEMORY.md."""

    sections: dict[str, str]
    """Texts by key."""
    is_complete: bool
    """The file has its last line, so it was not cut off."""


class FileContent(NamedTuple):
    """What was read of MEMORY.md."""

    text: str | None
    """None if there is no file."""
    version: _FileVersion | None
    is_written_by_owner: bool
    """Nobody but its owner could have written it."""


class Merge(NamedTuple):
    """The changes that bring the edits of the file into memory."""

    edited_texts: dict[str, str]
    """By key."""
    replaced_items: dict[str, MemoryItem]
    """Items of runs that an edit replaces, by the new key that each is stored under."""
    removed_keys: list[str]
    """Of items whose sections a person removed."""


def render(items: Mapping[str, MemoryItem]) -> str:
    """Return the text of the file for these items: pinned ones first, then by key."""
    blocks = [_HEAD]
    for item in sorted(items.values(), key=lambda item: (not item.pinned, item.key)):
        marks = [
            item.category,
            "pinned" if item.pinned else "",
            "untrusted" if item.tainted else "",
        ]
        mark_line = " · ".join([*filter(None, marks), f"{item.updated:%Y-%m-%d %H:%M} UTC"])
        text = _TO_ESCAPE.sub(r"\\", item.content)
        blocks.append(f"## {item.key}\n*{mark_line}*\n\n{text}\n")
    return "\n".join([*blocks, _END, ""])


def parse(text: str) -> MarkdownFile:
    """Return the sections of a file, without the heading, marks and escapes that `render` adds."""
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    is_complete = is_after_heading = False
    if "\r\n" in text.partition("\n")[0] + "\n":
        text = text.replace("\r\n", "\n")  # saved by an editor on Windows
    # not splitlines: it also splits at characters that a text may contain
    for line in text.split("\n"):
        if line == _END:
            is_complete = True
            break
        if line.startswith("## "):
            current = sections.setdefault(line[3:].strip(), [])
            is_after_heading = True
            continue
        if current is not None and not (is_after_heading and _MARK_LINE.fullmatch(line)):
            current.append(_ESCAPED.sub("", line))
        is_after_heading = False
    return MarkdownFile(
        {key: "\n".join(lines).strip() for key, lines in sections.items() if key}, is_complete
    )


def merge(
    file: MarkdownFile,
    base: Mapping[str, str],
    items: Mapping[str, MemoryItem],
    now: datetime,
    unfinished_write: Mapping[str, str] = MappingProxyType({}),
) -> Merge:
    """Compare the sections of the file and the items with `base`, the digests of the texts that
    were last written, by key. `unfinished_write` has those of a write that may not have ended.
    """
    edited_texts, replaced_items = {}, {}
    for key, text in file.sections.items():
        item = items.get(key)
        if (
            not text
            or (item and text == item.content)
            or digest(text)
            in (
                base.get(key),
                unfinished_write.get(key),
            )
        ):
            continue  # unchanged, or emptied, which is as weak evidence as a missing section
        if item and not file.is_complete and item.content.startswith(text):
            continue  # the section where an incomplete file was cut off
        edited_texts[key] = text
        if item and digest(item.content) != base.get(key):
            replaced_items[f"{key[:150]} (before {now:%Y-%m-%d %H:%M:%S})"] = item
    removed_keys = [key for key in base if key not in file.sections and key in items]
    is_deliberate = file.is_complete and any(key in file.sections for key in base)
    return Merge(edited_texts, replaced_items, removed_keys if is_deliberate else [])


def digest(text: str) -> str:
    """Return the digest by which the base of the merge knows a text."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _file_version(status: os.stat_result) -> _FileVersion:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _is_written_by_owner(file: os.stat_result, folder: os.stat_result) -> bool:
    """Tell whether only this user and root could have written a file: it has one name, in a folder
    that nobody else may enter.
    """
    users = (0, os.geteuid())
    return (
        stat.S_ISREG(file.st_mode)
        and file.st_uid in users
        and file.st_nlink == 1
        and folder.st_uid in users
        and not folder.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )


class Mirror:
    """Keep the file and memory equal while `run` runs."""

    def __init__(
        self,
        memory: Memory,
        folder: Path,
        key_values: KeyValueStore,
        *,
        clock: Callable[[], datetime],
        directory_watcher: DirectoryWatcher | None = None,
        debounce: float = DEBOUNCE,
    ) -> None:
        """`folder` is made, for its owner alone, where it is missing."""
        self._memory, self._key_values, self._clock = memory, key_values, clock
        self._directory_watcher = directory_watcher or DirectoryWatcher()
        self._debounce = debounce
        self.path = folder / NAME

    async def run(self) -> None:
        """Synchronise the file and memory at once and after each change, until cancelled."""
        change_event = self._memory.watch()
        timer: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()

        def schedule_sync(_paths: frozenset[Path]) -> None:
            nonlocal timer
            if timer:
                timer.cancel()
            timer = loop.call_later(self._debounce, change_event.set)

        self._make_folder()
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
        """Synchronise the file and memory; a failure is logged."""
        try:
            await self.sync()
        except Exception as error:  # noqa: BLE001  one background task: it is tried again at the next change
            # an edit too long for an item, a link in the place of the file, bytes that are no text:
            # the file stays as it is
            log.warning("memory.mirror_failed", file=str(self.path), error=str(error))

    async def sync(self) -> None:
        """Store the edits of the file, then write the file from memory.

        An edit that cannot be stored raises Refused, and the file stays as it is.
        """
        text, version, is_written_by_owner = await asyncio.to_thread(self._read)
        base: dict[str, str] = json.loads(await self._key_values.get(_BASE_KEY) or "{}")
        unfinished_write: dict[str, str] = json.loads(
            await self._key_values.get(_UNFINISHED_WRITE_KEY) or "{}"
        )
        if text is not None:
            changes = merge(parse(text), base, await self._items(), self._clock(), unfinished_write)
            await self._apply(changes, is_written_by_owner=is_written_by_owner)
        items = await self._items()
        new_text = render(items)
        digests = {key: digest(item.content) for key, item in items.items()}
        if new_text != text and digests != unfinished_write:
            await self._key_values.put(_UNFINISHED_WRITE_KEY, json.dumps(digests))
        if new_text != text and not await asyncio.to_thread(self._write, new_text, version):
            # a person saved an edit since the file was read: store that edit first
            await self.sync()
            return
        if digests != base:
            await self._key_values.put(_BASE_KEY, json.dumps(digests))

    async def _apply(self, changes: Merge, *, is_written_by_owner: bool) -> None:
        items = await self._items()
        for key, item in changes.replaced_items.items():
            await self._memory.store(key, item.content, tainted=item.tainted)
        for key, text in changes.edited_texts.items():
            old_item = items.get(key) or await self._memory.item(key)
            category = old_item.category if old_item else "core"
            is_tainted = not is_written_by_owner or bool(old_item and old_item.tainted)
            await self._memory.store(key, text, category=category, tainted=is_tainted)
            log.info("memory.mirror_read", key=key, tainted=is_tainted)
        for key in changes.removed_keys:
            await self._memory.demote(key)
            log.info("memory.mirror_taken_out", key=key)

    async def _items(self) -> dict[str, MemoryItem]:
        mirrored_items = await self._memory.mirrored_items()
        return {item.key: item for item in mirrored_items if not item.key.startswith(SEED_PREFIX)}

    def _make_folder(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _read(self) -> FileContent:
        self._make_folder()
        try:
            # O_NOFOLLOW: a link could lead to what others may write
            descriptor = os.open(
                self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return FileContent(None, None, is_written_by_owner=True)
        with os.fdopen(descriptor, "rb") as file:
            # before reading: a write during the read changes the version
            status = os.fstat(descriptor)
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise Refused(f"it is over {_MAX_BYTES} bytes")
        is_written_by_owner = _is_written_by_owner(status, self.path.parent.stat())
        return FileContent(data.decode("utf-8"), _file_version(status), is_written_by_owner)

    def _write(self, text: str, expected_version: _FileVersion | None) -> bool:
        """Replace the file; False, without a change, if its version is not the expected one."""
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
