"""The tables of programs, options and words that ship are sound: what is misspelt in one is found
here.
"""

import pytest

from daemon.policy import git
from daemon.policy.options import KINDS, OPERAND, OptionTable, Program
from daemon.policy.profiles import read_only
from daemon.policy.tables import load_table, word_list

PROGRAMS = [
    *(program for program in read_only().values() if isinstance(program, Program)),
    *git.subcommands().values(),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_each_option_and_operand_of_a_program_is_of_a_kind_that_exists(program: Program) -> None:
    for option in OptionTable(program.options, program.negative).options:
        assert option.name.startswith("-")
        assert set(option.kinds) <= KINDS.keys(), option
    if isinstance(program.operands, str):
        matches = [OPERAND.fullmatch(word) for word in program.operands.split()]
        assert all(match and match[1] in KINDS for match in matches), program.operands


def test_each_list_of_words_can_be_read() -> None:
    for table, lists in load_table("words").items():
        if table != "instead":
            assert all(
                word_list(table, name) for name, text in lists.items() if isinstance(text, str)
            )


def test_what_is_said_instead_of_a_program_is_about_programs_that_are_not_allowed() -> None:
    assert not load_table("words")["instead"].keys() & read_only().keys()
