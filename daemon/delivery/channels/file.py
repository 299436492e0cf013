"""Deliver reports as Markdown files beneath the workspace.

A report never destroys another run's report: where a path with {slot} or {run} exists already, the
newer report is written as `name-2.md`, `name-3.md` and so on. A path without these fields, such as
`reports/latest.md`, can only mean "the latest", and there the newer report replaces the older one,
also if the older one had been put off and comes later.
The file of the same run is always replaced, so a delivery that is repeated after a crash leaves one
file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath
from zoneinfo import ZoneInfo

from daemon.delivery.message import compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt, Report
from daemon.system.safe_open import copy_access, open_folder_beneath

_FIELD = re.compile(r"\{(?P<name>[^{}:]*)(?::(?P<format>[^{}]*))?\}")
# The beginning of the line about its run in each report.
_RUN_LINE = re.compile(r"^\*Run `(?P<run>[^`\n]*)`", re.MULTILINE)
# Files whose names differ only in their number: a routine may report each minute of a day.
_MAX_SAME_NAME = 10_000
# Bytes. The title and the line that names the run are well within this.
_HEAD_SIZE = 4096
# Links cannot be made there (vfat, some network and FUSE file systems).
_NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
# The path itself is at fault. Any other fault may be mended within the day in which the outbox
# retries.
_PERMANENT_ERRORS = frozenset([errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ])


class FileChannel:
    """Write each report as a file beneath the workspace, complete or not at all."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def send(self, delivery: Delivery) -> Receipt:
        """Write the report; the receipt has its path. When this returns, the file and its folder
        are synced to the disk.
        """
        template = str(delivery.options.get("path") or "")
        path = fill_path(template, delivery.report)
        keeps_others = any(field["name"] in ("slot", "run") for field in _FIELD.finditer(template))
        try:
            receipt = await asyncio.to_thread(
                self._write, path, delivery, keeps_others=keeps_others
            )
        except OSError as error:
            raise DeliveryFailed(
                self._explain(path, error), retry=error.errno not in _PERMANENT_ERRORS
            ) from error
        return Receipt(detail=receipt)

    def _write(self, path: PurePosixPath, delivery: Delivery, *, keeps_others: bool) -> str:
        """Write the report, unless a newer one is in its place already; return the receipt."""
        text = compose(delivery).markdown.encode()
        with open_folder_beneath(self._workspace, path.parent.parts, create=True) as folder:
            # The same name at every attempt, so that crashes leave at most one temporary file.
            temporary_name = f".agentd-{delivery.id}.part"
            try:
                _write_temporary_file(folder, temporary_name, text)
                # a report that was put off comes behind later ones
                if not keeps_others and delivery.attempts:
                    newest_run = _read_run(folder, path.name)
                    if delivery.run and newest_run > delivery.run:
                        return f"{self._workspace / path}, where run {newest_run} is already"
                name = _publish_temporary_file(
                    folder, temporary_name, path.name, delivery.run, keeps_others
                )
                os.fsync(folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary_name, dir_fd=folder)
        return str(self._workspace / path.parent / name)

    def _explain(self, path: PurePosixPath, error: OSError) -> str:
        full_path = self._workspace / path
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return (
                f"{full_path}: one of its folders is a symbolic link or a file; reports go only to real "  # noqa: E501
                "folders beneath the workspace (`workspace` in config.toml moves it)"
            )
        return f"{full_path}: {error.strerror or error}"


def fill_path(template: str, report: Report) -> PurePosixPath:
    """Return the path of a report, relative to the workspace: `template` with {routine}, {run} and
    {slot} filled in. A slot is in the time zone of its routine.

    Raises DeliveryFailed for an unknown field and for a path that leads out of the workspace.
    """

    def fill(field: re.Match[str]) -> str:
        if field["name"] == "slot":
            slot = report.slot.astimezone(ZoneInfo(report.scheduled_zone))
            value = slot.strftime(field["format"] or "%Y-%m-%d-%H%M")
        elif field["name"] in ("routine", "run") and not field["format"]:
            value = str(getattr(report, field["name"]))
        else:
            problem = (
                f"path {template!r}: no field {field[0]}; known are {{routine}}, {{run}} and "
                f"{{slot:%Y-%m-%d}}"
            )
            raise DeliveryFailed(problem, retry=False)
        return value.replace("/", "-").replace("\0", "")

    path = PurePosixPath(_FIELD.sub(fill, template))
    if not path.name or path.is_absolute() or ".." in path.parts or path.parts[0].startswith("~"):
        problem = f"path {template!r} is no file beneath the workspace"
        raise DeliveryFailed(problem, retry=False)
    return path


def _write_temporary_file(folder: int, temporary_name: str, text: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary_name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(text)
        copy_access(file.fileno(), folder, 0o644)
        file.flush()
        os.fsync(file.fileno())


def _publish_temporary_file(
    folder: int, temporary_name: str, name: str, run: str, keeps_others: bool
) -> str:
    """Rename the temporary file to `name` and return the name it got.

    With `keeps_others` the name is the first of `name`, `name-2` ... that no other run's file has.
    A file of the same run was written before a crash, so the journal does not know of it.
    """
    if not keeps_others:
        os.replace(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
        return name
    path = PurePosixPath(name)
    numbered_names = (f"{path.stem}-{number}{path.suffix}" for number in range(2, _MAX_SAME_NAME))
    for candidate in (name, *numbered_names):
        if _link_temporary_file(folder, temporary_name, candidate):
            return candidate
        if run and _read_run(folder, candidate) == run:
            os.replace(temporary_name, candidate, src_dir_fd=folder, dst_dir_fd=folder)
            return candidate
    raise FileExistsError(
        errno.EEXIST, f"{_MAX_SAME_NAME} reports of that name are there already", name
    )


def _link_temporary_file(folder: int, temporary_name: str, name: str) -> bool:
    """Give the temporary file the name `name` as well; return False if another file has it.

    A hard link does that atomically, while a rename would replace the other file. Where the file
    system has no hard links, the temporary file is renamed.
    """
    try:
        os.link(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if name in os.listdir(folder):
            return False
        os.rename(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _read_run(folder: int, name: str) -> str:
    """Return the run whose report a file has; empty if it is none of our reports."""
    try:
        file = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        head = os.read(file, _HEAD_SIZE).decode(errors="replace")
    finally:
        os.close(file)
    match = _RUN_LINE.search(head)
    return match["run"] if match else ""
