"""Sandbox detection by escape tests: the strongest level that holds is chosen."""

import os
from pathlib import Path

import pytest

from daemon.sandbox import confine, syscall_filter
from daemon.sandbox.current import SandboxDetection
from daemon.sandbox.detection import ESCAPE_TESTS, choose_sandbox, run_escape_tests
from daemon.sandbox.sandbox import Sandbox, User
from daemon.system import syscalls
from tests.sandbox.conftest import NOT_THERE

# It leaves the limit on processes out as well: where nothing is confined, whatever else the user
# runs is counted.
CLAIMING = 'while [ "$1" != -- ]; do shift; done\nshift\ncase "$1" in */prlimit) shift 2;; esac\nexec "$@"\n'  # noqa: E501
LEVELS = ("bubblewrap", "landlock", "profiles")


async def test_the_strongest_working_sandbox_is_chosen_with_reasons_against_stronger_levels(
    tmp_path: Path, user: User | None
) -> None:
    sandbox = await choose_sandbox("prefer", tmp_path, user)
    assert len(sandbox.missing) == LEVELS.index(sandbox.level)
    assert [test.name for test in sandbox.escape_tests if test.is_blocked] == (
        list(ESCAPE_TESTS) if sandbox.confines else []
    )
    assert list(tmp_path.iterdir()) == []


async def test_leftovers_of_a_killed_detection_are_removed_by_the_next(
    tmp_path: Path, user: User | None
) -> None:
    for name in ("trial-old", "trial-now"):
        (tmp_path / name / "outside").mkdir(parents=True)
    os.utime(tmp_path / "trial-old", (1, 1))
    await choose_sandbox("prefer", tmp_path, user)
    assert [path.name for path in tmp_path.iterdir()] == ["trial-now"]


async def test_without_bubblewrap_the_next_sandbox_level_is_chosen(
    tmp_path: Path, user: User | None
) -> None:
    sandbox = await choose_sandbox("prefer", tmp_path, user, bwrap=NOT_THERE)
    assert sandbox.missing[0] == "bubblewrap: is not installed"
    expected = "landlock" if syscalls.landlock_version() >= confine.OLDEST_LANDLOCK else "profiles"
    assert sandbox.level == expected


async def test_a_fake_bubblewrap_fails_the_escape_tests(tmp_path: Path, user: User | None) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{CLAIMING}")
    fake.chmod(0o755)
    sandbox = await choose_sandbox("prefer", tmp_path, user, bwrap=[str(fake)])
    assert sandbox.level != "bubblewrap"
    assert sandbox.missing[0].startswith("bubblewrap: a program could write outside")


async def test_a_sandbox_level_that_lacked_a_process_is_tested_again(
    tmp_path: Path, user: User | None
) -> None:
    turns = tmp_path / "turns"
    for folder in (turns, turns / "first"):
        folder.mkdir()
        folder.chmod(0o777)
    fake = tmp_path / "bwrap"
    busy = (
        "echo 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2; exit 1"
    )
    fake.write_text(f"#!/bin/sh\nrmdir {turns}/first 2>/dev/null && {{ {busy}; }}\n{CLAIMING}")
    fake.chmod(0o755)
    sandbox = await choose_sandbox("prefer", tmp_path, user, bwrap=[str(fake)])
    assert sandbox.missing[0].startswith("bubblewrap: a program could write outside")


async def test_a_sandbox_level_that_cannot_start_is_skipped_with_its_error(
    tmp_path: Path, user: User | None
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    sandbox = await choose_sandbox("prefer", tmp_path, user, bwrap=[str(fake)])
    assert "No permissions to create new namespace" in sandbox.missing[0]


async def test_a_bubblewrap_that_cannot_be_executed_is_skipped_with_its_error(
    tmp_path: Path, user: User | None
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_bytes(b"garbage")
    fake.chmod(0o755)
    sandbox = await choose_sandbox("prefer", tmp_path, user, bwrap=[str(fake)])
    assert sandbox.level != "bubblewrap"
    assert "could not be tried" in sandbox.missing[0]
    assert "Exec format error" in sandbox.missing[0]


async def test_a_line_with_several_tabs_does_not_end_the_detection(
    tmp_path: Path, user: User | None
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\nprintf 'bwrap:\\ta\\tb\\n'\n{CLAIMING}")
    fake.chmod(0o755)
    sandbox = await choose_sandbox("prefer", tmp_path, user, bwrap=[str(fake)])
    assert sandbox.missing[0].startswith("bubblewrap: a program could write outside")


async def test_escape_tests_succeed_without_confinement(tmp_path: Path, user: User | None) -> None:
    held_by_name = {
        test.name: test.is_blocked
        for test in await run_escape_tests(Sandbox(level="profiles", user=user), tmp_path)
    }
    open_to_it = (
        "write outside",
        "read a secret",
        "reach a socket",
        "reach the network",
        "reach other processes",
    )
    assert [held_by_name[name] for name in open_to_it] == [False] * 5
    assert held_by_name["survive its end"]  # the supervisor sees to that on every rung


async def test_a_policy_with_sandbox_off_gets_no_sandbox(tmp_path: Path) -> None:
    assert (await choose_sandbox("off", tmp_path)).level == "off"


async def test_sandbox_detection_runs_once_and_follows_the_policy(
    tmp_path: Path, user: User | None
) -> None:
    mode = ["prefer"]
    sandbox_detection = SandboxDetection(lambda: mode[0], tmp_path, user)  # type: ignore[arg-type, return-value]
    assert sandbox_detection.current is None
    first = await sandbox_detection.sandbox()
    assert await sandbox_detection.sandbox() is first and sandbox_detection.current is first
    mode[0] = "off"
    assert (await sandbox_detection.sandbox()).level == "off"
    await sandbox_detection.close()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_seccomp_filter_is_a_valid_bpf_program(machine: str) -> None:
    rules = (*syscall_filter.rules_beside_landlock(3), *syscall_filter.HOST_READERS)
    program = syscall_filter.compile_filter(rules, machine=machine)
    assert program is not None and len(program) % 8 == 0
    lines = [program[at : at + 8] for at in range(0, len(program), 8)]
    assert len(lines) < 4096
    for number, line in enumerate(lines):
        if line[0] & 0x07 == 0x05:  # a jump stays within
            assert number + 1 + max(line[2], line[3]) < len(lines)
    assert syscall_filter.compile_filter(rules, machine="riscv64") is None
