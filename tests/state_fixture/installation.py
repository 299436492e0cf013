"""A home folder, its state folder and the `agentd` and `agentctl` processes that work on them, seen
from outside only.

Nothing of the daemon is imported: its programs are those that pyproject.toml names, and all that is
known of them is what they write to stdout, to the control socket and to files.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, Any
from zoneinfo import ZoneInfo

from tests.preloaded import ForkedProcess

ROOT = Path(__file__).parents[2]
LIBFAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
ZONE = ZoneInfo("Europe/Berlin")
PLACE = Path("/mnt/agentd")
"""Where the fixture was made.

An approval is bound to its folder, so only there the parked call is the same call.
"""
PATIENCE = 240.0
"""Seconds until something that has to happen is given up; a busy machine takes its time."""


class Ended:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        assert self.out.lstrip().startswith(("{", "[")), (
            f"exit {self.code}, no JSON: {self.out}\n{self.err}"
        )
        return json.loads(self.out)


class Installation:
    """`folder` holds `home` (config, policy, routines) and `state`; with `mounted`, processes see
    it at PLACE.

    The path of `folder` has to be short: the control socket lies in it, and its path may have 100
    bytes.
    """

    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.folder, self.mounted = folder, mounted
        self.place = PLACE if mounted else folder
        self.home, self.state = folder / "home", folder / "state"
        self.process: asyncio.subprocess.Process | ForkedProcess | None = None
        self.output = folder / "output.txt"
        self.clock = folder / "clock"
        self.clock.write_text("+0")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place),
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            "PYTHONPATH": str(ROOT),
            "TZ": "Europe/Berlin",
        }
        self.faketime = {
            "LD_PRELOAD": str(LIBFAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.place / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    def set_clock(self, moment: str) -> None:
        """Set the clock of all processes of this installation, running ones too, to a local
        time.
        """
        offset = datetime.fromisoformat(moment).replace(tzinfo=ZONE).timestamp() - time.time()
        new = self.clock.with_suffix(".new")
        new.write_text(f"{offset:+.0f}")
        new.rename(self.clock)

    def replace_in_config(self, **addresses: str) -> None:
        """Replace the addresses that the fixture's config was left with: `vendor` and `hook`."""
        path = self.home / "config.toml"
        text = path.read_text()
        for name, url in addresses.items():
            text = re.sub(rf'(?m)^(\S+ = )"[^"]*"(  # {name})$', rf'\g<1>"{url}"\g<2>', text)
            assert f'"{url}"  # {name}' in text, f"config.toml has no line marked `# {name}`"
        path.write_text(text)

    # --- processes

    def command(self, program: str, *arguments: object) -> list[str]:
        """Return the command line of one of our programs, with its environment and its place in the
        file system.
        """
        module, function = _scripts()[program].split(":")
        code = (
            f"import sys; from {module} import {function}; sys.argv[0] = {program!r}; "
            f"sys.exit({function}())"
        )
        python = [sys.executable, "-c", code, *map(str, arguments)]
        if not self.mounted:
            return ["env", *(f"{name}={value}" for name, value in self.faketime.items()), *python]
        line = [*MOUNT, "--bind", str(self.folder), str(PLACE), "--chdir", str(PLACE / "home")]
        for name, value in self.faketime.items():
            line += ["--setenv", name, value]
        return [*line, *python]

    def places(self) -> list[str]:
        """Return the options that tell `agentd` where its files are."""
        return [
            "--config",
            str(self.place / "home" / "config.toml"),
            "--state",
            str(self.place / "state"),
        ]

    async def agentctl(self, *arguments: object, input_: str | None = None) -> Ended:
        """Run `agentctl` to its end."""
        socket = self.place / "state" / "agentd.sock"
        return await self._run(self.command("agentctl", "--socket", socket, *arguments), input_)

    async def agentd(self, *arguments: object) -> Ended:
        """Run a verb of `agentd` to its end."""
        return await self._run(self.command("agentd", *arguments, *self.places()), None)

    async def _run(self, line: list[str], input_: str | None) -> Ended:
        process = await asyncio.create_subprocess_exec(
            *line,
            env=self.env,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL if input_ is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(None if input_ is None else input_.encode())
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())

    async def json(self, *arguments: object) -> Any:
        """Run `agentctl … --json` and return what it printed."""
        return (await self.agentctl(*arguments, "--json")).json

    async def start(self) -> None:
        """Start the daemon and return once it answers."""
        with self.output.open("ab") as output:
            self.process = await self._start_daemon(output)

        async def answers() -> bool:
            assert self.process
            assert self.process.returncode is None, f"the daemon ended:\n{self.output.read_text()}"
            return (await self.agentctl("status", "--json")).out.startswith("{")

        await self.until("the daemon answers", answers)

    async def _start_daemon(self, output: IO[bytes]) -> asyncio.subprocess.Process | ForkedProcess:
        return await asyncio.create_subprocess_exec(
            *self.command("agentd", *self.places()),
            env=self.env,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    async def stop(self) -> int:
        """Ask the daemon to stop and return its exit code."""
        self._signal(signal.SIGTERM)
        assert self.process
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)
        assert self.process
        await self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process
        pid = self.process.pid
        if self.mounted:  # bwrap stays beside what it has started
            (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            pid = int(child)
        os.kill(pid, number)

    async def close(self) -> None:
        """End the daemon if it still lives."""
        if self.process and self.process.returncode is None:
            await self.kill()

    async def until(self, condition: str, check: Callable[[], Any]) -> Any:
        """Ask until the answer is true; AssertionError with the daemon's last words if it never
        is.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while not (answer := await _result(check())):
                    await asyncio.sleep(0.05)
                return answer
        except TimeoutError:
            last = self.output.read_text()[-3000:] if self.output.exists() else ""
            log = self.state / "logs" / "agentd.jsonl"
            last += log.read_text()[-3000:] if log.exists() else ""
            raise AssertionError(f"never came: {condition}\n{last}") from None


async def _result(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


MOUNT = [
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--tmpfs",
    "/mnt",
    "--unshare-uts",
    "--hostname",
    "box",
    "--die-with-parent",
]
MOUNT += ["--cap-add", "ALL"] if os.geteuid() == 0 else []


@cache
def why_not_mounted() -> str:
    """Return why no folder can be shown at PLACE on this machine; empty where one can."""
    if not shutil.which("bwrap"):
        return "needs bubblewrap: apt install bubblewrap"
    tried = subprocess.run(
        [*MOUNT, "--dir", str(PLACE), "true"], capture_output=True, text=True, check=False
    )
    return (
        f"bubblewrap makes no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""
    )


@cache
def _scripts() -> dict[str, str]:
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    return scripts


def store_in(home: Path, url: str) -> None:
    """Have an installation keep its journal in a PostgreSQL database."""
    path = home / "config.toml"
    path.write_text(f'{path.read_text()}\n[store]\nurl = "{url}"\n')


def pack(archive: Path, folder: Path, names: list[str]) -> None:
    """Write folders into an archive that is the same whoever makes it."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member if member.isfile() or member.isdir() else None  # no sockets

    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name in names:
            tar.add(folder / name, name, filter=anonymous)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive with the modes of its files; they belong to whoever unpacks."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "fully_trusted_filter"):  # not in 3.11.2; needed from 3.12 on
            tar.extractall(folder, filter="fully_trusted")
        else:
            tar.extractall(folder)
