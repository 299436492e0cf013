"""The sandbox of this daemon: found out once, right after the start or when it is first needed, and
kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import structlog

from daemon.sandbox.bounds import Mode
from daemon.sandbox.sandbox import Sandbox, User

Confining: TypeAlias = Callable[[], Awaitable[Sandbox]]
"""How a tool asks for the sandbox of its programs."""

log = structlog.get_logger()


async def unconfined() -> Sandbox:
    """Return no sandbox: for tools that are used as a library, by a program that knows what it lets
    run.
    """
    return Sandbox(level="off")


class SandboxDetection:
    """Climbs down from the best sandbox to the first that holds, once."""

    def __init__(self, mode: Callable[[], Mode], folder: Path, user: User | None = None) -> None:
        """`mode` is what the policy wants now; `folder` is where a trial may be held; `user` runs
        the programs.
        """
        self._mode, self._folder, self.user = mode, folder, user
        self._found: Sandbox | None = None
        self._climbing: asyncio.Task[Sandbox] | None = None

    @property
    def known(self) -> Sandbox | None:
        """The sandbox in force; None while it is still being found out."""
        return Sandbox(level="off", user=self.user) if self._mode() == "off" else self._found

    async def sandbox(self) -> Sandbox:
        """Return the sandbox in force."""
        if (known := self.known) is not None:
            return known
        if self._climbing is None or self._climbing.done():
            self._climbing = asyncio.create_task(self._climb(), name="sandbox trial")
        return await asyncio.shield(self._climbing)

    async def climb(self) -> None:
        """Find out before it is needed."""
        await self.sandbox()

    async def _climb(self) -> Sandbox:
        from daemon.sandbox.detection import choose  # needed once, and not by the start

        found = self._found = await choose("prefer", self._folder, self.user)
        if found.confines:
            log.info("sandbox.chosen", rung=found.level, missing=found.missing)
        else:
            log.warning(
                "sandbox.missing", rung=found.level, missing=found.missing, fix="agentctl doctor"
            )
        return found

    async def close(self) -> None:
        """Leave a trial that is still being held."""
        if self._climbing is not None and not self._climbing.done():
            self._climbing.cancel()
            await asyncio.wait([self._climbing])
