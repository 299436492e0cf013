"""`agentctl version`: the version of this program and of the daemon."""

from __future__ import annotations

from daemon import __version__
from daemon.cli.call import DONE, Call
from daemon.cli.client import Unreachable
from daemon.cli.render import YELLOW


def version(call: Call) -> int:
    """Show which version this is, and which one the daemon has."""
    try:
        status = call.client.request("GET", "/v1/status")
    except Unreachable:
        status = None
    if call.json:
        return call.print_json({"agentctl": __version__, "agentd": status and status["version"]})
    call.out.write_line(f"agentctl {__version__}")
    if status is None:
        call.out.write_line("agentd is not running")
        return DONE
    call.out.write_line(f"agentd {status['version']}, process {status['pid']}")
    if status["version"] != __version__:
        call.err.write_line(
            call.err.paint("they differ: restart agentd to use what is installed", YELLOW)
        )
    return DONE
