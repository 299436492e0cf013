"""The daemon stops: runs get a grace, and none at a second Ctrl-C."""

import asyncio
import os
import pty
import signal
import sqlite3
import sys
from contextlib import closing

import pytest

from daemon.app.entry import find_verb
from tests.acceptance.story import COMMANDS, READY, Vendor

pytestmark = pytest.mark.process
HELLO = '[run]\nprompt = "Say hello."\n'


async def test_a_second_ctrl_c_suspends_runs_at_once_and_the_next_start_continues_them(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}, "Hello."]) as vendor:
        providers = (
            f'[providers.local]\nkind = "open_source"\nbase_url = "{vendor.url}/v1"\nmodel = "m"\n'
        )
        home.write("config.toml", f'provider = "local"\n{providers}[daemon]\ngrace = "1h"\n')
        await home.start()
        run = (await home.agentctl("run", "hello", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        home.process.send_signal(signal.SIGINT)
        while b"executor.draining" not in (home.state / "logs/agentd.jsonl").read_bytes():
            assert home.process.returncode is None
        assert await home.stop(signal.SIGINT) == 0
        assert "Traceback" not in home.complaints
        await home.start()
        assert (await home.until(run, "run_ended"))["report"] == "Hello."


async def test_a_daemon_at_a_terminal_stops_when_that_is_closed_and_reloads_while_it_is_open(home):
    home.routine("hello", HELLO)
    controller, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        COMMANDS["agentd"],
        *home.places,
        env=home.env,
        cwd=home.folder,
        stdin=terminal,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(terminal)
    while READY not in (await process.stdout.readline()).decode():
        assert process.returncode is None
    home.routine("later", HELLO)
    process.send_signal(signal.SIGHUP)
    while b"definitions.reloaded" not in (home.state / "logs/agentd.jsonl").read_bytes():
        assert process.returncode is None
    os.close(controller)
    process.send_signal(signal.SIGHUP)
    await process.stdout.read()
    assert await process.wait() == 0


HANG_UP_AT_FIRST_IMPORT = """
import os, signal, sys

def hang_up(event, arguments):
    if event == "import" and arguments[0] == "daemon.app.main":
        os.kill(os.getpid(), signal.SIGHUP)

sys.addaudithook(hang_up)
from daemon.app.entry import main
sys.exit(main())
"""


async def test_a_hang_up_while_the_program_is_still_being_imported_ends_no_start(home):
    home.routine("hello", HELLO)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HANG_UP_AT_FIRST_IMPORT, *home.places),
        env=home.env,
        cwd=home.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    while READY not in (line := (await process.stdout.readline()).decode()):
        assert line, await process.wait()
    process.terminate()
    await process.stdout.read()
    assert await process.wait() == 0


async def test_a_hang_up_ends_a_command_that_is_no_daemon(home):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HANG_UP_AT_FIRST_IMPORT, *home.places, "validate"),
        env=home.env,
        cwd=home.folder,
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == -signal.SIGHUP


@pytest.mark.parametrize("limits", [(0.5, 600), (600, 0.5)])
async def test_of_several_limits_to_the_end_of_a_process_the_earliest_counts(limits):
    code = (
        "import time\nfrom daemon.app.main import EndLimit\nlimit = EndLimit()\n"
        f"for seconds in {limits}:\n    limit(seconds)\ntime.sleep(300)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode == 1
    assert b"most recent call first" in stderr


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("", None),
        ("--state s --config=c", None),
        ("--config c worker", "worker"),
        ("once hello --state s", "once"),
        ("--config", None),
    ],
)
def test_the_verb_stands_behind_the_options_of_the_program(words, verb):
    assert find_verb(words.split()) == verb


async def test_a_run_without_a_step_for_an_hour_goes_on_after_a_short_stop(home):
    async with Vendor([{"hang": True}, "Hello."]) as vendor:
        providers = (
            f'[providers.local]\nkind = "open_source"\nbase_url = "{vendor.url}/v1"\nmodel = "m"\n'
        )
        home.write("config.toml", f'provider = "local"\n{providers}[daemon]\ngrace = "0.01s"\n')
        home.routine("hello", f'[trigger]\nevery = "1h"\ncatch_up = "none"\n{HELLO}')
        await home.start()
        run = (await home.agentctl("run", "hello", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        assert await home.stop() == 0
        with closing(sqlite3.connect(home.state / "agentd.db")) as database:
            hour = 3600 * 10**6
            begun_by_its_schedule = "event = NULL, created = created - ?, started = started - ?"
            database.execute(f"UPDATE run SET {begun_by_its_schedule}", [hour, hour])
            database.execute("UPDATE step SET at = at - ?", [hour])
            database.commit()
        await home.start()
        assert (await home.until(run, "run_ended"))["report"] == "Hello."
