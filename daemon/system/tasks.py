"""The end of tasks that were started to run for as long as the process does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

# Seconds after which a task that goes on is cancelled once more: enough for what it has to close.
CANCEL_AGAIN = 5.0


async def cancel_and_wait(
    tasks: Iterable[asyncio.Task[Any]], *, cancel_again: float = CANCEL_AGAIN
) -> None:
    """Cancel tasks and wait until all have ended; what they raise is dropped.

    A task that goes on is cancelled once more after `cancel_again` seconds, as a cancellation can
    be lost: until Python 3.12, `asyncio.wait_for` returns the result and drops the cancellation
    where both come at once (https://bugs.python.org/issue37658), and psycopg_pool waits by it for a
    connection.
    """
    tasks = list(tasks)
    pending_tasks = {task for task in tasks if not task.done()}
    while pending_tasks:
        for task in pending_tasks:
            task.cancel()
        _, pending_tasks = await asyncio.wait(pending_tasks, timeout=cancel_again)
    await asyncio.gather(*tasks, return_exceptions=True)
