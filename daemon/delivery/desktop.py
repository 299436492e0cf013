"""To the person at the screen, as a notification: the title, how the report begins, and where the rest is."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping

from daemon.delivery.dbus import Bus, BusError, session_address
from daemon.delivery.letter import Letter, compose
from daemon.delivery.markup import plain
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt, Status

_NAME, _PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
# What a notification shows without being a page; the whole report is in the journal.
_LONGEST = 400
# How urgent: 1 goes away by itself, 2 stays until it is seen.
_NORMAL, _CRITICAL = 1, 2
_ITS_OWN_TIME = -1


class DesktopChannel:
    """Shows notifications by the session bus of the daemon's user, on macOS by the system's own script."""

    def __init__(self, env: Mapping[str, str], *, uid: int | None = None, platform: str = sys.platform) -> None:
        self._env, self._uid, self._platform = env, os.getuid() if uid is None else uid, platform

    async def send(self, delivery: Delivery) -> Receipt:
        """Show it; the receipt is the number its server gave it."""
        letter = compose(delivery)
        body = _beginning(letter, delivery.run)
        if self._platform == "darwin":
            return await _on_macos(letter.title, body)
        address = session_address(self._env, self._uid)
        if address is None:
            raise DeliveryFailed("no desktop session of this user is there (no session bus)")
        try:
            bus = await Bus.connect(address)
        except (OSError, BusError) as error:
            raise DeliveryFailed(f"the session bus does not answer: {error}") from error
        try:
            return await _shown(bus, letter.title, body, delivery.report.status is not Status.SUCCEEDED)
        except (OSError, BusError) as error:
            raise DeliveryFailed(f"no notification was shown: {error}") from error
        finally:
            bus.close()


async def _shown(bus: Bus, title: str, body: str, urgent: bool) -> Receipt:
    features = await bus.call(_NAME, _PATH, _NAME, "GetCapabilities") or []
    if "body-markup" in features:
        body = body.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    hints = {"urgency": ("y", _CRITICAL if urgent else _NORMAL), "desktop-entry": ("s", "agentd")}
    values: tuple[object, ...] = ("agentd", 0, "", title, body, [], hints, _ITS_OWN_TIME)
    number = await bus.call(_NAME, _PATH, _NAME, "Notify", "susssasa{sv}i", *values)
    return Receipt(detail=f"notification {number}")


def _beginning(letter: Letter, run: str) -> str:
    """Return how the report begins, in words."""
    begins = letter.body[: 10 * _LONGEST]
    text = "\n".join(line.rstrip() for line in plain(begins).splitlines() if line.strip())
    if len(text) <= _LONGEST:
        return text
    cut = text[:_LONGEST].rpartition("\n" if "\n" in text[_LONGEST // 2 : _LONGEST] else " ")[0] or text[:_LONGEST]
    return f"{cut} …" + (f"\nagentctl inspect {run[-8:]} shows the rest" if run else "")


# The texts are arguments, not part of the script: nothing in a report can be read as AppleScript.
_SCRIPT = ("on run {title, body}", "display notification body with title title", "end run")


async def _on_macos(title: str, body: str) -> Receipt:
    program = shutil.which("osascript")
    if program is None:
        raise DeliveryFailed("osascript is not there", retry=False)
    lines = [word for line in _SCRIPT for word in ("-e", line)]
    process = await asyncio.create_subprocess_exec(
        program, *lines, title, body, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        raise DeliveryFailed(f"osascript: {said.decode(errors='replace').strip()}")
    return Receipt(detail="osascript")
