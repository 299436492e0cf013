"""Fixtures of all tests: the user of processes, and a home with a daemon."""

import contextlib
import gc
import importlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from tempfile import gettempdir, mkdtemp

import freezegun
import hypothesis
import pytest
import structlog
from freezegun import freeze_time

from tests import preloaded
from tests.acceptance.story import InProcessHome, ProcessHome
from tests.engine_harness import EngineHarness
from tests.postgres import Server, make_template
from tests.properties import FULL_EXAMPLES, QUICK_EXAMPLES
from tests.replaying import assert_runs_replay_in
from tests.slow import ALL_TESTS, mark_slow

# Four thousand modules that ask for no time: to look through them takes half of what it takes to
# freeze it. What pytest and its plugins measure tests with stays real (`--durations`, the junit
# file); no more of them, as freezegun gives the real time to all that such a module calls, and
# pytest calls the tests.
freezegun.configure(
    extend_ignore_list=["anthropic", "numpy", "openai", "_pytest.timing", "pytest_timeout"]
)

# Where no daemon has configured its log: by default a traceback is drawn with colours and all local
# variables, which takes longer than most tests.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

# A busy machine is slow to make examples, and that is no fault of the strategy; a clone may be
# one's to read only. What `quick` leaves out is tried by `.ci/run`.
for profile, max_examples in (("quick", QUICK_EXAMPLES), ("full", FULL_EXAMPLES)):
    hypothesis.settings.register_profile(
        profile,
        max_examples=max_examples,
        deadline=None,
        database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("quick")

# What a script starts in the background ignores Ctrl-C, and so would every process that the tests
# start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):  # the latter by nohup
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: some test waits for a process, a disk or a browser at any
    time. No soak does.
    """
    return len(os.sched_getaffinity(0)) + (config.option.markexpr != "soak")


def pytest_addoption(parser):
    parser.addoption(
        "--soak-seconds", type=float, default=20.0, help="how long each soak test goes on"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Look for no garbage while tests are collected, nor afterwards among what was: all stays."""
    gc.disable()
    if hasattr(session.config, "workerinput"):
        import_test_files(session.config)
    items = yield
    gc.freeze()
    gc.enable()
    return items


def import_test_files(config):
    """Import the files of tests, this worker's share first.

    Pytest compiles what it has not seen before in a slow way of its own, and writes that down: so
    the workers do it for each other. What fails to be imported is reported when it is collected.
    """
    folders = [config.invocation_params.dir / name for name in config.args]
    files = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    number = int(config.workerinput["workerid"].removeprefix("gw"))
    first = len(files) * number // config.workerinput["workercount"]
    for file in files[first:] + files[:first]:
        name = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


OF_ROOT = pytest.StashKey[Path]()
LEFT_OUT = pytest.StashKey[int]()
"""How many slow tests `-m` has left out."""


def pytest_configure(config):
    """As root, have a temporary folder for this session alone, removed when all went well.

    Each session that begins closes /tmp/pytest-of-root to all others, and so to the user who runs
    tools in another one.
    """
    if os.geteuid() == 0 and not config.option.basetemp:
        config.stash[OF_ROOT] = Path(mkdtemp(prefix="tests-"))
        config.option.basetemp = str(config.stash[OF_ROOT] / "t")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    preloaded.close_all()
    if OF_ROOT in session.config.stash and exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        shutil.rmtree(session.config.stash[OF_ROOT], ignore_errors=True)


def pytest_deselected(items):
    """Count the slow tests that `-m` leaves out: what `-k` leaves out holds others, too."""
    if not items:  # what --last-failed says when it leaves out nothing more
        return
    config = items[0].config
    soaks = [item for item in items if item.get_closest_marker("soak")]
    slow = [item for item in items if item.get_closest_marker("slow") and item not in soaks]
    if slow and len(slow) + len(soaks) == len(items):
        config.stash[LEFT_OUT] = len(slow)
        if hasattr(config, "workeroutput"):
            config.workeroutput["slow_tests_left_out"] = len(slow)


def pytest_testnodedown(node):
    """Keep what a worker has counted: each has collected the same tests."""
    left_out = getattr(node, "workeroutput", {}).get("slow_tests_left_out", 0)
    if left_out:
        node.config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{left_out} slow tests are left out; to run all: {ALL_TESTS}")


def pytest_collection_modifyitems(items):
    mark_slow(items)  # before `-m` is looked at
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip("needs to be root: sudo pytest -m root"))


@pytest.fixture
def unused_address():
    """The address, HOST:PORT, of a port that is taken, and where nobody listens: it refuses every
    connection.
    """
    with socket.socket() as taken_port:
        taken_port.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken_port.getsockname()[1]}"


@pytest.fixture
def tmp_path(tmp_path):
    """A folder of the test's own; as root, one that the user whom a daemon lets run its tools gets
    through to.
    """
    return _let_through(tmp_path)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    """The same for what all tests of a file look at."""
    return _let_through(tmp_path_factory.mktemp("shared"))


def _let_through(path):
    folder = path
    while os.geteuid() == 0 and folder != Path(gettempdir()) and folder != folder.parent:
        folder.chmod(folder.stat().st_mode | 0o011)
        folder = folder.parent
    return path


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl: apt-get install openssl")
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=box"]
    names = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        tmp_path / "key.pem",
        "-out",
        tmp_path / "cert.pem",
    ]
    subprocess.run(["openssl", *options, *names], check=True, capture_output=True)
    return tmp_path / "cert.pem", tmp_path / "key.pem"


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server with a database of our tables, to be copied; one for all tests of this
    process.
    """
    server = Server()
    try:
        server.template = make_template(server)
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres):
    """The URL of a database with our tables and nothing in them."""
    name = postgres.lend()
    yield postgres.url(name)
    postgres.take_back(name)


@pytest.fixture
async def home(request, tmp_path):
    """A home with nothing in it; a daemon started there is stopped at the end.

    The daemon lives in the process of the test, unless the test is marked `process`.
    """
    home = kind_of_home(request)(tmp_path)
    yield home
    await close_and_replay(home)


@pytest.fixture
async def shipped_home(request, tmp_path):
    """A home with the files we ship."""
    home = kind_of_home(request)(tmp_path, with_shipped_files=True)
    yield home
    await close_and_replay(home)


def kind_of_home(request):
    return ProcessHome if request.node.get_closest_marker("process") else InProcessHome


async def close_and_replay(home):
    """Stop the daemon of a home, and replay whatever it has run."""
    await home.close()
    await assert_runs_replay_in(home.state, home.folder / "config.toml")


@pytest.fixture
def time():
    """A clock that stands still until the test moves it; what the event loop sleeps stays real."""
    # pydantic cannot read the types of the tables' columns while `datetime` is a frozen one
    importlib.import_module("daemon.store.tables")
    with freeze_time("2026-01-01 08:00", real_asyncio=True) as frozen_time:
        yield frozen_time


@pytest.fixture
async def harness(tmp_path, time):
    """A state folder for engines that live one after another."""
    engine_harness = EngineHarness(tmp_path, time)
    yield engine_harness
    if engine_harness.db:
        await engine_harness.engine.stop()
        await engine_harness.crash()
