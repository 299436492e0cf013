"""Whoever writes the policy can ask what it says, what another would have said, and what would have
been enough.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.app.main import main
from daemon.models import Json, Run, Step, StepKind
from daemon.policy.policy import Policy
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal

POLICY = """
version = 1
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
argv = [["df", "ls", "cat", "git"]]
match = ["df -h"]
[[rule]]
tool = "shell"
effect = "ask"
argv = ["make", "test"]
[[rule]]
tool = "file_write"
effect = "allow"
[[rule]]
tool = "*"
effect = "deny"
paths = [".env"]
reason = "secrets"
"""


class PolicyHarness:
    """A config, a policy, a routine and a journal, without a daemon."""

    def __init__(self, folder: Path, output: pytest.CaptureFixture[str]) -> None:
        self.folder, self.state, self._output = folder, folder / "state", output
        (folder / "routines").mkdir()
        self.state.mkdir(mode=0o700)
        (self.state / "workspace").mkdir()
        (folder / "config.toml").write_text("")
        (folder / "policy.toml").write_text(POLICY)
        prompt = 'description = "x"\n[trigger]\nevery = "1h"\n[run]\nprompt = "go"\n'
        (folder / "routines" / "daily.toml").write_text(prompt)

    def policy(self, *words: str) -> tuple[int, str, str]:
        """Run `agentd policy` as it would run in this folder; return its exit code and outputs."""
        self._output.readouterr()
        code = main(["policy", *words])
        return code, *self._output.readouterr()

    def record(self, *calls: tuple[str, Json, str]) -> None:
        """Journal one run of `daily` that made these calls, each with its verdict."""
        asyncio.run(self._record(calls))

    async def _record(self, calls: tuple[tuple[str, Json, str], ...]) -> None:
        db = await Database.open(self.state / "agentd.db")
        try:
            journal = Journal(db, clock=lambda: datetime.now(UTC))
            slot = datetime.now(UTC)
            (queued,) = await journal.slots.open(
                [Claim(routine="daily", definition="{}", trigger="manual", slot=slot, goal="go")]
            )
            assert isinstance(queued, Run)
            run = await journal.runs.claim(queued.id, owner="test")
            assert run is not None
            await journal.runs.append(
                run, *(_call(number, *call) for number, call in enumerate(calls))
            )
        finally:
            await db.close()


def _call(number: int, tool: str, arguments: Json, effect: str) -> Step:
    body = {"tool": tool, "arguments": arguments, "verdict": {"effect": effect, "rule": "rule 1"}}
    return Step(kind=StepKind.CALL, iteration=1, call_id=f"c{number}", body=body)


@pytest.fixture
def harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> PolicyHarness:
    """The current folder and the environment are those of somebody who works in it."""
    harness = PolicyHarness(tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE_DIRECTORY", str(harness.state))
    monkeypatch.setenv("HOME", str(tmp_path))
    return harness


def test_a_sound_policy_is_said_to_be_sound_with_what_deserves_a_second_look(
    harness: PolicyHarness,
) -> None:
    code, out, _ = harness.policy("check")
    assert (code, "4 rules, no fault; every example is as it says" in out) == (0, True)
    (harness.folder / "policy.toml").write_text(POLICY + "[routine.dayly]\ntools = []\n")
    assert 'there is no routine of that name; did you mean "daily"?' in harness.policy("check")[1]


def test_an_unsound_one_is_refused_with_its_place(harness: PolicyHarness) -> None:
    (harness.folder / "bad.toml").write_text(
        POLICY.replace('match = ["df -h"]', 'match = ["df -h | sort -o x"]')
    )
    code, _, err = harness.policy("check", "bad.toml")
    assert code == 78
    assert "rule[0].match" in err


def test_a_call_is_explained_part_by_part_and_the_exit_code_says_it_too(
    harness: PolicyHarness,
) -> None:
    code, out, _ = harness.policy("explain", "--routine", "daily", "--", "git", "log", "-5")
    assert (code, out.splitlines()[0]) == (0, "allowed: rule 1 (shell: df…)")
    code, out, _ = harness.policy("explain", "ls && cat .env")
    assert code == 5
    assert out.startswith("denied: rule 4 (*: .env): secrets")
    assert "deny: rule 4 (*: .env)" in out and "allow: rule 1 (shell: df…)" in out
    assert harness.policy("explain", "--", "make", "test", "-k")[0] == 8
    assert harness.policy("explain", "--tool", "file_write", "--", "x.md")[0] == 0
    assert harness.policy("explain", "--tool", "file_write", "--tainted", "--", "x.md")[0] == 8
    told = json.loads(harness.policy("explain", "--json", "--", "rm", "x")[1])
    assert (told["effect"], told["rule"]) == ("deny", "default")


def test_a_file_of_calls_is_held_against_what_it_expects(harness: PolicyHarness) -> None:
    cases: list[dict[str, Any]] = [
        {"about": "these are examples"},
        {"tool": "shell", "command": "df -h", "expect": "allow"},
        {"cmd": "rm -rf .", "expect": "deny"},
        {"cmd": "make test", "expect": "ask"},
        {"tool": "file_write", "path": "x", "tainted": True, "expect": "deny"},
    ]
    file = harness.folder / "calls.jsonl"
    file.write_text("\n".join(map(json.dumps, cases)))
    assert harness.policy("test", "calls.jsonl")[:2] == (0, "4 of 4 as expected\n")
    file.write_text(json.dumps({"cmd": "df -h", "expect": "deny"}))
    code, out, _ = harness.policy("test", "calls.jsonl")
    assert (code, "expected deny, but allow: rule 1" in out) == (1, True)
    file.write_text('{"cmd": "df", "expect": "maybe"}\n[]\n')
    assert (
        harness.policy("test", "calls.jsonl")[2].count("is not a call with what is expected of it")
        == 2
    )


def test_another_policy_is_tried_on_the_calls_that_were_made(harness: PolicyHarness) -> None:
    harness.record(
        ("shell", {"command": "df -h"}, "allow"),
        ("shell", {"command": "df -h"}, "allow"),
        ("shell", {"command": "cat notes.md"}, "allow"),
        ("shell", {"command": "uptime"}, "deny"),
    )
    (harness.folder / "new.toml").write_text(
        POLICY.replace('"df", "ls"', '"uptime", "ls"').replace('["df -h"]', "[]")
    )
    code, out, _ = harness.policy("backtest", "new.toml", "--since", "1d")
    assert code == 0
    assert (
        "2 would now be denied:\n  2 x shell df -h  (daily; was: allow)\n      default: no rule"
        in out
    )
    assert "1 would now be allowed:\n  1 x shell uptime  (daily; was: deny)" in out
    assert out.endswith("1 of 4 calls in 1 run since 1d: no difference\n")


def test_the_narrowest_section_is_suggested_and_all_that_ran_fits_into_it(
    harness: PolicyHarness,
) -> None:
    made = [
        ("shell", {"command": "df -h && git log -3 | cat"}, "allow"),
        ("file_write", {"path": "reports/a/today.md", "content": "x"}, "allow"),
        ("shell", {"command": "rm x"}, "deny"),
    ]
    harness.record(*made)
    code, out, _ = harness.policy("suggest", "daily")
    assert code == 0
    assert 'commands = [\n    "cat",\n    "df",\n    "git log",\n]' in out
    assert '"reports/a/**"' in out and "tool_calls = 4" in out and "#   1 x shell rm x" in out
    (harness.folder / "policy.toml").write_text(POLICY + out)
    narrowed = Policy.load(harness.folder / "policy.toml", workspace=harness.state / "workspace")
    for tool, arguments, effect in made:
        assert narrowed.judge(tool, arguments, routine="daily").effect == effect
    assert not narrowed.judge("shell", {"command": "ls"}, routine="daily").allows
    assert narrowed.judge("shell", {"command": "ls"}, routine="other").allows
    assert not narrowed.judge("file_write", {"path": "elsewhere.md"}, routine="daily").allows


def test_without_a_journal_that_is_said(harness: PolicyHarness) -> None:
    code, _, err = harness.policy("suggest", "daily")
    assert (code, "no run has been recorded" in err) == (78, True)
    assert (
        "neither a length of time"
        in harness.policy("backtest", "policy.toml", "--since", "tomorrow")[2]
    )
