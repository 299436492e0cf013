"""The file tools: read, write and list beneath the workspace, and read what `[paths] read` of the
policy adds.

Every path is followed first, judged by where it leads, and then opened without following anything
(system/safe_open.py), so that what was judged is what is read. Not here: which paths are allowed
(policy/).
"""

from __future__ import annotations

import codecs
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Annotated, BinaryIO

from pydantic import Field

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.policy.lexer import Unreadable
from daemon.policy.policy import LivePolicy, Policy
from daemon.policy.reachable_paths import CallPath
from daemon.sandbox.output import readable
from daemon.system.safe_open import folder_beneath, open_beneath, take_after
from daemon.tools.registry import FunctionRegistry

_SNIFF = 8192  # bytes in which a binary file gives itself away by a NUL, as for grep and git
_MOST_NAMES = 1000


def register(registry: FunctionRegistry, settings: LivePolicy) -> None:
    """Offer the file tools."""

    def file_read(
        path: str,
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1, le=100_000)] = 2000,
        *,
        context: ToolContext,
    ) -> str:
        """Read a text file, or some of its lines.

        Args:
            path: Relative to the workspace.
            offset: The first line to read, counted from 1.
            limit: How many lines at most.
        """
        policy = settings.policy
        call_path = _check_policy(policy, "file_read", path, context)
        with _open(call_path) as file:
            return _lines(
                file, call_path.text, offset, limit, policy.limits_for(context.routine).output_bytes
            )

    def file_list(path: str = ".", *, context: ToolContext) -> list[Json]:
        """List a folder: name, kind, size in bytes and time of last change of everything in it.

        Args:
            path: Relative to the workspace.
        """
        call_path = _check_policy(settings.policy, "file_list", path, context)
        try:
            folder = open_beneath(
                call_path.root, call_path.path_in_root, os.O_RDONLY | os.O_DIRECTORY
            )
        except OSError as error:
            raise ToolFailed(_explain(call_path, error)) from None
        try:
            return _entries(folder)
        finally:
            os.close(folder)

    def file_write(path: str, content: str, *, context: ToolContext) -> str:
        """Write a text file, whole or not at all; one that exists is replaced, missing folders are
        made.

        Args:
            path: Relative to the workspace.
            content: All that the file is to hold.
        """
        call_path = _check_policy(settings.policy, "file_write", path, context)
        try:
            _write(call_path, content.encode())
        except OSError as error:
            raise ToolFailed(_explain(call_path, error)) from None
        return f"wrote {call_path.names[0]} ({len(content.encode())} bytes)"

    registry.register("file_read", None, file_read, read_only=True)
    registry.register("file_list", None, file_list, read_only=True)
    registry.register("file_write", None, file_write, idempotent=True)


def _check_policy(policy: Policy, tool: str, path: str, context: ToolContext) -> CallPath:
    """Follow a path and have the policy judge where it leads; raise ToolFailed if that is not
    allowed.
    """
    try:
        call_path = policy.reach.resolve(path, writing=tool == "file_write")
    except Unreadable as error:
        raise ToolFailed(str(error)) from None
    routine, tainted = context.routine, context.tainted
    verdicts = [
        policy.judge_path(tool, call_path, routine=routine, tainted=tainted),
        *(
            policy.judge(tool, {"path": name}, routine=routine, tainted=tainted)
            for name in call_path.names[1:]
        ),
    ]
    for verdict in verdicts:
        if not context.permits(verdict):
            raise ToolFailed(f"{verdict.rule}: {verdict.reason}")
    return call_path


def _explain(call_path: CallPath, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{call_path.text} does not exist"
    if isinstance(error, NotADirectoryError):
        return f"{call_path.text} is no folder, or a file stands where a folder should be"
    return f"{call_path.text}: {error.strerror or error}"


# --- reading
# -------------------------------------------------------------------------------------------


def _open(call_path: CallPath) -> BinaryIO:
    try:
        fd = open_beneath(call_path.root, call_path.path_in_root)
    except OSError as error:
        raise ToolFailed(_explain(call_path, error)) from None
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb", buffering=_SNIFF)
    os.close(fd)
    kind = "a folder; file_list shows what is in it" if stat.S_ISDIR(mode) else "no regular file"
    raise ToolFailed(f"{call_path.text} is {kind}")


def _lines(file: BinaryIO, name: str, offset: int, limit: int, room: int) -> str:
    if b"\0" in (head := file.read(_SNIFF)) and not head.startswith(
        (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    ):
        raise ToolFailed(
            f"{name} is a binary file of {os.fstat(file.fileno()).st_size:,} bytes, not text"
        )
    if len(head) < _SNIFF:  # that was all of it
        file = BytesIO(head)
    file.seek(0)
    for _ in range(offset - 1):
        if not file.readline(_SNIFF):
            raise ToolFailed(f"{name} has fewer than {offset} lines")
    selected_lines: list[bytes] = []
    while len(selected_lines) < limit and room > 0 and (line := file.readline(room + 1)):
        selected_lines.append(line[:room])
        room -= len(line)
    text = readable(b"".join(selected_lines))
    if room < 0:
        last_line = offset + len(selected_lines) - 1
        reason = "the file is longer than what may be read at once"
        return f"{text}\n[… cut in line {last_line}: {reason} …]"
    if file.read(1):
        return f"{text}[… more follows: offset = {offset + len(selected_lines)} …]"
    return text or "(the file is empty)"


def _entries(folder: int) -> list[Json]:
    listing: list[Json] = []
    with os.scandir(folder) as entries:
        names = sorted(entries, key=lambda entry: entry.name)
    for entry in names[:_MOST_NAMES]:
        with suppress(FileNotFoundError):  # gone since the folder was read
            status = entry.stat(follow_symlinks=False)
            modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
            listing.append(
                {
                    "name": entry.name,
                    "kind": _kind(status.st_mode),
                    "size": status.st_size,
                    "modified": modified,
                }
            )
    if len(names) > _MOST_NAMES:
        listing.append(
            {
                "name": f"… and {len(names) - _MOST_NAMES} more",
                "kind": "",
                "size": 0,
                "modified": "",
            }
        )
    return listing


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "special")


# --- writing
# -------------------------------------------------------------------------------------------


def _write(call_path: CallPath, data: bytes) -> None:
    """Write a draft beside the file and rename it: whoever looks sees the old file or the new
    one.
    """
    path = PurePosixPath(call_path.path_in_root)
    with folder_beneath(Path(call_path.root), path.parent.parts, create=True) as folder:
        _refuse_shared(call_path, folder, path.name)
        draft = f".{path.name[:80]}.{token_hex(4)}.part"
        try:
            fd = os.open(
                draft,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=folder,
            )
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                take_after(file.fileno(), folder, 0o644)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)


def _refuse_shared(call_path: CallPath, folder: int, name: str) -> None:
    """Raise ToolFailed for a name that stands for more than one plain file of this folder."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        kind = _kind(status.st_mode)
        raise ToolFailed(f"{call_path.text} is a {kind}, not a plain file; write to another name")
    if status.st_nlink != 1:
        raise ToolFailed(
            f"{call_path.text} is one of {status.st_nlink} names of a file; write to another name"
        )
