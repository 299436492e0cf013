"""Whoever writes the policy can ask what it says, what another would have said, and what would have
been enough.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.app.main import main
from daemon.definitions.routines.folder import AGENT_FOLDER
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
        return self.agentd("policy", *words)

    def agentd(self, *words: str) -> tuple[int, str, str]:
        """Run `agentd` as it would run in this folder; return its exit code and outputs."""
        self._output.readouterr()
        code = main(words)
        return code, *self._output.readouterr()

    def record(
        self,
        *calls: tuple[str, Json, str],
        run_of: str = "daily",
        definition: Json | None = None,
        rule: str = "rule 1",
        call_id: str = "",
        **fields: str,
    ) -> None:
        """Journal one run that made these calls, each with its verdict and these fields of its
        step; `call_id` is by default the number of the call.
        """
        steps = [
            _call(number, *call, rule=rule, call_id=call_id, **fields)
            for number, call in enumerate(calls)
        ]
        asyncio.run(self._record(steps, run_of, json.dumps(definition or {})))

    async def _record(
        self,
        steps: list[Step],
        run_of: str,
        definition: str,
    ) -> None:
        db = await Database.open(self.state / "agentd.db")
        try:
            journal = Journal(db, clock=lambda: datetime.now(UTC))
            slot = datetime.now(UTC)
            (queued_run,) = await journal.slots.claim(
                [
                    Claim(
                        routine=run_of,
                        definition=definition,
                        trigger="manual",
                        slot=slot,
                        goal="go",
                        event=f"{run_of} {slot}",
                    )
                ]
            )
            assert isinstance(queued_run, Run)
            run = await journal.runs.claim(queued_run.id, owner="test")
            assert run is not None
            await journal.runs.append(run, *steps)
        finally:
            await db.close()


def _call(
    number: int, tool: str, arguments: Json, effect: str, *, rule: str, call_id: str, **fields: str
) -> Step:
    verdict = {"effect": effect, "rule": rule}
    body = {"tool": tool, "arguments": arguments, "verdict": verdict, **fields}
    return Step(kind=StepKind.CALL, iteration=1, call_id=call_id or f"c{number}", body=body)


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


def test_policy_check_accepts_a_valid_policy_and_warns_of_unknown_routines(
    harness: PolicyHarness,
) -> None:
    code, out, _ = harness.policy("check")
    assert (code, "4 rules, no fault; every example is as it says" in out) == (0, True)
    (harness.folder / "policy.toml").write_text(POLICY + "[routine.dayly]\ntools = []\n")
    assert 'there is no routine of that name; did you mean "daily"?' in harness.policy("check")[1]


def test_policy_check_refuses_an_invalid_policy_with_the_faulty_key(harness: PolicyHarness) -> None:
    (harness.folder / "bad.toml").write_text(
        POLICY.replace('match = ["df -h"]', 'match = ["df -h | sort -o x"]')
    )
    code, _, err = harness.policy("check", "bad.toml")
    assert code == 78
    assert "rule[0].match" in err


def test_policy_explain_shows_the_verdict_of_each_command_and_exits_with_it(
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
    explanation = json.loads(harness.policy("explain", "--json", "--", "rm", "x")[1])
    assert (explanation["effect"], explanation["rule"]) == ("deny", "default")


def test_policy_explain_says_that_an_allowed_request_to_a_private_host_is_not_made(
    harness: PolicyHarness,
) -> None:
    rule = '[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["127.0.0.1:8091"]\n'
    call = ("explain", "--tool", "http_request", "--", "http://127.0.0.1:8091/health")
    (harness.folder / "policy.toml").write_text(POLICY + rule)
    code, out, _ = harness.policy(*call)
    assert (code, out.splitlines()[0]) == (0, "allowed: rule 5 (http_request: 127.0.0.1:8091)")
    note = out.splitlines()[-1]
    assert note.startswith("note: no request to 127.0.0.1 is made, as that is ")
    assert note.endswith('add networks = ["127.0.0.1/32"] to the rule')
    (harness.folder / "policy.toml").write_text(POLICY + rule + 'networks = ["127.0.0.1/32"]\n')
    assert "note" not in harness.policy(*call)[1]


def test_policy_explain_refuses_a_routine_that_nothing_is_known_of(harness: PolicyHarness) -> None:
    rule = '[[rule]]\ntool = "shell"\neffect = "ask"\nargv = ["x"]\nroutines = ["backup-*"]\n'
    (harness.folder / "draft.toml").write_text(f"{POLICY}{rule}[routine.disky]\ntools = []\n")
    (harness.folder / "routines" / "faulty.toml").write_text("nonsense")
    call = ("explain", "--policy", "draft.toml", "--", "ls")
    for name, hint in (
        ("diksy", 'did you mean "disky"?'),
        ("dayli", 'did you mean "daily"?'),
        ("xyz", "without --routine"),
        ("zzz/made", "without --routine"),
    ):
        code, out, err = harness.policy(*call[:3], "--routine", name, *call[3:])
        assert (code, out, f"there is no routine {name!r}" in err, hint in err) == (
            4,
            "",
            True,
            True,
        )
    for name in ("daily", "faulty", "backup-db", "ask", "daily/made"):
        assert harness.policy(*call[:3], "--routine", name, *call[3:])[0] == 0
    assert harness.policy(*call[:3], "--routine", "disky", *call[3:])[0] == 5


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "--routine", "", "--", "ls"),
        ("explain", "--tool", "", "x"),
        ("backtest", "policy.toml", "--routine", ""),
        ("suggest", ""),
    ],
)
def test_an_empty_name_is_a_wrong_command_line(
    harness: PolicyHarness, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as end:
        harness.policy(*words)
    assert end.value.code == 2
    assert "expected a name (found '')" in capsys.readouterr().err


def test_policy_explain_says_how_to_ask_about_a_tool(harness: PolicyHarness) -> None:
    for words, advice in (
        (("file_write", "notes/x.md"), "explain --tool file_write notes/x.md;"),
        (("file_write notes/x.md",), "explain --tool file_write notes/x.md;"),
        (("http_request",), "explain --tool http_request URL;"),
        (("shell", "df -h | head"), "explain --tool shell 'df -h | head';"),
    ):
        code, out, err = harness.policy("explain", *words)
        assert (code, out, advice in err) == (2, "", True)
    assert "the program shell" in harness.policy("explain", "--tool", "shell", "--", "shell")[1]
    assert harness.policy("explain", "git", "log")[0] == 0
    for line in ("", " "):
        assert "the line is empty" in harness.policy("explain", line)[1]


def test_policy_explain_refuses_an_unknown_tool_and_notes_an_unknown_server(
    harness: PolicyHarness,
) -> None:
    code, out, err = harness.policy("explain", "--tool", "file_wirte", "x")
    assert (code, out) == (4, "")
    assert "there is no tool 'file_wirte'; did you mean \"file_write\"?" in err
    code, out, _ = harness.policy("explain", "--tool", "files__read", "x")
    assert (code, "note: the config has no MCP server files, so" in out) == (5, True)
    server = '[mcp.files]\ncommand = ["server"]\n'
    (harness.folder / "config.toml").write_text(server)
    code, out, _ = harness.policy("explain", "--tool", "files__read", "x")
    assert (code, "note:" in out) == (5, False)


def test_policy_explain_warns_of_a_rule_that_lets_a_program_change_files(
    harness: PolicyHarness,
) -> None:
    _, out, _ = harness.policy("explain", "--", "rm", "-rf", "/")
    assert "  touches /\n" in out
    assert '# it may change or delete files unasked; effect = "ask" asks a person first\n' in out
    assert "  touches -x\n" in harness.policy("explain", "--", "rm", "./-x")[1]
    assert "delete" not in harness.policy("explain", "--", "wc", "a.md")[1]


def test_policy_test_says_why_a_file_cannot_be_read(harness: PolicyHarness) -> None:
    (harness.folder / "binary").write_bytes(b"\xff\xfe")
    for name, problem in (
        ("missing", "missing: no such file\n"),
        ("binary", "binary: is not UTF-8 text (byte 0xff in line 1)"),
        ("routines", "routines: is a folder, not a file\n"),
    ):
        code, _, err = harness.policy("test", name)
        assert (code, problem in err) == (78, True)


def test_policy_test_compares_a_file_of_calls_with_expected_verdicts(
    harness: PolicyHarness,
) -> None:
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
    # as a program of Windows writes it
    file.write_text("\ufeff" + json.dumps({"cmd": "df -h", "expect": "deny"}), "utf-8")
    code, out, _ = harness.policy("test", "calls.jsonl")
    assert (code, "expected deny, but allow: rule 1" in out) == (1, True)
    file.write_text('{"cmd": "df", "expect": "maybe"}\n[]\n')
    assert (
        harness.policy("test", "calls.jsonl")[2].count("is not a call with what is expected of it")
        == 2
    )


def test_policy_backtest_judges_recorded_calls_by_another_policy(harness: PolicyHarness) -> None:
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


def test_policy_suggest_counts_the_calls_of_sub_agents(harness: PolicyHarness) -> None:
    harness.record(("shell", {"command": "df -h"}, "allow"), definition={"name": "daily"})
    for parent, path in (("daily", "reports/today.md"), ("other", "secrets/x.md")):
        harness.record(
            ("file_write", {"path": path, "content": "x"}, "allow"),
            run_of="subagent",
            definition={"name": parent},
        )
    code, out, _ = harness.policy("suggest", "daily", "--since", "1d")
    assert code == 0
    assert 'tools = [\n    "file_write",\n    "shell",\n]' in out
    assert "reports/" in out and "secrets" not in out


def test_policy_backtest_judges_what_an_agent_made_by_the_rights_of_its_maker(
    harness: PolicyHarness,
) -> None:
    harness.record(
        ("shell", {"command": "df -h"}, "allow"),
        run_of="helper",
        definition={"name": "helper", "origin": {"routine": "daily", "run": "01"}},
    )
    harness.record(
        ("shell", {"command": "ls"}, "allow"), run_of="subagent", definition={"name": "daily"}
    )
    (harness.folder / "new.toml").write_text(f"{POLICY}[routine.daily]\ntools = []\n")
    code, out, _ = harness.policy("backtest", "new.toml", "--since", "1d")
    assert code == 0
    assert "1 x shell df -h  (daily/helper; was: allow)" in out
    assert "1 x shell ls  (daily; was: allow)" in out


def test_policy_suggest_writes_the_narrowest_section_that_allows_all_recorded_calls(
    harness: PolicyHarness,
) -> None:
    calls = [
        ("shell", {"command": "df -h && git log -3 | cat"}, "allow"),
        ("file_write", {"path": "reports/a/today.md", "content": "x"}, "allow"),
        ("shell", {"command": "rm x"}, "deny"),
    ]
    harness.record(*calls)
    code, out, _ = harness.policy("suggest", "daily")
    assert code == 0
    assert 'commands = [\n    "cat",\n    "df",\n    "git log",\n]' in out
    assert '"reports/a/**"' in out and "tool_calls = 4" in out and "#   1 x shell rm x" in out
    (harness.folder / "policy.toml").write_text(POLICY + out)
    policy = Policy.load(harness.folder / "policy.toml", workspace=harness.state / "workspace")
    for tool, arguments, effect in calls:
        assert policy.judge(tool, arguments, routine="daily").effect == effect
    assert not policy.judge("shell", {"command": "ls"}, routine="daily").allows
    assert policy.judge("shell", {"command": "ls"}, routine="other").allows
    assert not policy.judge("file_write", {"path": "elsewhere.md"}, routine="daily").allows


def test_policy_suggest_without_a_journal_is_refused(harness: PolicyHarness) -> None:
    code, _, err = harness.policy("suggest", "daily")
    assert (code, "no run has been recorded" in err) == (78, True)


def test_a_moment_that_has_yet_to_come_is_refused(harness: PolicyHarness) -> None:
    err = harness.policy("backtest", "policy.toml", "--since", "tomorrow")[2]
    assert "'tomorrow' has yet to come" in err
    for words in (("backtest", "policy.toml"), ("suggest", "daily")):
        for since in ("soon", ""):
            code, _, err = harness.policy(*words, "--since", since)
            assert (code, "is no moment" in err) == (2, True)


def test_every_verb_knows_the_tools_of_ones_own(harness: PolicyHarness) -> None:
    (harness.folder / "config.toml").write_text('[tools]\nfiles = ["mine.py"]\n')
    (harness.folder / "tools").mkdir()
    (harness.folder / "tools" / "mine.py").write_text(
        'def nap(seconds: int) -> str:\n    """Sleep."""\n    return "rested"\n'
    )
    (harness.folder / "policy.toml").write_text(
        POLICY + '[[rule]]\ntool = "nap"\neffect = "allow"\n'
    )
    harness.record(("nap", {"seconds": 1}, "allow"))
    (harness.folder / "calls.jsonl").write_text(
        '{"tool": "nap", "arguments": {"seconds": 1}, "expect": "allow"}\n'
    )
    for words in (
        ("check",),
        ("explain", "--tool", "nap", "--", '{"seconds": 1}'),
        ("test", "calls.jsonl"),
        ("backtest", "policy.toml"),
        ("suggest", "daily"),
    ):
        assert harness.policy(*words)[0] == 0, words


# --- a trial
# --------------------------------------------------------------------------------------------


def test_observe_shows_the_change_of_the_policy_and_writes_it_with_yes(
    harness: PolicyHarness,
) -> None:
    file = harness.folder / "policy.toml"
    code, out, _ = harness.agentd("observe", "daily", "--for", "12h")
    assert (code, file.read_text()) == (5, POLICY)
    assert '+[routine.daily]\n+mode = "observe"\n+observe_until = ' in out
    assert out.endswith("Nothing was written. With --yes it will be.\n")
    file.chmod(0o640)
    code, out, _ = harness.agentd("observe", "daily", "--yes")
    assert (code, file.stat().st_mode & 0o777) == (0, 0o640)
    assert "daily is observed until " in out
    section = Policy.load(file, workspace=harness.state / "workspace").routines["daily"]
    assert section.mode == "observe" and section.observe_until is not None
    time_left = section.observe_until - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < time_left <= timedelta(days=7, minutes=1)
    assert "daily: observe until" in harness.agentd("validate", "--elsewhere")[1]
    assert "note: daily: observe until" in harness.policy("check")[1]
    answer = json.loads(harness.agentd("observe", "daily", "--stop", "--yes", "--json")[1])
    assert answer == {"routine": "daily", "mode": "enforce", "until": None}
    assert file.read_text() == POLICY


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("dayly", "--yes"), 4, 'did you mean "daily"?'),
        (("daily", "--for", "soon", "--yes"), 78, "--for"),
        (("daily", "--for", "0d", "--yes"), 78, "too short"),
        (("daily", "--for", "20s", "--yes"), 78, "too short"),
        (("daily", "--stop", "--yes"), 4, "daily is not observed"),
    ],
)
def test_a_trial_that_makes_no_sense_is_refused_and_nothing_is_written(
    harness: PolicyHarness, words: tuple[str, ...], code: int, text: str
) -> None:
    result, _, err = harness.agentd("observe", *words)
    assert (result, text in err) == (code, True), err
    assert (harness.folder / "policy.toml").read_text() == POLICY


def test_a_routine_that_an_agent_made_is_not_observed_by_itself(harness: PolicyHarness) -> None:
    folder = harness.state / AGENT_FOLDER
    folder.mkdir(parents=True)
    (folder / "child.toml").write_text("")
    code, _, err = harness.agentd("observe", "child", "--yes")
    assert (code, "agentctl adopt child" in err) == (5, True)
    assert (harness.folder / "policy.toml").read_text() == POLICY


def test_policy_check_notes_all_three_dangerous_rights_also_of_what_an_agent_made(
    harness: PolicyHarness,
) -> None:
    text = """
description = "x"
[trigger]
every = "1h"
[run]
mode = "agent"
prompt = "go"
tools = ["shell", "file_write"]
"""
    (harness.folder / "routines" / "daily.toml").write_text(text)
    folder = harness.state / AGENT_FOLDER
    folder.mkdir(parents=True)
    (folder / "child.toml").write_text(f'{text}[origin]\nroutine = "daily"\nrun = "01"\n')
    opted = '[routine.daily]\ntainted_tools = ["file_write"]\n'
    (harness.folder / "policy.toml").write_text(POLICY + opted)
    code, out, _ = harness.policy("check")
    assert code == 0
    assert "note: [routine.daily]: it reads what strangers may have written" in out
    assert "note: [routine.daily]: child, which a run of it made, reads what strangers" in out


def test_suggest_shows_rules_for_what_an_observed_routine_was_denied_and_writes_what_was_shown(
    harness: PolicyHarness,
) -> None:
    file = harness.folder / "policy.toml"
    harness.agentd("observe", "daily", "--yes")
    before = file.read_text()
    calls = [
        ("shell", {"command": "uptime"}, "deny"),
        ("shell", {"command": "cat .env"}, "deny"),
        ("shell", {"command": "make test"}, "deny"),
        ("shell", {"command": "ls"}, "allow"),
    ]
    harness.record(*calls, mode="observe")
    harness.record(("shell", {"command": "wc a.md"}, "deny"), mode="observe", taint="tainted")
    harness.record(("shell", {"command": "id"}, "deny"))
    code, out, _ = harness.policy("suggest", "daily")
    assert (code, file.read_text()) == (0, before)
    assert '+argv = ["uptime"]\n+profile = "read-only"\n+match = ["uptime"]\n' in out
    assert "4 calls in 2 runs since 30d denied in observe mode" in out
    assert "; judged again with 1 rule more: 1 allowed.\n" in out
    assert "  1 x shell cat .env\n      rule 4 (*: .env): secrets\n" in out
    assert "  1 x shell make test\n      rule 2 (shell: make test)" in out
    assert "--with-tainted takes such calls in" in out
    assert "shell id" not in out, "nobody observed it then"
    digest = json.loads(harness.policy("suggest", "daily", "--json")[1])["confirm"]
    assert f"`agentctl policy suggest daily --confirm {digest}` writes exactly this." in out
    code, _, err = harness.policy("suggest", "daily", "--confirm", "0" * 16)
    assert (code, file.read_text()) == (5, before)
    assert "what would be written is not what was shown" in err
    code, _, _ = harness.policy("suggest", "daily", "--with-tainted", "--confirm", digest)
    assert (code, file.read_text()) == (5, before), "other rules than those that were shown"
    code, out, _ = harness.policy("suggest", "daily", "--confirm", digest)
    assert (code, "is written; a daemon reads it by itself" in out) == (0, True)
    assert harness.policy("check")[0] == 0
    assert harness.policy("explain", "--routine", "daily", "--", "uptime")[0] == 0
    assert harness.policy("explain", "--", "uptime")[0] == 5, "the rule is for daily alone"
    assert harness.policy("explain", "--routine", "daily", "--", "cat", ".env")[0] == 5
    assert 'mode = "observe"' in file.read_text(), "the trial goes on"
    code, out, _ = harness.policy("suggest", "daily")
    assert (code, "Nothing was written" in out) == (0, False), "there is nothing more to write"


def test_pages_of_one_host_get_one_note(harness: PolicyHarness) -> None:
    text = POLICY + '[[rule]]\ntool = "http_request"\neffect = "allow"\nsafe = true\n'
    urls = '"http://127.0.0.1:8090/a", "http://127.0.0.1:8090/b", "http://10.0.0.1/c"'
    (harness.folder / "policy.toml").write_text(f"{text}urls = [{urls}]\n")
    for words in (("policy", "check"), ("validate", "--elsewhere")):
        out = harness.agentd(*words)[1]
        assert out.count("no request to 127.0.0.1 is made") == 1
        assert out.count("no request to 10.0.0.1 is made") == 1


PAGE = "http://127.0.0.1:8090/news.html"
PAGE_RULE = f"""[[rule]]
tool = "http_request"
effect = "allow"
routines = ["daily"]
urls = ["{PAGE}"]
safe = true
networks = ["127.0.0.1/32"]
match = ["GET {PAGE}"]
"""


@pytest.mark.parametrize("other_pages", ["", '\n[[rule]]\ntool="http_request"\neffect="allow"\n'])
def test_explain_ends_with_a_rule_that_allows_the_page(
    harness: PolicyHarness, other_pages: str
) -> None:
    if other_pages:
        other_pages += 'urls = ["https://example.org/"]\nsafe = true\n'
    file = harness.folder / "policy.toml"
    file.write_text(POLICY + other_pages)
    call = ("explain", "--routine", "daily", "--tool", "http_request", PAGE)
    code, out, _ = harness.policy(*call)
    assert code == 5
    _, _, rule = out.partition("\nTo allow it, add to policy.toml:\n\n")
    assert rule == PAGE_RULE
    assert json.loads(harness.policy(*call, "--json")[1])["suggested"] == rule
    file.write_text(f"{file.read_text()}\n{rule}")
    assert harness.policy("check")[0] == 0
    for words in ((), ("--tainted",)):
        code, out, _ = harness.policy(*call, *words)
        assert (code, "note:" in out, "[[rule]]" in out) == (0, False, False)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--tool", "http_request", "https://example.org/a"), "safe = true"),
        (("--tool", "http_request", "POST", "https://example.org/a"), 'methods = ["POST"]'),
        (
            ("--tool", "http_request", "http://localhost/a"),
            'networks = ["127.0.0.1/32", "::1/128"]',
        ),
        (("--", "wc", "a.md"), 'argv = ["wc", "a.md"]'),
        (("--tool", "http_request", "http://169.254.169.254/keys"), ""),
        (("--", "python3", "x.py"), ""),
        (("--", "cat", ".env"), ""),
        (("--", "make", "test"), ""),
    ],
)
def test_explain_shows_a_rule_where_one_may_allow_the_call(
    harness: PolicyHarness, words: tuple[str, ...], key: str
) -> None:
    _, out, _ = harness.policy("explain", *words)
    assert ("[[rule]]" in out) == bool(key)
    assert key in out and "routines" not in out


def test_suggest_writes_rules_for_what_a_gather_was_denied(harness: PolicyHarness) -> None:
    page = ("http_request", {"url": PAGE}, "deny")
    harness.record(page, rule="default", call_id="gather.page", taint="tainted")
    asked = ("http_request", {"url": "http://127.0.0.1:22/"}, "deny")
    tainted = ("http_request", {"url": "https://stranger.example/"}, "deny")
    harness.record(asked, ("shell", {"command": "uptime"}, "deny"), rule="default")
    harness.record(tainted, rule="default", taint="tainted")
    harness.record(("shell", {"command": "make test"}, "deny"), rule="rule 2 (shell: make test)")
    code, out, _ = harness.policy("suggest", "daily")
    assert (code, "tools = []" in out) == (0, False)
    assert "".join(f"+{line}\n" for line in PAGE_RULE.splitlines()) in out
    assert "4 calls in 3 runs since 30d denied; judged again with 2 rules more: 2 allowed." in out
    assert "--with-tainted takes such calls in" in out
    assert "127.0.0.1 is no public address" in out
    assert "make test" not in out, "a rule covers it"
    answer = json.loads(harness.policy("suggest", "daily", "--json")[1])
    assert len(answer["rules"]) == 2 and answer["section"]["tools"] == []
    assert harness.policy("suggest", "daily", "--confirm", answer["confirm"])[0] == 0
    assert harness.policy("explain", "--routine", "daily", "--tool", "http_request", PAGE)[0] == 0


def test_suggest_writes_no_section_for_a_routine_that_was_allowed_nothing(
    harness: PolicyHarness,
) -> None:
    harness.record(("shell", {"command": "make test"}, "deny"))
    code, out, _ = harness.policy("suggest", "daily")
    assert (code, "tools = []" in out) == (0, False)
    assert "# No call of daily was allowed since 30d." in out
    assert "#   1 x shell make test" in out


def test_suggest_ends_a_trial_that_is_over_and_then_writes_sections_again(
    harness: PolicyHarness,
) -> None:
    file = harness.folder / "policy.toml"
    trial = '[routine.daily]\nmode = "observe"\nobserve_until = 2020-01-01T00:00:00Z\n'
    file.write_text(POLICY + trial)
    assert "observe ended on 2020-01-0" in harness.agentd("validate", "--elsewhere")[1]
    harness.record(("shell", {"command": "ls"}, "allow"), mode="observe")
    answer = json.loads(harness.policy("suggest", "daily", "--json")[1])
    assert (answer["rules"], answer["calls"], answer["written"]) == ([], 0, False)
    assert '-mode = "observe"' in answer["diff"]
    assert harness.policy("suggest", "daily", "--confirm", answer["confirm"])[0] == 0
    assert file.read_text() == POLICY
    assert "would fit into this" in harness.policy("suggest", "daily")[1]


def test_a_policy_with_a_byte_order_mark_keeps_it(harness: PolicyHarness) -> None:
    file = harness.folder / "policy.toml"
    file.write_text(f"\ufeff{POLICY}")
    assert harness.agentd("observe", "daily", "--yes")[0] == 0
    before = file.read_text()
    harness.record(("shell", {"command": "uptime"}, "deny"), mode="observe")
    answer = json.loads(harness.policy("suggest", "daily", "--json")[1])
    assert harness.policy("suggest", "daily", "--confirm", answer["confirm"])[0] == 0
    assert file.read_text().startswith(before)
    assert harness.policy("check")[0] == 0


def test_a_long_call_that_is_left_out_is_shown_by_its_beginning(harness: PolicyHarness) -> None:
    harness.agentd("observe", "daily", "--yes")
    harness.record(("shell", {"command": f"python3 {'x' * 900}"}, "deny"), mode="observe")
    assert f"  1 x shell python3 {'x' * 286}…\n" in harness.policy("suggest", "daily")[1]


@pytest.mark.slow
def test_observe_asks_at_a_terminal_and_takes_no_for_an_answer(harness: PolicyHarness) -> None:
    for answer, code in ((b"n\n", 5), (b"y\n", 0)):
        controller, terminal = pty.openpty()
        os.write(controller, answer)
        process = subprocess.Popen(
            [sys.executable, "-m", "daemon.app.main", "observe", "daily"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=harness.folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        os.close(terminal)
        output = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(controller, 4096):
                output += part
        os.close(controller)
        assert (process.wait(), b"Write this into policy.toml? [y/N]" in output) == (code, True)
        is_observed = 'mode = "observe"' in (harness.folder / "policy.toml").read_text()
        assert is_observed == (code == 0)


def test_suggest_writes_nothing_into_a_policy_that_was_changed_meanwhile(
    harness: PolicyHarness,
) -> None:
    file = harness.folder / "policy.toml"
    harness.agentd("observe", "daily", "--yes")
    harness.record(("shell", {"command": "uptime"}, "deny"), mode="observe")
    digest = json.loads(harness.policy("suggest", "daily", "--json")[1])["confirm"]
    new_text = file.read_text() + "# a remark\n"
    file.write_text(new_text)
    code, _, err = harness.policy("suggest", "daily", "--confirm", digest)
    assert (code, file.read_text()) == (5, new_text), err
