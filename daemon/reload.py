"""When definitions are read again: on SIGHUP, when asked, and when a file has changed and then been left alone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog

from daemon.bell import Bell
from daemon.clock import host_zone
from daemon.errors import ConfigError

log = structlog.get_logger()

QUIET = 1.0  # seconds a file must be left alone before it is judged: editors write one in several goes


def zone_bell(changed: Callable[[], object], *, env: Mapping[str, str] | None = None, root: Path = Path("/")) -> Bell:
    """Call `changed` when the zone of this host has changed: whoever travels does not restart daemons."""
    known = host_zone(env, root)

    def heard() -> None:
        nonlocal known
        if (now := host_zone(env, root)) != known:
            log.info("zone.changed", before=known, now=now)
            known = now
            changed()

    return Bell([root / "etc"], heard)


class Reloads:
    """Read the definitions again after a change; a bad file is told and changes nothing."""

    def __init__(self, reload: Callable[[], Awaitable[object]], folders: Callable[[], Iterable[Path]]) -> None:
        self._reload, self._folders = reload, folders
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._bell = Bell(folders(), self._heard)

    def ring(self) -> None:
        """Reload now, or once more after the reload under way."""
        if self._task and not self._task.done():
            self._again = True
            return
        self._task = asyncio.create_task(self._run(), name="reload")

    def close(self) -> None:
        """Listen no more."""
        self._bell.close()
        if self._timer:
            self._timer.cancel()
        if self._task:
            self._task.cancel()

    def _heard(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET, self.ring)

    async def _run(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            # before reading, so that a change during it rings again; folders may have come or gone
            self._bell.close()
            self._bell = Bell(self._folders(), self._heard)
            try:
                await self._reload()
            except ConfigError as error:
                log.warning("definitions.kept", faults=[str(fault) for fault in error.faults])
            except Exception:  # the daemon goes on with what it has
                log.exception("definitions.kept")


@contextmanager
def whole_looks_put_off() -> Iterator[None]:
    """Look for garbage among what is new only: among ten thousand routines just read it would hold the loop up 0.1 s.

    Those that say what they said before are let go of in the end.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        if old != _NEVER:  # another reload is under way, and puts it right
            gc.set_threshold(young, middle, old)


_NEVER = 1_000_000
