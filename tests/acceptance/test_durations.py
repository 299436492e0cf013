"""pytest reports real durations of tests with a frozen clock."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STANDING_STILL = """
import datetime, threading
from time import monotonic, perf_counter

def test_the_clock_stands_still(time):
    before = datetime.datetime.now(), monotonic(), perf_counter()
    threading.Event().wait(0.05)
    assert (datetime.datetime.now(), monotonic(), perf_counter()) == before
"""


def test_pytest_reports_real_seconds_of_a_test_with_a_frozen_clock(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(STANDING_STILL)
    options = [
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-n",
        "0",
        "--durations=0",
        "-vvv",
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        *options,
        str(tmp_path / "test_it.py"),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    seconds = {
        phase: float(number)
        for number, phase in re.findall(r"(?m)^(-?[\d.]+)s (\w+) ", result.stdout)
    }
    assert seconds.keys() == {"setup", "call", "teardown"}, result.stdout
    assert 0.05 <= seconds["call"] < 3600
    assert 0 <= seconds["setup"] < 3600
    assert 0 <= seconds["teardown"] < 3600
