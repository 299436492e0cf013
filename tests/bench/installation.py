"""A daemon to measure: its config in a folder of its own, and its runs in a process under
measurement.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tests.bench.floors import Round
from tests.bench.measure import ROOT

# As much as a file that a report looks at may hold; the injection check reads it all.
_NOTES = "The backup of the night ran through. The certificate is good until March. " * 28

# By name: kind, model, what follows the vendor's address in base_url, the rest of the table, where
# it posts to.
WAYS: dict[str, tuple[str, str, str, str, str]] = {
    "open_source": ("open_source", "bench", "/v1", "", "/v1/chat/completions"),
    "openai": ("openai", "bench", "/v1", 'api = "chat"', "/v1/chat/completions"),
    "responses": ("openai", "gpt-6-astra", "/v1", 'api = "responses"', "/v1/responses"),
    "claude": ("claude", "claude-opus-5-5", "", "", "/v1/messages"),
    "minimax": ("minimax", "MiniMax-M3", "", "", "/v1/messages"),
}

_CONFIG = """
provider = "bench"
timezone = "UTC"
[providers.bench]
kind = "{kind}"
model = "{model}"
base_url = "{url}"
{more}
[daemon]
max_concurrent = {width}
"""

_POLICY = """
version = 1
[[rule]]
tool = "file_read"
paths = ["**"]
effect = "allow"
"""

_ROUTINE = """
description = "Two calls: read the notes, then write"
[run]
mode = "agent"
prompt = "{prompt}"
tools = ["file_read"]
memory = "{memory}"
[run.sections]
{sections}
"""


def build(
    folder: Path,
    url: str,
    *,
    kind: str = "open_source",
    memory: str = "recall+store",
    prompt: int = 0,
    width: int = 1,
) -> Path:
    """Write config, policy and `width` routines below `folder`; return the config.

    `prompt` pads the system prompt.
    """
    (folder / "routines").mkdir(parents=True)
    (folder / "state" / "workspace").mkdir(parents=True, mode=0o700)
    (folder / "state").chmod(0o700)
    family, model, path, more, _ = WAYS[kind]
    if family != "open_source":
        more += '\napi_key = "key-of-the-bench"'
    config = folder / "config.toml"
    config.write_text(
        _CONFIG.format(kind=family, model=model, url=url + path, more=more, width=max(4, width))
    )
    config.chmod(0o600)
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    policy.chmod(0o600)
    sections = f'Background = """{_background(prompt)}"""' if prompt else ""
    for number in range(width):
        routine = _ROUTINE.format(prompt=_task(number), sections=sections, memory=memory)
        (folder / "routines" / f"bench-{number}.toml").write_text(routine)
    (folder / "state" / "workspace" / "notes.md").write_text(_NOTES)
    return config


def _task(number: int) -> str:
    """Return what a routine is asked to do; a hundred of them have not all the same words in their
    tasks.
    """
    if not number:
        return "Look into notes.md and write three sentences on the state of this machine."
    words = [f"v{(number * 7 + position) % 400}" for position in range(6)]
    return f"Read notes.md, then report on {' '.join(words)}."


def _background(size: int) -> str:
    line = (
        "The host carries a database, a web server and the family's photographs; it rests from ten "
        "to seven.\n"
    )
    return (line * (size // len(line) + 1))[:size]


class Calendar:
    """A clock on which half an hour passes between two runs of a routine.

    A memory full of reports of one minute is not a real one.
    """

    def __init__(self, routines: int = 1) -> None:
        self._ahead, self._step = timedelta(), timedelta(minutes=30) / routines

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def turn(self) -> None:
        self._ahead += self._step


@asynccontextmanager
async def start_app(config: str, clock: Calendar) -> AsyncIterator[Any]:
    """Open the daemon on this config, in this process, with its engine started."""
    from daemon.app.installation import Installation
    from daemon.app.wiring import open_app
    from daemon.definitions.config.loading import load_config
    from daemon.definitions.paths import socket_in
    from daemon.definitions.routines.folder import load_folder
    from daemon.telemetry.redaction import Secrets

    state = Path(config).parent / "state"
    installation = Installation(
        config=load_config(Path(config)),
        state=state,
        socket=socket_in(state, uid=os.getuid()),
        log_file=state / "logs" / "agentd.jsonl",
        console=False,
        env={},
        secrets=Secrets(),
    )
    async with open_app(installation, clock=clock) as app:
        await app.scheduling.engine.start(load_folder(installation.config.routines_path))
        yield app
        await app.scheduling.engine.stop()


def _items(count: int) -> Iterator[tuple[str, str]]:
    """Yield things to remember: a dozen words each, and in one of 400 a word of the routine's
    prompt.
    """
    item_keys = ["notes", "write", "sentences", "state", "machine"]
    chance = random.Random(1)
    for number in range(count):
        words = [f"w{int(chance.paretovariate(0.6)) % 30_000}" for _ in range(12)]
        words += item_keys[number % 400 : number % 400 + 1]
        yield f"item:{number}", f"About {' '.join(words)}."


@asynccontextmanager
async def runs(config: str, width: int, memory_items: int) -> AsyncIterator[Round]:
    """Live runs, `width` at a time, each of two calls, with everything on and `memory_items` items
    in memory.
    """
    calendar = Calendar(width)
    async with start_app(config, calendar) as app:
        await asyncio.gather(
            *(app.store.memory.store(key, text) for key, text in _items(memory_items))
        )

        async def run_lane(number: int, count: int, times: list[float]) -> None:
            for _ in range(count):
                calendar.turn()
                begin = time.perf_counter()
                run = await app.scheduling.engine.run_now(f"bench-{number}")
                if task := app.runs.queue.running.get(run.id):
                    await asyncio.wait([task])
                times.append(time.perf_counter() - begin)

        async def round_(count: int) -> dict[str, Any]:
            times: list[float] = []
            await asyncio.gather(*(run_lane(number, count, times) for number in range(width)))
            for run in await app.store.journal.runs.find(limit=count * width):
                if run.status != "succeeded":
                    msg = f"run {run.id} {run.status}: {run.detail}"
                    raise RuntimeError(msg)
            return {"times": times}

        yield round_


# Between two looks at how late the event loop is; shorter ones would be work of their own.
_TICK = 0.002


@asynccontextmanager
async def lags(config: str, width: int, memory_items: int) -> AsyncIterator[Round]:
    """Live runs like `runs`, and tell how late the event loop came to whoever was due meanwhile,
    look by look.
    """
    loop = asyncio.get_running_loop()
    late: list[float] = []

    def look(due: float) -> None:
        nonlocal ticking
        late.append(loop.time() - due)
        due = loop.time() + _TICK
        ticking = loop.call_at(due, look, due)

    async with runs(config, width, memory_items) as live:
        ticking = loop.call_soon(lambda: None)

        async def round_(count: int) -> dict[str, Any]:
            late.clear()
            look(loop.time())
            await live(count)
            ticking.cancel()
            return {"extra": {"late": late}}

        yield round_


def agentd(config: Path) -> list[str]:
    """Return the command `agentd` on this config and its own state."""
    return [
        sys.executable,
        "-m",
        "daemon.app.main",
        "--config",
        str(config),
        "--state",
        str(config.parent / "state"),
    ]


def agentctl(*arguments: str) -> list[str]:
    """Return the command `agentctl` as it is installed, or else the same without its script."""
    script = Path(sys.executable).with_name("agentctl")
    if script.exists():
        return [str(script), *arguments]
    return [
        sys.executable,
        "-c",
        "import sys; from daemon.cli.main import main; sys.exit(main())",
        *arguments,
    ]


def environment(config: Path) -> dict[str, str]:
    """Return what our processes get to see: a home of their own, and this checkout."""
    return {
        "HOME": str(config.parent),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "AGENTD_SOCKET": str(config.parent / "state" / "agentd.sock"),
    }


class Daemon:
    """The daemon, for real, in a process of its own; it is ready when this is entered."""

    def __init__(self, config: Path, program: Sequence[str] = ()) -> None:
        """`program`: what runs the module daemon.app.main; () for Python."""
        self.config, self._program = config, program
        self._ready = config.parent / "notify.sock"
        self._errors = config.parent / "stderr"

    def __enter__(self) -> Self:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            self._ready.unlink(missing_ok=True)
            ready.bind(str(self._ready))
            ready.settimeout(60)
            self.begun = time.monotonic()
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    [*(self._program or (sys.executable, "-m")), *agentd(self.config)[2:]],
                    env=environment(self.config) | {"NOTIFY_SOCKET": str(self._ready)},
                    cwd=self.config.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            try:
                while b"READY=1" not in ready.recv(4096):
                    pass
            except TimeoutError:
                self.__exit__()
                raise RuntimeError(self._errors.read_text()[-2000:]) from None
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, path: str) -> bytes:
        """Get something from the control socket."""
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(environment(self.config)["AGENTD_SOCKET"])
            wire.sendall(
                f"GET {path} HTTP/1.1\r\nHost: agentd\r\nConnection: close\r\n\r\n".encode()
            )
            answer = b""
            while piece := wire.recv(65536):
                answer += piece
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            raise RuntimeError(answer[:500].decode())
        return answer

    def command(self, argv: Sequence[str]) -> float:
        """Run a command against it; return when that began, on the monotonic clock."""
        begin = time.monotonic()
        subprocess.run(
            argv,
            env=environment(self.config),
            cwd=self.config.parent,
            check=True,
            capture_output=True,
        )
        return begin

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Connection:
    """One connection to a daemon's control socket that stays open over many requests."""

    def __init__(self, config: Path) -> None:
        self._path = environment(config)["AGENTD_SOCKET"]

    def __enter__(self) -> Self:
        self._http = http.client.HTTPConnection("agentd", timeout=60)
        self._http.sock = socket.socket(socket.AF_UNIX)
        self._http.sock.connect(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> bytes:
        """Return the body of an answer; RuntimeError if its status is not 200."""
        return self._request("GET", path)

    def post(self, path: str) -> bytes:
        """Return the body of an answer to an empty JSON object; RuntimeError if its status is not
        200.
        """
        return self._request("POST", path, "{}")

    def _request(self, method: str, path: str, content: str | None = None) -> bytes:
        headers = {"Content-Type": "application/json"} if content else {}
        self._http.request(method, path, content, headers)
        answer = self._http.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body[:500].decode()}")
        return body
