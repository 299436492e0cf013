"""An allow-list of options is read as getopt reads them, but for what may change from one version
to the next.
"""

import shlex

import pytest

from daemon.policy.lexer import CallRejected, Word
from daemon.policy.options import ParsedCommand, Program

TEXT = "-qv -NUM -n:NUM -o?WORD -f:PATH --quiet --lines=NUM --color[=WORD] --pair=TEXT+PATH"
PROGRAM = Program("prog", TEXT, "TEXT PATH*")


def usage(line: str, program: Program = PROGRAM) -> ParsedCommand:
    return program.parse_command([Word(program.name), *map(Word, shlex.split(line))])


@pytest.mark.parametrize(
    "line",
    [
        *(
            "x",
            "-q x",
            "-qv x",
            "-n5 x",
            "-n 5 x",
            "-qn5 x",
            "-qn 5 x",
            "-20 x",
            "-o x",
            "-oabc x",
            "--quiet x",
        ),
        *(
            "--lines=5 x",
            "--lines 5 x",
            "--color x",
            "--color=auto x",
            "x -q y",
            "x y -- -z",
            "-- -x",
            "x -",
        ),
        *("-n -5 x", "-n +5 x", "--pair a b x", "-n5k x"),
    ],
)
def test_listed_options_pass_in_every_form(line: str) -> None:
    assert usage(line).argv == ("prog", *shlex.split(line))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-z x", "prog -z"),
        ("-qz x", "prog -z"),
        ("--other x", "prog --other"),
        ("--quie x", "abbreviation"),
        ("--li=5 x", "abbreviation"),
        ("--quiet=1 x", "takes no value"),
        ("--pair=a b x", "takes no value after ="),
        ("-n", "lacks its value"),
        ("x -n", "lacks its value"),
        ("--lines", "lacks its value"),
        ("--pair a", "lacks its value"),
        ("-n five x", "does not take 'five'"),
        ("--lines=-- x", "does not take '--'"),
        ("-q", "lacks an operand"),
        ("-oa/b x", "does not take 'a/b'"),
        ("--=5 x", "prog --"),
        ("-é x", "prog -é"),
        ("-n -- x", "prog -n --"),
        ("-f -- x", "prog -f --"),
        ("--lines -- x", "prog --lines --"),
        ("--pair a -- x", "prog --pair --"),
        ("--pair -- b x", "prog --pair --"),
    ],
)
def test_unlisted_options_are_refused_by_name(line: str, problem: str) -> None:
    with pytest.raises(CallRejected) as error:
        usage(line)
    assert problem in error.value.problem


def test_the_refusal_of_an_option_names_the_accepted_options() -> None:
    with pytest.raises(CallRejected, match="write --lines"):
        usage("--line 5 x")
    with pytest.raises(CallRejected, match="prog takes -qv"):
        usage("-z x")


def test_files_are_recognized_among_operands_and_option_values() -> None:
    assert usage("x a -f b --pair c d - e").files == ("b", "d", "a", "e")
    assert usage("-fb x").files == ("b",)
    tree = Program("prog", "", "TREE*=.")
    assert usage("a b", tree).trees == ("a", "b")
    assert usage("", tree).trees == (".",)


def test_usage_states_whether_standard_input_is_read() -> None:
    assert usage("x").stdin
    assert usage("x a -").stdin
    assert not usage("x a").stdin
    assert not usage("", Program("prog", "", "PATH*=.")).stdin
    assert not usage("-n x", Program("prog", "-n", "TEXT PATH*", without_input=("-n",))).stdin
    assert usage("x", Program("prog", "", "TEXT", stdin=True)).stdin


def test_too_many_operands_are_refused() -> None:
    with pytest.raises(CallRejected, match="it takes PATH PATH"):
        usage("a b c", Program("prog", "", "PATH PATH"))
    with pytest.raises(CallRejected, match="it takes none"):
        usage("a", Program("prog"))


def test_wildcards_are_accepted_only_for_file_operands() -> None:
    wildcard = Word("./a", pattern="*")
    with pytest.raises(CallRejected, match="would be replaced by file names"):
        PROGRAM.parse_command([Word("prog"), wildcard])
    with pytest.raises(CallRejected, match="would be replaced by file names"):
        PROGRAM.parse_command([Word("prog"), Word("-o"), Word("--lines"), wildcard, Word("x")])
    assert PROGRAM.parse_command([Word("prog"), Word("x"), wildcard]).files == ("./a",)


def test_added_safe_options_stand_first() -> None:
    adding = Program("prog", "-q", "PATH*", safety_options=lambda _: ("--safe",))
    assert usage("a -q -- -b", adding).argv == ("prog", "--safe", "a", "-q", "--", "-b")
    assert usage("a", adding).argv == ("prog", "--safe", "a")


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("x", None),
        ("x -- y", 2),
        ("-q -- x", 2),
        ("x -- y -- z", 2),
        ("-f-- -- x", 2),
        ("-f -x -- -- x", 3),
    ],
)
def test_usage_states_where_options_end(line: str, end: int | None) -> None:
    assert usage(line).options_end == end
    adding = Program("prog", TEXT, "TEXT PATH*", safety_options=lambda _: ("--safe",))
    assert usage(line, adding).options_end == (None if end is None else end + 1)


def test_usage_lists_files_that_must_not_be_folders() -> None:
    comparing = Program("prog", "", "FILE FILE")
    assert (usage("a b", comparing).files, usage("a b", comparing).no_folders) == (
        ("a", "b"),
        ("a", "b"),
    )
    assert usage("- b", comparing).stdin and usage("- b", comparing).no_folders == ("b",)
