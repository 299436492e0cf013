"""A command line runs as planned, and none of its processes outlives it."""

import asyncio
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from daemon.sandbox import supervisor
from daemon.sandbox.running import CommandResult, PreparedProgram, run

# Two forks and a new session: what a program does that wants to outlive whoever started it. It
# keeps standard input, which is the writing end of a pipe here, and tells through it that it has
# hidden itself.
ESCAPE = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(0, b"!")
        signal.pause()
    os._exit(0)
os.wait()
"""
ESCAPE_AND_STAY = ESCAPE + "signal.pause()\n"
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs the child subreaper of Linux")


def python(code: str, **more: object) -> PreparedProgram:
    return PreparedProgram(path=sys.executable, argv=["python", "-I", "-S", "-c", code], **more)  # type: ignore[arg-type]


async def run_in(
    folder: Path, *pipelines: tuple[str, list[PreparedProgram]], **limits: float
) -> CommandResult:
    limits_of_line = {"seconds": 30, "output_bytes": 10_000, **limits}
    return await run(pipelines, folder=folder, environment={"LANG": "C.UTF-8"}, **limits_of_line)  # type: ignore[arg-type]


@contextmanager
def life_line() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a pipe: reading meets its end once every process that holds the other
    one is gone.
    """
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)


def nobody_holds(writer: int, reader: int) -> bool:
    os.close(writer)
    os.set_blocking(reader, False)
    try:
        while os.read(reader, 100):
            pass
    except BlockingIOError:
        return False
    return True


# --- what runs


async def test_standard_output_and_error_of_a_program_keep_their_order(
    tmp_path: Path,
) -> None:
    code = "import os\nfor fd, text in (1, b'a'), (2, b'b'), (1, b'c'): os.write(fd, text)"
    result = await run_in(tmp_path, (";", [python(code)]))
    assert (result.code, result.output.text(), result.stop_cause) == (0, "abc", "")


async def test_operators_between_pipelines_follow_the_exit_code_before_them(tmp_path: Path) -> None:
    def say(word: str, code: int = 0) -> list[PreparedProgram]:
        return [python(f"print({word!r}); raise SystemExit({code})")]

    result = await run_in(
        tmp_path,
        (";", say("a", 3)),
        ("&&", say("b")),
        ("||", say("c")),
        ("&&", say("d", 4)),
        (";", say("e", 5)),
    )
    assert result.output.text().split() == ["a", "c", "d", "e"]
    assert (result.code, result.last_program) == (5, (4, 0))


async def test_a_skipped_pipeline_keeps_the_exit_code_before_it(tmp_path: Path) -> None:
    result = await run_in(
        tmp_path, (";", [python("raise SystemExit(7)")]), ("&&", [python("print(1)")])
    )
    assert (result.code, result.last_program, result.output.text()) == (7, (0, 0), "")


async def test_a_pipe_carries_output_and_the_last_program_gives_the_exit_code(
    tmp_path: Path,
) -> None:
    upper = "import sys; print(sys.stdin.read().upper(), end=''); raise SystemExit(2)"
    result = await run_in(
        tmp_path, (";", [python("print('a b'); raise SystemExit(1)"), python(upper)])
    )
    assert (result.code, result.last_program, result.output.text()) == (2, (0, 1), "A B\n")


async def test_a_program_with_a_closed_pipe_ends_like_in_a_shell(tmp_path: Path) -> None:
    forever = "import os\nwhile True: os.write(1, b'y' * 4096)"
    result = await run_in(
        tmp_path, (";", [_with_default_pipe(forever), python("import os; os.read(0, 1)")])
    )
    assert (result.code, result.stop_cause) == (0, "")


def _with_default_pipe(code: str) -> PreparedProgram:
    return python("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + code)


@linux
async def test_a_program_starts_without_ignored_signals(tmp_path: Path) -> None:
    result = await run_in(
        tmp_path, (";", [PreparedProgram(path="/bin/cat", argv=["cat", "/proc/self/status"])])
    )
    ignore_line = next(
        line for line in result.output.text().splitlines() if line.startswith("SigIgn")
    )
    assert (
        int(ignore_line.split()[1], 16) & 0x7FFFFFFF == 0
    )  # the two above are the C library's own


@pytest.mark.parametrize(
    ("redirects", "expected"),
    [
        ([], "outerr"),
        ([(1, "null")], "err"),
        ([(2, "null")], "out"),
        ([(1, "null"), (2, "stdout")], ""),
        ([(2, "stdout"), (1, "null")], "err"),
    ],
)
async def test_redirections_apply_in_order(
    tmp_path: Path, redirects: list[tuple[int, str]], expected: str
) -> None:
    code = "import os; os.write(1, b'out'); os.write(2, b'err')"
    result = await run_in(tmp_path, (";", [python(code, redirects=redirects)]))
    assert result.output.text() == expected


async def test_standard_error_enters_a_pipe_only_by_redirection(tmp_path: Path) -> None:
    errors = "import os; os.write(2, b'err')"
    count = "import sys; print(len(sys.stdin.read()))"
    apart = await run_in(tmp_path, (";", [python(errors), python(count)]))
    result = await run_in(
        tmp_path, (";", [python(errors, redirects=[(2, "stdout")]), python(count)])
    )
    assert sorted(apart.output.text().replace("\n", "")) == sorted("err0")
    assert result.output.text() == "3\n"


async def test_a_file_can_be_standard_input(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from a file")
    with (tmp_path / "in").open("rb") as file:
        result = await run_in(tmp_path, (";", [python("print(input())", stdin=file.fileno())]))
    assert result.output.text() == "from a file\n"


async def test_standard_input_is_empty_by_default(tmp_path: Path) -> None:
    result = await run_in(tmp_path, (";", [python("import sys; print(repr(sys.stdin.read()))")]))
    assert result.output.text() == "''\n"


async def test_a_missing_program_is_reported_and_the_command_line_continues(
    tmp_path: Path,
) -> None:
    empty_program = PreparedProgram(
        path="", argv=["frobnicate"], fault=(127, "frobnicate: is not installed")
    )
    result = await run_in(tmp_path, (";", [empty_program]), ("||", [python("print('other')")]))
    assert result.output.text() == "frobnicate: is not installed\nother\n"
    alone = await run_in(tmp_path, (";", [empty_program]))
    assert alone.code == 127


async def test_a_file_without_execute_permission_is_reported(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    result = await run_in(
        tmp_path, (";", [PreparedProgram(path=str(tmp_path / "plain"), argv=["plain"])])
    )
    assert result.code == 126
    assert "plain: Permission denied" in result.output.text()


async def test_a_command_line_larger_than_a_pipe_buffer_runs(tmp_path: Path) -> None:
    words = ["x" * 100_000] * 5
    code = "import sys; print(sum(map(len, sys.argv[1:])))"
    result = await run_in(
        tmp_path,
        (";", [PreparedProgram(path=sys.executable, argv=["python", "-I", "-c", code, *words])]),
    )
    assert result.output.text() == "500000\n"


# --- what a program sees


async def test_a_program_has_its_folder_and_a_clean_environment(tmp_path: Path) -> None:
    code = (
        "import json, os; print(json.dumps([os.getcwd(), sorted(os.environ), os.getpid() == "
        "os.getsid(0)]))"
    )
    result = await run_in(tmp_path, (";", [python(code, environment={"EXTRA": "1"})]))
    folder, names, leads_session = json.loads(result.output.text())
    assert Path(folder) == tmp_path.resolve()
    assert set(names) <= {"LANG", "EXTRA", "LC_CTYPE"}  # Python itself adds the last
    assert not leads_session  # so it cannot take a terminal


@linux
async def test_a_program_inherits_no_descriptor_of_the_daemon(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        (tmp_path / "in").touch()
        with (tmp_path / "in").open("rb") as file:
            first = python(
                "import os; print(sorted(os.listdir('/proc/self/fd')))", stdin=file.fileno()
            )
            second = python("import os; print(sorted(os.listdir('/proc/self/fd')))")
            result = await run_in(tmp_path, (";", [first]), (";", [second]))
    assert result.output.text() == "['0', '1', '2', '3']\n" * 2  # 3 is the folder being listed


@linux
async def test_programs_gain_no_privileges_by_set_uid(tmp_path: Path) -> None:
    result = await run_in(
        tmp_path, (";", [PreparedProgram(path="/bin/cat", argv=["cat", "/proc/self/status"])])
    )
    assert "NoNewPrivs:\t1" in result.output.text()


@linux
async def test_programs_run_where_a_filter_keeps_priorities_as_they_are(tmp_path: Path) -> None:
    daemon = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from daemon.sandbox.running import PreparedProgram, run
from daemon.sandbox.syscall_filter import CallRule, compile_filter
from daemon.system import syscalls
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
syscalls.seccomp_set_filter(compile_filter([CallRule("setpriority", 0x50001)]))  # EPERM, as SystemCallFilter=~@resources
line = [(";", [PreparedProgram(path="/bin/echo", argv=["echo", "works"])])]
result = asyncio.run(run(line, folder=Path({str(tmp_path)!r}), environment={{}}, seconds=60, output_bytes=1000))
print(result.code, result.output.text())
"""  # noqa: E501
    process = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", daemon], capture_output=True, text=True, check=True
    )
    assert process.stdout == "0 works\n\n"


# --- what is left


@linux
async def test_processes_hidden_from_a_command_line_are_killed_at_its_end(tmp_path: Path) -> None:
    with life_line() as (reader, writer):
        # it ends only after the other has hidden itself
        wait = "import os\nwhile not os.path.exists('hidden'): pass"
        tell = ESCAPE.replace('os.write(0, b"!")', "open('hidden', 'w').close()")
        result = await run_in(tmp_path, (";", [python(tell, stdin=writer)]), (";", [python(wait)]))
        assert (result.code, result.unkilled_pids) == (0, ())
        assert nobody_holds(writer, reader)


@linux
async def test_a_command_line_over_its_time_limit_is_killed_with_all_its_processes(
    tmp_path: Path,
) -> None:
    with life_line() as (reader, writer):
        is_hidden, seconds = False, 0.2
        # on a busy machine it may not have come to hide itself; then it gets more time
        while not is_hidden:
            result = await run_in(
                tmp_path, (";", [python(ESCAPE_AND_STAY, stdin=writer)]), seconds=seconds
            )
            assert result.stop_cause == "time"
            is_hidden, seconds = bool(select.select([reader], [], [], 0)[0]), seconds * 2
        assert nobody_holds(writer, reader)


@linux
async def test_a_cancelled_command_line_is_killed_with_all_its_processes(tmp_path: Path) -> None:
    with life_line() as (reader, writer):
        task = asyncio.ensure_future(
            run_in(tmp_path, (";", [python(ESCAPE_AND_STAY, stdin=writer)]))
        )
        assert await asyncio.to_thread(os.read, reader, 1) == b"!"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nobody_holds(writer, reader)


@linux
async def test_a_multiplying_program_is_killed_to_the_last_process(tmp_path: Path) -> None:
    bomb = """
import os, signal
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        for _ in range(60):  # each lives on in its child only; an end is set for the machine that runs the tests
            if os.fork() == 0:
                os.setsid()
            else:
                signal.sigtimedwait([], 0.02)
                os._exit(0)
        signal.pause()
signal.pause()
"""  # noqa: E501
    with life_line() as (reader, writer):
        result = await run_in(tmp_path, (";", [python(bomb, stdin=writer)]), seconds=0.5)
        assert (result.stop_cause, result.unkilled_pids) == ("time", ())
        assert nobody_holds(writer, reader)


@linux
def test_command_lines_die_with_a_killed_daemon(tmp_path: Path) -> None:
    daemon = f"""
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from daemon.sandbox.running import PreparedProgram, run
line = [(";", [PreparedProgram(path=sys.executable, argv=["python", "-I", "-S", "-c", {ESCAPE_AND_STAY!r}], stdin=os.dup(0))])]
asyncio.run(run(line, folder=Path({str(tmp_path)!r}), environment={{}}, seconds=60, output_bytes=1000))
"""  # noqa: E501
    with life_line() as (reader, writer):
        with subprocess.Popen([sys.executable, "-c", daemon], stdin=writer) as process:
            os.close(writer)
            assert os.read(reader, 1) == b"!"
            process.kill()
        # comes when the last one is gone; the test's own limit if one stays
        assert os.read(reader, 1) == b""


@linux
async def test_a_command_line_that_kills_its_supervisor_dies_with_its_session(
    tmp_path: Path,
) -> None:
    with life_line() as (reader, writer):
        result = await run_in(
            tmp_path,
            (
                ";",
                [
                    python(
                        "import os, signal; os.kill(os.getppid(), 9); signal.pause()", stdin=writer
                    )
                ],
            ),
        )
        assert result.code == 128 + signal.SIGKILL
        os.close(writer)
        assert os.read(reader, 1) == b""


@linux
def test_child_processes_are_found_by_children_file_and_by_stat() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        assert child.pid in supervisor._children(os.getpid())
        assert child.pid in supervisor._children_by_stat(os.getpid())
        child.communicate()


# --- what comes out


async def test_of_fifty_megabytes_of_output_both_ends_are_kept(tmp_path: Path) -> None:
    code = """
import os
os.write(1, b"first\\n")
for _ in range(800):
    os.write(1, b"x" * 65535 + b"\\n")
os.write(1, b"last\\n")
"""
    result = await run_in(tmp_path, (";", [python(code)]), output_bytes=2000)
    text = result.output.text()
    assert result.output.size == 800 * 65536 + 11
    assert len(text) < 2200
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes cut from the middle" in text


async def test_a_program_over_the_output_limit_is_killed(tmp_path: Path) -> None:
    forever = "import os\nwhile True: os.write(1, b'y' * 65536)"
    result = await run_in(tmp_path, (";", [python(forever)]), max_output_bytes=1 << 20)
    assert result.stop_cause == "output"
    assert result.output.size < 4 << 20


def use_up_descriptors() -> list[int]:
    fds: list[int] = []
    with suppress(OSError):
        while True:
            fds.append(os.open("/dev/null", os.O_RDONLY))
    return fds


@linux
@pytest.mark.parametrize("free", range(1, 8))
async def test_a_line_that_gets_too_few_descriptors_keeps_none(tmp_path: Path, free: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 500), hard))
    fds = use_up_descriptors()
    try:
        for _ in range(free):
            os.close(fds.pop())
        with pytest.raises(OSError, match="Too many open files"):
            await run_in(tmp_path, (";", [python("pass")]))
        released_fds = use_up_descriptors()
        fds += released_fds
        assert len(released_fds) == free
    finally:
        for fd in fds:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
