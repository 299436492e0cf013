"""`agentd validate`: everything that is wrong in config, policy and routines, at once and without a
daemon.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import join

from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import CHANNELS
from daemon.definitions.paths import describe_config_paths, find_state, user_home
from daemon.definitions.reading import read_toml
from daemon.definitions.routines.folder import AGENT_FOLDER, load_folder
from daemon.definitions.routines.routine import Routine
from daemon.definitions.routines.rules import reference_checks
from daemon.definitions.skills import load_skills as load_skills
from daemon.definitions.words import display
from daemon.delivery.targets import missing_extra
from daemon.errors import ConfigError, Fault
from daemon.policy.policy import Policy
from daemon.policy.policy_file import TOOLS as SHIPPED_TOOLS
from daemon.providers import create_provider
from daemon.providers.budget import price_checks
from daemon.telemetry.redaction import has_ordinary_password
from daemon.tools import user_tools

# The tools of every daemon; a test compares them with those of a real one, which is too much to
# start for a check.
TOOLS = frozenset(SHIPPED_TOOLS) - {"web_search"}  # registered where [search] says how to search


@dataclass(slots=True)
class Checkup:
    """What was looked at, and what is wrong with it."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no fault of a file and will still be in the way, such as a key that is not here."""
    checked: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """Say in one line how it went."""
        if self.faults:
            files = len({fault.file for fault in self.faults})
            return f"{_counted(len(self.faults), 'problem')} in {_counted(files, 'file')}"
        return f"no problems in {', '.join(self.checked)}"


def check_all(
    config: Path | None, *, json: bool = False, env: Mapping[str, str] | None = None
) -> int:
    """Print what is wrong with everything a config file leads to; return 1 if something is,
    else 0.
    """
    env = os.environ if env is None else env
    if config is None:
        problem = f"not found in {describe_config_paths(env, Path.cwd(), user_home())}"
        hint = "`agentd init` writes one"
        checkup = Checkup([Fault(file="config.toml", key="", found="", problem=problem, hint=hint)])
    else:
        checkup = examine(
            config, env=env, state=find_state(env, user_home(), uid=os.getuid()), tools=TOOLS
        )
    sys.stdout.write(_as_json(checkup) if json else _as_text(checkup))
    return 1 if checkup.faults else 0


def examine(
    file: Path, *, env: Mapping[str, str], state: Path, tools: Collection[str] | None = None
) -> Checkup:
    """Look at the config file, its policy and its routines; with `tools`, also at the names of
    tools in them.
    """
    checkup = Checkup(checked=[_near(file)])
    try:
        config = load_config(file)
        providers = config.provider_names
        checkup.faults += _provider_faults(config)
        config.hooks_secret()
        targets = config.target_names
    except ConfigError as error:
        checkup.faults += error.faults
        config, providers, targets = _rest_of(file)
    policy = None
    try:
        mine = user_tools.load(config).names() + (["web_search"] if config.search.kind else [])
    except ConfigError as error:
        mine, tools = [], None  # which tools there are is not known
        checkup.faults += error.faults
    tools = tools and {*tools, *mine}
    try:
        policy = Policy.load(config.policy_path, workspace=config.workspace_path(state), tools=mine)
        checkup.checked.append(_near(config.policy_path))
    except ConfigError as error:
        checkup.faults += error.faults
    try:
        rules = (*reference_checks(providers, tools, targets=targets), *price_checks(config))
        loaded = load_folder(config.routines_path, agent_folder=state / AGENT_FOLDER, rules=rules)
    except ConfigError as error:
        checkup.faults += error.faults
        return checkup
    checkup.faults += load_skills(config.folder / "skills").faults.values()
    checkup.faults += [fault for error in loaded.faults.values() for fault in error.faults]
    names = ", ".join(loaded.routines)
    checkup.checked.append(
        f"{_counted(len(loaded.routines), 'routine')}{f' ({names})' if names else ''}"
    )
    used = {config.provider} | {
        n for r in loaded.routines.values() for n in (r.run.provider, *r.run.fallback) if n
    }
    checkup.notes += _missing_keys(config, used & config.provider_names, env)
    checkup.notes += _missing_addresses(config, env)
    checkup.notes += _missing_extras(config, loaded.routines.values(), env)
    checkup.notes += _ordinary_passwords(config, env)
    checkup.notes += _closed_gates(policy, loaded.routines.values()) if policy else []
    return checkup


def _rest_of(file: Path) -> tuple[Config, frozenset[str], frozenset[str]]:
    """Return what a broken config still says of where the others lie, and which providers and
    targets there are.
    """
    try:
        data = read_toml(file)
    except ConfigError:
        data = {}
    paths = {
        key: value
        for key in ("routines", "policy")
        if isinstance(value := data.get(key), str) and value
    }
    named = {
        key: frozenset(table if isinstance(table := data.get(key), dict) else ())
        for key in ("providers", "targets")
    }
    return (
        Config.model_validate(paths).at(file),
        named["providers"] | {"offline"},
        named["targets"] | set(CHANNELS),
    )


def _provider_faults(config: Config) -> list[Fault]:
    """Return what the providers themselves say of their tables, such as of a capability that does
    not exist.
    """
    faults: list[Fault] = []
    for name, table in config.providers.items():
        try:
            create_provider(table.kind, name=name, api_key="not looked at here", **table.settings())
        except ConfigError as error:
            faults += (replace(fault, file=display(config.file)) for fault in error.faults)
    return faults


def _missing_keys(config: Config, names: Collection[str], env: Mapping[str, str]) -> list[str]:
    """Return a note for each key that is not here; under systemd, which keeps keys of its own, it
    may be there.
    """
    notes = []
    for name in sorted(names):
        try:
            config.secret(name, env)
        except ConfigError as error:
            notes += [str(fault) for fault in error.faults]
    return notes


def _missing_addresses(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return a note for each target whose address or secret is not here; the daemon would not start
    without it.
    """
    notes = []
    for name in sorted(config.targets):
        try:
            config.target_url(name, env)
            config.target_secret(name, env)
        except ConfigError as error:
            notes += [str(fault) for fault in error.faults]
    return notes


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
            continue  # told as a missing address
        if problem := missing_extra(target.kind, url.get_secret_value() if url else ""):
            notes.append(f"{display(config.file)}: targets.{name}.kind: {problem}")
    if problem := missing_extra("desktop"):
        users = [
            routine
            for routine in routines
            if any(target.to == "desktop" for target in routine.deliver)
        ]
        notes += [
            f"{display(routine.path or f'{routine.name}.toml')}: deliver.to: {problem}"
            for routine in users
        ]
    return notes


def _ordinary_passwords(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return a note for each target whose password is an ordinary word, which cannot be kept out of
    reports.
    """
    notes = []
    for name in sorted(config.targets):
        try:
            url = config.target_url(name, env)
        except ConfigError:
            continue  # told as a missing address
        if url and has_ordinary_password(url.get_secret_value()):
            problem = (
                "its password is an ordinary word or shorter than 8 characters, so sentences of "
                "reports may hold it"
            )
            notes.append(
                (  # noqa: UP034
                    f"{display(config.file)}: targets.{name}: {problem}; choose one with digits or "
                    "signs"
                )
            )
    return notes


def _closed_gates(policy: Policy, routines: Iterable[Routine]) -> list[str]:
    """Return a note for each gate whose command the policy does not allow: all runs of that routine
    would fail.
    """
    notes = []
    for routine in routines:
        command = {"command": join(routine.gate.command)}
        if (
            routine.gate.command
            and not (verdict := policy.judge("shell", command, routine=routine.name)).allows
        ):
            file = display(routine.path or f"{routine.name}.toml")
            notes.append(
                (  # noqa: UP034
                    f"{file}: gate.command: the policy does not allow it: {verdict.reason} "
                    f"({verdict.rule})"
                )
            )
    return notes


def _as_text(checkup: Checkup) -> str:
    lines = [str(fault) for fault in checkup.faults] + [f"note: {note}" for note in checkup.notes]
    return "\n".join([*lines, checkup.summary]) + "\n"


def _as_json(checkup: Checkup) -> str:
    value = {
        "faults": [asdict(fault) for fault in checkup.faults],
        "notes": checkup.notes,
        "checked": checkup.checked,
        "summary": checkup.summary,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


def _near(path: Path) -> str:
    """Return a path as somebody who stands here would name it."""
    path = path.absolute()
    return display(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
