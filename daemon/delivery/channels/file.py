"""Into a Markdown file beneath the workspace.

A report never destroys another run's report: where a path with {slot} or {run} is taken, the newer
one goes beside it as `name-2.md`, `name-3.md`. A path without them, such as `reports/latest.md`,
can only mean "the latest", and there the newer report takes the place of the older. The same run's
own file is always replaced, so a delivery that is repeated after a crash leaves one file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from zoneinfo import ZoneInfo

from daemon.delivery.message import compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt, Report
from daemon.system.safe_folder import folder_beneath, take_after

_FIELD = re.compile(r"\{(?P<name>[^{}:]*)(?::(?P<format>[^{}]*))?\}")
_MOST_BESIDE = 1000
# The title and the line that names the run are well within this.
_HEAD = 4096
# Links cannot be made there (vfat, some network and FUSE file systems).
_NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
# The path itself is at fault; all else may be mended within the day that the outbox keeps trying.
_HOPELESS = frozenset([errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ])


class FileChannel:
    """Writes reports beneath a folder, whole or not at all."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def send(self, delivery: Delivery) -> Receipt:
        """Write the report and return its path; it is on the disk by then, not only in a cache."""
        template = str(delivery.options.get("path") or "")
        path = report_path(template, delivery.report)
        text = compose(delivery).markdown
        keep = any(found["name"] in ("slot", "run") for found in _FIELD.finditer(template))
        try:
            place = await asyncio.to_thread(self._write, path, text.encode(), delivery, keep)
        except OSError as error:
            raise DeliveryFailed(
                self._explain(path, error), retry=error.errno not in _HOPELESS
            ) from error
        return Receipt(detail=str(place))

    def _write(self, path: PurePosixPath, text: bytes, delivery: Delivery, keep: bool) -> Path:
        with folder_beneath(self._workspace, path.parent.parts, create=True) as folder:
            # the same at every attempt: a crash leaves at most one behind
            draft = f".agentd-{delivery.id}.part"
            try:
                _write_draft(folder, draft, text)
                name = _settle(folder, draft, path.name, f"*Run `{delivery.run}`", keep)
                os.fsync(folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)
        return self._workspace / path.parent / name

    def _explain(self, path: PurePosixPath, error: OSError) -> str:
        place = self._workspace / path
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return (
                f"{place}: one of its folders is a symbolic link or a file; reports go only to real "  # noqa: E501
                "folders beneath the workspace (`workspace` in config.toml moves it)"
            )
        return f"{place}: {error.strerror or error}"


def report_path(template: str, report: Report) -> PurePosixPath:
    """Fill a path's fields in; DeliveryFailed if it has unknown ones or would leave the
    workspace.
    """

    def fill(found: re.Match[str]) -> str:
        if found["name"] == "slot":
            slot = report.slot.astimezone(ZoneInfo(report.scheduled_zone))
            value = slot.strftime(found["format"] or "%Y-%m-%d-%H%M")
        elif found["name"] in ("routine", "run") and not found["format"]:
            value = str(getattr(report, found["name"]))
        else:
            msg = (
                f"path {template!r}: no field {found[0]}; known are {{routine}}, {{run}} and "
                f"{{slot:%Y-%m-%d}}"
            )
            raise DeliveryFailed(msg, retry=False)
        return value.replace("/", "-").replace("\0", "")

    path = PurePosixPath(_FIELD.sub(fill, template))
    if not path.name or path.is_absolute() or ".." in path.parts or path.parts[0].startswith("~"):
        msg = f"path {template!r} is no file beneath the workspace"
        raise DeliveryFailed(msg, retry=False)
    return path


def _write_draft(folder: int, draft: str, text: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(text)
        take_after(file.fileno(), folder, 0o644)
        file.flush()
        os.fsync(file.fileno())


def _settle(folder: int, draft: str, name: str, mark: str, keep: bool) -> str:
    """Give the draft its name, or with `keep` the first beside it that no other run's file has."""
    if not keep:
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        return name
    for candidate in _beside(name):
        if _name(folder, draft, candidate):
            return candidate
        if _is_ours(folder, candidate, mark):
            os.replace(draft, candidate, src_dir_fd=folder, dst_dir_fd=folder)
            return candidate
    raise FileExistsError(
        errno.EEXIST, f"{_MOST_BESIDE} reports of that name are there already", name
    )


def _beside(name: str) -> Iterator[str]:
    path = PurePosixPath(name)
    yield name
    yield from (f"{path.stem}-{number}{path.suffix}" for number in range(2, _MOST_BESIDE))


def _name(folder: int, draft: str, name: str) -> bool:
    """Give the draft a name that nobody has; False if somebody has it.

    A link can do that in one step, a rename not.
    """
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if name in os.listdir(folder):
            return False
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _is_ours(folder: int, name: str, mark: str) -> bool:
    """Return whether this file is the same run's: delivered before a crash, and not written
    down.
    """
    try:
        file = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        head = os.read(file, _HEAD).decode(errors="replace")
    finally:
        os.close(file)
    return any(line.startswith(mark) for line in head.splitlines())
