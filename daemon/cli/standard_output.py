"""What agentctl and agentd do about a standard output that cannot be written."""

from __future__ import annotations

import errno
import os
import sys

# 128 + SIGPIPE, as of a program that the signal ends: a script must not take it for a failure of
# the verb, nor for its success.
READER_GONE = 141
# Errors of writing to stdout: `agentctl runs > file` on a full disk, or beyond a limit.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def open_closed_streams() -> None:
    """Give stdout and stderr a place where the caller has closed them (`agentctl run x >&-`)."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)


def report_write_error(error: OSError, program: str) -> int:
    """Return the exit code for output that could not be written, and say why on stderr, unless the
    reader has gone (`agentctl runs | head`). Raises the error if it is of another kind.
    """
    is_reader_gone = isinstance(error, BrokenPipeError)
    if not is_reader_gone and (error.errno not in WRITE_ERRORS or error.filename is not None):
        raise error
    discard_output()
    if is_reader_gone:
        return READER_GONE
    sys.stderr.write(f"{program}: what it has to say cannot be written: {error.strerror}\n")
    return 1


def discard_output() -> None:
    """Discard what stdout still buffers, so that Python does not complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
