"""Notifications on a real session bus, with a notification server behind it."""

import asyncio
import json
import os
import shutil
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

pytest.importorskip("dbus_fast", reason="needs dbus-fast: pip install 'agentd-routines[desktop]'")

from daemon.delivery.channels.desktop import DesktopChannel
from daemon.errors import DeliveryFailed, TargetAbsent
from daemon.models import Status, Taint

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
async def test_a_report_becomes_a_notification_with_its_number_as_receipt(tmp_path, delivery):
    async with desktop(tmp_path, "body") as (env, notifications):
        receipt = await DesktopChannel(env).send(
            delivery("# Morning\n\n**All** is [well](https://example.org). 中")
        )
        notification = json.loads(await notifications.readline())
    assert receipt.detail == "notification 42"
    assert (notification["app"], notification["title"]) == ("agentd", "Morning")
    assert notification["body"] == "All is well (https://example.org). 中"
    assert notification["hints"] == {"urgency": 1, "desktop-entry": "agentd"}


@needs_bus
async def test_a_failure_is_an_urgent_notification_with_escaped_markup(tmp_path, delivery):
    async with desktop(tmp_path, "body", "body-markup") as (env, notifications):
        bad = delivery("", status=Status.FAILED, detail="exit <b>1</b> & more " + "word " * 200)
        await DesktopChannel(env).send(bad)
        notification = json.loads(await notifications.readline())
    assert notification["hints"]["urgency"] == 2 and notification["title"].startswith(
        "daily-report failed"
    )
    assert (
        "&lt;b&gt;" in notification["body"].replace("‹", "&lt;")
        and "<" not in notification["body"]
        and " &amp; more" in notification["body"]
    )
    assert notification["body"].endswith("shows the rest") and len(notification["body"]) < 600


async def body_of(tmp_path, report):
    """Show a report, and return the text of the notification."""
    async with desktop(tmp_path, "body") as (env, notifications):
        await DesktopChannel(env).send(report)
        return json.loads(await notifications.readline())["body"]


@needs_bus
async def test_the_output_of_a_script_is_shown_as_it_is(tmp_path, delivery):
    output = "PID  USER\n# 1  *root*\n__init__.py  [x](y)"
    assert await body_of(tmp_path, delivery(output, verbatim=True)) == output


@needs_bus
async def test_a_strangers_word_leads_nowhere_where_the_report_is_cut(tmp_path, delivery):
    report = delivery("Well." + "\n" * 3987 + "evil.com" + "x" * 40)
    tainted_report = replace(report, report=replace(report.report, taint=Taint.TAINTED))
    assert await body_of(tmp_path, tainted_report) == "Well.\nevil[.]com"


@needs_bus
async def test_a_notification_is_retried_without_a_notification_server(tmp_path, delivery):
    async with session(tmp_path) as env:
        with pytest.raises(DeliveryFailed, match="no notification was shown") as error:
            await DesktopChannel(env).send(delivery())
    assert error.value.retry


async def test_a_missing_desktop_session_is_reported(tmp_path, delivery):
    with pytest.raises(DeliveryFailed, match="no desktop session") as error:
        await DesktopChannel({"XDG_RUNTIME_DIR": str(tmp_path)}, platform="linux").send(delivery())
    assert error.value.retry


async def test_a_machine_without_a_desktop_is_no_failed_target(tmp_path, delivery):
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    channel = DesktopChannel(env, platform="linux", root=tmp_path)
    with pytest.raises(TargetAbsent, match="no desktop to log in to"):
        await channel.send(delivery())
    (tmp_path / "usr/share/wayland-sessions").mkdir(parents=True)
    with pytest.raises(DeliveryFailed, match="no desktop session") as error:
        await channel.send(delivery())
    assert not isinstance(error.value, TargetAbsent) and error.value.retry


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
async def test_an_invalid_answer_of_the_session_bus_is_a_failed_delivery(
    tmp_path, delivery, answer
):
    async def talk(reader, writer):
        writer.write(answer)
        await writer.drain()
        writer.close()

    path = tmp_path / "bus"
    server = await asyncio.start_unix_server(talk, path)
    with pytest.raises(DeliveryFailed):
        await DesktopChannel({"XDG_RUNTIME_DIR": str(tmp_path)}, platform="linux").send(delivery())
    server.close()


async def test_a_silent_session_bus_times_out_and_the_notification_is_retried(tmp_path, delivery):
    is_gone = asyncio.Event()

    async def listen(reader, writer):
        await reader.read()
        is_gone.set()
        writer.close()

    server = await asyncio.start_unix_server(listen, tmp_path / "bus")
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with pytest.raises(DeliveryFailed, match="no notification was shown within") as error:
        await DesktopChannel(env, platform="linux", timeout=0.2).send(delivery())
    await asyncio.wait_for(is_gone.wait(), 30)
    assert error.value.retry
    server.close()
