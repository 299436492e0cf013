"""`agentd validate`: all faults of config, policy and routines at once, without a daemon."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from daemon.app.commands.pages import find_urls
from daemon.app.policy import load_policy, private_host_notes, with_folders_in_use
from daemon.cli.render import stdout_stream
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import BUILT_IN_TARGETS, KINDS_BY_KEY
from daemon.definitions.paths import describe_config_paths, find_socket, find_state, user_home
from daemon.definitions.reading import read_toml, with_lines_of_file
from daemon.definitions.routines.checks import find_path_fault, reference_checks
from daemon.definitions.routines.folder import (
    AGENT_FOLDER,
    calendar_checks,
    is_routine_file,
    load_folder,
)
from daemon.definitions.routines.routine import Routine
from daemon.definitions.skills import load_skills as load_skills
from daemon.definitions.values import Table
from daemon.definitions.words import display
from daemon.delivery.targets import find_address_fault, find_missing_extra
from daemon.errors import ConfigError, Fault
from daemon.plurals import pluralize
from daemon.policy.policy import Policy
from daemon.policy.policy_file import RUN_END_TOOLS
from daemon.policy.policy_file import TOOLS as SHIPPED_TOOLS
from daemon.providers import create_provider
from daemon.providers.budget import price_checks
from daemon.providers.programs import describe_missing_program, find_program
from daemon.runs.approvals.expected import allowed_tools, describe_approvals, offered_tools
from daemon.runs.approvals.own_calls import find_obstructed_calls
from daemon.scheduler.routine_checks import (
    argument_checks,
    judge_checks,
    provider_checks,
    schema_checks,
    sender_checks,
)
from daemon.scheduler.routine_times import schedule_of
from daemon.system.clock import host_zone
from daemon.telemetry.redaction import has_ordinary_password
from daemon.tools import user_tools
from daemon.tools.builtin import files, git, http_request, shell, sysinfo
from daemon.tools.registry import FunctionRegistry

# The tools of every daemon; a test compares them with those that a daemon registers.
TOOLS = frozenset(SHIPPED_TOOLS) - {"web_search"}  # registered where [search] says how to search

# Of files in the folder of routines that people take for routines; others are notes of theirs.
_SUFFIXES_OF_ROUTINES = frozenset({".yaml", ".yml", ".json", ".tml", ".tom", ".tolm", ".toml"})


@dataclass(slots=True)
class Checkup:
    """What was checked, and what is wrong with it."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Problems that are no fault of a file, such as an API key that is not set."""
    missing_parts: list[str] = field(default_factory=list)
    """The notes on what a daemon would not start without on this machine."""
    checked_files: list[str] = field(default_factory=list)
    config: Config | None = None
    """None if it cannot be loaded."""
    policy_file: Path | None = None
    policy: Policy | None = None
    """None if it cannot be used."""
    routines: Mapping[str, Routine] = field(default_factory=dict)
    """Those that can be used, by name."""

    @property
    def summary(self) -> str:
        """The result in one line."""
        if self.faults:
            files = len({fault.file for fault in self.faults})
            problems = pluralize(len(self.faults), "problem")
            return f"{problems} in {pluralize(files, 'file')}"
        if self.missing_parts:
            subject, verb = pluralize(len(self.missing_parts), "thing"), "is"
            if len(self.missing_parts) > 1:
                verb = "are"
            return (
                f"{subject} {verb} missing on this machine: a daemon would not start here; "
                "--elsewhere if it is to run on another"
            )
        return f"no problems in {', '.join(self.checked_files)}"


def check_all(
    config: Path | None,
    *,
    json: bool = False,
    env: Mapping[str, str] | None = None,
    state: Path | None = None,
    elsewhere: bool = False,
) -> int:
    """Check a config file and all files it names, and print what is wrong; return 1 if a daemon
    would not start or a routine could not run.

    With `elsewhere`, keys and addresses that are missing on this machine do not count.
    """
    env = os.environ if env is None else env
    if config is None:
        problem = f"not found in {describe_config_paths(env, Path.cwd(), user_home())}"
        hint = "`agentd init` writes one"
        checkup = Checkup([Fault(file="config.toml", key="", found="", problem=problem, hint=hint)])
    else:
        state = state or find_state(env, user_home(), uid=os.getuid())
        checkup = examine(config, env=env, state=state, tools=TOOLS)
        if elsewhere:
            checkup.missing_parts = []
    files = list(dict.fromkeys(fault.file for fault in checkup.faults))
    checkup.faults.sort(key=lambda fault: (files.index(fault.file), fault.line or 0))
    if json:
        sys.stdout.write(_as_json(checkup))
    else:
        out = stdout_stream()
        for line in _lines_of(checkup):
            out.write_prose(line)
    return 1 if checkup.faults or checkup.missing_parts else 0


def has_routine(config_file: Path, name: str, state: Path) -> bool:
    """Tell whether there is a file of a routine of this name, which may be faulty."""
    config, _, _ = _read_faulty_config(config_file)
    folders = (config.routines_path, state / AGENT_FOLDER)
    return Path(name).name == name and any((folder / f"{name}.toml").exists() for folder in folders)


def examine(
    file: Path,
    *,
    env: Mapping[str, str],
    state: Path,
    tools: Collection[str] | None = None,
    socket: Path | None = None,
    own_tools: FunctionRegistry | None = None,
) -> Checkup:
    """Check the config file, its policy and its routines, and with `tools` also the names of tools
    in routines.

    `own_tools` are the tools of `[tools]`, which a daemon has loaded; None loads them.
    """
    checkup = Checkup(checked_files=[_display_relative(file)])
    providers: frozenset[str] | None
    targets: frozenset[str] | None
    provider_faults: dict[str, list[Fault]] = {}
    try:
        config = checkup.config = load_config(file, env=env)
        providers = config.provider_names
        # as which routines there are is not known yet: only what each start needs
        provider_faults = _provider_faults(config)
        checkup.faults += provider_faults.pop(config.provider, [])
        config.hooks_secret()
        config.sender_secrets()
        targets = config.target_names
    except ConfigError as error:
        checkup.faults += error.faults
        config, providers, targets = _read_faulty_config(file)
    checkup.policy_file = config.policy_path
    policy, own_registry = None, own_tools or FunctionRegistry()
    try:
        if own_tools is None:
            own_registry = user_tools.load(config)
        own_names = own_registry.names()
        if config.search.kind:
            own_names.append("web_search")
    except ConfigError as error:
        own_names, tools = [], None  # so names of tools in routines cannot be checked
        checkup.faults += error.faults
    tools = tools and {*tools, *own_names}
    try:
        policy = checkup.policy = load_policy(
            config,
            state=state,
            socket=socket or find_socket(state, env, uid=os.getuid()),
            own_tools=own_names,
        )
        checkup.checked_files.append(_display_relative(config.policy_path))
    except ConfigError as error:
        checkup.faults += error.faults
    try:
        checks = (
            *reference_checks(providers, tools, targets=targets),
            *price_checks(config),
            *provider_checks(config),
            *sender_checks(config),
            *judge_checks(config),
            *schema_checks(config.workspace_path(state)),
            *calendar_checks(config.workspace_path(state)),
            *argument_checks([own_registry, *([_gathering_tools(policy)] if policy else [])]),
        )
        contents = load_folder(
            config.routines_path,
            agent_folder=state / AGENT_FOLDER,
            checks=checks,
            workspace=config.workspace_path(state),
        )
    except ConfigError as error:
        checkup.faults += error.faults
        return checkup
    checkup.routines = contents.routines
    checkup.faults += load_skills(config.folder / "skills").faults.values()
    checkup.faults += [fault for error in contents.faults.values() for fault in error.faults]
    count, names = pluralize(len(contents.routines), "routine"), ", ".join(contents.routines)
    checkup.checked_files.append(f"{count} ({names})" if names else count)
    providers_used = config.providers_in_use
    for routine in contents.routines.values():
        providers_used |= routine.named_providers
    for name, faults in provider_faults.items():
        if name in providers_used:
            checkup.faults += faults
        else:  # nobody uses it, so nothing fails
            checkup.notes += map(str, faults)
    checkup.notes += [
        f"the environment variable {override.variable} sets {override.key}"
        for override in config.overrides
    ]
    checkup.missing_parts += _missing_keys(config, {config.provider} & config.provider_names, env)
    checkup.missing_parts += _missing_secrets(config, env)
    checkup.missing_parts += find_unusable_workspace(config, state)
    checkup.notes += checkup.missing_parts
    other_providers = (providers_used - {config.provider}) & config.provider_names
    checkup.notes += _missing_keys(config, other_providers, env)
    checkup.notes += _missing_programs(config, env)
    checkup.notes += _missing_extras(config, contents.routines.values(), env)
    checkup.notes += _unusable_addresses(config, env)
    checkup.notes += _unusable_paths(config, contents.routines.values())
    checkup.notes += _keys_without_effect(config)
    checkup.notes += _ordinary_passwords(config, env)
    checkup.notes += _unread_files(config.routines_path)
    checkup.notes += _silent_routines(contents.routines.values())
    checkup.notes += _repeated_deliveries(contents.routines.values())
    checkup.notes += _factless_routines(contents.routines.values())
    checkup.notes += _idle_triggers(contents.routines.values(), config.timezone or host_zone(env))
    if policy:
        policy = with_folders_in_use(policy, config, contents.routines.values(), state=state)
        policy_name = display(config.policy_path)
        checkup.notes += (f"{policy_name}: {note}" for note in private_host_notes(policy))
        checkup.faults += policy_faults(policy, contents.routines.values())
        checkup.notes += policy_notes(policy, contents.routines.values())
        checkup.notes += _unusable_tools(policy, contents.routines.values())
    return checkup


def policy_faults(policy: Policy, routines: Iterable[Routine]) -> list[Fault]:
    """Return a fault for each call of a routine's own that its runs need and the policy denies:
    the command of a gate or a check, and a gather step that is not `required = false`.
    """
    faults: list[Fault] = []
    for own_call in find_obstructed_calls(policy, routines):
        if not own_call.fails_every_run:
            continue
        fault = Fault(
            file=_file_of(own_call.routine),
            key=own_call.key,
            found=own_call.found,
            problem=own_call.problem,
            hint=own_call.hint,
        )
        path = own_call.routine.path
        faults += with_lines_of_file([fault], path) if path else [fault]
    return faults


def policy_notes(policy: Policy, routines: Collection[Routine]) -> list[str]:
    """Return what the policy will say in the runs of these routines: calls of their own that wait
    for a person or are left out, then what a person is asked about, or that a routine is observed.

    What it denies so that no run can succeed is found by `policy_faults`.
    """
    now = datetime.now().astimezone()
    notes = (describe_approvals(routine, policy, now) for routine in routines)
    return [
        *(
            _describe(own_call.routine.path, own_call.key, own_call.problem)
            for own_call in find_obstructed_calls(policy, routines)
            if not own_call.fails_every_run
        ),
        *(note for note in notes if note),
    ]


def _describe(file: Path | None, key: str, problem: str, hint: str = "") -> str:
    """Return a note on a key of a file, with its line."""
    fault = Fault(file=display(file or ""), key=key, found="", problem=problem, hint=hint)
    return str(with_lines_of_file([fault], file)[0] if file else fault)


def _describe_setting(config: Config, key: str, problem: str) -> str:
    """Return a note on a key of config.toml, with its line."""
    fault = Fault(file=display(config.file), key=key, found="", problem=problem)
    return str(config.with_lines([fault])[0])


def _read_faulty_config(file: Path) -> tuple[Config, frozenset[str] | None, frozenset[str] | None]:
    """Return the paths of a config that cannot be loaded, and the names of its providers and
    targets; None for both if the file is no TOML.
    """
    try:
        data = read_toml(file)
    except ConfigError:
        return Config().at(file), None, None
    paths = {
        key: value
        for key in ("routines", "policy")
        if isinstance(value := data.get(key), str) and value
    }
    names_by_key = {
        key: frozenset(table if isinstance(table := data.get(key), dict) else ())
        for key in ("providers", "targets", "chat")
    }
    return (
        Config.model_validate(paths).at(file),
        names_by_key["providers"] | {"offline"},
        names_by_key["targets"] | names_by_key["chat"] | set(BUILT_IN_TARGETS),
    )


def _provider_faults(config: Config) -> dict[str, list[Fault]]:
    """Return, by the names of providers, the faults that their classes find in their tables, such
    as an unknown capability, or that there is no such class.
    """
    faults: dict[str, list[Fault]] = {}
    for name, table in config.providers.items():
        try:
            create_provider(table.kind, name=name, api_key="not looked at here", **table.settings())
        except ConfigError as error:
            faults[name] = list(
                config.with_lines(
                    [replace(fault, file=display(config.file)) for fault in error.faults]
                )
            )
    return faults


def _missing_keys(config: Config, names: Collection[str], env: Mapping[str, str]) -> list[str]:
    """Return a note for each API key that is not set here; a credential of the systemd unit may
    still set it.
    """
    return [
        str(fault)
        for name in sorted(names)
        for fault in _faults_of(partial(config.secret, name, env))
    ]


def _missing_programs(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return a note for each provider of kind command whose program is not here."""
    return [
        _describe_setting(
            config, f"providers.{name}.command", describe_missing_program(provider.command[0])
        )
        for name, provider in sorted(config.providers.items())
        if provider.kind == "command"
        and provider.command
        and not find_program(provider.command[0], provider.program_environment(env))
    ]


def _missing_secrets(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return a note for each address, key, secret or token, besides those of providers, without
    which the daemon would not start.
    """
    readers: list[Callable[[], object]] = []
    for name in sorted(config.targets):
        readers += [partial(read, name, env) for read in (config.target_url, config.target_secret)]
    readers += [partial(config.chat_token, name) for name in sorted(config.chat)]
    faults = [fault for read_secret in readers for fault in _faults_of(read_secret)]
    for faults_of_section in find_missing_section_keys(config, env).values():
        faults += faults_of_section
    faults += _faults_of(partial(config.store_url, env))
    return [str(fault) for fault in faults]


def find_missing_section_keys(
    config: Config, env: Mapping[str, str]
) -> dict[str, tuple[Fault, ...]]:
    """Return what is wrong with the keys of `[search]`, of each `[mcp.NAME]` and of the embedder of
    `[memory]`, by the name of the section; without them the daemon would not start.
    """
    readers: dict[str, Callable[[], object]] = {}
    if config.search.kind:
        readers["search"] = partial(config.key_of, "search", config.search, env)
    for name, server in sorted(config.mcp.items()):
        readers[f"mcp.{name}"] = partial(config.key_of, f"mcp.{name}", server, env)
    if config.memory.embedder == "openai_compatible":
        readers["memory"] = partial(config.memory_secret, env)
    faults = {section: _faults_of(read_key) for section, read_key in readers.items()}
    return {section: faults_of_key for section, faults_of_key in faults.items() if faults_of_key}


def _faults_of(read_secret: Callable[[], object]) -> tuple[Fault, ...]:
    try:
        read_secret()
    except ConfigError as error:
        return error.faults
    return ()


def find_unusable_workspace(config: Config, state: Path) -> list[str]:
    """Return a note if the folder that agents work in is not there and cannot be made."""
    workspace = config.workspace_path(state).absolute()
    existing_path = next(path for path in (workspace, *workspace.parents) if os.path.lexists(path))
    if not existing_path.is_dir():
        reason = f"{display(existing_path)} is no folder"
    elif (
        existing_path != workspace
        and config.workspace
        and not os.access(existing_path, os.W_OK | os.X_OK)
    ):
        reason = f"it cannot be made in {display(existing_path)}"
    else:
        return []
    problem = f"{display(workspace)} cannot be the folder agents work in: {reason}"
    return [_describe_setting(config, "workspace", problem)]


def _missing_extras(
    config: Config, routines: Iterable[Routine], env: Mapping[str, str]
) -> list[str]:
    """Return a note for each target, and for each routine that notifies the desktop, whose extra is
    not installed.
    """
    notes = []
    for name, target in sorted(config.targets.items()):
        try:
            url = config.target_url(name, env)
        except ConfigError:
            continue  # `_missing_secrets` has a note for it
        if problem := find_missing_extra(target.kind, url.get_secret_value() if url else ""):
            notes.append(_describe_setting(config, f"targets.{name}.kind", problem))
    if problem := find_missing_extra("desktop"):
        notes += [
            _describe(routine.path, f"deliver[{index}].to", problem)
            for routine in routines
            for index, target in enumerate(routine.deliver)
            if target.to == "desktop"
        ]
    return notes


def _unusable_addresses(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return a note for each target to which nothing can be sent: its address is wrong, or the
    program that it needs is missing.
    """
    notes = []
    for name, target in sorted(config.targets.items()):
        try:
            url = config.target_url(name, env)
        except ConfigError:
            continue  # `_missing_secrets` has a note for it
        if not url or find_missing_extra(target.kind, url.get_secret_value()):
            continue  # `_missing_extras` has a note for it
        if problem := find_address_fault(target.kind, url.get_secret_value()):
            notes.append(_describe_setting(config, f"targets.{name}", problem))
    return notes


def _unusable_paths(config: Config, routines: Iterable[Routine]) -> list[str]:
    """Return a note for each path of a target to which no report can be written, and for each path
    of a routine that its target does not take.
    """
    notes = []
    for name, target in sorted(config.targets.items()):
        if target.path and (fault := find_path_fault(target.path)):
            problem, hint = fault
            notes.append(_describe_setting(config, f"targets.{name}.path", f"{problem}; {hint}"))
    for routine in routines:
        for index, delivery in enumerate(routine.deliver):
            if delivery.path is None or delivery.to not in config.target_names:
                continue
            kind = config.kind_of_target(delivery.to)
            if kind not in KINDS_BY_KEY["path"]:
                problem = f"has no effect: {display(delivery.to)} is of kind {kind}"
                notes.append(_describe(routine.path, f"deliver[{index}].path", problem))
    return notes


def _keys_without_effect(config: Config) -> list[str]:
    """Return a note for each key of config.toml that does nothing for want of another one."""
    search_keys = ("base_url", "contact", "api_key_file", "api_key_env")
    embedder_keys = ("model", "base_url", "model_file", "tokenizer_file")
    key_keys = ("api_key", "api_key_file", "api_key_env")
    cases: list[tuple[str, Table, Collection[str], str]] = []
    if config.digest.every is None:
        problem = 'without every = "day" or "week" there is no digest'
        cases.append(("digest", config.digest, ("at", "day", "to"), problem))
    if config.memory.embedder == "none":
        problem = "without embedder nothing is found by its meaning"
        cases.append(("memory", config.memory, (*embedder_keys, *key_keys), problem))
    if config.search.kind is None:
        problem = "without kind there is no tool web_search"
        cases.append(("search", config.search, search_keys, problem))
    if config.listen.address is None and config.listen.hooks:
        problem = "without address nothing is taken over the network"
        cases.append(("listen", config.listen, ("hooks",), problem))
    for name, server in config.mcp.items():
        if server.url:
            problem = "it is for a command, and this server has a url"
            cases.append((f"mcp.{name}", server, ("env", "pass_env", "cwd"), problem))
    for name, provider in config.providers.items():
        if provider.kind in ("command", "offline", "scripted"):
            problem = f"kind {provider.kind} does not take it"
            keys = ("base_url", *key_keys, "capabilities", "temperature", "max_tokens", "stall")
            cases.append((f"providers.{name}", provider, keys, problem))
    return [
        _describe_setting(config, f"{table_name}.{key}", f"has no effect: {problem}")
        for table_name, table, keys, problem in cases
        for key in keys
        if key in table.model_fields_set
    ]


def _ordinary_passwords(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return a note for each target whose password is an ordinary word, which cannot be kept out of
    reports.
    """
    notes = []
    for name in sorted(config.targets):
        try:
            url = config.target_url(name, env)
        except ConfigError:
            continue  # `_missing_secrets` has a note for it
        if url and has_ordinary_password(url.get_secret_value()):
            problem = (
                "its password is an ordinary word or shorter than 8 characters, so sentences of "
                "reports may hold it; choose one with digits or signs"
            )
            notes.append(_describe_setting(config, f"targets.{name}", problem))
    return notes


def _file_of(routine: Routine) -> str:
    return display(routine.path or f"{routine.name}.toml")


@dataclass(frozen=True, slots=True)
class _LoadedPolicy:
    """The policy of the file, for tools that are looked at and never called."""

    policy: Policy


def _gathering_tools(policy: Policy) -> FunctionRegistry:
    """Return the tools that collect facts of this machine, for their arguments."""
    registry, settings = FunctionRegistry(known_good=True), _LoadedPolicy(policy)
    sysinfo.register(registry)
    files.register(registry, settings)
    shell.register(registry, settings)
    git.register(registry, settings)
    http_request.register(registry, settings)
    return registry


def _unusable_tools(policy: Policy, routines: Iterable[Routine]) -> list[str]:
    """Return a note for each tool that an agent is offered and no rule of the policy allows."""
    notes = []
    for routine in routines:
        if routine.run.mode != "agent":
            continue
        names = [tool for tool in offered_tools(routine) if tool in routine.run.tools]
        usable_tools = {*allowed_tools(routine.policy_name, names, policy), *RUN_END_TOOLS}
        for tool in names:
            if tool not in usable_tools:
                problem = f"no rule of the policy allows {tool}: every call of it is denied"
                notes.append(_describe(routine.path, "run.tools", problem))
    return notes


def _unread_files(folder: Path) -> list[str]:
    """Return a note for each file in the folder of routines, or one below it, that is probably
    meant to be a routine and is read by nobody.
    """
    notes = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(".") or is_routine_file(path.name):
            continue
        if path.is_dir() and any(path.glob("*.toml")):
            notes.append(f"{display(path)}: routines in a folder of their own are not read")
        elif path.suffix.lower() in _SUFFIXES_OF_ROUTINES:
            name = display(path.name.partition(".")[0])
            notes.append(f"{display(path)}: is not read; a routine is a file {name}.toml")
    return notes


def _repeated_deliveries(routines: Iterable[Routine]) -> list[str]:
    """Return a note for each `[[deliver]]` that repeats an earlier one of its routine."""
    notes = []
    for routine in routines:
        for index, delivery in enumerate(routine.deliver):
            ends = {
                end
                for earlier_delivery in routine.deliver[:index]
                if (earlier_delivery.to, earlier_delivery.path) == (delivery.to, delivery.path)
                for end in earlier_delivery.on
            }.intersection(delivery.on)
            if ends:
                problem = f"each report goes to {display(delivery.to)} twice"
                hint = "take one of the two out, or give each an `on` of its own"
                notes.append(_describe(routine.path, f"deliver[{index}].to", problem, hint))
    return notes


def _silent_routines(routines: Iterable[Routine]) -> list[str]:
    """Return a note for each routine whose report goes nowhere."""
    return [
        f"{_file_of(routine)}: no [[deliver]]: its report is kept in "
        f"the journal only (agentctl inspect {routine.name})"
        for routine in routines
        if not routine.deliver
    ]


def _factless_routines(routines: Iterable[Routine]) -> list[str]:
    """Return a note for each routine whose runs bring no facts and would succeed without having
    looked: an agent that has to look by tools, or a model that is asked without tools.
    """
    notes: list[str] = []
    for routine in routines:
        if routine.gather or routine.run.media or routine.is_started_by_events:
            continue
        if routine.run.mode == "collect-then-summarise":
            named_urls = find_urls(routine.run.prompt)
            unread = f", and no run reads {', '.join(named_urls)}" if named_urls else ""
            problem = f"nothing is gathered{unread}: a model can only say what it knows by itself"
            hint = 'add [[gather]], or mode = "agent" and the tools that it is to use'
            notes.append(_describe(routine.path, "run.prompt", problem, hint))
        elif (
            routine.run.mode == "agent"
            and any(
                name in SHIPPED_TOOLS and SHIPPED_TOOLS[name].looks for name in routine.run.tools
            )
            and not routine.run.required_tools
        ):
            problem = (
                "nothing is gathered, so an answer without a call of a tool is made up, and "
                "succeeds"
            )
            hint = "name the tools that it has to call"
            notes.append(_describe(routine.path, "run.required_tools", problem, hint))
    return notes


def _idle_triggers(routines: Iterable[Routine], zone: str) -> list[str]:
    """Return a note for each trigger by the clock that will start nothing any more: its moment is
    past, or its hours, days and `skip` leave out every slot.
    """
    now = datetime.now(UTC)
    notes: list[str] = []
    for routine in routines:
        entries = schedule_of(routine, zone=zone).entries
        for (key, _), entry in zip(routine.keyed_triggers, entries, strict=True):
            if not routine.enabled or not entry.kind or entry.next_active(now) is not None:
                continue
            if entry.next(now) is None:
                problem, hint = "lies in the past", "write a later moment, or remove the file"
            else:
                problem = "starts nothing: active_hours, active_days and skip leave out its slots"
                hint = "widen them, or move the slots"
            notes.append(_describe(routine.path, f"{key}.{entry.kind}", problem, hint))
    return notes


def _lines_of(checkup: Checkup) -> list[str]:
    return [
        *map(str, checkup.faults),
        *(f"note: {note}" for note in checkup.notes),
        checkup.summary,
    ]


def _as_json(checkup: Checkup) -> str:
    value = {
        "faults": [asdict(fault) for fault in checkup.faults],
        "notes": checkup.notes,
        "missing": checkup.missing_parts,
        "checked": checkup.checked_files,
        "summary": checkup.summary,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


def _display_relative(path: Path) -> str:
    """Return a path, relative to the current directory if it is below that."""
    path = path.absolute()
    return display(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
