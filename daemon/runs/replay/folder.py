"""A recorded run as a folder of files that people can read: a regression case that needs nothing
besides itself.

`SHA256SUMS` (as `sha256sum -c` reads it) names every file; a case in which one byte is not as it
was is refused, and so is one whose list itself was touched. Secrets are taken out before anything
is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon import __version__
from daemon.agent.tool_calls import redact_json
from daemon.errors import DaemonError, NotFound, Refused
from daemon.models import Json, Run, Status, Step, StepKind, Taint, Usage
from daemon.runs.replay.cassette import Cassette
from daemon.runs.replay.verdicts import marked

FORMAT = 1
SUMS = "SHA256SUMS"
CASE = "case.json"
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9_.-]*)")
_TIMES = ("slot", "created", "started", "ended", "not_before")
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
_ABOUT = {
    "case.json": "the run: when, why, how it ended, what it used",
    "routine.json": "the routine as the run began it",
    "prompt.md": "what the model was told first",
    "steps.json": "what was asked, answered, called and brought, in order",
    "input.json": "what its event brought along",
    "before.json": "what the run before it had gathered",
    "report.md": "the report that is expected",
}


def files_of(
    cassette: Cassette, redact: Callable[[str], str], *, folder: str = "DIR"
) -> dict[str, str]:
    """Return the files of a case by name, secrets taken out."""
    cassette = marked(cassette)
    run = cassette.run
    files: dict[str, str] = {
        "routine.json": _json(redact_json(json.loads(cassette.definition), redact)),
        "steps.json": _json([redact_json(_step_as_json(step), redact) for step in cassette.steps]),
    }
    if cassette.frozen is not None:
        files["prompt.md"] = redact(str(cassette.frozen["system"]))
    if run.report is not None:
        files["report.md"] = redact(run.report)
    if cassette.given is not None:
        files["input.json"] = _json(redact_json(cassette.given, redact))
    if cassette.before:
        files["before.json"] = _json(redact_json(dict(cassette.before), redact))
    policies = {}
    for hash_, text in cassette.policies.items():
        policies[hash_] = name = f"policy-{hash_[:12]}.toml"
        files[name] = redact(text)
    about = [*files, CASE]
    files[CASE] = _json(
        {
            "format": FORMAT,
            "agentd": __version__,
            "run": redact_json(_run_as_json(run), redact),
            "workspace": cassette.workspace,
            "language": cassette.language,
            "policies": policies,
            "missing": list(cassette.missing),
            "files": sorted(about),
        }
    )
    rows = "\n".join(
        f"| `{name}` | {_ABOUT.get(name, 'a policy that judged its calls')} |"
        for name in sorted(about)
    )
    words = f"{run.trigger}, {run.slot:%Y-%m-%d %H:%M} UTC, {run.status.value.replace('_', ' ')}"
    files["README.md"] = _README.format(
        routine=run.routine, run=run.id, words=words, folder=folder, files=rows, sums=SUMS
    )
    files[SUMS] = _sums({name: text.encode() for name, text in files.items()})
    return files


def _sums(contents: Mapping[str, bytes]) -> str:
    return "".join(
        f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)
    )


def is_case(folder: Path) -> bool:
    """Tell whether a folder looks like a frozen run."""
    return (folder / SUMS).is_file() or (folder / CASE).is_file()


def read_case(folder: Path) -> Cassette:
    """Read a case. NotFound if it is none, DaemonError if it was touched, Refused for a format we
    do not know yet.
    """
    contents = _unharmed(folder)
    case = json.loads(contents[CASE])
    if case["format"] > FORMAT:
        raise Refused(
            f"{folder} has format {case['format']}, written by agentd {case['agentd']}; this is "
            f"agentd {__version__}, "
            f"which reads formats up to {FORMAT}: replay it with a newer one"
        )
    if missing := sorted(set(case["files"]) - set(contents)):
        raise DaemonError(f"{folder} is not what was frozen: {', '.join(missing)} is not in {SUMS}")
    texts = {name: content.decode() for name, content in contents.items()}
    run = _run_from(case["run"], texts.get("report.md"))
    return Cassette(
        run=run,
        definition=texts["routine.json"],
        steps=[
            _step_from(step, texts.get("prompt.md", "")) for step in json.loads(texts["steps.json"])
        ],
        given=json.loads(texts["input.json"]) if "input.json" in texts else None,
        before=json.loads(texts["before.json"]) if "before.json" in texts else {},
        policies={hash_: texts[name] for hash_, name in case["policies"].items()},
        workspace=case["workspace"],
        language=case["language"],
        missing=tuple(case["missing"]),
    )


def _unharmed(folder: Path) -> dict[str, bytes]:
    """Return the files of a case by name; DaemonError if one of them, or the list of them, is not
    what was frozen.
    """
    try:
        listed = (folder / SUMS).read_bytes()
    except OSError:
        raise NotFound(
            f"{folder} is no frozen run: it has no {SUMS}; agentctl freeze RUN DIR writes one"
        ) from None
    names: dict[str, str] = {}
    for line in listed.decode("ascii", "replace").split("\n")[:-1]:
        found = _LINE.fullmatch(line)
        if found:
            names[found[2]] = found[1]
    if (
        "".join(f"{names[name]}  {name}\n" for name in sorted(names)).encode() != listed
        or CASE not in names
    ):
        raise DaemonError(f"{folder} is not what was frozen: {SUMS} itself was changed")
    contents: dict[str, bytes] = {}
    for name, sum_ in names.items():
        try:
            contents[name] = (folder / name).read_bytes()
        except OSError as error:
            raise DaemonError(
                f"{folder} is not what was frozen: {name} cannot be read: {error.strerror}"
            ) from None
        if hashlib.sha256(contents[name]).hexdigest() != sum_:
            raise DaemonError(f"{folder} is not what was frozen: {name} was changed")
    return contents


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


def _run_from(row: Json, report: str | None) -> Run:
    values: dict[str, Any] = dict(row)
    for field_name, old_name in _OLD_FIELD_NAMES.items():
        if old_name in values:
            values[field_name] = values.pop(old_name)
    for name in _TIMES:
        values[name] = datetime.fromisoformat(row[name]) if row.get(name) else None
    values["status"] = Status(row["status"])
    values["taint"] = Taint(row["taint"])
    values["usage"] = Usage(**row["usage"])
    return Run(**values, report=report)


def _step_as_json(step: Step) -> Json:
    body = (
        {**step.body, "system": {"file": "prompt.md"}}
        if step.kind is StepKind.PROMPT
        else step.body
    )
    told: Json = {"seq": step.seq, "kind": step.kind.value, "iteration": step.iteration}
    if step.call_id is not None:
        told["call_id"] = step.call_id
    return {**told, "at": step.at.isoformat() if step.at else None, "body": body}


def _step_from(told: Json, prompt: str) -> Step:
    step = Step(
        kind=StepKind(told["kind"]),
        iteration=told["iteration"],
        body=told["body"],
        call_id=told.get("call_id"),
        seq=told["seq"],
        at=datetime.fromisoformat(told["at"]) if told["at"] else None,
    )
    return (
        replace(step, body={**step.body, "system": prompt})
        if step.kind is StepKind.PROMPT
        else step
    )
