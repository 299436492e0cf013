"""A notification server for a session bus: prints each notification as a line of JSON."""

import asyncio
import json
import sys

from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface, dbus_method


class Notifications(ServiceInterface):
    def __init__(self, capabilities):
        super().__init__("org.freedesktop.Notifications")
        self.capabilities, self.count = capabilities, 41

    def notify(self, app, replaces, icon, title, body, actions, hints, expire):
        notification = {
            "app": app,
            "title": title,
            "body": body,
            "hints": {key: hint.value for key, hint in hints.items()},
        }
        print(json.dumps(notification), flush=True)
        self.count += 1
        return self.count

    def get_capabilities(self):
        return self.capabilities

    # the library reads D-Bus types off annotations
    kinds = ("s", "u", "s", "s", "s", "as", "a{sv}", "i", "u")
    names = ("app", "replaces", "icon", "title", "body", "actions", "hints", "expire", "return")
    notify.__annotations__ = dict(zip(names, kinds, strict=True))  # noqa: RUF012
    get_capabilities.__annotations__ = {"return": "as"}  # noqa: RUF012
    notify, get_capabilities = (
        dbus_method("Notify")(notify),
        dbus_method("GetCapabilities")(get_capabilities),
    )


async def main():
    bus = await MessageBus().connect()
    bus.export("/org/freedesktop/Notifications", Notifications(sys.argv[1:]))
    await bus.request_name("org.freedesktop.Notifications")
    print("ready", flush=True)
    await bus.wait_for_disconnect()


asyncio.run(main())
