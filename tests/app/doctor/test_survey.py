from __future__ import annotations

import argparse
import json
import os
import socket
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.app.doctor.command import main
from daemon.app.doctor.survey import survey
from tests.api.harness import open_harness

CONFIG = """
provider = "claude"
timezone = "Europe/Berlin"
[providers.claude]
kind = "claude"
model = "m-1"
base_url = "http://127.0.0.1:9"
api_key_env = "THE_KEY"
[providers.spare]
kind = "openai"
model = "m-2"
"""

ROUTINE = """
[run]
prompt = "hello"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines" / "good.toml").write_text(ROUTINE)
    (tmp_path / "routines" / "bad.toml").write_text("descrption = 1")
    return tmp_path


def test_a_first_look_at_nothing_at_all(tmp_path: Path) -> None:
    found = survey(None, tmp_path / "state" / "deep", tmp_path / "agentd.sock", {})
    assert found.config is None
    assert found.state_mode is None
    assert found.socket_found == "nothing"
    assert found.sqlite == sqlite3.sqlite_version_info
    assert found.python == sys.version_info[:3]
    assert found.fts5
    assert not list(tmp_path.iterdir())  # looking makes nothing


def test_definitions_are_read_as_far_as_they_can_be(home: Path) -> None:
    found = survey(
        home / "config.toml", home / "state", home / "agentd.sock", {"THE_KEY": "k" * 20}
    )
    assert found.config_faults == ()
    assert found.routines == ("good",)
    assert "descrption" in [fault.key for fault in found.routine_faults]
    assert (found.zone, found.zone_from_config) == ("Europe/Berlin", True)
    providers = {facts.name: facts for facts in found.providers}
    assert (providers["claude"].used, providers["claude"].key) == (True, "environment")
    assert (providers["spare"].used, "has no API key" in providers["spare"].fault) == (False, True)


def test_a_config_that_cannot_be_read_is_a_finding(home: Path) -> None:
    (home / "config.toml").write_text("provider = ")
    found = survey(home / "config.toml", home / "state", home / "agentd.sock", {})
    assert len(found.config_faults) == 1
    assert found.policy is None


def test_the_state_folder_is_looked_at(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    state.chmod(0o755)
    (state / "agentd.db").write_text("x")
    (state / "agentd.db").chmod(0o644)
    (state / "logs" / "agentd.jsonl").write_text("x" * 7)
    (state / "logs" / "agentd.jsonl").chmod(0o600)
    os.utime(state / "agentd.db", (4e9, 4e9))
    found = survey(None, state, tmp_path / "agentd.sock", {})
    assert found.state_mode == 0o755
    assert found.open_files == (state / "agentd.db",)
    assert found.log_size == 7
    assert found.newest_write is not None
    assert found.newest_write.year == 2096


def _nothing(_path: Path) -> str:
    return "nothing"


def _file(path: Path) -> str:
    path.write_text("")
    return "blocked"


def _dead(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(os.fspath(path))
    return "dead"


@pytest.mark.parametrize("make", [_nothing, _file, _dead])
def test_whatever_lies_at_the_socket_is_told_apart(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    path = tmp_path / "agentd.sock"
    expected = make(path)
    assert survey(None, tmp_path, path, {}).socket_found == expected


async def test_a_living_daemon_is_named_by_its_process(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        found = survey(None, tmp_path, harness.path, {})
    assert (found.socket_found, found.socket_pid) == ("daemon", os.getpid())


def test_without_a_daemon_the_table_is_printed_and_the_exit_code_says_whether_all_is_well(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(config=home / "config.toml", state=home / "state", json=False)
    assert main(options) == 1
    text = capsys.readouterr().out
    assert "✗  routines" in text
    assert "descrption" in text
    assert "things to mend" in text or "1 thing to mend" in text
    options.json = True
    assert main(options) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert {check["state"] for check in told["checks"]} >= {"ok", "fail"}
