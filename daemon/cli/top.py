"""`agentctl top`: what runs, what waits, what is next and what was spent, for as long as somebody
looks.

The daemon is asked again when something has happened in a run, not all the time; once a second only
the clock times on the screen are written anew.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Thread

from daemon.cli.call import DONE, NOT_SUCCEEDED, UNREACHABLE, Call, start_command
from daemon.cli.top_state import Watched


def top(call: Call) -> int:
    """Show how things are until q or Ctrl-C; with --json once."""
    watched = Watched(call.client.path)
    watched.ask()
    if call.json:
        return call.say_json(watched.told)
    try:
        from daemon.cli.top_screen import show
    except ModuleNotFoundError as error:
        call.err.say(
            f"agentctl: top needs the extra top ({error.name} is not installed): pip install "
            "'agentd-routines[top]'; "
            "`agentctl status` says it once"
        )
        return NOT_SUCCEEDED
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        call.err.say(
            (  # noqa: UP034
                "agentctl: top needs a terminal; `agentctl status` says it once, `agentctl top "
                "--json` for programs"
            )
        )
        return NOT_SUCCEEDED
    Thread(target=watched.follow, name="events", daemon=True).start()
    with suppress(KeyboardInterrupt):  # at whatever it was: Ctrl-C ends it as q does
        show(watched)
    if not watched.gone:
        return DONE
    call.err.say(f"the daemon stopped. Start it with: {start_command()}")
    return UNREACHABLE
