"""Notifications for systemd by sd_notify(3)."""

import asyncio
import os
import signal
import socket

import pytest

from daemon.system.notify import Notifier


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(60)
        yield channel


def test_state_lines_arrive_in_one_datagram(manager):
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).send("READY=1", "STATUS=2 routines")
    assert manager.recv(4096) == b"READY=1\nSTATUS=2 routines"


def test_notifications_reach_an_abstract_socket():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0agentd-test-{os.getpid()}")
        channel.settimeout(60)
        Notifier({"NOTIFY_SOCKET": f"@agentd-test-{os.getpid()}"}).send("STOPPING=1")
        assert channel.recv(100) == b"STOPPING=1"


def test_without_systemd_no_notification_is_sent():
    Notifier({}).send("READY=1")
    Notifier({"NOTIFY_SOCKET": "/nowhere/at/all"}).send("READY=1")


async def test_the_watchdog_is_fed_from_the_event_loop(manager):
    env = {
        "NOTIFY_SOCKET": manager.getsockname(),
        "WATCHDOG_USEC": "20000",
        "WATCHDOG_PID": str(os.getpid()),
    }
    feeding = asyncio.create_task(Notifier(env).feed_watchdog())
    for _ in range(3):
        assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
    feeding.cancel()


async def test_the_watchdog_of_another_process_is_not_fed(manager):
    env = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}
    await Notifier(env).feed_watchdog()


@pytest.mark.process
async def test_daemon_notifies_systemd_from_start_to_stop(manager, home):
    home.env["NOTIFY_SOCKET"] = manager.getsockname()
    home.env["WATCHDOG_USEC"] = "60000000"
    home.routine("morning", '[run]\nprompt = "x"\n')

    async def receive_after_watchdog(first):
        while not (
            state_lines := (await asyncio.to_thread(manager.recv, 4096)).decode()
        ).startswith(first):
            assert state_lines == "WATCHDOG=1"
        return state_lines

    await home.start()
    assert await receive_after_watchdog("READY=1") == "READY=1\nSTATUS=1 routines"
    home.process.send_signal(signal.SIGHUP)
    assert "MONOTONIC_USEC=" in await receive_after_watchdog("RELOADING=1")
    assert await receive_after_watchdog("READY=1") == "READY=1\nSTATUS=1 routines"
    assert await home.stop() == 0
    assert await receive_after_watchdog("STOPPING=1") == "STOPPING=1"
