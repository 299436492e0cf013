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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Annotated, BinaryIO

from pydantic import Field

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.policy.lexer import CallRejected
from daemon.policy.output_files import MAX_ENTRIES, MAX_FILE_BYTES, MAX_SUM_BYTES
from daemon.policy.policy import LivePolicy, Policy
from daemon.policy.reachable_paths import CallPath
from daemon.sandbox.output import decode_readable
from daemon.system.file_lock import lock_file
from daemon.system.safe_open import copy_access, open_beneath, open_folder_beneath
from daemon.tools.executor import MAX_TEXT_BYTES
from daemon.tools.registry import FunctionRegistry

_SNIFF_BYTES = 8192  # bytes in which a binary file gives itself away by a NUL, as for grep and git
_MAX_UTF16_BYTES = 20_000_000  # such a file is read as a whole
_MAX_NAMES = 1000
_MAX_LOCK_SECONDS = 10.0  # a file is written in a fraction of that


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
        call_path, _ = check_path(policy, "file_read", {"path": path}, context)
        max_bytes = min(policy.limits_for(context.routine).output_bytes, MAX_TEXT_BYTES)
        with open_file(call_path) as file:
            return read_lines(file, call_path.text, offset, limit, max_bytes)

    def file_list(path: str = ".", *, context: ToolContext) -> list[Json]:
        """List a folder: name, kind, size in bytes and time of last change of everything in it.

        Args:
            path: Relative to the workspace.
        """
        call_path, _ = check_path(settings.policy, "file_list", {"path": path}, context)
        try:
            folder = open_beneath(
                call_path.root, call_path.path_in_root, os.O_RDONLY | os.O_DIRECTORY
            )
        except OSError as error:
            raise ToolFailed(_explain(call_path, error)) from None
        try:
            return _list_entries(folder)
        finally:
            os.close(folder)

    def file_write(path: str, content: str, *, context: ToolContext) -> str:
        """Write a text file, whole or not at all; one that exists is replaced, missing folders are
        made.

        Args:
            path: Relative to the workspace.
            content: All that the file is to hold.
        """
        arguments = {"path": path, "content": content}
        call_path, output_folder = check_path(
            settings.policy, "file_write", arguments, context, for_writing=True
        )
        name, note = call_path.names[0], ""
        if output_folder:
            harmless_content = _neutralize_text(name, content)
            if harmless_content != content:
                content, note = harmless_content, "; nothing in it acts by itself, as in a report"
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise ToolFailed(
                "content holds half of a surrogate pair, which no text file can; leave it out"
            ) from None
        try:
            if output_folder:
                with _reserve_space(call_path, output_folder, len(data)):
                    _write_file(call_path, data)
            else:
                _write_file(call_path, data)
        except OSError as error:
            raise ToolFailed(_explain(call_path, error)) from None
        return f"wrote {name} ({len(data)} bytes{note})"

    registry.register("file_read", None, file_read, read_only=True)
    registry.register("file_list", None, file_list, read_only=True)
    registry.register("file_write", None, file_write, idempotent=True)


def check_path(
    policy: Policy,
    tool: str,
    arguments: Json,
    context: ToolContext,
    *,
    for_writing: bool = False,
) -> tuple[CallPath, str]:
    """Follow the path of a call, `arguments["path"]`, and have the policy judge where it leads.

    `for_writing`: the file need not exist yet. Returns the path, and the folder whose bounds hold
    for what is written (empty for none). Raises ToolFailed if the policy does not allow it.
    """
    try:
        call_path = policy.reach.resolve(arguments["path"], for_writing=for_writing)
    except CallRejected as error:
        raise ToolFailed(str(error)) from None
    routine, tainted = context.routine, context.tainted
    verdicts = [
        policy.judge_path(tool, call_path, routine=routine, tainted=tainted, arguments=arguments),
        *(
            policy.judge(tool, {**arguments, "path": name}, routine=routine, tainted=tainted)
            for name in call_path.names[1:]
        ),
    ]
    for verdict in verdicts:
        if not context.permits(verdict):
            raise ToolFailed(f"{verdict.rule}: {verdict.reason}")
    return call_path, verdicts[0].output_folder


def _explain(call_path: CallPath, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{call_path.text} does not exist"
    if isinstance(error, NotADirectoryError):
        return f"{call_path.text} is no folder, or a file stands where a folder should be"
    return f"{call_path.text}: {error.strerror or error}"


# --- reading


def open_file(call_path: CallPath) -> BinaryIO:
    """Open a path that was checked, for reading.

    Raises ToolFailed if it is gone or no regular file, or if a link was put in since.
    """
    try:
        fd = open_beneath(call_path.root, call_path.path_in_root)
    except OSError as error:
        raise ToolFailed(_explain(call_path, error)) from None
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb", buffering=_SNIFF_BYTES)
    os.close(fd)
    kind = "a folder; file_list shows what is in it" if stat.S_ISDIR(mode) else "no regular file"
    raise ToolFailed(f"{call_path.text} is {kind}")


def read_lines(file: BinaryIO, name: str, offset: int, limit: int, max_bytes: int) -> str:
    """Return `limit` lines of a text file from line `offset` on (from 1), `max_bytes` at most.

    A note at the end says what was left out. `name` is what errors call the file. Raises ToolFailed
    if it is no text, or has fewer lines.
    """
    head, size = file.read(_SNIFF_BYTES), os.fstat(file.fileno()).st_size
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        if size > _MAX_UTF16_BYTES:
            raise ToolFailed(f"{name} is a file in UTF-16 of {size:,} bytes, which is too long")
        text_bytes = head + file.read(_MAX_UTF16_BYTES)
        file = BytesIO(text_bytes.decode("utf-16", errors="replace").encode())
    elif b"\0" in head:
        raise ToolFailed(f"{name} is a binary file of {size:,} bytes, not text")
    elif len(head) < _SNIFF_BYTES:  # that was all of it
        file = BytesIO(head)
    file.seek(0)
    for _ in range(offset - 1):
        if not _skip_line(file):
            raise ToolFailed(f"{name} has fewer than {offset} lines")
    lines: list[str] = []
    room = max_bytes
    while len(lines) < limit and room > 0 and (line := file.readline(room + 1)):
        text = decode_readable(line)
        size = max(len(line), len(text))  # a byte that is no text is shown by four characters
        lines.append(text if size <= room else decode_readable(line[:room])[:room])
        room -= size
    if not lines and offset > 1:
        raise ToolFailed(f"{name} has fewer than {offset} lines")
    text = "".join(lines)
    if room < 0:
        last_line = offset + len(lines) - 1
        reason = "the file is longer than what may be read at once"
        hint = f"; more follows: offset = {last_line}" if last_line > offset else ""
        return f"{text}\n[… cut in line {last_line}: {reason}{hint} …]"
    if file.read(1):
        return f"{text}[… more follows: offset = {offset + len(lines)} …]"
    return text or "(the file is empty)"


def _skip_line(file: BinaryIO) -> bool:
    """Read a line of any length piece by piece; return whether there was one."""
    piece = line_begin = file.readline(_SNIFF_BYTES)
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(_SNIFF_BYTES)
    return bool(line_begin)


def _list_entries(folder: int) -> list[Json]:
    listing: list[Json] = []
    with os.scandir(folder) as entries:
        sorted_entries = sorted(entries, key=lambda entry: entry.name)
    for entry in sorted_entries[:_MAX_NAMES]:
        with suppress(FileNotFoundError):  # gone since the folder was read
            status = entry.stat(follow_symlinks=False)
            modified = ""
            with suppress(ValueError, OverflowError, OSError):  # a year that no calendar has
                moment = datetime.fromtimestamp(status.st_mtime, UTC)
                modified = moment.isoformat(timespec="seconds")
            listing.append(
                {
                    "name": entry.name,
                    "kind": _kind(status.st_mode),
                    "size": status.st_size,
                    "modified": modified,
                }
            )
    if len(sorted_entries) > _MAX_NAMES:
        listing.append(
            {
                "name": f"… and {len(sorted_entries) - _MAX_NAMES} more",
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


def _write_file(call_path: CallPath, data: bytes) -> None:
    """Write a draft beside the file and rename it: whoever looks sees the old file or the new
    one.
    """
    path = PurePosixPath(call_path.path_in_root)
    with open_folder_beneath(Path(call_path.root), path.parent.parts, create=True) as folder:
        # a file that a person has closed to others stays closed
        mode = 0o644 & (_check_replaceable(call_path, folder, path.name) | 0o600)
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
                copy_access(file.fileno(), folder, mode)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)


def _neutralize_text(name: str, content: str) -> str:
    """Return a text in which nothing acts by itself where a person looks at the file.

    Other kinds of files stay as they are: the policy has looked into them.
    """
    from daemon.delivery.sanitize import neutralize  # a start can do without it

    return neutralize(content) if name.endswith((".md", ".txt")) else content


@contextmanager
def _reserve_space(call_path: CallPath, output_folder: str, size: int) -> Iterator[None]:
    """Hold the folder in which tainted runs of a routine write while the body writes a file of
    `size` bytes there; ToolFailed where the folder would hold too much.

    Another run waits meanwhile, so that no two of them count on the same space.
    """
    if size > MAX_FILE_BYTES:
        raise ToolFailed(f"{call_path.text} would have more than {MAX_FILE_BYTES:,} bytes")
    parts = PurePosixPath(output_folder).parts
    with open_folder_beneath(Path(call_path.root), parts, create=True) as folder:
        try:
            lock_file(folder, _MAX_LOCK_SECONDS)
        except TimeoutError:
            raise ToolFailed(f"{call_path.text}: another process keeps its folder") from None
        name = call_path.path_in_root.removeprefix(f"{output_folder}/")
        own_names = {name, *(str(parent) for parent in PurePosixPath(name).parents)} - {"."}
        total, entries = size, len(own_names)
        for path, folders, files, descriptor in os.fwalk(dir_fd=folder, follow_symlinks=False):
            for entry_name in (*folders, *files):
                if os.path.normpath(f"{path}/{entry_name}") in own_names:
                    continue
                entries += 1
                with suppress(FileNotFoundError):
                    total += os.stat(entry_name, dir_fd=descriptor, follow_symlinks=False).st_size
            if total > MAX_SUM_BYTES or entries > MAX_ENTRIES:
                raise ToolFailed(
                    f"{output_folder} is full: it may hold {MAX_SUM_BYTES:,} bytes in "
                    f"{MAX_ENTRIES} files and folders; a person has to remove some"
                )
        yield


def _check_replaceable(call_path: CallPath, folder: int, name: str) -> int:
    """Return the permissions of a file that is to be replaced, all of them if there is none. Raise
    ToolFailed for a name that stands for more than one plain file of this folder.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o777
    if not stat.S_ISREG(status.st_mode):
        kind = _kind(status.st_mode)
        raise ToolFailed(f"{call_path.text} is a {kind}, not a plain file; write to another name")
    if status.st_nlink != 1:
        raise ToolFailed(
            f"{call_path.text} is one of {status.st_nlink} names of a file; write to another name"
        )
    return stat.S_IMODE(status.st_mode)
