"""Rules for what an observed routine was denied: the smallest, proved, and never against a rule."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon.models import Json
from daemon.policy.authoring.recorded_calls import RecordedCall
from daemon.policy.authoring.suggest_rules import RuleSuggestion, suggest_rules
from daemon.policy.policy import Policy
from tests.attacks import ATTACKS
from tests.policy.conftest import SHIPPED

AT = datetime(2026, 11, 20, 8, tzinfo=UTC)
RULES = """version = 1
[paths]
read = ["/var/log"]
[[rule]]
tool = "*"
effect = "deny"
paths = [".env", "**/secret/**"]
reason = "secrets"
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
argv = [["ls", "head"]]
[[rule]]
tool = "shell"
effect = "ask"
argv = ["deploy"]
reason = "the owner deploys"
[routine.daily]
mode = "observe"
"""


def record_call(
    tool: str, arguments: Json, *, tainted: bool = False, run: str = "r1"
) -> RecordedCall:
    return RecordedCall(
        run=run,
        routine="daily",
        tool=tool,
        arguments=arguments,
        effect="deny",
        approved=False,
        tainted=tainted,
        at=AT,
        is_observed=True,
    )


def sh(command: str, **fields: Any) -> RecordedCall:
    return record_call("shell", {"command": command}, **fields)


def write_file(path: str, **fields: Any) -> RecordedCall:
    return record_call("file_write", {"path": path, "content": "x"}, **fields)


def suggest_for(
    calls: Sequence[RecordedCall],
    workspace: Path,
    *,
    text: str = RULES,
    with_tainted: bool = False,
) -> RuleSuggestion:
    def read_policy(text: str) -> Policy:
        return Policy.read(text, workspace=workspace, tools=("send",))

    return suggest_rules(
        calls, read_policy(text), read_policy, routine="daily", with_tainted=with_tainted
    )


def load(suggestion: RuleSuggestion, workspace: Path) -> Policy:
    """Load the suggested text as a daemon would load the file."""
    path = workspace.parent / "suggested.toml"
    path.write_text(suggestion.text)
    path.chmod(0o600)
    return Policy.load(path, workspace=workspace, tools=("send",))


def assert_allowed(call: RecordedCall, policy: Policy) -> None:
    verdict = policy.judge(call.tool, call.arguments, routine=call.routine, tainted=call.tainted)
    assert verdict.allows, (call, verdict)


def table(suggestion: RuleSuggestion) -> dict[str, Any]:
    (rule,) = suggestion.rules
    assert rule.pop("effect") == "allow"
    assert rule.pop("routines") == ["daily"]
    return rule


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (
            sh("wc -l notes.md"),
            {
                "tool": "shell",
                "argv": ["wc", "-l", "notes.md"],
                "profile": "read-only",
                "paths": ["notes.md"],
                "match": ["wc -l notes.md"],
            },
        ),
        (
            sh("rm sub/keep"),
            {"tool": "shell", "argv": ["rm", "sub/keep"], "match": ["rm sub/keep"]},
        ),
        (
            sh("grep -r TODO src"),
            {
                "tool": "shell",
                "argv": ["grep", "-r", "TODO", "src"],
                "profile": "read-only",
                "paths": ["src", "src/**"],
                "match": ["grep -r TODO src"],
            },
        ),
        (
            sh("ls src && touch 'a b' | head"),
            {"tool": "shell", "argv": ["touch", "a b"], "match": ["ls src && touch 'a b' | head"]},
        ),
        (
            write_file("reports/a.md"),
            {"tool": "file_write", "paths": ["reports/a.md"], "match": ["reports/a.md"]},
        ),
        (
            record_call("file_read", {"path": "/var/log/syslog"}),
            {"tool": "file_read", "paths": ["/var/log/syslog"], "match": ["/var/log/syslog"]},
        ),
        (
            record_call(
                "http_request", {"url": "https://API.example.org/v1?a=b", "method": "POST"}
            ),
            {
                "tool": "http_request",
                "urls": ["https://api.example.org/v1?a=b"],
                "methods": ["POST"],
                "match": ["POST https://API.example.org/v1?a=b"],
            },
        ),
        (
            record_call("http_request", {"url": "https://example.org"}),
            {
                "tool": "http_request",
                "urls": ["https://example.org/"],
                "methods": ["GET"],
                "match": ["GET https://example.org"],
            },
        ),
        (
            record_call("script", {"name": "backup", "arguments": ["--quick"]}),
            {"tool": "script", "argv": ["backup", "--quick"], "match": ["backup --quick"]},
        ),
        (
            record_call("git", {"command": "log -3"}),
            {"tool": "git", "argv": ["log", "-3"], "match": ["log -3"]},
        ),
        (record_call("memory_store", {"key": "k", "content": "c"}), {"tool": "memory_store"}),
        (record_call("send", {"text": "hi"}), {"tool": "send"}),
        (record_call("files__read", {"p": 1}), {"tool": "files__read"}),
    ],
)
def test_the_rule_for_one_call_names_its_very_words(
    workspace: Path, call: RecordedCall, rule: dict[str, Any]
) -> None:
    suggestion = suggest_for([call, call], workspace)
    assert (suggestion.calls, suggestion.allowed, suggestion.left_out) == (2, 2, ())
    new = load(suggestion, workspace)
    assert_allowed(call, new)
    verdict = new.judge(call.tool, call.arguments, routine="other")
    assert not verdict.allows, "the rule is for the observed routine only"
    assert table(suggestion) == {key: rule[key] for key in rule}


def test_a_folder_is_named_once_several_files_in_it_were_asked_for(workspace: Path) -> None:
    two = [write_file("reports/a.md"), write_file("reports/b.md")]
    assert table(suggest_for(two, workspace))["paths"] == ["reports/a.md", "reports/b.md"]
    three = [*two, write_file("reports/c.md"), write_file("top.md")]
    suggestion = suggest_for(three, workspace)
    assert table(suggestion)["paths"] == ["reports/*", "top.md"]
    judge = load(suggestion, workspace).judge
    assert judge("file_write", {"path": "reports/d.md"}, routine="daily").allows
    for path in ("reports/deep/a.md", "reports/.env", "other/a.md"):
        assert not judge("file_write", {"path": path}, routine="daily").allows, path
    outside = [
        record_call("file_read", {"path": f"/var/log/{name}"}) for name in ("a", "b", "c", "d")
    ]
    assert "/var/log/*" not in table(suggest_for(outside, workspace))["paths"]


@pytest.mark.parametrize(
    ("call", "comments"),
    [
        (
            sh("touch src/x"),
            [
                "also with more words behind these",
                'it may change or delete files unasked; effect = "ask" asks a person first',
            ],
        ),
        (record_call("send", {"text": "x"}), ["every call of this tool, whatever it is given"]),
        (
            write_file("a.md", tainted=True),
            [
                "a name without / stands for the files of that name in every folder",
                (
                    "a run asked for some of it that had read what strangers wrote: they may have "
                    "chosen it"
                ),
            ],
        ),
        (write_file("src/a.md"), []),
        (sh("wc src/a.py"), []),
        (record_call("http_request", {"url": "https://example.org/"}), []),
    ],
)
def test_what_a_rule_allows_besides_the_call_stands_above_it(
    workspace: Path, call: RecordedCall, comments: list[str]
) -> None:
    text = suggest_for([call], workspace, with_tainted=True).text
    assert re.findall("# (.*)", text) == comments


def test_calls_alike_share_a_rule_and_a_shorter_one_stands_for_longer_ones(
    workspace: Path,
) -> None:
    suggestion = suggest_for(
        [sh("touch a"), sh("touch b"), sh("mkdir"), sh("mkdir x"), sh("mkdir x y")], workspace
    )
    rules = [(rule["argv"], rule["match"]) for rule in suggestion.rules]
    assert rules == [
        (["touch", ["a", "b"]], ["touch a", "touch b"]),
        (["mkdir"], ["mkdir", "mkdir x", "mkdir x y"]),
    ]
    load(suggestion, workspace)
    pages = [
        record_call("http_request", {"url": f"https://example.org/{page}"}) for page in ("a", "b")
    ]
    urls = table(suggest_for(pages, workspace))["urls"]
    assert urls == ["https://example.org/a", "https://example.org/b"]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (sh("cat .env"), "rule 1 (*: .env, **/secret/**): secrets"),
        (write_file("secret/x"), "rule 1"),
        (sh("deploy now"), "rule 3 (shell: deploy): the owner deploys"),
        (sh("touch a && deploy now"), "rule 3"),
        (sh("python3 x.py"), "python3 runs whatever it is told to"),
        (sh("python3.11 x.py"), "runs whatever it is told to"),
        (sh("npm test"), "npm runs whatever it is told to"),
        (sh("./report.sh"), "built in"),
        (sh("echo $HOME"), "built in"),
        (sh("wc -l *.md"), "which words * and ? stand for"),
        (sh("touch ''"), "an empty word"),
        (record_call("routine", {"action": "create", "name": "x"}), "changes agentd itself"),
        (
            record_call("config", {"action": "set", "key": "agent.language"}),
            "changes agentd itself",
        ),
        (record_call("http_request", {"url": "http://127.0.0.1/"}), "no public address"),
        (record_call("http_request", {"url": "http://[fd00::1]/"}), "no public address"),
        (record_call("http_request", {"url": "http://localhost/"}), "no public address"),
        (record_call("http_request", {"url": "ftp://x"}), "built in"),
        (
            record_call("http_request", {"url": "https://x.example/?k=[redacted]"}),
            "keeps no secret",
        ),
        (write_file("out/a*.md"), "alone"),
        (write_file("out/a[1].md"), "knows * ? and **"),
        (write_file("../elsewhere.md"), "built in"),
        (write_file("a\udcff"), "half a character"),
        (record_call("file_write", {}), "built in"),
    ],
)
def test_what_no_rule_should_or_can_allow_is_left_out_with_the_reason(
    workspace: Path, call: RecordedCall, reason: str
) -> None:
    suggestion = suggest_for([call, write_file("plain.md")], workspace)
    assert table(suggestion)["paths"] == ["plain.md"]
    (left_out,) = suggestion.left_out
    assert reason in left_out.reason
    assert (left_out.count, suggestion.calls, suggestion.allowed) == (1, 2, 1)
    load(suggestion, workspace)


def test_what_a_section_takes_away_is_left_out(workspace: Path) -> None:
    text = RULES + 'tools = ["shell"]\ncommands = ["touch"]\nautonomy = "supervised"\n'
    calls = [sh("touch a"), sh("mkdir a"), write_file("a.md"), sh("wc notes.md")]
    suggestion = suggest_for(calls, workspace, text=text)
    assert suggestion.rules == ()
    assert suggestion.text == text
    reasons = {call.call: call.reason for call in suggestion.left_out}
    assert reasons["shell touch a"].startswith('autonomy = "supervised"')
    assert reasons["shell mkdir a"].startswith("[routine.daily]: daily may not run mkdir a")
    assert reasons["file_write a.md"].startswith("[routine.daily]: daily may not use file_write")


def test_calls_of_tainted_runs_are_left_out_unless_they_are_wanted(workspace: Path) -> None:
    calls = [
        write_file("a.md", tainted=True),
        write_file("b.md", tainted=True),
        write_file("b.md"),
        sh("wc notes.md", tainted=True),
    ]
    suggestion = suggest_for(calls, workspace)
    assert table(suggestion)["paths"] == ["b.md"]
    assert (suggestion.calls, suggestion.allowed) == (4, 1)
    assert {call.call for call in suggestion.left_out} == {"file_write a.md", "shell wc notes.md"}
    assert all("--with-tainted takes such calls in" in call.reason for call in suggestion.left_out)
    suggestion = suggest_for(calls, workspace, with_tainted=True)
    assert suggestion.left_out == ()
    assert (suggestion.allowed, suggestion.allowed_untainted) == (2, 2)
    assert "# a run asked for some of it that had read what strangers wrote" in suggestion.text
    new = load(suggestion, workspace)
    assert new.judge("file_write", {"path": "a.md"}, routine="daily").allows
    assert not new.judge("file_write", {"path": "a.md"}, routine="daily", tainted=True).allows


def test_only_denied_calls_of_observed_runs_count(workspace: Path) -> None:
    call = write_file("a.md")
    other_calls = [
        dataclasses.replace(call, is_observed=False),
        dataclasses.replace(call, effect="allow"),
        dataclasses.replace(call, approved=True),
        sh("ls"),
    ]
    suggestion = suggest_for(other_calls, workspace)
    assert (suggestion.calls, suggestion.rules, suggestion.text) == (0, (), RULES)


def test_a_rule_that_would_make_one_in_the_file_needless_is_left_out(workspace: Path) -> None:
    text = RULES.replace(
        "[routine.daily]",
        '[[rule]]\ntool = "shell"\neffect = "allow"\nroutines = ["daily"]\n'
        'argv = ["mkdir", "x"]\n[routine.daily]',
    )
    suggestion = suggest_for([sh("mkdir"), sh("touch a")], workspace, text=text)
    assert table(suggestion)["argv"] == ["touch", "a"]
    (left_out,) = suggestion.left_out
    assert left_out.call == "shell mkdir"
    assert "rule 4 (shell: mkdir x) can never decide anything" in left_out.reason


def test_one_call_whose_rule_does_not_load_does_not_cost_the_others_theirs(
    workspace: Path,
) -> None:
    (workspace / "link").symlink_to("src")
    calls = [write_file("link/new.md"), write_file("a.md")]
    suggestion = suggest_for(calls, workspace)
    assert table(suggestion)["paths"] == ["a.md"]
    (left_out,) = suggestion.left_out
    assert left_out.reason.startswith("its rule does not load: rule[3].match")
    load(suggestion, workspace)


# --- against an attacker
# --------------------------------------------------------------------------------


def _attack_calls(workspace: Path, *, tainted: bool) -> list[RecordedCall]:
    names = {
        "canary": "http://stranger.example",
        "secret": "/outside/.ssh/id_rsa",
        "outside": "/outside",
        "state": "/state",
        "policy": "/policy.toml",
        "stolen": "canary-51ad0e7c44b29f86",
        "token": "ab12",
        "port": "80",
    }

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[0]), value)
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return [fill(item) for item in value] if isinstance(value, list) else value

    return [
        record_call(tool, fill(arguments), tainted=tainted, run=kind)
        for kind, _, calls in ATTACKS
        for tool, arguments in calls
    ]


def test_what_a_compromised_model_asked_for_is_in_no_suggested_rule(workspace: Path) -> None:
    text = SHIPPED.read_text() + '[routine.daily]\nmode = "observe"\n'
    calls = _attack_calls(workspace, tainted=True)
    suggestion = suggest_for(calls, workspace, text=text)
    assert suggestion.calls > 50
    assert (suggestion.rules, suggestion.allowed, suggestion.text) == ((), 0, text)
    # and the rules for honest calls of the same trial open nothing to it
    honest = [sh("touch a"), write_file("inbox/a.md"), record_call("file_list", {"path": "src"})]
    new = load(suggest_for([*calls, *honest], workspace, text=text), workspace)
    old = Policy.read(text, workspace=workspace)
    for call in calls:
        if not old.judge(call.tool, call.arguments, routine="daily", tainted=True).allows:
            verdict = new.judge(call.tool, call.arguments, routine="daily", tainted=True)
            assert not verdict.allows, call


def test_rules_for_calls_of_tainted_runs_allow_no_attack_in_a_tainted_run(
    workspace: Path,
) -> None:
    text = SHIPPED.read_text() + '[routine.daily]\nmode = "observe"\n'
    calls = _attack_calls(workspace, tainted=True)
    suggestion = suggest_for(calls, workspace, text=text, with_tainted=True)
    assert suggestion.allowed == 0
    new = load(suggestion, workspace)
    old = Policy.read(text, workspace=workspace)
    for call in calls:
        arguments = call.arguments
        if not old.judge(call.tool, arguments, routine="daily", tainted=True).allows:
            assert not new.judge(call.tool, arguments, routine="daily", tainted=True).allows, call


# --- any calls
# ------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "a",
        "-x",
        "--all",
        "notes.md",
        "src/a.py",
        ".env",
        "a b",
        "*.md",
        "'",
        '"',
        "\\",
        "é",
        "",
        "=",
    ]
)
TEXTS = st.one_of(WORDS, st.text(max_size=12))
PATHS = st.lists(
    st.one_of(st.sampled_from(["a", "b", "src", "..", ".env"]), TEXTS), max_size=4
).map("/".join)
PROGRAMS = st.sampled_from(["touch", "rm", "wc", "grep", "ls", "deploy", "python3", "git", "x"])
CALLS = st.one_of(
    st.tuples(PROGRAMS, st.lists(TEXTS, max_size=4)).map(
        lambda call: ("shell", {"command": " ".join([call[0], *map(_quote, call[1])])})
    ),
    st.text(max_size=30).map(lambda line: ("shell", {"command": line})),
    st.tuples(st.sampled_from(["file_write", "file_read", "file_list"]), PATHS).map(
        lambda call: (call[0], {"path": call[1]})
    ),
    st.tuples(
        st.sampled_from(["example.org", "127.0.0.1", "x.example:8080"]),
        PATHS,
        st.sampled_from(["GET", "POST", "DELETE", "NONE"]),
    ).map(
        lambda call: ("http_request", {"url": f"https://{call[0]}/{call[1]}", "method": call[2]})
    ),
    st.tuples(TEXTS, st.lists(TEXTS, max_size=3)).map(
        lambda call: ("script", {"name": call[0], "arguments": call[1]})
    ),
    st.tuples(st.sampled_from(["log", "diff", "show", "push"]), TEXTS).map(
        lambda call: ("git", {"command": f"{call[0]} {_quote(call[1])}"})
    ),
    st.sampled_from(["memory_store", "send", "sysinfo", "routine"]).map(lambda tool: (tool, {})),
)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    calls=st.lists(st.tuples(CALLS, st.booleans()), min_size=1, max_size=8),
    with_tainted=st.booleans(),
)
def test_whatever_was_recorded_the_suggested_rules_load_and_allow_it(
    workspace: Path, calls: list[tuple[tuple[str, Json], bool]], with_tainted: bool
) -> None:
    recorded_calls = [record_call(*call, tainted=tainted) for call, tainted in calls]
    old = Policy.read(RULES, workspace=workspace, tools=("send",))
    suggestion = suggest_for(recorded_calls, workspace, with_tainted=with_tainted)
    new = load(suggestion, workspace)
    data = tomllib.loads(suggestion.text)
    assert data["rule"][: len(old.rules)] == tomllib.loads(RULES)["rule"]
    assert tuple(data["rule"][len(old.rules) :]) == suggestion.rules
    assert {key: data[key] for key in data if key != "rule"} == {
        key: value for key, value in tomllib.loads(RULES).items() if key != "rule"
    }
    left_out = {call.call for call in suggestion.left_out}
    count = 0
    for call in recorded_calls:
        before = old.judge(call.tool, call.arguments, routine="daily", tainted=call.tainted)
        after = new.judge(call.tool, call.arguments, routine="daily", tainted=call.tainted)
        plain = new.judge(call.tool, call.arguments, routine="daily")
        if before.allows:
            assert after.allows
            continue
        count += after.allows
        text = f"{call.tool} {call.subject}".strip()
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        assert plain.allows or text in left_out, (call, plain)
        if before.rule not in ("default", "taint"):
            assert not after.allows, "what a rule denies or asks about stays so"
    assert suggestion.allowed == count
    for rule in suggestion.rules:
        assert rule["effect"] == "allow" and rule["routines"] == ["daily"]
        for pattern in rule.get("paths", ()):
            assert "*" not in pattern or pattern.endswith(("/*", "/**")), rule
        assert "hosts" not in rule and "safe" not in rule
    assert json.dumps(suggestion.rules)


def test_the_rule_in_the_docs_is_the_one_that_is_suggested(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/policy.md").read_text()
    section = page.partition("\n## A trial\n")[2].partition("\n## ")[0]
    trial, rule = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "list.txt").write_text("a\n")
    policy = Policy.read(f"version = 1\n{trial}", workspace=tmp_path, tools=())
    assert policy.is_observed("backup-check", AT)
    call = dataclasses.replace(sh("wc -l backups/list.txt"), routine="backup-check")
    suggestion = suggest_rules(
        [call],
        policy,
        lambda text: Policy.read(text, workspace=tmp_path, tools=()),
        routine="backup-check",
    )
    assert suggestion.text == f"version = 1\n{trial}\n{rule}"
