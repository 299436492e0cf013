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
    "export": "there are no variables; write the value where it is used",
    "egrep": "write grep -E",
    "fgrep": "write grep -F",
    "zcat": "compressed files cannot be read here",
    "zgrep": "compressed files cannot be read here",
    "tar": "archives cannot be looked into here; ls -l shows how large they are",
    "unzip": "archives cannot be looked into here; ls -l shows how large they are",
    "less": "write cat, head or tail",
    "more": "write cat, head or tail",
    "top": "write ps aux --sort=-pcpu",
    "htop": "write ps aux --sort=-pcpu",
    "pgrep": "write ps -C NAME -o pid,args",
    "pidof": "write ps -C NAME -o pid,args",
    "netstat": "write ss -tln",
    "lsof": "write ss -tlnp for sockets, or find for files",
    "ifconfig": "write ip addr",
    "route": "write ip route",
    "service": "write systemctl status NAME",
    "hostnamectl": "write hostname, or cat /etc/os-release",
    "timedatectl": "write date",
    "mount": "write lsblk, or df -hT",
    "awk": "write cut, sort, uniq and grep, or read the file with file_read",
    "perl": "write grep, cut, sort, tr or jq",
    "python": "write grep, cut, sort, tr or jq",
    "python3": "write grep, cut, sort, tr or jq",
    "bash": "write the commands themselves, joined by | && || ;",
    "sh": "write the commands themselves, joined by | && || ;",
    "xargs": "give the names to the program itself, with * or ?, or use find with -printf",
    "sudo": "leave it out: nothing runs with more rights than these",
    "timeout": "leave it out: every line is ended in time",
    "nohup": "leave it out: nothing outlives its line",
    "watch": "run the command once",
    "sleep": "nothing waits here; the routine's schedule does",
    "tee": "files are written by the file_write tool",
    "cp": "files are written by the file_write tool",
    "mkdir": "file_write makes the folders it needs",
    "touch": "files are written by the file_write tool",
    "curl": "the network is not reached from the shell; http_request asks the hosts that the policy names",
    "wget": "the network is not reached from the shell; http_request asks the hosts that the policy names",
    "ping": "the network is not reached from the shell",
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
