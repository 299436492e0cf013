"""A command of agentd in a pseudo terminal, and somebody who types."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.preloaded import ForkedProcess


class Terminal:
    """A process whose terminal is ours: what it shows is `text`."""

    def __init__(self, master: int, process: ForkedProcess) -> None:
        self.master, self.process, self.text = master, process, ""
        self._position = 0
        """The end of what `shows` has found last."""

    async def shows(self, text: str) -> None:
        """Wait until `text` is shown behind what was waited for before."""
        while (position := self.text.find(text, self._position)) < 0:
            if not await self._read():
                raise AssertionError(f"ended without {text!r}:\n{self.text}")
        self._position = position + len(text)

    async def _read(self) -> bool:
        """Wait for output; return False at its end."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.master, ready.set)
        await ready.wait()
        loop.remove_reader(self.master)
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO: the process has closed its side
            return False
        self.text += data.decode()
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def end(self) -> int:
        """Read to the end and return the exit code."""
        while await self._read():
            pass
        return await self.process.wait()


@contextlib.asynccontextmanager
async def terminal(*arguments: str, env: Mapping[str, str], cwd: Path) -> AsyncIterator[Terminal]:
    """Start `agentd` with these arguments in a terminal of its own."""

    master, slave = os.openpty()
    process = await ForkedProcess.start_at_terminal(
        "agentd", *arguments, env=env, cwd=cwd, terminal=slave
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        os.close(master)
