"""Verbs without a daemon, and a state folder or a database that cannot be used: each ends with a
sentence that names the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.app.main import main

VERBS = (
    "doctor",
    "doctor --deep",
    "policy backtest {site}/policy.toml",
    "policy suggest z",
    "replay 01abcdef",
    "freeze 01abcdef {site}/frozen",
    "backup {site}/backup.db",
    "export {site}/export.jsonl z",
    "logs",
)
OF_DATABASE = ("policy backtest", "policy suggest", "replay", "freeze", "backup", "export")
# a program of root's that may read and enter no more than its owner lets it
NO_ROOT = (
    *("setpriv", "--bounding-set=-dac_override,-dac_read_search"),
    "--inh-caps=-dac_override,-dac_read_search",
)
# runs each verb of stdin in turn, and prints what came of them
ALL_VERBS = """
import contextlib, io, json, sys, traceback
from daemon.app.main import main
results = {}
for name, arguments in json.load(sys.stdin).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except Exception:
            code = traceback.format_exc()
    results[name] = code, out.getvalue(), err.getvalue()
print(json.dumps(results))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the files that verbs are given."""
    site = tmp_path / "site"
    (site / "routines").mkdir(parents=True)
    (site / "routines" / "z.toml").write_text('[run]\nprompt = "Say hello."\n')
    (site / "config.toml").write_text("")
    (site / "policy.toml").write_text("version = 1\n")
    return site


def command_line(verb: str, site: Path, state: Path) -> list[str]:
    arguments = verb.format(site=site).split()
    config = [] if verb == "logs" else ["--config", f"{site}/config.toml"]
    return [*arguments, *config, "--state", str(state)]


@pytest.fixture(params=["itself", "above"])
def closed_state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A state folder that one may not enter, or that lies below such a folder."""
    closed = tmp_path / "closed"
    state = closed if request.param == "itself" else closed / "state"
    (state / "logs").mkdir(parents=True)
    (state / "routines.d").mkdir()
    for file in (state / "agentd.db", state / "logs/agentd.jsonl", state / "routines.d/z.toml"):
        file.touch()
    closed.chmod(0)
    yield state
    closed.chmod(0o700)


@pytest.mark.process
def test_of_a_state_folder_that_one_may_not_enter_each_verb_names_the_path(
    site: Path, closed_state: Path
) -> None:
    verbs = {verb: command_line(verb, site, closed_state) for verb in VERBS}
    process = subprocess.run(
        [*(NO_ROOT if os.geteuid() == 0 else ()), sys.executable, "-c", ALL_VERBS],
        input=json.dumps(verbs),
        capture_output=True,
        text=True,
        check=True,
    )
    for verb, (code, out, err) in json.loads(process.stdout).items():
        assert isinstance(code, int), f"{verb}: {code}"
        assert code != 0, verb
        text = f"{out} {err}"
        assert str(closed_state) in text, verb
        assert "Permission denied" in text, verb
        assert verb.startswith("doctor") or len(err.splitlines()) == 1, (verb, err)


@pytest.mark.parametrize("below", ["", "state"], ids=["file", "below a file"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_state_folder_that_is_none_is_named(
    verb: str, below: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "file").touch()
    state = site / "file" / below
    code = main(command_line(verb, site, state))
    output = capsys.readouterr()
    if verb.startswith("doctor"):
        assert code == 1
        assert f"{state} cannot be used: Not a directory" in " ".join(output.out.split())
    elif verb.startswith(OF_DATABASE):
        (line,) = output.err.splitlines()
        assert (code, line.startswith(f"agentd: {state}/agentd.db: is not there: ")) == (78, True)


@pytest.mark.parametrize("kind", ["missing", "empty", "garbage", "folder"])
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.startswith(OF_DATABASE)])
def test_a_database_that_is_none_is_named(
    verb: str, kind: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = site / "state"
    state.mkdir()
    database = state / "agentd.db"
    match kind:
        case "empty":
            database.touch()
        case "garbage":
            database.write_bytes(b"no database" * 1000)
        case "folder":
            database.mkdir()
    code = main(command_line(verb, site, state))
    (line,) = capsys.readouterr().err.splitlines()
    assert code == (5 if verb.startswith("backup") and kind in ("empty", "garbage") else 78)
    assert str(database) in line or f"{site}/backup.db cannot be written: " in line
    assert not (site / "export.jsonl").exists()


@pytest.mark.parametrize("options", ["", " --follow"])
def test_a_log_that_is_a_folder_is_named(
    options: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = site / "state" / "logs" / "agentd.jsonl"
    log.mkdir(parents=True)
    code = main([*f"logs{options}".split(), "--state", str(site / "state")])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 5
    assert line.startswith(f"agentctl: {log} cannot be read: Is a directory; ")
