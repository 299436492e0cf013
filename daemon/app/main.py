"""The command `agentd`: start the daemon, run one routine in the foreground, or work without a
daemon.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
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
    options = _options(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(options.verb(options))
    except DaemonError as error:
        return _fail(error)
    except ExceptionGroup as group:  # a task group wraps what it could not do
        known, unknown = group.split(DaemonError)
        if known is None or unknown is not None:
            raise
        return _fail(_first_of(known))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("daemon"):
            raise
        again = "pip install -c constraints.txt -e ."
        sys.stderr.write(
            f"agentd: the package {error.name} is not installed; install agentd again: {again}\n"
        )
        return 1
    except BrokenPipeError:
        _say_no_more()
        return 1
    except KeyboardInterrupt:
        return 130


class CommandLine(argparse.Namespace):
    """What the command line said."""


def _options(words: Sequence[str]) -> CommandLine:
    """Read the command line; whoever makes a mistake in it is told, and the process ends."""
    words, rest = _apart(words)
    return _parser().parse_args(words, CommandLine(rest=rest))


def _parser() -> argparse.ArgumentParser:
    from daemon.cli.parser import Parser

    parser = Parser(
        prog="agentd", description="Run LLM agents on a schedule. Without a verb: start the daemon."
    )
    parser.add_argument("--version", action="version", version=f"agentd {__version__}")
    _add_places(parser)
    parser.set_defaults(verb=serve)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    once_parser = verbs.add_parser(
        "once", help="run one routine in the foreground and print its report"
    )
    once_parser.add_argument("routine")
    _add_places(once_parser, again=True)
    once_parser.set_defaults(verb=once)
    worker_parser = verbs.add_parser(
        "worker", help="live runs that daemons on the same database start"
    )
    _add_places(worker_parser, again=True)
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
    _add_places(new_parser, again=True)
    new_parser.set_defaults(verb=new)
    validate_parser = verbs.add_parser(
        "validate", help="check config, policy and routines; print every fault"
    )
    validate_parser.add_argument(
        "directory", nargs="?", type=Path, help="a folder with a config.toml"
    )
    validate_parser.add_argument("--json", action="store_true")
    _add_places(validate_parser, again=True)
    validate_parser.set_defaults(verb=validate)
    doctor_parser = verbs.add_parser("doctor", help="look for what is wrong with this installation")
    doctor_parser.add_argument("--json", action="store_true")
    _add_places(doctor_parser, again=True)
    doctor_parser.set_defaults(verb=doctor)
    policy_parser = verbs.add_parser(
        "policy", help="check, explain, test, backtest or suggest a policy", add_help=False
    )
    policy_parser.set_defaults(verb=policy)
    _add_replays(verbs)
    _add_moves(verbs)
    logs_parser = verbs.add_parser(
        "logs", help="show the log, without a daemon too", add_help=False
    )
    logs_parser.set_defaults(verb=logs)
    return parser


def _add_replays(verbs: argparse._SubParsersAction[Parser]) -> None:
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
        _add_places(parser, again=True)


def _apart(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words for the parser below, and those behind a verb that reads its own.

    argparse would take the latter's options for ours: its REMAINDER begins at the first word
    without a dash.
    """
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in ("--config", "--state") else 1
    if place < len(words) and words[place] in ("policy", "logs"):
        return words[: place + 1], words[place + 1 :]
    return words, ()


def _add_moves(verbs: argparse._SubParsersAction[Parser]) -> None:
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
    _add_places(service_parser, again=True)
    for parser in (backup_parser, restore_parser, export_parser, import_parser):
        _add_places(parser, again=True)


def _add_places(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    default = (
        argparse.SUPPRESS if again else None
    )  # a verb's parser must not reset what stood before the verb
    parser.add_argument(
        "--config", type=Path, default=default, metavar="FILE", help="the config file"
    )
    parser.add_argument(
        "--state", type=Path, default=default, metavar="DIR", help="where its own data is"
    )


def _folder() -> Path:
    """Return the current folder, or the root where somebody has deleted it under us."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _config(options: CommandLine, overlay: Path | None = None) -> Config:
    """Return the config that wins, with what agents wrote above it; ConfigError if there is none,
    naming where it was looked for.
    """
    from daemon.definitions.config.loading import load_config
    from daemon.errors import Fault

    cwd, home = _folder(), user_home()
    found = find_config(options.config, os.environ, cwd, home)
    if found is None:
        problem = f"not found in {describe_config_paths(os.environ, cwd, home)}"
        hint = "`agentd init` writes one to ~/.config/agentd"
        raise ConfigError(Fault(file="config.toml", key="", found="", problem=problem, hint=hint))
    return load_config(found, overlay)


def _place(options: CommandLine, *, console: bool) -> Installation:
    """Return where the daemon lives; nothing is made yet."""
    from daemon.app.installation import Installation
    from daemon.telemetry.redaction import Secrets

    if sys.platform == "linux":
        from daemon.sandbox.confine import keep_memory_private

        keep_memory_private()  # keys will be in it
    uid = os.getuid()
    state = (options.state or find_state(os.environ, user_home(), uid=uid)).absolute()
    config = _config(options, state / OVERLAY)
    socket = socket_in(state, uid=uid) if options.state else find_socket(state, os.environ, uid=uid)
    return Installation(
        config=config,
        state=state,
        socket=socket,
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
    with suppress(
        ValueError, OSError
    ):  # macOS takes no "unlimited" here, and has a soft limit that does
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
            _say(banner(app))
            await offer(app)
        except (
            OSError
        ):  # whoever started us reads no more, or has no room; that is no reason not to run
            _say_no_more()

    async def offer(app: App) -> None:
        from daemon.app.first_start import ProviderSuggestion, asked, at_hand, at_the_terminal

        found = await at_hand(app.settings.config.provider, app.installation.env)
        asking = [
            each
            for each in found
            if at_the_terminal() and not await app.store.journal.recall(asked(each))
        ]
        for each in found:
            if each not in asking:
                _say(each.announced)
        ProviderSuggestion(
            asking,
            app.settings.config.file,
            say=_say,
            remember=app.store.journal.remember,
            tasks=app.tasks,
        ).ask()

    async def live() -> None:
        async with open_app(_place(options, console=True)) as app:
            await lifecycle.serve(app, announce)

    asyncio.run(live())
    return 0


def worker(options: CommandLine) -> int:
    """Live runs that daemons start, until SIGTERM or Ctrl-C."""
    import asyncio

    from daemon.app import lifecycle
    from daemon.app.wiring import open_app
    from daemon.errors import Fault

    _raise_descriptor_limit()
    place = _place(options, console=True)
    if place.config.executor.kind == "local":
        file, problem = (
            os.fspath(place.config.file),
            "a worker needs a queue that daemons put runs into",
        )
        hint = '[executor] kind = "procrastinate", and [store] url'
        raise ConfigError(
            Fault(file=file, key="executor.kind", found="local", problem=problem, hint=hint)
        )

    async def announce(app: App) -> None:
        _say(
            f"agentd worker {__version__}, up to {app.runs.queue.capacity} runs at a time from "
            f"{app.store.database.place}\n"
            f"log: {place.log_file}; Ctrl-C stops it, and its runs go on elsewhere"
        )

    async def live() -> None:
        async with open_app(place, role="worker") as app:
            await lifecycle.work(app, announce)

    asyncio.run(live())
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

    async def run() -> int:
        place = _place(options, console=sys.stderr.isatty())
        async with open_app(place, role="once") as app:
            ended = await lifecycle.once(app, options.routine)
            if ended.report:
                _say(ended.report)
            if ended.detail:
                sys.stderr.write(f"{ended.status}: {ended.detail}\n")
            # it lies there until a daemon or the next `once` tries again: to a script that is a
            # failure
            lost = [
                each
                for each in await app.store.journal.deliveries(run=ended.id)
                if each.error and not each.receipt
            ]
            for each in lost:
                sys.stderr.write(f"not delivered to {each.target}: {each.error}\n")
            return exit_code_of(ended.status, ["failed" for _ in lost])

    try:
        return asyncio.run(run())
    except StateBusy as busy:
        uid = os.getuid()
        state = (options.state or find_state(os.environ, user_home(), uid=uid)).absolute()
        socket = (
            socket_in(state, uid=uid) if options.state else find_socket(state, os.environ, uid=uid)
        )
        try:
            Client(os.fspath(socket)).connect().close()
        except Unreachable:
            raise busy from None  # it is no daemon that holds the state, but another `agentd once`
        return agentctl(["--socket", str(socket), "run", options.routine])


def init(options: CommandLine) -> int:
    """Write the shipped files for somebody who installed a wheel."""
    from daemon.app.commands.init import init as write

    folder = options.directory or user_home() / ".config" / "agentd"
    written = write(folder)
    lines = [f"wrote {path}" for path in written] or [
        f"everything is in {folder} already; nothing was changed"
    ]
    _say("\n".join([*lines, f"start with: agentd --config {folder / 'config.toml'}"]))
    return 0


def new(options: CommandLine) -> int:
    """Write a routine, or print it."""
    from datetime import UTC, datetime

    from daemon.app.commands.new import compose, told, write

    asked = compose(
        _config(options),
        options.name,
        options.schedule,
        prompt=options.prompt,
        now=datetime.now(UTC),
    )
    if options.stdout:
        _say(asked.text)
    else:
        write(asked)
        _say(told(asked, json=options.json))
    return 0


def validate(options: CommandLine) -> int:
    """Print every fault of config, policy and routines; 1 if there is one."""
    from daemon.app.commands.validate import check_all

    config = options.directory / "config.toml" if options.directory else None
    found = config or find_config(options.config, os.environ, _folder(), user_home())
    return check_all(found, json=options.json)


def doctor(options: CommandLine) -> int:
    """Look at the installation without a daemon; 1 if something is wrong."""
    from daemon.app.doctor.command import main as examine

    return examine(options)


def policy(options: CommandLine) -> int:
    """Work on the policy: what it says, and what another would have said."""
    from daemon.app.commands.policy_arguments import add_words
    from daemon.app.commands.policy_files import PolicyFiles
    from daemon.cli.parser import Parser

    parser = Parser(
        prog="agentd policy",
        description="For the person who writes the policy; nothing is changed.",
    )
    for each in add_words(parser):
        _add_places(each, again=True)
    asked = parser.parse_args(options.rest, options)
    approver = PolicyFiles(
        config=_config(asked), state=_state(asked), as_json=getattr(asked, "json", False)
    )
    return int(asked.on_policy(approver, asked))


def _state(options: CommandLine) -> Path:
    """Return the state folder that is meant."""
    named: Path | None = options.state
    return (named or find_state(os.environ, user_home(), uid=os.getuid())).absolute()


def _config_if_any(options: CommandLine) -> Config | None:
    """Return the config that wins; None where there is none and none was named."""
    if options.config is None and find_config(None, os.environ, _folder(), user_home()) is None:
        return None
    return _config(options)


def replay(options: CommandLine) -> int:
    """Play a run again; 1 if it comes out otherwise."""
    from daemon.app.commands import replay as encore

    return encore.replay(
        options, state=lambda: _state(options), config=lambda: _config_if_any(options)
    )


def freeze(options: CommandLine) -> int:
    """Write a run into a folder."""
    from daemon.app.commands import replay as encore

    return encore.freeze(
        options, state=lambda: _state(options), config=lambda: _config_if_any(options)
    )


def backup(options: CommandLine) -> int:
    """Copy all that is known into one file."""
    from daemon.app.commands.backup import backup as copy
    from daemon.cli.progress_bar import progress_bar

    config = _config_if_any(options)
    if config and config.store_url(os.environ):
        raise Refused(
            (  # noqa: UP034
                "the journal is in PostgreSQL: pg_dump takes a backup of it, whatever agentd does "
                "meanwhile"
            )
        )
    size = copy(_state(options), options.file.absolute(), config, progress=progress_bar("copying"))
    _say(
        f"wrote {options.file}, {size / 1e6:.1f} MB; `agentctl restore {options.file}` puts it back"
    )
    return 0


def restore(options: CommandLine) -> int:
    """Put a backup back."""
    from daemon.app.commands.backup import restore as put_back
    from daemon.cli.progress_bar import progress_bar

    state = _state(options)
    done = put_back(
        options.file.absolute(),
        state,
        definitions=options.definitions,
        progress=progress_bar("restoring"),
    )
    last = "start agentd; everything stands still until you say: agentctl resume --all"
    _say("\n".join([*done, last]))
    return 0


def export(options: CommandLine) -> int:
    """Write routines with their history."""
    from daemon.app.commands.transfer import export as write
    from daemon.cli.progress_bar import progress_bar

    config = _config(options)
    runs = write(
        _state(options),
        options.file.absolute(),
        config,
        options.routines,
        progress=progress_bar("exporting"),
    )
    _say(
        (  # noqa: UP034
            f"wrote {options.file}: {runs} runs; on the other machine: agentctl import "
            f"{options.file.name}"
        )
    )
    return 0


def import_(options: CommandLine) -> int:
    """Take in what was exported elsewhere."""
    from daemon.app.commands.transfer import take_in
    from daemon.cli.progress_bar import progress_bar

    done = take_in(
        options.file.absolute(),
        _state(options),
        _config(options),
        progress=progress_bar("importing"),
    )
    _say("\n".join(done))
    return 0


def service(options: CommandLine) -> int:
    """Install or remove a unit, once somebody has seen it and said yes."""
    from daemon.app.commands.service_unit import agreed, install, plan, uninstall

    system = options.system or (os.geteuid() == 0 and not options.user)
    if options.act == "uninstall":
        if not (options.yes or agreed("Stop agentd and remove its unit?")):
            raise Refused("nothing was changed; --yes does it without a question")
        _say("\n".join(uninstall(system=system)))
        return 0
    config = (
        Path("/etc/agentd/config.toml")
        if system and options.config is None
        else _config(options).file
    )
    wanted = plan(system=system, config=config.absolute())
    _say(wanted.words)
    if options.show:
        return 0
    if not (options.yes or agreed("Write this and start it?")):
        raise Refused("nothing was changed; --yes does it without a question")
    _say("\n".join(install(wanted)))
    return 0


def logs(options: CommandLine) -> int:
    """Show the log file."""
    from daemon.app.commands.logs import main as show

    state = ["--state", str(options.state)] if options.state else []
    return show([*options.rest, *state])


def _say(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")
    sys.stdout.flush()


def _say_no_more() -> None:
    with suppress(OSError):  # no descriptor is left: then it is the next words that fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: DaemonError) -> int:
    sys.stderr.write(f"agentd: {error}\n")
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _first_of(group: ExceptionGroup[DaemonError]) -> DaemonError:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


if __name__ == "__main__":
    sys.exit(main())
