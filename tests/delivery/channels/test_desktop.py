"""Notifications on a real session bus, with a notification server behind it."""

import asyncio
import json
import os
import shutil
import sys
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("dbus_fast", reason="needs dbus-fast: pip install 'agentd-routines[desktop]'")

from daemon.delivery.channels.desktop import DesktopChannel
from daemon.errors import DeliveryFailed
from daemon.models import Status

needs_bus = pytest.mark.skipif(
    not shutil.which("dbus-daemon"), reason="needs dbus-daemon: apt-get install dbus-daemon"
)


@asynccontextmanager
async def session(tmp_path):
    """A session bus with nobody on it; yields its environment."""
    process = await asyncio.create_subprocess_exec(
        "dbus-daemon", "--session", "--nofork", "--print-address", (
            f"--address=unix:path={tmp_path}/bus"
        ),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = (await process.stdout.readline()).decode().strip()
        yield {"DBUS_SESSION_BUS_ADDRESS": address, "PATH": os.environ["PATH"]}
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def desktop(tmp_path, *capabilities):
    """A session with a notification server; yields its environment and what it shows."""
    async with session(tmp_path) as env:
        server = await asyncio.create_subprocess_exec(
            sys.executable,
            "tests/delivery/channels/notifications.py",
            *capabilities,
            env=env,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert await server.stdout.readline() == b"ready\n"
            yield env, server.stdout
        finally:
            server.terminate()
            await server.wait()


@needs_bus
async def test_a_report_is_shown_and_its_number_is_the_receipt(tmp_path, delivery):
    async with desktop(tmp_path, "body") as (env, shown):
        receipt = await DesktopChannel(env).send(
            delivery("# Morning\n\n**All** is [well](https://example.org). 中")
        )
        told = json.loads(await shown.readline())
    assert receipt.detail == "notification 42"
    assert (told["app"], told["title"]) == ("agentd", "Morning")
    assert told["body"] == "All is well (https://example.org). 中"
    assert told["hints"] == {"urgency": 1, "desktop-entry": "agentd"}


@needs_bus
async def test_a_failure_is_urgent_and_markup_is_shown_not_obeyed(tmp_path, delivery):
    async with desktop(tmp_path, "body", "body-markup") as (env, shown):
        bad = delivery("", status=Status.FAILED, detail="exit <b>1</b> & more " + "word " * 200)
        await DesktopChannel(env).send(bad)
        told = json.loads(await shown.readline())
    assert told["hints"]["urgency"] == 2 and told["title"].startswith("daily-report failed")
    assert (
        "&lt;b&gt;" in told["body"].replace("‹", "&lt;")
        and "<" not in told["body"]
        and " &amp; more" in told["body"]
    )
    assert told["body"].endswith("shows the rest") and len(told["body"]) < 600


@needs_bus
async def test_a_session_without_a_notification_server_is_tried_again(tmp_path, delivery):
    async with session(tmp_path) as env:
        with pytest.raises(DeliveryFailed, match="no notification was shown") as caught:
            await DesktopChannel(env).send(delivery())
    assert caught.value.retry


async def test_no_session_is_said_as_such(tmp_path, delivery):
    with pytest.raises(DeliveryFailed, match="no desktop session") as caught:
        await DesktopChannel({"XDG_RUNTIME_DIR": str(tmp_path)}, platform="linux").send(delivery())
    assert caught.value.retry


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"REJECTED EXTERNAL\r\n",
        b"OK 1234\r\nnonsense that is no message at all",
        b"OK 1234\r\nl\x02\x01\x01\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00",
        b"OK 1234\r\nl\x02\x01\x01\x00\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x00",
    ],
)
async def test_a_bus_that_talks_nonsense_is_an_error_and_nothing_worse(tmp_path, delivery, answer):
    async def talk(reader, writer):
        writer.write(answer)
        await writer.drain()
        writer.close()

    path = tmp_path / "bus"
    server = await asyncio.start_unix_server(talk, path)
    with pytest.raises(DeliveryFailed):
        await DesktopChannel({"XDG_RUNTIME_DIR": str(tmp_path)}, platform="linux").send(delivery())
    server.close()


async def test_a_bus_that_says_nothing_is_given_up_and_tried_again(tmp_path, delivery):
    gone = asyncio.Event()

    async def listen(reader, writer):
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_unix_server(listen, tmp_path / "bus")
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with pytest.raises(DeliveryFailed, match="no notification was shown within") as caught:
        await DesktopChannel(env, platform="linux", timeout=0.2).send(delivery())
    await asyncio.wait_for(gone.wait(), 30)
    assert caught.value.retry
    server.close()
