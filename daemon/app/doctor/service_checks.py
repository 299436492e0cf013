"""The rows of `doctor` about the service: its systemd unit, lingering, limits, database, targets
and secrets.
"""

from __future__ import annotations

import re
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daemon.app.commands.service_unit import own_name
from daemon.app.doctor import database_server
from daemon.app.doctor.check import Check
from daemon.app.doctor.database_file import (
    DatabaseFile,
    check_database_file,
    judge_database_file,
)
from daemon.definitions.paths import user_home
from daemon.delivery.targets import describe_mail_way, find_address_fault, find_missing_extra
from daemon.errors import ConfigError
from daemon.plurals import pluralize
from daemon.store.offline import DatabaseServer
from daemon.telemetry.redaction import count_secrets, has_ordinary_password

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

FEW_FILES = 1024


class TargetSurvey(NamedTuple):
    """What was found out about a target or a chat."""

    name: str
    kind: str
    fault: str = ""
    """Why no report arrives there; empty if nothing is in the way."""
    fix: str = ""
    """How to mend the fault, where that is known."""
    way: str = ""
    """Of a target of the kind mail: the server or program that mails leave by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSurvey:
    """What was found out about the service."""

    systemd: bool = False
    """Whether systemd is process 1 here."""
    unit: Path | None = None
    """The unit that starts agentd, if one is installed."""
    command: str = ""
    """The program that the unit starts."""
    command_exists: bool = True
    user_unit: bool = False
    """Whether `unit` is one of a user, not of the system."""
    lingers: bool = True
    """Whether the services of `user` run while that user is not logged in."""
    user: str = ""
    open_files: int = 65536
    """How many files a process may hold open."""
    targets: tuple[TargetSurvey, ...] = ()
    secrets: Mapping[str, int] = field(default_factory=dict)
    """How many passwords and tokens are in the addresses of the config, by kind."""
    ordinary_passwords: tuple[str, ...] = ()
    """The targets whose password is an ordinary word."""
    database: DatabaseFile = field(default_factory=DatabaseFile)
    server: DatabaseServer | str | None = None
    """The server of the journal, or why it could not be asked; None if the journal is in a file."""


def survey_service(
    config: Config | None,
    state: Path,
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    deep: bool = False,
) -> ServiceSurvey:
    """Return what can be found out about the service; nothing is changed.

    With `deep` all of the database is checked.
    """
    home = user_home()
    unit_files = [
        (home / ".config/systemd/user/agentd.service", True),
        (root / "etc/systemd/system/agentd.service", False),
        (root / "usr/lib/systemd/system/agentd.service", False),
    ]
    unit, is_user_unit = next(
        ((path, is_user) for path, is_user in unit_files if path.is_file()), (None, False)
    )
    command = text = ""
    if unit:
        with suppress(PermissionError):  # one with a key in it may be root's alone
            text = unit.read_text("utf-8", "replace")
        if exec_start := re.search(r'^ExecStart=[-@:+!]*("[^"]+"|\S+)', text, re.MULTILINE):
            command = exec_start[1].strip('"').replace("%h", str(home))
    urls = _target_urls(config, env) if config else {}
    user = own_name(home)
    return ServiceSurvey(
        systemd=(root / "run/systemd/system").is_dir(),
        unit=unit,
        command=command,
        command_exists=not command or shutil.which(command) is not None,
        user_unit=is_user_unit,
        lingers=(root / "var/lib/systemd/linger" / user).exists(),
        user=user,
        open_files=_max_open_files(),
        targets=tuple(_targets(config, env)) if config else (),
        secrets=count_secrets([*urls.values(), *(config.addresses() if config else ())]),
        ordinary_passwords=tuple(name for name, url in urls.items() if has_ordinary_password(url)),
        database=check_database_file(state / "agentd.db", deep=deep),
        server=database_server.find_server(config, env),
    )


def _max_open_files() -> int:
    """Return the hard limit: agentd raises the soft one to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _targets(config: Config, env: Mapping[str, str]) -> Iterator[TargetSurvey]:
    """Yield what can be found out about each target and chat."""
    for name, target in sorted(config.targets.items()):
        fault = fix = way = ""
        try:
            url = config.target_url(name, env)
            config.target_secret(name, env)
            fault = find_missing_extra(target.kind, url.get_secret_value() if url else "")
            if url and not fault:
                fault = find_address_fault(target.kind, url.get_secret_value())
            if url and not fault and target.kind == "mail":
                way = describe_mail_way(url.get_secret_value())
        except ConfigError as error:
            fault, fix = _split_faults(error)
        yield TargetSurvey(name, target.kind, fault, fix, way)
    for name, chat in sorted(config.chat.items()):
        fault = fix = ""
        try:
            config.chat_token(name)
        except ConfigError as error:
            fault, fix = _split_faults(error)
        yield TargetSurvey(name, chat.kind, fault, fix)


def _split_faults(error: ConfigError) -> tuple[str, str]:
    """Return what is wrong, and how to mend it."""
    problems = (str(replace(fault, hint="")) for fault in error.faults)
    return "; ".join(problems), "; ".join(fault.hint for fault in error.faults if fault.hint)


def _target_urls(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of those targets whose address is set on this machine, by name."""
    urls = {}
    for name in sorted(config.targets):
        with suppress(ConfigError):  # `_targets` names what is missing
            if url := config.target_url(name, env):
                urls[name] = url.get_secret_value()
    return urls


def check_service(service: ServiceSurvey) -> Iterator[Check]:
    """Judge what was found out about the service."""
    yield from database_server.check_server(service.server)
    yield from judge_database_file(service.database)
    yield from _check_unit(service)
    if service.open_files < FEW_FILES:
        fix = "ulimit -n 4096 where agentd starts, or LimitNOFILE=4096 in its unit"
        text = f"{service.open_files} open files at most"
        yield Check(name="limits", state="warn", found=text, fix=fix)
    else:
        yield Check(name="limits", state="ok", found=f"{service.open_files} open files")
    for target in service.targets:
        name = f"target {target.name}"
        if target.fault:
            places = "see [targets] in config.toml; `agentctl deliveries` shows what waits"
            found = f"{target.kind}: {target.fault}"
            yield Check(name=name, state="fail", found=found, fix=target.fix or places)
        else:
            yield Check(
                name=name,
                state="ok",
                found=f"{target.kind} by {target.way}" if target.way else target.kind,
            )
    if service.secrets:
        counts = ", ".join(
            pluralize(count, kind) for kind, count in sorted(service.secrets.items())
        )
        text = f"kept out of reports, from addresses: {counts}"
        yield Check(name="secrets", state="ok", found=text)
    for name in service.ordinary_passwords:
        yield Check(
            name=f"secret {name}",
            state="warn",
            found=f"the password of target {name} is an ordinary word, or too short to be kept out "
            "of reports",
            fix="choose one of 12 characters or more with digits or signs",
        )


def _check_unit(service: ServiceSurvey) -> Iterator[Check]:
    if not service.systemd:
        return
    install = "agentctl service install"
    if service.unit is None:
        text = "no unit is installed: agentd runs as long as somebody keeps it running"
        fix = f"{install}: it shows the unit first"
        yield Check(name="service", state="warn", found=text, fix=fix)
    elif not service.command_exists:
        text = f"{service.unit} starts {service.command}, which is not there"
        yield Check(name="service", state="fail", found=text, fix=install)
    else:
        yield Check(name="service", state="ok", found=str(service.unit))
    if service.user_unit and not service.lingers:
        text = f"systemd ends the services of {service.user} at logout"
        fix = f"loginctl enable-linger {service.user}"
        yield Check(name="linger", state="fail", found=text, fix=fix)
    elif service.user_unit:
        text = f"services of {service.user} run while nobody is logged in"
        yield Check(name="linger", state="ok", found=text)
