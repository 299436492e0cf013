"""Tasks that run for as long as the process does, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

log = structlog.get_logger()

# Seconds after which a task that goes on is cancelled once more: enough for what it has to close.
CANCEL_AGAIN = 5.0


async def cancel_and_wait(
    tasks: Iterable[asyncio.Task[Any]], *, cancel_again: float = CANCEL_AGAIN
) -> None:
    """Cancel tasks and wait until all have ended; what they raise is dropped.

    A task that goes on is cancelled once more after `cancel_again` seconds, as a cancellation can
    be lost: until Python 3.12, `asyncio.wait_for` returns the result and drops the cancellation
    where both come at once (https://bugs.python.org/issue37658). psycopg_pool uses it to wait for a
    connection.
    """
    tasks = list(tasks)
    pending_tasks = {task for task in tasks if not task.done()}
    while pending_tasks:
        for task in pending_tasks:
            task.cancel()
        _, pending_tasks = await asyncio.wait(pending_tasks, timeout=cancel_again)
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_as_task(work: Coroutine[Any, Any, None], name: str) -> None:
    """Await `work`, as the body of a task of a TaskGroup.

    Raises RuntimeError if it ended by the cancellation of what it waited for, and nobody has
    cancelled the task itself. A TaskGroup would take the task for one that was to end, and the
    process would go on without it.
    """
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        log.critical("task.failed", task=name, problem="cancelled by what it waited for")
        raise RuntimeError(f"{name} was cancelled by what it waited for") from None
    except Exception as error:
        # Logged here, as the process may be killed before the TaskGroup has ended its other tasks.
        log.critical("task.failed", task=name, problem=f"{type(error).__name__}: {error}")
        raise
