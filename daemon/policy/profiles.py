"""The profiles a rule of policy.toml may name, and where programs are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

from daemon.policy import git, grammars, programs
from daemon.policy.lexer import Unreadable, Word
from daemon.policy.options import Usage

# Programs are run from here and from nowhere else, whatever PATH says; all of them belong to the system.
TRUSTED = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")

# What models reach for, and what to do here instead.
_INSTEAD = {
    "cd": "every command starts in the workspace; name paths relative to it",
    "env": "the environment is empty but for PATH, HOME, LANG and TZ",
    "printenv": "the environment is empty but for PATH, HOME, LANG and TZ",
    "egrep": "write grep -E",
    "fgrep": "write grep -F",
    "zcat": "compressed files cannot be read here",
    "less": "write cat, head or tail",
    "more": "write cat, head or tail",
    "top": "write ps aux --sort=-pcpu",
    "htop": "write ps aux --sort=-pcpu",
    "netstat": "write ss -tln",
    "ifconfig": "write ip addr",
    "awk": "write cut, sort, uniq and grep, or read the file with file_read",
    "tee": "files are written by the file_write tool",
    "curl": "the network is not reached from the shell",
    "wget": "the network is not reached from the shell",
}


class Allowed(Protocol):
    """How one program may be used: a `Program` of options, or a `Grammar`."""

    @property
    def name(self) -> str: ...
    @property
    def answers(self) -> tuple[int, ...]: ...
    @property
    def excludes(self) -> Callable[[str, bool], Sequence[str]] | None: ...

    def usage(self, words: Sequence[Word]) -> Usage:
        """Say what it would do with these words; raise Unreadable if that may do harm."""
        ...


@cache
def read_only() -> Mapping[str, Allowed]:
    """Return the programs of the profile `read-only`, by name."""
    every: tuple[Allowed, ...] = (*programs.table(), *grammars.GRAMMARS, git.GIT)
    return {each.name: each for each in every}


def program_name(word: str) -> str:
    """Return a program's plain name; raise Unreadable for a path outside the system's folders."""
    folder, slash, name = word.rpartition("/")
    if slash and folder not in TRUSTED:
        raise Unreadable(f"{word} is not run: programs come from {', '.join(TRUSTED)} only", f"write {name}")
    return name


def instead_of(name: str) -> str:
    """Return what to do here instead of running a program that is not allowed, if that is known."""
    return _INSTEAD.get(name, "")
