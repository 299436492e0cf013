"""The command `agentd`: start the daemon, run one routine in the foreground, or work without a
daemon.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from daemon import __version__
from daemon.cli.standard_output import discard_output, open_closed_streams, report_write_error
from daemon.definitions.paths import (
    OVERLAY,
    describe_config_paths,
    find_config,
    find_socket,
    find_state,
    socket_in,
    socket_paths,
    user_config_folder,
    user_home,
)
from daemon.errors import (
    ConfigError,
    DaemonError,
    DatabaseAway,
    Fault,
    NotFound,
    Refused,
    StateBusy,
    StateLost,
    UnclearArgument,
)

if TYPE_CHECKING:
    from daemon.app.commands.policy_files import PolicyFiles
    from daemon.app.installation import Installation
    from daemon.app.parts import App
    from daemon.cli.parser import Parser
    from daemon.definitions.config.config import Config
    from daemon.telemetry.console import EventConsole
    from daemon.telemetry.redaction import Secrets

EX_CONFIG = 78  # sysexits.h: something is wrong in a file; the unit does not restart on it
EX_TEMPFAIL = 75  # another daemon has the state, or the database is away; later it may be otherwise
# The first class that fits decides; NotFound and Refused have the codes of agentctl.
EXIT_CODES: tuple[tuple[type[DaemonError], int], ...] = (
    (ConfigError, EX_CONFIG),
    (StateBusy, EX_TEMPFAIL),
    (StateLost, EX_TEMPFAIL),
    (DatabaseAway, EX_TEMPFAIL),
    (NotFound, 4),
    (UnclearArgument, 2),
    (Refused, 5),
    (DaemonError, 1),
)


def main(arguments: Sequence[str] | None = None, *, program: str = "agentd") -> int:
    """Run `agentd` and return its exit code. `program` is what usage, examples and errors call it:
    agentctl becomes agentd for verbs that work without a daemon.
    """
    open_closed_streams()
    verb: Callable[[CommandLine], int] | None = None
    try:
        try:
            options = _parse_options(sys.argv[1:] if arguments is None else arguments, program)
            verb = options.verb
            return _run_verb(options, program)
        finally:
            sys.stdout.flush()  # what cannot be written is noticed here, not while Python ends
    except OSError as error:
        # of a daemon it may be any file
        if verb in (serve, worker) and not isinstance(error, BrokenPipeError):
            raise
        return report_write_error(error, program)


def _run_verb(options: CommandLine, program: str) -> int:
    """Run the verb and report what it raises; return the exit code."""
    try:
        return int(options.verb(options))
    except DaemonError as error:
        return _print_error(error, program)
    except ExceptionGroup as group:  # a task group wraps what it could not do
        errors, bugs = group.split(DaemonError)
        if errors is None or bugs is not None:
            raise
        return _print_error(_first_error(errors), program)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("daemon"):
            raise
        command = "pip install -c constraints.txt -e ."
        sys.stderr.write(
            f"{program}: the package {error.name} is not installed; install agentd again: "
            f"{command}\n"
        )
        return 1
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        # A daemon checks its folders at its start: what comes later belongs in the log as it is.
        if error.filename is None or options.verb in (serve, worker):
            raise
        return _print_error(_unusable(error, _state_folder(options)), program)
    except KeyboardInterrupt:
        return 130


# --- the command line


class CommandLine(argparse.Namespace):
    """The options and arguments of the command line."""


def _parse_options(arguments: Sequence[str], program: str) -> CommandLine:
    """Read the command line; a mistake in it is reported, and the process ends."""
    arguments, verb_arguments = _split_verb_arguments(arguments)
    options = CommandLine(verb_arguments=verb_arguments, program=program)
    return build_parser(program).parse_args(arguments, options)


def _split_verb_arguments(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the arguments for the parser of `agentd`, and those behind a verb with a parser of its
    own.

    argparse would take the options of such a verb for those of `agentd`: its REMAINDER begins at
    the first argument without a dash.
    """
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in ("--config", "--state") else 1
    if index < len(arguments) and arguments[index] in ("policy", "logs", "new"):
        return arguments[: index + 1], arguments[index + 1 :]
    return arguments, ()


class VerbParsers:
    """The parsers of the verbs: the help of each begins with what the list of verbs says of it."""

    def __init__(self, verbs: argparse._SubParsersAction[Parser]) -> None:
        self._verbs = verbs

    def add_parser(self, name: str, **settings: Any) -> Parser:
        return self._verbs.add_parser(name, **{"description": settings["help"], **settings})


def build_parser(program: str = "agentd") -> argparse.ArgumentParser:
    """Return the parser of `agentd` and its verbs, whose usage begins with `program`."""
    from daemon.cli.parser import Parser

    parser = Parser(
        prog=program, description="Run LLM agents on a schedule. Without a verb: start the daemon."
    )
    parser.add_argument("--version", action="version", version=f"agentd {__version__}")
    add_location_options(parser)
    parser.set_defaults(verb=serve)
    verbs = VerbParsers(parser.add_subparsers(title="verbs", metavar="VERB"))
    once_parser = verbs.add_parser(
        "once", help="run one routine in the foreground and print its report"
    )
    once_parser.add_argument("routine")
    once_parser.add_argument(
        "--input",
        metavar="TEXT|@FILE|-",
        help="what the model reads beside its task; - reads a pipe",
    )
    once_parser.add_argument(
        "--tainted", action="store_true", help="strangers may have written the input"
    )
    add_location_options(once_parser, of_verb=True)
    once_parser.set_defaults(verb=once)
    worker_parser = verbs.add_parser(
        "worker", help="execute runs that daemons on the same database start"
    )
    add_location_options(worker_parser, of_verb=True)
    worker_parser.set_defaults(verb=worker)
    init_parser = verbs.add_parser("init", help="write config, policy and routines to start from")
    init_parser.add_argument("directory", nargs="?", type=Path, help="default: ~/.config/agentd")
    init_parser.set_defaults(verb=init)
    new_parser = verbs.add_parser(
        "new", help="write a routine from a schedule in plain words or a recipe", add_help=False
    )
    new_parser.set_defaults(verb=new)
    validate_parser = verbs.add_parser(
        "validate", help="check config, policy and routines; print every fault"
    )
    validate_parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        help="a folder with a config.toml; or a routine's name, which has everything checked",
    )
    validate_parser.add_argument("--json", action="store_true")
    validate_parser.add_argument(
        "--elsewhere",
        action="store_true",
        help="a daemon is to run on another machine: keys need not be here",
    )
    add_location_options(validate_parser, of_verb=True)
    validate_parser.set_defaults(verb=validate)
    doctor_parser = verbs.add_parser("doctor", help="look for what is wrong with this installation")
    doctor_parser.add_argument("--json", action="store_true")
    doctor_parser.add_argument(
        "--deep",
        action="store_true",
        help="check all of the database, and make damaged indexes anew if no daemon runs",
    )
    doctor_parser.add_argument(
        "--socket", type=Path, metavar="FILE", help="the control socket, where it is elsewhere"
    )
    add_location_options(doctor_parser, of_verb=True)
    doctor_parser.set_defaults(verb=doctor)
    _add_setup_verbs(verbs)
    policy_parser = verbs.add_parser(
        "policy", help="check, explain, test, backtest or suggest a policy", add_help=False
    )
    policy_parser.set_defaults(verb=policy)
    _add_observe_verb(verbs)
    _add_replay_verbs(verbs)
    _add_transfer_verbs(verbs)
    logs_parser = verbs.add_parser(
        "logs", help="show the log, without a daemon too", add_help=False
    )
    logs_parser.set_defaults(verb=logs)
    return parser


def _add_setup_verbs(verbs: VerbParsers) -> None:
    setup_parser = verbs.add_parser(
        "setup", help="set up a model, a target of reports and a first routine"
    )
    setup_parser.add_argument(
        "--provider", metavar="NAME", help="claude, gpt, ollama, …, or a name of your own"
    )
    setup_parser.add_argument("--model", metavar="NAME", help="as the vendor writes it")
    setup_parser.add_argument(
        "--base-url", metavar="URL", help="where its server answers, such as http://host:8080/v1"
    )
    key = setup_parser.add_mutually_exclusive_group()
    key.add_argument("--key-file", type=Path, metavar="FILE", help="holds the key")
    key.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    setup_parser.add_argument(
        "--target",
        choices=("relay", "gmail", "smtp", "ntfy", "telegram", "webhook"),
        help="have reports reach you there",
    )
    setup_parser.add_argument(
        "--to", metavar="ADDRESS", help="a mail address, a topic, a chat's number, or a URL"
    )
    setup_parser.add_argument(
        "--target-name", metavar="NAME", help="of the target; default: mail, phone, chat or ops"
    )
    setup_parser.add_argument("--smtp", metavar="HOST[:PORT]", help="the mail server")
    setup_parser.add_argument("--user", metavar="NAME", help="the account at the mail server")
    secret = setup_parser.add_mutually_exclusive_group()
    secret.add_argument(
        "--secret-file", type=Path, metavar="FILE", help="holds its password, or a bot's token"
    )
    secret.add_argument("--secret-stdin", action="store_true", help="read that from standard input")
    setup_parser.add_argument(
        "--no-test", action="store_true", help="write the target without a test message"
    )
    setup_parser.add_argument("--routine", metavar="NAME", help="write a first routine")
    setup_parser.add_argument("--when", metavar="SCHEDULE", help='such as "weekdays at 9am"')
    setup_parser.add_argument("--prompt", metavar="TEXT", help="what the routine does")
    setup_parser.add_argument(
        "--replace", action="store_true", help="overwrite a provider or target of the same name"
    )
    setup_parser.add_argument(
        "--keep-default",
        action="store_true",
        help="add the provider, and leave which one answers as it is",
    )
    setup_parser.add_argument(
        "--yes", action="store_true", help="ask nothing: take what is found first"
    )
    setup_parser.add_argument(
        "--json", action="store_true", help="print what was written; all else goes to stderr"
    )
    setup_parser.add_argument(
        "--socket", type=Path, metavar="FILE", help="the control socket, where it is elsewhere"
    )
    add_location_options(setup_parser, of_verb=True)
    setup_parser.set_defaults(verb=setup)
    target_parser = verbs.add_parser("target", help="send a test message to a target of reports")
    target_parser.add_argument("action", choices=["test"], metavar="test")
    target_parser.add_argument("name", metavar="NAME", help="a target of config.toml, or file, log")
    target_parser.add_argument("--json", action="store_true")
    add_location_options(target_parser, of_verb=True)
    target_parser.set_defaults(verb=target)


def _add_observe_verb(verbs: VerbParsers) -> None:
    parser = verbs.add_parser(
        "observe", help="let a routine run on trial: nobody is asked, what is denied is recorded"
    )
    parser.add_argument("routine", metavar="ROUTINE", help="a routine's name")
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        default="7d",
        help="how long, like 7d or 12h; default 7d",
    )
    parser.add_argument("--stop", action="store_true", help="end the trial now")
    parser.add_argument(
        "--yes", action="store_true", help="write it into policy.toml without asking"
    )
    parser.add_argument("--json", action="store_true")
    add_location_options(parser, of_verb=True)
    parser.set_defaults(verb=observe)


def _add_replay_verbs(verbs: VerbParsers) -> None:
    replay_parser = verbs.add_parser(
        "replay", help="play a run again, or a frozen one; 1 if it comes out otherwise"
    )
    replay_parser.add_argument(
        "run", metavar="RUN|DIR", help="a run's id, its beginning or its end; or a frozen run"
    )
    replay_parser.add_argument(
        "--model", metavar="NAME", help="ask another model: needs the daemon"
    )
    replay_parser.add_argument(
        "--prompt", type=Path, metavar="FILE", help="another task: needs the daemon"
    )
    replay_parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="judge its calls by another policy"
    )
    replay_parser.add_argument("--json", action="store_true")
    replay_parser.set_defaults(verb=replay)
    freeze_parser = verbs.add_parser(
        "freeze", help="write a run into a folder, as a regression case"
    )
    freeze_parser.add_argument("run", metavar="RUN", help="a run's id, its beginning or its end")
    freeze_parser.add_argument("folder", metavar="DIR", help="a new folder")
    freeze_parser.set_defaults(verb=freeze)
    for parser in (replay_parser, freeze_parser):
        add_location_options(parser, of_verb=True)


def _add_transfer_verbs(verbs: VerbParsers) -> None:
    from daemon.cli.parser import text_that_is_given

    backup_parser = verbs.add_parser(
        "backup", help="copy all that is known into one file; a daemon may go on"
    )
    backup_parser.add_argument("file", type=Path, help="a new file")
    backup_parser.set_defaults(verb=backup)
    restore_parser = verbs.add_parser(
        "restore", help="put a backup back; everything stands still until resume --all"
    )
    restore_parser.add_argument("file", type=Path)
    help_text = "write config, policy and routines of the backup there, where nothing is"
    restore_parser.add_argument("--definitions", type=Path, metavar="DIR", help=help_text)
    restore_parser.set_defaults(verb=restore)
    export_parser = verbs.add_parser(
        "export", help="write routines with their history, for another machine"
    )
    export_parser.add_argument("file", type=Path, help="a new file")
    export_parser.add_argument("routines", nargs="*", metavar="ROUTINE", help="default: all")
    export_parser.set_defaults(verb=export)
    import_parser = verbs.add_parser(
        "import", help="take in what was exported elsewhere, while no daemon runs"
    )
    import_parser.add_argument("file", type=Path)
    import_parser.set_defaults(verb=import_)
    crontab_parser = verbs.add_parser(
        "import-crontab", help="turn the lines of a crontab into routines without a model"
    )
    crontab_parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        type=text_that_is_given,
        help="a crontab, or - for standard input; default: what crontab -l prints",
    )
    crontab_parser.add_argument(
        "--system",
        action="store_true",
        help="a user stands before each command, as in /etc/crontab",
    )
    crontab_parser.add_argument(
        "--to",
        dest="targets",
        metavar="TARGET,…",
        type=_split_names,
        action="extend",
        default=[],
        help="where the output of lines without MAILTO goes; default: file",
    )
    crontab_parser.add_argument(
        "--write", action="store_true", help="write the routines; else they are shown"
    )
    crontab_parser.add_argument("--json", action="store_true")
    crontab_parser.set_defaults(verb=import_crontab)
    add_location_options(crontab_parser, of_verb=True)
    service_parser = verbs.add_parser(
        "service", help="install or remove a systemd unit for this installation"
    )
    service_parser.add_argument("act", choices=["install", "uninstall"])
    kind = service_parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--user",
        action="store_true",
        help="for you, in your own session (default, unless you are root)",
    )
    kind.add_argument(
        "--system",
        action="store_true",
        help="for the whole machine, as a user of its own; takes root",
    )
    service_parser.add_argument("--yes", action="store_true", help="do not ask")
    service_parser.add_argument(
        "--print", action="store_true", dest="show", help="show what would happen, and stop"
    )
    service_parser.set_defaults(verb=service)
    add_location_options(service_parser, of_verb=True)
    for parser in (backup_parser, restore_parser, export_parser, import_parser):
        add_location_options(parser, of_verb=True)


def add_location_options(parser: argparse.ArgumentParser, *, of_verb: bool = False) -> None:
    """Add the options that say where config and state are."""
    # a verb's parser must not reset what stood before the verb
    default = argparse.SUPPRESS if of_verb else None
    parser.add_argument(
        "--config", type=Path, default=default, metavar="FILE", help="the config file"
    )
    parser.add_argument(
        "--state", type=Path, default=default, metavar="DIR", help="where its own data is"
    )


# --- where the files of an installation are


def _state_folder(options: CommandLine) -> Path:
    """Return the state folder."""
    option: Path | None = options.state
    return (option or find_state(os.environ, user_home(), uid=os.getuid())).absolute()


def _socket_path(options: CommandLine) -> Path:
    """Return the path of the control socket."""
    state, uid = _state_folder(options), os.getuid()
    if options.state:
        return socket_in(state, uid=uid)
    return find_socket(state, os.environ, uid=uid)


def _sockets_of_daemons(options: CommandLine) -> list[Path]:
    """Return the paths at which a daemon may listen already, in the order in which to look.

    Without `--state`, or if a variable names one, these are those of `agentctl`, too: a daemon that
    systemd started listens elsewhere than one that would be started from this shell.
    """
    paths = [_socket_path(options)]
    if not options.state or os.environ.get("AGENTD_SOCKET"):
        paths += socket_paths(None, os.environ, user_home(), uid=os.getuid())
    return list(dict.fromkeys(paths))


def _current_folder() -> Path:
    """Return the current folder, or the root if it was deleted meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _load_config(options: CommandLine, overlay: Path | None = None) -> Config:
    """Load the config that wins, with the settings of agents in the file `overlay` above it.

    Raises ConfigError with the places that were searched if there is none.
    """
    from daemon.definitions.config.loading import load_config
    from daemon.errors import Fault

    cwd, home = _current_folder(), user_home()
    file = find_config(options.config, os.environ, cwd, home)
    if file is None:
        problem = f"not found in {describe_config_paths(os.environ, cwd, home)}"
        hint = "`agentd init` writes one to ~/.config/agentd"
        raise ConfigError(Fault(file="config.toml", key="", found="", problem=problem, hint=hint))
    return load_config(file, overlay)


def _load_config_if_any(options: CommandLine) -> Config | None:
    """Load the config that wins; None where there is none and none was named."""
    if (
        options.config is None
        and find_config(None, os.environ, _current_folder(), user_home()) is None
    ):
        return None
    return _load_config(options)


# --- verbs that start the daemon, a worker or a run


def serve(options: CommandLine) -> int:
    """Start the daemon and stay until SIGTERM or Ctrl-C."""
    if not os.isatty(0):  # there, a closed terminal ends the setup
        _ignore_hang_up()
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.banner import banner, banner_for_terminal
    from daemon.app.first_report import print_first_report
    from daemon.app.wiring import open_app
    from daemon.cli.call import agentctl_command

    new_routines = _offer_setup(options)
    if new_routines is None:
        return 130
    _ignore_hang_up()
    _raise_descriptor_limit()

    installation = _make_installation(options, console=True)
    lines = installation.event_console
    assert lines is not None  # noqa: S101  it comes with the console
    tasks: list[asyncio.Task[None]] = []  # ends with the events, when the daemon closes

    async def announce(app: App) -> None:
        try:
            if sys.stdout.isatty():
                _print(banner_for_terminal(app, agentctl_command(), new_routines))
                events = app.runs.events.follow()
                first_report = print_first_report(app, events, _print)
                tasks.append(asyncio.create_task(first_report, name="first report"))
            else:
                _print(banner(app))
            lines.begin()
            await _announce_models(app)
        except OSError:  # the output is closed or its disk is full, which is no reason not to run
            with suppress(OSError):  # no descriptor is left: then the next print fails
                discard_output()

    async def run() -> None:
        try:
            async with open_app(installation) as app:
                await lifecycle.serve(app, announce, limit_end=EndLimit())
        finally:
            lines.close()

    asyncio.run(run())
    return 0


def _ignore_hang_up() -> None:
    """Ignore SIGHUP until the process is ready to reload: by default it would end the start."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class EndLimit:
    """Ends this process after so many seconds, with exit code 1 and what its threads do on stderr.

    That takes nothing that may have failed, such as the event loop, memory or the interpreter. Of
    several limits the earliest counts: a SIGTERM gives a process no more time that has failed.
    """

    def __init__(self) -> None:
        self._deadline = math.inf

    def __call__(self, seconds: float) -> None:
        import faulthandler

        deadline = time.monotonic() + seconds
        if deadline >= self._deadline:
            return
        self._deadline = deadline
        try:
            faulthandler.dump_traceback_later(seconds, exit=True, file=2)
        except RuntimeError:  # there is no room for a thread
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)


async def _announce_models(app: App) -> None:
    """Name the models that could be asked while none is."""
    from daemon.app.first_start import detect_models

    for model in await detect_models(app.settings.config.provider, app.installation.env):
        _print(model.announcement)


def _offer_setup(options: CommandLine) -> Collection[str] | None:
    """Offer to set up a model at the first start at a terminal; return the names of the routines
    that this has written, None if the start does not go on.
    """
    from daemon.app.first_start import can_answer, is_first_start, offer_setup

    if not can_answer():
        return ()
    state = _state_folder(options)
    config = _load_config(options, state / OVERLAY)
    if not is_first_start(config, state):
        return ()
    files_before = set(config.routines_path.glob("*.toml"))
    if not offer_setup(config.file.absolute(), state, os.environ):
        return None
    return {file.stem for file in config.routines_path.glob("*.toml")} - {
        file.stem for file in files_before
    }


def worker(options: CommandLine) -> int:
    """Execute runs that daemons start, until SIGTERM or Ctrl-C."""
    _ignore_hang_up()
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.wiring import open_app
    from daemon.errors import Fault

    _raise_descriptor_limit()
    installation = _make_installation(options, console=True)
    if installation.config.executor.kind == "local":
        raise ConfigError(
            Fault(
                file=os.fspath(installation.config.file),
                key="executor.kind",
                found="local",
                problem="a worker needs a queue that daemons put runs into",
                hint='[executor] kind = "procrastinate", and [store] url',
            )
        )

    async def announce(app: App) -> None:
        _print(
            f"agentd worker {__version__}, up to {app.runs.queue.capacity} runs at a time from "
            f"{app.store.database.place}\n"
            f"log: {installation.log_file}; Ctrl-C stops it, and its runs go on elsewhere"
        )
        if installation.event_console:
            installation.event_console.begin()

    async def run() -> None:
        try:
            async with open_app(installation, role="worker") as app:
                await lifecycle.work(app, announce, limit_end=EndLimit())
        finally:
            if installation.event_console:
                installation.event_console.close()

    asyncio.run(run())
    return 0


def once(options: CommandLine) -> int:
    """Run one routine in the foreground; if a daemon holds the state, that daemon runs it."""
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.background import import_for_runs
    from daemon.app.wiring import open_app

    import_for_runs()
    from daemon.cli.call import USAGE, exit_code_of
    from daemon.cli.main import main as agentctl
    from daemon.cli.run_input import read_input

    if options.tainted and options.input is None:
        sys.stderr.write("agentd: --tainted says who may have written the --input; name one\n")
        return USAGE

    async def run_here() -> int:
        installation = _make_installation(options, console=sys.stderr.isatty())
        if installation.event_console:
            installation.event_console.begin()
        try:
            async with open_app(installation, role="once") as app:
                text: str | None = None
                # not before the state is ours: else agentctl reads the pipe
                if options.input is not None:
                    try:
                        text = await asyncio.to_thread(read_input, options.input)
                    except ValueError as error:
                        sys.stderr.write(f"agentd: {error}\n")
                        return USAGE
                run = await lifecycle.once(app, options.routine, text, is_tainted=options.tainted)
                if run.report:
                    _print(run.report)
                if run.detail:
                    sys.stderr.write(f"{run.status}: {run.detail}\n")
                # a failed delivery stays in the outbox until a daemon or the next `once` tries
                # again: to a script that is a failure
                failed_deliveries = [
                    delivery
                    for delivery in await app.store.journal.outbox.find_of_runs([run.id])
                    if delivery.error and not delivery.receipt
                ]
                for delivery in failed_deliveries:
                    sys.stderr.write(f"not delivered to {delivery.target}: {delivery.error}\n")
                return exit_code_of(run.status, ["failed" for _ in failed_deliveries])
        finally:
            if installation.event_console:
                installation.event_console.close()

    try:
        return asyncio.run(run_here())
    except StateBusy as busy:
        socket = _find_daemon(options)
        if socket is None:
            raise busy from None  # it is no daemon that holds the state, but another `agentd once`
        input_arguments = [] if options.input is None else [f"--input={options.input}"]
        if options.tainted:
            input_arguments.append("--tainted")
        return agentctl(["--socket", str(socket), "run", options.routine, *input_arguments])


def _find_daemon(options: CommandLine) -> Path | None:
    """Return the control socket of the daemon on the state folder, which may listen elsewhere than
    one that would be started from here: cron sets no XDG_RUNTIME_DIR. None if none answers.
    """
    from daemon.cli.client import ApiError, Client, ConnectionLost, Unreachable

    paths = socket_paths(None, os.environ, user_home(), uid=os.getuid())
    for path in dict.fromkeys([_socket_path(options), *paths]):
        with suppress(Unreachable, ConnectionLost, ApiError, OSError):
            status = Client(os.fspath(path)).request("GET", "/v1/status?counts=false")
            if os.path.samefile(status["state"], _state_folder(options)):  # noqa: PTH121
                return path
    return None


def _make_installation(options: CommandLine, *, console: bool) -> Installation:
    """Return the paths and settings of the installation. Nothing is created yet."""
    from daemon.app.installation import Installation
    from daemon.telemetry.redaction import Secrets

    if sys.platform == "linux":
        from daemon.sandbox.confine import keep_memory_private

        keep_memory_private()  # keys will be in it
    state, secrets = _state_folder(options), Secrets()
    config = _load_config(options, state / OVERLAY)
    return Installation(
        config=config,
        state=state,
        socket=_socket_path(options),
        log_file=state / "logs" / "agentd.jsonl",
        console=console,
        env=dict(os.environ),
        secrets=secrets,
        event_console=_event_console(secrets, config.workspace_path(state)) if console else None,
    )


def _event_console(secrets: Secrets, workspace: Path) -> EventConsole:
    """Return what writes short lines about events to stderr."""
    from daemon.cli.call import agentctl_command
    from daemon.telemetry.console import EventConsole
    from daemon.telemetry.log import wants_colour

    return EventConsole(
        sys.stderr,
        secrets,
        colour=wants_colour(sys.stderr),
        workspace=workspace,
        agentctl=agentctl_command(),
    )


def _raise_descriptor_limit() -> None:
    """Let this process open as many files as the hard limit allows.

    The soft limit of 1024 that most systems set is for programs that call select(2); those that
    tools start get a limit of their own (`daemon.sandbox`).
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS takes no "unlimited" here, and has a soft limit that does
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- verbs that set an installation up and check it


def init(options: CommandLine) -> int:
    """Write the shipped files for somebody who installed a wheel."""
    from daemon.app.commands.init import describe
    from daemon.app.commands.init import init as write_shipped_files

    folder = options.directory or user_config_folder(os.environ, user_home())
    paths = write_shipped_files(folder)
    lines = [f"wrote {path}: {describe(path)}" for path in paths] or [
        f"everything is in {folder} already; nothing was changed"
    ]
    _print("\n".join([*lines, f"start with: agentd --config {quote(str(folder / 'config.toml'))}"]))
    return 0


def new(options: CommandLine) -> int:
    """Write a routine, or print it."""
    from datetime import UTC, datetime

    from daemon.app.commands.new import NewRoutineOptions, compose, describe, write
    from daemon.app.commands.new_arguments import build_new_parser

    parser = build_new_parser(f"{options.program} new")
    add_location_options(parser, of_verb=True)
    # words of a schedule may stand before and behind options
    options = parser.parse_intermixed_args(options.verb_arguments, options)
    if options.stdout and options.json:
        parser.error("--stdout prints the file, which is TOML: it goes without --json")
    if not options.schedule and options.recipe is None:
        parser.error("say when it runs, as in: new NAME every day at 7; or name a --recipe")
    routine = compose(
        _load_config(options),
        NewRoutineOptions(
            name=options.name,
            schedule=" ".join(options.schedule),
            recipe=options.recipe,
            prompt=options.prompt,
            targets=options.targets,
            facts=options.facts,
            is_printed=options.stdout,
        ),
        state=_state_folder(options),
        socket=_socket_path(options),
        now=datetime.now(UTC),
    )
    if options.stdout:
        _print(routine.text)
        for note in routine.notes:
            sys.stderr.write(f"note: {note}\n")
    else:
        write(routine)
        _print(describe(routine, json=options.json))
    return 0


def validate(options: CommandLine) -> int:
    """Print every fault of config, policy and routines; 1 if there is one."""
    from daemon.app.commands.validate import check_all, has_routine

    file = find_config(options.config, os.environ, _current_folder(), user_home())
    folder, state = options.directory, _state_folder(options)
    if folder and (folder.exists() or not file or not has_routine(file, str(folder), state)):
        file = folder / "config.toml"
    return check_all(file, json=options.json, state=state, elsewhere=options.elsewhere)


def doctor(options: CommandLine) -> int:
    """Examine the installation without a daemon; 1 if something is wrong."""
    from daemon.app.doctor.command import main as examine

    return examine(options)


def setup(options: CommandLine) -> int:
    """Set up a model, a target of reports and a first routine."""
    from daemon.app.setup.command import main as set_up

    home = user_home()
    file = find_config(options.config, os.environ, _current_folder(), home)
    return set_up(
        options,
        file=(file or user_config_folder(os.environ, home) / "config.toml").absolute(),
        state=_state_folder(options),
        sockets=_sockets_of_daemons(options),
    )


def target(options: CommandLine) -> int:
    """Send a test message to a target; 1 if it was not taken."""
    from daemon.app.commands.target import print_target_test

    return print_target_test(
        _load_config(options),
        options.name,
        state=_state_folder(options),
        env=os.environ,
        as_json=options.json,
    )


def policy(options: CommandLine) -> int:
    """Check and explain the policy, and compare it with another one."""
    from daemon.app.commands.policy_arguments import add_policy_verbs
    from daemon.cli.parser import Parser

    parser = Parser(
        prog=f"{options.program} policy",
        description="For the person who writes the policy; nothing is changed, but by suggest "
        "--confirm.",
    )
    for verb_parser in add_policy_verbs(parser):
        add_location_options(verb_parser, of_verb=True)
    options = parser.parse_args(options.verb_arguments, options)
    return int(options.on_policy(_policy_files(options), options))


def observe(options: CommandLine) -> int:
    """Begin or end the trial of a routine."""
    from daemon.app.commands.observe import observe as observe_routine

    return observe_routine(_policy_files(options), options)


def _policy_files(options: CommandLine) -> PolicyFiles:
    from daemon.app.commands.policy_files import PolicyFiles

    return PolicyFiles(
        config=_load_config(options),
        state=_state_folder(options),
        socket=_socket_path(options),
        as_json=getattr(options, "json", False),
    )


def service(options: CommandLine) -> int:
    """Install or remove a unit, once a person has seen it and said yes."""
    from daemon.app.commands.service_unit import confirm, install, plan_unit, uninstall

    system = options.system or (os.geteuid() == 0 and not options.user)
    if options.act == "uninstall":
        if not (options.yes or confirm("Stop agentd and remove its unit?")):
            raise Refused("nothing was changed; --yes does it without a question")
        _print("\n".join(uninstall(system=system)))
        return 0
    if options.state is not None:
        place, hint = "/var/lib/agentd", ""
        if not system:
            place = "~/.local/state/agentd"
            hint = (
                "; for another folder install it without --state, then `systemctl --user edit "
                "agentd`, and write [Service], Environment=AGENTD_STATE=DIR and BindPaths=DIR, a "
                "line each"
            )
        raise Refused(f"the unit keeps its state in {place}{hint}")
    config = (
        Path("/etc/agentd/config.toml")
        if system and options.config is None
        else _load_config(options).file
    )
    unit_plan = plan_unit(system=system, config=config.absolute())
    _print(unit_plan.description if options.show else unit_plan.summary)
    if options.show:
        return 0
    if not (options.yes or confirm("Write this and start it?")):
        raise Refused("nothing was changed; --yes does it without a question")
    _print("\n".join(install(unit_plan)))
    return 0


def logs(options: CommandLine) -> int:
    """Show the log file."""
    from daemon.app.commands.logs import main as show

    state = ["--state", str(options.state)] if options.state else []
    return show([*options.verb_arguments, *state])


# --- verbs that read and write the database


def replay(options: CommandLine) -> int:
    """Play a run again; 1 if it comes out otherwise."""
    from daemon.app.commands.replay import replay as replay_run

    load = partial(_load_config_if_any, options)
    return replay_run(options, state=_state_folder(options), load_config=load)


def freeze(options: CommandLine) -> int:
    """Write a run into a folder."""
    from daemon.app.commands.replay import freeze as freeze_run

    load = partial(_load_config_if_any, options)
    return freeze_run(options, state=_state_folder(options), load_config=load)


def backup(options: CommandLine) -> int:
    """Copy the database and the definitions into one file."""
    from daemon.app.commands.backup import backup as write_backup
    from daemon.cli.progress_bar import make_progress_bar

    config = _load_config_if_any(options)
    if config and config.store_url(os.environ):
        raise Refused(
            "the journal is in PostgreSQL: pg_dump takes a backup of it, whatever agentd does "
            "meanwhile"
        )
    size = write_backup(
        _state_folder(options),
        options.file.absolute(),
        config,
        progress=make_progress_bar("copying"),
    )
    _print(
        f"wrote {options.file}, {size / 1e6:.1f} MB; `agentctl restore "
        f"{quote(str(options.file))}` puts it back"
    )
    return 0


def restore(options: CommandLine) -> int:
    """Put a backup back."""
    from daemon.app.commands.backup import restore as restore_backup
    from daemon.cli.progress_bar import make_progress_bar

    try:
        config = _load_config_if_any(options)
    except ConfigError:
        config = None  # it may be wrong, as long as there is something to put back
    if options.state is None and config and config.store_url(os.environ):
        raise Refused(
            f"{config.file} keeps the journal in PostgreSQL, and a backup is put back into SQLite: "
            "to look at it, name a folder of its own with --state"
        )
    state = _state_folder(options)
    lines = restore_backup(
        options.file.absolute(),
        state,
        definitions=options.definitions,
        progress=make_progress_bar("restoring"),
    )
    last_line = "start agentd; everything stands still until you say: agentctl resume --all"
    _print("\n".join([*lines, last_line]))
    return 0


def export(options: CommandLine) -> int:
    """Write routines with their history."""
    from daemon.app.commands.transfer import export as write_export
    from daemon.cli.progress_bar import make_progress_bar

    config = _load_config(options)
    runs = write_export(
        _state_folder(options),
        options.file.absolute(),
        config,
        options.routines,
        progress=make_progress_bar("exporting"),
    )
    _print(
        f"wrote {options.file}: {runs} runs; on the other machine: agentctl import "
        f"{quote(options.file.name)}"
    )
    return 0


def import_(options: CommandLine) -> int:
    """Import routines with their history from another machine's export."""
    from daemon.app.commands.transfer import import_file
    from daemon.cli.progress_bar import make_progress_bar

    lines = import_file(
        options.file.absolute(),
        _state_folder(options),
        _load_config(options),
        progress=make_progress_bar("importing"),
    )
    _print("\n".join(lines))
    return 0


def import_crontab(options: CommandLine) -> int:
    """Show the routines that a crontab becomes, or write them; 1 if a line cannot be taken over."""
    from daemon.app.commands.import_crontab import (
        compose_import,
        describe,
        read_source,
        write,
    )

    source = read_source(
        options.file, has_users=options.system, stdin=lambda: sys.stdin.buffer.read()
    )
    files = _policy_files(options)
    result = compose_import(
        source,
        files.config,
        state=files.state,
        targets=options.targets,
        read_policy=files.make_reader(),
        env=os.environ,
    )
    if options.write:
        write(result, files.config)
    _print(describe(result, files.config, as_json=options.json))
    return 1 if result.refused_lines else 0


def _split_names(text: str) -> list[str]:
    """Return the names in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


# --- what is printed


def _print(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")
    sys.stdout.flush()


def _print_error(error: DaemonError, program: str) -> int:
    from daemon.cli.render import stderr_stream

    stderr_stream().write_prose(f"{program}: {error}")
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _unusable(error: OSError, state: Path) -> ConfigError:
    """Return what is said of a file or folder that a verb may not use, or that is none."""
    file = Path(os.fsdecode(error.filename))
    of_state = file.is_relative_to(state)
    hint = "name the daemon's state folder with --state, as the user it runs as" if of_state else ""
    problem = f"cannot be used: {error.strerror}"
    return ConfigError(Fault(file=str(file), key="", found="", problem=problem, hint=hint))


def _first_error(group: ExceptionGroup[DaemonError]) -> DaemonError:
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, ExceptionGroup) else first


if __name__ == "__main__":
    sys.exit(main())
