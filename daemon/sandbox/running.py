"""Run a planned command line: start its supervisor, collect its output, and stop it in time.

Not here: what may run (policy), and what the model reads of it (tools/).
"""

from __future__ import annotations

import asyncio
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from daemon.models import Json
from daemon.sandbox import supervisor
from daemon.sandbox.call_groups import CallGroup
from daemon.sandbox.output import BoundedOutput
from daemon.sandbox.repositories import Repositories

_CHUNK_BYTES = 1 << 16
# Seconds. The supervisor kills what it started within 2 s; then we do it ourselves.
_KILL_TIMEOUT = 4.0
# A line that puts out more is stopped: nobody reads more than a part of it.
MAX_OUTPUT_BYTES = 256 << 20


StopCause: TypeAlias = Literal["", "time", "output"]
"""Why a line was stopped: its time was over, or its output too large; empty if it ended by itself.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedProgram:
    """One program, ready to be started."""

    path: str
    """The path of the program."""
    argv: Sequence[str]
    redirects: Sequence[tuple[int, Literal["null", "stdout"]]] = ()
    """Standard output (1) or error (2), to nowhere or to where standard output goes by then."""
    stdin: int | None = None
    """The descriptor of an open file, which the caller closes."""
    stderr: int | None = None
    """Likewise, for standard error; by default it goes where the output of the line goes."""
    environment: Mapping[str, str] | None = None
    """Variables of the program besides those of the line."""
    cell: Mapping[str, Any] = field(default_factory=dict)
    """How the program is confined, from `Sandbox.cell`."""
    needs: Sequence[str] = ()
    """Files and folders that the program must see besides what its cell shows."""
    fault: tuple[int, str] | None = None
    """Why the program cannot be started: the exit code and the words that a shell would have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """How a line ended."""

    code: int
    """The exit code of the last program, 128 + N if signal N killed it."""
    last_program: tuple[int, int]
    """Which program that was: the index of its pipeline, and its index there."""
    output: BoundedOutput
    stop_cause: StopCause = ""
    unkilled_pids: tuple[int, ...] = ()
    """Ids of processes that could not be killed, as they hang in the kernel."""
    renamed_repositories: tuple[str, ...] = ()
    """Paths of repositories of git that the programs made, and that were renamed."""
    reached_memory_limit: bool = False
    """Whether the kernel killed programs because the line reached its limit on memory."""


async def run(
    pipelines: Sequence[tuple[str, Sequence[PreparedProgram]]],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    output_bytes: int,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    repositories: Repositories | None = None,
) -> CommandResult:
    """Run pipelines, each with the operator before it (`;`, `&&` or `||`), and return how the line
    ended.

    `seconds` is the time limit. Of the output `output_bytes` bytes are kept; the line is stopped
    when it has put out more than `max_output_bytes`. Whether this returns or is cancelled, no
    process of the line is left. `repositories` are those of a workspace that the programs may
    change, before they start: new ones are renamed in the end.

    Raises OSError if not even the supervisor can be started.
    """
    files = [
        fd
        for _, commands in pipelines
        for command in commands
        for fd in (command.stdin, command.stderr)
        if fd is not None
    ]
    group = _create_group(pipelines)
    plan = {
        "group": str(group.folder) if group else "",
        "environment": dict(environment),
        "files": files,
        "pipelines": [
            (operator, [_make_plan(command) for command in commands])
            for operator, commands in pipelines
        ],
    }
    try:
        line = _LineProcess(
            folder, plan, files, BoundedOutput(output_bytes), max_output_bytes, group
        )
    except BaseException:
        if group:
            group.end()
        raise
    cause: StopCause = ""
    try:
        async with asyncio.timeout(seconds):
            await line.end_or_limit.wait()
        cause = "output" if line.exceeds_output_limit else ""
    except TimeoutError:
        cause = "time"
    finally:
        await _run_uncancelled(line.stop(repositories))
    return line.result(cause)


def _create_group(
    pipelines: Sequence[tuple[str, Sequence[PreparedProgram]]],
) -> CallGroup | None:
    """Create a control group for all programs of a line; None where their cells name none."""
    shares = [
        command.cell["group"]
        for _, commands in pipelines
        for command in commands
        if "group" in command.cell
    ]
    if not shares:
        return None
    parent, memory, _ = shares[0]  # the limits of a line are those of one routine
    return CallGroup.create(
        Path(parent), memory=memory, processes=sum(processes for _, _, processes in shares)
    )


async def _run_uncancelled(work: Coroutine[None, None, None]) -> None:
    """Await `work` to its end, even if this task is cancelled meanwhile; then raise
    CancelledError.
    """
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    task.result()


def _make_plan(command: PreparedProgram) -> Json:
    return {
        "path": command.path,
        "argv": [*command.argv],
        "redirects": [*command.redirects],
        "stdin": command.stdin,
        "stderr": command.stderr,
        "environment": dict(command.environment or {}),
        "cell": dict(command.cell),
        "needs": [*command.needs],
        "fault": command.fault,
    }


def _open_pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Return the reading and the writing end of a new pipe; these close each of them."""
    read_end, write_end = os.pipe()
    reader.callback(os.close, read_end)
    writer.callback(os.close, write_end)
    return read_end, write_end


class _LineProcess:
    """One supervisor, and the three pipes to it: control, output and report."""

    def __init__(
        self,
        folder: Path,
        plan: Json,
        files: Sequence[int],
        output: BoundedOutput,
        max_output_bytes: int,
        group: CallGroup | None,
    ) -> None:
        self.output, self._max_output_bytes, self._group = output, max_output_bytes, group
        self.end_or_limit = asyncio.Event()
        """Set once the supervisor has ended, or the line has put out too much."""
        self.exceeds_output_limit = False
        self._loop = asyncio.get_running_loop()
        self._supervisor_end = asyncio.Event()
        self._report = b""
        self._renamed_repositories: list[str] = []
        self._reached_memory_limit = False
        data = marshal.dumps(plan)
        with ExitStack() as supervisor_ends, ExitStack() as own_ends:
            control_read, self._control = _open_pipe(supervisor_ends, own_ends)
            self._output_read, output_write = _open_pipe(own_ends, supervisor_ends)
            self._report_read, report_write = _open_pipe(own_ends, supervisor_ends)
            self._process = subprocess.Popen(  # returns once the program has been loaded: 1 ms
                [sys.executable, "-I", "-S", supervisor.__file__],
                stdin=control_read,
                stdout=output_write,
                stderr=report_write,
                pass_fds=files,
                cwd=folder,
                env={},
                start_new_session=True,
            )
            own_ends.pop_all()  # `stop` closes them
        for fd, reader in (
            (self._output_read, self._read_output),
            (self._report_read, self._read_report),
        ):
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, reader)
        self._send(len(data).to_bytes(4, "big") + data)

    def _send(self, data: bytes) -> None:
        """Write the plan; one longer than a pipe holds goes on when there is room."""
        os.set_blocking(self._control, False)
        try:
            data = data[os.write(self._control, data) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            data = b""
        self._loop.remove_writer(self._control)
        if data:
            self._loop.add_writer(self._control, self._send, data)

    def _read_output(self) -> None:
        try:
            data = os.read(self._output_read, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._output_read)
            return
        self.output.add(data)
        if self.output.size > self._max_output_bytes:
            self.exceeds_output_limit = True
            self._loop.remove_reader(self._output_read)
            self.end_or_limit.set()

    def _read_report(self) -> None:
        """Collect the report; its end is the end of the supervisor."""
        try:
            data = os.read(self._report_read, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._report += data
        if not data:
            self._loop.remove_reader(self._report_read)
            self._supervisor_end.set()
            self.end_or_limit.set()

    async def stop(self, repositories: Repositories | None) -> None:
        """Stop whatever of the line still runs; it may have ended by itself."""
        self._loop.remove_writer(self._control)
        os.close(self._control)
        try:
            async with asyncio.timeout(_KILL_TIMEOUT):
                await self._supervisor_end.wait()
        except TimeoutError:
            await asyncio.to_thread(supervisor.kill_descendants, self._process.pid)
            self._process.kill()
        self._process.wait()  # no wait to speak of: it has closed its descriptors, or was killed
        # it was killed, maybe by what it ran; what is left has lost its parent, not its session
        if not self._report:
            await asyncio.to_thread(supervisor.kill_session, self._process.pid)
        if self._group:
            self._reached_memory_limit = await asyncio.to_thread(self._group.end)
        self._drain()
        for fd in (self._output_read, self._report_read):
            self._loop.remove_reader(fd)
            os.close(fd)
        if repositories is not None:
            self._renamed_repositories = await asyncio.to_thread(repositories.rename_new)

    def _drain(self) -> None:
        """Read what is still in the pipe; nobody writes to it any more."""
        with suppress(BlockingIOError):
            while not self.exceeds_output_limit and (
                data := os.read(self._output_read, _CHUNK_BYTES)
            ):
                self.output.add(data)

    def result(self, cause: StopCause) -> CommandResult:
        try:
            report = marshal.loads(self._report)  # noqa: S302  # our own supervisor wrote it
        except (EOFError, ValueError, TypeError):  # it was killed, or could not start and said why
            self.output.add(self._report)
            report = {"code": 128 + signal.SIGKILL}
        return CommandResult(
            code=report["code"],
            last_program=report.get("last_program", (0, 0)),
            output=self.output,
            stop_cause=cause,
            unkilled_pids=tuple(report.get("unkilled_pids", ())),
            renamed_repositories=tuple(self._renamed_repositories),
            reached_memory_limit=self._reached_memory_limit,
        )
