"""Show reports as desktop notifications: the title, the beginning of the report, and the command
that shows all of it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.delivery.markup import render_text
from daemon.delivery.message import Message, compose
from daemon.errors import DeliveryFailed, TargetAbsent
from daemon.models import Delivery, Receipt, Status

_NAME, _PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
# Characters: more would fill the screen, and the whole report is in the journal.
_MAX_TEXT = 400
# Levels of urgency, https://specifications.freedesktop.org/notification-spec: a normal notification
# disappears by itself, a critical one stays until it is closed.
_NORMAL, _CRITICAL = 1, 2
_SERVER_DECIDES = -1  # how long a notification is shown
# Where login managers find the desktops that a person can log in to.
_DESKTOPS = ("usr/share/xsessions", "usr/share/wayland-sessions")
_TIMEOUT = 10.0  # seconds from connecting to the answer


class DesktopChannel:
    """Shows notifications: on macOS with osascript, elsewhere over the D-Bus session bus of the
    daemon's user.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        uid: int | None = None,
        platform: str = sys.platform,
        timeout: float = _TIMEOUT,
        root: Path = Path("/"),
    ) -> None:
        self._env, self._uid, self._platform = env, os.getuid() if uid is None else uid, platform
        self._timeout, self._root = timeout, root

    async def send(self, delivery: Delivery) -> Receipt:
        """Show the report; the receipt is the notification's number on its server.

        Raises TargetAbsent on a machine without a desktop, and DeliveryFailed where nobody is
        logged in at the desktop now.
        """
        message = await asyncio.to_thread(compose, delivery)
        body = _notification_text(message, delivery.run)
        if self._platform == "darwin":
            return await _show_on_macos(message.title, body)
        try:
            import dbus_fast  # noqa: F401
        except ModuleNotFoundError:
            problem = "notifications need the extra desktop: pip install 'agentd-routines[desktop]'"
            raise DeliveryFailed(problem, retry=False) from None
        address = _find_session_address(self._env, self._uid)
        if address is None and not any((self._root / folder).is_dir() for folder in _DESKTOPS):
            raise TargetAbsent(
                "no desktop session of this user is there (no session bus), and this machine has "
                "no desktop to log in to"
            )
        if address is None:
            raise DeliveryFailed("no desktop session of this user is there (no session bus)")
        try:
            async with asyncio.timeout(self._timeout):
                return await _show_by_dbus(
                    address, message.title, body, delivery.report.status is not Status.SUCCEEDED
                )
        except TimeoutError:
            raise DeliveryFailed(f"no notification was shown within {self._timeout:g} s") from None
        except Exception as error:
            raise DeliveryFailed(
                f"no notification was shown: {error or type(error).__name__}"
            ) from error


async def _show_by_dbus(address: str, title: str, body: str, is_urgent: bool) -> Receipt:
    """Show a notification over the session bus at `address`, on a connection of its own."""
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
            "urgency": Variant("y", _CRITICAL if is_urgent else _NORMAL),
            "desktop-entry": Variant("s", "agentd"),
        }
        number = await call(
            "Notify", "susssasa{sv}i", "agentd", 0, "", title, body, [], hints, _SERVER_DECIDES
        )
    finally:
        bus.disconnect()
    return Receipt(detail=f"notification {number}")


def _find_session_address(env: Mapping[str, str], uid: int) -> str | None:
    """Return the address of a user's session bus; None if there seems to be none."""
    if address := env.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    folder = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    return f"unix:path={folder}/bus" if os.path.exists(f"{folder}/bus") else None  # noqa: PTH110 - no Path for a probe


def _notification_text(message: Message, run: str) -> str:
    """Return the beginning of a report as plain text, cut between lines or else between words."""
    opening = message.body[: 10 * _MAX_TEXT]  # before Markdown is parsed, which takes time
    rendered_text = opening if message.verbatim else render_text(opening)
    text = "\n".join(line.rstrip() for line in rendered_text.splitlines() if line.strip())
    if len(text) <= _MAX_TEXT:
        return message.sanitize(text)
    separator = "\n" if "\n" in text[_MAX_TEXT // 2 : _MAX_TEXT] else " "
    opening = text[:_MAX_TEXT].rpartition(separator)[0] or text[:_MAX_TEXT]
    return f"{message.sanitize(opening)} …" + (
        f"\nagentctl inspect {run[-8:]} shows the rest" if run else ""
    )


# The texts are arguments, not part of the script: nothing in a report can be read as AppleScript.
_SCRIPT = ("on run {title, body}", "display notification body with title title", "end run")


async def _show_on_macos(title: str, body: str) -> Receipt:
    program = shutil.which("osascript")
    if program is None:
        raise DeliveryFailed("osascript is not there", retry=False)
    lines = [argument for line in _SCRIPT for argument in ("-e", line)]
    process = await asyncio.create_subprocess_exec(
        program,
        *lines,
        title,
        body,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    if process.returncode:
        raise DeliveryFailed(f"osascript: {errors.decode(errors='replace').strip()}")
    return Receipt(detail="osascript")
