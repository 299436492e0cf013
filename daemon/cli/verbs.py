"""The table of verbs: what each is for, which options it takes and where it is done."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from daemon.cli.call import Call

Option: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]

# Options as argparse takes them: names, and the rest.
ROUTINE = (("routine",), {"metavar": "ROUTINE", "help": "a routine's name"})
ANY_ROUTINE = (("routine",), {"metavar": "ROUTINE", "nargs": "?", "help": "of this routine only"})
RUN = (
    ("run",),
    {"metavar": "RUN", "help": "a run's id, its end is enough; a routine: its last run; or last"},
)
APPROVAL = (("approval",), {"metavar": "ID", "help": "an approval's id; its end is enough"})
TEXT = (
    ("text",),
    {
        "metavar": "TEXT",
        "nargs": "*",
        "help": "what to say, as it is; without it: what a pipe brings",
    },
)
DETACH = (("--detach",), {"action": "store_true", "help": "print the run's id and do not wait"})
FULL = (("--full",), {"action": "store_true", "help": "fold nothing"})


def _number(default: int, what: str) -> Option:
    about = f"{what}; default {default}"
    return ("-n", "--limit"), {"metavar": "N", "type": int, "default": default, "help": about}


def function_at(place: str) -> Callable[..., Any]:
    """Return the function of a place such as `cli.ask:tell`; its module, beneath `daemon`, is
    imported.
    """
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"daemon.{module}"), name)
    return function


class Verb:
    """What a verb does and which options it takes."""

    def __init__(self, place: str, about: str, *options: Option, raw: bool = False) -> None:
        """`place`: the module beneath daemon/ and its function, as `cli.ask:tell`; imported when it
        is wanted.
        """
        self.place, self.about, self.options = place, about, options
        self.raw = raw
        """It reads its arguments itself."""

    def act(self, call: Call) -> int:
        """Do it; return the exit code."""
        code: int = function_at(self.place)(call)
        return code

    def read(self, name: str, words: list[str]) -> dict[str, Any]:
        """Return the options of a command line; ends the process with a usage message where it is
        wrong.
        """
        if self.raw:
            socket = _take_socket(words)
            return {"rest": words, "json": "--json" in words, "socket": socket}
        needs = any(
            not names[0].startswith("-") and "nargs" not in how for names, how in self.options
        )
        if not needs and all(word == "--json" for word in words):
            return {_option(names): how.get("default") for names, how in self.options} | {
                "json": bool(words)
            }
        from daemon.cli.parser import Parser

        parser = Parser(prog=f"agentctl {name}", description=self.about, allow_abbrev=False)
        for names, how in self.options:
            parser.add_argument(*names, **how)
        parser.add_argument(
            "--json", action="store_true", help="what the daemon answered, as it is"
        )
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


VERBS = {
    "status": Verb("cli.overview:status", "how the daemon is"),
    "list": Verb("cli.overview:list_routines", "every routine: when it runs, how it last went"),
    "show": Verb("cli.overview:show", "one routine in full", ROUTINE),
    "preview": Verb(
        "cli.overview:preview",
        "what a run of it would be told, and how long that is",
        ROUTINE,
        FULL,
    ),
    "next": Verb(
        "cli.schedule:next_starts",
        "what runs next",
        ANY_ROUTINE,
        (
            ("-n", "--limit"),
            {"metavar": "N", "type": int, "help": "how many; default 10, or all with --days"},
        ),
        (("--days",), {"metavar": "N", "type": int, "help": "all within so many days"}),
        (
            ("--ics",),
            {
                "action": "store_true",
                "help": "as a calendar (iCalendar); of 30 days unless told otherwise",
            },
        ),
    ),
    "why": Verb(
        "cli.schedule:why",
        "why a slot ran or did not, in one sentence",
        ROUTINE,
        (
            ("--at",),
            {"metavar": "TIME", "help": 'which slot: 09:00, "yesterday 09:00", 2026-11-20T09:00'},
        ),
    ),
    "run": Verb(
        "cli.follow:run",
        "run a routine now, and print its report",
        ROUTINE,
        DETACH,
    ),
    "ask": Verb(
        "cli.ask:ask",
        "ask the agent something, in a conversation that goes on",
        TEXT,
        (
            ("--session",),
            {"metavar": "NAME", "help": "which conversation; default: one that all share"},
        ),
        (
            ("--new",),
            {"action": "store_true", "help": "begin it anew, and take this for no run under way"},
        ),
        DETACH,
    ),
    "tell": Verb(
        "cli.ask:tell", "tell a run something; an ended one is asked anew", RUN, TEXT, DETACH
    ),
    "runs": Verb(
        "cli.overview:runs",
        "past and present runs",
        ANY_ROUTINE,
        (("--status",), {"metavar": "STATUS", "help": "in this status only"}),
        _number(20, "how many"),
    ),
    "inspect": Verb(
        "cli.overview:inspect",
        "one run in full: prompt, calls, verdicts, usage",
        RUN,
        FULL,
        (
            ("-f", "--follow"),
            {"action": "store_true", "help": "follow it live, and print its report"},
        ),
        (
            ("--html",),
            {"metavar": "FILE", "help": "write it as a page that needs nothing besides itself"},
        ),
    ),
    "replay": Verb(
        "cli.replay:replay",
        "play a run, or a frozen one, again: identical, or where they part",
        (
            ("run",),
            {
                "metavar": "RUN|DIR",
                "help": "a run's id, a routine (its last run), last, or a frozen run",
            },
        ),
        (
            ("--model",),
            {
                "metavar": "NAME",
                "help": "really ask this one: a provider, or a model of the run's own",
            },
        ),
        (
            ("--prompt",),
            {"metavar": "FILE", "help": "another task, with which the model is really asked"},
        ),
        (("--policy",), {"metavar": "FILE", "help": "judge its calls by another policy"}),
    ),
    "rehearse": Verb(
        "cli.rehearse:rehearse",
        "try a routine: the real model looks; what it would do is shown, not done",
        (("routine",), {"metavar": "ROUTINE", "nargs": "?", "help": "a routine's name"}),
        (
            ("--approve",),
            {"metavar": "RUN", "help": "let the routine run as it was rehearsed there"},
        ),
    ),
    "freeze": Verb(
        "cli.replay:freeze",
        "write a run into a folder: a regression case that needs nothing else",
        RUN,
        (("folder",), {"metavar": "DIR", "help": "a new folder"}),
    ),
    "logs": Verb(
        "app.commands.logs:logs", "the log; -f follows it, works without a daemon too", raw=True
    ),
    "events": Verb(
        "cli.events:events",
        "what runs do, as it happens; Ctrl-C ends it",
        ANY_ROUTINE,
        (("-f", "--follow"), {"action": "store_true", "help": "as it does anyway"}),
    ),
    "cancel": Verb("cli.actions:cancel", "stop a run", RUN),
    "pause": Verb(
        "cli.schedule:pause",
        "let no slot of a routine start",
        ROUTINE,
        (
            ("--until",),
            {"metavar": "TIME", "help": 'then it goes on: 2h, 18:00, "tomorrow 09:00", 2026-11-20'},
        ),
    ),
    "resume": Verb(
        "cli.actions:resume",
        "let a paused routine go on; --all: every one, as after a restore",
        (("routine",), {"metavar": "ROUTINE", "nargs": "?", "help": "a routine's name"}),
        (("--all",), {"action": "store_true", "default": False, "help": "every paused routine"}),
    ),
    "slots": Verb(
        "cli.overview:slots",
        "what became of each scheduled moment",
        ANY_ROUTINE,
        _number(20, "how many"),
    ),
    "deliveries": Verb(
        "cli.actions:deliveries",
        "where reports went; retry ID sends one again, drop ID gives it up",
        (
            ("act",),
            {
                "metavar": "retry|drop",
                "nargs": "?",
                "choices": ["retry", "drop"],
                "help": "do so with ID",
            },
        ),
        (
            ("id",),
            {
                "metavar": "ID",
                "nargs": "?",
                "type": int,
                "help": "a delivery's number, as the list shows it",
            },
        ),
        (("--run",), {"metavar": "RUN", "help": "of this run only"}),
        (("--status",), {"metavar": "STATUS", "help": "in this status only"}),
        _number(20, "how many"),
    ),
    "incidents": Verb(
        "cli.incidents:incidents",
        "what is wrong: one line per cause, however often it happened",
        (("--all",), {"action": "store_true", "default": False, "help": "also what is over"}),
        _number(20, "how many"),
    ),
    "ack": Verb(
        "cli.incidents:ack",
        "say that you know of an incident: no more reminders until it is over",
        (
            ("id",),
            {"metavar": "ID", "type": int, "help": "its number, as `agentctl incidents` shows it"},
        ),
    ),
    "usage": Verb(
        "cli.usage:usage",
        "what models were paid: calls, tokens, dollars; where the caps stand",
        (
            ("--by",),
            {"metavar": "KEY", "default": "routine", "help": "routine (default), model or day"},
        ),
        (
            ("--days",),
            {
                "metavar": "N",
                "type": int,
                "default": 30,
                "help": "of the last so many days; default 30",
            },
        ),
    ),
    "approvals": Verb(
        "cli.approvals:approvals",
        "calls that wait for your word",
        (("--all",), {"action": "store_true", "help": "answered ones, too"}),
        (("--remembered",), {"action": "store_true", "help": "what is allowed for good instead"}),
        (("--revoke",), {"metavar": "ID", "help": "take back what was allowed for good"}),
    ),
    "approve": Verb(
        "cli.approvals:approve",
        "allow a call: once, or with --remember for good",
        APPROVAL,
        (
            ("--remember",),
            {"action": "store_true", "help": "for good: shows what would be written, and asks"},
        ),
        (("--yes",), {"action": "store_true", "help": "do not ask"}),
    ),
    "reject": Verb("cli.approvals:reject", "refuse a call; its run goes on without it", APPROVAL),
    "policy": Verb(
        "cli.handover:policy",
        "check, explain, test, backtest or suggest the policy, without a daemon too",
        raw=True,
    ),
    "quarantine": Verb(
        "cli.approvals:quarantine",
        "texts that were kept from the models",
        (("text",), {"metavar": "ID", "nargs": "?", "help": "show this one"}),
        _number(20, "how many"),
    ),
    "audit": Verb(
        "cli.approvals:audit",
        "every call and verdict; --verify proves that none was changed",
        (("--run",), {"metavar": "RUN", "help": "of this run only"}),
        (
            ("--verify",),
            {"action": "store_true", "help": "walk the chain of hashes from the first row"},
        ),
        _number(50, "how many"),
    ),
    "seen": Verb(
        "cli.seen:seen",
        "what a routine with [dedupe] has reported; forget KEY: it may again",
        ROUTINE,
        (
            ("act",),
            {
                "metavar": "forget",
                "nargs": "?",
                "choices": ["forget"],
                "help": "forget KEY, or with --all all",
            },
        ),
        (("key",), {"metavar": "KEY", "nargs": "?", "help": "an item's key, as the list shows it"}),
        (
            ("--all",),
            {"action": "store_true", "default": False, "help": "whatever it has reported"},
        ),
        _number(20, "how many"),
    ),
    "memory": Verb(
        "cli.memory:main", "search what runs left behind; forget, pin, export it", raw=True
    ),
    "new": Verb(
        "cli.handover:new",
        'write a routine: new NAME "weekdays at 9am", without a daemon too',
        raw=True,
    ),
    "top": Verb("cli.top:top", "what runs, waits and is next, live; q quits"),
    "ui": Verb(
        "web.command:serve",
        "a page to look at, in a browser of this machine",
        (
            ("--port",),
            {
                "metavar": "PORT",
                "type": int,
                "default": 0,
                "help": "a loopback port; default: any free one",
            },
        ),
    ),
    "completion": Verb(
        "cli.completion:completion",
        "what bash, zsh or fish offers after TAB",
        (("shell",), {"metavar": "SHELL", "help": "bash, zsh or fish"}),
    ),
    "forecast": Verb(
        "cli.forecast:forecast",
        "what the coming days will take: tokens, dollars, time; caps, collisions",
        (("--days",), {"metavar": "N", "type": int, "default": 30, "help": "how many; default 30"}),
    ),
    "metrics": Verb(
        "cli.actions:metrics",
        "numbers for Prometheus; --textfile for its node_exporter",
        (
            ("--textfile",),
            {
                "metavar": "FILE",
                "help": "put them there at once or not at all, readable for everybody",
            },
        ),
    ),
    "backup": Verb(
        "cli.handover:backup",
        "copy all it knows into one file, while it runs, without a daemon too",
        raw=True,
    ),
    "restore": Verb(
        "cli.handover:restore",
        "put a backup back; everything stands still until resume --all",
        raw=True,
    ),
    "service": Verb(
        "cli.handover:service", "install or uninstall a systemd unit, shown first", raw=True
    ),
    "export": Verb(
        "cli.handover:export",
        "routines with their history for another machine, without a daemon too",
        raw=True,
    ),
    "import": Verb(
        "cli.handover:import_",
        "take in what was exported elsewhere, while no daemon runs",
        raw=True,
    ),
    "rename": Verb(
        "cli.actions:rename",
        "give a routine another name; its history goes along",
        ROUTINE,
        (("to",), {"metavar": "NEW", "help": "its new name"}),
    ),
    "adopt": Verb("cli.actions:adopt", "make a routine yours that an agent made", ROUTINE),
    "remove": Verb("cli.actions:remove", "remove a routine that an agent made", ROUTINE),
    "reload": Verb("cli.actions:reload", "read config, policy and routines again"),
    "validate": Verb(
        "cli.handover:validate", "check config, policy and routines, without a daemon too", raw=True
    ),
    "doctor": Verb(
        "cli.handover:doctor", "look for what is wrong here, without a daemon too", raw=True
    ),
    "version": Verb("cli.handover:version", "which version this is, and which one the daemon"),
    "help": Verb("cli.help:show_help", "this, or a verb's options", raw=True),
}
