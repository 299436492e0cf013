"""The command `agentd`: start the daemon, run one routine in the foreground, or work without a
daemon.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.definitions.paths import (
    OVERLAY,
    describe_config_paths,
    find_config,
    find_socket,
    find_state,
    socket_in,
    user_home,
)
from daemon.errors import ConfigError, DaemonError, DatabaseAway, NotFound, Refused, StateBusy

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.app.parts import App
    from daemon.cli.parser import Parser
    from daemon.definitions.config.config import Config

EX_CONFIG = 78  # sysexits.h: something is wrong in a file; the unit does not restart on it
EX_TEMPFAIL = 75  # another daemon has the state, or the database is away; later it may be otherwise
# The first that fits; NotFound and Refused as agentctl ends.
EXIT_CODES: tuple[tuple[type[DaemonError], int], ...] = (
    (ConfigError, EX_CONFIG),
    (StateBusy, EX_TEMPFAIL),
    (DatabaseAway, EX_TEMPFAIL),
    (NotFound, 4),
    (Refused, 5),
    (DaemonError, 1),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `agentd` and return its exit code."""
    # None where the caller has closed them (`agentd >&-`)
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    options = _parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(options.verb(options))
    except DaemonError as error:
        return _fail(error)
    except ExceptionGroup as group:  # a task group wraps what it could not do
        errors, bugs = group.split(DaemonError)
        if errors is None or bugs is not None:
            raise
        return _fail(_first_of(errors))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("daemon"):
            raise
        command = "pip install -c constraints.txt -e ."
        sys.stderr.write(
            f"agentd: the package {error.name} is not installed; install agentd again: {command}\n"
        )
        return 1
    except BrokenPipeError:
        _silence_stdout()
        return 1
    except KeyboardInterrupt:
        return 130


class CommandLine(argparse.Namespace):
    """The options and arguments of the command line."""


def _parse_options(arguments: Sequence[str]) -> CommandLine:
    """Read the command line; a mistake in it is reported, and the process ends."""
    arguments, verb_arguments = _split_verb_arguments(arguments)
    return build_parser().parse_args(arguments, CommandLine(verb_arguments=verb_arguments))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `agentd` and its verbs."""
    from daemon.cli.parser import Parser

    parser = Parser(
        prog="agentd", description="Run LLM agents on a schedule. Without a verb: start the daemon."
    )
    parser.add_argument("--version", action="version", version=f"agentd {__version__}")
    add_location_options(parser)
    parser.set_defaults(verb=serve)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    once_parser = verbs.add_parser(
        "once", help="run one routine in the foreground and print its report"
    )
    once_parser.add_argument("routine")
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
    new_parser = verbs.add_parser("new", help="write a routine from a schedule in plain words")
    new_parser.add_argument("name", help="the routine's name, and its file's")
    new_parser.add_argument(
        "schedule", help='when it runs: "weekdays at 9am", "every 2 hours", "30 8 * * 1-5"'
    )
    new_parser.add_argument(
        "--prompt", metavar="TEXT", help="what it does; without it, the file waits for you"
    )
    new_parser.add_argument(
        "--stdout", action="store_true", help="print the file and write nothing"
    )
    new_parser.add_argument("--json", action="store_true")
    add_location_options(new_parser, of_verb=True)
    new_parser.set_defaults(verb=new)
    validate_parser = verbs.add_parser(
        "validate", help="check config, policy and routines; print every fault"
    )
    validate_parser.add_argument(
        "directory", nargs="?", type=Path, help="a folder with a config.toml"
    )
    validate_parser.add_argument("--json", action="store_true")
    add_location_options(validate_parser, of_verb=True)
    validate_parser.set_defaults(verb=validate)
    doctor_parser = verbs.add_parser("doctor", help="look for what is wrong with this installation")
    doctor_parser.add_argument("--json", action="store_true")
    add_location_options(doctor_parser, of_verb=True)
    doctor_parser.set_defaults(verb=doctor)
    policy_parser = verbs.add_parser(
        "policy", help="check, explain, test, backtest or suggest a policy", add_help=False
    )
    policy_parser.set_defaults(verb=policy)
    _add_replay_verbs(verbs)
    _add_transfer_verbs(verbs)
    logs_parser = verbs.add_parser(
        "logs", help="show the log, without a daemon too", add_help=False
    )
    logs_parser.set_defaults(verb=logs)
    return parser


def _add_replay_verbs(verbs: argparse._SubParsersAction[Parser]) -> None:
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


def _split_verb_arguments(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the arguments for the parser of `agentd`, and those behind a verb with a parser of its
    own.

    argparse would take the options of such a verb for those of `agentd`: its REMAINDER begins at
    the first argument without a dash.
    """
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in ("--config", "--state") else 1
    if index < len(arguments) and arguments[index] in ("policy", "logs"):
        return arguments[: index + 1], arguments[index + 1 :]
    return arguments, ()


def _add_transfer_verbs(verbs: argparse._SubParsersAction[Parser]) -> None:
    backup_parser = verbs.add_parser(
        "backup", help="copy all that is known into one file; a daemon may go on"
    )
    backup_parser.add_argument("file", type=Path, help="a new file")
    backup_parser.set_defaults(verb=backup)
    restore_parser = verbs.add_parser(
        "restore", help="put a backup back; everything stands still until resume --all"
    )
    restore_parser.add_argument("file", type=Path)
    about = "write config, policy and routines of the backup there, where nothing is"
    restore_parser.add_argument("--definitions", type=Path, metavar="DIR", help=about)
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


def _installation(options: CommandLine, *, console: bool) -> Installation:
    """Return where the daemon lives. Nothing is created yet."""
    from daemon.app.installation import Installation
    from daemon.telemetry.redaction import Secrets

    if sys.platform == "linux":
        from daemon.sandbox.confine import keep_memory_private

        keep_memory_private()  # keys will be in it
    state = _state(options)
    config = _load_config(options, state / OVERLAY)
    return Installation(
        config=config,
        state=state,
        socket=_socket(options),
        log_file=state / "logs" / "agentd.jsonl",
        console=console,
        env=dict(os.environ),
        secrets=Secrets(),
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


def serve(options: CommandLine) -> int:
    """Start the daemon and stay until SIGTERM or Ctrl-C."""
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.banner import banner
    from daemon.app.wiring import open_app

    _raise_descriptor_limit()

    async def announce(app: App) -> None:
        try:
            _print(banner(app))
            await _suggest_models(app)
        except OSError:  # the output is closed or its disk is full, which is no reason not to run
            _silence_stdout()

    async def run() -> None:
        async with open_app(_installation(options, console=True)) as app:
            await lifecycle.serve(app, announce)

    asyncio.run(run())
    return 0


async def _suggest_models(app: App) -> None:
    """Name the models that could be asked while none is; at the terminal, ask about each once."""
    from daemon.app.first_start import ProviderSuggestion, answer_key, can_answer, detect_models

    journal = app.store.journal
    models = await detect_models(app.settings.config.provider, app.installation.env)
    questions = []
    for model in models:
        if can_answer() and not await journal.facts.recall(answer_key(model)):
            questions.append(model)
        else:
            _print(model.announcement)
    ProviderSuggestion(
        questions,
        app.settings.config.file,
        write=_print,
        remember=journal.facts.remember,
        tasks=app.tasks,
    ).ask()


def worker(options: CommandLine) -> int:
    """Execute runs that daemons start, until SIGTERM or Ctrl-C."""
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.wiring import open_app
    from daemon.errors import Fault

    _raise_descriptor_limit()
    installation = _installation(options, console=True)
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

    async def run() -> None:
        async with open_app(installation, role="worker") as app:
            await lifecycle.work(app, announce)

    asyncio.run(run())
    return 0


def once(options: CommandLine) -> int:
    """Run one routine in the foreground; if a daemon holds the state, hand the run over to it."""
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.background import import_for_runs
    from daemon.app.wiring import open_app

    import_for_runs()
    from daemon.cli.call import exit_code_of
    from daemon.cli.client import Client, Unreachable
    from daemon.cli.main import main as agentctl

    async def run_here() -> int:
        installation = _installation(options, console=sys.stderr.isatty())
        async with open_app(installation, role="once") as app:
            run = await lifecycle.once(app, options.routine)
            if run.report:
                _print(run.report)
            if run.detail:
                sys.stderr.write(f"{run.status}: {run.detail}\n")
            # a failed delivery stays in the outbox until a daemon or the next `once` tries again:
            # to a script that is a failure
            failed = [
                delivery
                for delivery in await app.store.journal.outbox.find_of_runs([run.id])
                if delivery.error and not delivery.receipt
            ]
            for delivery in failed:
                sys.stderr.write(f"not delivered to {delivery.target}: {delivery.error}\n")
            return exit_code_of(run.status, ["failed" for _ in failed])

    try:
        return asyncio.run(run_here())
    except StateBusy as busy:
        socket = _socket(options)
        try:
            Client(os.fspath(socket)).connect().close()
        except Unreachable:
            raise busy from None  # it is no daemon that holds the state, but another `agentd once`
        return agentctl(["--socket", str(socket), "run", options.routine])


def init(options: CommandLine) -> int:
    """Write the shipped files for somebody who installed a wheel."""
    from daemon.app.commands.init import init as write_shipped_files

    folder = options.directory or user_home() / ".config" / "agentd"
    paths = write_shipped_files(folder)
    lines = [f"wrote {path}" for path in paths] or [
        f"everything is in {folder} already; nothing was changed"
    ]
    _print("\n".join([*lines, f"start with: agentd --config {folder / 'config.toml'}"]))
    return 0


def new(options: CommandLine) -> int:
    """Write a routine, or print it."""
    from datetime import UTC, datetime

    from daemon.app.commands.new import compose, describe, write

    routine = compose(
        _load_config(options),
        options.name,
        options.schedule,
        prompt=options.prompt,
        now=datetime.now(UTC),
    )
    if options.stdout:
        _print(routine.text)
    else:
        write(routine)
        _print(describe(routine, json=options.json))
    return 0


def validate(options: CommandLine) -> int:
    """Print every fault of config, policy and routines; 1 if there is one."""
    from daemon.app.commands.validate import check_all

    config = options.directory / "config.toml" if options.directory else None
    file = config or find_config(options.config, os.environ, _current_folder(), user_home())
    return check_all(file, json=options.json)


def doctor(options: CommandLine) -> int:
    """Examine the installation without a daemon; 1 if something is wrong."""
    from daemon.app.doctor.command import main as examine

    return examine(options)


def policy(options: CommandLine) -> int:
    """Check and explain the policy, and compare it with another one."""
    from daemon.app.commands.policy_arguments import add_policy_verbs
    from daemon.app.commands.policy_files import PolicyFiles
    from daemon.cli.parser import Parser

    parser = Parser(
        prog="agentd policy",
        description="For the person who writes the policy; nothing is changed.",
    )
    for verb_parser in add_policy_verbs(parser):
        add_location_options(verb_parser, of_verb=True)
    options = parser.parse_args(options.verb_arguments, options)
    files = PolicyFiles(
        config=_load_config(options), state=_state(options), as_json=getattr(options, "json", False)
    )
    return int(options.on_policy(files, options))


def _state(options: CommandLine) -> Path:
    """Return the state folder."""
    option: Path | None = options.state
    return (option or find_state(os.environ, user_home(), uid=os.getuid())).absolute()


def _socket(options: CommandLine) -> Path:
    """Return the path of the control socket."""
    state, uid = _state(options), os.getuid()
    if options.state:
        return socket_in(state, uid=uid)
    return find_socket(state, os.environ, uid=uid)


def _load_config_if_any(options: CommandLine) -> Config | None:
    """Load the config that wins; None where there is none and none was named."""
    if (
        options.config is None
        and find_config(None, os.environ, _current_folder(), user_home()) is None
    ):
        return None
    return _load_config(options)


def replay(options: CommandLine) -> int:
    """Play a run again; 1 if it comes out otherwise."""
    from daemon.app.commands.replay import replay as replay_run

    load = partial(_load_config_if_any, options)
    return replay_run(options, state=_state(options), load_config=load)


def freeze(options: CommandLine) -> int:
    """Write a run into a folder."""
    from daemon.app.commands.replay import freeze as freeze_run

    load = partial(_load_config_if_any, options)
    return freeze_run(options, state=_state(options), load_config=load)


def backup(options: CommandLine) -> int:
    """Copy the database and the definitions into one file."""
    from daemon.app.commands.backup import backup as write_backup
    from daemon.cli.progress_bar import progress_bar

    config = _load_config_if_any(options)
    if config and config.store_url(os.environ):
        raise Refused(
            (  # noqa: UP034
                "the journal is in PostgreSQL: pg_dump takes a backup of it, whatever agentd does "
                "meanwhile"
            )
        )
    size = write_backup(
        _state(options), options.file.absolute(), config, progress=progress_bar("copying")
    )
    _print(
        f"wrote {options.file}, {size / 1e6:.1f} MB; `agentctl restore {options.file}` puts it back"
    )
    return 0


def restore(options: CommandLine) -> int:
    """Put a backup back."""
    from daemon.app.commands.backup import restore as restore_backup
    from daemon.cli.progress_bar import progress_bar

    state = _state(options)
    lines = restore_backup(
        options.file.absolute(),
        state,
        definitions=options.definitions,
        progress=progress_bar("restoring"),
    )
    last = "start agentd; everything stands still until you say: agentctl resume --all"
    _print("\n".join([*lines, last]))
    return 0


def export(options: CommandLine) -> int:
    """Write routines with their history."""
    from daemon.app.commands.transfer import export as write_export
    from daemon.cli.progress_bar import progress_bar

    config = _load_config(options)
    runs = write_export(
        _state(options),
        options.file.absolute(),
        config,
        options.routines,
        progress=progress_bar("exporting"),
    )
    _print(
        (  # noqa: UP034
            f"wrote {options.file}: {runs} runs; on the other machine: agentctl import "
            f"{options.file.name}"
        )
    )
    return 0


def import_(options: CommandLine) -> int:
    """Import routines with their history from another machine's export."""
    from daemon.app.commands.transfer import import_file
    from daemon.cli.progress_bar import progress_bar

    lines = import_file(
        options.file.absolute(),
        _state(options),
        _load_config(options),
        progress=progress_bar("importing"),
    )
    _print("\n".join(lines))
    return 0


def service(options: CommandLine) -> int:
    """Install or remove a unit, once a person has seen it and said yes."""
    from daemon.app.commands.service_unit import confirm, install, plan, uninstall

    system = options.system or (os.geteuid() == 0 and not options.user)
    if options.act == "uninstall":
        if not (options.yes or confirm("Stop agentd and remove its unit?")):
            raise Refused("nothing was changed; --yes does it without a question")
        _print("\n".join(uninstall(system=system)))
        return 0
    config = (
        Path("/etc/agentd/config.toml")
        if system and options.config is None
        else _load_config(options).file
    )
    unit = plan(system=system, config=config.absolute())
    _print(unit.description)
    if options.show:
        return 0
    if not (options.yes or confirm("Write this and start it?")):
        raise Refused("nothing was changed; --yes does it without a question")
    _print("\n".join(install(unit)))
    return 0


def logs(options: CommandLine) -> int:
    """Show the log file."""
    from daemon.app.commands.logs import main as show

    state = ["--state", str(options.state)] if options.state else []
    return show([*options.verb_arguments, *state])


def _print(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")
    sys.stdout.flush()


def _silence_stdout() -> None:
    """Discard what is printed from now on: nobody reads it."""
    with suppress(OSError):  # no descriptor is left: then the next print fails
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: DaemonError) -> int:
    sys.stderr.write(f"agentd: {error}\n")
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _first_of(group: ExceptionGroup[DaemonError]) -> DaemonError:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


if __name__ == "__main__":
    sys.exit(main())
