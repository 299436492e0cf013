"""Threads for functions that block: one for each call, until the function returns.

Not the event loop's pool: a function that hangs would keep its thread there for ever, a handful of
them would stop every tool, and the end of the process would wait for them all. Here a thread whose
function returns is kept for the next call, as waking a thread costs a third of starting one; a
thread whose function hangs is given up, and ends with the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

# Seconds that a thread waits for another call: a run makes several.
_IDLE_SECONDS = 10.0

_Work: TypeAlias = Callable[[], None]


class Threads:
    """Threads that come and go as they are needed."""

    def __init__(self, *, idle_seconds: float = _IDLE_SECONDS) -> None:
        """A thread that is not called for `idle_seconds` seconds ends."""
        self._idle_seconds = idle_seconds
        self._idle: list[queue.SimpleQueue[_Work]] = []
        self._lock = threading.Lock()

    async def run(self, name: str, func: Callable[[], Any]) -> Any:
        """Run a function in a thread, with the caller's context variables; `name` is that of the
        thread meanwhile.

        A coroutine that comes back when nobody waits any more is closed, as nobody would ever start
        it.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def set_outcome(result: Any, error: BaseException | None) -> None:
            if outcome.done():  # its time was up, or its run was cancelled: nobody waits any more
                _close_coroutine(result)
            elif error is None:
                outcome.set_result(result)
            else:
                outcome.set_exception(error)

        def work() -> None:
            threading.current_thread().name = name
            result, error = None, None
            try:
                result = context.run(func)
            except Exception as exception:  # noqa: BLE001  # carried over to whoever awaits
                error = exception
                if isinstance(exception, StopIteration):
                    # A future takes none, and raising it in a coroutine would change its meaning.
                    error = RuntimeError("StopIteration")
            except BaseException as exit_:  # noqa: BLE001  # else SystemExit in a thread would go unnoticed
                error = RuntimeError(f"the tool tried to end the process ({type(exit_).__name__})")
            try:
                loop.call_soon_threadsafe(set_outcome, result, error)
            except RuntimeError:  # the loop is closed: the daemon has gone
                _close_coroutine(result)

        with self._lock:
            calls = self._idle.pop() if self._idle else None
        if calls is None:
            calls = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(calls,), name=name, daemon=True).start()
        calls.put(work)
        try:
            return await outcome
        except asyncio.CancelledError:
            if not outcome.cancelled() and outcome.exception() is None:  # it came back just before
                _close_coroutine(outcome.result())
            raise

    def _serve(self, calls: queue.SimpleQueue[_Work]) -> None:
        while True:
            try:
                work = calls.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if calls in self._idle:
                        self._idle.remove(calls)
                        return
                continue  # `run` has just taken this thread for a call
            work()
            del work  # its result may be large, and the next call far off
            with self._lock:
                self._idle.append(calls)


def _close_coroutine(result: Any) -> None:
    """Close a coroutine that nobody will start; Python would warn of it and name no place."""
    if inspect.iscoroutine(result):
        result.close()
