"""The error for a file is of bounded length, whatever the file holds."""

from __future__ import annotations

from daemon.errors import MAX_FAULT_LINES, MAX_FAULT_TEXT, ConfigError, Fault


def fault(problem: str = "is wrong", found: str = "") -> Fault:
    return Fault(file="config.toml", key="a.b", found=found, problem=problem, hint="write c")


def test_a_fault_shows_the_start_of_a_long_value() -> None:
    text = str(fault(found="x" * 300_000))
    assert text.startswith("config.toml: a.b: is wrong (found xxx")
    assert text.endswith("x…); write c") and len(text) < MAX_FAULT_TEXT + 100


def test_an_error_shows_its_first_faults_and_counts_the_others() -> None:
    few, many = [fault(f"is wrong ({number})") for number in range(MAX_FAULT_LINES)], [fault()] * 7
    assert str(ConfigError(*few)).splitlines() == [str(item) for item in few]
    error = ConfigError(*few, *many)
    assert str(error).splitlines()[-1] == "and 7 more faults"
    assert len(error.faults) == MAX_FAULT_LINES + 7
