"""agentctl: how a command line becomes a call of a verb, and what is said when that goes wrong.

What is imported here is paid for by every call: verbs without arguments go without argparse, and
whatever only one verb needs is imported by that verb.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from daemon.cli.call import (
    DETACHED,
    NOT_SUCCEEDED,
    OF_PROBLEM,
    UNREACHABLE,
    USAGE,
    Call,
    start_command,
)
from daemon.cli.client import Lost, Problem, Unreachable
from daemon.cli.verbs import VERBS

# What writing to stdout may come to: `agentctl runs > file` on a full disk, or beyond a limit.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `agentctl` and return its exit code."""
    # None where the caller has closed them (`agentctl run x >&-`)
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except Unreachable as error:
        return _say_unreachable(error)
    except Lost as error:
        sys.stderr.write(f"agentctl: the daemon went away before it had answered ({error})\n")
        return UNREACHABLE
    except Problem as error:
        return _say_problem(error)
    except BrokenPipeError:
        # whoever read our output has seen enough (`agentctl runs | head`); Python would complain at
        # exit
        _say_no_more()
        return NOT_SUCCEEDED
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        _say_no_more()
        sys.stderr.write(f"agentctl: what it has to say cannot be written: {error.strerror}\n")
        return NOT_SUCCEEDED
    except KeyboardInterrupt:
        return DETACHED


def _say_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(words: list[str]) -> int:
    socket, json = None, False
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in ("-h", "--help"):
            words.insert(0, "help")
        elif flag == "--version":
            words.insert(0, "version")
        elif flag == "--socket" and words:
            socket = words.pop(0)
        elif flag.startswith("--socket="):
            socket = flag.partition("=")[2]
        elif flag == "--json":
            json = True
        elif flag == "--socket":
            sys.stderr.write("agentctl: --socket needs a path behind it\n")
            return USAGE
        else:
            sys.stderr.write(
                f"agentctl: unknown option {flag}; `agentctl help` shows what there is\n"
            )
            return USAGE
    name, *rest = words or ["help"]
    if name not in VERBS:
        from daemon.cli.help import say_unknown

        return say_unknown(name)
    verb = VERBS[name]
    options = verb.read(name, ["--json", *rest] if json else rest)
    code = verb.act(Call(options.pop("socket", None) or socket, options))
    sys.stdout.flush()  # a reader that has gone away is noticed here, not while Python ends
    return code


def _say_unreachable(error: Unreachable) -> int:
    sys.stderr.write("agentctl: no daemon answers. Looked at:\n")
    for path, why in error.tried:
        sys.stderr.write(f"  {path}: {why}\n")
    command = start_command()
    if (
        command.endswith("agentd") and len(error.tried) > 1
    ):  # no socket is named, no unit is installed, which would know its config
        from pathlib import Path

        from daemon.definitions.paths import find_config, user_home

        if find_config(None, os.environ, Path(), user_home()) is None:
            sys.stderr.write(
                f"There is no config yet. `{command} init` writes one to ~/.config/agentd; then\n"
            )
    sys.stderr.write(f"Start it with: {command}\n")
    return UNREACHABLE


def _say_problem(error: Problem) -> int:
    if faults := error.body.get("faults"):
        sys.stderr.write("agentctl: nothing was changed, as there are faults:\n")
        for fault in faults:
            sys.stderr.write(f"  {fault['text']}\n")
    else:
        sys.stderr.write(f"agentctl: {error}\n")
    return OF_PROBLEM.get(error.code, NOT_SUCCEEDED)


if __name__ == "__main__":
    sys.exit(main())
