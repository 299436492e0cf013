"""Which sandbox there is, is found out by trying to break out; a rung that does not hold is left
for the next.
"""

import os
from pathlib import Path

import pytest

from daemon.sandbox import confine
from daemon.sandbox.current import SandboxDetection
from daemon.sandbox.detection import PROBES, choose, examine
from daemon.sandbox.sandbox import Sandbox, User
from daemon.system import syscalls
from tests.sandbox.conftest import NOT_THERE

# It leaves the limit on processes out as well: where nothing is confined, whatever else the user
# runs is counted.
CLAIMING = 'while [ "$1" != -- ]; do shift; done\nshift\ncase "$1" in */prlimit) shift 2;; esac\nexec "$@"\n'  # noqa: E501
LEVELS = ("bubblewrap", "landlock", "profiles")


async def test_the_best_rung_that_holds_is_taken_and_says_why_none_better(
    tmp_path: Path, user: User | None
) -> None:
    found = await choose("prefer", tmp_path, user)
    assert len(found.missing) == LEVELS.index(found.level)
    assert [probe.name for probe in found.probes if probe.held] == (
        list(PROBES) if found.confines else []
    )
    assert list(tmp_path.iterdir()) == []


async def test_what_a_killed_trial_left_is_cleared_away_by_the_next(
    tmp_path: Path, user: User | None
) -> None:
    for name in ("trial-old", "trial-now"):
        (tmp_path / name / "outside").mkdir(parents=True)
    os.utime(tmp_path / "trial-old", (1, 1))
    await choose("prefer", tmp_path, user)
    assert [path.name for path in tmp_path.iterdir()] == ["trial-now"]


async def test_without_bubblewrap_the_next_rung_is_taken(tmp_path: Path, user: User | None) -> None:
    found = await choose("prefer", tmp_path, user, bwrap=NOT_THERE)
    assert found.missing[0] == "bubblewrap: is not installed"
    expected = "landlock" if syscalls.landlock_version() >= confine.OLDEST_LANDLOCK else "profiles"
    assert found.level == expected


async def test_a_program_that_only_claims_to_confine_is_found_out(
    tmp_path: Path, user: User | None
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{CLAIMING}")
    fake.chmod(0o755)
    found = await choose("prefer", tmp_path, user, bwrap=[str(fake)])
    assert found.level != "bubblewrap"
    assert found.missing[0].startswith("bubblewrap: a program could write outside")


async def test_a_rung_that_only_lacked_room_for_a_process_is_tried_again(
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
    found = await choose("prefer", tmp_path, user, bwrap=[str(fake)])
    assert found.missing[0].startswith("bubblewrap: a program could write outside")


async def test_a_rung_that_cannot_even_start_is_left(tmp_path: Path, user: User | None) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    found = await choose("prefer", tmp_path, user, bwrap=[str(fake)])
    assert "No permissions to create new namespace" in found.missing[0]


async def test_the_intruder_gets_at_everything_where_nothing_confines_it(
    tmp_path: Path, user: User | None
) -> None:
    found = {
        probe.name: probe.held
        for probe in await examine(Sandbox(level="profiles", user=user), tmp_path)
    }
    open_to_it = (
        "write outside",
        "read a secret",
        "reach a socket",
        "reach the network",
        "reach other processes",
    )
    assert [found[name] for name in open_to_it] == [False] * 5
    assert found["survive its end"]  # the supervisor sees to that on every rung


async def test_a_policy_that_wants_none_gets_none(tmp_path: Path) -> None:
    assert (await choose("off", tmp_path)).level == "off"


async def test_a_ladder_is_climbed_once_and_follows_the_policy(
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
def test_a_filter_is_a_program_that_the_kernel_would_take(machine: str) -> None:
    program = confine.filter_program(
        (*confine.NEVER, *confine.METADATA, *confine.SIGNALS),
        idle=confine.TIMES,
        families=(1,),
        machine=machine,
    )
    assert program is not None and len(program) % 8 == 0
    lines = [program[at : at + 8] for at in range(0, len(program), 8)]
    assert len(lines) < 4096
    for number, line in enumerate(lines):
        if line[0] & 0x07 == 0x05:  # a jump stays within
            assert number + 1 + max(line[2], line[3]) < len(lines)
    assert confine.filter_program(machine="riscv64") is None
