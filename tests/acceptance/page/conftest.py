"""A daemon, its web page, and a browser on the page."""

import asyncio
import json
import os
import re
import shutil
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import axe_playwright_python
import pytest
import pytest_asyncio
from playwright.async_api import async_playwright

from tests.acceptance.story import ProcessHome
from tests.conftest import close_and_replay, kind_of_home

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# a test's browser asks nobody but us, and root may not have Chromium's own sandbox
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

HOSTILE = """\
<script>document.title = 'owned'</script><img src=x onerror="document.title='owned'"><a href="javascript:alert(1)">x</a>
![pixel](http://203.0.113.9/x.png) </pre></details><b>bold</b> {{ 7 * 7 }} \u202egnp.exe
"""  # noqa: E501


def toml(text):
    """Return a text as TOML, whose escapes are those of JSON."""
    return json.dumps(text)


class Page:
    """The page of one daemon: `agentctl ui` in a process of its own."""

    def __init__(self, home):
        self.home = home
        self.process = None

    async def start(self):
        self.process = await self.home.spawn("agentctl", "--socket", self.home.socket, "ui")
        self.take_link((await self.process.stdout.readline()).decode())
        return self

    def take_link(self, line):
        """Take the link from a line of `agentctl ui`."""
        self.link = re.search(r"http://127\.0\.0\.1:(\d+)/#\S+", line)[0]
        self.base, _, self.token = self.link.partition("/#")
        self.port = int(self.base.rpartition(":")[2])

    async def stop(self):
        if self.process.returncode is None:
            self.process.terminate()
        _, err = await self.process.communicate()
        return err.decode()


def write_evil(home):
    """Write a routine whose model says hostile things."""
    says = toml(HOSTILE)
    calls = (
        f'{{ name = "file_list", arguments = {{ path = "." }} }}, {{ name = "no", arguments = {{ x '
        f"= {says} }} }}"
    )
    home.write(
        "config.toml",
        f"""
[providers.evil]
kind = "scripted"
replies = [{{ text = {says}, reasoning = {says}, tool_calls = [{calls}] }}, {says}]
""",
    )
    home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "file_list"\neffect = "allow"\n')
    home.routine(
        "evil",
        f"""
description = {toml(HOSTILE)}
[trigger]
cron = "30 8 * * *"
[run]
mode = "agent"
provider = "evil"
tools = ["file_list"]
memory = "recall+store"
prompt = {toml(HOSTILE)}
[[deliver]]
to = "log"
""",
    )


async def start_evil(home):
    """Start a daemon with that routine, and run it once."""
    write_evil(home)
    await home.start()
    home.evil_run = (await home.agentctl("run", "evil", "--json")).json


# A browser takes longer to start than to look at a page: all tests share one, and so a loop with
# all they ask for.
fixture = partial(pytest_asyncio.fixture, loop_scope="session")
with_browser = pytest.mark.asyncio(loop_scope="session")


@fixture()
async def home(request, tmp_path):
    """A home with nothing in it."""
    new_home = kind_of_home(request)(tmp_path)
    yield new_home
    await close_and_replay(new_home)


@fixture(scope="module")
async def shared_home(shared_path):
    """The same for all tests of a file."""
    new_home = ProcessHome(shared_path)
    yield new_home
    await close_and_replay(new_home)


@fixture()
async def daemon(home):
    """A daemon that has run a routine whose model says hostile things."""
    await start_evil(home)
    return home


@fixture()
async def page(daemon):
    """The page of that daemon."""
    new_page = await Page(daemon).start()
    yield new_page
    await new_page.stop()


@pytest.fixture
def shots(tmp_path):
    """A folder for pictures of what was seen: that of `SCREENSHOTS`, else one that pytest keeps for
    a while.
    """
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@fixture(scope="session")
async def browser():
    """A headless Chromium of this machine."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt install chromium")
    async with async_playwright() as playwright:
        new_browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield new_browser
        await new_browser.close()


@asynccontextmanager
async def open_window(browser, page):
    """Open the link of a page in a window of its own; its `complaints` are those of its console."""
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(120_000)
    window = await context.new_page()
    complaints = []
    window.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.base, window.complaints = page.base, complaints
    await window.goto(page.link)
    await window.wait_for_selector("h1:has-text('Today')")
    yield window
    await context.close()
    await asyncio.sleep(0)
    assert complaints == []


@fixture()
async def look(browser, page):
    """A browser's window that has opened the link; what its console complains of fails the test."""
    async with open_window(browser, page) as window:
        yield window


@fixture(scope="module")
async def shared_daemon(shared_home):
    """A daemon that has run that routine, for all tests of a file."""
    await start_evil(shared_home)
    return shared_home


@fixture(scope="module")
async def shared_window(browser, shared_daemon):
    """A window for all tests of a file, as a page, a link and a window take longer to open than to
    look at.
    """
    page = await Page(shared_daemon).start()
    async with open_window(browser, page) as window:
        yield window
    await page.stop()


@fixture()
async def shared_look(shared_window):
    """That window as it is when a link has been opened; what its console complains of fails the
    test.
    """
    await shared_window.set_viewport_size({"width": 1200, "height": 900})
    await shared_window.emulate_media(color_scheme="light")
    await shared_window.goto(shared_window.base + "/")
    await shared_window.wait_for_selector("h1:has-text('Today')")
    yield shared_window
    await asyncio.sleep(0)
    complaints = shared_window.complaints[:]
    shared_window.complaints.clear()
    assert complaints == []


async def take_picture(window, file):
    """Keep a picture of what is seen; of the whole page only for `SCREENSHOTS`, as it is laid out
    anew for that.
    """
    await window.screenshot(path=file, full_page="SCREENSHOTS" in os.environ)


async def barriers(window):
    """Return what axe-core finds on a page that keeps people out."""
    # the page's own policy lets no script of others in, so it is put in from outside; of what is
    # right it need not tell
    script = "axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)"
    violations = await window.evaluate(f"(() => {{ {AXE.read_text()} }})(); {script}")
    return [
        f"{window.url}: {violation['id']}: {violation['nodes'][0]['html']}"
        for violation in violations
    ]
