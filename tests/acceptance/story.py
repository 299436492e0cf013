"""A home with a real daemon in it, driven by the real agentctl: what the story tests are told
with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from tests.fakes.vendor import FakeVendor

ROOT = Path(__file__).parents[2]
READY = "In another terminal"


class Vendor(FakeVendor):
    """A vendor that tells when it has been asked."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._asked = asyncio.Condition()

    def answer(self, path, headers, raw):
        answer = super().answer(path, headers, raw)
        asyncio.get_running_loop().create_task(self._tell())
        return answer

    async def _tell(self):
        async with self._asked:
            self._asked.notify_all()

    async def asked(self, times):
        """Wait until so many requests have arrived."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.requests) >= times)


class Ended:
    """How a command ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


class Home:
    """A folder of definitions and a state folder, and the processes that live on them."""

    def __init__(self, folder: Path, *, shipped: bool = False):
        self.folder, self.state = folder / "home", folder / "state"
        self.folder.mkdir()
        (self.folder / "routines").mkdir()
        if shipped:
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
        }
        self.process = None
        self.said = ""
        self.descriptors = None
        """How many files the daemon may have open, where a test wants few."""

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)

    def routine(self, name, text):
        self.write(f"routines/{name}.toml", text)

    @property
    def _places(self):
        return ("--config", self.folder / "config.toml", "--state", self.state)

    @property
    def workspace(self):
        return self.state / "workspace"

    async def agentd(self, *arguments):
        """Run `agentd` to its end."""
        return await self._run(
            "daemon.app.main",
            *arguments,
            "--config",
            self.folder / "config.toml",
            "--state",
            self.state,
        )

    async def agentctl(self, *arguments):
        """Run `agentctl` to its end."""
        return await self._run("daemon.cli.main", "--socket", self.socket, *arguments)

    @property
    def socket(self):
        from daemon.definitions.paths import socket_in

        return socket_in(self.state, uid=os.getuid())

    async def _run(self, module, *arguments):
        process = await self._spawn(module, *arguments)
        out, err = await process.communicate()
        return Ended(process.returncode, out.decode(), err.decode())

    async def _spawn(self, module, *arguments):
        limited = (
            ("sh", "-c", f'ulimit -n {self.descriptors}; exec "$@"', "sh")
            if self.descriptors
            else ()
        )
        return await asyncio.create_subprocess_exec(
            *(limited if module == "daemon.app.main" else ()),
            sys.executable,
            "-m",
            module,
            *map(str, arguments),
            env=self.env,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**24,
        )

    async def start(self):
        """Start the daemon and return once it says that it is ready; its words are in `said`."""
        self.process = await self._spawn("daemon.app.main", *self._places)
        self.log = asyncio.create_task(self.process.stderr.read())
        self.said = ""
        while READY not in self.said:
            line = await self.process.stdout.readline()
            assert line, f"the daemon ended:\n{self.said}\n{(await self.log).decode()}"
            self.said += line.decode()

    async def kill(self):
        """kill -9."""
        self.process.kill()
        await self._gone()

    async def stop(self, number=signal.SIGTERM):
        """Ask it to stop and return its exit code."""
        self.process.send_signal(number)
        await self._gone()
        return self.process.returncode

    async def _gone(self):
        self.said += (await self.process.stdout.read()).decode()
        self.complaints = (await self.log).decode()
        await self.process.wait()

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

    async def logged(self, event, times=1, **fields):
        """Wait until the log holds so many lines of this event with these fields, and return
        them.
        """
        path, size, wanted = self.state / "logs" / "agentd.jsonl", -1, {"event": event, **fields}
        async with asyncio.timeout(120):
            while True:
                # read again only after it has grown: the log of a long story is long
                if (now := path.stat().st_size if path.exists() else 0) != size:
                    size = now
                    found = [line for line in self.log_lines() if wanted.items() <= line.items()]
                    if len(found) >= times:
                        return found
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
