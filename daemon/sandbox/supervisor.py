"""Run one planned command line in a process of its own, and leave nothing of it behind.

Theory of operation: this file is run as a script by the daemon (running.py), one process per line.
It is the child subreaper of everything the line starts: a program that forks twice and calls setsid
to escape becomes our child when its parent dies. So all that is left of the line, however it hides,
is always beneath us, and is killed when the line has ended, when the daemon says so, and when the
daemon itself dies: the latter two close our standard input.

    0  the plan (marshal), then nothing: its end means stop
    1  what the commands put out
    2  our report to the daemon: how the line ended

Each command is started in a cell: what sandbox.py says it may see and use. The supervisor itself
stays outside, so that no command can reach it; rights are taken away in the child, between fork and
exec. That is safe here, as there is one thread only.

What is imported here is paid for by every line, so it is next to nothing: two modules of ours that
import as little, and not json, typing, pathlib or contextlib. Plans are therefore annotated as
plain `dict`: with `typing` the process would take twice as long to start.
"""

# ruff: noqa: PTH110, PTH123, PTH208  # pathlib would double the start of this process

from __future__ import annotations

import marshal
import os
import select
import signal
import sys
import time

if __name__ == "__main__":  # with -I and -S, only the standard library is on the path
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))  # noqa: PTH120
from daemon.sandbox import confine
from daemon.system import syscalls

LINUX = sys.platform == "linux"
# Python ignores them, and what it starts would too; `yes | head` must end.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# seconds for killed processes to go; only what hangs in the kernel takes longer
_KILL_TIMEOUT = 2.0
_FIRST_FD = 10  # ours are moved above it, so that 0, 1 and 2 of a child can be set without harm
_NOT_RUNNABLE, _STOPPED = 126, 137  # exit codes as a shell gives them
# What is added to the niceness of programs, so that the daemon and its other runs come first.
_NICENESS = 10
_PRLIMIT = "/usr/bin/prlimit"
_NPROC = 6  # RLIMIT_NPROC on Linux


class LineStopped(Exception):
    """The daemon has stopped this line, or is gone itself."""


class Line:
    """A command line while it runs."""

    def __init__(self, plan: dict, control: int, output: int) -> None:
        self._pipelines: list = plan["pipelines"]
        self._environment: dict[str, str] = plan["environment"]
        self._group: str = plan["group"]
        self._control, self._output = control, output
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._codes: dict[int, int] = {}

    def run(self) -> tuple[int, int, int]:
        """Run the pipelines as their operators (`;`, `&&`, `||`) demand; return the last exit
        code, and which command gave it: the number of its pipeline, and its number in there.
        """
        code, last_command = 0, (0, 0)
        for index, (operator, commands) in enumerate(self._pipelines):
            if (operator == "&&" and code) or (operator == "||" and not code):
                continue
            code, last_command = self._pipeline(commands), (index, len(commands) - 1)
        return code, *last_command

    def _pipeline(self, commands: list[dict]) -> int:
        """Run commands side by side until all have ended; return the exit code of the last."""
        processes: set[int] = set()
        stdin = self._null
        code = 0
        for index, command in enumerate(commands):
            is_last = index == len(commands) - 1
            next_stdin, stdout = (self._null, self._output) if is_last else os.pipe()
            pid, code = self._start(command, stdin, stdout)
            if pid:
                processes.add(pid)
            if stdin != self._null:
                os.close(stdin)
            if not is_last:
                os.close(stdout)
            stdin = next_stdin
        self._wait_for(processes)
        return self._codes[pid] if pid else code

    def _start(self, command: dict, stdin: int, stdout: int) -> tuple[int, int]:
        """Start one command; return its pid, or 0 and the exit code a shell would give."""
        stderr = self._output if command["stderr"] is None else command["stderr"]
        for fd, destination in command["redirects"]:
            target = self._null if destination == "null" else stdout
            if fd == 1:
                stdout = target
            else:
                stderr = target
        if command["stdin"] is not None:
            stdin = command["stdin"]
        if command["fault"] is not None:
            code, message = command["fault"]
            os.write(stderr, f"{message}\n".encode())
            return 0, code
        environment = {**self._environment, **command["environment"]}
        try:
            return start(command, environment, (stdin, stdout, stderr), self._group), 0
        except OSError as error:
            os.write(stderr, f"{command['argv'][0]}: {error.strerror}\n".encode())
            return 0, _NOT_RUNNABLE

    def _wait_for(self, processes: set[int]) -> None:
        """Wait until these have ended. Raises LineStopped when our input is closed."""
        while remaining := processes - self._codes.keys():
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            pidfds = [fd for pid in remaining if (fd := _open_pidfd(pid)) >= 0]
            for fd in pidfds:
                poll.register(fd, select.POLLIN)
            ready = poll.poll(None if len(pidfds) == len(remaining) else 20)
            for fd in pidfds:
                os.close(fd)
            if any(fd == self._control for fd, _ in ready):
                raise LineStopped
            _reap(self._codes)


# --- starting a command in its cell


def start(command: dict, environment: dict[str, str], streams: tuple[int, ...], group: str) -> int:
    """Start a command and return its pid. Raises OSError if it cannot be confined or started."""
    error_read, error_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            if group:
                _write_if_allowed(f"{group}/cgroup.procs", "0")
            _enter(command, environment, streams, parent)
        except OSError as error:
            os.write(error_write, (error.errno or 1).to_bytes(4, "big"))
        finally:
            os._exit(_NOT_RUNNABLE)
    os.close(error_write)
    # the number of an error, or nothing once the program runs: exec closes the pipe
    error_number = os.read(error_read, 4)
    os.close(error_read)
    if error_number:
        os.waitpid(pid, 0)
        code = int.from_bytes(error_number, "big")
        raise OSError(code, os.strerror(code))
    return pid


def _enter(
    command: dict, environment: dict[str, str], streams: tuple[int, ...], parent: int
) -> None:
    """Become the command: its streams, its limits, its user, its cell; in the child."""
    cell: dict = command["cell"]
    os.setpgid(0, 0)
    _lower_priority()
    if LINUX:
        # when memory runs out, before the daemon and the rest of the machine
        _write_if_allowed("/proc/self/oom_score_adj", "1000")
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for signal_number in _IGNORED_BY_PYTHON:
        signal.signal(signal_number, signal.SIG_DFL)
    if cell.get("limits"):
        limits = [*cell["limits"]]
        if LINUX and not ("wrap" in cell and os.access(_PRLIMIT, os.X_OK)):
            # Whatever else the user starts is counted, too; in bubblewrap the limit is set within,
            # see _bubblewrap_command.
            limits.append((_NPROC, _count_tasks() + cell["processes"]))
        confine.set_limits(limits)
    if "user" in cell:
        confine.become_user(*cell["user"])
    path, argv = command["path"], command["argv"]
    if "wrap" in cell:
        path, argv = _bubblewrap_command(command, cell)
    if LINUX:
        confine.die_with_parent(parent)
    if "places" in cell:
        needs = [(path, confine.RUN) for path in command["needs"]]
        syscalls.landlock_restrict_self(confine.create_ruleset([*cell["places"], *needs]))
        syscalls.seccomp_set_filter(cell["filter"])
    os.execve(path, argv, environment)  # noqa: S606  # no shell is the point


def _bubblewrap_command(command: dict, cell: dict) -> tuple[str, list[str]]:
    """Return the words that start a command in bubblewrap, with those places that the user can
    see.
    """
    words = [*cell["wrap"]]
    for option, path in (*cell["shown"], *(("--ro-bind", path) for path in command["needs"])):
        if os.access(path, os.F_OK):
            words += [option, path, path]
    if cell["filter"]:
        descriptor = os.memfd_create("filter", 0)
        os.write(descriptor, cell["filter"])
        os.lseek(descriptor, 0, os.SEEK_SET)
        words += ["--seccomp", str(descriptor)]
    words += ["--remount-ro", "/", "--chdir", cell["folder"], "--"]
    # counted within: outside, the limit counts whatever else the user runs
    if os.access(_PRLIMIT, os.X_OK):
        words += [_PRLIMIT, f"--nproc={cell['processes']}:{cell['processes']}"]
    return cell["wrap"][0], [*words, command["path"], *command["argv"][1:]]


def _lower_priority() -> None:
    try:
        os.nice(_NICENESS)
    except OSError:
        return  # a filter of system calls keeps all priorities as they are, as in our units


def _write_if_allowed(path: str, text: str) -> None:
    """Write a file of the kernel."""
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        return  # it is not there, or may not be written


def _count_tasks() -> int:
    """Return how many threads this machine runs: no user has more, so a limit above this number
    leaves a program what lies above it.
    """
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])


# --- waiting


def _open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a child ends; -1 where there is no such
    thing.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, a sandbox that does not know it
        return -1


def _reap(codes: dict[int, int]) -> bool:
    """Put the exit codes of the children that have ended, adopted ones too, into `codes`, by pid,
    as a shell gives them.

    Returns whether any child is left. The kernel knows for certain, while /proc may miss what
    changes its parent.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True
        code = os.waitstatus_to_exitcode(status)
        codes[pid] = code if code >= 0 else 128 - code


# --- killing what is left


def kill_descendants(root: int) -> list[int]:
    """Kill all descendants of a process, this one or another; return the ids of those left.

    All are stopped first, again and again until no new one appears: what forks faster than we kill
    would escape.
    """
    deadline = time.monotonic() + _KILL_TIMEOUT
    is_own = root == os.getpid()
    while _reap({}) if is_own else _descendants(root):
        stopped_processes: set[int] = set()
        while new_processes := _descendants(root) - stopped_processes:
            for pid in new_processes:
                _send_signal(pid, signal.SIGSTOP)
            stopped_processes |= new_processes
        for pid in stopped_processes:
            _send_signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return sorted(_descendants(root))
        time.sleep(0.001)
    return []


def kill_session(session: int) -> None:
    """Kill what still belongs to a session: the best that can be done once its supervisor has been
    killed.
    """
    for pid in _all_processes():
        if _stat(pid)[3:4] == [str(session).encode()]:
            _send_signal(pid, signal.SIGKILL)


def _descendants(root: int) -> set[int]:
    """Return every process beneath one, as far as can be seen at this moment."""
    descendants: set[int] = set()
    new_children = [root]
    while new_children:
        new_children = [
            child for pid in new_children for child in _children(pid) if child not in descendants
        ]
        descendants.update(new_children)
    return descendants


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:  # gone meanwhile, or a kernel without that file
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return _children_by_stat(pid)
    return [child for child in children if _state(child) != b"Z"]


def _children_by_stat(pid: int) -> list[int]:
    """Find the children of a process among all there are."""
    return [
        process_id
        for process_id in _all_processes()
        if _stat(process_id)[1:2] == [str(pid).encode()]
    ]


def _all_processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # macOS: what is beneath us cannot be seen
        return []


def _state(pid: int) -> bytes:
    return (_stat(pid) or [b"Z"])[0]


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; nothing if there is no such
    process.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _send_signal(pid: int, signal_number: int) -> None:
    try:
        os.kill(pid, signal_number)
    except OSError:
        return  # gone meanwhile, or no longer ours


# --- the process


def _become_subreaper() -> None:
    """Adopt whatever loses its parent beneath us, and let nothing gain rights through a set-uid
    program, which Landlock and seccomp demand.
    """
    if LINUX:
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _move_descriptor(fd: int) -> int:
    """Return a descriptor out of the way of 0, 1 and 2, which no child inherits."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)


def _read_plan(control: int) -> dict:
    size = int.from_bytes(_read_exactly(control, 4), "big")
    plan: dict = marshal.loads(_read_exactly(control, size))  # noqa: S302  # the daemon wrote it
    return plan


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            raise LineStopped
        data += piece
    return data


def main() -> None:
    """Run the line whose plan comes on standard input, and report on standard error."""
    control, output, report = (_move_descriptor(fd) for fd in (0, 1, 2))
    _become_subreaper()
    result: dict = {"code": _STOPPED}
    try:
        plan = _read_plan(control)
        for fd in plan["files"]:
            os.set_inheritable(fd, False)
        code, pipeline, command = Line(plan, control, output).run()
        result = {"code": code, "last_program": (pipeline, command)}
    except LineStopped:
        pass
    result["unkilled_pids"] = kill_descendants(os.getpid())
    try:
        os.write(report, marshal.dumps(result))
    except BrokenPipeError:
        return  # the daemon is no more


if __name__ == "__main__":
    main()
    # not sys.exit: the daemon waits for our end, and the interpreter's cleanup takes time
    os._exit(0)
