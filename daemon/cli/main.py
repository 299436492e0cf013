"""agentctl: turn a command line into a call of a verb, and report what goes wrong.

What is imported here is paid for by every call: verbs without arguments are parsed without
argparse, and whatever only one verb needs is imported by that verb.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from daemon.cli.call import (
    DETACHED,
    EXIT_CODE_BY_PROBLEM,
    NOT_SUCCEEDED,
    UNREACHABLE,
    USAGE,
    Call,
    start_command,
)
from daemon.cli.client import ApiError, ConnectionLost, Unreachable
from daemon.cli.standard_output import open_closed_streams, report_write_error
from daemon.cli.verbs import VERBS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `agentctl` and return its exit code."""
    open_closed_streams()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()  # what cannot be written is noticed here, not while Python ends
    except OSError as error:
        return report_write_error(error, "agentctl")


def _run(arguments: list[str]) -> int:
    """Run the verb and report what it raises; return the exit code."""
    try:
        return _run_verb(arguments)
    except Unreachable as error:
        return _report_unreachable(error)
    except ConnectionLost as error:
        sys.stderr.write(f"agentctl: the daemon went away before it had answered ({error})\n")
        return UNREACHABLE
    except ApiError as error:
        return _report_problem(error)
    except KeyboardInterrupt:
        return DETACHED


def _run_verb(arguments: list[str]) -> int:
    """Read the options before the verb, then run the verb."""
    socket, json = None, False
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in ("-h", "--help"):
            arguments.insert(0, "help")
        elif option == "--version":
            arguments.insert(0, "version")
        elif option == "--socket" and arguments:
            socket = arguments.pop(0)
        elif option.startswith("--socket="):
            socket = option.partition("=")[2]
        elif option == "--json":
            json = True
        elif option == "--socket":
            return _report_no_socket()
        else:
            sys.stderr.write(
                f"agentctl: unknown option {option}; `agentctl help` shows what there is\n"
            )
            return USAGE
    name, *arguments = arguments or ["help"]
    if name not in VERBS:
        from daemon.cli.help import report_unknown_verb

        return report_unknown_verb(name)
    verb = VERBS[name]
    options = verb.parse(name, ["--json", *arguments] if json else arguments)
    socket_of_verb = options.pop("socket", None)
    socket = socket if socket_of_verb is None else socket_of_verb
    if socket == "":
        return _report_no_socket()
    call = Call(socket, options)
    try:
        return verb.run(call)
    except ApiError as error:
        raise ApiError(
            error.status, {**error.body, "detail": verb.name_options(str(error))}
        ) from None
    finally:
        call.close()


def _report_no_socket() -> int:
    sys.stderr.write("agentctl: --socket needs a path behind it\n")
    return USAGE


def _report_unreachable(error: Unreachable) -> int:
    sys.stderr.write("agentctl: no daemon answers. Looked at:\n")
    for path, reason in error.attempts:
        sys.stderr.write(f"  {path}: {reason}\n")
    if len(error.attempts) > 1 and _report_holder():
        return UNREACHABLE
    command = start_command()
    is_unit = command.startswith("systemctl ")  # it knows its config
    # with a named socket there is one attempt
    if not is_unit and len(error.attempts) > 1:
        from pathlib import Path

        from daemon.definitions.paths import find_config, user_home

        if find_config(None, os.environ, Path(), user_home()) is None:
            sys.stderr.write(
                f"There is no config yet. `{command} init` writes one to ~/.config/agentd; then\n"
            )
    elif not is_unit:
        command += ", and the --config and --state of the one that was there"
    sys.stderr.write(f"Start it with: {command}\n")
    return UNREACHABLE


def _report_holder() -> bool:
    """Say which process has locked the state folder, as a daemon does before it listens; return
    whether one is known to.

    The kernel is asked: after a crash, the number in the file may be that of any process. Locking
    the file instead could stop a daemon that starts in that moment.
    """
    from pathlib import Path

    from daemon.definitions.paths import find_state, user_home

    state = find_state(os.environ, user_home(), uid=os.getuid())
    try:
        inode = (state / "agentd.lock").stat().st_ino
        # lines such as `8: FLOCK  ADVISORY  WRITE 1183 fe:00:2154933 0 EOF`, see proc_locks(5)
        locks = [line.split() for line in Path("/proc/locks").read_text("ascii").splitlines()]
    except OSError:
        return False
    holders = [
        fields[4]
        for fields in locks
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode)
    ]
    if not holders:
        return False
    holder = holders[0]
    sys.stderr.write(
        f"Process {holder} has the state folder {state}: a daemon that is just starting or ending "
        "(try again in a moment), or one that listens elsewhere (--socket)\n"
    )
    return True


def _report_problem(error: ApiError) -> int:
    from daemon.cli.render import stderr_stream

    err = stderr_stream()
    if faults := error.body.get("faults"):
        sys.stderr.write("agentctl: nothing was changed, as there are faults:\n")
        for fault in faults:
            err.write_prose(fault["text"], begin="  ", indent="    ")
    else:
        err.write_prose(f"agentctl: {error}")
    return EXIT_CODE_BY_PROBLEM.get(error.code, NOT_SUCCEEDED)


if __name__ == "__main__":
    sys.exit(main())
