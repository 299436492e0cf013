"""A frozen run that somebody changed, and sealed anew, is replayed or refused by the name of the
file; nothing else, and within bounded memory.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daemon.app.main import EX_CONFIG, main
from daemon.cli.call import REFUSED
from daemon.models import Json, Status
from daemon.runs.replay.cassette import load_cassette
from daemon.runs.replay.folder import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_STEPS,
    MAX_VALUES,
    SUMS,
    _sums,
    format_files,
)
from tests.fuzz.hostile import Document, broken_documents, to_json, to_toml
from tests.fuzz.test_loaders import bounded_memory
from tests.properties import scaled_settings
from tests.replaying import ReplayedApp

IDENTICAL, CHANGED, BROKEN = 0, 1, EX_CONFIG
FUZZ = settings(
    scaled_settings(200, fewest=40, suppress=[HealthCheck.data_too_large]),
    phases=(Phase.explicit, Phase.generate),
)
CALLS = (
    '{ name = "file_read", arguments = { path = "notes.txt" } }',
    '{ name = "file_write", arguments = { path = "out.md", content = "milk" } }',
    '{ name = "shell", arguments = { command = "rm -rf /" } }',
    '{ name = "no_such_tool", arguments = {} }',
)
REPLIES = f"""
  {{ text = "I look.", tool_calls = [{CALLS[0]}] }},
  {{ text = "I keep it.", tool_calls = [{", ".join(CALLS[1:])}] }},
  "Buy it.",
  "Buy milk.",
"""
CONFIG = f"""
provider = "fake"
[providers.fake]
kind = "scripted"
replies = [{REPLIES}{REPLIES}]
"""
POLICY = """
version = 1
[[rule]]
tool = "file_*"
effect = "allow"
paths = ["**"]
[[rule]]
tool = "sysinfo"
effect = "allow"
[[rule]]
tool = "shell"
effect = "allow"
argv = ["true"]
[routine.shop]
tainted_tools = ["file_write"]
"""
ROUTINE = """
[trigger]
watch = ["inbox/*.txt"]
[run]
mode = "agent"
prompt = "Read notes.txt and say what to buy."
tools = ["file_read", "file_write", "shell"]
[gate]
command = ["true"]
changed = ["host"]
[[gather]]
name = "host"
tool = "sysinfo"
[[gather]]
name = "new"
tool = "file_read"
args = { path = "{path}" }
[check]
contains = ["milk"]
repair = 1
command = ["true"]
"""
# Steps that this run does not have, as they are written.
OTHER_STEPS: list[Json] = [
    {
        "seq": 90,
        "kind": "failover",
        "iteration": 1,
        "at": "2026-11-27T12:00:00+00:00",
        "body": {"from": "fake", "to": "other", "reason": "busy"},
    },
    {
        "seq": 91,
        "kind": "limit",
        "iteration": 1,
        "at": None,
        "body": {"rule": "[run.budget] tokens", "tokens": 5},
    },
    {
        "seq": 92,
        "kind": "message",
        "iteration": 1,
        "at": None,
        "body": {"text": "Hurry.", "source": "told", "told": 3},
    },
    {
        "seq": 93,
        "kind": "message",
        "iteration": 1,
        "at": None,
        "body": {"text": "In few words: …", "source": "afresh"},
    },
    {
        "seq": 94,
        "kind": "call",
        "iteration": 0,
        "call_id": "check.judge.0",
        "at": None,
        "body": {"tool": "judge", "arguments": {}, "repeatable": True},
    },
    {
        "seq": 95,
        "kind": "result",
        "iteration": 0,
        "call_id": "check.judge.0",
        "at": None,
        "body": {
            "tool": "judge",
            "ok": False,
            "text": "too short",
            "seconds": 0.1,
            "value": {"pass": False, "model": "m"},
            "usage": {"input": 1, "output": 2},
        },
    },
]
KEYS = ("image", "images", "history", "route", "invalid", "once", "offered", "asked", "spent")


@pytest.fixture(scope="module")
def frozen_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that a file started, with a gate, facts, calls of each verdict and a
    check that its first report did not pass.
    """
    folder = tmp_path_factory.mktemp("frozen")
    app = ReplayedApp(folder)
    app.write("config.toml", CONFIG)
    app.write("policy.toml", POLICY)
    app.write_routine("shop", ROUTINE)
    workspace = app.state / "workspace"
    (workspace / "inbox").mkdir(parents=True)
    workspace.chmod(0o700)
    (workspace / "notes.txt").write_text("buy milk\n")
    (workspace / "inbox" / "a.txt").write_text("and bread\n")

    async def freeze() -> None:
        async with app:
            await app.run("shop")  # the next one compares with what it gathered
            run = await app.run("shop")
            assert run.status is Status.SUCCEEDED
            cassette = await load_cassette(
                app.journal, run.id, workspace=str(workspace), language="en"
            )
            files = format_files(cassette, str)
        case = folder / "case"
        case.mkdir()
        for name, text in files.items():
            (case / name).write_text(text, "utf-8")

    asyncio.run(freeze())
    return folder / "case"


@pytest.fixture(autouse=True, scope="module")
def log_as_before() -> Iterator[None]:
    """`agentd replay` sets up a log of its own in this process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def seal(folder: Path) -> None:
    """Write the sums of all files anew."""
    contents = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != SUMS}
    (folder / SUMS).write_text(_sums(contents))


def replay_changed(frozen_run: Path, contents: Mapping[str, bytes]) -> tuple[int, str]:
    """Replay a copy of a frozen run in which files have other contents and sums that fit; return
    the exit code and what a person reads, the folder's name being `case`.
    """
    with TemporaryDirectory() as parent:
        case = Path(parent, "case")
        shutil.copytree(frozen_run, case)
        for name, content in contents.items():
            (case / name).write_bytes(content)
        seal(case)
        return replay_folder(case)


def replay_folder(case: Path) -> tuple[int, str]:
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(["replay", str(case)])
    assert bool(errors.getvalue()) != bool(output.getvalue())
    return code, errors.getvalue().replace(str(case), "case") or output.getvalue()


def with_trigger(frozen_run: Path, trigger: str) -> bytes:
    """Return a case.json by which another trigger started the run."""
    case = json.loads((frozen_run / "case.json").read_text())
    case["run"]["trigger"] = trigger
    return json.dumps(case).encode()


def documents(frozen_run: Path, name: str) -> st.SearchStrategy[bytes]:
    """Return contents of a file that are nearly right."""
    content = (frozen_run / name).read_bytes() if (frozen_run / name).exists() else b"null"
    if name.endswith(".json"):
        samples: list[Document] = [json.loads(content)]
        if name == "steps.json":
            samples += [[*samples[0][:-1], *OTHER_STEPS], samples[0] + OTHER_STEPS[1:2]]
            samples += [[step] for step in (*samples[0], *OTHER_STEPS)]
        if name == "input.json":
            samples += [{"paths": ["inbox/a.txt"]}, {"text": "x", "tainted": True}]
        if name == "before.json":
            samples += [{"host": {"load": [1, 2, 3]}, "new": "x"}]
        return broken_documents(samples, KEYS).map(to_json) | st.binary(max_size=60)
    if name.endswith(".toml"):
        return broken_documents([{"version": 1, "rule": [{"tool": "*", "effect": "deny"}]}]).map(
            to_toml
        )
    return st.binary(max_size=200)


NAMES = ("case", "steps", "routine", "input", "before", "policy", "prompt", "report")


@pytest.mark.parametrize("beginning", NAMES)
@FUZZ
@given(data=st.data())
def test_a_forged_frozen_run_is_replayed_or_refused_by_the_name_of_its_file(
    frozen_run: Path, beginning: str, data: st.DataObject
) -> None:
    files = sorted(path.name for path in frozen_run.glob(f"{beginning}*"))
    name = files[0] if files else f"{beginning}.json"
    contents = {name: data.draw(documents(frozen_run, name))}
    if name in ("input.json", "before.json"):
        trigger = data.draw(st.sampled_from(("watch", "manual", "ask", "after", "webhook")))
        contents["case.json"] = with_trigger(frozen_run, trigger)
    with bounded_memory():
        code, text = replay_changed(frozen_run, contents)
    assert code in (IDENTICAL, CHANGED, REFUSED, BROKEN), text
    if code in (REFUSED, BROKEN):
        assert text.startswith("agentd: case"), text
        assert name in text or "not in SHA256SUMS" in text or "has format" in text, text
        assert len(text) < 2_000, "an error is read by people"


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


# What stands in a file, and what is said of it.
FAULTS: dict[str, tuple[str, bytes, str]] = {
    "no JSON": ("steps.json", b"[1,", "steps.json: is not JSON: Expecting value at line 1"),
    "no UTF-8": ("case.json", b"\xff", "case.json: is not UTF-8 text (byte 0xff at 0)"),
    "digits": ("before.json", b'{"a":\n' + b"9" * 5_000 + b"}", "can be read in line 2"),
    "depth": ("steps.json", deep(MAX_DEPTH + 2), "lies more than 200 levels deep"),
    "stack": ("steps.json", deep(100_000), "lies more than 200 levels deep"),
    "values": (
        "steps.json",
        b"[" + b"0," * MAX_VALUES + b"0]",
        "holds more than 1,000,000 values, which is all that is read of it",
    ),
    "steps": (
        "steps.json",
        json.dumps([{**OTHER_STEPS[1], "seq": 0}] * (MAX_STEPS + 1)).encode(),
        "holds more than the 20,000 steps that are replayed",
    ),
    "size": ("report.md", b"x" * MAX_BYTES, "more than the 64,000,000 bytes that are read"),
    "no list": ("steps.json", b"{}", "steps.json: expected a list of steps (found an empty table)"),
    "no object": ("case.json", b"[]", "case.json: expected an object"),
    "kind": ("steps.json", b'[{"kind": "x"}]', "steps.json: [0].kind: "),
    "missing": ("steps.json", b'[{"kind": "limit", "body": {}}]', "[0].seq: is missing"),
    "definition": ("routine.json", b'{"name": 5}', "routine.json cannot be read by this version"),
    "policy": ("policy", b"version = 1\nrul = 5", "toml:2: rul: unknown key"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_frozen_run_names_the_file_and_what_was_found(
    frozen_run: Path, fault: str
) -> None:
    beginning, content, words = FAULTS[fault]
    name = next(path.name for path in frozen_run.iterdir() if path.name.startswith(beginning))
    code, text = replay_changed(frozen_run, {name: content})
    assert code in (BROKEN, REFUSED) and words in text, text
    assert text.count("\n") == 1, "one clear error"


BROKEN_VALUES: dict[str, tuple[str, tuple[str | int, ...], Any]] = {
    "a time without a zone": ("case.json", ("run", "slot"), "2026-11-27T12:00:00"),
    "a time after all": ("case.json", ("run", "created"), "9999-12-31T23:59:59.999999-23:59"),
    "a status": ("case.json", ("run", "status"), "x"),
    "tokens": ("case.json", ("run", "usage", "input"), -1),
    "half a surrogate pair": ("case.json", ("workspace",), "/\ud800"),
    "a NUL": ("case.json", ("workspace",), "/a\0"),
    "a number as a text": ("steps.json", (0, "iteration"), "0"),
    "a body": ("steps.json", (0, "body"), []),
    "a list": ("input.json", ("paths",), "inbox/a.txt"),
}


@pytest.mark.parametrize("fault", BROKEN_VALUES)
def test_a_value_of_a_frozen_run_that_does_not_fit_is_named_with_its_place(
    frozen_run: Path, fault: str
) -> None:
    name, path, value = BROKEN_VALUES[fault]
    contents = {}
    if name == "input.json":
        document: Any = {"paths": []}
        contents["case.json"] = with_trigger(frozen_run, "watch")
    else:
        document = json.loads((frozen_run / name).read_text())
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    contents[name] = json.dumps(document).encode()
    code, text = replay_changed(frozen_run, contents)
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
    assert code == BROKEN and f"case/{name}: {place}: " in text, text


def test_a_file_of_a_frozen_run_without_an_end_or_a_writer_is_named(
    frozen_run: Path, tmp_path: Path
) -> None:
    for name, make in (
        ("pipe", os.mkfifo),
        ("endless", lambda path: Path(path).symlink_to("/dev/zero")),
        ("folder", os.mkdir),
    ):
        case = tmp_path / name / "case"
        shutil.copytree(frozen_run, case)
        (case / "report.md").unlink()
        make(case / "report.md")
        code, text = replay_folder(case)
        assert code == CHANGED and "report.md cannot be read: " in text, text
