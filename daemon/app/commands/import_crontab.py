"""`agentd import-crontab`: turns the lines of a crontab into routines without a model.

All is composed first and read as the daemon would read it, then shown; files are written only with
`--write`, and none is replaced. The rules of policy.toml that the commands need are shown and never
written: what may run, its owner decides.

Not here: reading the crontab (definitions/crontab_file.py).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import pwd
import re
import subprocess
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tomli_w

from daemon.app.commands.validate import TOOLS
from daemon.app.setup.config_file import lock_config, with_table, write_config
from daemon.definitions.config.checks import CONFIG_CHECKS
from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import check_zone
from daemon.definitions.crontab_file import CrontabJob, parse_crontab
from daemon.definitions.reading import parse
from daemon.definitions.routines.checks import PEOPLE_CHECKS
from daemon.definitions.routines.folder import AGENT_FOLDER, RESERVED, routine_of, write_new
from daemon.definitions.values import InvalidValue
from daemon.definitions.words import display
from daemon.delivery.channels.mail_url import (
    is_sendmail,
    parse_sendmail_url,
    parse_smtp_url,
)
from daemon.delivery.targets import find_mail_fault
from daemon.errors import ConfigError, DeliveryFailed, Refused
from daemon.models import Effect
from daemon.policy.lexer import CallRejected
from daemon.policy.policy import Policy
from daemon.policy.requests import Request, analyze_call
from daemon.policy.verdicts import judge_part
from daemon.sandbox.system_paths import SETTINGS, system_folders
from daemon.scheduler.routine_checks import routine_checks
from daemon.tools.builtin.command_lines import find_program

# Crontabs of the system, where a user stands before each command.
_SYSTEM_CRONTABS = ("/etc/crontab", "/etc/cron.d/")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
# What cron itself reads; what is set besides is for the commands, which do not see it here.
_CRON_VARIABLES = frozenset({"MAILTO", "MAILFROM", "CRON_TZ", "SHELL", "CONTENT_TYPE"})
_MAX_NAME = 40
_REPORT_PATH = "reports/{routine}/{slot:%Y-%m-%d-%H%M}.md"
_REMARK = "# Written by `agentctl import-crontab`."
# The first word of a shell that is no program, and how to say it here.
_BUILTINS = {
    "cd": "every command starts in the workspace: name its files by their paths",
    "export": "programs see PATH, HOME, LANG and TZ only",
    "exec": "write the command itself",
    ".": "what a file sets is not seen by commands",
    "source": "what a file sets is not seen by commands",
}


class LineNotImportable(Exception):
    """A line cannot be taken over: why, and what to do, in one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabSource:
    """The crontab to import."""

    text: str
    name: str
    """What people call it."""
    has_users: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRoutine:
    """A routine file that a line becomes."""

    line: int
    name: str
    text: str
    rules: tuple[str, ...] = ()
    """Rules that its command needs in policy.toml, in TOML; they are for this routine alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineRemark:
    """What is said of a line; `line` is 0 for a remark on all of them."""

    line: int
    text: str
    """The line, or a part of it."""
    remark: str


@dataclass(kw_only=True, slots=True)
class CrontabImport:
    """All that a crontab becomes, before anything is written."""

    source: str
    routines: list[ImportedRoutine] = field(default_factory=list)
    targets: dict[str, dict[str, str]] = field(default_factory=dict)
    """New [targets] of config.toml, by name."""
    refused_lines: list[LineRemark] = field(default_factory=list)
    existing_lines: list[LineRemark] = field(default_factory=list)
    """Those that were imported before, with the routine."""
    notes: list[LineRemark] = field(default_factory=list)
    is_written: bool = False


def read_source(file: str | None, *, has_users: bool, stdin: Callable[[], bytes]) -> CrontabSource:
    """Return the crontab of a file, of standard input (`-`), or what `crontab -l` prints.

    Raises Refused where there is none.
    """
    if file is None:
        content, name = _run_crontab(), f"crontab of {_user_name()}"
    elif file == "-":
        content, name = stdin(), "standard input"
    else:
        try:
            content, name = Path(file).read_bytes(), file
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Refused(f"{display(file)} cannot be read: {reason}") from None
        path = os.path.abspath(file)  # noqa: PTH100  # links stay: /etc/crontab may be one
        has_users = has_users or path == "/etc/crontab" or path.startswith(_SYSTEM_CRONTABS[1])
    return CrontabSource(
        text=content.decode("utf-8", errors="replace"), name=name, has_users=has_users
    )


def _run_crontab() -> bytes:
    try:
        result = subprocess.run(["crontab", "-l"], capture_output=True, check=False)
    except OSError as error:
        raise Refused(
            f"crontab -l cannot be run ({error.strerror}); name a FILE, or - for standard input"
        ) from None
    if result.returncode:
        problem = " ".join(result.stderr.decode(errors="replace").split())
        raise Refused(f"crontab -l says: {problem or f'exit code {result.returncode}'}")
    return result.stdout


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


# --- composing


def compose_import(
    source: CrontabSource,
    config: Config,
    *,
    state: Path,
    targets: Sequence[str],
    read_policy: Callable[[str], Policy],
    env: Mapping[str, str],
) -> CrontabImport:
    """Return what the crontab becomes. `targets` are for lines without MAILTO; `read_policy` reads
    the text of a policy. Raises Refused for a target that config.toml does not have.
    """
    for target in targets:
        if target not in config.target_names:
            raise Refused(
                f"--to: config.toml has no [targets.{display(target)}]; add it, or choose of "
                f"{', '.join(sorted(config.target_names))}"
            )
    crontab = parse_crontab(source.text, has_users=source.has_users)
    result = CrontabImport(source=source.name)
    result.refused_lines += [
        LineRemark(line=fault.line, text=fault.text, remark=fault.problem)
        for fault in crontab.faults
    ]
    for variable in crontab.variables:
        if variable.name not in _CRON_VARIABLES:
            remark = "is not taken over: programs see PATH, HOME, LANG and TZ of agentd only"
            text = f"{variable.name}={variable.value}"
            result.notes.append(LineRemark(line=variable.line, text=text, remark=remark))
    composer = _Composer(config, state, targets, read_policy, env, result)
    for job in crontab.jobs:
        try:
            composer.add(job)
        except LineNotImportable as error:
            result.refused_lines.append(LineRemark(line=job.line, text=job.text, remark=str(error)))
    result.refused_lines.sort(key=lambda remark: remark.line)
    return result


class _Composer:
    """Turns one job after another into a routine."""

    def __init__(
        self,
        config: Config,
        state: Path,
        targets: Sequence[str],
        read_policy: Callable[[str], Policy],
        env: Mapping[str, str],
        result: CrontabImport,
    ) -> None:
        self._config, self._targets, self._result = config, targets, result
        self._read_policy = read_policy
        try:
            self._policy_text = config.policy_path.read_bytes().decode()
            self._policy = read_policy(self._policy_text)
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"{display(config.policy_path)} cannot be read: {error}") from None
        folders = (config.routines_path, state / AGENT_FOLDER)
        files = [path for folder in folders for path in sorted(folder.glob("*.toml"))]
        self._names = {*RESERVED, *(path.stem for path in files)}
        self._routine_of_head = {_head_of(path): path.stem for path in files}
        self._routine_of_head.pop("", None)
        self._line_of_head: dict[str, int] = {}
        self._target_of_recipients = _find_mail_targets(config, env)
        self._new_targets: dict[str, dict[str, str]] = {}
        """All that lines need, by name; those of lines that are not taken are not written."""

    def add(self, job: CrontabJob) -> None:
        """Add the routine of a job to the result. Raises LineNotImportable."""
        head = _compose_head(job)
        if line := self._line_of_head.get(head):
            raise LineNotImportable(f"it is line {line} once more, and one routine runs it once")
        if routine := self._routine_of_head.get(head):
            self._line_of_head[head] = job.line
            remark = LineRemark(line=job.line, text=job.text, remark=routine)
            self._result.existing_lines.append(remark)
            return
        user = _user_name()
        if job.user and job.user != user:
            raise LineNotImportable(
                f"it runs as {job.user}, and agentd as {user}: let {job.user} import it, into an "
                "agentd of its own"
            )
        shell = job.variables.get("SHELL", "")
        if shell and shell.rpartition("/")[2] not in _SHELLS:
            raise LineNotImportable(
                f"its SHELL is {shell}, and no shell is run here: {self._script_hint(job)}"
            )
        if job.stdin is not None:
            raise LineNotImportable(
                "what stands behind its % is its standard input, which no command has here: write "
                "it into a file of the workspace, and `< FILE` behind the command; a percent sign "
                r"is \%"
            )
        name = self._choose_name(job, head)
        rules = self._judge(job, name)
        target_tables, deliver = self._deliver(job)
        text = _compose_text(job, head, deliver, zone=self._zone(job))
        self._check(name, text, target_tables)
        self._result.targets.update(target_tables)
        self._result.routines.append(
            ImportedRoutine(line=job.line, name=name, text=text, rules=rules)
        )
        self._names.add(name)
        self._line_of_head[head] = job.line

    def _zone(self, job: CrontabJob) -> str:
        zone = job.variables.get("CRON_TZ", "")
        try:
            return str(check_zone(zone)) if zone else ""
        except (InvalidValue, ValueError):
            raise LineNotImportable(
                f"its CRON_TZ, {zone}, is no time zone: write one like Europe/Berlin"
            ) from None

    def _script_hint(self, job: CrontabJob) -> str:
        folder = display(self._config.scripts_path)
        return (
            f"put the command into an executable file in {folder}, and gather it with tool = "
            '"script"'
        )

    def _judge(self, job: CrontabJob, name: str) -> tuple[str, ...]:
        """Return the rules without which the policy would not allow the command. Raises
        LineNotImportable for a command that no rule allows.
        """
        arguments, policy = {"command": job.command}, self._policy
        rules = [rule for rule in policy.rules if rule.is_for("shell", name)]
        try:
            request = analyze_call("shell", arguments, policy.reach, rules)
        except CallRejected as error:
            raise LineNotImportable(f"{error}; or {self._script_hint(job)}") from None
        for pipeline in request.line:
            for command in pipeline.commands:
                if alternative := _BUILTINS.get(command.argv[0]):
                    raise LineNotImportable(
                        f"{command.argv[0]} is no program, but a word of a shell: {alternative}"
                    )
                if find_program(command.argv[0]) is None:
                    raise LineNotImportable(
                        f"{command.argv[0]} is no program of this system (of root's, in /usr/bin "
                        f"and the like): install it, or {self._script_hint(job)}"
                    )
        self._note_hidden_paths(job, request)
        if policy.judge("shell", arguments, routine=name).effect is not Effect.DENY:
            return ()
        denied_parts = [
            part
            for part in request.parts
            if judge_part(part, policy.rules, routine=name, default=policy.default).effect
            is Effect.DENY
        ]
        new_rules = tuple(
            dict.fromkeys(_compose_rule(name, part.words) for part in denied_parts if part.words)
        )
        try:
            trial = self._read_policy("\n\n".join([self._policy_text.rstrip(), *new_rules]))
        except ConfigError as error:
            raise LineNotImportable(
                f"no rule of policy.toml can name it: {error.faults[0].problem}"
            ) from None
        verdict = trial.judge("shell", arguments, routine=name)
        if verdict.effect is Effect.DENY:
            alternative = f"; {verdict.alternative}" if verdict.alternative else ""
            raise LineNotImportable(
                f"the policy denies it: {verdict.reason} ({verdict.rule}){alternative}"
            )
        return new_rules

    def _note_hidden_paths(self, job: CrontabJob, request: Request) -> None:
        """Note the paths in a command, also those behind a `=`, that its programs would not see."""
        reach = self._policy.reach
        shown_paths = [reach.workspace, *reach.readable]
        shown_paths += [*system_folders(), *SETTINGS, "/proc", "/dev"]
        words = dict.fromkeys(word for part in request.parts for word in part.words[1:])
        for path in (word[word.find("=/") + 1 :] for word in words):
            folder = os.path.dirname(path)  # noqa: PTH120  raises nothing, whatever the word is
            # A file may come later; a word such as /^a/ has no folder that is there.
            is_path = path.startswith("/") and (
                os.path.lexists(path) or (folder != "/" and os.path.isdir(folder))  # noqa: PTH112
            )
            real_path = Path(os.path.realpath(path))
            if is_path and not any(map(real_path.is_relative_to, shown_paths)):
                remark = (
                    f"commands do not see {path}: where this one is to read it, name it in [paths] "
                    "read of policy.toml (a rule of the policy may allow the command then)"
                )
                self._result.notes.append(LineRemark(line=job.line, text=job.text, remark=remark))

    def _deliver(self, job: CrontabJob) -> tuple[dict[str, dict[str, str]], list[dict[str, str]]]:
        """Return new targets, and the tables of [[deliver]]. Raises LineNotImportable for a
        MAILTO that is no address.
        """
        mailto = job.variables.get("MAILTO")
        if mailto is None:
            names = list(dict.fromkeys(self._targets or ["file"]))
            return {}, [
                {"to": name, **({"path": _REPORT_PATH} if name == "file" else {})} for name in names
            ]
        recipients = sorted({part for part in re.split(r"[,\s]+", mailto) if part})
        if not recipients:  # MAILTO="": cron mails nothing
            return {}, []
        key = frozenset(recipient.lower() for recipient in recipients)
        if name := self._target_of_recipients.get(key):
            tables = {name: self._new_targets[name]} if name in self._new_targets else {}
            return tables, [{"to": name}]
        url = f"sendmail://?to={quote(','.join(recipients), safe='@,')}"
        try:
            parse_sendmail_url(url)
        except DeliveryFailed as error:
            raise LineNotImportable(f"its MAILTO, {mailto}, is no address: {error}") from None
        stem = f"mail-{_slug(recipients[0].partition('@')[0]) or 'cron'}"
        taken_names = {*self._config.target_names, *self._new_targets}
        name = _unique(stem, taken_names, digest=url)
        self._target_of_recipients[key] = name
        self._new_targets[name] = {"kind": "mail", "url": url}
        if fault := find_mail_fault(url):
            remark = LineRemark(line=job.line, text=f"MAILTO={mailto}", remark=fault)
            self._result.notes.append(remark)
        return {name: self._new_targets[name]}, [{"to": name}]

    def _check(self, name: str, text: str, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Raise LineNotImportable for a routine that the daemon would not load."""
        path = self._config.routines_path / f"{name}.toml"
        config = self._config
        try:
            text.encode()
            if targets:
                config = with_targets(config, {**self._result.targets, **targets})
            checks = (*PEOPLE_CHECKS, *routine_checks(config, TOOLS))
            routine_of(tomllib.loads(text), path, checks=checks)
        except ConfigError as error:
            fault = error.faults[0]
            hint = f"; {fault.hint}" if fault.hint else ""
            raise LineNotImportable(
                f"no routine can say it: {fault.key}: {fault.problem}{hint}"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeEncodeError) as error:
            raise LineNotImportable(f"no routine file can hold it: {error}") from None

    def _choose_name(self, job: CrontabJob, head: str) -> str:
        """Return a name of the program and what it is given, the same in each import."""
        words = re.findall(r"[^\s|;&<>\"']+", job.command)
        program = words[0].rpartition("/")[2] if words else ""
        parts = [_slug(re.sub(r"\.(?:sh|bash|py|pl|rb|php)$", "", program))]
        parts += [_slug(word.rpartition("/")[2]) for word in words[1:] if word[0] not in "-'\"*$"]
        stem = "-".join(part for part in parts[:3] if part)[:_MAX_NAME].strip("-") or "job"
        return _unique(stem, self._names, digest=head)


def _slug(text: str) -> str:
    """Return the letters and digits of a text, as a routine's name may have them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _unique(stem: str, taken_names: Collection[str], *, digest: str) -> str:
    """Return a name that is not taken: the stem, or the stem with a part of a digest."""
    if stem not in taken_names:
        return stem
    hexadecimal = hashlib.sha256(digest.encode(errors="replace")).hexdigest()
    names = (f"{stem}-{hexadecimal[:length]}" for length in range(4, len(hexadecimal)))
    return next(name for name in names if name not in taken_names)


def with_targets(config: Config, targets: Mapping[str, Mapping[str, str]]) -> Config:
    """Return a config with these targets besides its own, as it is read from its file."""
    text = add_targets(config.file.read_text("utf-8-sig"), targets)
    return parse(tomllib.loads(text), Config, file=config.file, checks=CONFIG_CHECKS).at(
        config.file
    )


def add_targets(text: str, targets: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of a config with these targets at its end. Raises Refused where they cannot
    be added by adding lines.
    """
    for name, table in targets.items():
        try:
            text = with_table(text, "targets", name, table, remark=_REMARK)
        except ValueError as error:
            raise Refused(f"config.toml cannot take [targets.{name}]: {error}") from None
    return text


def _find_mail_targets(config: Config, env: Mapping[str, str]) -> dict[frozenset[str], str]:
    """Return the names of the mail targets of a config by their recipients."""
    names: dict[frozenset[str], str] = {}
    for name, target in config.targets.items():
        if target.kind != "mail":
            continue
        try:
            secret = config.target_url(name, env)
            url = secret.get_secret_value() if secret else ""
            address = parse_sendmail_url(url) if is_sendmail(url) else parse_smtp_url(url)
        except (ConfigError, DeliveryFailed):
            continue
        recipients = frozenset(recipient.addr_spec.lower() for recipient in address.recipients)
        names.setdefault(recipients, name)
    return names


# --- texts


def _compose_head(job: CrontabJob) -> str:
    """Return the first line of a routine's file: the line of the crontab, by which it is found
    again.
    """
    names = ("CRON_TZ", "MAILTO")
    variables = "".join(f"{name}={job.variables[name]} " for name in names if name in job.variables)
    return f"# From a crontab: {variables}{display(' '.join(job.text.split()))}"


def _head_of(path: Path) -> str:
    """Return the first line of a routine's file if it is from a crontab, else an empty text."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            line = file.readline().rstrip("\n")
    except OSError:
        return ""
    return line if line.startswith("# From a crontab: ") else ""


def _compose_text(
    job: CrontabJob, head: str, deliver: Sequence[Mapping[str, str]], *, zone: str
) -> str:
    """Return the file of a routine."""
    trigger: dict[str, Any] = {"on_start": True} if job.is_at_start else {"cron": job.schedule}
    if zone:
        trigger["timezone"] = zone
    command = tomli_w.dumps({"command": job.command}).strip()
    blocks = [
        f"{display(head)}\n[trigger]\n{tomli_w.dumps(trigger)}",
        '[run]\nmode = "script"\n',
        f'[[gather]]\nname = "output"\ntool = "shell"\nargs = {{ {command} }}\n',
        *(f"[[deliver]]\n{tomli_w.dumps(table)}" for table in deliver),
    ]
    return "\n".join(blocks)


def _compose_rule(routine: str, words: Sequence[str]) -> str:
    """Return the rule that allows one routine one command, word by word."""
    rule = {"tool": "shell", "effect": "allow", "routines": [routine], "argv": list(words)}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in rule.items()]
    return "\n".join(["[[rule]]", *lines])


def describe(result: CrontabImport, config: Config, *, as_json: bool) -> str:
    """Return what an import would write or has written, what it needs, and what is left."""
    rules = [rule for routine in result.routines for rule in routine.rules]
    if as_json:
        value = {
            "written": result.is_written,
            "routines": [
                {
                    "line": routine.line,
                    "name": routine.name,
                    "file": os.fspath(config.routines_path / f"{routine.name}.toml"),
                    "text": routine.text,
                }
                for routine in result.routines
            ],
            "targets": result.targets,
            "rules": rules,
            **{
                key: [
                    {"line": remark.line, "text": remark.text, "remark": remark.remark}
                    for remark in remarks
                ]
                for key, remarks in (
                    ("refused", result.refused_lines),
                    ("existing", result.existing_lines),
                    ("notes", result.notes),
                )
            },
        }
        return json.dumps(value, ensure_ascii=False)
    blocks: list[str] = []
    if result.is_written:
        files = [
            f"wrote {config.routines_path / f'{routine.name}.toml'}" for routine in result.routines
        ]
        files += [f"added [targets.{name}] to {config.file}" for name in result.targets]
        blocks.append("\n".join(files))
    else:
        blocks += _diffs(result, config)
    if rules:
        verb = "were" if result.is_written else "are"
        head = (
            f"# What these commands need in {display(config.policy_path)}; the rules {verb} "
            "not written: add those that you want."
        )
        blocks.append("\n\n".join([head, *rules]))
    for title, remarks in (
        ("Not taken over", result.refused_lines),
        ("Imported before, left as it is", result.existing_lines),
        ("Notes", result.notes),
    ):
        if remarks:
            lines = [title]
            for remark in remarks:
                lines += [
                    f"  line {remark.line}: {display(remark.text)}",
                    f"    {display(remark.remark)}",
                ]
            blocks.append("\n".join(lines))
    blocks.append(_summarize(result))
    return "\n\n".join(blocks)


def _diffs(result: CrontabImport, config: Config) -> list[str]:
    diffs = []
    for routine in result.routines:
        path = config.routines_path / f"{routine.name}.toml"
        diffs.append(_diff("", routine.text, "/dev/null", os.fspath(path)))
    if result.targets:
        old_text = config.file.read_text("utf-8-sig")
        file = os.fspath(config.file)
        diffs.append(_diff(old_text, add_targets(old_text, result.targets), file, file))
    return diffs


def _diff(old_text: str, new_text: str, old_name: str, new_name: str) -> str:
    lines = difflib.unified_diff(
        old_text.splitlines(), new_text.splitlines(), old_name, new_name, n=1, lineterm=""
    )
    return "\n".join(lines)


def _summarize(result: CrontabImport) -> str:
    count = len(result.routines)
    routines = "1 routine" if count == 1 else f"{count} routines"
    if not count:
        return f"{result.source}: no line becomes a routine that is not there already"
    lines = []
    if result.is_written:
        lines.append(
            f"{result.source}: {routines} written. Take their lines out of the crontab (crontab "
            "-e), or both run them."
        )
    else:
        lines.append(f"{result.source}: {routines}; nothing was written: --write writes them")
    lines.append(
        "Their programs run in the sandbox: without network, writing in the workspace only, and as "
        "long as shell_seconds of policy.toml says."
    )
    return "\n".join(lines)


def write(result: CrontabImport, config: Config) -> None:
    """Write the targets, then the routines. Raises Refused for a file that cannot be written."""
    if result.targets:
        try:
            with lock_config(config.file):
                old_text = config.file.read_text("utf-8-sig")
                write_config(config.file, add_targets(old_text, result.targets))
        except (OSError, ValueError, ConfigError) as error:
            raise Refused(f"{display(config.file)} was not changed: {error}") from None
    for routine in result.routines:
        write_new(config.routines_path / f"{routine.name}.toml", routine.text)
    result.is_written = True
