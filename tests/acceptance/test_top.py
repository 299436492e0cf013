"""`agentctl top` on a terminal, which is restored afterwards."""

import asyncio
import contextlib
import os
import pty
import re
import sys
import termios

import pytest

from daemon.cli.top_monitor import describe_spending
from tests.preloaded import ForkedProcess


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, process, leader):
        self.process, self.leader, self.text = process, leader, ""
        self.news = asyncio.Event()
        asyncio.get_running_loop().add_reader(leader, self._read)

    def _read(self):
        try:
            self.text += os.read(self.leader, 65536).decode("utf-8", "replace")
        except OSError:  # the other side is closed
            asyncio.get_running_loop().remove_reader(self.leader)
        self.news.set()

    async def until(self, text):
        async with asyncio.timeout(120):
            while text not in self.text:
                self.news.clear()
                await self.news.wait()

    def press(self, keys):
        os.write(self.leader, keys.encode())


@pytest.fixture
async def top(home, request):
    """`agentctl top` on a terminal, of a daemon with one routine."""
    rows, columns, more = getattr(request, "param", (30, 100, {}))
    home.routine(
        "hello", '[trigger]\nevery = "1h"\n[run]\nprompt = "Hi"\n[[deliver]]\nto = "log"\n'
    )
    await home.start()
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (rows, columns))
    process = await ForkedProcess.start_at_terminal(
        *("agentctl", "--socket", str(home.socket), "top"),
        env={**home.env, "TERM": "xterm-256color", **more},
        cwd=home.folder,
        terminal=follower,
    )
    terminal = Terminal(process, leader)
    terminal.before = termios.tcgetattr(follower)
    terminal.follower = follower
    yield terminal
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    asyncio.get_running_loop().remove_reader(leader)
    os.close(leader)
    os.close(follower)


async def test_top_shows_live_runs_and_q_restores_the_terminal(top, home):
    await top.until("q quits")
    assert "hello" in top.text and "nothing" in top.text
    result = await home.agentctl("run", "hello", "--json")
    await top.until(result.json["id"][-8:])
    top.press("q")
    assert await top.process.wait() == 0
    assert termios.tcgetattr(top.follower) == top.before
    await top.until("\x1b[?1049l")  # the screen that was there before is back


async def test_an_arrow_does_not_end_top_and_escape_does(top, home):
    await top.until("q quits")
    top.press("\x1b[B")
    result = await home.agentctl("run", "hello", "--json")
    await top.until(result.json["id"][-8:])
    top.press("\x1b")
    assert await top.process.wait() == 0


async def test_ctrl_c_ends_top_like_q(top):
    await top.until("q quits")
    top.press("\x03")
    assert await top.process.wait() == 0
    assert termios.tcgetattr(top.follower) == top.before


@pytest.mark.process
async def test_top_reports_a_stopped_daemon(top, home):
    await top.until("q quits")
    await home.stop()
    assert await top.process.wait() == 3
    await top.until("the daemon stopped")


async def test_top_without_a_terminal_names_agentctl_status(home):
    await home.start()
    result = await home.agentctl("top")
    assert result.code == 1 and "agentctl status" in result.err
    assert (await home.agentctl("top", "--json")).json["status"]["version"]


async def test_top_without_its_extra_names_the_install_command(home):
    await home.start()
    code = (
        "import sys; sys.modules['rich'] = None; from daemon.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "--socket", str(home.socket), "top"),
        env=home.env,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert (
        process.returncode == 1
        and b"pip install 'agentd-routines[top]'" in err
        and b"Traceback" not in err
    )


def test_top_shows_todays_spending_beside_its_cap():
    days = [{"outcomes": {"succeeded": 2, "missed": 1}, "tokens": {"input": 1200, "output": 34}}]
    cap = {
        "rule": "[budget] day = 5",
        "routine": None,
        "period": "day",
        "unit": "usd",
        "limit": 5.0,
        "spent": 0.1,
    }
    spending = {"total": {"usd": 0.123}, "caps": [{**cap, "routine": "news"}, cap]}
    assert describe_spending(days, spending) == "2 runs, 1,234 tokens and $0.12 of $5.00"
    assert describe_spending(days, {"total": {"usd": 0.0}, "caps": []}) == "2 runs and 1,234 tokens"


@pytest.mark.parametrize(
    "top", [(6, 100, {}), (24, 20, {}), (6, 20, {"NO_COLOR": "1"})], indirect=True
)
async def test_top_fits_a_small_terminal(top, home):
    await top.until("q quits")
    frame = top.text.rpartition("\x1b[H")[2]
    rows, columns = termios.tcgetwinsize(top.follower)
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in frame.split("\r\n")]
    assert len(lines) <= rows and max(len(line.rstrip()) for line in lines) <= columns
    assert "agentd" in lines[0] and "Under way" in frame
    result = await home.agentctl("run", "hello", "--json")
    assert result.code == 0
    await top.until("✓")
    color_code = re.search(r"\x1b\[[0-9;]*3[0-7]m", top.text)
    assert bool(color_code) is (rows != 6 or columns != 20), "NO_COLOR"
    top.press("q")
    assert await top.process.wait() == 0
