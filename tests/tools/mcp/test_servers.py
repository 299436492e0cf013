"""Real MCP servers, over pipes and over HTTP: found when they are needed, called like any tool,
gone and back again.
"""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from daemon.definitions.config.tables import McpConfig
from daemon.errors import ToolFailed
from daemon.models import FunctionCall
from daemon.tools.executor import ToolExecutor
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry

ROOT = Path(__file__).parents[3]
# One loop for the file, as what a server is asked by lives in the loop that started it.
pytestmark = pytest.mark.asyncio(loop_scope="module")
TIME = {"command": [sys.executable, "-m", "mcp_server_time"]}


class Shop:
    """A registry, and the servers whose tools come into it."""

    def __init__(self, configs, secret=None):
        self.registry = FunctionRegistry()
        made = {name: McpConfig.model_validate(config) for name, config in configs.items()}
        self.servers = Servers(made, self.registry, secrets=dict.fromkeys(made, secret))
        self.executor = ToolExecutor(self.registry)

    async def call(self, name, **arguments):
        return await self.executor.run(FunctionCall(name=name, arguments=arguments))


@pytest_asyncio.fixture(loop_scope="module")
async def shop():
    made = []

    def open_shop(configs, secret=None):
        made.append(Shop(configs, secret))
        return made[-1]

    yield open_shop
    for each in made:
        await each.servers.close()


def children(word):
    """Return the process ids of our children whose command line holds a word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, line = (entry / "stat").read_text(), (entry / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if word in line and int(status.rpartition(")")[2].split()[1]) == os.getpid():
            found.append(int(entry.name))
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def time():
    """A shop with a server that tells the time and one that cannot start; one for all tests, as a
    server takes a second to start.
    """
    broken = {"command": [sys.executable, "-c", "import sys; sys.exit('no database')"]}
    time = Shop({"time": TIME, "broken": broken})
    await time.servers.ready(["broken__*", "time__*"])
    yield time
    await time.servers.close()


async def test_a_server_is_started_when_its_tools_are_first_needed_and_ends_when_closed(shop):
    others = children("mcp_server_time")
    time = shop({"time": TIME})
    await time.servers.ready(["shell", "file_*"])
    assert time.registry.names() == [] and children("mcp_server_time") == others
    await time.servers.ready(["time__*"])
    assert time.registry.names() == ["time__get_current_time", "time__convert_time"]
    schema = time.registry.get_function("time__get_current_time").parameters
    assert schema["required"] == ["timezone"]
    result = await time.call("time__get_current_time", timezone="Europe/Berlin")
    assert result.ok and result.value["timezone"] == "Europe/Berlin"
    assert len(children("mcp_server_time")) == len(others) + 1
    await time.servers.close()
    assert children("mcp_server_time") == others


async def test_what_a_server_says_went_wrong_is_what_the_model_reads(time):
    result = await time.call("time__get_current_time", timezone="Nowhere/Never")
    assert not result.ok and "Nowhere/Never" in result.text
    wrong = await time.call("time__get_current_time", zone="Europe/Berlin")
    assert not wrong.ok and "timezone" in wrong.text


async def test_a_server_that_was_killed_is_started_again_by_the_next_call(time):
    (pid,) = children("mcp_server_time")
    os.kill(pid, signal.SIGKILL)
    first = await time.call("time__get_current_time", timezone="UTC")
    if not first.ok:  # it had answered a moment ago, so it was not asked whether it is there
        assert "unknown" in first.text
    assert (await time.call("time__get_current_time", timezone="UTC")).ok
    (other,) = children("mcp_server_time")
    assert other != pid


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")
async def test_a_second_server_speaks_about_git(shop, tmp_path):
    await (await asyncio.create_subprocess_exec("git", "init", "-q", str(tmp_path))).wait()
    git = shop({"git": {"command": [sys.executable, "-m", "mcp_server_git"]}})
    await git.servers.ready(["git__*"])
    assert "git__git_status" in git.registry.names()
    result = await git.call("git__git_status", repo_path=str(tmp_path))
    assert result.ok and "No commits yet" in result.text


async def test_a_server_that_cannot_start_says_why_and_harms_no_other(shop, time):
    assert time.registry.names() == ["time__get_current_time", "time__convert_time"]
    missing = shop({"gone": {"command": ["/no/such/program"]}})
    await missing.servers.ready(["gone__*"])
    assert missing.registry.names() == []


async def test_a_call_that_takes_too_long_is_given_up_and_said_to_be_unknown(shop, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import anyio\nfrom mcp.server.mcpserver import MCPServer\ns = MCPServer('slow')\n"
        "@s.tool()\nasync def nap() -> str:\n    'Sleep.'\n    await anyio.sleep(600)\n    return "
        "'up'\ns.run()\n"
    )
    napping = shop({"slow": {"command": [sys.executable, str(slow)], "timeout": "0.2s"}})
    await napping.servers.ready(["slow__*"])
    result = await napping.call("slow__nap")
    assert (
        not result.ok and "did not answer within 0.2 s" in result.text and "unknown" in result.text
    )


class Web:
    """The server of tests/tools/mcp/web.py."""

    def __init__(self, token=""):
        self.token, self.port = token, 0

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.tools.mcp.web", *filter(None, [self.token])),
            env={**os.environ, "PORT": str(self.port)},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        self.port = int(await self.process.stdout.readline())

    @property
    def config(self):
        return {"url": f"http://127.0.0.1:{self.port}/mcp"}

    async def stop(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web():
    made = Web("token-of-the-web")
    await made.start()
    yield made
    await made.stop()


async def test_a_server_behind_http_is_asked_with_its_token_and_survives_its_restart(shop, web):
    loud = shop({"web": web.config}, secret="token-of-the-web")
    await loud.servers.ready(["web__*"])
    assert (await loud.call("web__shout", text="hello")).text == '{"result": "HELLO"}'
    gone = await loud.call("web__leave")
    assert not gone.ok
    assert "what came of it is unknown" in gone.text
    await web.stop()
    await web.start()
    assert (await loud.call("web__shout", text="again")).ok


async def test_without_its_token_it_is_not_reached_and_that_is_told(shop, web):
    loud = shop({"web": web.config})
    await loud.servers.ready(["web__*"])
    assert loud.registry.names() == []
    with pytest.raises(ToolFailed, match="web"):
        await loud.servers._servers["web"].tools()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node: apt install nodejs npm")
async def test_the_reference_server_of_the_protocol_is_understood(shop):
    program = next(
        (
            place / "@modelcontextprotocol/server-everything/dist/index.js"
            for place in (
                Path(os.environ.get("AGENTD_NODE_MODULES", "node_modules")),
                ROOT / "node_modules",
            )
            if (place / "@modelcontextprotocol/server-everything/dist/index.js").is_file()
        ),
        None,
    )
    if program is None:
        pytest.skip(
            (  # noqa: UP034
                "needs npm install @modelcontextprotocol/server-everything; AGENTD_NODE_MODULES "
                "says where"
            )
        )
    every = shop({"every": {"command": ["node", str(program)]}})
    await every.servers.ready(["every__*"])
    assert "every__echo" in every.registry.names()
    assert "hello" in (await every.call("every__echo", message="hello")).text
