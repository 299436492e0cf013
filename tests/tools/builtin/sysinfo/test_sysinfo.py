"""The tool sysinfo as a whole: every part on any machine."""

import os
from pathlib import Path

import pytest

from daemon.providers.facts import lay_out
from daemon.tools.builtin.sysinfo import Sysinfo, register, sysinfo
from daemon.tools.builtin.sysinfo.machine import Files
from daemon.tools.builtin.sysinfo.programs import FactUnavailable, run_program
from daemon.tools.builtin.sysinfo.words import format_share, format_size, shorten
from daemon.tools.registry import FunctionRegistry
from tests.tools.builtin.sysinfo.program import NOW, Program


@pytest.mark.parametrize(
    ("count", "expected_text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (999_999, "1.00 MB"),
        (25_276_502_016, "25.3 GB"),
        (251_998_240_768, "252 GB"),
        (1_862_000_000_000, "1.86 TB"),
    ],
)
def test_a_size_has_three_digits(count, expected_text):
    assert format_size(count) == expected_text


def test_a_full_disk_never_reads_as_almost_full():
    assert format_share(995, 1000) == "100 %"
    assert format_share(0, 1000) == "0 %"
    assert format_share(0, 0) == "0 %"


def test_a_message_has_no_terminal_sequences():
    assert shorten("a\x1b[31mred\nb\tc", 80) == "a [31mred b c"
    assert shorten("x" * 50, 10) == "x" * 9 + "…"


async def test_a_hanging_program_is_killed_with_its_children_and_named(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(FactUnavailable, match="sh gave no answer within 1 s"):
        await run_program(["sh", "-c", f"exec >{pipe}; sleep 60 & sleep 60"], 0.6)
    os.set_blocking(end, True)
    assert os.read(end, 1) == b""  # comes only when the last process that could write is gone
    os.close(end)


async def test_a_missing_program_is_named():
    with pytest.raises(FactUnavailable, match="no-such-program is not installed"):
        await run_program(["no-such-program"], 1)


async def test_a_program_does_not_get_the_environment_of_the_daemon(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    answer = await run_program(["env"], 5)
    assert "canary" not in answer.text
    assert "LC_ALL=C.UTF-8" in answer.text


async def test_a_machine_without_files_still_has_every_part(tmp_path):
    facts = await Sysinfo(root=tmp_path, run_program=Program(), now=lambda: NOW).collect()
    assert list(facts) == ["host", "load", "memory", "disks", "units", "errors", "updates"]
    assert facts["units"] == "systemd is not running here"


async def test_only_requested_parts_are_collected(tmp_path):
    program = Program()
    facts = await Sysinfo(root=tmp_path, run_program=program, now=lambda: NOW).collect(
        ["memory", "load"]
    )
    assert list(facts) == ["load", "memory"]
    assert not program.calls


async def test_sysinfo_describes_this_machine():
    facts = await sysinfo()
    text = lay_out(facts)
    assert facts["host"]["kernel"].startswith(os.uname().sysname)
    assert facts["load"]["cores"] == os.cpu_count()
    assert all(isinstance(facts[part], list | dict) or len(facts[part]) > 10 for part in facts)
    assert "### Disks" in text
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    if "/" in points:  # a folder that was made the root (chroot) is no mount point
        assert "/" in {row["mount"] for row in facts["disks"]}
        assert "| / | " in text


def test_sysinfo_is_read_only_and_lists_its_parts():
    registry = FunctionRegistry()
    register(registry)
    [schema] = registry.list_functions(["sysinfo"])
    assert schema["parameters"]["properties"]["parts"]
    assert "updates" in str(schema["parameters"])
    definition = registry.get_function("sysinfo")
    assert definition.read_only
    assert definition.changes is not None


def test_the_real_root_is_the_default():
    assert Files().root == Path("/")
