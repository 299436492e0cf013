"""A tainted run may read the addresses of a safe rule, each of them once."""

from __future__ import annotations

import pytest

from daemon.models import Status, StepKind, Taint
from daemon.testing import tool_call
from tests.replaying import ReplayedApp
from tests.tools.builtin.test_http_request import Server

ROUTINE = """
[run]
mode = "agent"
prompt = "Say what is new."
tool_retries = 0
tools = ["http_request", "file_read", "subagent"]
"""
POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "subagent"
effect = "allow"
[[rule]]
tool = "http_request"
effect = "allow"
safe = true
urls = ["{url}/one", "{url}/two", "{url}/away"]
networks = ["127.0.0.0/8"]
"""


@pytest.fixture
async def server():
    async with Server().serve() as server:
        server.says("/one", b"The first page.")
        server.says("/two", b"The second page.")
        yield server


@pytest.fixture
def app(tmp_path, server):
    app = ReplayedApp(tmp_path)
    app.url = f"http://127.0.0.1:{server.port}"
    app.write("policy.toml", POLICY.format(url=app.url))
    app.write_routine("news", ROUTINE)
    app.write("state/workspace/inbox.txt", "Letter of a stranger.\n")
    (tmp_path / "state").chmod(0o700)
    return app


def get(app, path, **more):
    return tool_call("http_request", url=f"{app.url}/{path}", **more)


async def results(app, run):
    return [step.body for step in await app.steps(run) if step.kind is StepKind.RESULT]


def paths(server):
    return [request.split()[1] for request in server.requests]


async def test_a_tainted_run_reads_two_safe_addresses_without_an_approval(app, server):
    async with app:
        for _ in range(5):
            app.model.enqueue(get(app, "one"), get(app, "two"), "Nothing is new.")
            run = await app.run("news")
            assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.TAINTED), run.detail
    assert paths(server) == ["/one", "/two"] * 5


async def test_repeated_calls_of_one_run_request_each_safe_address_once(app, server):
    async with app:
        calls = [get(app, path) for path in ("one", "two", "one", "one", "two", "one")]
        app.model.enqueue(*calls, "Nothing is new.")
        run = await app.run("news")
        texts = [result["text"] for result in await results(app, run)]
    assert paths(server) == ["/one", "/two"]
    assert texts[2] == f"[a run reads this address once: this is its first answer]\n{texts[0]}"
    assert "The first page." in texts[2]
    assert "The second page." in texts[4]


async def test_calls_of_one_turn_request_a_safe_address_once(app, server):
    turn = {"tool_calls": [get(app, "one")["tool_calls"][0]] * 8}
    async with app:
        app.model.enqueue(turn, turn, "Nothing is new.")
        run = await app.run("news")
        first, *twins = (await results(app, run))[:8]
        again = (await results(app, run))[8:]
    assert paths(server) == ["/one"]
    assert first["ok"]
    assert not any(twin["ok"] for twin in twins)
    assert all("The first page." in result["text"] for result in again)


async def test_a_failed_safe_address_is_not_requested_again(app, server):
    server.says("/one", b"Come back.", "503 Service Unavailable")
    async with app:
        app.model.enqueue(get(app, "one"), get(app, "one"), get(app, "one"), "It failed.")
        run = await app.run("news")
    assert run.status is Status.SUCCEEDED
    assert paths(server) == ["/one"]


async def test_a_redirect_to_an_address_that_no_rule_names_is_not_followed(app, server):
    server.leads("/away", f"{app.url}/elsewhere?words=secret")
    async with app:
        app.model.enqueue(tool_call("file_read", path="inbox.txt"), get(app, "away"), "It failed.")
        run = await app.run("news")
        away = (await results(app, run))[1]
    assert paths(server) == ["/away"]
    assert not away["ok"]


async def test_a_redirect_to_a_named_address_is_followed(app, server):
    server.leads("/away", f"{app.url}/two")
    async with app:
        app.model.enqueue(tool_call("file_read", path="inbox.txt"), get(app, "away"), "Read.")
        run = await app.run("news")
        away = (await results(app, run))[1]
    assert paths(server) == ["/away", "/two"]
    assert "The second page." in away["text"]


async def test_headers_of_the_models_choice_are_denied(app, server):
    async with app:
        app.model.enqueue(get(app, "one", headers={"X-Words": "secret"}), "It failed.")
        run = await app.run("news")
        assert run.status is Status.FAILED  # nothing else was read
        (result,) = await results(app, run)
    assert not result["ok"]
    assert server.requests == []


async def test_a_tainted_subagent_reads_no_address(app, server):
    helper = tool_call("subagent", task="Read the first page.", tools=["http_request"])
    async with app:
        app.model.enqueue(
            tool_call("file_read", path="inbox.txt"),
            helper,
            get(app, "one"),
            "I could not.",
            "Nothing is new.",
        )
        run = await app.run("news")
        assert run.status is Status.SUCCEEDED
    assert server.requests == []


async def test_headers_of_the_model_do_not_reach_a_safe_address_by_a_redirect(app, server):
    async with Server().serve() as other_server:
        other_server.leads("/start", f"{app.url}/one")
        rule = f"""
[[rule]]
tool = "http_request"
effect = "allow"
hosts = ["127.0.0.1:{other_server.port}"]
networks = ["127.0.0.0/8"]
"""
        app.write("policy.toml", POLICY.format(url=app.url) + rule)
        start = f"http://127.0.0.1:{other_server.port}/start"
        async with app:
            call = tool_call("http_request", url=start, headers={"Accept-Language": "secret"})
            app.model.enqueue(call, "It failed.")
            run = await app.run("news")
            assert run.status is Status.SUCCEEDED, run.detail
    assert len(other_server.requests) == 1
    assert server.requests == []


@pytest.mark.parametrize("more", [{"body": ""}, {"headers": []}, {"timeout": 5}])
async def test_a_call_that_was_never_sent_does_not_use_up_the_address(app, server, more):
    async with app:
        app.model.enqueue(get(app, "one", **more), get(app, "one"), "Read.")
        run = await app.run("news")
        first, second = await results(app, run)
    assert not first["ok"]
    assert "with headers, a body or other arguments" in first["text"]
    assert "The first page." in second["text"]
    assert paths(server) == ["/one"]


async def test_a_routine_that_may_use_the_tool_when_tainted_may_ask_an_address_again(app, server):
    section = '[routine.news]\ntainted_tools = ["http_request"]\n'
    app.write("policy.toml", POLICY.format(url=app.url) + section)
    async with app:
        app.model.enqueue(get(app, "one"), get(app, "one"), "Read.")
        await app.run("news")
    assert paths(server) == ["/one", "/one"]
