"""`python -m tests.bench.wakeups FILE MODULE [ARGUMENT…]`: run a module, and write into FILE a line
each time that its event loop has slept: what woke it.

`timer`: a time had come. `thread`: a thread of the process has something for it, which it says by a
pair of Unix sockets. `network`: something came by TCP. `other`: anything else. A loop that did not
sleep, as more was to be done, was not woken.
"""

from __future__ import annotations

import os
import runpy
import selectors
import socket
import stat
import sys


class CountingSelector(selectors.DefaultSelector):
    """The selector of an event loop, which writes a line after each sleep."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        if timeout is None or timeout > 0:
            kinds = sorted({_kind_of(key.fd) for key, _ in ready})
            file.write(f"{' '.join(kinds) or 'timer'}\n")
        return ready


def _kind_of(fd: int) -> str:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return "other"
    with socket.socket(fileno=os.dup(fd)) as wire:
        if wire.family in (socket.AF_INET, socket.AF_INET6):
            return "network"
        return (
            "other" if wire.getsockname() or wire.getpeername() else "thread"
        )  # a pair has no names


if __name__ == "__main__":
    path, module, *arguments = sys.argv[1:]
    with open(path, "w", buffering=1) as file:  # noqa: PTH123  a line is there once it is written
        selectors.DefaultSelector = CountingSelector  # type: ignore[misc]  # asyncio takes it by name
        sys.argv[:] = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
