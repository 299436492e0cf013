"""Run programs of the system, within a time limit."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from daemon.errors import DaemonError

# The whole environment of a program: no secret of the daemon reaches it, and it prints English,
# which the parsers read.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = {"PATH": _PATH, "LC_ALL": "C.UTF-8", "COLUMNS": "500"}


class FactUnavailable(DaemonError):
    """A fact cannot be had here; the text says why, and what would help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramOutput:
    """The output of a program that has ended."""

    code: int
    """The exit code."""
    text: str
    errors: str = ""

    @property
    def complaint(self) -> str:
        """The last line of the program on standard error, or else its exit code."""
        lines = self.errors.strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


RunProgram: TypeAlias = Callable[[Sequence[str], float], Awaitable[ProgramOutput]]
"""A function such as `run_program`: takes the words of a program and a time limit in seconds."""


async def run_program(argv: Sequence[str], limit: float) -> ProgramOutput:
    """Run a program without a shell and return its output; raise FactUnavailable if it is absent or
    takes longer than `limit` seconds.
    """
    program = shutil.which(argv[0], path=_PATH)
    if program is None:
        raise FactUnavailable(f"{argv[0]} is not installed")
    process = await asyncio.create_subprocess_exec(
        program,
        *argv[1:],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit):
            out, err = await process.communicate()
    except TimeoutError:
        raise FactUnavailable(f"{argv[0]} gave no answer within {limit:.0f} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return ProgramOutput(
        code=process.returncode or 0,
        text=out.decode(errors="replace"),
        errors=err.decode(errors="replace"),
    )
