"""What somebody sees who starts the daemon at a terminal of 80 columns for the first time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import struct
import sys
import termios

import pytest

from daemon.app.main import EX_CONFIG
from daemon.cli.render import display_width
from tests.app.setup.terminal import terminal

pytestmark = pytest.mark.process


class Terminal:
    """A daemon at a terminal of its own."""

    def __init__(self, home, **env):
        self.home, self.env, self.text = home, {**home.env, **env}, ""

    async def __aenter__(self):
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "daemon.app.main", *map(str, self.home.places)),
            env=self.env,
            cwd=self.home.folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        return self

    async def wait_for(self, pattern):
        loop = asyncio.get_running_loop()
        while not re.search(pattern, self.text):
            ready = asyncio.Event()
            loop.add_reader(self.master, ready.set)
            await ready.wait()
            loop.remove_reader(self.master)
            self.text += os.read(self.master, 65536).decode().replace("\r\n", "\n")

    async def __aexit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        assert await self.process.wait() == 0
        os.close(self.master)


@pytest.mark.slow
async def test_the_first_minute_is_a_banner_short_lines_and_the_first_report(shipped_home):
    utf8 = {"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    async with Terminal(shipped_home, **utf8) as terminal:
        await terminal.wait_for(r"✓ daily-report \S+ m?s → reports/daily-report/\S+\.md\n")
        await terminal.wait_for(r"The first report, of daily-report:\n\n(?s:.*)• Name: ")
        await terminal.wait_for(r"✓ heartbeat .*\n")
    lines = terminal.text.splitlines()
    assert lines[0].startswith("agentd ") and "run.finished" not in terminal.text
    assert max(map(display_width, lines)) <= 80 + len(str(shipped_home.folder))
    assert next(line for line in lines if "»" in line).endswith(" started (first run)")
    program = lines[lines.index("In another terminal:") + 1].split()[0]
    assert program == "agentctl" or os.access(shipped_home.folder / program, os.X_OK)
    log = (shipped_home.state / "logs" / "agentd.jsonl").read_text()
    assert "run.finished" in log and "engine.started" in log
    async with Terminal(
        shipped_home, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    ) as again:
        await again.wait_for("In another terminal:")
        await shipped_home.agentctl("run", "daily-report")
        await again.wait_for(r"\+\S* daily-report \S+ m?s -> reports/daily-report/\S+\.md\n")
    assert "The first report" not in again.text and again.text.isascii()


async def test_a_terminal_shows_all_events_where_the_config_says_so(home):
    (home.folder / "config.toml").write_text('[log]\nformat = "full"\n')
    async with Terminal(home, NO_COLOR="1") as terminal:
        await terminal.wait_for(r"info     engine\.started routines=")


async def test_a_fault_at_the_start_is_broken_between_words(home):
    home.write("config.toml", '[targets.mine]\nkind = "email"\n')
    places = map(str, home.places)
    async with terminal(*places, env=home.env, cwd=home.folder) as screen:
        assert await screen.end() == EX_CONFIG
    lines = [line.strip() for line in screen.text.splitlines()]
    assert max(len(line) for line in lines if " " in line) <= 80
    text = " ".join(lines)
    assert text.startswith("agentd: ")
    assert text.endswith('(found "email"); did you mean "mail"?')
