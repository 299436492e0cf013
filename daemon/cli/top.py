"""`agentctl top`: what runs, waits, comes next and was spent, live."""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Thread

from daemon.cli.call import DONE, NOT_SUCCEEDED, UNREACHABLE, Call, start_command
from daemon.cli.top_monitor import Monitor


def top(call: Call) -> int:
    """Show the state of the daemon until q or Ctrl-C; with --json once."""
    monitor = Monitor(call.client.socket_path, is_trusted=call.client.is_trusted)
    monitor.refresh()
    if call.json:
        return call.print_json(monitor.snapshot)
    try:
        from daemon.cli.top_screen import show
    except ModuleNotFoundError as error:
        call.err.write_line(
            f"agentctl: top needs the extra top ({error.name} is not installed): pip install "
            "'agentd-routines[top]'; `agentctl status` says it once"
        )
        return NOT_SUCCEEDED
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        call.err.write_line(
            "agentctl: top needs a terminal; `agentctl status` says it once, `agentctl top "
            "--json` for programs"
        )
        return NOT_SUCCEEDED
    Thread(target=monitor.follow_events, name="events", daemon=True).start()
    with suppress(KeyboardInterrupt):  # Ctrl-C ends it as q does
        show(monitor)
    if not monitor.is_daemon_gone:
        return DONE
    call.err.write_line(f"the daemon stopped. Start it with: {start_command()}")
    return UNREACHABLE
