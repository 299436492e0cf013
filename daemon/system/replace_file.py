"""Replace a file at once or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(
    file: Path, content: bytes, *, mode: int = 0o600, group: int | None = None
) -> None:
    """Replace a file, or create it: whoever reads it meanwhile, or after a power cut, finds the old
    content or the new one.

    Its group is `group`; if this process may not set that group, no group has access.

    Raises OSError, and the file is then as it was. A link is replaced, not followed: a caller that
    wants to keep it resolves it first.
    """
    temporary_file = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if group is not None and os.fstat(descriptor).st_gid != group:
                try:
                    os.fchown(descriptor, -1, group)
                except PermissionError:
                    mode &= ~0o070
            os.fchmod(descriptor, mode)  # whatever the umask is
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        temporary_file.replace(file)
    except BaseException:
        temporary_file.unlink(missing_ok=True)
        raise
