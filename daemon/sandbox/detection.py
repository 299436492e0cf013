"""Detect which sandbox works on this machine, by trying to break out of it.

That bubblewrap is installed or the kernel new enough says little: containers, hardened kernels and
the units of other daemons forbid parts of it. So the escape tests (escape_tests.py) are started
just as a tool's program would be; a sandbox is used only if none of them reports success and
nothing has happened outside.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.sandbox import confine, syscall_filter
from daemon.sandbox.bounds import Bounds, Mode, ProgramLimits
from daemon.sandbox.running import PreparedProgram, run
from daemon.sandbox.sandbox import EscapeTest, Sandbox, UnusableSandbox, User
from daemon.system import syscalls

ESCAPE_TESTS = (
    "write outside",
    "read a secret",
    "reach a socket",
    "reach the network",
    "reach other processes",
    "exceed its limits",
    "survive its end",
)
"""What a sandbox must not let a program do."""

BWRAP = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
_LIMITS = ProgramLimits(seconds=10, memory=256 << 20)
# Seconds; far more than the tests take: their result holds for as long as the daemon lives, and a
# machine that boots is busy.
_TIMEOUT = 60.0
_HELP_TIMEOUT = 10.0  # seconds, for `bwrap --help`
# The limit on processes counts those of the whole user: while many are started, a program gets none
# for a moment.
_RETRY_DELAYS = (0.1, 0.5, 2.0, 5.0)  # seconds


async def choose_sandbox(
    mode: Mode, folder: Path, user: User | None = None, *, bwrap: Sequence[str] = BWRAP
) -> Sandbox:
    """Return the best sandbox that works; one of the level `profiles` if there is none.

    The escape tests run in `folder`, which must belong to this user. `bwrap` are the paths at which
    bubblewrap is looked for.
    """
    if mode == "off":
        return Sandbox(level="off", user=user)
    unusable: list[UnusableSandbox] = []
    for candidate in _candidates(user, bwrap, unusable):
        try:
            escape_tests = await _run_with_retries(candidate, folder)
        except OSError as error:
            unusable.append(
                UnusableSandbox(candidate.level, f"could not be tried: {error.strerror or error}")
            )
            continue
        escapes = [test for test in escape_tests if not test.is_blocked]
        if not escapes:
            return replace(candidate, escape_tests=escape_tests, unusable=tuple(unusable))
        reason = f"a program could {escapes[0].name}: {escapes[0].detail}"
        unusable.append(UnusableSandbox(candidate.level, reason))
    return Sandbox(level="profiles", unusable=tuple(unusable), user=user)


async def _run_with_retries(candidate: Sandbox, folder: Path) -> tuple[EscapeTest, ...]:
    """Run the escape tests, and again while the limit on processes is reached. Raises OSError."""
    for delay in _RETRY_DELAYS:
        try:
            return await run_escape_tests(candidate, folder)
        except OSError as error:
            if error.errno != errno.EAGAIN and os.strerror(errno.EAGAIN) not in str(error):
                raise
        await asyncio.sleep(delay)
    return await run_escape_tests(candidate, folder)


def _candidates(
    user: User | None, bwrap: Sequence[str], unusable: list[UnusableSandbox]
) -> Iterator[Sandbox]:
    """Yield the sandboxes that are worth a try, the best first; add the others, with the reason, to
    `unusable`.
    """
    if sys.platform != "linux":
        unusable.append(UnusableSandbox("", "there is a sandbox for Linux only"))
        return
    if bwrap_path := next((path for path in bwrap if os.access(path, os.X_OK)), None):
        try:
            help_text = subprocess.run(
                [bwrap_path, "--help"], capture_output=True, timeout=_HELP_TIMEOUT
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            unusable.append(UnusableSandbox("bubblewrap", f"could not be tried: {error}"))
        else:
            has_sizes = b"--size" in help_text
            yield Sandbox(level="bubblewrap", bwrap=bwrap_path, bwrap_sizes=has_sizes, user=user)
    else:
        unusable.append(UnusableSandbox("bubblewrap", "is not installed", is_installed=False))
    version = syscalls.landlock_version()
    if version < confine.OLDEST_LANDLOCK:
        reason = f"the kernel has {f'version {version}' if version else 'none'}, 3 is needed"
        unusable.append(UnusableSandbox("landlock", reason))
    elif syscall_filter.compile_filter(()) is None:
        unusable.append(UnusableSandbox("landlock", f"no filter is known for {os.uname().machine}"))
    else:
        yield Sandbox(level="landlock", user=user)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial:
    """The files, sockets and the process that the escape tests try to reach."""

    workspace: Path
    outside: Path
    secret: Path
    marker: str
    unix: socket.socket
    abstract: socket.socket
    tcp: socket.socket
    udp: socket.socket
    victim: subprocess.Popen[bytes]
    python: str

    def find_breakouts(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a name of ESCAPE_TESTS and what has happened outside of the sandbox."""
        outside_names = sorted(path.name for path in self.outside.iterdir())
        if outside_names != ["secret", "socket"] or list(self.workspace.iterdir()):
            yield "write outside", "files came or went"
        elif (
            self.secret.read_text() != self.marker
            or stat.S_IMODE(self.secret.stat().st_mode) != 0o666
            or self.secret.stat().st_mtime < 2  # escape_tests.py tries to set it to 1970
        ):
            yield "write outside", "a file was changed"
        if self.victim.poll() is not None:
            yield "reach other processes", "one was killed"
        for name, listener in (
            ("reach a socket", self.unix),
            ("reach a socket", self.abstract),
            ("reach the network", self.tcp),
        ):
            with suppress(BlockingIOError):
                listener.accept()[0].close()
                yield name, "a connection came"
        with suppress(BlockingIOError):
            self.udp.recv(1)
            yield "reach the network", "a packet came"


async def run_escape_tests(sandbox: Sandbox, folder: Path) -> tuple[EscapeTest, ...]:
    """Run the escape tests in a sandbox; return a result for each of ESCAPE_TESTS, in their order.

    Raises OSError if they cannot run.
    """
    with _set_up_trial(folder, sandbox.user) as trial, ExitStack() as stack:
        read_end, write_end = os.pipe()
        stack.callback(os.close, read_end)
        bounds = Bounds(workspace=str(trial.workspace), folder=str(trial.workspace), limits=_LIMITS)
        script = Path(__file__).with_name("escape_tests.py").read_text()
        words = [trial.python, "-I", "-S", "-c", script]
        words += [str(trial.outside), str(trial.secret), str(trial.tcp.getsockname()[1])]
        words += [str(trial.victim.pid), trial.marker, str(_LIMITS.memory)]
        try:
            attacker = PreparedProgram(
                path=trial.python,
                argv=words,
                stdin=write_end,
                cell=sandbox.cell(bounds),
                needs=find_needed_folders(trial.python),
            )
            result = await run(
                [(";", [attacker])],
                folder=trial.workspace,
                environment={},
                seconds=_TIMEOUT,
                output_bytes=10_000,
            )
        finally:
            os.close(write_end)
        lines = result.output.text().splitlines()
        breakouts = dict(line.split("\t", 1) for line in lines if "\t" in line) | dict(
            trial.find_breakouts()
        )
        # the script prints these last, once all tests and the attempt to survive have been made
        if "tried" not in lines or "hidden" not in lines:
            raise OSError(
                result.code, " ".join(lines)[-300:] or f"it ended with exit code {result.code}"
            )
        os.set_blocking(read_end, False)
        try:
            os.read(read_end, 1)  # the end: nobody holds the other side any more
        except BlockingIOError:
            breakouts["survive its end"] = "a process that it left behind lives on"
        return _make_escape_tests(breakouts)


def _make_escape_tests(breakouts: dict[str, str]) -> tuple[EscapeTest, ...]:
    return tuple(
        EscapeTest(
            name=name,
            is_blocked=name not in breakouts,
            detail=_describe_attempt(breakouts[name]) if name in breakouts else "",
        )
        for name in ESCAPE_TESTS
    )


def _describe_attempt(attempt: str) -> str:
    return f"way {attempt} worked" if attempt.isdigit() else attempt


@contextmanager
def _set_up_trial(folder: Path, user: User | None) -> Iterator[_Trial]:
    """Create what the escape tests try to get at, open to every user, so that only the sandbox
    protects it.
    """
    _remove_old_trials(folder)
    with ExitStack() as stack:
        trial_folder = Path(tempfile.mkdtemp(prefix="trial-", dir=folder))
        stack.callback(shutil.rmtree, trial_folder, ignore_errors=True)
        workspace, outside = trial_folder / "workspace", trial_folder / "outside"
        for path, mode in ((trial_folder, 0o711), (workspace, 0o777), (outside, 0o777)):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        secret, marker = outside / "secret", f"agentd-{secrets.token_hex(16)}"
        secret.write_text(marker)
        secret.chmod(0o666)
        unix, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        # a state folder may have a long path
        socket_path = f"/proc/self/fd/{stack.enter_context(_open_folder(outside))}/socket"
        unix.bind(socket_path)
        (outside / "socket").chmod(0o777)
        abstract.bind(f"\0{marker}")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(tcp.getsockname())
        for sock in (unix, abstract, tcp):
            sock.listen()
        for sock in (unix, abstract, tcp, udp):
            sock.setblocking(False)
        python = find_python(user)
        victim = stack.enter_context(_start_victim(python, marker, user))
        yield _Trial(
            workspace=workspace,
            outside=outside,
            secret=secret,
            marker=marker,
            unix=unix,
            abstract=abstract,
            tcp=tcp,
            udp=udp,
            victim=victim,
            python=python,
        )


def _remove_old_trials(folder: Path) -> None:
    """Remove the folders of old trials whose daemon was killed; a trial that runs is younger."""
    for trial_folder in folder.glob("trial-*"):
        with suppress(OSError):
            if time.time() - trial_folder.stat().st_mtime > 10 * _TIMEOUT:
                shutil.rmtree(trial_folder)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _start_victim(python: str, marker: str, user: User | None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of the same user, with a secret in its environment; the escape tests try to
    read and to kill it.
    """
    with subprocess.Popen(
        [python, "-I", "-S", "-c", "import os; os.write(1, b'.'); os.read(0, 1)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"MARKER": marker},
        cwd="/",
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    ) as process:
        try:
            if process.stdout:
                process.stdout.read(1)  # waits until it runs
            yield process
        finally:
            process.kill()


def find_python(user: User | None) -> str:
    """Return a Python that the user may run; OSError if there is none."""
    # outside of a virtual environment, which may lie where only its owner can look
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own_pythons = (Path(sys.base_prefix, "bin", name), Path(sys.executable))
    for path in (*map(os.path.realpath, own_pythons), "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.access(path, os.X_OK) and (user is None or _is_open_to_all(Path(path))):
            return path
    raise OSError(0, "there is no Python that the user of tools may run; apt-get install python3")


def find_needed_folders(python: str) -> list[str]:
    """Return the folders that a Python needs to see besides the system's own."""
    return [] if python.startswith("/usr/") else [os.path.realpath(sys.base_prefix)]


def _is_open_to_all(path: Path) -> bool:
    return all(
        parent.stat().st_mode & stat.S_IXOTH for parent in (path.resolve(), *path.resolve().parents)
    )
