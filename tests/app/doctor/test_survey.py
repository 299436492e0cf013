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

from daemon.app.commands.validate import TOOLS, examine
from daemon.app.doctor.checks import judge
from daemon.app.doctor.command import main
from daemon.app.doctor.survey import survey
from daemon.sandbox.call_groups import is_memory_counted
from daemon.store.lock import lock_state
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


def test_a_survey_of_an_empty_folder_finds_and_creates_nothing(tmp_path: Path) -> None:
    facts = survey(None, tmp_path / "state" / "deep", tmp_path / "agentd.sock", {})
    assert facts.config is None
    assert facts.state_mode is None
    assert facts.socket_found == "nothing"
    assert facts.sqlite == sqlite3.sqlite_version_info
    assert facts.python == sys.version_info[:3]
    assert facts.fts5
    assert not list(tmp_path.iterdir())  # looking makes nothing


def test_a_policy_that_names_a_tool_of_ones_own_has_no_fault(home: Path) -> None:
    (home / "config.toml").write_text('[tools]\nfiles = ["mine.py"]\n')
    (home / "tools").mkdir()
    (home / "tools" / "mine.py").write_text("def nap() -> str:\n    return 'rested'\n")
    (home / "policy.toml").write_text('version = 1\n[[rule]]\ntool = "nap"\neffect = "allow"\n')
    facts = survey(home / "config.toml", home / "state", home / "agentd.sock", {})
    assert facts.policy_faults == ()


def test_doctor_names_each_missing_key_and_a_folder_that_agents_cannot_work_in(home: Path) -> None:
    (home / "a-file").write_text("")
    (home / "config.toml").write_text(
        'workspace = "a-file"\n[search]\nkind = "tavily"\napi_key_env = "SEARCH_KEY"\n'
        '[mcp.calendar]\nurl = "http://127.0.0.1:9/mcp"\napi_key_env = "CALENDAR_KEY"\n'
        '[memory]\nembedder = "openai_compatible"\nmodel = "e"\n'
        'base_url = "http://127.0.0.1:9"\napi_key_env = "MEMORY_KEY"\n'
    )
    config, state = home / "config.toml", home / "state"
    facts = survey(config, state, home / "agentd.sock", {})
    assert facts.config_faults == ()
    rows = {row.name: row for row in judge(facts)}
    assert {rows[name].state for name in ("search", "mcp.calendar", "memory", "workspace")} == {
        "fail"
    }
    assert "search.api_key_env" in rows["search"].fix
    assert "mcp.calendar.api_key_env" in rows["mcp.calendar"].fix
    assert "memory.api_key_env" in rows["memory"].fix
    assert "a-file is no folder" in rows["workspace"].fix
    (home / "a-file").unlink()
    env = {"SEARCH_KEY": "s" * 20, "CALENDAR_KEY": "c" * 20, "MEMORY_KEY": "m" * 20}
    rows = {row.name: row for row in judge(survey(config, state, home / "agentd.sock", env))}
    assert rows.keys().isdisjoint({"search", "mcp.calendar", "memory", "workspace"})


def test_a_provider_of_questions_is_in_use(home: Path) -> None:
    (home / "config.toml").write_text(f'{CONFIG}[ask]\nprovider = "spare"\n')
    env = {"THE_KEY": "k" * 20}
    facts = survey(home / "config.toml", home / "state", home / "agentd.sock", env)
    assert {provider.name: provider.used for provider in facts.providers}["spare"]
    checkup = examine(home / "config.toml", env=env, state=home / "state", tools=TOOLS)
    assert any("providers.spare" in note and "has no API key" in note for note in checkup.notes)


def test_a_survey_reads_definitions_despite_faults(home: Path) -> None:
    survey_facts = survey(
        home / "config.toml", home / "state", home / "agentd.sock", {"THE_KEY": "k" * 20}
    )
    assert survey_facts.config_faults == ()
    assert survey_facts.routines == ("good",)
    assert "descrption" in [fault.key for fault in survey_facts.routine_faults]
    assert (survey_facts.zone, survey_facts.zone_from_config) == ("Europe/Berlin", True)
    providers = {facts.name: facts for facts in survey_facts.providers}
    assert (providers["claude"].used, providers["claude"].key) == (True, "environment")
    assert (providers["spare"].used, "has no API key" in providers["spare"].fault) == (False, True)


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        ("config.toml", "provider = ", "config_faults"),
        ("config.toml", '[targets.x]\nkind = "carrier pigeon"\n', "config_faults"),
        ("policy.toml", 'version = 1\n[[rule]]\ntool = "nap"\neffect = "allow"\n', "policy_faults"),
        (
            "routines/good.toml",
            f'{ROUTINE}[[gather]]\nname = "a"\ntool = "shell"\nargs = {{command = "ls"}}\n',
            "routine_faults",
        ),
    ],
)
def test_doctor_finds_the_faults_of_definitions_that_validate_finds(
    home: Path, file: str, text: str, kind: str
) -> None:
    (home / "policy.toml").write_text("version = 1\n")
    (home / file).write_text(text)
    env, state = {"THE_KEY": "k" * 20}, home / "state"
    facts = survey(home / "config.toml", state, home / "agentd.sock", env)
    checkup = examine(home / "config.toml", env=env, state=state, tools=TOOLS)
    faults = [*facts.config_faults, *facts.policy_faults, *facts.routine_faults]
    assert sorted(map(str, faults)) == sorted(map(str, checkup.faults))
    assert any(Path(fault.file).name == Path(file).name for fault in getattr(facts, kind))


def test_an_unreadable_config_is_a_fault_of_the_survey(home: Path) -> None:
    (home / "config.toml").write_text("provider = ")
    facts = survey(home / "config.toml", home / "state", home / "agentd.sock", {})
    assert len(facts.config_faults) == 1
    assert facts.policy is None


def test_a_survey_examines_the_state_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    state.chmod(0o755)
    (state / "agentd.db").write_text("x")
    (state / "agentd.db").chmod(0o644)
    (state / "logs" / "agentd.jsonl").write_text("x" * 7)
    (state / "logs" / "agentd.jsonl").chmod(0o600)
    os.utime(state / "agentd.db", (4e9, 4e9))
    facts = survey(None, state, tmp_path / "agentd.sock", {})
    assert facts.state_mode == 0o755
    assert facts.open_files == (state / "agentd.db",)
    assert facts.log_size == 7
    assert facts.newest_write is not None
    assert facts.newest_write.year == 2096


def _make_nothing(_path: Path) -> str:
    return "nothing"


def _file(path: Path) -> str:
    path.write_text("")
    return "blocked"


def _dead(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as dead_socket:
        dead_socket.bind(os.fspath(path))
    return "dead"


@pytest.mark.parametrize("make", [_make_nothing, _file, _dead])
def test_a_survey_recognizes_each_kind_of_file_at_the_socket(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    path = tmp_path / "agentd.sock"
    expected = make(path)
    assert survey(None, tmp_path, path, {}).socket_found == expected


async def test_a_survey_names_the_process_of_a_running_daemon(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        facts = survey(None, tmp_path, harness.path, {})
    assert (facts.socket_found, facts.socket_pid) == ("daemon", os.getpid())


def test_a_survey_tells_how_a_running_daemon_counts_memory(tmp_path: Path) -> None:
    def counts_calls() -> bool | None:
        return survey(None, tmp_path, tmp_path / "agentd.sock", {}).confinement.counts_calls

    assert counts_calls() is None, "no daemon runs"
    with lock_state(tmp_path) as lock:
        assert counts_calls() is is_memory_counted(os.getpid())
        lock.path.write_text("4194305\n")  # more than any id of a process
        assert counts_calls() is None, "it was killed"


def test_doctor_without_a_daemon_prints_its_table_and_exits_with_the_verdict(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(
        config=home / "config.toml", state=home / "state", socket=None, json=False, deep=False
    )
    assert main(options) == 1
    text = capsys.readouterr().out
    assert "✗  routines" in text
    assert "descrption" in text
    assert "things to mend" in text or "1 thing to mend" in text
    options.json = True
    assert main(options) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert {check["state"] for check in answer["checks"]} >= {"ok", "fail"}
