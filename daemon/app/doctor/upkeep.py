"""What keeps the service going: its unit, lingering, the limits it lives under, its database, where
reports go.
"""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.app.doctor import server
from daemon.definitions.paths import user_home
from daemon.delivery.targets import missing_extra
from daemon.errors import ConfigError
from daemon.store.offline import DatabaseServer
from daemon.telemetry.redaction import count_secrets, has_ordinary_password

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

FEW_FILES = 1024
# A bigger one is looked through by the daemon in the background; here somebody waits.
_LONGEST_LOOK = 500_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallationState:
    """What there is to see of it."""

    systemd: bool = False
    """Whether systemd is process 1 here."""
    unit: Path | None = None
    """The unit that starts agentd, if one is installed."""
    command: str = ""
    """What it starts."""
    command_there: bool = True
    user_unit: bool = False
    lingers: bool = True
    user: str = ""
    open_files: int = 65536
    """How many files the process may hold open."""
    targets: tuple[tuple[str, str, str], ...] = ()
    """Name, kind and fault of each."""
    secrets: Mapping[str, int] = field(default_factory=dict)
    """How many passwords and tokens are in the addresses of the config, by kind."""
    words_as_passwords: tuple[str, ...] = ()
    """The targets whose password is an ordinary word."""
    verdict: str = "ok"
    """What SQLite says of the database; empty if it was not asked."""
    server: DatabaseServer | str | None = None
    """What there is to see of the server the journal is on, or why nothing is; None where it is in
    a file.
    """


def look(
    config: Config | None, state: Path, env: Mapping[str, str], *, root: Path = Path("/")
) -> InstallationState:
    """Return what there is to see."""
    home = user_home()
    unit_files = [
        (home / ".config/systemd/user/agentd.service", True),
        (root / "etc/systemd/system/agentd.service", False),
        (root / "usr/lib/systemd/system/agentd.service", False),
    ]
    unit, ours = next(((path, mine) for path, mine in unit_files if path.is_file()), (None, False))
    exec_start = (
        re.search(r'^ExecStart=("[^"]+"|\S+)', unit.read_text("utf-8", "replace"), re.MULTILINE)
        if unit
        else None
    )
    urls = _target_urls(config, env) if config else {}
    command = exec_start[1].strip('"').replace("%h", str(home)) if exec_start else ""
    user = env.get("USER") or home.name
    return InstallationState(
        systemd=(root / "run/systemd/system").is_dir(),
        unit=unit,
        command=command,
        command_there=not command or os.access(command, os.X_OK),
        user_unit=ours,
        lingers=(root / "var/lib/systemd/linger" / user).exists(),
        user=user,
        open_files=_most_open_files(),
        targets=tuple(_targets(config, env)) if config else (),
        secrets=count_secrets([*urls.values(), *(config.addresses() if config else ())]),
        words_as_passwords=tuple(name for name, url in urls.items() if has_ordinary_password(url)),
        verdict=_verdict(state / "agentd.db"),
        server=server.look(config, env),
    )


def _most_open_files() -> int:
    """Return the hard limit: agentd raises the soft one to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _targets(config: Config, env: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, target in sorted(config.targets.items()):
        fault = ""
        try:
            url = config.target_url(name, env)
            config.target_secret(name, env)
            fault = missing_extra(target.kind, url.get_secret_value() if url else "")
            if target.kind in ("mail", "apprise") and url and not fault:
                fault = _address_fault(url.get_secret_value())
        except ConfigError as error:
            fault = "; ".join(str(fault) for fault in error.faults)
        yield name, target.kind, fault


def _target_urls(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the targets that have one here, by name."""
    urls = {}
    for name in sorted(config.targets):
        with suppress(ConfigError):  # `_targets` names what is missing
            if url := config.target_url(name, env):
                urls[name] = url.get_secret_value()
    return urls


def _address_fault(url: str) -> str:
    from daemon.delivery.channels.mail import is_mail, parse_mail_address
    from daemon.errors import DeliveryFailed

    try:
        if is_mail(url):
            parse_mail_address(url)
        else:
            from daemon.delivery.channels.apprise import service

            service(url)
    except DeliveryFailed as error:
        return str(error)
    return ""


def _verdict(database: Path) -> str:
    """Ask SQLite whether the database is whole, unless that would take long."""
    try:
        if not database.is_file() or database.stat().st_size > _LONGEST_LOOK:
            return ""
        address = f"{database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=5)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return str(verdict)
    except sqlite3.OperationalError:
        return ""  # locked, or not readable: other checks say so
    except (sqlite3.Error, OSError) as error:
        return str(error)


def rows(state: InstallationState) -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, state, found, fix)."""
    yield from server.rows(state.server)
    if state.verdict not in ("", "ok"):
        fix = (
            "stop agentd, then: agentctl restore FILE; without a backup, move the database away to "
            "start anew"
        )
        yield "database", "fail", f"damaged: {state.verdict}", fix
    yield from _service(state)
    if state.open_files < FEW_FILES:
        fix = "ulimit -n 4096 where agentd starts, or LimitNOFILE=4096 in its unit"
        yield "limits", "warn", f"{state.open_files} open files at most", fix
    else:
        yield "limits", "ok", f"{state.open_files} open files", ""
    for name, kind, fault in state.targets:
        if fault:
            fix = "see [targets] in config.toml; `agentctl deliveries` shows what waits"
            yield f"target {name}", "fail", f"{kind}: {fault}", fix
        else:
            yield f"target {name}", "ok", kind, ""
    if state.secrets:
        counts = [
            f"{count} {kind}{'s' if count > 1 else ''}"
            for kind, count in sorted(state.secrets.items())
        ]
        yield "secrets", "ok", f"kept out of reports, from addresses: {', '.join(counts)}", ""
    for name in state.words_as_passwords:
        problem = (
            f"the password of target {name} is an ordinary word, or too short to be kept out of "
            "reports"
        )
        yield (
            f"secret {name}",
            "warn",
            problem,
            "choose one of 12 characters or more with digits or signs",
        )


def _service(state: InstallationState) -> Iterator[tuple[str, str, str, str]]:
    if not state.systemd:
        return
    if state.unit is None:
        fix = "agentctl service install: it shows the unit first"
        yield (
            "service",
            "warn",
            "no unit is installed: agentd runs as long as somebody keeps it running",
            fix,
        )
    elif not state.command_there:
        yield (
            "service",
            "fail",
            f"{state.unit} starts {state.command}, which is not there",
            "agentctl service install",
        )
    else:
        yield "service", "ok", str(state.unit), ""
    if state.user_unit and not state.lingers:
        fix = f"loginctl enable-linger {state.user}"
        yield "linger", "fail", f"systemd ends the services of {state.user} at logout", fix
    elif state.user_unit:
        yield "linger", "ok", f"services of {state.user} run while nobody is logged in", ""
