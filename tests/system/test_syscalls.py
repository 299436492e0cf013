"""The system calls that Python does not offer, and their numbers."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from daemon.system import syscalls

ROOT = Path(__file__).parents[2]
# The kernel's headers, where its development package is installed: linux-libc-dev, kernel-headers.
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}

linux = pytest.mark.skipif(sys.platform != "linux", reason="these are calls of Linux")


@pytest.mark.parametrize("architecture", syscalls.ARCHITECTURES)
def test_system_call_numbers_equal_the_kernel_headers(architecture: str) -> None:
    header = next((path for path in map(Path, HEADERS[architecture]) if path.exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    definitions = re.findall(
        r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE
    )
    numbers = {name: int(number) for name, number in definitions}
    newest = max(numbers.values())
    for name in syscalls.NUMBERS:
        number = syscalls.number_on(architecture, name)
        if number <= newest:  # the headers may be older than the call
            assert (name, numbers.get(name, -1)) == (name, number)


def test_system_calls_by_number_have_the_same_number_on_all_architectures() -> None:
    names = ("openat2", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
    for name in names:
        numbers = {syscalls.number_on(machine, name) for machine in syscalls.ARCHITECTURES}
        assert len(numbers) == 1
        assert min(numbers) >= 424  # from there on the kernel's tables agree


@linux
def test_a_failed_system_call_raises_its_errno() -> None:
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.EINVAL))) as error:
        syscalls.prctl(9_999, 0)
    assert error.value.errno == errno.EINVAL
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.EINVAL))):
        syscalls.timerfd_create(time.CLOCK_REALTIME, -1)
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.EBADF))):
        syscalls.timerfd_settime(-1, 0, 1)


@linux
def test_a_timer_expires() -> None:
    timer = syscalls.timerfd_create(time.CLOCK_REALTIME, os.O_CLOEXEC)
    try:
        syscalls.timerfd_settime(timer, syscalls.TFD_TIMER_ABSTIME, 1)  # 1970: at once
        assert int.from_bytes(os.read(timer, 8), sys.byteorder) >= 1
    finally:
        os.close(timer)


def test_the_supervisor_imports_few_modules() -> None:
    """Each command of a tool waits for these imports."""
    code = """
import sys
before = set(sys.modules)
sys.path.append(sys.argv[1])
from daemon.sandbox import confine
print(*sorted(name for name in sys.modules if name not in before))
"""
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    modules = set(output.split())
    assert {name for name in modules if name.startswith("daemon")} == {
        "daemon",
        "daemon.sandbox",
        "daemon.sandbox.confine",
        "daemon.system",
        "daemon.system.syscalls",
    }
    assert modules.isdisjoint(["typing", "pathlib", "contextlib", "json", "dataclasses"])
