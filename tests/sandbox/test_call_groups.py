"""The memory and the processes of a call are bounded as a whole, where a control group can do it.

The limits are tried in plain folders with the kernel's names: the machines that run these tests
have no memory controller to give. Moving and killing are tried in a real cgroup v2, by root.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.sandbox.bounds import Bounds, ProgramLimits
from daemon.sandbox.call_groups import CallGroup, is_memory_counted, prepare_parent
from daemon.sandbox.running import CommandResult, PreparedProgram, run
from daemon.sandbox.sandbox import Sandbox
from tests.sandbox.conftest import Cell
from tests.sandbox.test_running import life_line, nobody_holds

UNIT = "system.slice/agentd.service"
DELEGATED = f"0::/{UNIT}/daemon\n"
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs control groups of Linux")


def machine(folder: Path, own: str = DELEGATED, controllers: str = "cpu memory pids\n") -> Path:
    """Make what the kernel shows of control groups to this process, which is in the group `own`;
    return the group above it.
    """
    for pid in ("self", str(os.getpid())):
        (folder / "proc" / pid).mkdir(parents=True)
        (folder / "proc" / pid / "cgroup").write_text(own)
    parent = folder / "sys/fs/cgroup" / UNIT
    (parent / "daemon").mkdir(parents=True)
    (parent / "daemon/cgroup.controllers").write_text(controllers)
    for path in ("cgroup.procs", "cgroup.subtree_control", "daemon/cgroup.procs"):
        (parent / path).touch()
    return parent


# --- where calls get a group


def test_calls_get_groups_beside_a_daemon_that_systemd_put_into_the_subgroup(
    tmp_path: Path,
) -> None:
    parent = machine(tmp_path)
    assert prepare_parent(root=tmp_path) == parent
    assert (parent / "cgroup.subtree_control").read_text() == "+memory"
    assert is_memory_counted(os.getpid(), root=tmp_path), "and doctor sees it from outside"


@pytest.mark.parametrize(
    "facts",
    [
        {"own": f"0::/{UNIT}\n"},
        {"own": "0::/user.slice/user-1000.slice/session-3.scope\n"},
        {"own": f"4:memory:/{UNIT}/daemon\n1:name=systemd:/{UNIT}/daemon\n0::/\n"},
        {"own": ""},
        {"controllers": "cpu pids\n"},
    ],
    ids=["no subgroup", "a terminal", "version 1", "no groups", "no memory controller"],
)
def test_calls_get_no_group_where_memory_cannot_be_counted(
    tmp_path: Path, facts: dict[str, str]
) -> None:
    machine(tmp_path, **facts)
    assert prepare_parent(root=tmp_path) is None
    assert not is_memory_counted(os.getpid(), root=tmp_path)


def test_calls_get_no_group_in_one_that_may_not_be_divided(tmp_path: Path) -> None:
    parent = machine(tmp_path)
    (parent / "cgroup.procs").unlink()
    assert prepare_parent(root=tmp_path) is None
    assert (parent / "cgroup.subtree_control").read_text() == "", "nothing was touched"


def test_a_start_ends_the_groups_that_a_killed_daemon_left(tmp_path: Path) -> None:
    parent = machine(tmp_path)
    (parent / "daemon/cgroup.procs").write_text(f"4711\n{os.getpid()}\n")
    for name in ("call-4710-1", "call-4711-1", f"call-{os.getpid()}-1"):
        (parent / name).mkdir()
    prepare_parent(root=tmp_path)
    killed = {path.parent.name for path in parent.glob("call-*/cgroup.kill")}
    assert killed == {"call-4710-1", f"call-{os.getpid()}-1"}, "the daemon of the other lives"


# --- limits


def test_a_group_bounds_memory_and_processes_of_the_whole_call(tmp_path: Path) -> None:
    group = CallGroup.create(tmp_path, memory=256 << 20, processes=66)
    assert group is not None
    assert {path.name: path.read_text() for path in group.folder.iterdir()} == {
        "memory.max": str(256 << 20),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "66",
    }


async def run_in_group(folder: Path, groups: Path, *codes: str) -> CommandResult:
    """Run shells side by side, in a group of their own beneath `groups`."""
    bounds = Bounds(workspace=str(folder), folder=str(folder), limits=ProgramLimits(processes=30))
    cell = Sandbox(groups=groups).cell(bounds)
    shells = [PreparedProgram(path="/bin/sh", argv=["sh", "-c", code], cell=cell) for code in codes]
    return await run([(";", shells)], folder=folder, environment={}, seconds=60, output_bytes=9000)


@linux
async def test_all_programs_of_a_line_are_in_one_group(tmp_path: Path) -> None:
    result = await run_in_group(tmp_path, tmp_path, "true", "echo call-*; cat call-*/cgroup.procs")
    assert result.code == 0
    (group,) = tmp_path.glob("call-*")
    assert result.output.text() == f"{group.name}\n0", "0 is whoever writes it"
    assert (group / "pids.max").read_text() == "64", "30 each, and 2 for bubblewrap"
    assert (group / "memory.max").read_text() == str(2 << 30)
    assert (group / "cgroup.kill").read_text() == "1"
    assert not result.reached_memory_limit


@linux
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 1\n", True),
        ("max 0\noom 0\noom_kill 1\n", False),
        ("max 9\noom 0\noom_kill 0\n", False),
    ],
    ids=["limit of the call", "the machine is full", "nothing killed"],
)
async def test_a_line_that_reached_its_limit_on_memory_says_so(
    tmp_path: Path, events: str, expected: bool
) -> None:
    (tmp_path / "events").write_text(events)
    result = await run_in_group(
        tmp_path, tmp_path, 'for group in call-*; do cp events "$group/memory.events"; done'
    )
    assert (result.code, result.reached_memory_limit) == (0, expected)


@linux
async def test_a_program_runs_where_no_group_can_be_made(tmp_path: Path) -> None:
    result = await run_in_group(tmp_path, tmp_path / "none", "echo works")
    assert (result.code, result.output.text()) == (0, "works\n")


@linux
async def test_a_line_that_cannot_be_started_leaves_no_group(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_in_group(tmp_path / "none", tmp_path, "true")
    (group,) = tmp_path.glob("call-*")
    assert (group / "cgroup.kill").read_text() == "1"


def test_without_groups_nothing_is_told_to_the_supervisor(tmp_path: Path) -> None:
    assert "group" not in Sandbox().cell(Bounds(workspace=str(tmp_path), folder=str(tmp_path)))


# --- in a real cgroup v2


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Path]:
    """A group of cgroup v2; on a machine that has none to write to, a plain folder."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    for _, point, kind, *_ in mounts:
        folder = Path(point, f"agentd-test-{os.getpid()}")
        if kind == "cgroup2" and os.access(point, os.W_OK):
            folder.mkdir()
            yield folder
            folder.rmdir()
            return
    yield tmp_path


# It tells its group once another process has left its session and its parents, and lives on.
HIDE = """
import os, signal
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writer, b"!")
        signal.pause()
    os._exit(0)
os.read(reader, 1)
print(open("/proc/self/cgroup").read(), flush=True)
"""


@pytest.mark.root
@linux
async def test_what_hides_from_a_killed_supervisor_is_killed_with_its_group(
    tmp_path: Path, cell: Cell, groups: Path
) -> None:
    is_real = (groups / "cgroup.procs").exists()
    # without a group nobody would find it any more
    kill = f"os.kill(os.getppid(), {signal.SIGKILL:d})" if is_real else ""
    plain = replace(cell, sandbox=Sandbox(groups=groups))
    with life_line() as (reader, writer):
        result = await plain.python(f"{HIDE}{kill}", stdin=writer)
        assert nobody_holds(writer, reader)
    if is_real:
        assert f"/{groups.name}/call-{os.getpid()}-" in result.output.text()
        assert list(groups.glob("call-*")) == []


@pytest.mark.root
@linux
async def test_every_sandbox_runs_its_programs_in_the_group(cell: Cell, groups: Path) -> None:
    within = replace(cell, sandbox=replace(cell.sandbox, groups=groups))
    result = await within.sh("cat /proc/self/cgroup; ls /sys/fs/cgroup")
    is_real = (groups / "cgroup.procs").exists()
    assert result.code == 2 and "/sys/fs/cgroup" in result.output.text(), "it is not seen within"
    assert (f"/{groups.name}/call-{os.getpid()}-" in result.output.text()) is is_real
    assert [path.name for path in groups.glob("call-*/cgroup.procs")] == (
        [] if is_real else ["cgroup.procs"]
    )
