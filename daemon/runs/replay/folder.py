"""A frozen run: a recorded run as a folder of files that people can read and tests can replay
without a journal.

`SHA256SUMS` (as `sha256sum -c` reads it) names every file; a folder in which one byte was changed
is refused, and so is one whose `SHA256SUMS` was. Secrets are redacted before anything is written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from daemon import __version__
from daemon.definitions.routines.routine import Routine
from daemon.definitions.syntax import file_fault
from daemon.definitions.words import display, shorten
from daemon.errors import ConfigError, DaemonError, NotFound, Refused
from daemon.models import Json, Run, Step, StepKind, Usage
from daemon.policy.policy import Policy
from daemon.runs.replay.cassette import Cassette
from daemon.runs.replay.frozen_models import (
    HINT,
    INPUT_MODELS,
    CaseHeadModel,
    CaseModel,
    Model,
    RunModel,
    find_fault,
    find_step_faults,
)
from daemon.runs.replay.recorded_policy import mark_verdicts_by_files
from daemon.system.http_body import TooManyValues, is_deeper, parse_json
from daemon.telemetry.redaction import redact_json

FORMAT = 1
# What is read of a folder. The longest run of a real routine has some thousand steps, and the
# pictures of a run take 14 MB at most (see images.py).
MAX_BYTES = 64_000_000
MAX_SUMS_BYTES = 20_000
MAX_VALUES = 1_000_000
"""Values of one JSON file."""
MAX_STEPS = 20_000
MAX_DEPTH = 200
SUMS = "SHA256SUMS"
CASE = "case.json"
_LONG_NUMBER = re.compile(r"\d{4301}")  # sys.int_info.default_max_str_digits is 4300
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9_.-]*)")
# Fields of a run that have another name in case.json, whose format stays.
_OLD_FIELD_NAMES = {"fruitless_attempts": "barren"}

_README = """\
# {routine}, run {run}

A run of agentd, frozen: {words}.

    agentctl replay {folder}

plays it again, without a daemon, a model, a key or the network, and exits with 1 if anything comes out otherwise
than it did. `--policy FILE` judges its calls by another policy.

| file | what it is |
|---|---|
{files}

Nothing here may be edited: `{sums}` knows every byte. To change what is expected, freeze another run.
"""  # noqa: E501
_DESCRIPTIONS = {
    "case.json": "the run: when, why, how it ended, what it used",
    "routine.json": "the routine as the run began it",
    "prompt.md": "what the model was told first",
    "steps.json": "what was asked, answered, called and brought, in order",
    "input.json": "what its event brought along",
    "before.json": "what the run before it had gathered",
    "report.md": "the report that is expected",
}


def format_files(
    cassette: Cassette, redact: Callable[[str], str], *, folder: str = "DIR"
) -> dict[str, str]:
    """Return the texts of the files of a frozen run by name, secrets redacted.

    `folder` is named in the README among them. Raises Refused for a run that `read_frozen_run`
    would not take.
    """
    cassette = mark_verdicts_by_files(cassette)
    run = cassette.run
    files: dict[str, str] = {
        "routine.json": _json(redact_json(json.loads(cassette.definition), redact)),
        "steps.json": _json([redact_json(_step_as_json(step), redact) for step in cassette.steps]),
    }
    if cassette.prompt is not None:
        files["prompt.md"] = redact(str(cassette.prompt["system"]))
    if run.report is not None:
        files["report.md"] = redact(run.report)
    if cassette.event_input is not None:
        files["input.json"] = _json(redact_json(cassette.event_input, redact))
    if cassette.previous_values:
        files["before.json"] = _json(redact_json(dict(cassette.previous_values), redact))
    policies = {}
    for policy_hash, text in cassette.policies.items():
        name = f"policy-{policy_hash[:12]}.toml"
        policies[policy_hash] = name
        files[name] = redact(text)
    names = sorted([*files, CASE])
    files[CASE] = _json(
        {
            "format": FORMAT,
            "agentd": __version__,
            "run": redact_json(_run_as_json(run), redact),
            "workspace": cassette.workspace,
            "language": cassette.language,
            "policies": policies,
            "missing": list(cassette.missing_parts),
            "files": names,
        }
    )
    rows = "\n".join(
        f"| `{name}` | {_DESCRIPTIONS.get(name, 'a policy that judged its calls')} |"
        for name in names
    )
    status = run.status.value.replace("_", " ")
    description = f"{run.trigger}, {run.slot:%Y-%m-%d %H:%M} UTC, {status}"
    files["README.md"] = _README.format(
        routine=run.routine, run=run.id, words=description, folder=folder, files=rows, sums=SUMS
    )
    contents = {name: text.encode() for name, text in files.items()}
    try:
        _parse_files(contents, Path(folder))
    except DaemonError as error:
        raise Refused(f"run {run.id} could not be replayed once it was frozen: {error}") from None
    return {**files, SUMS: _sums(contents)}


def _sums(contents: Mapping[str, bytes]) -> str:
    return "".join(
        f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)
    )


def is_frozen_run(folder: Path) -> bool:
    """Return whether a folder looks like a frozen run."""
    return (folder / SUMS).is_file() or (folder / CASE).is_file()


def read_frozen_run(folder: Path) -> Cassette:
    """Read a frozen run.

    Raises NotFound if the folder holds none, DaemonError if it was changed, Refused for a format or
    a definition of a newer version, ConfigError if SHA256SUMS fits and one of the files is not
    what `format_files` writes, or is beyond the bounds.
    """
    return _parse_files(_read_intact(folder), folder)


def _parse_files(contents: Mapping[str, bytes], folder: Path) -> Cassette:
    """Return the run that these files hold. Raises as `read_frozen_run`."""
    case_data = _parse_json(contents[CASE], folder / CASE)
    _check(CaseHeadModel, case_data, folder / CASE)
    if case_data["format"] > FORMAT:
        raise Refused(
            f"{folder} has format {case_data['format']}, written by agentd "
            f"{shorten(case_data['agentd'])}; this is agentd {__version__}, "
            f"which reads formats up to {FORMAT}: replay it with a newer one"
        )
    _check(CaseModel, case_data, folder / CASE)
    case = CaseModel.model_validate(case_data)
    names = {*case.files, *case.policies.values(), "routine.json", "steps.json"}
    if missing_names := sorted(names - set(contents)):
        raise DaemonError(
            f"{folder} is not what was frozen: {shorten(', '.join(missing_names))} is not in {SUMS}"
        )
    texts = {
        name: _decode(content, folder / name)
        for name, content in contents.items()
        if name.endswith((".md", ".toml")) or name == "routine.json"
    }
    steps_data = _parse_json(contents["steps.json"], folder / "steps.json")
    if fault := next(find_step_faults(steps_data, file=display(folder / "steps.json")), None):
        raise ConfigError(fault)
    if len(steps_data) > MAX_STEPS:
        problem = f"holds more than the {MAX_STEPS:,} steps that are replayed"
        raise ConfigError(file_fault(folder / "steps.json", problem))
    event_input, previous_values = None, {}
    if "input.json" in contents:
        event_input = _parse_json(contents["input.json"], folder / "input.json")
        if event_input is not None and case.run.trigger in INPUT_MODELS:
            _check(INPUT_MODELS[case.run.trigger], event_input, folder / "input.json")
    if "before.json" in contents:
        previous_values = _parse_json(contents["before.json"], folder / "before.json")
        _check(Model, previous_values, folder / "before.json")
    _check_definition(texts["routine.json"], folder / "routine.json", case.agentd)
    for name in case.policies.values():
        Policy.read(texts[name], workspace=Path(case.workspace), name=display(folder / name))
    return Cassette(
        run=_run_from(case.run, texts.get("report.md")),
        definition=texts["routine.json"],
        steps=[_step_from(step, texts.get("prompt.md", "")) for step in steps_data],
        event_input=event_input,
        previous_values=previous_values,
        policies={policy_hash: texts[name] for policy_hash, name in case.policies.items()},
        workspace=case.workspace,
        language=case.language,
        missing_parts=tuple(case.missing),
    )


def _read_intact(folder: Path) -> dict[str, bytes]:
    """Return the files of a frozen run by name.

    Raises NotFound without SHA256SUMS, DaemonError if it or one of the files was changed,
    ConfigError if they are longer than MAX_BYTES.
    """
    try:
        sums_file = _read_file(folder / SUMS, MAX_SUMS_BYTES)
    except OSError:
        raise NotFound(
            f"{folder} is no frozen run: it has no {SUMS}; agentctl freeze RUN DIR writes one"
        ) from None
    sums: dict[str, str] = {}
    for line in sums_file.decode("ascii", "replace").split("\n")[:-1]:
        match = _SUM_LINE.fullmatch(line)
        if match:
            sums[match[2]] = match[1]
    if (
        "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode() != sums_file
        or CASE not in sums
    ):
        raise DaemonError(f"{folder} is not what was frozen: {SUMS} itself was changed")
    contents: dict[str, bytes] = {}
    bytes_left = MAX_BYTES
    for name, sum_ in sums.items():
        try:
            contents[name] = _read_file(folder / name, bytes_left)
        except OSError as error:
            raise DaemonError(
                f"{folder} is not what was frozen: {name} cannot be read: {error.strerror}"
            ) from None
        bytes_left -= len(contents[name])
        if bytes_left < 0:
            problem = f"with it the folder has more than the {MAX_BYTES:,} bytes that are read"
            raise ConfigError(file_fault(folder / name, problem))
        if hashlib.sha256(contents[name]).hexdigest() != sum_:
            raise DaemonError(f"{folder} is not what was frozen: {name} was changed")
    return contents


def _read_file(path: Path, limit: int) -> bytes:
    """Return the content of a regular file; of a longer one a byte more than `limit`. Raises
    OSError.
    """
    # the writer of a pipe is not waited for
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(limit + 1)


def _decode(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (byte {error.object[error.start]:#04x} at {error.start:,})"
        raise ConfigError(file_fault(path, problem, HINT)) from None


def _parse_json(content: bytes, path: Path) -> Any:
    """Parse a JSON file. Raises ConfigError for one that is none, or beyond the bounds."""
    text = _decode(content, path)
    try:
        value = parse_json(content, MAX_VALUES)
    except TooManyValues as error:
        problem = f"holds {error}, which is all that is read of it"
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        problem = f"lies more than {MAX_DEPTH} levels deep"
    except ValueError:  # Python reads no number of more than 4,300 digits
        match = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, match.start()) + 1 if match else 1
        problem = f"has a number with more digits than can be read in line {line}"
    else:
        if not is_deeper(value, MAX_DEPTH):
            return value
        problem = f"lies more than {MAX_DEPTH} levels deep"
    raise ConfigError(file_fault(path, problem, HINT))


def _check(model: type[BaseModel], value: Any, path: Path) -> None:
    """Raise ConfigError if a value does not fit the model."""
    if fault := find_fault(model, value, file=display(path)):
        raise ConfigError(fault)


def _check_definition(text: str, path: Path, version: str) -> None:
    """Raise Refused if a definition is none that this version reads."""
    try:
        Routine.restore(text)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        place = shorten(".".join(map(str, first_error["loc"])))
        raise Refused(
            f"{path} cannot be read by this version of agentd, {__version__}: "
            f"{place}{': ' if place else ''}{shorten(first_error['msg'], 200)}; it was written by "
            f"agentd {shorten(version)}"
        ) from None


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, indent=1)
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as odd file names yield
        text = json.dumps(value, indent=1)
    return text + "\n"


def _run_as_json(run: Run) -> Json:
    """Return the row of a run but for its report, which has a file of its own."""
    row: Json = {}
    for field in fields(run):
        if field.name in ("report", "fence", "waits_moved"):
            continue
        value = getattr(run, field.name)
        match value:
            case Usage():
                value = {part.name: getattr(value, part.name) for part in fields(value)}
            case datetime():
                value = value.isoformat()
        row[_OLD_FIELD_NAMES.get(field.name, field.name)] = value
    return row


def _run_from(model: RunModel, report: str | None) -> Run:
    values = dict(model)
    for field_name, old_name in _OLD_FIELD_NAMES.items():
        values[field_name] = values.pop(old_name)
    values["usage"] = Usage(**dict(model.usage))
    return Run(**values, report=report)


def _step_as_json(step: Step) -> Json:
    """Return a step but for the text of the prompt, which has a file of its own."""
    row: Json = {"seq": step.seq, "kind": step.kind.value, "iteration": step.iteration}
    if step.call_id is not None:
        row["call_id"] = step.call_id
    row["at"] = step.at.isoformat() if step.at else None
    row["body"] = step.body
    if step.kind is StepKind.PROMPT:
        row["body"] = {**step.body, "system": {"file": "prompt.md"}}
    return row


def _step_from(row: Json, prompt: str) -> Step:
    kind, body = StepKind(row["kind"]), row["body"]
    if kind is StepKind.PROMPT:
        body = {**body, "system": prompt}
    return Step(
        kind=kind,
        iteration=row["iteration"],
        body=body,
        call_id=row.get("call_id"),
        seq=row["seq"],
        at=datetime.fromisoformat(row["at"]) if row["at"] else None,
    )
