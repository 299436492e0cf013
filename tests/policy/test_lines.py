"""What the shipped policy says of many lines: those of an honest report run, the others do not."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.policy.policy import Policy
from daemon.policy.profiles import read_only_programs
from tests.policy.conftest import SHIPPED
from tests.policy.fixture import build
from tests.policy.lines import ALLOWED, DENIED
from tests.properties import scaled_settings


def test_every_listed_line_of_a_report_is_allowed(shipped_policy: Policy) -> None:
    verdicts = {
        line: shipped_policy.judge("shell", {"command": line}, routine="daily-report")
        for line in ALLOWED
    }
    assert {line: verdict.reason for line, verdict in verdicts.items() if not verdict.allows} == {}


def test_every_listed_harmful_line_is_refused_with_a_reason(shipped_policy: Policy) -> None:
    verdicts = {
        line: shipped_policy.judge("shell", {"command": line}, routine="daily-report")
        for line in DENIED
    }
    assert [line for line, verdict in verdicts.items() if verdict.allows] == []
    assert [line for line, verdict in verdicts.items() if not verdict.reason] == []


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return Policy.load(SHIPPED, workspace=build(tmp_path_factory.mktemp("workspace")))


_PIECES = st.sampled_from(
    [
        *(
            "ls",
            "cat",
            "sort",
            "grep",
            "find",
            "git",
            "ps",
            "sed",
            "jq",
            "date",
            "head",
            "touch",
            "rm",
            "sh",
            "x=1",
        ),
        *(
            "notes.md",
            ".env",
            "/etc/shadow",
            "link_etc/passwd",
            "src",
            "..",
            "*",
            "?*",
            "-",
            "--",
            "-o",
            "-r",
            "-n",
        ),
        *(
            "-exec",
            "-delete",
            "--output=x",
            "log",
            "push",
            "-c",
            "1p",
            "aux",
            "e",
            "+%s",
            ".",
            "pwned",
        ),
        *(
            " ",
            " ",
            " ",
            "  ",
            "|",
            "||",
            "&&",
            ";",
            "\n",
            "&",
            ">",
            ">>",
            "<",
            "2>&1",
            ">/dev/null",
            "2>/dev/null",
        ),
        *(
            "'",
            '"',
            "$",
            "`",
            "\\",
            "(",
            ")",
            "{",
            "}",
            "[",
            "]",
            "~",
            "!",
            "#",
            "=",
            "$(id)",
            "${x}",
            "<(ls)",
            "\t",
        ),
    ]
)
_LINES = st.one_of(
    st.lists(_PIECES, max_size=14).map("".join),
    st.lists(_PIECES, max_size=9).map(" ".join),
    st.text(),
)


@scaled_settings(600)
@given(line=_LINES)
def test_a_command_line_is_allowed_only_if_each_command_alone_is_allowed(
    judge: Policy, line: str
) -> None:
    verdict, pipelines = judge.plan("shell", {"command": line}, routine="daily-report")
    if verdict.allows:
        assert pipelines
        for pipeline in pipelines:
            for index, command in enumerate(pipeline.commands):
                assert command.program in read_only_programs()
                again = shlex.join(command.argv) + ("" if index == 0 else " < notes.md")
                if command.stdin is not None:
                    again += f" < {shlex.quote(command.stdin.text)}"
                alone, (only,) = judge.plan("shell", {"command": again}, routine="daily-report")
                assert alone.allows, (again, alone)
                assert len(only.commands) == 1


_ARGUMENTS = st.dictionaries(
    st.sampled_from(["command", "path", "x"]),
    st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())),
)


@scaled_settings(300)
@given(
    tool=st.one_of(st.sampled_from(["shell", "file_read", "file_write", "sysinfo"]), st.text()),
    arguments=st.one_of(_ARGUMENTS, st.none(), st.text(), st.integers()),
)
def test_any_command_line_is_judged_without_an_exception(
    judge: Policy, tool: str, arguments: object
) -> None:
    judge.judge(tool, arguments, routine="daily-report")  # type: ignore[arg-type]
    judge.is_read_only(tool, arguments)  # type: ignore[arg-type]
