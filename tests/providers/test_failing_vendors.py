"""What a run comes to when its vendor fails: its status, the line in the log, and what the report
says.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from daemon.models import DeliveryStatus, Status, StepKind
from tests.fakes.vendor import FakeVendor
from tests.properties import combinations_of
from tests.providers.calls import Opener, user
from tests.replaying import ReplayedApp

CONFIG = """
provider = "first"
[providers.first]
kind = "{kind}"
model = "{model}"
base_url = "{url}{path}"
api_key = "k"
timeout = "{timeout}"
stall = "1m"
[providers.second]
kind = "open_source"
model = "llama"
base_url = "{other_url}/v1"
"""
ROUTINE = """
[run]
prompt = "Report."
memory = "none"
{more}
[run.retry]
attempts = 1
backoff = "0.01s"
[[deliver]]
to = "file"
path = "report.md"
"""
WAYS = {
    "chat": ("openai", "gpt-4.1", "/v1"),
    "messages": ("claude", "claude-opus-5-5", ""),
    "local": ("open_source", "llama", "/v1"),
}


@pytest.fixture
def app(tmp_path: Path) -> ReplayedApp:
    return ReplayedApp(tmp_path)


async def run_with_vendor(
    app: ReplayedApp,
    way: str,
    turns: list[Any],
    *,
    other_url: str = "",
    more: str = "",
    timeout: str = "1m",
) -> tuple[Any, ReplayedApp, Any]:
    """Run a routine against this vendor to its end; the daemon is closed then."""
    kind, model, path = WAYS[way]
    async with FakeVendor(turns) as vendor:
        other_url = other_url or "http://127.0.0.1:9"
        text = CONFIG.format(
            kind=kind, model=model, url=vendor.url, path=path, other_url=other_url, timeout=timeout
        )
        app.write("config.toml", text)
        app.write_routine("daily", ROUTINE.format(more=more))
        async with app:
            run = await app.run("daily")
            await app.daemon.delivery.outbox.flush()
    return run, app, vendor


# What the vendor does, what the line in the log and the run's detail say of it, and how often it
# was asked.
FAULTS: dict[str, tuple[dict[str, Any], str, int]] = {
    "rate limit with a pause": (
        {"error": 429, "retry_after": 0.01, "message": "slow down"},
        "the vendor is busy (429",
        3,
    ),
    "rate limit with a long pause": (
        {"error": 429, "retry_after": 5000, "message": "slow"},
        "the vendor is busy (429",
        1,
    ),
    "no balance": (
        {"error": 429, "code": "insufficient_quota", "message": "top up"},
        "no balance left",
        1,
    ),
    "overloaded": ({"error": 529, "message": "Overloaded"}, "the vendor is busy (529", 3),
    "its own fault": ({"error": 500, "message": "oops"}, "a fault of its own (500", 3),
    "silence": ({"hang": True}, "no answer within 2 s", 3),
    "reset in the middle": ({"text": "All is", "reset": True}, "broke off", 3),
    "half an answer": ({"text": "All is", "truncate": 30}, "broke off", 3),
    "a portal": ({"raw": "<html><title>Wi-Fi</title></html>"}, "a web page titled “Wi-Fi”", 3),
    "no answer in it": ({"empty": True}, "holds no choices", 3),
    "a key that is refused": ({"error": 401, "message": "no"}, "the key was refused (401", 1),
}


@combinations_of(fault=FAULTS, way=WAYS)
async def test_failing_vendor_fails_the_run_with_the_reason(
    app: ReplayedApp, way: str, fault: str
) -> None:
    turn, saying, requests = FAULTS[fault]
    if fault == "no answer in it" and way == "messages":
        # there it is a turn without a word
        saying, requests = (
            "answered twice with neither text nor a call",
            2,
        )
    timeout = "1m"
    if fault == "silence":
        timeout = "2s"
        # what a call loads at first would take a part of that, and on a busy machine all of it
        await asyncio.to_thread(lambda: [import_module(sdk) for sdk in ("anthropic", "openai")])
        requests = 3 if way == "local" else 2
    run, app, vendor = await run_with_vendor(app, way, [{**turn, "repeat": 4}], timeout=timeout)
    assert run.status is Status.FAILED
    assert saying in str(run.detail)
    assert requests <= len(vendor.requests) <= 3
    (end,) = app.log("run.finished")
    assert (end["status"], end["detail"]) == ("failed", run.detail)
    errors = [line["error"] for line in app.log("provider.retry_scheduled")]
    if way != "messages" or fault != "no answer in it":
        assert len(errors) == (2 if requests > 1 else 0)
        assert all(saying in line for line in errors)
    report = (app.state / "workspace" / "report.md").read_text()
    assert saying in report


async def test_passing_overload_is_waited_out(app: ReplayedApp) -> None:
    storm = [
        {"error": 529, "message": "Overloaded"},
        {"error": 529, "message": "Overloaded"},
        "All is well.",
    ]
    run, app, _ = await run_with_vendor(app, "messages", storm)
    assert (run.status, run.report, run.detail) == (Status.SUCCEEDED, "All is well.", None)
    assert [line["attempt"] for line in app.log("provider.retry_scheduled")] == [1, 2]


async def test_an_interrupted_answer_is_requested_again(app: ReplayedApp) -> None:
    turns = [{"text": "All is well, all is w", "stream_error": True}, "All is well."]
    run, app, vendor = await run_with_vendor(app, "messages", turns, more="max_tokens = 30000")
    assert (run.status, run.report) == (Status.SUCCEEDED, "All is well.")
    (line,) = app.log("provider.retry_scheduled")
    assert "the vendor is busy" in line["error"]
    assert all(request.body["stream"] for request in vendor.requests)


async def test_an_unreadable_tool_call_is_answered_to_the_model(app: ReplayedApp) -> None:
    broken_reply = {"tool_calls": [{"name": "finish", "arguments": '{"report": "all'}]}
    for way in WAYS:
        run, _, vendor = await run_with_vendor(
            app, way, [broken_reply, "Never mind."], more='mode = "agent"'
        )
        assert (run.status, run.report) == (Status.SUCCEEDED, "Never mind.")
        assert (
            "could not be read" in vendor.requests[1].raw.decode()
            or "malformed" in vendor.requests[1].raw.decode()
        )
        assert vendor.refusals == []


# --- going on with somebody else ---


async def test_unavailable_vendor_is_replaced_for_the_remaining_run(
    app: ReplayedApp,
) -> None:
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "self_info"\neffect = "allow"\n')
    call_reply = {"tool_calls": [{"name": "self_info", "arguments": {}}]}
    async with FakeVendor([call_reply, "From the second."]) as other_vendor:
        turns = [{"error": 500, "repeat": 3}, "From the first."]
        more = 'mode = "agent"\ntools = ["self_info"]\nfallback = ["second"]'
        run, app, vendor = await run_with_vendor(
            app, "messages", turns, other_url=other_vendor.url, more=more
        )
    assert (run.status, run.report, run.provider) == (
        Status.SUCCEEDED,
        "From the second.",
        "second",
    )
    assert (len(vendor.requests), len(other_vendor.requests)) == (3, 2)
    (line,) = app.log("run.failed_over")
    assert (line["from"], line["to"]) == ("first", "second")
    assert "a fault of its own (500" in line["reason"]


@pytest.mark.parametrize(("on_rate_limit", "request_count"), [("wait", 3), ("fallback", 1)])
async def test_a_busy_vendor_is_retried_or_replaced_by_on_rate_limit(
    app: ReplayedApp, on_rate_limit: str, request_count: int
) -> None:
    turns = [{"error": 429, "retry_after": 0.01, "repeat": 3}]
    async with FakeVendor(["From the second."]) as other_vendor:
        more = f'fallback = ["second"]\non_rate_limit = "{on_rate_limit}"'
        run, _, vendor = await run_with_vendor(
            app, "local", turns, other_url=other_vendor.url, more=more
        )
    assert (run.status, run.provider) == (Status.SUCCEEDED, "second")
    assert len(vendor.requests) == request_count


async def test_other_errors_are_retried_despite_on_rate_limit(
    app: ReplayedApp,
) -> None:
    async with FakeVendor(["From the second."]) as other_vendor:
        more = 'fallback = ["second"]\non_rate_limit = "fallback"'
        turns = [{"error": 500}, "From the first."]
        run, _, _ = await run_with_vendor(
            app, "local", turns, other_url=other_vendor.url, more=more
        )
    assert (run.report, run.provider) == ("From the first.", "first")


async def test_a_failover_is_a_step_of_the_run(app: ReplayedApp) -> None:
    async with FakeVendor(["From the second."]) as other_vendor:
        kind, model, path = WAYS["chat"]
        async with FakeVendor([{"error": 401}]) as vendor:
            text = CONFIG.format(
                kind=kind,
                model=model,
                url=vendor.url,
                path=path,
                other_url=other_vendor.url,
                timeout="1m",
            )
            app.write("config.toml", text)
            app.write_routine("daily", ROUTINE.format(more='fallback = ["second"]'))
            async with app:
                run = await app.run("daily")
                steps = await app.journal.runs.get_steps(run.id)
                (delivery,) = await app.journal.outbox.find(run=run.id)
    (failover,) = [step for step in steps if step.kind is StepKind.FAILOVER]
    assert (failover.body["from"], failover.body["to"]) == ("first", "second")
    assert "the key was refused" in failover.body["reason"]
    assert delivery.status is DeliveryStatus.PENDING


# --- a server that reads only a part of the question ---

# some 9,600 tokens
LONG = "The quick brown fox jumps over the lazy dog near the bank of the river. " * 600


@pytest.mark.parametrize(
    ("loaded_models", "prompt_tokens", "expected_text"),
    [
        (
            [{"model": "llama:latest", "context_length": 4096}],
            4000,
            "as it holds 4,096; start Ollama with",
        ),
        ([{"model": "llama", "context_length": 32768}], 200, ""),  # the rest was in its cache
        (
            [{"model": "llama"}],
            2000,
            "tokens; start Ollama with OLLAMA_CONTEXT_LENGTH=16384 or more",
        ),  # an older one
        ([{"model": "llama", "context_length": 4096}], 9700, ""),
        (None, 12, ""),  # another server: how it counts is its own affair
    ],
)
async def test_a_prompt_cut_by_the_server_is_reported(
    app: ReplayedApp, loaded_models: list[Any] | None, prompt_tokens: int, expected_text: str
) -> None:
    turn = {"text": "All is well.", "usage": {"prompt_tokens": prompt_tokens}}
    async with FakeVendor([turn]) as vendor:
        vendor.loaded_models = loaded_models
        text = CONFIG.format(
            kind="open_source",
            model="llama",
            url=vendor.url,
            path="/v1",
            other_url=vendor.url,
            timeout="1m",
        )
        app.write("config.toml", text)
        app.write_routine("daily", ROUTINE.format(more="").replace("Report.", LONG))
        async with app:
            run = await app.run("daily")
            warnings = app.log("provider.context_cut")
    assert run.status is Status.SUCCEEDED
    assert bool(warnings) is bool(expected_text)
    assert expected_text in (run.detail or "")
    if not expected_text:
        assert run.detail is None


async def test_a_server_that_fails_once_to_name_its_context_is_asked_again(
    provider_for: Opener,
) -> None:
    turn = {"text": "All is well.", "usage": {"prompt_tokens": 4000}}
    async with FakeVendor([turn, turn]) as vendor:
        vendor.loaded_models = [{"model": "ollama/llama3.3", "context_length": 4096}]
        vendor.loaded_models_failures = 1
        provider = provider_for("ollama", vendor)
        notes = [(await provider.chat([user(LONG)])).note for _ in range(2)]
    assert "cut the question" not in str(notes[0])
    assert "as it holds 4,096" in str(notes[1])
