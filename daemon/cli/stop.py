"""`agentctl stop`: let the daemon end, and wait until it has."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from daemon.cli.call import DONE, NOT_SUCCEEDED, REFUSED, Call
from daemon.cli.render import DIM
from daemon.plurals import pluralize

# Seconds between two checks whether a process still exists, where the system does not tell its end.
POLL_SECONDS = 0.1
# From <sys/un.h> of macOS, which Python does not name.
_SOL_LOCAL, _LOCAL_PEERPID = 0, 2


def stop(call: Call) -> int:
    """Stop the daemon, and wait until it has ended."""
    status = call.client.request("GET", "/v1/status")
    connection = call.client.connect()
    listener = _listening_pid(connection)
    connection.close()
    pid = status["pid"]
    if listener not in (None, pid):
        call.err.write_line(
            "agentctl: that daemon is not a process one can signal from here: systemd holds its "
            "socket (systemctl stop agentd.socket agentd, with --user for yours), or it runs in a "
            "container (stop that)"
        )
        return REFUSED
    descriptor = None
    try:
        if sys.platform == "linux":
            descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        if call.now:
            os.kill(pid, signal.SIGINT)  # another signal: two of one kind may become one
    except ProcessLookupError:
        pass  # it has ended by itself meanwhile
    except PermissionError:
        call.err.write_line(
            f"agentctl: process {pid} belongs to another user: sudo kill {pid} stops it"
        )
        return REFUSED
    if not call.json:
        _announce_stop(call, status)
    has_ended = _wait_for_end(pid, descriptor, call.timeout)
    if call.json:
        call.print_json({"pid": pid, "stopped": has_ended})
    elif has_ended:
        call.out.write_line("agentd has stopped")
    else:
        call.err.write_line(
            f"agentctl: process {pid} has not ended within {call.timeout:g} s; --now does not wait "
            "for its runs"
        )
    return DONE if has_ended else NOT_SUCCEEDED


def _listening_pid(connection: socket.socket) -> int | None:
    """Return the process that listens on a socket; None where the system does not tell, 0 for one
    in another PID namespace.
    """
    if sys.platform == "linux":
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int(struct.unpack("3i", data)[0])
    if sys.platform == "darwin":
        return connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    return None


def _announce_stop(call: Call, status: Mapping[str, Any]) -> None:
    """Tell the person that the daemon stops, and which runs it waits for."""
    runs = [run["routine"] for run in status["active"] if run["status"] == "running"]
    text = f"agentd (process {status['pid']}) stops"
    if runs and not call.now:
        text += f"; it waits for {pluralize(len(runs), 'run')}: {', '.join(sorted(runs))}"
    call.err.write_line(call.err.sanitize(text))
    if runs and not call.now:
        hint = "agentctl stop --now does not wait: runs go on at the next start"
        call.err.write_line(call.err.paint(hint, DIM))
    call.err.stream.flush()


def _wait_for_end(pid: int, descriptor: int | None, timeout: float | None) -> bool:
    """Return whether a process ends within `timeout` seconds (None: however long it takes).

    `descriptor` is its pidfd, which becomes readable when it ends.
    """
    if descriptor is not None:
        try:
            return bool(select.select([descriptor], [], [], timeout)[0])
        finally:
            os.close(descriptor)
    deadline = None if timeout is None else time.monotonic() + timeout
    with suppress(ProcessLookupError):
        while deadline is None or time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(POLL_SECONDS)
        return False
    return True
