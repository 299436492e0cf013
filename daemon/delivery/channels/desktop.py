"""To the person at the screen, as a notification: the title, how the report begins, and where the
rest is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from daemon.delivery.markup import plain
from daemon.delivery.message import Message, compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt, Status

_NAME, _PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
# What a notification shows without being a page; the whole report is in the journal.
_LONGEST = 400
# How urgent: 1 goes away by itself, 2 stays until it is seen.
_NORMAL, _CRITICAL = 1, 2
_ITS_OWN_TIME = -1
_PATIENCE = 10.0  # seconds for all of it


class DesktopChannel:
    """Shows notifications by the session bus of the daemon's user, on macOS by the system's own
    script.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        uid: int | None = None,
        platform: str = sys.platform,
        patience: float = _PATIENCE,
    ) -> None:
        self._env, self._uid, self._platform = env, os.getuid() if uid is None else uid, platform
        self._patience = patience

    async def send(self, delivery: Delivery) -> Receipt:
        """Show it; the receipt is the number its server gave it."""
        letter = compose(delivery)
        body = _beginning(letter, delivery.run)
        if self._platform == "darwin":
            return await _on_macos(letter.title, body)
        try:
            import dbus_fast  # noqa: F401
        except ModuleNotFoundError:
            problem = "notifications need the extra desktop: pip install 'agentd-routines[desktop]'"
            raise DeliveryFailed(problem, retry=False) from None
        address = _session_address(self._env, self._uid)
        if address is None:
            raise DeliveryFailed("no desktop session of this user is there (no session bus)")
        try:
            async with asyncio.timeout(self._patience):
                return await _show(
                    address, letter.title, body, delivery.report.status is not Status.SUCCEEDED
                )
        except TimeoutError:
            raise DeliveryFailed(f"no notification was shown within {self._patience:g} s") from None
        except Exception as error:
            raise DeliveryFailed(
                f"no notification was shown: {error or type(error).__name__}"
            ) from error


async def _show(address: str, title: str, body: str, urgent: bool) -> Receipt:
    """Show a notification by the session bus at an address; the connection is there for this one
    only.
    """
    from dbus_fast import Message, MessageType, Variant
    from dbus_fast.aio import MessageBus

    async def call(member: str, signature: str = "", *values: object) -> Any:
        message = Message(_NAME, _PATH, _NAME, member, signature=signature, body=list(values))
        reply = await bus.call(message)
        if reply is None or reply.message_type is MessageType.ERROR:
            raise DeliveryFailed(
                f"{reply.error_name}: {' '.join(map(str, reply.body))}" if reply else "no answer"
            )
        return reply.body[0]

    bus = MessageBus(bus_address=address)
    try:
        await bus.connect()
        if "body-markup" in await call("GetCapabilities"):
            body = body.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        hints = {
            "urgency": Variant("y", _CRITICAL if urgent else _NORMAL),
            "desktop-entry": Variant("s", "agentd"),
        }
        number = await call(
            "Notify", "susssasa{sv}i", "agentd", 0, "", title, body, [], hints, _ITS_OWN_TIME
        )
    finally:
        bus.disconnect()
    return Receipt(detail=f"notification {number}")


def _session_address(env: Mapping[str, str], uid: int) -> str | None:
    """Return where the session bus of a user listens, if there is a sign of one."""
    if address := env.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    folder = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    return f"unix:path={folder}/bus" if os.path.exists(f"{folder}/bus") else None  # noqa: PTH110 - no Path for a probe


def _beginning(letter: Message, run: str) -> str:
    """Return how the report begins, in words."""
    begins = letter.body[: 10 * _LONGEST]
    text = "\n".join(line.rstrip() for line in plain(begins).splitlines() if line.strip())
    if len(text) <= _LONGEST:
        return text
    cut = (
        text[:_LONGEST].rpartition("\n" if "\n" in text[_LONGEST // 2 : _LONGEST] else " ")[0]
        or text[:_LONGEST]
    )
    return f"{cut} …" + (f"\nagentctl inspect {run[-8:]} shows the rest" if run else "")


# The texts are arguments, not part of the script: nothing in a report can be read as AppleScript.
_SCRIPT = ("on run {title, body}", "display notification body with title title", "end run")


async def _on_macos(title: str, body: str) -> Receipt:
    program = shutil.which("osascript")
    if program is None:
        raise DeliveryFailed("osascript is not there", retry=False)
    lines = [word for line in _SCRIPT for word in ("-e", line)]
    process = await asyncio.create_subprocess_exec(
        program,
        *lines,
        title,
        body,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise DeliveryFailed(f"osascript: {said.decode(errors='replace').strip()}")
    return Receipt(detail="osascript")
