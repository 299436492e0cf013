from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.app.doctor.check import Check
from daemon.app.doctor.checks import CHECKS, ProviderFacts, Survey, judge
from daemon.app.doctor.confinement import Confinement
from daemon.errors import Fault
from daemon.sandbox.detection import ESCAPE_TESTS
from daemon.sandbox.sandbox import EscapeTest, Sandbox, UnusableSandbox, User

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
FAULT = Fault(
    file="heartbeat.toml", key="trigger.cron", found='"61 * * * *"', problem="minute is 0-59"
)
PROVIDER = ProviderFacts(name="claude", kind="claude", model="m-1", used=True, key="a file")

SOUND: dict[str, Any] = {
    "config": Path("/etc/agentd/config.toml"),
    "policy": Path("/etc/agentd/policy.toml"),
    "routines": ("daily-report", "heartbeat"),
    "providers": (PROVIDER,),
    "state": Path("/var/lib/agentd"),
    "state_mode": 0o700,
    "filesystem": "ext4",
    "socket": Path("/run/agentd/agentd.sock"),
    "log": Path("/var/lib/agentd/logs/agentd.jsonl"),
    "log_size": 1_200_000,
    "now": NOW,
}


def rows(**changes: Any) -> dict[str, Check]:
    return {row.name: row for row in judge(Survey(**(SOUND | changes)))}


def test_doctor_finds_no_fault_in_a_valid_installation() -> None:
    rows_by_name = rows()
    assert {row.state for row in rows_by_name.values()} == {"ok"}
    assert not any(row.fix for row in rows_by_name.values())
    assert list(rows_by_name) == [
        "Python", "SQLite", "FTS5", "config", "policy", "routines", "rights", "model claude", "state", (  # noqa: E501
            "disk"
        ), (
            "socket"
        ),
        "log", "time zone", "clock", "limits", "sandbox",
    ]  # fmt: skip


HELD = tuple(EscapeTest(name=name, is_blocked=True) for name in ESCAPE_TESTS)
LEAKS = (*HELD[:-1], EscapeTest(name=ESCAPE_TESTS[-1], is_blocked=False, detail="it lives on"))
NONE = Sandbox(
    level="profiles",
    unusable=(
        UnusableSandbox("bubblewrap", "is not installed", is_installed=False),
        UnusableSandbox("landlock", "the kernel has none, 3 is needed"),
    ),
)
LANDLOCK = Sandbox(
    level="landlock",
    escape_tests=HELD,
    unusable=(UnusableSandbox("bubblewrap", "could not be tried: No permissions"),),
)


@pytest.mark.parametrize(
    ("changes", "name", "state", "expected", "fix"),
    [
        (
            {"sandbox": Sandbox(level="bubblewrap", escape_tests=HELD)},
            "sandbox",
            "ok",
            "7 of 7 ways out are closed",
            "",
        ),
        (
            {"sandbox": Sandbox(level="bubblewrap", escape_tests=HELD), "counts_calls": True},
            "sandbox",
            "ok",
            "closed; memory_mb holds for each call (cgroup v2)",
            "",
        ),
        (
            {"sandbox": Sandbox(level="landlock", escape_tests=HELD), "counts_calls": False},
            "sandbox",
            "ok",
            "closed; memory_mb holds for each process",
            "",
        ),
        (
            {"sandbox": Sandbox(level="bubblewrap", escape_tests=HELD)},
            "  read a secret",
            "ok",
            "PASS",
            "",
        ),
        (
            {"sandbox": Sandbox(level="bubblewrap", escape_tests=LEAKS)},
            "  survive its end",
            "fail",
            "FAIL: it lives on",
            "",
        ),
        (
            {"sandbox": LANDLOCK, "fix": "sysctl a=1"},
            "  bubblewrap",
            "warn",
            "No permissions",
            "sysctl a=1 lets bubble",
        ),
        (
            {"sandbox": NONE},
            "sandbox",
            "warn",
            "only programs that change nothing",
            "apt-get install bubblewrap",
        ),
        (
            {"sandbox": NONE, "mode": "require"},
            "sandbox",
            "fail",
            "no program is run",
            "the kernel has none",
        ),
        (
            {"sandbox": Sandbox(), "mode": "off"},
            "sandbox",
            "warn",
            "the policy wants none",
            'sandbox = "prefer"',
        ),
        (
            {
                "sandbox": replace(LANDLOCK, user=User(uid=60789, gid=60789)),
                "blocked_folder": Path("/root"),
            },
            *("user of tools", "fail", "cannot get through /root", "chmod o+x /root"),
        ),
    ],
)
def test_doctor_names_each_gap_of_the_sandbox_with_its_fix(
    changes: dict[str, Any], name: str, state: str, expected: str, fix: str
) -> None:
    row = rows(confinement=Confinement(**changes))[name]
    assert row.state == state
    assert expected in row.found and fix in row.fix


@pytest.mark.parametrize(
    ("name", "changes", "state", "expected", "fix"),
    [
        ("Python", {"python": (3, 10, 9)}, "fail", "3.10.9", "install Python 3.11"),
        ("SQLite", {"sqlite": (3, 34, 1)}, "fail", "older than 3.35", "3.51.3 or later"),
        ("FTS5", {"fts5": False}, "fail", "missing", "has FTS5"),
        ("config", {"config": None, "config_tried": (Path("/a"), Path("/b"))}, "fail", (
            "none in /a, /b"
        ), (
            "agentd init"
        )),
        ("config", {"config_faults": (FAULT,)}, "fail", "1 fault", (
            "heartbeat.toml: trigger.cron: minute is 0-59"
        )),
        ("policy", {"policy_faults": (FAULT, FAULT)}, "fail", "2 faults", "found \"61"),
        ("routines", {"routine_faults": (FAULT,)}, "fail", (
            "2 can be used: daily-report, heartbeat; 1 fault"
        ), (
            "minute"
        )),
        ("state", {"network": True, "filesystem": "nfs4"}, "fail", "on nfs4", "local folder"),
        ("state", {"state_owner": 0}, "fail", "belongs to uid 0", "chown -R 1000"),
        ("state", {"state_mode": 0o755}, "fail", "mode 0755, ext4", "chmod 700 /var/lib/agentd"),
        ("state", {"state_mode": None}, "ok", "made at the first start", ""),
        ("state", {"uid": 0, "state_owner": 0, "state_mode": 0o711}, "ok", "mode 0711", ""),
        ("state files", {"open_files": (Path("/s/a"), Path("/s/b"))}, "fail", "may read 2", (
            "chmod 600 /s/a /s/b"
        )),
        ("state", {"state": Path("/my s"), "state_mode": 0o755}, "fail", "0755", "700 '/my s'"),
        ("state", {"state": Path("/my s"), "state_owner": 0}, "fail", "uid 0", "1000 '/my s',"),
        ("state files", {"open_files": (Path("/my s/a"),)}, "fail", "may read 1", "'/my s/a'"),
        ("disk", {"free": 200_000_000}, "warn", "0.2 GB free", "make room"),
        ("disk", {"free": 1_000}, "fail", "0.0 GB free", "make room"),
        ("socket", {"socket": Path("/" + "x" * 107)}, "fail", "108 bytes", "may have 107"),
        ("socket", {"socket_found": "daemon", "socket_pid": 42}, "ok", "process 42", ""),
        ("socket", {"socket_found": "dead"}, "ok", "the next one removes it", ""),
        ("socket", {"socket_found": "blocked"}, "fail", "in the way", "move away"),
        ("log", {"log_writable": False}, "fail", "cannot be written", "see who owns"),
        ("log", {"log_size": None}, "ok", "not begun", ""),
        ("time zone", {"zone": "Europe/Berlin", "zone_from_config": True}, "ok", (
            "Europe/Berlin, from config"
        ), ""),
        ("clock", {"newest_write": NOW + timedelta(hours=1)}, "fail", (
            "the journal was written at"
        ), (
            "set the clock"
        )),
        ("clock", {"newest_write": NOW + timedelta(minutes=1)}, "ok", "2026-11-20", ""),
        ("clock", {"synchronised": False}, "warn", "follows no time server", "timedatectl"),
        ("clock", {"synchronised": True}, "ok", "2026-11-20", ""),
    ],
)  # fmt: skip
def test_doctor_names_each_fault_with_its_fix(
    name: str, changes: dict[str, Any], state: str, expected: str, fix: str
) -> None:
    row = rows(**changes)[name]
    assert row.state == state
    assert expected in row.found
    assert fix in row.fix
    assert bool(row.fix) == (state != "ok")


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_sqlite_versions_with_the_wal_reset_bug_are_known(
    version: tuple[int, ...], has_bug: bool
) -> None:
    row = rows(sqlite=version)["SQLite"]
    assert row.state == "ok" and ("WAL-reset bug" in row.found) == has_bug


@pytest.mark.parametrize(
    ("facts", "state", "expected"),
    [
        ({}, "ok", "claude / m-1, key from a file"),
        ({"used": False}, "ok", "not used"),
        ({"kind": "offline", "model": None, "key": "none needed"}, "ok", "no model is asked"),
        ({"key": "none needed", "missing_program": "install it"}, "fail", "program is missing"),
        (
            {"key": "none needed", "missing_program": "install it", "used": False},
            "warn",
            "program is missing",
        ),
        ({"key": "environment"}, "warn", "key from the environment"),
        ({"key": "", "fault": "has no API key"}, "fail", "no key"),
        ({"key": "", "fault": "has no API key", "used": False}, "warn", "no key"),
    ],
)
def test_a_missing_key_is_a_fault_only_where_the_model_is_used(
    facts: dict[str, Any], state: str, expected: str
) -> None:
    fields = {
        "name": "claude",
        "kind": "claude",
        "model": "m-1",
        "used": True,
        "key": "a file",
        **facts,
    }
    row = rows(providers=(ProviderFacts(**fields),))["model claude"]
    assert row.state == state
    assert expected in row.found


def test_every_doctor_check_works_for_any_installation() -> None:
    bare = Survey()
    assert {check.__name__ for check in CHECKS if not list(check(bare))} <= {
        "check_routines",
        "check_providers",
        "check_keys",
        "check_workspace",
    }
