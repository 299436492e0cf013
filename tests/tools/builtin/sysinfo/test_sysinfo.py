"""The tool as a whole: every part on any machine, quick, and without our environment."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.providers.facts import lay_out
from daemon.tools.builtin.sysinfo import Sysinfo, register, sysinfo
from daemon.tools.builtin.sysinfo.machine import Files
from daemon.tools.builtin.sysinfo.programs import NotKnown, ask
from daemon.tools.builtin.sysinfo.words import share, shorten, size, span
from daemon.tools.registry import FunctionRegistry
from tests.tools.builtin.sysinfo.program import NOW, Program


@pytest.mark.parametrize(
    ("count", "said"),
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
def test_a_size_has_three_digits(count, said):
    assert size(count) == said


def test_a_full_disk_never_reads_as_almost_full():
    assert share(995, 1000) == "100 %"
    assert share(0, 1000) == "0 %"
    assert share(0, 0) == "0 %"


@pytest.mark.parametrize(
    ("duration", "said"),
    [
        (timedelta(seconds=40), "40 s"),
        (timedelta(minutes=12, seconds=59), "12 min"),
        (timedelta(hours=3, minutes=5), "3 h 5 min"),
        (timedelta(hours=24), "24 h"),
        (timedelta(days=12, hours=7), "12 days"),
        (timedelta(seconds=-5), "0 s"),
    ],
)
def test_a_span_is_no_more_exact_than_a_person_would_be(duration, said):
    assert span(duration) == said


def test_a_message_cannot_carry_terminal_commands():
    assert shorten("a\x1b[31mred\nb\tc", 80) == "a [31mred b c"
    assert shorten("x" * 50, 10) == "x" * 9 + "…"


async def test_a_program_that_hangs_is_stopped_with_its_children_and_named(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(NotKnown, match="sh gave no answer within 1 s"):
        await ask(["sh", "-c", f"exec >{pipe}; sleep 60 & sleep 60"], 0.6)
    os.set_blocking(end, True)
    assert os.read(end, 1) == b""  # comes only when the last process that could write is gone
    os.close(end)


async def test_a_program_that_is_not_there_is_named():
    with pytest.raises(NotKnown, match="no-such-program is not installed"):
        await ask(["no-such-program"], 1)


async def test_a_program_gets_nothing_of_our_environment(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    said = await ask(["env"], 5)
    assert "canary" not in said.text
    assert "LC_ALL=C.UTF-8" in said.text


async def test_an_empty_machine_still_gives_every_part(tmp_path):
    found = await Sysinfo(root=tmp_path, ask=Program(), now=lambda: NOW).facts()
    assert list(found) == ["host", "load", "memory", "disks", "units", "errors", "updates"]
    assert found["units"] == "systemd is not running here"


async def test_only_the_wanted_parts_are_collected(tmp_path):
    program = Program()
    found = await Sysinfo(root=tmp_path, ask=program, now=lambda: NOW).facts(["memory", "load"])
    assert list(found) == ["load", "memory"]
    assert not program.calls


async def test_this_machine_has_a_report_worth_reading():
    found = await sysinfo()
    text = lay_out(found)
    assert found["host"]["kernel"].startswith(os.uname().sysname)
    assert found["load"]["cores"] == os.cpu_count()
    assert all(isinstance(found[part], list | dict) or len(found[part]) > 10 for part in found)
    assert "### Disks" in text
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    if "/" in points:  # a folder that was made the root (chroot) is no mount point
        assert "/" in {row["mount"] for row in found["disks"]}
        assert "| / | " in text


def test_the_tool_is_offered_as_read_only_with_its_parts_named():
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
