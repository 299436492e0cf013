"""How long a vendor is waited for: one timer for all that is under way.

`asyncio.timeout` sets a timer for each call and cancels it when the answer comes; cancelled ones stay among the loop's
timers for long, and each new one is sorted in between them. Here all wait equally long, so whoever began first is due
first, and nobody else needs a timer until then.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class Patience:
    """So many seconds for each of what is under way."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.under_way: dict[Within, float] = {}
        """When each is due; who began first stands first."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where a timer is set, if one is."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ticking(self) -> bool:
        """Whether a timer is set: one that rings for nobody is not set again."""
        return self.loop is not None

    def set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Look when the first block is due."""
        self.loop, self._timer = loop, loop.call_at(due, self._look, loop)

    def close(self) -> None:
        """Stop the timer, unless somebody still needs it."""
        if self._timer is not None and not self.under_way:
            self._timer.cancel()
            self.loop = self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = self._timer = None
        for block, due in tuple(self.under_way.items()):
            if due > loop.time():
                self.set_timer(loop, due)
                break
            del self.under_way[block]
            block.interrupt()


class Within:
    """A block that is cancelled when its time is over, and raises TimeoutError then."""

    __slots__ = ("_before", "_patience", "_task")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  whoever waits is one
        self._task, self._before = task, task.cancelling()
        loop, patience = task.get_loop(), self._patience
        due = patience.under_way[self] = loop.time() + patience.seconds
        if patience.loop is not loop:
            patience.set_timer(loop, due)

    def interrupt(self) -> None:
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        in_time = self._patience.under_way.pop(self, None) is not None
        # like asyncio.timeout: where somebody else has cancelled it too, it stays cancelled
        if not in_time and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
