"""The checks of `doctor`: each is a function of a Survey, so that a test needs no broken machine.

A new check is a function and its line in CHECKS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

from daemon.app.doctor.check import Check
from daemon.app.doctor.confinement import Confinement, check_sandbox
from daemon.app.doctor.service_checks import ServiceSurvey, check_service
from daemon.app.doctor.vendors import VendorAnswer
from daemon.app.trifecta import Trifecta
from daemon.errors import Fault
from daemon.providers.base import is_listed

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)  # RETURNING
# The WAL-reset bug may corrupt a database that two connections write or checkpoint
# (https://sqlite.org/wal.html).
WAL_RESET_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
# Bytes; a journal grows by some 20 kB per run.
LITTLE_SPACE = 500_000_000
TOO_LITTLE_SPACE = 50_000_000
LONGEST_SOCKET = 107  # bytes (unix(7))
CLOCK_SLACK = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderFacts:
    """What was found out about one provider of the config."""

    name: str
    kind: str
    model: str | None
    used: bool
    """Whether config.toml or a routine names it, for runs or for `agentctl ask`."""
    key: str
    """Where its key comes from: credential, file, environment, config, or none needed; empty if it
    is missing.
    """
    fault: str = ""
    """Why there is no key."""
    missing_program: str = ""
    """Of kind command: that its program is not here, and what to do."""
    vendor: VendorAnswer | None = None
    """What its vendor answered, if it was asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Everything the checks look at."""

    python: tuple[int, ...] = (3, 11)
    executable: str = "python"
    sqlite: tuple[int, ...] = (3, 51, 3)
    fts5: bool = True
    uid: int = 1000
    config: Path | None = None
    config_tried: tuple[Path, ...] = ()
    """Where a config was looked for, if none was found."""
    policy: Path | None = None
    config_faults: tuple[Fault, ...] = ()
    policy_faults: tuple[Fault, ...] = ()
    routine_faults: tuple[Fault, ...] = ()
    routines: tuple[str, ...] = ()
    trifectas: tuple[Trifecta, ...] = ()
    providers: tuple[ProviderFacts, ...] = ()
    missing_keys: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    """What is wrong with the keys of `[search]`, `[mcp.NAME]` and `[memory]`, by section."""
    workspace_problems: tuple[str, ...] = ()
    """Why agents cannot work in the folder that `workspace` names."""
    state: Path = Path("state")
    state_problem: str = ""
    """Why nothing in the folder can be read, in the words of the system."""
    state_mode: int | None = None
    """None if the folder is not there yet."""
    group: bool = False
    """Whether config.toml lets a group enter the folder of the state, to reach the socket."""
    state_owner: int = 1000
    open_files: tuple[Path, ...] = ()
    """Files of the state that others may read."""
    filesystem: str = ""
    network: bool = False
    """Whether `filesystem` is one over a network, where locks fail."""
    free: int = 10**10
    """Bytes left on the disk of the state."""
    confinement: Confinement = field(default_factory=Confinement)
    service: ServiceSurvey = field(default_factory=ServiceSurvey)
    socket: Path = Path("agentd.sock")
    socket_found: str = "nothing"
    """nothing, daemon, dead or blocked"""
    socket_pid: int | None = None
    log: Path = Path("agentd.jsonl")
    log_writable: bool = True
    log_size: int | None = None
    zone: str = "UTC"
    zone_from_config: bool = False
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    newest_write: datetime | None = None
    """When the journal was last written to, by the clock of that time."""
    synchronised: bool | None = None
    """Whether the clock follows a time server; None where nobody knows."""


def check_python(survey: Survey) -> Iterator[Check]:
    text = f"{_format_version(survey.python)} at {survey.executable}"
    if survey.python[:2] < OLDEST_PYTHON:
        fix = f"install Python {_format_version(OLDEST_PYTHON)} or later, and agentd with it"
        yield Check(name="Python", state="fail", found=text, fix=fix)
    else:
        yield Check(name="Python", state="ok", found=text)


def check_sqlite(survey: Survey) -> Iterator[Check]:
    version = survey.sqlite
    newer_python = "use a Python built with SQLite 3.51.3 or later"
    if version < OLDEST_SQLITE:
        yield Check(
            name="SQLite",
            state="fail",
            found=f"{_format_version(version)}, older than 3.35",
            fix=newer_python,
        )
    elif version < WAL_RESET_FIXED[0] and not any(
        version[:2] == fixed_version[:2] and version >= fixed_version
        for fixed_version in WAL_RESET_FIXED
    ):
        # Information, not a warning: a distribution's Python cannot be told to use another SQLite.
        text = (
            f"{_format_version(version)}; its WAL-reset bug takes two programs that write, so "
            "nothing but agentd may write to agentd.db (mended in 3.44.6, 3.50.7 and 3.51.3)"
        )
        yield Check(name="SQLite", state="ok", found=text)
    else:
        yield Check(name="SQLite", state="ok", found=_format_version(version))
    if not survey.fts5:
        fix = (
            "use a Python whose SQLite has FTS5 (Debian's and python.org's have); memory is "
            "searched with it"
        )
        yield Check(name="FTS5", state="fail", found="missing", fix=fix)
    else:
        yield Check(name="FTS5", state="ok", found="there")


def check_config(survey: Survey) -> Iterator[Check]:
    if survey.config is None:
        text = f"none in {', '.join(map(str, survey.config_tried))}"
        yield Check(
            name="config",
            state="fail",
            found=text,
            fix="`agentd init` writes one to ~/.config/agentd",
        )
        return
    yield _check_of_faults("config", str(survey.config), survey.config_faults)
    yield _check_of_faults("policy", str(survey.policy or "policy.toml"), survey.policy_faults)


def check_routines(survey: Survey) -> Iterator[Check]:
    if survey.config is None:
        return
    text = (
        f"{len(survey.routines)} can be "
        f"used{': ' if survey.routines else ''}{', '.join(survey.routines)}"
    )
    yield _check_of_faults("routines", text, survey.routine_faults)


def check_trifectas(survey: Survey) -> Iterator[Check]:
    if not survey.trifectas:
        yield Check(
            name="rights",
            state="ok",
            found="no routine has all three: reads strangers, private data, acts unasked",
        )
    for trifecta in survey.trifectas:
        parts = (
            ("reads strangers", trifecta.reads),
            ("private data", trifecta.private),
            ("acts unasked", trifecta.acts),
        )
        text = "; ".join(f"{ability}: {', '.join(tools)}" for ability, tools in parts)
        fix = (
            f"take {' or '.join(trifecta.acts)} out of [routine.{trifecta.section}] tainted_tools, "
            "so that a person is asked; or read in one routine and act in another"
        )
        yield Check(
            name=f"routine {trifecta.routine}",
            state="warn",
            found=f"holds all three: {text}",
            fix=fix,
        )


def check_providers(survey: Survey) -> Iterator[Check]:
    for provider in survey.providers:
        name = f"model {provider.name}"
        text = " / ".join(part for part in (provider.kind, provider.model) if part)
        if provider.kind == "offline":
            text = "no model is asked: reports are the gathered facts"
        if provider.fault:
            state = "fail" if provider.used else "warn"
            yield Check(name=name, state=state, found=f"{text}, no key", fix=provider.fault)
        elif provider.missing_program:
            state = "fail" if provider.used else "warn"
            problem = f"{text}, its program is missing"
            yield Check(name=name, state=state, found=problem, fix=provider.missing_program)
        elif provider.key == "environment":
            fix = (
                "put the key into a file of mode 0600 and name it as api_key_file: any process of "
                "yours can read the environment of another"
            )
            yield Check(name=name, state="warn", found=f"{text}, key from the environment", fix=fix)
        else:
            if provider.key not in ("", "none needed"):
                text += f", key from {provider.key}"
            if not provider.used:
                text += ", not used"
            yield Check(name=name, state="ok", found=text)
        if provider.vendor is not None:
            yield from _check_vendor(provider, provider.vendor, survey.now.date())


def _check_vendor(provider: ProviderFacts, vendor: VendorAnswer, today: date) -> Iterator[Check]:
    """Judge what the vendor of a model says of it."""
    name, model = f"vendor of {provider.name}", provider.model or ""
    if vendor.fault:
        fix = (
            "look at the network, and at base_url"
            if vendor.transient
            else "look at the key, and at base_url"
        )
        yield Check(
            name=name, state="warn" if vendor.transient else "fail", found=vendor.fault, fix=fix
        )
    elif not vendor.models:
        yield Check(name=name, state="ok", found="answers, and lists no models")
    elif not _is_listed(model, vendor.models) and _is_of_one_model(provider, vendor):
        (listed_model,) = vendor.models
        yield Check(
            name=name,
            state="warn",
            found=f"lists only {listed_model}; some servers of one model answer by any name",
            fix=f"if its runs fail, name that one in [providers.{provider.name}]",
        )
    elif not _is_listed(model, vendor.models):
        similar_names = get_close_matches(model, vendor.models, 3) or sorted(vendor.models)[:5]
        fix = f"name another in [providers.{provider.name}], such as {', '.join(similar_names)}"
        yield Check(
            name=name,
            state="fail",
            found=f"it has no model {model!r}, or none for this key",
            fix=fix,
        )
    # where the vendor has a lifecycle, a date that is past means that the model is to go any day
    elif vendor.lifecycle == "retired" or (
        not vendor.lifecycle and vendor.retires and vendor.retires <= today
    ):
        date_text = f" on {vendor.retires}" if vendor.retires else ""
        fix = (
            f"name another model in [providers.{provider.name}]: `agentctl doctor` knows the names"
        )
        yield Check(name=name, state="fail", found=f"{model} was retired{date_text}", fix=fix)
    elif vendor.retires or vendor.lifecycle == "deprecated":
        date_text, until = "", "before then"
        if vendor.retires and vendor.retires <= today:
            date_text, until = f" any day, as of {vendor.retires}", "now"
        elif vendor.retires:
            date_text = f" on {vendor.retires}, in {(vendor.retires - today).days} days"
        fix = f"name another model in [providers.{provider.name}] {until}"
        yield Check(name=name, state="warn", found=f"{model} retires{date_text}", fix=fix)
    else:
        yield Check(name=name, state="ok", found=f"has {model}")


def _is_of_one_model(provider: ProviderFacts, vendor: VendorAnswer) -> bool:
    """Tell whether a provider is a server that was started with one model, as llama.cpp's is."""
    return provider.kind == "open_source" and len(vendor.models) == 1


def _is_listed(model: str, models: Collection[str]) -> bool:
    """Tell whether a vendor has a model."""
    return any(is_listed(model, name) for name in models)


def check_keys(survey: Survey) -> Iterator[Check]:
    for section, faults in survey.missing_keys.items():
        fix = "\n".join(map(str, faults))
        yield Check(name=section, state="fail", found="no key; a daemon does not start", fix=fix)


def check_workspace(survey: Survey) -> Iterator[Check]:
    for problem in survey.workspace_problems:
        text = "cannot be used; a daemon does not start"
        yield Check(name="workspace", state="fail", found=text, fix=problem)


def check_state(survey: Survey) -> Iterator[Check]:
    text = str(survey.state)
    if survey.network:
        fix = (
            "choose a local folder with --state: locks and shared memory fail there, and the "
            "database with them"
        )
        yield Check(name="state", state="fail", found=f"{text} on {survey.filesystem}", fix=fix)
    elif survey.state_problem:
        fix = "name a folder of your own with --state, or run it as the user that agentd runs as"
        found = f"{text} cannot be used: {survey.state_problem}"
        yield Check(name="state", state="fail", found=found, fix=fix)
    elif survey.state_mode is None:
        yield Check(name="state", state="ok", found=f"{text} (made at the first start)")
    elif survey.state_owner != survey.uid:
        fix = f"chown -R {survey.uid} {quote(text)}, or run agentd as the user it belongs to"
        yield Check(
            name="state", state="fail", found=f"{text} belongs to uid {survey.state_owner}", fix=fix
        )
    else:
        mode = 0o710 if survey.group else 0o700
        if survey.uid == 0:
            mode = 0o711  # the user that tools run as has to get through to the workspace
        description = f"{text}, mode {survey.state_mode:04o}"
        if survey.filesystem:
            description += f", {survey.filesystem}"
        if survey.state_mode & ~mode:
            fix = f"chmod {mode:o} {quote(text)}"
            yield Check(name="state", state="fail", found=description, fix=fix)
        else:
            yield Check(name="state", state="ok", found=description)
    if survey.open_files:
        files = " ".join(quote(str(path)) for path in survey.open_files)
        text = f"others may read {len(survey.open_files)}"
        yield Check(name="state files", state="fail", found=text, fix=f"chmod 600 {files}")


def check_space(survey: Survey) -> Iterator[Check]:
    text = f"{survey.free / 1e9:.1f} GB free where the state is"
    if survey.free >= LITTLE_SPACE:
        yield Check(name="disk", state="ok", found=text)
        return
    state = "warn" if survey.free >= TOO_LITTLE_SPACE else "fail"
    fix = "make room: without it runs stop where they are until there is some"
    yield Check(name="disk", state=state, found=text, fix=fix)


def check_socket(survey: Survey) -> Iterator[Check]:
    path = str(survey.socket)
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        fix = f"name a shorter one: a socket's path may have {LONGEST_SOCKET} bytes"
        yield Check(
            name="socket", state="fail", found=f"{path}: {len(os.fsencode(path))} bytes", fix=fix
        )
        return
    match survey.socket_found:
        case "daemon":
            yield Check(
                name="socket",
                state="ok",
                found=f"{path}: agentd answers, process {survey.socket_pid}",
            )
        case "blocked":
            fix = "move away what lies there; agentd removes nothing that is not its own socket"
            yield Check(
                name="socket", state="fail", found=f"{path}: something else is in the way", fix=fix
            )
        case "dead":
            yield Check(
                name="socket",
                state="ok",
                found=f"{path}: left by a daemon that died; the next one removes it",
            )
        case _:
            yield Check(name="socket", state="ok", found=f"{path}: free, as no daemon runs")


def check_log(survey: Survey) -> Iterator[Check]:
    text = str(survey.log)
    if not survey.log_writable:
        fix = f"see who owns {text} and its folder: agentd must be able to write there"
        yield Check(name="log", state="fail", found=f"{text} cannot be written", fix=fix)
    else:
        size = "not begun" if survey.log_size is None else f"{survey.log_size / 1e6:.1f} MB"
        yield Check(name="log", state="ok", found=f"{text}, {size}")


def check_clock(survey: Survey) -> Iterator[Check]:
    source = "config.toml" if survey.zone_from_config else "this machine"
    yield Check(name="time zone", state="ok", found=f"{survey.zone}, from {source}")
    text = f"{survey.now.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    if survey.newest_write and survey.newest_write > survey.now + CLOCK_SLACK:
        text = (
            f"{text}, but the journal was written at "
            f"{survey.newest_write.astimezone():%Y-%m-%d %H:%M %Z}"
        )
        fix = (
            "set the clock: it is behind a time that it has shown before, and what ran then does "
            "not run again"
        )
        yield Check(name="clock", state="fail", found=text, fix=fix)
    elif survey.synchronised is False:
        fix = "timedatectl set-ntp true: routines run by this clock"
        yield Check(name="clock", state="warn", found=f"{text}, follows no time server", fix=fix)
    else:
        yield Check(name="clock", state="ok", found=text)


# Every check, in the order of the table.
CHECKS: tuple[Callable[[Survey], Iterable[Check]], ...] = (
    check_python,
    check_sqlite,
    check_config,
    check_routines,
    check_trifectas,
    check_providers,
    check_keys,
    check_workspace,
    check_state,
    check_space,
    check_socket,
    check_log,
    check_clock,
    lambda survey: check_service(survey.service),
    lambda survey: check_sandbox(survey.confinement),
)


def judge(survey: Survey) -> list[Check]:
    """Return the rows of all checks, in the order of the table."""
    return [row for check in CHECKS for row in check(survey)]


def _check_of_faults(name: str, text: str, faults: Sequence[Fault]) -> Check:
    if not faults:
        return Check(name=name, state="ok", found=text)
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return Check(
        name=name,
        state="fail",
        found=f"{text}; {count}",
        fix="\n".join(str(fault) for fault in faults),
    )


def _format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
