"""The pictures in docs/pictures, made of real sessions: `python -m tests.pictures [FOLDER]`.

    first-minute.svg   the terminal after the first commands of the README
    page.png           what `agentctl ui` shows of a day
    mail.png           a report as a mail

A real daemon runs in a home of its own, with the shipped files and, for page and mail, a scripted
model; the page and the mail are drawn by the Chromium of this machine. Times, load and disks are
those of the machine, so no test compares the pictures. Run it as an ordinary user: as root, the
daemon says that it is root's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import os
import pty
import re
import shutil
import sys
import tempfile
import termios
from collections.abc import AsyncIterator
from email.message import EmailMessage
from html import escape
from pathlib import Path

from playwright.async_api import Browser, async_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.acceptance.page.conftest import CHROMIUM, QUIET, Page
from tests.acceptance.story import ProcessHome
from tests.delivery.receivers import Mailbox

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
COLUMNS = 100
# Where the README's reader would see the folder of the session.
SHOWN_HOME = "/home/ada"
TIMEOUT = 180


# --- first-minute.svg


class Terminal:
    """A program on a terminal of `COLUMNS` columns."""

    def __init__(self, process: asyncio.subprocess.Process, leader: int) -> None:
        self.process, self.text = process, ""
        self._leader, self._news = leader, asyncio.Event()
        asyncio.get_running_loop().add_reader(leader, self._read)

    @classmethod
    async def start(cls, *words: str, home: Path) -> Terminal:
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (50, COLUMNS))
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=home / "agentd",
            env={
                "HOME": str(home),
                "PATH": "/usr/local/bin:/usr/bin:/bin",  # the README activates no .venv
                "STATE_DIRECTORY": str(home / ".local/state/agentd"),
                "TERM": "xterm-256color",
                "TZ": "Europe/Berlin",
            },
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        return cls(process, leader)

    def _read(self) -> None:
        try:
            self.text += os.read(self._leader, 65536).decode("utf-8", "replace")
        except OSError:  # the program has ended
            asyncio.get_running_loop().remove_reader(self._leader)
        self._news.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(TIMEOUT):
            while text not in self.text:
                self._news.clear()
                await self._news.wait()

    def press(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    async def run_to_end(self) -> list[str]:
        """Return the lines that stand on the terminal when the program has ended."""
        async with asyncio.timeout(TIMEOUT):
            await self.process.wait()
        await asyncio.sleep(0.2)  # what it wrote last is still to be read
        return self.lines

    @property
    def lines(self) -> list[str]:
        """What stands on the terminal; of a line that was written anew, the last."""
        lines = self.text.replace("\r\n", "\n").split("\n")
        return [line.rpartition("\x1b[K")[2].rpartition("\r")[2] for line in lines]


async def record_first_minute(folder: Path, scratch: Path) -> None:
    """Start the daemon as the README says, run a routine, list all, and draw the terminals."""
    home = scratch / "ada"
    (home / "agentd").mkdir(parents=True)
    for name in ("config.toml", "policy.toml"):
        shutil.copy(ROOT / name, home / "agentd" / name)
    shutil.copytree(ROOT / "routines", home / "agentd" / "routines")
    (home / "agentd" / ".venv").symlink_to(sys.prefix)
    daemon = await Terminal.start(".venv/bin/agentd", home=home)
    try:
        await daemon.until("without one: ")
        daemon.press("\n")
        await daemon.until("reports/daily-report/")  # the run of the first start has ended
        start = daemon.lines
        run = await Terminal.start(".venv/bin/agentctl", "run", "daily-report", home=home)
        report = await run.run_to_end()
        listing = await Terminal.start(".venv/bin/agentctl", "list", home=home)
        routines = await listing.run_to_end()
    finally:
        daemon.process.terminate()
        await daemon.process.wait()
    screen = [
        prompt(".venv/bin/agentd"),
        *start[: index_of(start, "started (first run)")],
        "",
        prompt(".venv/bin/agentctl run daily-report", "in another terminal"),
        *report[: index_of(report, "No model was asked")],
        *between(report, "Load", "Units"),
        *between(report, "Updates", "Repositories"),
        prompt(".venv/bin/agentctl list"),
        *routines,
    ]
    text = "\n".join(screen).rstrip().replace(str(home), SHOWN_HOME)
    folder.joinpath("first-minute.svg").write_text(draw_terminal(text), encoding="utf-8")


def prompt(command: str, remark: str = "") -> str:
    return f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m" + (
        f"  \x1b[2m# {remark}\x1b[0m" * bool(remark)
    )


def index_of(lines: list[str], text: str) -> int:
    return next(number for number, line in enumerate(lines) if text in line)


def between(lines: list[str], first: str, end: str) -> list[str]:
    """Return the part of a report that begins with one heading and ends before another."""
    headings = [Text.from_ansi(line).plain.strip() for line in lines]
    return lines[headings.index(first) : headings.index(end)]


def draw_terminal(text: str) -> str:
    """Return the SVG of a terminal that shows a text with its escape sequences."""
    # no font from elsewhere: who reads the page asks nobody
    template = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    return console.export_svg(
        title="agentd", theme=MONOKAI, code_format=template, unique_id="first-minute"
    )


# --- page.png, mail.png

REPORT = """\
# One disk fills up, the rest is quiet

**/var needs you this week.** It is 91 % full, 3.1 GB more than yesterday: `/var/log/nginx`.

## Since the last report

| Mount | Yesterday | Today | Free |
| --- | --- | --- | --- |
| / | 41 % | 41 % | 58 GB |
| /var | 84 % | **91 %** | 4.2 GB |
| /srv | 62 % | 63 % | 310 GB |

- The nightly backup ran in 14 minutes and is complete.
- Three security updates wait: `openssl`, `curl`, `libxml2`. None needs a restart of the machine.
- No unit has failed, and the log has no error that was not there last week.

## What to do

1. `journalctl --vacuum-size=500M`, and look at the rotation of nginx.
2. `apt upgrade` when it suits you.
"""
QUIET_REPORT = """\
# All is as it should be

No disk above 63 %, no failed unit, no new error. Two updates wait, none of them for security.
"""
INVOICES = """\
# Two invoices have landed

`2026-11-hosting.pdf` (38.08 EUR, due on 9 December) and `office-rent.pdf` (640.00 EUR, due today).
"""


CONFIG = """
timezone = "Europe/Berlin"
[budget]
day = 1.0
[targets.mail]
kind = "mail"
url = "{mail_url}"

[providers.morning]
kind = "scripted"
price = {{ input = 1.0, output = 5.0 }}
[[providers.morning.replies]]
text = '''{quiet_report}'''
[[providers.morning.replies]]
text = '''{report}'''

[providers.invoices]
kind = "scripted"
price = {{ input = 1.0, output = 5.0 }}
[[providers.invoices.replies]]
text = '''{invoices}'''
[[providers.invoices.replies]]
text = "The rent is due today."
[[providers.invoices.replies.tool_calls]]
name = "file_write"
arguments = {{ path = "accounts/2026-11.md", content = "| 2026-11-28 | rent | 640.00 EUR |" }}

[providers.week]
kind = "scripted"
price = {{ input = 1.0, output = 5.0 }}
replies = ["# A quiet week\\n\\nFour commits, all of them in docs/."]
"""
RULE = """
[[rule]]
tool = "file_write"
effect = "ask"
paths = ["accounts/**"]
"""
ROUTINES = {
    "morning": """
description = "What changed on this machine"
[trigger]
cron = "30 8 * * mon-fri"
[run]
provider = "morning"
prompt = "Write the morning report for the person who owns this machine."
[[gather]]
name = "machine"
tool = "sysinfo"
args = { parts = ["load", "memory", "disks"] }
[[deliver]]
to = "mail"
""",
    "invoices": """
description = "Enters the invoices that land in inbox/"
[trigger]
cron = "0 18 * * *"
[run]
mode = "agent"
provider = "invoices"
tools = ["file_read", "file_write"]
prompt = "Enter the new invoices into accounts/, and say what is due."
[[deliver]]
to = "file"
path = "reports/{routine}/{slot:%Y-%m-%d}.md"
""",
    "week-in-git": """
description = "The week in this repository"
[trigger]
cron = "0 16 * * fri"
[run]
provider = "week"
prompt = "Sum up the week."
[[deliver]]
to = "file"
path = "reports/{routine}/{slot:%Y-%m-%d}.md"
""",
}


def write_definitions(home: ProcessHome, mail_url: str) -> None:
    """Write config, policy and routines beside the shipped ones."""
    home.write(
        "config.toml",
        CONFIG.format(
            mail_url=mail_url, quiet_report=QUIET_REPORT, report=REPORT, invoices=INVOICES
        ),
    )
    home.write("policy.toml", (ROOT / "policy.toml").read_text("utf-8") + RULE)
    for name, text in ROUTINES.items():
        home.routine(name, text)


@contextlib.asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        sys.exit("Chromium is missing: apt install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        await browser.close()


async def take_page_and_mail(folder: Path, scratch: Path) -> None:
    """Run some routines, and take a picture of the page and of the mail that arrived."""
    box = Mailbox()
    home = ProcessHome(scratch, with_shipped_files=True)
    async with box.open(), open_browser() as browser:
        write_definitions(home, box.url)
        await home.start()
        try:
            for name in ("week-in-git", "invoices", "morning", "inbox-watch", "morning"):
                await home.agentctl("run", name)
            await home.agentctl("run", "invoices", "--detach")
            await home.wait_for_log("run.waiting")
            page = await Page(home).start()
            window = await browser.new_page(viewport={"width": 1100, "height": 1140})
            await window.goto(page.link)
            await window.wait_for_selector("h1:has-text('Today')")
            await window.screenshot(path=folder / "page.png")
            await page.stop()
            window = await browser.new_page(viewport={"width": 760, "height": 300})
            await window.set_content(as_mail_program(box.mails[-1]))
            await window.screenshot(path=folder / "mail.png", full_page=True)
        finally:
            await home.close()


def as_mail_program(mail: EmailMessage) -> str:
    """Return the HTML of a mail below its subject and addresses."""
    part = mail.get_body(("html",))
    assert part is not None
    addresses = f"{escape(mail['from'])} to {escape(mail['to'])}"
    head = f"<h3>{escape(mail['subject'])}</h3><p>{addresses}</p><hr>"
    head += "<style>body { margin: 24px }</style>"
    return re.sub("(<body[^>]*>)", lambda match: match[1] + head, part.get_content(), count=1)


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as scratch:
        await record_first_minute(folder, Path(scratch))
        await take_page_and_mail(folder, Path(scratch))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER))
