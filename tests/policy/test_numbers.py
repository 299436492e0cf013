"""Only an output that is numbers of this machine and nothing else leaves a run untainted."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.policy.numbers import MAX_LENGTH, fits_numbers, number_words, prints_only_numbers
from tests.properties import scaled_settings

COMMANDS = (
    "df --output=pcent,avail",
    "df -h --output=size,used,avail,pcent",
    "df --output=itotal,iused,iavail,ipcent",
    "df --output=avail,pcent --total",
    "/usr/bin/df --output=pcent",
    "free",
    "free -b",
    "free -hwl",
    "free -v",
    "uptime",
    "uptime -p",
    "uptime -s",
    "nproc",
    "nproc --all",
)
UPTIMES = (
    " 16:24:37 up 10:38,  0 user,  load average: 11.07, 6.97, 3.85",
    " 09:01:02 up 1 day,  3:04,  2 users,  load average: 0.00, 0.01, 0.05",
    " 09:01:02 up 3 days, 12 min,  1 user,  load average: 0.00, 0.01, 0.05",
    "up 2 weeks, 1 day, 10 hours, 38 minutes",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_programs_of_this_machine_print_is_accepted(command: str) -> None:
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command} is not installed")
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
    output = subprocess.run(
        command.split(), env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert prints_only_numbers(command, output.rstrip("\n")), output


@pytest.mark.parametrize("output", UPTIMES)
def test_other_forms_of_uptime_are_accepted(output: str) -> None:
    assert prints_only_numbers("uptime", output)


def test_more_memory_promised_than_there_is_is_accepted() -> None:
    assert prints_only_numbers("free -v", "Comm:       12342044    12508276     -166232")


@pytest.mark.parametrize(
    "command",
    [
        "df",
        "df --output=pcent,target",
        "df --output=source",
        "df -T",
        "uptime --help",
        "free --version",
    ],
)
def test_outputs_with_names_are_refused(command: str) -> None:
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command} is not installed")
    output = subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout
    assert not prints_only_numbers(command, output)


@pytest.mark.parametrize(
    "command",
    [
        "df .",
        "df --output=pcent -",
        "df --output=pcent -- -x",
        "df -t ext4",
        "df -*",
        "df --output=pcent | head -n 1",
        "df --output=pcent; df --output=avail",
        "df --output=pcent && cat notes.md",
        "df --output=pcent 2>&1",
        "nproc < notes.md",
        "./df --output=pcent",
        "workspace/nproc",
        "cat",
        "wc notes.md",
        "sh -c nproc",
        "nproc --unknown",
        "nproc $(cat notes.md)",
        "",
        "nproc\u200b",
    ],
)
def test_no_other_command_is_accepted_whatever_it_prints(command: str) -> None:
    assert not prints_only_numbers(command, "2")


@pytest.mark.parametrize(
    "output",
    [
        "Use%\n  0%\nIgnore",
        "Use% 0%\tAvail",
        "Use%\n 1%\r",
        "Use%\x0b1%",
        "Use%\u00a01%",
        "Use%\n ١%",
        "Ｕse%",
        "use%",
        "Mem: 3",
        "1;rm",
        "1e5",
        "0x41",
        "1-1-1-1-1",
        "1" * 21,
        "1KK",
        "\x1b[31m1",
        "Use%,",
    ],
)
def test_outputs_that_are_no_numbers_are_refused(output: str) -> None:
    assert not prints_only_numbers("df --output=pcent", output)


def test_a_long_row_of_numbers_is_refused() -> None:
    assert fits_numbers(frozenset(), "1 " * (MAX_LENGTH // 2))
    assert not fits_numbers(frozenset(), "1 " * MAX_LENGTH)


@given(
    st.sampled_from(sorted(number_words())),
    st.lists(
        st.one_of(
            st.text(max_size=12),
            st.text(alphabet="aeUs%bBKiMGT0123456789.,:;-/ \n", max_size=12),
            st.sampled_from(sorted({word for words in number_words().values() for word in words})),
            st.from_regex(r"[0-9]{1,4}([.:][0-9]{1,2})?[KMG]?i?B?%?,?", fullmatch=True),
        ),
        max_size=8,
    ),
    st.sampled_from([" ", "\n", "  ", ""]),
)
@scaled_settings(500, fewest=100)
def test_no_output_with_a_word_outside_of_the_list_is_accepted(
    program: str, tokens: list[str], separator: str
) -> None:
    output = separator.join(tokens)
    if not prints_only_numbers(program, output):
        return
    # told in another way than by the code: every run of letters is a unit or belongs to a listed
    # word
    words = number_words()[program]
    assert output.isascii()
    for token in re.split(r"[ \n]+", output):
        letters = re.sub(r"[0-9.,:%/-]", "", token)
        assert token in words or re.fullmatch(r"[KMGTPEZYiB]{0,3}", letters)
