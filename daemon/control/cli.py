"""agentctl: a table of verbs, and how a command line becomes a call of one.

What is imported here is paid for by every call: verbs without arguments go without argparse, and whatever only one verb
needs is imported by that verb.
"""

from __future__ import annotations

import errno
import os
import sys

from daemon.control import verbs
from daemon.control.call import (
    DETACHED,
    DONE,
    EXIT_CODES,
    NOT_SUCCEEDED,
    OF_PROBLEM,
    UNREACHABLE,
    USAGE,
    Call,
    exit_code_of,
    start_command,
)
from daemon.control.client import Lost, Problem, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Option: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]

__all__ = ["VERBS", "exit_code_of", "main"]

# Options as argparse takes them: names, and the rest.
ROUTINE = (("routine",), {"metavar": "ROUTINE", "help": "a routine's name"})
ANY_ROUTINE = (("routine",), {"metavar": "ROUTINE", "nargs": "?", "help": "of this routine only"})
RUN = (
    ("run",),
    {"metavar": "RUN", "help": "a run's id, its end is enough; a routine: its last run; or last"},
)
APPROVAL = (("approval",), {"metavar": "ID", "help": "an approval's id; its end is enough"})
TEXT = (("text",), {"metavar": "TEXT", "nargs": "*", "help": "what to say, as it is; without it: what a pipe brings"})
DETACH = (("--detach",), {"action": "store_true", "help": "print the run's id and do not wait"})
FULL = (("--full",), {"action": "store_true", "help": "fold nothing"})


def _number(default: int, what: str) -> Option:
    about = f"{what}; default {default}"
    return ("-n", "--limit"), {"metavar": "N", "type": int, "default": default, "help": about}


class Verb:
    """What a verb does and which options it takes."""

    def __init__(self, act: Callable[[Call], int], about: str, *options: Option, raw: bool = False) -> None:
        self.act, self.about, self.options = act, about, options
        self.raw = raw
        """It reads its arguments itself."""

    def read(self, name: str, words: list[str]) -> dict[str, Any]:
        """Return the options of a command line; ends the process with a usage message where it is wrong."""
        if self.raw:
            socket = _take_socket(words)
            return {"rest": words, "json": "--json" in words, "socket": socket}
        needs = any(not names[0].startswith("-") and "nargs" not in how for names, how in self.options)
        if not needs and all(word == "--json" for word in words):
            return {_option(names): how.get("default") for names, how in self.options} | {"json": bool(words)}
        from daemon.control.parser import Parser

        parser = Parser(prog=f"agentctl {name}", description=self.about, allow_abbrev=False)
        for names, how in self.options:
            parser.add_argument(*names, **how)
        parser.add_argument("--json", action="store_true", help="what the daemon answered, as it is")
        parser.add_argument("--socket", metavar="PATH", help="where the daemon listens")
        return vars(parser.parse_args(words))


def _take_socket(words: list[str]) -> str | None:
    """Take `--socket PATH` out of a command line whose other words somebody else will read."""
    for place, word in enumerate(words):
        if word == "--socket" and place + 1 < len(words):
            path = words[place + 1]
            del words[place : place + 2]
            return path
        if word.startswith("--socket="):
            del words[place]
            return word.partition("=")[2]
    return None


def _option(names: tuple[str, ...]) -> str:
    return names[-1].lstrip("-").replace("-", "_")


def show_help(call: Call) -> int:
    """Tell which verbs there are, or how one is used."""
    wanted = [word for word in call.rest if not word.startswith("-")]
    if wanted and wanted[0] in VERBS:
        verb = VERBS[wanted[0]]
        if verb.raw and wanted[0] != "help":
            return verb.act(Call(call.socket, {"rest": ["--help"]}))
        verb.read(wanted[0], ["--help"])  # prints, and ends the process
    if wanted and wanted[0] not in VERBS:
        return _say_unknown(wanted[0])
    call.out.say("agentctl speaks to the agentd of this user.\n\nagentctl [--socket PATH] [--json] VERB …\n")
    for name, verb in VERBS.items():
        call.out.say(f"  {name:<12}{verb.about}")
    say_more = "`agentctl help VERB` shows a verb's options and examples; --json prints what the daemon answered."
    call.out.say(f"\n{say_more}\n\nExample:\n  agentctl help run\n\nExit codes:")
    for code, about in EXIT_CODES:
        call.out.say(f"  {code}  {about}")
    return DONE


VERBS = {
    "status": Verb(verbs.status, "how the daemon is"),
    "list": Verb(verbs.list_routines, "every routine: when it runs, how it last went"),
    "show": Verb(verbs.show, "one routine in full", ROUTINE),
    "preview": Verb(verbs.preview, "what a run of it would be told, and how long that is", ROUTINE, FULL),
    "next": Verb(
        verbs.next_starts,
        "what runs next",
        ANY_ROUTINE,
        (("-n", "--limit"), {"metavar": "N", "type": int, "help": "how many; default 10, or all with --days"}),
        (("--days",), {"metavar": "N", "type": int, "help": "all within so many days"}),
        (("--ics",), {"action": "store_true", "help": "as a calendar (iCalendar); of 30 days unless told otherwise"}),
    ),
    "why": Verb(
        verbs.why,
        "why a slot ran or did not, in one sentence",
        ROUTINE,
        (
            ("--at",),
            {"metavar": "TIME", "help": 'which slot: 09:00, "yesterday 09:00", 2026-11-20T09:00'},
        ),
    ),
    "run": Verb(
        verbs.run,
        "run a routine now, and print its report",
        ROUTINE,
        DETACH,
    ),
    "ask": Verb(
        verbs.ask,
        "ask the agent something, in a conversation that goes on",
        TEXT,
        (("--session",), {"metavar": "NAME", "help": "which conversation; default: one that all share"}),
        (("--new",), {"action": "store_true", "help": "begin it anew, and take this for no run under way"}),
        DETACH,
    ),
    "tell": Verb(verbs.tell, "tell a run something; an ended one is asked anew", RUN, TEXT, DETACH),
    "runs": Verb(
        verbs.runs,
        "past and present runs",
        ANY_ROUTINE,
        (("--status",), {"metavar": "STATUS", "help": "in this status only"}),
        _number(20, "how many"),
    ),
    "inspect": Verb(
        verbs.inspect,
        "one run in full: prompt, calls, verdicts, usage",
        RUN,
        FULL,
        (("-f", "--follow"), {"action": "store_true", "help": "follow it live, and print its report"}),
        (("--html",), {"metavar": "FILE", "help": "write it as a page that needs nothing besides itself"}),
    ),
    "replay": Verb(
        verbs.replay,
        "play a run, or a frozen one, again: identical, or where they part",
        (("run",), {"metavar": "RUN|DIR", "help": "a run's id, a routine (its last run), last, or a frozen run"}),
        (("--model",), {"metavar": "NAME", "help": "really ask this one: a provider, or a model of the run's own"}),
        (("--prompt",), {"metavar": "FILE", "help": "another task, with which the model is really asked"}),
        (("--policy",), {"metavar": "FILE", "help": "judge its calls by another policy"}),
    ),
    "rehearse": Verb(
        verbs.rehearse,
        "try a routine: the real model looks; what it would do is shown, not done",
        (("routine",), {"metavar": "ROUTINE", "nargs": "?", "help": "a routine's name"}),
        (("--approve",), {"metavar": "RUN", "help": "let the routine run as it was rehearsed there"}),
    ),
    "freeze": Verb(
        verbs.freeze,
        "write a run into a folder: a regression case that needs nothing else",
        RUN,
        (("folder",), {"metavar": "DIR", "help": "a new folder"}),
    ),
    "logs": Verb(verbs.logs, "the log; -f follows it, works without a daemon too", raw=True),
    "events": Verb(
        verbs.events,
        "what runs do, as it happens; Ctrl-C ends it",
        ANY_ROUTINE,
        (("-f", "--follow"), {"action": "store_true", "help": "as it does anyway"}),
    ),
    "cancel": Verb(verbs.cancel, "stop a run", RUN),
    "pause": Verb(
        verbs.pause,
        "let no slot of a routine start",
        ROUTINE,
        (
            ("--until",),
            {"metavar": "TIME", "help": 'then it goes on: 2h, 18:00, "tomorrow 09:00", 2026-11-20'},
        ),
    ),
    "resume": Verb(
        verbs.resume,
        "let a paused routine go on; --all: every one, as after a restore",
        (("routine",), {"metavar": "ROUTINE", "nargs": "?", "help": "a routine's name"}),
        (("--all",), {"action": "store_true", "default": False, "help": "every paused routine"}),
    ),
    "slots": Verb(verbs.slots, "what became of each scheduled moment", ANY_ROUTINE, _number(20, "how many")),
    "deliveries": Verb(
        verbs.deliveries,
        "where reports went; retry ID sends one again, drop ID gives it up",
        (("act",), {"metavar": "retry|drop", "nargs": "?", "choices": ["retry", "drop"], "help": "do so with ID"}),
        (("id",), {"metavar": "ID", "nargs": "?", "type": int, "help": "a delivery's number, as the list shows it"}),
        (("--run",), {"metavar": "RUN", "help": "of this run only"}),
        (("--status",), {"metavar": "STATUS", "help": "in this status only"}),
        _number(20, "how many"),
    ),
    "incidents": Verb(
        verbs.incidents,
        "what is wrong: one line per cause, however often it happened",
        (("--all",), {"action": "store_true", "default": False, "help": "also what is over"}),
        _number(20, "how many"),
    ),
    "ack": Verb(
        verbs.ack,
        "say that you know of an incident: no more reminders until it is over",
        (("id",), {"metavar": "ID", "type": int, "help": "its number, as `agentctl incidents` shows it"}),
    ),
    "usage": Verb(
        verbs.usage,
        "what models were paid: calls, tokens, dollars; where the caps stand",
        (("--by",), {"metavar": "KEY", "default": "routine", "help": "routine (default), model or day"}),
        (("--days",), {"metavar": "N", "type": int, "default": 30, "help": "of the last so many days; default 30"}),
    ),
    "approvals": Verb(
        verbs.approvals,
        "calls that wait for your word",
        (("--all",), {"action": "store_true", "help": "answered ones, too"}),
        (("--remembered",), {"action": "store_true", "help": "what is allowed for good instead"}),
        (("--revoke",), {"metavar": "ID", "help": "take back what was allowed for good"}),
    ),
    "approve": Verb(
        verbs.approve,
        "allow a call: once, or with --remember for good",
        APPROVAL,
        (("--remember",), {"action": "store_true", "help": "for good: shows what would be written, and asks"}),
        (("--yes",), {"action": "store_true", "help": "do not ask"}),
    ),
    "reject": Verb(verbs.reject, "refuse a call; its run goes on without it", APPROVAL),
    "policy": Verb(
        verbs.policy, "check, explain, test, backtest or suggest the policy, without a daemon too", raw=True
    ),
    "quarantine": Verb(
        verbs.quarantine,
        "texts that were kept from the models",
        (("text",), {"metavar": "ID", "nargs": "?", "help": "show this one"}),
        _number(20, "how many"),
    ),
    "audit": Verb(
        verbs.audit,
        "every call and verdict; --verify proves that none was changed",
        (("--run",), {"metavar": "RUN", "help": "of this run only"}),
        (("--verify",), {"action": "store_true", "help": "walk the chain of hashes from the first row"}),
        _number(50, "how many"),
    ),
    "seen": Verb(
        verbs.seen,
        "what a routine with [dedupe] has reported; forget KEY: it may again",
        ROUTINE,
        (("act",), {"metavar": "forget", "nargs": "?", "choices": ["forget"], "help": "forget KEY, or with --all all"}),
        (("key",), {"metavar": "KEY", "nargs": "?", "help": "an item's key, as the list shows it"}),
        (("--all",), {"action": "store_true", "default": False, "help": "whatever it has reported"}),
        _number(20, "how many"),
    ),
    "memory": Verb(verbs.memory, "search what runs left behind; forget, pin, export it", raw=True),
    "new": Verb(verbs.new, 'write a routine: new NAME "weekdays at 9am", without a daemon too', raw=True),
    "top": Verb(verbs.top, "what runs, waits and is next, live; q quits"),
    "ui": Verb(
        verbs.page,
        "a page to look at, in a browser of this machine",
        (("--port",), {"metavar": "PORT", "type": int, "default": 0, "help": "a loopback port; default: any free one"}),
    ),
    "completion": Verb(
        verbs.completion,
        "what bash, zsh or fish offers after TAB",
        (("shell",), {"metavar": "SHELL", "help": "bash, zsh or fish"}),
    ),
    "forecast": Verb(
        verbs.forecast,
        "what the coming days will take: tokens, dollars, time; caps, collisions",
        (("--days",), {"metavar": "N", "type": int, "default": 30, "help": "how many; default 30"}),
    ),
    "metrics": Verb(
        verbs.metrics,
        "numbers for Prometheus; --textfile for its node_exporter",
        (("--textfile",), {"metavar": "FILE", "help": "put them there at once or not at all, readable for everybody"}),
    ),
    "backup": Verb(verbs.backup, "copy all it knows into one file, while it runs, without a daemon too", raw=True),
    "restore": Verb(verbs.restore, "put a backup back; everything stands still until resume --all", raw=True),
    "service": Verb(verbs.service, "install or uninstall a systemd unit, shown first", raw=True),
    "export": Verb(verbs.export, "routines with their history, for another machine, without a daemon too", raw=True),
    "import": Verb(verbs.import_, "take in what was exported elsewhere, while no daemon runs", raw=True),
    "rename": Verb(
        verbs.rename,
        "give a routine another name; its history goes along",
        ROUTINE,
        (("to",), {"metavar": "NEW", "help": "its new name"}),
    ),
    "adopt": Verb(verbs.adopt, "make a routine yours that an agent made", ROUTINE),
    "remove": Verb(verbs.remove, "remove a routine that an agent made", ROUTINE),
    "reload": Verb(verbs.reload, "read config, policy and routines again"),
    "validate": Verb(verbs.validate, "check config, policy and routines, without a daemon too", raw=True),
    "doctor": Verb(verbs.doctor, "look for what is wrong here, without a daemon too", raw=True),
    "version": Verb(verbs.version, "which version this is, and which one the daemon"),
    "help": Verb(show_help, "this, or a verb's options", raw=True),
}


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
        # whoever read our output has seen enough (`agentctl runs | head`); Python would complain at exit
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
            sys.stderr.write(f"agentctl: unknown option {flag}; `agentctl help` shows what there is\n")
            return USAGE
    name, *rest = words or ["help"]
    if name not in VERBS:
        return _say_unknown(name)
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

        from daemon.places import find_config, user_home

        if find_config(None, os.environ, Path(), user_home()) is None:
            sys.stderr.write(f"There is no config yet. `{command} init` writes one to ~/.config/agentd; then\n")
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


def _say_unknown(name: str) -> int:
    from difflib import get_close_matches

    near = get_close_matches(name, VERBS, 1)
    told = f"did you mean {near[0]!r}?" if near else "`agentctl help` shows what there is"
    sys.stderr.write(f"agentctl: there is no verb {name!r}; {told}\n")
    return USAGE


if __name__ == "__main__":
    sys.exit(main())
