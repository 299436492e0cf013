"""What tests of your own tools and routines need: a fake clock, a scripted model, a whole daemon.

`TestApp` is agentd inside the process of the test, on a folder of the test's own. Everything in it
is the real thing, from the config to the journal, but for three: time stands still until the test
moves it (`FakeClock`), the model reads its answers from a list (`ScriptedProvider`, the provider
kind `scripted`), and the environment is empty, so that no key of yours is used by accident.

    from daemon.testing import TestApp, tool_call

    async def test_the_report_names_the_machine(tmp_path):
        app = TestApp(tmp_path)
        app.write_routine("load", '''
            [run]
            prompt = "How busy is this machine?"
            mode = "agent"
            tools = ["sysinfo"]
        ''')
        app.write("policy.toml", 'version = 1\\n[[rule]]\\ntool = "sysinfo"\\neffect = "allow"\\n')
        async with app:
            app.model.enqueue(tool_call("sysinfo", parts=["load"]), "It is idle.")
            run = await app.run("load")
            assert run.report == "It is idle."

No schedule runs in a TestApp: a test starts each run itself. Nothing here needs pytest; a test
framework has to run coroutines, as pytest does with pytest-asyncio or anyio. docs/testing.md tells
more.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from daemon.api.listener import open_listener
from daemon.api.server import ApiServer, make_control_application
from daemon.app.api_context import api_context
from daemon.app.installation import Installation
from daemon.app.parts import App
from daemon.app.wiring import handle_clock_change, open_app
from daemon.definitions.config.loading import load_config
from daemon.definitions.paths import socket_in
from daemon.errors import ConfigError
from daemon.models import Delivery, Json, Run, Status, Step
from daemon.providers.scripted import ScriptedProvider
from daemon.scheduler.triggers import input_by_hand
from daemon.telemetry.redaction import Secrets

__all__ = ["ApiResponse", "FakeClock", "ScriptedProvider", "TestApp", "tool_call"]

# A Friday noon in winter, far from midnight and from any change of the clocks.
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CONFIG = """\
timezone = "UTC"
provider = "scripted"
[providers.scripted]
kind = "scripted"
"""
POLICY = "version = 1\n"
# What a TestApp copies of an installation; its config.toml is the test's own.
DEFINITIONS = ("policy.toml", "routines", "scripts", "skills", "tools")
# Seconds before a model that failed is asked again.
RETRY_SECONDS = 0.001


class FakeClock:
    """A clock that stands still until it is moved; `daemon.system.clock.Clock` for a daemon."""

    def __init__(self, start: datetime = START) -> None:
        """`start` is an aware datetime."""
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        return self._now

    def advance(self, **by: float) -> datetime:
        """Move the clock ahead by what `datetime.timedelta` takes, as in `advance(hours=2)`.

        Returns the present instant.
        """
        self._now += timedelta(**by)
        return self._now

    def move_to(self, instant: datetime) -> None:
        """Set the clock, ahead or back."""
        self._now = instant.astimezone(UTC)


def tool_call(name: str, /, **arguments: Any) -> Json:
    """Return an answer of a scripted model that calls one tool.

    An answer with several calls is `{"text": "…", "tool_calls": [{"name": …, "arguments": {…}}]}`.
    """
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """An answer of the control API."""

    status: int
    headers: Mapping[str, str]
    """The headers by names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


class TestApp:
    """The daemon in this process, on a folder of the test's own.

    `async with app:` opens it and closes it. It may be opened several times, one after another:
    each time is a new start on what the last one left. Files that it is to read are written before.
    """

    __test__ = False  # pytest takes classes called Test* for tests

    daemon: App
    """The daemon itself, while it is open: its journal, engine, memory, policy, registry, …"""

    def __init__(
        self,
        folder: Path,
        *,
        config: str = CONFIG,
        definitions: Path | None = None,
        clock: FakeClock | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare `folder`; `config.toml` and `policy.toml` are written where there are none.

        `config` is the text of the config, with the one scripted provider `scripted` by default.
        `definitions` is the config folder of an installation, of which policy, routines, skills,
        scripts and tools are copied. `env` is what the daemon finds as its environment variables.
        """
        self.folder, self.state = folder, folder / "state"
        self.clock = clock or FakeClock()
        self.env = dict(env or {})
        self._resources = AsyncExitStack()
        if definitions:
            for name in DEFINITIONS:
                _copy(definitions / name, folder / name)
        (folder / "routines").mkdir(exist_ok=True)
        for name, text in (("config.toml", config), ("policy.toml", POLICY)):
            if not (folder / name).exists():
                self.write(name, text)

    # --- files

    def write(self, name: str, text: str) -> Path:
        """Write a file of the folder, readable by its owner only, as agentd wants it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def write_routine(self, name: str, text: str) -> Path:
        """Write the file of a routine; it is read when the app is opened."""
        return self.write(f"routines/{name}.toml", text)

    @property
    def workspace(self) -> Path:
        """The folder that tools work in, unless the config names another one."""
        return self.state / "workspace"

    # --- life

    async def __aenter__(self) -> Self:
        """Start the daemon on the folder; raises ConfigError for a file that cannot be used.

        A routine that cannot be used is no such file: it is in `faults`.
        """
        self.state.mkdir(mode=0o700, exist_ok=True)
        installation = Installation(
            config=load_config(self.folder / "config.toml"),
            state=self.state,
            socket=socket_in(self.state, uid=os.getuid()),
            log_file=self.state / "logs" / "agentd.jsonl",
            console=False,
            env=self.env,
            secrets=Secrets(),
        )
        async with AsyncExitStack() as resources:
            self.daemon = await resources.enter_async_context(
                open_app(installation, clock=self.clock)
            )
            contents = await self.daemon.reloader.load_routines()
            await self.daemon.scheduling.engine.load_with_states(contents)
            self.daemon.runs.parts.contexts.backoff = RETRY_SECONDS
            self._resources = resources.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop the daemon; what it wrote stays in the folder."""
        await self._resources.aclose()

    @property
    def faults(self) -> Mapping[str, ConfigError]:
        """What is wrong with routines, by their names."""
        return self.daemon.scheduling.engine.faults

    @property
    def model(self) -> ScriptedProvider:
        """The model that the config's `provider` names: `enqueue` gives it answers, `calls` holds
        what it was asked. Raises TypeError if it is not scripted.
        """
        return self.model_named(self.daemon.settings.config.provider)

    def model_named(self, name: str) -> ScriptedProvider:
        """Return the scripted model of this name in config.toml; TypeError if it is not scripted.

        Each time the app is opened, the script of the config begins anew.
        """
        provider = self.daemon.settings.providers.get(name)
        if not isinstance(provider, ScriptedProvider):
            raise TypeError(f"the provider {name!r} is of kind {provider.kind}, not scripted")
        return provider

    # --- runs

    async def run(
        self,
        routine: str,
        input: str | None = None,  # noqa: A002  the name that agentctl and the API use
        *,
        tainted: bool = False,
    ) -> Run:
        """Run a routine now, as `agentctl run` does, and return its run as `finish` does.

        `tainted`: strangers may have written the `input`. Raises NotFound, or Refused if the
        routine cannot be used, a run of it is under way, or the input is empty or too long.
        """
        run_input = None if input is None else input_by_hand(input, is_tainted=tainted)
        run = await self.daemon.scheduling.engine.run_now(routine, run_input=run_input)
        return await self.finish(run.id)

    async def finish(self, run_id: str) -> Run:
        """Return a run once it has ended, waits for an approval, or is put off to be tried later.

        Raises NotFound.
        """
        queue = self.daemon.runs.queue
        while True:
            # looked up on both sides of the read: the run may end, or begin, while it is read
            task = queue.running.get(run_id)
            run = await self.daemon.store.journal.runs.get(run_id)
            if run.status.has_ended or run.status is Status.WAITING:
                return run
            task = task or queue.running.get(run_id)
            if task:
                await asyncio.wait([task])
            elif queue.queue_position(run_id) is not None:  # others have taken all places
                await asyncio.wait(queue.running.values(), return_when=asyncio.FIRST_COMPLETED)
            else:
                return run

    def advance(self, **by: float) -> None:
        """Move the clock ahead as `FakeClock.advance`, and start what waited for an instant."""
        self.clock.advance(**by)
        handle_clock_change(self.daemon)

    async def steps(self, run: Run) -> list[Step]:
        """Return the steps of a run, in order: prompts, answers of the model, calls, results."""
        return await self.daemon.store.journal.runs.get_steps(run.id)

    async def deliver(self) -> list[Delivery]:
        """Try once to send each report that is due; return all deliveries, newest first."""
        await self.daemon.delivery.outbox.flush()
        return await self.daemon.store.journal.outbox.find()

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of the log, oldest first: all, or those of one event."""
        text = self.daemon.installation.log_file.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if event in (None, line["event"])]

    # --- the control API

    async def request(self, method: str, target: str, body: object = None) -> ApiResponse:
        """Return the answer of the control API, asked without a socket by the user of this process.

        `target` is path and query: `/v1/runs?limit=5`. `body` is sent as JSON, unless it is None.
        """
        path, _, query = target.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"host", b"agentd"), (b"content-length", b"%d" % len(data))],
            "client": (f"uid:{os.geteuid()}", 0),
            "server": None,
        }
        is_read = False
        messages: list[Any] = []

        async def receive() -> Json:
            nonlocal is_read
            if is_read:  # the client stays: it never disconnects
                await asyncio.Event().wait()
            is_read = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await make_control_application(api_context(self.daemon))(scope, receive, send)
        start, *parts = messages
        return ApiResponse(
            status=start["status"],
            headers={name.decode(): value.decode() for name, value in start["headers"]},
            body=b"".join(part.get("body", b"") for part in parts),
        )

    @asynccontextmanager
    async def serve_api(self) -> AsyncIterator[Path]:
        """Serve the control API on a Unix socket until the block ends, and yield its path.

        `agentctl --socket PATH` speaks to it.
        """
        server = ApiServer(
            api_context(self.daemon), open_listener(self.daemon.installation.socket, self.env)
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(), name="control socket")
            await server.ready()
            try:
                yield server.path
            finally:
                server.stop()


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, if it is there; files become readable by their owner only."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.is_file():
        shutil.copyfile(source, target)
        target.chmod(0o600)
