"""`agentd validate`: one command, every problem, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.app.commands.init import init
from daemon.app.commands.validate import TOOLS, check_all, examine
from daemon.app.installation import Installation
from daemon.app.wiring import open_app
from daemon.definitions.config.loading import load_config
from daemon.telemetry.redaction import Secrets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the shipped files."""
    init(tmp_path)
    return tmp_path


def test_every_problem_of_every_file_is_printed_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.toml").write_text('provider = "offlin"\n[log]\nlevel = "loud"\n')
    (folder / "policy.toml").write_text("versoin = 1\n")
    (folder / "routines" / "broken.toml").write_text("enabled = maybe\n")
    (folder / "routines" / "typo.toml").write_text('[run]\nprompt = "x"\nprovder = "offline"\n')
    assert check_all(folder / "config.toml", env={}) == 1
    *problems, summary = capsys.readouterr().out.splitlines()
    for part in (
        "config.toml: provider",
        "config.toml: log.level",
        "policy.toml",
        "broken.toml: line 1",
        "provder",
    ):
        assert any(part in problem for problem in problems), part
    assert summary == f"{len(problems)} problems in 4 files"


def test_with_no_problem_it_says_what_was_looked_at(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_all(folder / "config.toml", env={}) == 0
    assert capsys.readouterr().out == (
        f"no problems in {folder}/config.toml, {folder}/policy.toml,"
        " 3 routines (daily-report, heartbeat, inbox-watch)\n"
    )


def test_a_gate_whose_command_the_policy_forbids_is_told_before_it_fails(folder: Path) -> None:
    for name, command in (
        ("may", '["test", "-s", "inbox/todo"]'),
        ("may-not", '["rm", "-rf", "inbox"]'),
    ):
        (folder / f"routines/{name}.toml").write_text(
            f'[run]\nprompt = "x"\n[gate]\ncommand = {command}\n'
        )
    found = examine(folder / "config.toml", env={}, state=folder / "state", tools=TOOLS)
    assert found.faults == []
    (note,) = found.notes
    assert note.startswith(
        f"{folder}/routines/may-not.toml: gate.command: the policy does not allow it: "
    )


def test_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "routines" / "typo.toml").write_text('[run]\nprompt = "x"\nprovider = "claud"\n')
    assert check_all(folder / "config.toml", json=True, env={}) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["faults"] == [
        {
            "file": str(folder / "routines/typo.toml"),
            "key": "run.provider",
            "found": '"claud"',
            "problem": "no such provider in config.toml",
            "hint": "known: offline",
        }
    ]
    assert told["summary"] == "1 problem in 1 file"


def test_a_broken_config_does_not_hide_where_the_others_lie(folder: Path) -> None:
    (folder / "routines").rename(folder / "mine")
    (folder / "mine/typo.toml").write_text(
        '[run]\nprompt = "x"\nprovider = "a"\nfallback = ["b"]\n'
    )
    (folder / "config.toml").write_text('routines = "mine"\nx = 1\n[providers.a]\nkind = "clod"\n')
    found = examine(folder / "config.toml", env={}, state=folder)
    assert [fault.key for fault in found.faults] == ["providers.a.kind", "x", "run.fallback[0]"]


def test_a_key_that_is_not_here_is_a_note_as_the_unit_may_have_it(folder: Path) -> None:
    text = 'provider = "claude"\n[providers.claude]\nkind = "claude"\nmodel = "m"\n[providers.unused]\n'  # noqa: E501
    (folder / "config.toml").write_text(text + 'kind = "openai"\nmodel = "m"\n')
    found = examine(folder / "config.toml", env={}, state=folder)
    assert found.faults == []
    (note,) = found.notes
    assert "providers.claude: has no API key" in note


def test_a_secret_of_webhooks_that_cannot_be_used_is_told(folder: Path) -> None:
    (folder / "config.toml").write_text('[hooks]\nsecret_file = "hooks.secret"\n')
    (fault,) = examine(folder / "config.toml", env={}, state=folder).faults
    assert (fault.key, fault.problem) == ("hooks.secret_file", "no such file")


def test_a_tool_that_does_not_exist_is_told_when_the_tools_are_known(folder: Path) -> None:
    found = examine(
        folder / "config.toml",
        env={},
        state=folder,
        tools={"sysinf", "git", "file_list", "file_read"},
    )
    assert {fault.key for fault in found.faults} == {"gather[0].tool"}


def test_no_config_anywhere_is_told_with_the_places_that_were_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check_all(None, env={}) == 1
    told = capsys.readouterr().out
    assert "config.toml: not found in " in told
    assert "/etc/agentd/config.toml" in told
    assert "`agentd init` writes one" in told


def test_what_a_provider_cannot_use_is_told_before_it_is_asked(folder: Path) -> None:
    (folder / "config.toml").write_text(
        '[providers.a]\nkind = "claude"\nmodel = "m"\ncapabilities = { tool = true }\n'
        '[providers.b]\nkind = "scripted"\nreplies = [{ txt = "x" }]\n'
        '[providers.c]\nkind = "open_source"\nmodel = "m"\nbase_url = '
        '"http://127.0.0.1:1/v1"\ntimeout = "9s"\n'
    )
    found = examine(folder / "config.toml", env={}, state=folder)
    assert [fault.key for fault in found.faults] == [
        "providers.a.capabilities.tool",
        "providers.b.replies",
    ]
    assert {fault.file for fault in found.faults} == {str(folder / "config.toml")}


async def test_the_tools_that_validate_knows_are_those_of_a_real_daemon(folder: Path) -> None:
    place = Installation(
        config=load_config(folder / "config.toml"),
        state=folder / "state",
        socket=folder / "agentd.sock",
        log_file=folder / "agentd.jsonl",
        console=False,
        env={},
        secrets=Secrets(),
    )
    async with open_app(place) as app:
        assert set(app.tools.registry.names()) == TOOLS


def test_a_readable_folder_that_is_not_named_in_full_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "policy.toml").write_text('version = 1\n[paths]\nread = ["etc"]\n')
    assert check_all(folder / "config.toml", env={}) == 1
    assert 'paths.read[0]: must begin with / or ~/ (found "etc")' in capsys.readouterr().out
