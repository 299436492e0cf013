"""The tables of programs say what the programs themselves say, and pass them words they read in one
way.
"""

import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from daemon.policy.grammars import GRAMMARS
from daemon.policy.lexer import CallRejected, Word
from daemon.policy.options import Program
from daemon.policy.profiles import PROGRAM_FOLDERS, read_only_programs
from tests.properties import scaled_settings

PLAIN = [program for program in read_only_programs().values() if isinstance(program, Program)]
PS = next(grammar for grammar in GRAMMARS if grammar.name == "ps")


def test_the_read_only_profile_lists_the_programs_of_a_report() -> None:
    assert len(read_only_programs()) >= 60
    assert {
        "df",
        "free",
        "ps",
        "journalctl",
        "systemctl",
        "git",
        "grep",
        "find",
        "[",
        "jq",
    } <= read_only_programs().keys()


# Options that came or went within the versions named at the top of policy/programs.py, or stand in
# the manual only.
_NOT_TOLD = {
    "--total",
    "--zero",
    "--noempty",
    "--width",
    "--rfc-email",
    "--full",
    "--no-legend",
    "--before",
    "--after",
}


def test_programs_accept_the_long_options_of_their_profile() -> None:
    strange = {}
    for program in PLAIN:
        path = shutil.which(program.name, path=":".join(PROGRAM_FOLDERS))
        if path and program.options:
            process = subprocess.run(
                [path, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            help_text = process.stdout + process.stderr
            # else not the one whose manual was read
            if "GNU" in help_text or "systemctl" in help_text or "journalctl" in help_text:
                strange[program.name] = {
                    name for name in _long_names(program) if name not in help_text
                } - _NOT_TOLD
    assert {name: options for name, options in strange.items() if options} == {}


def _long_names(program: Program) -> list[str]:
    return [
        word.partition("=")[0].rstrip("[")
        for word in program.options.split()
        if word.startswith("--")
    ]


@pytest.mark.parametrize(
    ("line", "files", "trees"),
    [
        ("grep -r x src notes.md", [], ["src", "notes.md"]),
        ("grep -r x", [], ["."]),
        ("grep x notes.md", ["notes.md"], []),
        ("grep -f patterns x", ["patterns", "x"], []),
        ("grep -e x -r", [], ["."]),
        ("rg x", [], ["."]),
        ("rg --files src", [], ["src"]),
        ("diff a b", ["a", "b"], []),
        ("grep -r -e x -- -e", [], ["-e"]),
        ("diff -r a b", [], ["a", "b"]),
        ("jq .a x.json", ["x.json"], []),
        ("jq --slurpfile a b . c", ["b", "c"], []),
        ("ls", ["."], []),
        ("find", ["."], []),
        ("find a b -newer c -samefile d", ["a", "b", "c", "d"], []),
        ("find . -newermt yesterday -newerma e", [".", "e"], []),
        ("test -f a", ["a"], []),
        ("[ a -nt b ]", ["a", "b"], []),
        ("sed -n 1p a", ["a"], []),
        ("sed 1p -n -e 2p", ["1p"], []),
        ("sed -n 1p -e 2p a -", ["1p", "a"], []),
        ("git log -- a", ["a"], []),
        ("git log -p -- a", ["a"], ["a"]),
        ("git log -p", [], ["."]),
        ("git show HEAD:a/b", ["a/b"], ["a/b", "."]),
        ("git show HEAD@{1}:a/b", ["a/b"], ["a/b", "."]),
        ("git diff HEAD~1 a", ["HEAD~1", "a"], ["HEAD~1", "a", "."]),
        ("date -r a", ["a"], []),
    ],
)
def test_profiles_know_which_files_a_program_reads(
    line: str, files: list[str], trees: list[str]
) -> None:
    usage = _usage(line.split())
    assert (list(usage.files), list(usage.trees)) == (files, trees)


def _usage(words: list[str]):  # type: ignore[no-untyped-def]
    return read_only_programs()[words[0]].parse_command([Word(word) for word in words])


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("ps -ef", "ps -Af"),
        ("ps -aux", "ps aux"),
        ("ps -eo pid,args --sort -pid", "ps -A --format=pid,args --sort=-pid"),
        ("ps -fu root", "ps -f --user=root"),
        ("ps axo pid,comm", "ps axo pid,comm"),
        ("diff -r a b", "diff --no-dereference -r a b"),
    ],
)
def test_arguments_of_a_program_are_unambiguous(line: str, argv: str) -> None:
    assert " ".join(_usage(line.split()).argv) == argv


_PS_WORDS = st.sampled_from(
    [
        *(
            "-e",
            "-f",
            "-A",
            "-a",
            "-d",
            "-F",
            "-H",
            "-l",
            "-L",
            "-m",
            "-M",
            "-N",
            "-T",
            "-w",
            "-y",
            "-Z",
            "-j",
            "u",
        ),
        *(
            "x",
            "aux",
            "f",
            "l",
            "v",
            "s",
            "X",
            "S",
            "n",
            "c",
            "T",
            "w",
            "-p",
            "1",
            "-u",
            "root",
            "nobody-here",
            "e",
        ),
        *(
            "-C",
            "sleep",
            "-o",
            "pid,args",
            "-t",
            "-s",
            "-G",
            "-g",
            "--sort=pid",
            "--sort",
            "-q",
            "axo",
            "o",
            "-eo",
        ),
        *(
            "--forest",
            "-ef",
            "-aux",
            "-auxww",
            "--cols",
            "500",
            "-O",
            "k",
            "ae",
            "-efl",
            "-fe",
            "-Af",
            "--pid",
            "-U",
        ),
        *(
            "--user",
            "1,2",
            "--no-headers",
            "--deselect",
            "-pe",
            "-Ce",
            "-se",
            "-ge",
            "-ee",
            "-le",
            "-ue",
            "-auxe",
        ),
        *("exe", "etime"),
    ]
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs ps of procps")
@scaled_settings(80, suppress=[HealthCheck.filter_too_much])
@given(st.lists(_PS_WORDS, min_size=1, max_size=4))
def test_ps_never_shows_an_environment(words: list[str]) -> None:
    ps = shutil.which("ps", path=":".join(PROGRAM_FOLDERS))
    if ps is None:
        pytest.skip("needs ps: apt install procps")
    try:
        argv = PS.parse_command([Word("ps"), *map(Word, words)]).argv
    except CallRejected:
        return
    env = {"PATH": os.defpath, "MARK": "CANARY-OF-AN-ENVIRONMENT"}
    # a program that fits on one line of ps, so that its environment would follow its name
    with subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as program:
        process = subprocess.run(
            [ps, *argv[1:]], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=120
        )
        program.communicate()
    assert b"CANARY-OF-AN-ENVIRONMENT" not in process.stdout
