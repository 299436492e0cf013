"""The table of verbs: the function that implements each, what it is for, and its options."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from daemon.cli.call import Call

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    # The parameters of ArgumentParser.add_argument().
    Option: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **settings: Any) -> Option:
    """Return an option or positional argument with the parameters of `add_argument`."""
    return names, settings


def limit_option(default: int) -> Option:
    return option(
        "-n",
        "--limit",
        metavar="N",
        type=int,
        default=default,
        help=f"how many; default {default}",
    )


ROUTINE = option("routine", metavar="ROUTINE", help="a routine's name")
OPTIONAL_ROUTINE = option("routine", metavar="ROUTINE", nargs="?", help="a routine's name")
ROUTINE_FILTER = option("routine", metavar="ROUTINE", nargs="?", help="of this routine only")
RUN = option(
    "run", metavar="RUN", help="a run's id, its end is enough; a routine: its last run; or last"
)
RUN_FILTER = option("--run", metavar="RUN", help="of this run only")
STATUS_FILTER = option("--status", metavar="STATUS", help="in this status only")
APPROVAL = option("approval", metavar="ID", help="an approval's id; its end is enough")
TEXT = option(
    "text", metavar="TEXT", nargs="*", help="what to say, as it is; without it: what a pipe brings"
)
DETACH = option("--detach", action="store_true", help="print the run's id and do not wait")
FULL = option("--full", action="store_true", help="fold nothing")


def load_entry_point(entry_point: str) -> Callable[..., Any]:
    """Import and return the function of an entry point such as `cli.ask:tell`.

    The module is named without the `daemon.` before it.
    """
    module, _, name = entry_point.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"daemon.{module}"), name)
    return function


class Verb:
    """A verb: its entry point, a summary and its options.

    A verb that `parses_itself` gets its arguments as `call.rest`.
    """

    def __init__(
        self,
        entry_point: str,
        summary: str,
        *options: Option,
        parses_itself: bool = False,
        has_json: bool = True,
        words: tuple[str, ...] = (),
    ) -> None:
        """`has_json`: whether its help offers `--json`; `words`: what may stand behind a verb that
        parses itself, for completion.
        """
        self.entry_point, self.summary, self.options = entry_point, summary, options
        self.words = words
        self.parses_itself, self.has_json = parses_itself, has_json

    def run(self, call: Call) -> int:
        """Import and call the verb's function; return the exit code."""
        code: int = load_entry_point(self.entry_point)(call)
        return code

    def parse(self, name: str, arguments: list[str]) -> dict[str, Any]:
        """Return the options of a command line; exit with a usage message if it is wrong.

        A command line without arguments, or with `--json` only, is parsed without argparse.
        """
        if self.parses_itself:
            socket = _remove_socket_option(arguments)
            return {"rest": arguments, "json": "--json" in arguments, "socket": socket}
        has_required_argument = any(
            not names[0].startswith("-") and "nargs" not in settings
            for names, settings in self.options
        )
        if not has_required_argument and all(argument == "--json" for argument in arguments):
            options: dict[str, Any] = {"json": bool(arguments)}
            for names, settings in self.options:
                attribute = names[-1].lstrip("-").replace("-", "_")
                options[attribute] = settings.get("default")
            return options
        from argparse import SUPPRESS

        from daemon.cli.parser import Parser

        parser = Parser(prog=f"agentctl {name}", description=self.summary, allow_abbrev=False)
        for names, settings in self.options:
            parser.add_argument(*names, **settings)
        parser.add_argument(
            "--json",
            action="store_true",
            help="what the daemon answered, as it is" if self.has_json else SUPPRESS,
        )
        parser.add_argument("--socket", metavar="PATH", help="where the daemon listens")
        return vars(parser.parse_args(arguments))


def _remove_socket_option(arguments: list[str]) -> str | None:
    """Remove `--socket PATH` from arguments that another parser will read; return the path."""
    for index, argument in enumerate(arguments):
        if argument == "--socket" and index + 1 < len(arguments):
            path = arguments[index + 1]
            del arguments[index : index + 2]
            return path
        if argument.startswith("--socket="):
            del arguments[index]
            return argument.partition("=")[2]
    return None


VERBS = {
    "status": Verb("cli.status:show_status", "how the daemon is"),
    "list": Verb("cli.routines:list_routines", "every routine: when it runs, how it last went"),
    "show": Verb("cli.routines:show_routine", "one routine in full", ROUTINE),
    "preview": Verb(
        "cli.preview:preview",
        "what a run of it would be told, and how long that is",
        ROUTINE,
        FULL,
    ),
    "next": Verb(
        "cli.schedule:list_next_starts",
        "what runs next",
        ROUTINE_FILTER,
        option(
            "-n",
            "--limit",
            metavar="N",
            type=int,
            help="how many; default 10, or all with --days",
        ),
        option("--days", metavar="N", type=int, help="all within so many days"),
        option(
            "--ics",
            action="store_true",
            help="as a calendar (iCalendar); of 30 days unless told otherwise",
        ),
    ),
    "why": Verb(
        "cli.schedule:explain_slot",
        "why a slot ran or did not, in one sentence",
        ROUTINE,
        option(
            "--at", metavar="TIME", help='which slot: 09:00, "yesterday 09:00", 2026-11-20T09:00'
        ),
    ),
    "run": Verb(
        "cli.runs:run_routine",
        "run a routine now, and print its report",
        ROUTINE,
        option(
            "--input",
            metavar="TEXT|@FILE|-",
            help="what the model reads beside its task; - reads a pipe",
        ),
        option("--tainted", action="store_true", help="strangers may have written the input"),
        option("--gate", action="store_true", help="ask its gate, as for a run that is due"),
        DETACH,
        option(
            "--again",
            action="store_true",
            help="after a run that is under way start another, instead of following that one",
        ),
    ),
    "ask": Verb(
        "cli.ask:ask",
        "ask the agent something, in a conversation that goes on",
        TEXT,
        option("--session", metavar="NAME", help="which conversation; default: one that all share"),
        option(
            "--new",
            action="store_true",
            help="begin it anew, and take this for no run under way",
        ),
        DETACH,
    ),
    "tell": Verb(
        "cli.ask:tell", "tell a run something; an ended one is asked anew", RUN, TEXT, DETACH
    ),
    "runs": Verb(
        "cli.runs:list_runs",
        "past and present runs",
        ROUTINE_FILTER,
        STATUS_FILTER,
        limit_option(20),
    ),
    "inspect": Verb(
        "cli.inspect:inspect",
        "one run in full: prompt, calls, verdicts, usage",
        RUN,
        FULL,
        option("-f", "--follow", action="store_true", help="follow it live, and print its report"),
        option(
            "--html", metavar="FILE", help="write it as a page that needs nothing besides itself"
        ),
    ),
    "report": Verb("cli.report:report", "the last report, and nothing else", OPTIONAL_ROUTINE),
    "replay": Verb(
        "cli.replay:replay",
        "play a run, or a frozen one, again: identical, or where they part",
        option(
            "run",
            metavar="RUN|DIR",
            help="a run's id, a routine (its last run), last, or a frozen run",
        ),
        option(
            "--model",
            metavar="NAME",
            help="really ask this one: a provider, or a model of the run's own",
        ),
        option(
            "--prompt",
            metavar="FILE",
            help="another task, with which the model is really asked",
        ),
        option("--policy", metavar="FILE", help="judge its calls by another policy"),
    ),
    "rehearse": Verb(
        "cli.rehearse:rehearse",
        "try a routine: the real model looks; what it would do is shown, not done",
        OPTIONAL_ROUTINE,
        option("--approve", metavar="RUN", help="let the routine run as it was rehearsed there"),
    ),
    "freeze": Verb(
        "cli.replay:freeze",
        "write a run into a folder: a regression case that needs nothing else",
        RUN,
        option("folder", metavar="DIR", help="a new folder"),
    ),
    "logs": Verb(
        "app.commands.logs:logs",
        "the log; -f follows it, works without a daemon too",
        parses_itself=True,
        words=("--follow", "--level", "--routine", "--run", "--since"),
    ),
    "events": Verb(
        "cli.events:print_events",
        "what runs do, as it happens; Ctrl-C ends it",
        ROUTINE_FILTER,
        option("-f", "--follow", action="store_true", help="as it does anyway"),
    ),
    "cancel": Verb("cli.runs:cancel_run", "stop a run", RUN),
    "pause": Verb(
        "cli.schedule:pause",
        "let no slot of a routine start; --all: of none",
        OPTIONAL_ROUTINE,
        option("--all", action="store_true", default=False, help="every routine"),
        option(
            "--until",
            metavar="TIME",
            help='then it goes on: 2h, 18:00, "tomorrow 09:00", 2026-11-20',
        ),
    ),
    "resume": Verb(
        "cli.schedule:resume",
        "let a paused routine go on; --all: every one, as after a restore",
        OPTIONAL_ROUTINE,
        option("--all", action="store_true", default=False, help="every paused routine"),
    ),
    "slots": Verb(
        "cli.schedule:list_slots",
        "what became of each scheduled moment",
        ROUTINE_FILTER,
        limit_option(20),
    ),
    "deliveries": Verb(
        "cli.deliveries:deliveries",
        "where reports went; retry ID sends one again, drop ID gives it up",
        option(
            "action",
            metavar="retry|drop",
            nargs="?",
            choices=["retry", "drop"],
            help="do so with ID",
        ),
        option(
            "id",
            metavar="ID",
            nargs="?",
            type=int,
            help="a delivery's number, as the list shows it",
        ),
        RUN_FILTER,
        STATUS_FILTER,
        limit_option(20),
    ),
    "incidents": Verb(
        "cli.incidents:list_incidents",
        "what is wrong: one line per cause, however often it happened",
        option("--all", action="store_true", default=False, help="also what is over"),
        limit_option(20),
    ),
    "setup": Verb(
        "cli.agentd_commands:setup",
        "a model in a minute: asks, tries it, writes config; without a daemon too",
        parses_itself=True,
    ),
    "target": Verb(
        "cli.agentd_commands:target",
        "target test NAME: send a short message there now, without a daemon too",
        parses_itself=True,
        words=("test",),
    ),
    "ack": Verb(
        "cli.incidents:acknowledge",
        "say that you know of an incident: no more reminders until it is over",
        option("id", metavar="ID", type=int, help="its number, as `agentctl incidents` shows it"),
    ),
    "usage": Verb(
        "cli.usage:show_usage",
        "what calls to models cost: calls, tokens, dollars; where the caps stand",
        option("--by", metavar="KEY", default="routine", help="routine (default), model or day"),
        option(
            "--days",
            metavar="N",
            type=int,
            default=30,
            help="of the last so many days; default 30",
        ),
    ),
    "approvals": Verb(
        "cli.approvals:approvals",
        "calls that wait for your word",
        option("approval", metavar="ID", nargs="?", help="show this one with the whole call"),
        option("--all", action="store_true", help="answered ones, too"),
        option("--remembered", action="store_true", help="what is allowed for good instead"),
        option("--revoke", metavar="ID", help="take back what was allowed for good"),
    ),
    "approve": Verb(
        "cli.approvals:approve",
        "allow a call: once, or with --remember for good",
        APPROVAL,
        option(
            "--remember",
            action="store_true",
            help="for good: shows what would be written, and asks",
        ),
        option("--yes", action="store_true", help="do not ask"),
    ),
    "reject": Verb("cli.approvals:reject", "refuse a call; its run goes on without it", APPROVAL),
    "policy": Verb(
        "cli.agentd_commands:policy",
        "check, explain, test, backtest or suggest the policy, without a daemon too",
        parses_itself=True,
        words=("check", "explain", "test", "backtest", "suggest"),
    ),
    "observe": Verb(
        "cli.agentd_commands:observe",
        "let a routine run on trial: nobody is asked, what is denied is recorded",
        parses_itself=True,
        words=("--for", "--stop", "--yes"),
    ),
    "quarantine": Verb(
        "cli.approvals:quarantine",
        "texts that were kept from the models",
        option("text", metavar="ID", nargs="?", help="show this one"),
        limit_option(20),
    ),
    "audit": Verb(
        "cli.approvals:audit",
        "every call and verdict; --verify proves that none was changed",
        RUN_FILTER,
        option("--verify", action="store_true", help="walk the chain of hashes from the first row"),
        limit_option(50),
    ),
    "seen": Verb(
        "cli.seen:seen",
        "what a routine with [dedupe] has reported; forget KEY: it may again",
        ROUTINE,
        option(
            "action",
            metavar="forget",
            nargs="?",
            choices=["forget"],
            help="forget KEY, or with --all all",
        ),
        option("key", metavar="KEY", nargs="?", help="an item's key, as the list shows it"),
        option("--all", action="store_true", default=False, help="whatever it has reported"),
        limit_option(20),
    ),
    "memory": Verb(
        "cli.memory:main",
        "search what runs left behind; forget, pin, export it",
        parses_itself=True,
        words=(
            "search",
            "list",
            "show",
            "forget",
            "export",
            "import",
            "pin",
            "unpin",
            "stats",
            "reindex",
            "check",
        ),
    ),
    "new": Verb(
        "cli.agentd_commands:new",
        'write a routine: new NAME "weekdays at 9am", without a daemon too',
        parses_itself=True,
    ),
    "edit": Verb(
        "app.commands.edit:edit",
        "change a routine's file in your editor; it counts once nothing is wrong",
        ROUTINE,
        has_json=False,
    ),
    "top": Verb(
        "cli.top:top", "what runs, waits and is next, live; q quits (extra top)", has_json=False
    ),
    "ui": Verb(
        "web.command:serve",
        "a page to look at, in a browser of this machine",
        option(
            "--port",
            metavar="PORT",
            type=int,
            default=0,
            help="a loopback port; default: any free one",
        ),
        has_json=False,
    ),
    "mcp": Verb(
        "cli.mcp:mcp",
        "tools of MCP servers, and what changed; serve: be one for coding agents",
        option(
            "action",
            metavar="list|accept|serve",
            nargs="?",
            choices=["list", "accept", "serve"],
            default="list",
            help="list (default); accept the tools of NAME; serve on stdin and stdout",
        ),
        option("name", metavar="NAME", nargs="?", help="a server of config.toml"),
        option("--yes", action="store_true", default=False, help="accept without asking"),
    ),
    "completion": Verb(
        "cli.completion:print_completion",
        "what bash, zsh or fish offers after TAB",
        option("shell", metavar="SHELL", help="bash, zsh or fish"),
        has_json=False,
    ),
    "forecast": Verb(
        "cli.forecast:show_forecast",
        "what the coming days will take: tokens, dollars, time; caps, collisions",
        option("--days", metavar="N", type=int, help="how many, day by day; default 7 as one sum"),
    ),
    "metrics": Verb(
        "cli.metrics:metrics",
        "numbers for Prometheus; --textfile for its node_exporter",
        option(
            "--textfile",
            metavar="FILE",
            help="put them there at once or not at all, readable for everybody",
        ),
    ),
    "backup": Verb(
        "cli.agentd_commands:backup",
        "copy all it knows into one file, while it runs, without a daemon too",
        parses_itself=True,
        has_json=False,
    ),
    "restore": Verb(
        "cli.agentd_commands:restore",
        "put a backup back; everything stands still until resume --all",
        parses_itself=True,
        has_json=False,
    ),
    "service": Verb(
        "cli.agentd_commands:service",
        "install or uninstall a systemd unit, shown first",
        parses_itself=True,
        has_json=False,
        words=("install", "uninstall"),
    ),
    "export": Verb(
        "cli.agentd_commands:export",
        "routines with their history for another machine, without a daemon too",
        parses_itself=True,
        has_json=False,
    ),
    "import": Verb(
        "cli.agentd_commands:import_",
        "take in what was exported elsewhere, while no daemon runs",
        parses_itself=True,
        has_json=False,
    ),
    "import-crontab": Verb(
        "cli.agentd_commands:import_crontab",
        "turn the lines of a crontab into routines, shown first, without a daemon too",
        parses_itself=True,
    ),
    "rename": Verb(
        "cli.routines:rename_routine",
        "give a routine another name; its history goes along",
        ROUTINE,
        option("to", metavar="NEW", help="its new name"),
    ),
    "adopt": Verb("cli.routines:adopt_routine", "make a routine yours that an agent made", ROUTINE),
    "remove": Verb("cli.routines:remove_routine", "remove a routine that an agent made", ROUTINE),
    "stop": Verb(
        "cli.stop:stop",
        "stop the daemon once its runs have ended, and wait for that",
        option("--now", action="store_true", default=False, help="runs go on at the next start"),
        option(
            "--timeout",
            metavar="TIME",
            type="duration",
            help="do not wait longer, like 30s or 2m; 1 if it has not ended then",
        ),
    ),
    "reload": Verb("cli.reload:reload", "read config, policy and routines again"),
    "validate": Verb(
        "cli.agentd_commands:validate",
        "check config, policy and routines, without a daemon too",
        parses_itself=True,
    ),
    "doctor": Verb(
        "cli.doctor:doctor",
        "look for what is wrong here, without a daemon too",
        parses_itself=True,
        words=("--deep",),
    ),
    "version": Verb("cli.version:version", "which version this is, and which one the daemon"),
    "help": Verb(
        "cli.help:show_help",
        "the verbs one needs most, all of them with --all, or a verb's options",
        parses_itself=True,
        words=("--all",),
    ),
}

# The verbs of agentd, for its completion; a test compares them with its parser.
AGENTD_VERBS = (
    "once",
    "worker",
    "init",
    "new",
    "setup",
    "validate",
    "doctor",
    "policy",
    "observe",
    "target",
    "replay",
    "freeze",
    "backup",
    "restore",
    "export",
    "import",
    "import-crontab",
    "service",
    "logs",
)

# By the title of their group, the verbs that `agentctl help` shows.
COMMON_VERBS = {
    "Look": ("list", "report", "why", "logs"),
    "Run, talk, change routines": ("run", "new", "edit"),
    "Approve, try, and set rules": ("approve",),
    "Set up and operate": ("doctor", "stop"),
}
# By the title of their group, the verbs in the order of `agentctl help --all`; all others follow in
# the last group.
GROUPS: dict[str, tuple[str, ...]] = {
    "Look": (
        "list", "report", "status", "why", "inspect", "logs", "ui", "top", "runs", "next", "slots",
        "show", "preview", "events", "incidents", "usage", "forecast", "deliveries", "metrics",
    ),
    "Run, talk, change routines": (
        "run", "ask", "tell", "new", "edit", "pause", "resume", "cancel", "rename", "adopt",
        "remove", "ack", "seen", "mcp",
    ),
    "Approve, try, and set rules": (
        "approvals", "approve", "reject", "rehearse", "replay", "freeze", "policy", "observe",
        "audit", "quarantine",
    ),
    "Set up and operate": (),
}  # fmt: skip

# What people of other programs type, with the commands that do it here. None is executed: some
# words mean other things elsewhere.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "abort": ("agentctl cancel RUN",),
    "add": ('agentctl new NAME "weekdays at 9am"',),
    "allow": ("agentctl approve ID",),
    "cat": ("agentctl show ROUTINE",),
    "change": ("agentctl edit ROUTINE",),
    "check": ("agentctl validate", "agentctl doctor"),
    "config": ("agentctl validate", "agentctl status"),
    "cost": ("agentctl usage", "agentctl forecast"),
    "costs": ("agentctl usage", "agentctl forecast"),
    "create": ('agentctl new NAME "weekdays at 9am"',),
    "crontab": ("agentctl import-crontab",),
    "dashboard": ("agentctl ui", "agentctl top"),
    "delete": ("agentctl remove ROUTINE", "agentctl pause ROUTINE"),
    "deny": ("agentctl reject ID",),
    "describe": ("agentctl show ROUTINE",),
    "diagnose": ("agentctl doctor",),
    "disable": ("agentctl pause ROUTINE",),
    "dry-run": ("agentctl rehearse ROUTINE",),
    "enable": ("agentctl resume ROUTINE",),
    "errors": ("agentctl incidents", "agentctl logs --level error"),
    "exec": ("agentctl run ROUTINE",),
    "explain": ("agentctl why ROUTINE",),
    "find": ("agentctl memory search TEXT",),
    "follow": ("agentctl inspect -f RUN", "agentctl events"),
    "get": ("agentctl list", "agentctl show ROUTINE"),
    "halt": ("agentctl stop",),
    "history": ("agentctl runs", "agentctl slots"),
    "info": ("agentctl status", "agentctl show ROUTINE"),
    "init": ("agentd init",),
    "install": ("agentctl service install",),
    "jobs": ("agentctl list", "agentctl runs"),
    "journal": ("agentctl logs", "agentctl runs"),
    "kill": ("agentctl cancel RUN",),
    "last": (
        "agentctl report",
        "agentctl inspect last",
    ),
    "launch": ("agentctl run ROUTINE",),
    "lint": ("agentctl validate",),
    "log": ("agentctl logs",),
    "ls": ("agentctl list",),
    "modify": ("agentctl edit ROUTINE",),
    "monitor": ("agentctl top", "agentctl events"),
    "open": ("agentctl ui",),
    "output": ("agentctl report ROUTINE",),
    "ps": ("agentctl top", "agentctl runs --status running"),
    "quit": ("agentctl stop",),
    "result": ("agentctl report ROUTINE",),
    "rm": ("agentctl remove ROUTINE", "agentctl pause ROUTINE"),
    "routines": ("agentctl list",),
    "schedule": ("agentctl next",),
    "search": ("agentctl memory search TEXT",),
    "shutdown": ("agentctl stop",),
    "tail": ("agentctl logs -f",),
    "test": ("agentctl rehearse ROUTINE", "agentctl validate"),
    "trigger": ("agentctl run ROUTINE",),
    "uninstall": ("agentctl service uninstall",),
    "unpause": ("agentctl resume ROUTINE",),
    "vi": ("agentctl edit ROUTINE",),
    "watch": ("agentctl top", "agentctl inspect -f RUN"),
    "web": ("agentctl ui",),
}
