"""A run whose calls were all denied knows nothing, and has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.models import Status
from daemon.testing import TestApp, tool_call

DEDUPE = '[dedupe]\nkey = "title"\n'
DENIED = tool_call("shell", command="printenv HOME")
NO_ITEMS = tool_call("report_items", items=[])


@pytest.fixture
def app(tmp_path: Path) -> TestApp:
    return TestApp(tmp_path)


def write_routine(app: TestApp, more: str = "", tools: str = '["shell", "file_write"]') -> None:
    run = f'[run]\nmode = "agent"\nprompt = "Look."\ntools = {tools}\n'
    app.write_routine("watch", run + more)
    rules = "".join(
        f'[[rule]]\ntool = "{tool}"\neffect = "allow"\n' for tool in ("file_write", "sysinfo")
    )
    app.write("policy.toml", f"version = 1\n{rules}")


@pytest.mark.parametrize("more", ["", DEDUPE])
async def test_a_run_of_which_all_calls_were_denied_has_failed(app: TestApp, more: str) -> None:
    write_routine(app, more)
    async with app:
        app.model.enqueue(DENIED, *([NO_ITEMS] if more else []), "Nothing new.")
        run = await app.run("watch")
    assert run.status is Status.FAILED
    assert run.detail is not None
    assert run.detail.startswith("it could do nothing, as its calls were denied: shell (1 call): ")
    assert "`agentctl policy suggest watch`" in run.detail


async def test_a_run_that_did_something_else_as_well_has_succeeded(app: TestApp) -> None:
    write_routine(app)
    async with app:
        app.model.enqueue(DENIED, tool_call("file_write", path="a.txt", content="a"), "Written.")
        run = await app.run("watch")
    assert (run.status, run.detail) == (Status.SUCCEEDED, None)


async def test_a_run_that_was_given_facts_has_succeeded(app: TestApp) -> None:
    write_routine(app, '[[gather]]\nname = "host"\ntool = "sysinfo"\n')
    async with app:
        app.model.enqueue(DENIED, "All is well.")
        run = await app.run("watch")
    assert run.status is Status.SUCCEEDED, run.detail
