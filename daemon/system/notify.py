"""Notify systemd of the state of the daemon: sd_notify(3) without a library."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping

from daemon.system.intervals import until_next_multiple


class Notifier:
    """Send state lines to the service manager; does nothing where there is none."""

    def __init__(self, env: Mapping[str, str]) -> None:
        address = env.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_ours = env.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog = int(env.get("WATCHDOG_USEC", "0")) / 1_000_000 if is_ours else 0.0

    def send(self, *lines: str) -> None:
        """Send `READY=1`, `STATUS=…` and the like in one datagram."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            try:
                channel.connect(self._address)
                channel.sendall("\n".join(lines).encode())
            except OSError:
                return  # a manager that went away is no reason to stop working

    def announce_reload(self) -> None:
        """Announce a reload, for Type=notify-reload; `send("READY=1")` announces its end."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def feed_watchdog(self) -> None:
        """Ping at half the watchdog's interval until cancelled. The pings come from the event loop:
        if the loop is stuck, they stop.
        """
        while self._address and self._watchdog:
            self.send("WATCHDOG=1")
            await asyncio.sleep(until_next_multiple(self._watchdog / 2))
