"""The sandbox that the tools of this process run their programs in.

Which sandbox works here is detected once (detection.py): right after the start of a daemon, or when
the first program is to run. A policy with `sandbox = "off"` needs no detection and gets none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import structlog

from daemon.sandbox.bounds import Mode
from daemon.sandbox.sandbox import Sandbox, User

SandboxSource: TypeAlias = Callable[[], Awaitable[Sandbox]]
"""A function that returns the sandbox for a program that is about to run."""

log = structlog.get_logger()


async def no_sandbox() -> Sandbox:
    """Return a sandbox that confines nothing.

    For Python programs that use the tools as a library and decide themselves what may run.
    """
    return Sandbox(level="off")


class SandboxDetection:
    """Detect, once, the best sandbox that no escape test breaks out of."""

    def __init__(self, mode: Callable[[], Mode], folder: Path, user: User | None = None) -> None:
        """`mode` returns the sandbox mode of the policy in force. Escape tests run in `folder`, and
        programs as `user`.
        """
        self._mode, self._folder, self.user = mode, folder, user
        self._sandbox: Sandbox | None = None
        self._detection: asyncio.Task[Sandbox] | None = None

    @property
    def current(self) -> Sandbox | None:
        """The sandbox in force; None if it is not detected yet."""
        return Sandbox(level="off", user=self.user) if self._mode() == "off" else self._sandbox

    async def sandbox(self) -> Sandbox:
        """Return the sandbox in force. Detect it first if needed; all callers wait for the same
        detection, and one that is cancelled does not cancel it.
        """
        if (sandbox := self.current) is not None:
            return sandbox
        if self._detection is None or self._detection.done():
            self._detection = asyncio.create_task(self._detect(), name="sandbox detection")
        return await asyncio.shield(self._detection)

    async def detect_early(self) -> None:
        """Detect the sandbox, if the policy wants one, before a program needs it."""
        await self.sandbox()

    async def _detect(self) -> Sandbox:
        # imported here, as a start does not need it
        from daemon.sandbox.call_groups import prepare_parent
        from daemon.sandbox.detection import choose_sandbox

        sandbox = await choose_sandbox("prefer", self._folder, self.user)
        groups = await asyncio.to_thread(prepare_parent)
        sandbox = self._sandbox = replace(sandbox, groups=groups)
        if sandbox.confines:
            log.info(
                "sandbox.chosen",
                sandbox=sandbox.level,
                missing=sandbox.missing,
                memory_mb_of="call" if groups else "process",
            )
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
        if self._detection is not None and not self._detection.done():
            self._detection.cancel()
            await asyncio.wait([self._detection])
