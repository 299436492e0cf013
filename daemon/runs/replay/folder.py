"""A frozen run: a recorded run as a folder of files that people can read and tests can replay
without a journal.

`SHA256SUMS` (as `sha256sum -c` reads it) names every file; a folder in which one byte was changed
is refused, and so is one whose `SHA256SUMS` was. Secrets are redacted before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon import __version__
from daemon.agent.tool_calls import redact_json
from daemon.errors import DaemonError, NotFound, Refused
from daemon.models import Json, Run, Status, Step, StepKind, Taint, Usage
from daemon.runs.replay.cassette import Cassette
from daemon.runs.replay.recorded_policy import mark_verdicts_by_files

FORMAT = 1
SUMS = "SHA256SUMS"
CASE = "case.json"
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9_.-]*)")
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

    `folder` is named in the README among them.
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
    files[SUMS] = _sums({name: text.encode() for name, text in files.items()})
    return files


def _sums(contents: Mapping[str, bytes]) -> str:
    return "".join(
        f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)
    )


def is_case(folder: Path) -> bool:
    """Return whether a folder looks like a frozen run."""
    return (folder / SUMS).is_file() or (folder / CASE).is_file()


def read_case(folder: Path) -> Cassette:
    """Read a frozen run.

    Raises NotFound if the folder holds none, DaemonError if it was changed, Refused for a format of
    a newer version.
    """
    contents = _read_intact(folder)
    case = json.loads(contents[CASE])
    if case["format"] > FORMAT:
        raise Refused(
            f"{folder} has format {case['format']}, written by agentd {case['agentd']}; this is "
            f"agentd {__version__}, "
            f"which reads formats up to {FORMAT}: replay it with a newer one"
        )
    if missing_names := sorted(set(case["files"]) - set(contents)):
        raise DaemonError(
            f"{folder} is not what was frozen: {', '.join(missing_names)} is not in {SUMS}"
        )
    texts = {name: content.decode() for name, content in contents.items()}
    run = _run_from(case["run"], texts.get("report.md"))
    return Cassette(
        run=run,
        definition=texts["routine.json"],
        steps=[
            _step_from(step, texts.get("prompt.md", "")) for step in json.loads(texts["steps.json"])
        ],
        event_input=json.loads(texts["input.json"]) if "input.json" in texts else None,
        previous_values=json.loads(texts["before.json"]) if "before.json" in texts else {},
        policies={policy_hash: texts[name] for policy_hash, name in case["policies"].items()},
        workspace=case["workspace"],
        language=case["language"],
        missing_parts=tuple(case["missing"]),
    )


def _read_intact(folder: Path) -> dict[str, bytes]:
    """Return the files of a frozen run by name.

    Raises NotFound without SHA256SUMS, DaemonError if it or one of the files was changed.
    """
    try:
        sums_file = (folder / SUMS).read_bytes()
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
    for name, sum_ in sums.items():
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
