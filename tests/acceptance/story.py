"""A home with a daemon in it, driven by agentctl: what the acceptance tests are made of."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from daemon.app.banner import banner
from daemon.app.installation import Installation
from daemon.app.lifecycle import serve
from daemon.app.wiring import open_app
from daemon.definitions.config.loading import load_config
from daemon.definitions.paths import OVERLAY, socket_in
from daemon.telemetry.redaction import Secrets
from tests.command_line import CommandResult, needs_process, process_state, run_command
from tests.fakes.vendor import FakeVendor
from tests.preloaded import COMMANDS, ForkedProcess, can_fork

ROOT = Path(__file__).parents[2]
READY = "In another terminal"


class Vendor(FakeVendor):
    """A vendor that tells when it has been asked."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._request_arrival = asyncio.Condition()

    def answer(self, path, headers, raw):
        answer = super().answer(path, headers, raw)
        asyncio.get_running_loop().create_task(self._tell())
        return answer

    async def _tell(self):
        async with self._request_arrival:
            self._request_arrival.notify_all()

    async def wait_for_requests(self, times):
        """Wait until so many requests have arrived."""
        async with self._request_arrival:
            await self._request_arrival.wait_for(lambda: len(self.requests) >= times)


class Home:
    """A folder of definitions and a state folder, and the daemon that lives on them."""

    def __init__(self, folder: Path, *, with_shipped_files: bool = False):
        self.folder, self.state = folder / "home", folder / "state"
        self.folder.mkdir()
        (self.folder / "routines").mkdir()
        if with_shipped_files:
            for name in ("config.toml", "policy.toml"):
                shutil.copy(ROOT / name, self.folder / name)
            shutil.copytree(ROOT / "routines", self.folder / "routines", dirs_exist_ok=True)
        else:
            self.write("config.toml", "")
            self.write("policy.toml", "version = 1\n")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TZ": "Europe/Berlin",
            "PYTHONPATH": str(ROOT),
            # a changed file is reported after a tenth of the time that a person waits
            "AGENTD_WATCH_SECONDS": "0.1",
        }
        self.output = ""
        """What the daemon has written to stdout."""

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)

    def routine(self, name, text):
        self.write(f"routines/{name}.toml", text)

    @property
    def places(self):
        """The options that tell agentd where its files are."""
        return ("--config", str(self.folder / "config.toml"), "--state", str(self.state))

    @property
    def workspace(self):
        return self.state / "workspace"

    @property
    def socket(self):
        return socket_in(self.state, uid=os.getuid())

    # --- command lines

    async def agentd(self, *arguments):
        """Run `agentd` to its end."""
        return await self.run("agentd", *arguments, *self.places)

    async def agentctl(self, *arguments):
        """Run `agentctl` to its end."""
        return await self.run("agentctl", "--socket", self.socket, *arguments)

    async def run(self, program, *arguments):
        """Run `agentd` or `agentctl` to its end, in this process if that makes no difference."""
        words = tuple(map(str, arguments))
        has_clock_of_its_own = "LD_PRELOAD" in self.env and "--json" not in words
        if needs_process(program, words) or has_clock_of_its_own:
            return await self.run_process(program, *words)
        return await run_command(program, *words, env=self._env_of_commands, cwd=self.folder)

    @property
    def _env_of_commands(self):
        # not libfaketime, which a process loads at its start: answers in JSON have no other clock
        return {name: value for name, value in self.env.items() if name != "LD_PRELOAD"}

    async def agentctl_process(self, *arguments):
        """Run `agentctl` to its end as a process, whatever it does."""
        return await self.run_process("agentctl", "--socket", self.socket, *arguments)

    async def run_process(self, program, *arguments):
        """Run `agentd` or `agentctl` to its end as users have it: as a process."""
        process = await self.spawn(program, *arguments)
        out, err = await process.communicate()
        return CommandResult(process.returncode, out.decode(), err.decode())

    async def spawn(self, program, *arguments, prefix=()):
        """Start `agentd` or `agentctl` as a process; `prefix` is a command that executes it."""
        words = tuple(map(str, arguments))
        if not prefix and can_fork(self.env):
            return await ForkedProcess.start(program, *words, env=self.env, cwd=self.folder)
        return await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-m",
            COMMANDS[program],
            *words,
            env=self.env,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**24,
        )

    # --- what the daemon does

    async def watch(self, run):
        """Follow a run live; yields its events."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        writer.write(
            (
                f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: agentd\r\nConnection: close\r\n\r\n"
            ).encode()
        )
        try:
            while line := await reader.readline():
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])
        finally:
            writer.close()

    async def wait_for_log(self, event, times=1, **fields):
        """Wait until the log holds so many lines of this event with these fields, and return
        them.
        """
        path, size, wanted_fields = (
            self.state / "logs" / "agentd.jsonl",
            -1,
            {"event": event, **fields},
        )
        async with asyncio.timeout(120):
            while True:
                # read again only after it has grown: the log of a long story is long
                if (now := path.stat().st_size if path.exists() else 0) != size:
                    size = now
                    matching_lines = [
                        line for line in self.log_lines() if wanted_fields.items() <= line.items()
                    ]
                    if len(matching_lines) >= times:
                        return matching_lines
                await asyncio.sleep(0.02)

    def log_lines(self):
        """Return the whole lines of the log."""
        path = self.state / "logs" / "agentd.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    async def until(self, run, kind):
        """Follow a run until an event of this kind, and return it."""
        async with contextlib.aclosing(self.watch(run)) as events:
            async for event in events:
                if event["type"] == kind:
                    return event
        raise AssertionError(f"run {run} ended without {kind}")


class InProcessHome(Home):
    """A home whose daemon lives in the process of the test, and so do command lines that can."""

    def __init__(self, folder: Path, *, with_shipped_files: bool = False):
        super().__init__(folder, with_shipped_files=with_shipped_files)
        self._life = None

    @property
    def is_running(self):
        return self._life is not None

    @property
    def pid(self):
        return os.getpid()

    async def start(self):
        """Start the daemon and return once it is ready; its words are in `said`."""
        assert not self._life, "the daemon runs already"
        ready = asyncio.Event()

        async def announce(app):
            self.output = banner(app)
            ready.set()

        async def live():
            installation = Installation(
                config=load_config(self.folder / "config.toml", self.state / OVERLAY),
                state=self.state,
                socket=self.socket,
                log_file=self.state / "logs" / "agentd.jsonl",
                console=False,
                env=dict(self.env),
                secrets=Secrets(),
            )
            async with open_app(installation) as app:
                await serve(app, announce)

        with process_state(self.env, self.folder):
            self._life = asyncio.create_task(live(), name="daemon")
            readiness = asyncio.create_task(ready.wait())
            await asyncio.wait([self._life, readiness], return_when=asyncio.FIRST_COMPLETED)
            readiness.cancel()
        if self._life.done():
            life, self._life = self._life, None
            await life
            raise AssertionError("the daemon ended at its start")

    async def stop(self):
        """Ask the daemon to stop, and return the exit code that its process would have."""
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "nothing listens to SIGTERM"
        os.kill(os.getpid(), signal.SIGTERM)  # taken by its event loop, which is ours
        life, self._life = self._life, None
        await life
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
        return 0

    async def close(self):
        """Stop the daemon if it runs."""
        if self._life:
            async with asyncio.timeout(120):
                await self.stop()


class ProcessHome(Home):
    """A home whose daemon is a process of its own, as users have it."""

    def __init__(self, folder: Path, *, with_shipped_files: bool = False):
        super().__init__(folder, with_shipped_files=with_shipped_files)
        self.process = None
        self.descriptors = None
        """How many files the daemon may have open, where a test wants few."""

    @property
    def is_running(self):
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self):
        return self.process.pid

    async def start(self):
        """Start the daemon and return once it says that it is ready; its words are in `said`."""
        limit = f'ulimit -n {self.descriptors}; exec "$@"'
        prefix = ("sh", "-c", limit, "sh") if self.descriptors else ()
        self.process = await self.spawn("agentd", *self.places, prefix=prefix)
        self.log = asyncio.create_task(self.process.stderr.read())
        self.output = ""
        while READY not in self.output:
            line = await self.process.stdout.readline()
            assert line, f"the daemon ended:\n{self.output}\n{(await self.log).decode()}"
            self.output += line.decode()

    async def kill(self):
        """kill -9."""
        self.process.kill()
        await self._wait_for_exit()

    async def stop(self, number=signal.SIGTERM):
        """Ask it to stop and return its exit code."""
        self.process.send_signal(number)
        await self._wait_for_exit()
        return self.process.returncode

    async def _wait_for_exit(self):
        self.output += (await self.process.stdout.read()).decode()
        self.complaints = (await self.log).decode()
        await self.process.wait()

    async def close(self):
        """Stop the daemon if it runs."""
        if not self.is_running:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(120):
                await self._wait_for_exit()
        except TimeoutError:
            await self.kill()
            raise
