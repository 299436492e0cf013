"""Tell whether what a program printed is numbers of this machine and nothing else.

Such an output does not taint a run: each word in it is a number, or stands in the list `numbers` of
the program in tables/programs.toml, and no word of the call is an operand. What programs quote
(labels of USB sticks, names of shares, error texts) is in no list.
"""

from __future__ import annotations

import re
from functools import cache

from daemon.policy.lexer import CallRejected, Word, parse_line
from daemon.policy.profiles import program_name, read_only_programs
from daemon.policy.tables import load_table

# A size, a share, a count, a time or a date; `-` is a number that the machine does not know, and a
# machine that has promised more memory than it has shows a negative one.
NUMBER = re.compile(r"-|-?[0-9]{1,20}(?:[.:-][0-9]{1,3}){0,2}[KMGTPEZY]?i?B?%?", re.ASCII)
# An output of more characters is none of a machine's few numbers: a share says itself how large it
# is, and a long row of numbers can spell a text.
MAX_LENGTH = 2_000


@cache
def number_words() -> dict[str, frozenset[str]]:
    """Return the words that may stand between the numbers of a program's output, by program."""
    return {
        name: frozenset(fields["numbers"].split())
        for name, fields in load_table("programs").items()
        if "numbers" in fields
    }


def prints_only_numbers(command: str, output: str) -> bool:
    """Tell whether a command line is one program of the table without operands, and its output
    numbers and words of the program's list only.
    """
    program = _find_program_without_operands(command)
    return program is not None and fits_numbers(number_words()[program], output)


def fits_numbers(words: frozenset[str], output: str) -> bool:
    """Tell whether an output consists of numbers and of `words`."""
    tokens = output.replace("\n", " ").split(" ")
    return len(output) <= MAX_LENGTH and all(
        not token or token in words or NUMBER.fullmatch(token.removesuffix(",")) for token in tokens
    )


def _find_program_without_operands(command: str) -> str | None:
    """Return the program of a line that has one command, options only and no redirection; None for
    any other line.
    """
    try:
        pipelines = parse_line(command)
        if len(pipelines) != 1 or len(pipelines[0].commands) != 1:
            return None
        only_command = pipelines[0].commands[0]
        name = program_name(only_command.words[0].text)
        if name not in number_words() or only_command.redirects or only_command.stdin:
            return None
        for word in only_command.words[1:]:
            if word.pattern or len(word.text) < 2 or word.text[0] != "-" or word.text == "--":
                return None
        read_only_programs()[name].parse_command((Word(name), *only_command.words[1:]))
    except CallRejected:
        return None
    return name
