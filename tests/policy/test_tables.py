"""The tables of programs, options and words that ship are sound: what is misspelt in one is found
here.
"""

import pytest

from daemon.policy import git
from daemon.policy.options import KINDS, OPERAND, OptionTable, Program
from daemon.policy.profiles import read_only_programs
from daemon.policy.tables import load_table, word_list

PROGRAMS = [
    *(program for program in read_only_programs().values() if isinstance(program, Program)),
    *git.subcommands().values(),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_each_option_and_operand_in_the_program_tables_has_a_known_kind(program: Program) -> None:
    for option in OptionTable(program.options, program.negative).options:
        assert option.name.startswith("-")
        assert set(option.kinds) <= KINDS.keys(), option
    if isinstance(program.operands, str):
        matches = [OPERAND.fullmatch(word) for word in program.operands.split()]
        assert all(match and match[1] in KINDS for match in matches), program.operands


def test_each_word_list_of_the_policy_tables_loads() -> None:
    for table, lists in load_table("words").items():
        if table != "alternatives":
            assert all(
                word_list(table, name) for name, text in lists.items() if isinstance(text, str)
            )


def test_alternatives_are_listed_only_for_programs_without_a_profile() -> None:
    assert not load_table("words")["alternatives"].keys() & read_only_programs().keys()
