"""The profile `read-only` that a rule of policy.toml may name, and the folders of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

from daemon.policy import git, grammars, programs
from daemon.policy.lexer import CallRejected, Word
from daemon.policy.options import ParsedCommand
from daemon.policy.tables import load_table

# Programs are run from here and from nowhere else, whatever PATH says; all of them belong to the
# system.
PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")


class ReadOnlyProgram(Protocol):
    """How one program may be used: a `Program` of options, or a `Grammar`."""

    @property
    def name(self) -> str: ...
    @property
    def success_codes(self) -> tuple[int, ...]: ...
    @property
    def exclude_options(self) -> Callable[[str, bool], Sequence[str]] | None: ...

    def parse_command(self, words: Sequence[Word]) -> ParsedCommand:
        """Return what it would do with these words; raise CallRejected if that may do harm."""
        ...


@cache
def read_only_programs() -> Mapping[str, ReadOnlyProgram]:
    """Return the programs of the profile `read-only`, by name."""
    all_programs: tuple[ReadOnlyProgram, ...] = (
        *programs.table_programs(),
        *grammars.GRAMMARS,
        git.GIT,
    )
    return {program.name: program for program in all_programs}


def program_name(word: str) -> str:
    """Return a program's plain name; raise CallRejected for a path outside the system's folders."""
    folder, slash, name = word.rpartition("/")
    if slash and folder not in PROGRAM_FOLDERS:
        raise CallRejected(
            f"{word} is not run: programs come from {', '.join(PROGRAM_FOLDERS)} only",
            f"write {name}",
        )
    return name


def suggest_alternative(name: str) -> str:
    """Return what to do here instead of running a program that is not allowed, if that is known."""
    return str(load_table("words")["alternatives"].get(name, ""))
