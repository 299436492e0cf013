"""The progress bar of long commands: shown on terminals that can redraw a line, absent
elsewhere.
"""

import asyncio
import os
import re
import sys

import pytest

from daemon.cli.progress_bar import track
from tests.acceptance.story import Home
from tests.cli.agentctl import ROOT, environment, on_terminal

SCRIPT = """
from daemon.cli.progress_bar import make_progress_bar, track
assert list(track(range(1000), 1000, make_progress_bar("judging"))) == list(range(1000))
"""


async def draw(home, columns, **more):
    """Run the script on a terminal, return each state of the line."""
    import fcntl
    import pty
    import struct
    import termios

    controller, terminal_end = pty.openpty()
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))
    env = environment(home, **more)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, stderr=terminal_end, env=env, cwd=ROOT
    )
    assert await process.wait() == 0
    os.close(terminal_end)
    os.set_blocking(controller, False)
    text = b""
    try:
        while data := os.read(controller, 65536):
            text += data
    except OSError:  # all has been read, and nobody holds the other side
        pass
    os.close(controller)
    return text.decode().replace("\r\n", "\n").split("\r")[1:]


@pytest.mark.parametrize("columns", [100, 40, 20, 12])
async def test_the_progress_bar_fits_the_terminal_and_ends_at_100_percent(tmp_path, columns):
    lines = await draw(tmp_path, columns)
    assert lines[-1].endswith("100%\n") and lines[0].endswith("  0%") and len(lines) > 3
    assert max(len(line.rstrip("\n")) for line in lines) < max(columns, 14)
    assert ("[" in lines[0]) is (columns >= 20), "a bar of three signs says nothing"


async def test_a_dumb_terminal_gets_no_progress_bar(tmp_path):
    assert await draw(tmp_path, 80, TERM="dumb") == []


def test_progress_of_an_empty_list_is_complete():
    shares = []
    assert list(track([], 0, shares.append)) == [] and shares == [1.0]


@pytest.mark.slow
async def test_backup_and_restore_show_progress_on_a_terminal_and_not_in_a_pipe(
    home: Home, tmp_path
):
    home.routine("hello", '[trigger]\nevery = "1h"\n[run]\nprompt = "Hi"\n')
    await home.start()
    assert (await home.agentctl("run", "hello")).code == 0
    quiet = await home.agentctl("backup", tmp_path / "one.db")
    assert quiet.code == 0 and "%" not in quiet.out + quiet.err
    terminal = await on_terminal(home.socket, "backup", str(tmp_path / "two.db"))
    assert terminal.code == 0 and re.search(r"\rcopying \[#+\] 100%\nwrote ", terminal.out)
    assert await home.stop() == 0
    again = await on_terminal(
        home.socket, "restore", str(tmp_path / "two.db"), "--state", str(home.state)
    )
    assert again.code == 0 and "restoring [" in again.out and "resume --all" in again.out
