"""The sandbox of this daemon: detected once, right after the start or when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import structlog

from daemon.sandbox.bounds import Mode
from daemon.sandbox.sandbox import Sandbox, User

SandboxSource: TypeAlias = Callable[[], Awaitable[Sandbox]]
"""Return the sandbox in which a tool runs its programs."""

log = structlog.get_logger()


async def no_sandbox() -> Sandbox:
    """Return no sandbox: for programs that use our tools as a library, and decide what may run."""
    return Sandbox(level="off")


class SandboxDetection:
    """Detect, once, the best sandbox that no escape test breaks out of."""

    def __init__(self, mode: Callable[[], Mode], folder: Path, user: User | None = None) -> None:
        """`mode` returns what the policy wants now; `folder` is where escape tests may run; `user`
        runs the programs.
        """
        self._mode, self._folder, self.user = mode, folder, user
        self._sandbox: Sandbox | None = None
        self._detection_task: asyncio.Task[Sandbox] | None = None

    @property
    def current(self) -> Sandbox | None:
        """The sandbox in force; None until it is detected."""
        return Sandbox(level="off", user=self.user) if self._mode() == "off" else self._sandbox

    async def sandbox(self) -> Sandbox:
        """Return the sandbox in force; detect it first if needed."""
        if (sandbox := self.current) is not None:
            return sandbox
        if self._detection_task is None or self._detection_task.done():
            self._detection_task = asyncio.create_task(self._detect(), name="sandbox trial")
        return await asyncio.shield(self._detection_task)

    async def detect_early(self) -> None:
        """Detect the sandbox before it is needed."""
        await self.sandbox()

    async def _detect(self) -> Sandbox:
        from daemon.sandbox.detection import choose  # needed once, and not by the start

        sandbox = self._sandbox = await choose("prefer", self._folder, self.user)
        if sandbox.confines:
            log.info("sandbox.chosen", sandbox=sandbox.level, missing=sandbox.missing)
        else:
            log.warning(
                "sandbox.missing",
                sandbox=sandbox.level,
                missing=sandbox.missing,
                fix="agentctl doctor",
            )
        return sandbox

    async def close(self) -> None:
        """Cancel a detection that is under way."""
        if self._detection_task is not None and not self._detection_task.done():
            self._detection_task.cancel()
            await asyncio.wait([self._detection_task])
