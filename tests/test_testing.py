"""What `daemon.testing` ships for the tests of users, and the examples of its page."""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import daemon.testing
from daemon.cli.client import Client
from daemon.errors import ConfigError, NotFound
from daemon.models import Status
from daemon.testing import CONFIG, FakeClock, TestApp, tool_call

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
APPROVED = """
version = 1
[[rule]]
tool = "file_write"
effect = "ask"
"""


def load_tests(example: str, line: int = 0) -> dict[str, Any]:
    """Return the test functions of an example, by name; `line` is where it stands in the page."""
    names: dict[str, Any] = {}
    exec(compile("\n" * line + example, PAGE, "exec"), names)
    return {name: value for name, value in names.items() if name.startswith("test_")}


def load_page() -> dict[str, Any]:
    """Return the test functions of all examples of the page, by name."""
    text = PAGE.read_text("utf-8")
    tests: dict[str, Any] = {}
    for example in EXAMPLE.finditer(text):
        tests |= load_tests(example[1], text.count("\n", 0, example.start(1)))
    return tests


@pytest.mark.parametrize("name", load_page())
async def test_each_example_of_the_testing_page_passes(name: str, tmp_path: Path) -> None:
    await load_page()[name](tmp_path)


async def test_the_example_of_the_testing_module_passes(tmp_path: Path) -> None:
    assert daemon.testing.__doc__
    _, _, code = daemon.testing.__doc__.partition("\n\n    from daemon.testing")
    lines, _, _ = code.partition("\n\nNo schedule runs")
    (test,) = load_tests(textwrap.dedent(f"    from daemon.testing{lines}")).values()
    await test(tmp_path)


def test_a_fake_clock_moves_only_on_request_and_is_always_utc() -> None:
    clock = FakeClock(datetime(2026, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == clock.now() == datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    clock.advance(hours=1, seconds=30)
    assert clock.now() == datetime(2026, 7, 1, 13, 0, 30, tzinfo=UTC)
    clock.move_to(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_reopened_test_app_restarts_on_the_same_state(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine("daily", '[run]\nprompt = "Report."\n')
    async with app:
        app.model.enqueue("One.")
        first = await app.run("daily")
    async with app:
        assert app.model.remaining == 0
        assert (await app.daemon.store.journal.runs.get(first.id)).report == "One."
        with pytest.raises(NotFound):
            await app.run("weekly")


async def test_a_test_app_keeps_existing_files(tmp_path: Path) -> None:
    TestApp(tmp_path).write("config.toml", f'{CONFIG}[agent]\nname = "Ada"\n')
    async with TestApp(tmp_path) as app:
        assert app.daemon.settings.config.agent.name == "Ada"


async def test_an_invalid_routine_is_a_fault_and_an_invalid_config_an_error(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write_routine("daily", '[run]\nprompt = "Report."\nprovider = "nosuch"\n')
    async with app:
        assert "nosuch" in str(app.faults["daily"])
    app.write("config.toml", "nonsense = true\n")
    with pytest.raises(ConfigError, match="nonsense"):
        await app.__aenter__()


async def test_a_run_waiting_for_an_approval_continues_after_the_api_call(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write("policy.toml", APPROVED)
    app.write_routine("notes", '[run]\nprompt = "Note."\nmode = "agent"\ntools = ["file_write"]\n')
    async with app:
        app.model.enqueue(tool_call("file_write", path="a.md", content="x"), "Noted.")
        run = await app.run("notes")
        assert run.status == "waiting"
        assert not (app.workspace / "a.md").exists()
        (request,) = (await app.request("GET", "/v1/approvals")).json["items"]
        response = await app.request("POST", f"/v1/approvals/{request['id']}/approve", {})
        assert response.status == 200
        run = await app.finish(run.id)
        assert run.report == "Noted."
        assert (app.workspace / "a.md").read_text() == "x"


async def test_refused_api_requests_are_answered_with_problem_json(tmp_path: Path) -> None:
    async with TestApp(tmp_path) as app:
        response = await app.request("GET", "/v1/routines/nosuch")
        assert response.status == 404
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json["code"] == "not_found"
        assert (await app.request("POST", "/v1/nosuch", {"a": 1})).status == 404


async def test_the_model_of_a_test_app_must_be_scripted(tmp_path: Path) -> None:
    app = TestApp(tmp_path, config='provider = "offline"\n')
    async with app:
        with pytest.raises(TypeError, match="'offline' is of kind offline, not scripted"):
            _ = app.model


async def test_a_test_app_does_not_use_the_environment_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-real")
    provider = '[providers.far]\nkind = "openai"\nmodel = "m"\napi_key_env = "SOME_KEY"\n'
    config = f'provider = "far"\n{provider}'
    with pytest.raises(ConfigError, match="SOME_KEY"):
        await TestApp(tmp_path, config=config).__aenter__()
    async with TestApp(tmp_path, env={"SOME_KEY": "sk-test"}) as app:
        assert app.daemon.settings.providers.get("far").kind == "openai"


async def test_programs_reach_the_api_by_its_socket(tmp_path: Path) -> None:
    import asyncio

    async with TestApp(tmp_path) as app, app.serve_api() as path:
        client = await asyncio.to_thread(Client.open, str(path), is_trusted=True)
        status = await asyncio.to_thread(client.request, "GET", "/v1/status")
    assert status["provider"] == "scripted"
    assert not path.exists()


async def test_a_fallback_without_its_key_does_not_fail_a_run_whose_provider_answers(
    tmp_path: Path,
) -> None:
    config = CONFIG + '[providers.lite]\nkind = "openai"\nmodel = "m"\napi_key_env = "LITE"\n'
    app = TestApp(tmp_path, config=config)
    app.write_routine("report", '[run]\nprompt = "hi"\nfallback = ["lite"]\n')
    async with app:
        app.model.enqueue("All is well.")
        run = await app.run("report")
        assert (run.status, run.report) == (Status.SUCCEEDED, "All is well.")
        (line,) = app.log("provider.fallback_left_out")
        assert line["provider"] == "lite"
        assert "the environment variable LITE is not set" in line["fault"]


async def test_a_routine_is_paused_and_resumed_and_starts_nothing_by_itself(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine(
        "hourly",
        '[trigger]\nevery = "1h"\n[run]\nmode = "script"\n[[gather]]\nname = "a"\n'
        'tool = "sysinfo"\nrequired = false\n',
    )
    async with app:
        assert (await app.request("POST", "/v1/routines/hourly/pause")).status == 200
        assert (await app.request("GET", "/v1/routines/hourly")).json["state"] == "paused"
        run = await app.run("hourly")
        assert run.status == "succeeded", "a run by hand does not look at the pause"
    app.clock.advance(hours=5)
    async with app:
        assert (await app.request("GET", "/v1/routines/hourly")).json["state"] == "paused"
        assert (await app.request("POST", "/v1/routines/hourly/resume")).status == 200
        assert (await app.request("GET", "/v1/routines/hourly")).json["state"] == "on"
        why = (await app.request("GET", "/v1/routines/hourly/why")).json
        assert why["sentence"].startswith("hourly ")
        assert len(await app.daemon.store.journal.runs.find()) == 1
