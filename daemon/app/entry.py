"""The program `agentd` from its first line on: a SIGHUP must not end a start.

What main.py imports takes longer than Python itself to begin, and SIGHUP ends a process that does
not ignore it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main() -> int:
    """Run `agentd` with the arguments of this process; return its exit code."""
    # at a terminal, which may be closed, it depends on how far the start is: see `serve`
    if find_verb(sys.argv[1:]) in (None, "worker") and not os.isatty(0):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from daemon.app.main import main as run

    return run()


def find_verb(arguments: Sequence[str]) -> str | None:
    """Return the verb of a command line of `agentd`; None if it starts the daemon."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in ("--config", "--state") else 1
    return arguments[index] if index < len(arguments) else None


if __name__ == "__main__":
    sys.exit(main())
