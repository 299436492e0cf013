"""A command line runs as it was planned, and nothing of it is left: however it ends, and wherever
it hides.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.sandbox import supervisor
from daemon.sandbox.running import CommandResult, Running, run

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


def python(code: str, **more: object) -> Running:
    return Running(path=sys.executable, argv=["python", "-I", "-S", "-c", code], **more)  # type: ignore[arg-type]


async def run_in(
    folder: Path, *pipelines: tuple[str, list[Running]], **limits: float
) -> CommandResult:
    given = {"seconds": 30, "output_bytes": 10_000, **limits}
    return await run(pipelines, folder=folder, environment={"LANG": "C.UTF-8"}, **given)  # type: ignore[arg-type]


@contextmanager
def life_line() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a pipe: reading meets its end once every process that holds the other
    one is gone.
    """
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)


def nobody_holds(writing: int, reading: int) -> bool:
    os.close(writing)
    os.set_blocking(reading, False)
    try:
        while os.read(reading, 100):
            pass
    except BlockingIOError:
        return False
    return True


# --- what runs
# -----------------------------------------------------------------------------------------


async def test_what_a_program_puts_out_comes_back_in_the_order_it_was_written(
    tmp_path: Path,
) -> None:
    code = "import os\nfor fd, text in (1, b'a'), (2, b'b'), (1, b'c'): os.write(fd, text)"
    ended = await run_in(tmp_path, (";", [python(code)]))
    assert (ended.code, ended.output.text(), ended.stopped) == (0, "abc", "")


async def test_joints_decide_by_the_exit_code_before_them(tmp_path: Path) -> None:
    def say(word: str, code: int = 0) -> list[Running]:
        return [python(f"print({word!r}); raise SystemExit({code})")]

    ended = await run_in(
        tmp_path,
        (";", say("a", 3)),
        ("&&", say("b")),
        ("||", say("c")),
        ("&&", say("d", 4)),
        (";", say("e", 5)),
    )
    assert ended.output.text().split() == ["a", "c", "d", "e"]
    assert (ended.code, ended.last) == (5, (4, 0))


async def test_a_skipped_pipeline_keeps_the_exit_code_before_it(tmp_path: Path) -> None:
    ended = await run_in(
        tmp_path, (";", [python("raise SystemExit(7)")]), ("&&", [python("print(1)")])
    )
    assert (ended.code, ended.last, ended.output.text()) == (7, (0, 0), "")


async def test_a_pipe_carries_output_and_the_last_program_gives_the_exit_code(
    tmp_path: Path,
) -> None:
    upper = "import sys; print(sys.stdin.read().upper(), end=''); raise SystemExit(2)"
    ended = await run_in(
        tmp_path, (";", [python("print('a b'); raise SystemExit(1)"), python(upper)])
    )
    assert (ended.code, ended.last, ended.output.text()) == (2, (0, 1), "A B\n")


async def test_a_program_whose_reader_has_left_ends_as_it_would_in_a_shell(tmp_path: Path) -> None:
    forever = "import os\nwhile True: os.write(1, b'y' * 4096)"
    ended = await run_in(
        tmp_path, (";", [_with_default_pipe(forever), python("import os; os.read(0, 1)")])
    )
    assert (ended.code, ended.stopped) == (0, "")


def _with_default_pipe(code: str) -> Running:
    return python("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + code)


@linux
async def test_no_signal_reaches_a_program_ignored(tmp_path: Path) -> None:
    ended = await run_in(
        tmp_path, (";", [Running(path="/bin/cat", argv=["cat", "/proc/self/status"])])
    )
    ignored = next(line for line in ended.output.text().splitlines() if line.startswith("SigIgn"))
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0  # the two above are the C library's own


@pytest.mark.parametrize(
    ("redirects", "seen"),
    [
        ([], "outerr"),
        ([(1, "null")], "err"),
        ([(2, "null")], "out"),
        ([(1, "null"), (2, "stdout")], ""),
        ([(2, "stdout"), (1, "null")], "err"),
    ],
)
async def test_redirections_hold_in_the_order_they_are_written(
    tmp_path: Path, redirects: list[tuple[int, str]], seen: str
) -> None:
    both = "import os; os.write(1, b'out'); os.write(2, b'err')"
    ended = await run_in(tmp_path, (";", [python(both, redirects=redirects)]))
    assert ended.output.text() == seen


async def test_errors_go_down_the_pipe_only_when_told_to(tmp_path: Path) -> None:
    errors = "import os; os.write(2, b'err')"
    count = "import sys; print(len(sys.stdin.read()))"
    apart = await run_in(tmp_path, (";", [python(errors), python(count)]))
    joined = await run_in(
        tmp_path, (";", [python(errors, redirects=[(2, "stdout")]), python(count)])
    )
    assert sorted(apart.output.text().replace("\n", "")) == sorted("err0")
    assert joined.output.text() == "3\n"


async def test_a_file_stands_for_standard_input(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from a file")
    with (tmp_path / "in").open("rb") as file:
        ended = await run_in(tmp_path, (";", [python("print(input())", stdin=file.fileno())]))
    assert ended.output.text() == "from a file\n"


async def test_without_one_there_is_nothing_to_read(tmp_path: Path) -> None:
    ended = await run_in(tmp_path, (";", [python("import sys; print(repr(sys.stdin.read()))")]))
    assert ended.output.text() == "''\n"


async def test_a_program_that_cannot_be_started_is_said_so_and_the_line_goes_on(
    tmp_path: Path,
) -> None:
    nothing = Running(path="", argv=["frobnicate"], fault=(127, "frobnicate: is not installed"))
    ended = await run_in(tmp_path, (";", [nothing]), ("||", [python("print('other')")]))
    assert ended.output.text() == "frobnicate: is not installed\nother\n"
    alone = await run_in(tmp_path, (";", [nothing]))
    assert alone.code == 127


async def test_a_file_that_is_no_program_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    ended = await run_in(tmp_path, (";", [Running(path=str(tmp_path / "plain"), argv=["plain"])]))
    assert ended.code == 126
    assert "plain: Permission denied" in ended.output.text()


async def test_a_plan_longer_than_a_pipe_holds_arrives_whole(tmp_path: Path) -> None:
    words = ["x" * 100_000] * 5
    code = "import sys; print(sum(map(len, sys.argv[1:])))"
    ended = await run_in(
        tmp_path, (";", [Running(path=sys.executable, argv=["python", "-I", "-c", code, *words])])
    )
    assert ended.output.text() == "500000\n"


# --- what a program sees
# -------------------------------------------------------------------------------


async def test_a_program_sees_its_folder_and_nothing_of_ours(tmp_path: Path) -> None:
    code = (
        "import json, os; print(json.dumps([os.getcwd(), sorted(os.environ), os.getpid() == "
        "os.getsid(0)]))"
    )
    ended = await run_in(tmp_path, (";", [python(code, environment={"EXTRA": "1"})]))
    folder, names, leads_session = json.loads(ended.output.text())
    assert Path(folder) == tmp_path.resolve()
    assert set(names) <= {"LANG", "EXTRA", "LC_CTYPE"}  # Python itself adds the last
    assert not leads_session  # so it cannot take a terminal


@linux
async def test_no_descriptor_of_ours_is_handed_down(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        (tmp_path / "in").touch()
        with (tmp_path / "in").open("rb") as file:
            first = python(
                "import os; print(sorted(os.listdir('/proc/self/fd')))", stdin=file.fileno()
            )
            second = python("import os; print(sorted(os.listdir('/proc/self/fd')))")
            ended = await run_in(tmp_path, (";", [first]), (";", [second]))
    assert ended.output.text() == "['0', '1', '2', '3']\n" * 2  # 3 is the folder being listed


@linux
async def test_nothing_gains_rights_through_a_set_uid_program(tmp_path: Path) -> None:
    ended = await run_in(
        tmp_path, (";", [Running(path="/bin/cat", argv=["cat", "/proc/self/status"])])
    )
    assert "NoNewPrivs:\t1" in ended.output.text()


# --- what is left
# --------------------------------------------------------------------------------------


@linux
async def test_what_hides_from_a_line_that_has_ended_is_gone(tmp_path: Path) -> None:
    with life_line() as (reading, writing):
        # it ends only after the other has hidden itself
        wait = "import os\nwhile not os.path.exists('hidden'): pass"
        tell = ESCAPE.replace('os.write(0, b"!")', "open('hidden', 'w').close()")
        ended = await run_in(tmp_path, (";", [python(tell, stdin=writing)]), (";", [python(wait)]))
        assert (ended.code, ended.left) == (0, ())
        assert nobody_holds(writing, reading)


@linux
async def test_what_takes_too_long_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    with life_line() as (reading, writing):
        hidden, seconds = False, 0.2
        while (
            not hidden
        ):  # on a busy machine it may not have come to hide itself; then it gets more time
            ended = await run_in(
                tmp_path, (";", [python(ESCAPE_AND_STAY, stdin=writing)]), seconds=seconds
            )
            assert ended.stopped == "time"
            hidden, seconds = bool(select.select([reading], [], [], 0)[0]), seconds * 2
        assert nobody_holds(writing, reading)


@linux
async def test_a_cancelled_line_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    with life_line() as (reading, writing):
        task = asyncio.ensure_future(
            run_in(tmp_path, (";", [python(ESCAPE_AND_STAY, stdin=writing)]))
        )
        assert await asyncio.to_thread(os.read, reading, 1) == b"!"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nobody_holds(writing, reading)


@linux
async def test_what_multiplies_is_stopped_to_the_last_one(tmp_path: Path) -> None:
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
    with life_line() as (reading, writing):
        ended = await run_in(tmp_path, (";", [python(bomb, stdin=writing)]), seconds=0.5)
        assert (ended.stopped, ended.left) == ("time", ())
        assert nobody_holds(writing, reading)


@linux
def test_when_the_daemon_is_killed_its_commands_go_with_it(tmp_path: Path) -> None:
    daemon = f"""
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from daemon.sandbox.running import Running, run
line = [(";", [Running(path=sys.executable, argv=["python", "-I", "-S", "-c", {ESCAPE_AND_STAY!r}], stdin=os.dup(0))])]
asyncio.run(run(line, folder=Path({str(tmp_path)!r}), environment={{}}, seconds=60, output_bytes=1000))
"""  # noqa: E501
    with life_line() as (reading, writing):
        with subprocess.Popen([sys.executable, "-c", daemon], stdin=writing) as process:
            os.close(writing)
            assert os.read(reading, 1) == b"!"
            process.kill()
        assert (
            os.read(reading, 1) == b""
        )  # comes when the last one is gone; the test's own limit if one stays


@linux
async def test_a_line_that_kills_its_supervisor_ends_and_takes_its_session_along(
    tmp_path: Path,
) -> None:
    with life_line() as (reading, writing):
        ended = await run_in(
            tmp_path,
            (
                ";",
                [
                    python(
                        "import os, signal; os.kill(os.getppid(), 9); signal.pause()", stdin=writing
                    )
                ],
            ),
        )
        assert ended.code == 128 + signal.SIGKILL
        os.close(writing)
        assert os.read(reading, 1) == b""


@linux
def test_a_child_is_found_with_and_without_the_kernels_own_list_of_children() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        assert child.pid in supervisor._children(os.getpid())
        assert child.pid in supervisor._children_by_stat(os.getpid())
        child.communicate()


# --- what comes out
# ------------------------------------------------------------------------------------


async def test_of_fifty_megabytes_the_two_ends_are_kept_and_the_cut_is_said(tmp_path: Path) -> None:
    code = """
import os
os.write(1, b"first\\n")
for _ in range(800):
    os.write(1, b"x" * 65535 + b"\\n")
os.write(1, b"last\\n")
"""
    ended = await run_in(tmp_path, (";", [python(code)]), output_bytes=2000)
    text = ended.output.text()
    assert ended.output.size == 800 * 65536 + 11
    assert len(text) < 2200
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes cut from the middle" in text


async def test_what_floods_is_stopped(tmp_path: Path) -> None:
    forever = "import os\nwhile True: os.write(1, b'y' * 65536)"
    ended = await run_in(tmp_path, (";", [python(forever)]), flood=1 << 20)
    assert ended.stopped == "flood"
    assert ended.output.size < 4 << 20
