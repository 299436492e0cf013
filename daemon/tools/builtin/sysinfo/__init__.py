"""Facts about this machine for a report: read natively, without a shell and special rights.

Not here: facts about agentd itself (tools/builtin/self_info.py), and how facts become text
(providers/facts.py). In place of a part that cannot be read stands a sentence that says why; the
tool itself does not fail.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from daemon.errors import is_shortage
from daemon.models import Json
from daemon.tools.builtin.sysinfo import machine, services, updates
from daemon.tools.builtin.sysinfo.differences import changes
from daemon.tools.builtin.sysinfo.machine import Files
from daemon.tools.builtin.sysinfo.programs import FactUnavailable, RunProgram, run_program
from daemon.tools.registry import FunctionRegistry

__all__ = ["Part", "Sysinfo", "changes", "register", "sysinfo"]

Part: TypeAlias = Literal["host", "load", "memory", "disks", "units", "errors", "updates"]


def _local_now() -> datetime:
    return datetime.now().astimezone()


class Sysinfo:
    """Collect the facts. `root`, `run_program` and `now` are the real ones unless a test replaces
    them.
    """

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        run_program: RunProgram = run_program,
        now: Callable[[], datetime] = _local_now,
    ) -> None:
        self._files, self._run_program, self._now = Files(root), run_program, now

    async def collect(self, parts: Sequence[Part] | None = None) -> Json:
        """Return these parts (None: all) in the order of `Part`, collected concurrently."""
        requested_parts = [part for part in get_args(Part) if parts is None or part in parts]
        values = await asyncio.gather(*(self._collect_part(part) for part in requested_parts))
        return dict(zip(requested_parts, values, strict=True))

    async def _collect_part(self, part: Part) -> Any:
        sources: dict[Part, Callable[[], Awaitable[Any]]] = {
            "host": self._host,
            "load": lambda: asyncio.to_thread(self._read_load),
            "memory": lambda: asyncio.to_thread(machine.read_memory, self._files),
            "disks": lambda: asyncio.to_thread(machine.read_disks, self._files),
            "units": lambda: services.read_failed_units(self._files, self._run_program),
            "errors": lambda: services.read_errors(self._files, self._run_program, self._now()),
            "updates": lambda: updates.read_updates(self._files, self._run_program, self._now()),
        }
        try:
            return await sources[part]()
        except (FactUnavailable, OSError) as error:
            if is_shortage(error):  # which says nothing of the part
                raise
            return str(error)

    async def _host(self) -> Json:
        sysctl_answer = (
            (await self._run_program(["sysctl", "-n", "kern.boottime"], 5)).text
            if sys.platform == "darwin"
            else ""
        )
        return await asyncio.to_thread(machine.read_host, self._files, self._now(), sysctl_answer)

    def _read_load(self) -> Json:
        return machine.format_load(os.getloadavg(), os.cpu_count() or 1)


async def sysinfo(parts: list[Part] | None = None) -> Json:
    """Return facts about this machine: what it is, how busy and how full it is, what has failed and
    what waits.

    Quick, read-only and without a shell: look here before running commands.

    Args:
        parts: host (name, system, kernel, uptime), load, memory (with swap), disks (percent used,
            inodes), units (failed systemd units), errors (of the journal, last 24 hours, grouped),
            updates (pending, reboot needed); everything if left out.
    """
    return await Sysinfo().collect(parts)


def register(registry: FunctionRegistry) -> None:
    """Offer `sysinfo`."""
    registry.register("sysinfo", None, sysinfo, read_only=True, timeout=60, changes=changes)
