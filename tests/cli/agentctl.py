"""agentctl in the process of the test; on a terminal, or to be interrupted, in one of its own."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

from tests.command_line import CommandResult, needs_process, run_command

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "import sys; from daemon.cli.main import main; sys.exit(main())"]


def environment(home: Path, **more: str) -> dict[str, str]:
    base = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "TZ": "Europe/Berlin",
    }
    return base | {"PYTHONWARNINGS": "error", "TERM": "xterm", **more}


async def start(
    socket: Path, *words: str, env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(socket.parent, AGENTD_SOCKET=str(socket)) | dict(env or {}),
    )


async def agentctl(
    socket: Path, *words: str, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run agentctl to its end, in this process unless it may become agentd."""
    if needs_process("agentctl", words):
        return await agentctl_process(socket, *words, env=env)
    whole = environment(socket.parent, AGENTD_SOCKET=str(socket)) | dict(env or {})
    return await run_command("agentctl", *words, env=whole, cwd=Path.cwd())


async def agentctl_process(
    socket: Path, *words: str, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run agentctl to its end as its users have it: as a process."""
    process = await start(socket, *words, env=env)
    out, err = await process.communicate()
    assert process.returncode is not None
    return CommandResult(process.returncode, out.decode(), err.decode())


async def on_terminal(
    socket: Path, *words: str, columns: int = 100, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run agentctl with all its streams on a real terminal."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    whole = environment(socket.parent, AGENTD_SOCKET=str(socket)) | dict(env or {})
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *words, stdin=terminal, stdout=terminal, stderr=terminal, env=whole
    )
    os.close(terminal)
    output = await asyncio.to_thread(_read_all, controller)
    return CommandResult(await process.wait(), output.decode().replace("\r\n", "\n"), "")


def _read_all(terminal: int) -> bytes:
    output = b""
    try:
        while data := os.read(terminal, 65536):
            output += data
    except OSError:  # EIO: nobody holds the other side any more
        pass
    os.close(terminal)
    return output
