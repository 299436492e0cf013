"""Daemons and workers as real processes on one database, and what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from daemon.definitions.paths import socket_in
from tests.acceptance.story import READY, ROOT
from tests.command_line import CommandResult, needs_process, run_command
from tests.preloaded import COMMANDS, ForkedProcess

MARK = '''
"""A tool that leaves a mark each time it starts."""
import asyncio
import os
import time
from pathlib import Path

from daemon.models import ToolContext


async def mark(context: ToolContext, seconds: float) -> str:
    """Mark.

    Args:
        seconds: How long it takes where nobody lets it go before.
    """
    with open(Path(__file__).parents[1] / "marks", "a") as file:
        file.write(f"{context.run} {context.call} begin {os.getpid()}\\n")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (Path(__file__).parents[1] / "go").exists():
        await asyncio.sleep(0.05)
    with open(Path(__file__).parents[1] / "marks", "a") as file:
        file.write(f"{context.run} {context.call} end {os.getpid()}\\n")
    return "marked"
'''
POLICY = 'version = 1\n[[rule]]\ntool = "mark"\neffect = "allow"\n'
WORK = '[run]\nmode = "agent"\nprompt = "Mark it."\ntools = ["mark"]\n[run.retry]\nattempts = 50\n'


class Process:
    """One daemon or worker, with a state folder and a config of its own."""

    def __init__(self, site: Site, name: str, verb: tuple[str, ...], config: Path) -> None:
        self.site, self.name, self.verb, self.config, self.root = site, name, verb, config, ROOT
        self.state = site.folder / f"state-{name}"
        self.output = ""

    @property
    def socket(self) -> Path:
        return socket_in(self.state, uid=os.getuid())

    async def start(self) -> None:
        """Start it, and return once it says that it is ready."""
        self.process = await self.site.spawn(
            "agentd",
            *self.verb,
            "--config",
            self.config,
            "--state",
            self.state,
            log=self.name,
            root=self.root,
        )
        ready = "Ctrl-C stops it" if self.verb else READY
        assert self.process.stdout
        while ready not in self.output:
            line = (await self.process.stdout.readline()).decode()
            assert line, f"{self.name} ended:\n{self.output}\n{self.complaints}"
            self.output += line

    @property
    def complaints(self) -> str:
        path = self.site.folder / f"{self.name}.err"
        return path.read_text()[-4000:] if path.exists() else ""

    async def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        await self.process.wait()
        self.output = ""

    async def stop(self) -> int | None:
        self.process.terminate()
        await self.process.wait()
        self.output = ""
        return self.process.returncode

    async def pause(self) -> None:
        """Stop it where it stands, and return once it does."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            await asyncio.sleep(0.01)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def agentctl(self, *arguments: str) -> CommandResult:
        words = ("--socket", str(self.socket), *arguments)
        if not needs_process("agentctl", words):
            env = self.site.environment(ROOT)
            return await run_command("agentctl", *words, env=env, cwd=self.site.home)
        process = await self.site.spawn("agentctl", *words)
        out, err = await process.communicate()
        assert process.returncode is not None
        return CommandResult(process.returncode, out.decode(), err.decode())

    def log(self, event: str) -> list[dict[str, object]]:
        """Return the lines of its log that tell of this event."""
        path = self.state / "logs" / "agentd.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line for line in map(json.loads, lines) if line["event"] == event]


class Site:
    """A folder of definitions, a database, and the processes on it."""

    def __init__(self, folder: Path, url: str, vendor: str, *, lease: str = "30s") -> None:
        self.folder, self.url, self.vendor, self.lease = folder, url, vendor, lease
        self.home = folder / "home"
        (self.home / "routines").mkdir(parents=True)
        (self.home / "tools").mkdir(mode=0o755)
        self.write("policy.toml", POLICY)
        self.write("tools/mark.py", MARK)
        self.processes: list[Process] = []

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)

    def routine(self, name: str, trigger: str, work: str = WORK) -> None:
        self.write(f"routines/{name}.toml", trigger + work)

    def let_go(self) -> None:
        """Let every tool that takes long end."""
        (self.home / "go").touch()

    def hold_up(self) -> None:
        """Have the next one take long again."""
        (self.home / "go").unlink()

    def _add(
        self, name: str, verb: tuple[str, ...], url: str | None, extra: str, extra_end: str = ""
    ) -> Process:
        self.write(
            f"config-{name}.toml",
            f'provider = "local"\nworkspace = "{self.folder / "workspace"}"\n{extra}'
            f'[store]\nurl = "{url or self.url}"\n'
            f'[executor]\nkind = "procrastinate"\nhere = false\nlease = "{self.lease}"\n'
            '[tools]\nfiles = ["mark.py"]\n'
            f'[providers.local]\nkind = "open_source"\nbase_url = "{self.vendor}/v1"\nmodel = '
            '"local"\n'
            f"{extra_end}",
        )
        self.processes.append(Process(self, name, verb, self.home / f"config-{name}.toml"))
        return self.processes[-1]

    def daemon(self, name: str, *, url: str | None = None, extra: str = "") -> Process:
        return self._add(name, (), url, extra)

    def worker(
        self, name: str, *, url: str | None = None, extra: str = "", extra_end: str = ""
    ) -> Process:
        return self._add(name, ("worker",), url, extra, extra_end)

    def environment(self, root: Path) -> dict[str, str]:
        """Return the environment of processes whose code is in the folder `root`."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TZ": "UTC",
            "PYTHONPATH": str(root),
        }

    async def spawn(
        self, program: str, *arguments: object, log: str = "", root: Path = ROOT
    ) -> asyncio.subprocess.Process | ForkedProcess:
        if root == ROOT:
            return await self._fork(program, *map(str, arguments), log=log)
        errors = (self.folder / f"{log}.err").open("ab") if log else asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                COMMANDS[program],
                *map(str, arguments),
                env=self.environment(root),
                cwd=self.home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=2**24,
            )
        finally:
            if log:
                errors.close()

    async def _fork(self, program: str, *arguments: str, log: str) -> ForkedProcess:
        env = self.environment(ROOT)
        if not log:
            return await ForkedProcess.start(program, *arguments, env=env, cwd=self.home)
        with (self.folder / f"{log}.err").open("ab") as errors:
            return await ForkedProcess.start(
                program, *arguments, env=env, cwd=self.home, stderr=errors
            )

    def marks(self) -> Counter[tuple[str, str]]:
        """Return how often each call has begun."""
        path = self.home / "marks"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(
            (run, call) for run, call, event, _ in map(str.split, lines) if event == "begin"
        )

    async def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, AttributeError):
                process.process.send_signal(signal.SIGCONT)
                process.process.kill()
                await process.process.wait()


class Proxy:
    """A way to the database that can be frozen: connections stay open, and nothing comes
    through.
    """

    def __init__(self, port: int) -> None:
        self._to, self._flow, self._writers = port, asyncio.Event(), set[asyncio.StreamWriter]()
        self._serving = set[asyncio.Task[None]]()
        self._flow.set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.thaw()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def freeze(self) -> None:
        self._flow.clear()

    def thaw(self) -> None:
        self._flow.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        streams = {writer}
        self._writers |= streams
        try:
            await self._flow.wait()
            server_reader, back = await asyncio.open_connection("127.0.0.1", self._to)
            streams.add(back)
            self._writers.add(back)
            await asyncio.gather(self._pipe(reader, back), self._pipe(server_reader, writer))
        except OSError:
            pass  # the database is down, or one of the two has gone away
        finally:
            self._writers -= streams
            for process in streams:
                process.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flow.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
