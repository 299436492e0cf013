"""A line is read as bash would read it, or it is refused."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daemon.policy.lexer import MAX_PIPED, CallRejected, Redirect, Stream, parse_line
from daemon.policy.reachable_paths import ReachablePaths
from tests.properties import scaled_settings

NULL, STDOUT = Stream.NULL, Stream.STDOUT


def words(line: str) -> list[list[str]]:
    return [
        [word.text for word in command.words]
        for pipeline in parse_line(line)
        for command in pipeline.commands
    ]


@pytest.mark.parametrize(
    ("line", "read_as"),
    [
        ("ls", [["ls"]]),
        ("  ls   -la  ", [["ls", "-la"]]),
        ("echo 'a  b' \"c  d\" e'f'\"g\"", [["echo", "a  b", "c  d", "efg"]]),
        ("echo '' \"\"", [["echo", "", ""]]),
        ('echo "it\'s" \'say "hi"\'', [["echo", "it's", 'say "hi"']]),
        (r'echo "a\"b" "c\\d" "e\nf" "g\.h"', [["echo", 'a"b', r"c\d", r"e\nf", r"g\.h"]]),
        (
            "echo '$HOME' '`id`' '\\n' '!x' '~' '#'",
            [["echo", "$HOME", "`id`", "\\n", "!x", "~", "#"]],
        ),
        (
            "echo a#b HEAD~1 HEAD@{1} HEAD^ a=b c:d +%F 50% x@y ]",
            [
                [
                    "echo",
                    "a#b",
                    "HEAD~1",
                    "HEAD@{1}",
                    "HEAD^",
                    "a=b",
                    "c:d",
                    "+%F",
                    "50%",
                    "x@y",
                    "]",
                ]
            ],
        ),
        ("a|b && c||d ; e\nf", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a &&\n\n b |\n c;", [["a"], ["b"], ["c"]]),
        ("\n\na\n\nb\n", [["a"], ["b"]]),
        (
            "find . \\( -name x \\) \\! -name y",
            [["find", ".", "(", "-name", "x", ")", "!", "-name", "y"]],
        ),
        ("test ! -f x", [["test", "!", "-f", "x"]]),
        ("[ a != b ]", [["[", "a", "!=", "b", "]"]]),
        ('echo "really!" "a != b"', [["echo", "really!", "a != b"]]),
        ("cat 日报.md отчёт.txt", [["cat", "日报.md", "отчёт.txt"]]),
        ("/usr/bin/ls", [["/usr/bin/ls"]]),
    ],
)
def test_a_command_line_is_split_into_words(line: str, read_as: list[list[str]]) -> None:
    assert words(line) == read_as


@pytest.mark.parametrize(
    ("line", "operators"),
    [
        ("a", ";"),
        ("a; b", ";;"),
        ("a && b || c\nd", [";", "&&", "||", ";"]),
        ("a | b && c", [";", "&&"]),
    ],
)
def test_pipelines_keep_their_operators(line: str, operators: list[str]) -> None:
    assert [pipeline.operator for pipeline in parse_line(line)] == list(operators)


def test_programs_that_run_at_the_same_time_have_a_bound() -> None:
    assert len(words("|".join(["true"] * MAX_PIPED))) == MAX_PIPED
    assert len(words(";".join(["true"] * 2 * MAX_PIPED))) == 2 * MAX_PIPED
    with pytest.raises(CallRejected, match="more than"):
        parse_line("|".join(["true"] * (MAX_PIPED + 1)))


@pytest.mark.parametrize(
    ("line", "redirects"),
    [
        ("ls >/dev/null", [Redirect(1, NULL)]),
        ("ls 1> /dev/null", [Redirect(1, NULL)]),
        ("ls 2>/dev/null -l", [Redirect(2, NULL)]),
        (">'/dev/null' ls 2>&1", [Redirect(1, NULL), Redirect(2, STDOUT)]),
        ("ls 2>&1 >/dev/null", [Redirect(2, STDOUT), Redirect(1, NULL)]),
        ("ls 2 >/dev/null", [Redirect(1, NULL)]),
        ("ls a2>/dev/null", [Redirect(1, NULL)]),
    ],
)
def test_redirections_to_dev_null_are_accepted(line: str, redirects: list[Redirect]) -> None:
    assert list(parse_line(line)[0].commands[0].redirects) == redirects


def test_one_file_may_be_redirected_to_standard_input() -> None:
    command = parse_line("wc -l < 'a file' -c")[0].commands[0]
    assert command.stdin is not None
    assert (command.stdin.text, [word.text for word in command.words]) == (
        "a file",
        ["wc", "-l", "-c"],
    )


def test_wildcards_are_patterns_outside_quotes_and_literal_inside_quotes() -> None:
    command = (
        parse_line("ls *.md '*.md' a\"*\"?[")[0].commands[0]
        if False
        else parse_line("ls *.md '*.md' a\"*[\"?")[0].commands[0]
    )
    assert [word.pattern for word in command.words] == ["", "*.md", "", "a[*][[]?"]


@pytest.mark.parametrize(
    ("line", "alternative"),
    [
        ("git log --since=$(date +%F)", "--since=yesterday"),
        ("echo $HOME", "single quotes"),
        ("ls &", "nothing runs in the background"),
        ("ls > out", "file_write"),
        ("cat <<EOF", "no here-documents"),
        ("cat notes[12].md", "only * and ?"),
        ("X=1 ls", "write the value"),
        ("ls ~", "relative to the workspace"),
        ("ls # all", "leave comments out"),
        ("echo 'open", "close the quotes"),
        ("for x in a; do ls; done", "one by one"),
        ("ls |& wc", "2>&1 |"),
        ('echo "$x"', "single quotes"),
    ],
)
def test_refusal_shows_the_accepted_spelling(line: str, alternative: str) -> None:
    with pytest.raises(CallRejected) as error:
        parse_line(line)
    assert alternative in error.value.alternative


# Controls, spaces that are none, marks without ink, directions of writing, tags, halves of
# characters, private ones.
_HIDDEN = [
    *map(chr, range(10)),
    *map(chr, range(11, 32)),
    "\x7f",
    "\x85",
    "\xa0",
    "\xad",
    "\u034f",
    "\u115f",
    "\u200b",
]
_HIDDEN += [
    "\u200e",
    "\u2028",
    "\u202e",
    "\u2060",
    "\u2800",
    "\u3000",
    "\u3164",
    "\ufe01",
    "\ufeff",
    "\uffa0",
]
_HIDDEN += ["\U000e0041", "\U000e0100", "\ud800", "\ue000", "\U0010ffff"]


@pytest.mark.parametrize("char", _HIDDEN)
def test_invisible_characters_are_refused_even_in_quotes(char: str) -> None:
    for line in (f"ls{char}-la", f"ls '{char}'", f'ls "{char}"', f"{char}ls"):
        with pytest.raises(CallRejected):
            parse_line(line)


@pytest.mark.parametrize(
    "text", ["；", "ｌs", "n\u043etes.md", "\u2013l", "\u2212l", "“x”", "a\u0300", "pаypal"]
)
def test_ambiguous_characters_must_be_quoted(text: str) -> None:
    with pytest.raises(CallRejected):
        parse_line(f"ls {text}")
    assert words(f"ls '{text}'") == [["ls", text]]


# --- against other readers

_PLAIN = st.text(alphabet="abz09_./,:@%+=-日é", min_size=1, max_size=6)
_QUOTED = st.text(alphabet='ab $`\\"!~#*?[{(&|;<>-é', max_size=6).map(lambda text: f"'{text}'")
_DOUBLE = st.text(alphabet="ab '~#*?[{(&|;<>-é", max_size=6).map(lambda text: f'"{text}"')
_WORD = st.lists(st.one_of(_PLAIN, _QUOTED, _DOUBLE), min_size=1, max_size=4).map("".join)


@scaled_settings(300)
@given(st.lists(_WORD, min_size=1, max_size=5))
def test_plain_and_quoted_words_are_read_as_shlex_reads_them(operands: list[str]) -> None:
    line = "show " + " ".join(operands)
    assert words(line) == [shlex.split(line)]


@scaled_settings(300)
@given(
    st.lists(
        st.text(
            alphabet=st.characters(exclude_categories=["C", "Z"], include_characters=" "),
            max_size=8,
        ),
        max_size=5,
    )
)
def test_words_quoted_by_shlex_are_read_unchanged_or_refused(operands: list[str]) -> None:
    line = shlex.join(["show", *operands])
    try:
        assert words(line) == [["show", *operands]]
    # an apostrophe is quoted by a backslash or holds a hidden character: refused, never misread
    except CallRejected:
        assert not line.isascii() or "'\"'\"'" in line


SHOW = """#!/bin/sh
printf '%s\\0' "$#" "$@" >> "$LOG"
[ "$1" != f ]
"""
_FRAGMENTS = st.sampled_from(
    [
        *(
            "@{1}",
            "a@{u}",
            "@{a,b}",
            "@{1..3}",
            "{1..3}",
            "$'\\x41'",
            '$"a"',
            "$((1))",
            "<<<a",
            "<<f",
            "<(show)",
            ">|a",
            "&",
        ),
        *(
            "[[",
            ";;",
            "\\\n",
            "\t",
            "\r",
            "\u00a0",
            "!!",
            "!-1",
            "**",
            "+(a)",
            "@(a)",
            "a=~",
            "~+",
            ":~",
            "%s",
            "\u2028",
        ),
        *(
            "show",
            "show",
            "show",
            "show a",
            "show f",
            " ",
            " ",
            " ",
            " ",
            "a",
            "f",
            "é",
            "'",
            '"',
            "'x y'",
            '"x y"',
        ),
        *(
            "*",
            "?",
            "a*",
            "./?",
            "|",
            " | show",
            "||",
            " || show",
            "&&",
            " && show",
            ";",
            "; show",
            "\n",
            "\nshow",
        ),
        *(
            "2>&1",
            ">/dev/null",
            " >/dev/null",
            " 2>/dev/null",
            "<in",
            " < in",
            "$",
            "$x",
            "$(show z)",
            "`",
            "\\",
            "\\(",
        ),
        *(
            "\\)",
            "~",
            "~/",
            "!",
            "!=",
            "#",
            " #",
            "{",
            "}",
            "{a,b}",
            "[",
            "[a]",
            "]",
            "(",
            ")",
            "=",
            "x=",
            "&",
            ">",
            "<",
        ),
        *(",", "^", "%", "@", ":", "-", "\t", "\r", "\\n", '\\"', "\\\\", "''", '""'),
    ]
)


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which bash finds the one program `show`, which writes down its words."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash: apt install bash")
    folder = tmp_path_factory.mktemp("bash")
    (folder / "bin").mkdir()
    (folder / "bin" / "show").write_text(SHOW)
    (folder / "bin" / "show").chmod(0o755)
    (folder / "files").mkdir()
    for name in ("a", "ab", "in", "é", ".hidden"):
        (folder / "files" / name).touch()
    return folder


def _run_by_bash(folder: Path, line: str) -> tuple[list[list[str]], int]:
    log = folder / "log"
    log.write_text("")
    env = {
        "PATH": str(folder / "bin"),
        "LOG": str(log),
        "LC_ALL": "C.UTF-8",
        "HOME": "/home/nobody",
    }
    process = subprocess.run(
        [shutil.which("bash") or "bash", "--norc", "--noprofile", "-c", line],
        cwd=folder / "files",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
    )
    calls, words = [], log.read_text("utf-8", "surrogateescape").split("\0")[:-1]
    while words:
        count = int(words[0])
        calls.append(words[1 : count + 1])
        del words[: count + 1]
    return sorted(calls), process.returncode


def _run_by_us(folder: Path, line: str) -> tuple[list[list[str]], int]:
    """Say which calls of `show` a line makes, and its exit code."""
    reach = ReachablePaths.of(folder / "files")
    calls: list[list[str]] = []
    code = 0
    for pipeline in parse_line(line):
        if (pipeline.operator == "&&" and code) or (pipeline.operator == "||" and not code):
            continue
        for command in pipeline.commands:
            argv = [
                expansion.text
                for word in command.words
                for expansion in (reach.expand(word) if word.pattern else (word,))
            ]
            assume(argv[0] != "[")  # built into bash
            if command.stdin is not None and not (folder / "files" / command.stdin.text).is_file():
                code = 1
                continue
            if argv[0] != "show":
                code = 127
                continue
            calls.append(argv[1:])
            code = int(argv[1:2] == ["f"])
    return sorted(calls), code


def _without_dots(calls: list[list[str]]) -> list[list[str]]:
    return [[word.removeprefix("./") for word in call] for call in calls]


@scaled_settings(400)
@given(fragments=st.lists(_FRAGMENTS, min_size=1, max_size=9))
def test_every_accepted_line_is_run_identically_by_bash(bash: Path, fragments: list[str]) -> None:
    line = "show " + "".join(fragments)
    try:
        own_result = _run_by_us(bash, line)
    except CallRejected:
        return
    bash_result = _run_by_bash(bash, line)
    assert (_without_dots(own_result[0]), own_result[1]) == (
        _without_dots(bash_result[0]),
        bash_result[1],
    )
