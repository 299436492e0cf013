"""Spans of runs by the OpenTelemetry conventions, without content, and never delaying a run."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.models import Run, Status, Step, StepKind
from daemon.runs.tracing import RunTracer
from daemon.telemetry.span_exporter import SpanExporter, find_receiver
from daemon.telemetry.spans import Span, span_id, spans_of_run, to_nanoseconds, trace_of
from daemon.testing import TestApp
from tests.acceptance.story import InProcessHome, Vendor
from tests.fakes.vendor import FakeVendor
from tests.replaying import ReplayedApp
from tests.telemetry.receiver import Collector

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

CONFIG = """
provider = "local"
[providers.local]
kind = "open_source"
model = "llama"
base_url = "{url}/v1"
{more}
[otel]
endpoint = "{receiver}"
content = {content}
"""
ROUTINE = """
[run]
mode = "agent"
prompt = "Look around, sesame."
tools = ["self_info", "shell", "subagent"]
memory = "none"
temperature = 0.5
[run.retry]
attempts = 1
[[deliver]]
to = "file"
path = "report.md"
"""
POLICY = 'version = 1\n[[rule]]\ntool = "{}"\neffect = "allow"\n'
LOOK = {"tool_calls": [{"name": "self_info", "arguments": {}, "id": "call_7"}]}
RUN = {"tool_calls": [{"name": "shell", "arguments": {"command": "rm secret-plans"}}]}


# By default the SDK waits for five seconds for more spans; these are milliseconds.
SOON = ("OTEL_BSP_SCHEDULE_DELAY", "20")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplayedApp:
    monkeypatch.setenv(*SOON)
    app = ReplayedApp(tmp_path)
    app.write("policy.toml", POLICY.format("self_info"))
    app.write_routine("look", ROUTINE)
    return app


@pytest.fixture
async def story(tmp_path: Path) -> Any:
    """A home for a whole daemon, as `agentd` starts it."""
    home = InProcessHome(tmp_path)
    home.env |= [SOON]
    yield home
    await home.close()


def configure_app(
    app: ReplayedApp, vendor: str, receiver: str, *, content: bool = False, more: str = ""
) -> None:
    text = CONFIG.format(url=vendor, receiver=receiver, content=str(content).lower(), more=more)
    app.write("config.toml", text)


async def run_traced(
    app: ReplayedApp, turns: list[Any], *, content: bool = False
) -> tuple[Any, list[Any], Any]:
    """Live one run and close the daemon; return the run, its spans as a collector got them, and the
    vendor.
    """
    with Collector() as collector:
        async with FakeVendor(turns) as vendor:
            configure_app(app, vendor.url, collector.url, content=content)
            async with app:
                run = await app.run("look")
                # a stop waits for 3 s only; the span of the run is the last one
                await asyncio.to_thread(
                    collector.wait,
                    lambda receiver: any(
                        span.name == "invoke_agent look" for span in receiver.spans
                    ),
                )
        assert {request["path"] for request in collector.requests} == {"/v1/traces"}
        return run, collector.spans, vendor


def get_span(spans: list[Any], name: str) -> Any:
    (receiver,) = [span for span in spans if span.name == name]
    return receiver


async def test_a_run_is_a_tree_of_spans_of_agent_model_calls_and_tools(
    app: ReplayedApp,
) -> None:
    run, spans, vendor = await run_traced(app, [LOOK, RUN, "All is well."])
    assert sorted(span.name for span in spans) == [
        "chat llama", "chat llama", "chat llama", "execute_tool self_info", "execute_tool shell", (
            "invoke_agent look"
        ),
    ]  # fmt: skip
    root = get_span(spans, "invoke_agent look")
    assert {span.parent for span in spans if span is not root} == {root.id} and root.parent == ""
    assert {span.trace for span in spans} == {f"{trace_of(run.id):032x}"}
    assert all(root.resource[key] for key in ("service.version", "telemetry.sdk.name"))
    assert root.resource["service.name"] == "agentd" and root.scope.startswith(
        "https://opentelemetry.io/schemas/"
    )
    about = root.attributes
    assert about["gen_ai.operation.name"] == "invoke_agent" and about["gen_ai.agent.name"] == "look"
    # its only call besides self_info was denied
    assert (about["gen_ai.conversation.id"], about["agentd.status"]) == (run.id, "failed")
    assert about["gen_ai.usage.input_tokens"] == run.usage.input and root.kind == 1  # INTERNAL
    chats = [span for span in spans if span.name == "chat llama"]
    first = chats[0]
    assert first.kind == 3  # CLIENT
    assert first.attributes["gen_ai.request.temperature"] == 0.5
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert first.attributes["server.port"] == int(vendor.url.rsplit(":", 1)[1])
    assert sum(chat.attributes["gen_ai.usage.output_tokens"] for chat in chats) == run.usage.output


async def test_a_tool_span_has_its_routine_and_verdict(
    app: ReplayedApp,
) -> None:
    _, spans, _ = await run_traced(app, [LOOK, RUN, "All is well."])
    good, bad = get_span(spans, "execute_tool self_info"), get_span(spans, "execute_tool shell")
    assert (
        good.attributes["gen_ai.tool.call.id"] == "call_7"
        and good.attributes["gen_ai.tool.type"] == "function"
    )
    assert good.attributes["gen_ai.tool.description"] and good.status == 0
    assert (bad.attributes["error.type"], bad.attributes["agentd.policy.effect"], bad.status) == (
        "denied",
        "deny",
        2,
    )


async def test_spans_hold_no_content_by_default(app: ReplayedApp) -> None:
    _, spans, _ = await run_traced(app, [LOOK, RUN, "All is well."])
    all_attributes = json.dumps([[span.attributes, span.status_message] for span in spans])
    for word in ("sesame", "secret-plans", "All is well"):
        assert word not in all_attributes


async def test_with_content_enabled_spans_have_messages_and_results(
    app: ReplayedApp,
) -> None:
    _, spans, _ = await run_traced(app, [LOOK, "All is well."], content=True)
    last = [span for span in spans if span.name == "chat llama"][-1]
    messages = json.loads(last.attributes["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert (
        messages[1]["parts"][0]["type"] == "tool_call"
        and messages[2]["parts"][0]["type"] == "tool_call_response"
    )
    (answer,) = json.loads(last.attributes["gen_ai.output.messages"])
    assert (
        answer["parts"] == [{"type": "text", "content": "All is well."}]
        and answer["finish_reason"] == "stop"
    )
    assert json.loads(last.attributes["gen_ai.system_instructions"])[0]["type"] == "text"
    assert {entry["name"] for entry in json.loads(last.attributes["gen_ai.tool.definitions"])} >= {
        "self_info",
        "finish",
    }
    assert get_span(spans, "execute_tool self_info").attributes["gen_ai.tool.call.result"]


async def test_a_failing_model_call_has_an_error_span(app: ReplayedApp) -> None:
    run, spans, _ = await run_traced(app, [{"error": 401}])
    assert run.status is Status.FAILED
    call, root = get_span(spans, "chat llama"), get_span(spans, "invoke_agent look")
    assert (call.attributes["error.type"], call.status, call.status_message) == ("BadKey", 2, "")
    assert (root.attributes["error.type"], root.status) == ("failed", 2)


async def test_the_span_of_a_sub_agent_is_a_child_of_its_call(app: ReplayedApp) -> None:
    app.write("policy.toml", POLICY.format("subagent"))
    call = {"tool_calls": [{"name": "subagent", "arguments": {"task": "Count."}}]}
    run, spans, _ = await run_traced(app, [call, "Three.", "All is well."])
    assert {span.trace for span in spans} == {f"{trace_of(run.id):032x}"}
    child = get_span(spans, "invoke_agent subagent")
    assert child.parent == get_span(spans, "execute_tool subagent").id
    assert [span.parent for span in spans if span.name == "chat llama"].count(child.id) == 1


@pytest.mark.parametrize("answer", [500, 400, 200])
async def test_a_failing_receiver_loses_only_spans(app: ReplayedApp, answer: int) -> None:
    for thread in threading.enumerate():
        # of a daemon that has stopped before: what it says would be in our log
        if thread.name in (
            "traces",
            "OtelBatchSpanRecordProcessor",
        ):
            await asyncio.to_thread(thread.join, 60)
    with Collector(answer) as collector:
        receiver = collector.url if answer != 200 else "http://127.0.0.1:9"
        async with FakeVendor([LOOK, "All is well."]) as vendor:
            configure_app(app, vendor.url, receiver)
            async with app:
                run = await app.run("look")
                assert run.status is Status.SUCCEEDED
                begin = time.monotonic()
            assert time.monotonic() - begin < 30, "a stop waits for nobody who does not answer"
            assert len(app.log("traces.lost")) <= 2 and not app.log("library.logged")


def remembering() -> Any:
    """The SDK's exporter that keeps what it gets, and the name of each span in it."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


async def test_unreachable_receiver_and_its_return_are_logged_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from opentelemetry.sdk.trace.export import SpanExportResult

    from daemon.telemetry.otel_sdk import SpanPipeline

    answers = [SpanExportResult.FAILURE, SpanExportResult.FAILURE]
    requests = asyncio.Queue[int]()
    loop, memory_exporter = asyncio.get_running_loop(), remembering()
    export = memory_exporter.export

    def moody(spans: Any) -> Any:
        result = answers.pop(0) if answers else export(spans)
        loop.call_soon_threadsafe(requests.put_nowait, len(spans))
        return result

    memory_exporter.export = moody
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    exporter = SpanExporter(lambda: SpanPipeline(memory_exporter))
    with capture_logs() as log_lines:
        for number in range(4):
            await asyncio.to_thread(exporter.export, [span(number)])
            await asyncio.wait_for(requests.get(), 120)
        await exporter.close(30)
    assert [span.name for span in memory_exporter.get_finished_spans()] == ["2", "3"]
    assert [(entry["event"], entry.get("lost")) for entry in log_lines] == [
        ("traces.lost", None),
        ("traces.sent_again", 2),
    ]


async def test_spans_are_exported_in_order_and_flushed_at_the_end() -> None:
    from daemon.telemetry.otel_sdk import SpanPipeline

    memory_exporter = remembering()
    exporter = SpanExporter(lambda: SpanPipeline(memory_exporter))
    await asyncio.to_thread(exporter.export, [span(number) for number in range(100)])
    await exporter.close(30)
    spans = memory_exporter.get_finished_spans()
    assert [span.name for span in spans] == [str(number) for number in range(100)]
    assert [span.context.trace_id for span in spans] == list(range(1, 101)) and spans[
        0
    ].context.span_id == 7


async def test_a_full_span_queue_drops_the_oldest_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from daemon.telemetry.otel_sdk import SpanPipeline

    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "50")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    memory_exporter, has_begun, may_go_on = remembering(), threading.Event(), threading.Event()
    export = memory_exporter.export

    def slow(spans: Any) -> Any:
        has_begun.set()
        may_go_on.wait(60)
        return export(spans)

    memory_exporter.export = slow
    exporter = SpanExporter(lambda: SpanPipeline(memory_exporter))
    await asyncio.to_thread(exporter.export, [span(number) for number in range(50)])
    assert await asyncio.to_thread(has_begun.wait, 60)
    await asyncio.to_thread(exporter.export, [span(number) for number in range(50, 9000)])
    may_go_on.set()
    await exporter.close(60)
    names = [span.name for span in memory_exporter.get_finished_spans()]
    assert names[-1] == "8999" and len(names) <= 100 and len(set(names)) == len(names)


async def test_a_stop_does_not_wait_for_a_hanging_receiver() -> None:
    from daemon.telemetry.otel_sdk import SpanPipeline

    memory_exporter, go_on = remembering(), threading.Event()
    memory_exporter.export = lambda spans: go_on.wait(60)
    exporter = SpanExporter(lambda: SpanPipeline(memory_exporter))
    await asyncio.to_thread(exporter.export, [span(1)])
    with capture_logs() as log_lines:
        await exporter.close(0.2)
    go_on.set()
    assert [(entry["event"], entry["spans"]) for entry in log_lines] == [("traces.lost", 1)]


async def test_without_spans_no_sdk_is_imported_and_no_thread_started() -> None:
    code = """
import asyncio, sys, threading
from daemon.telemetry.span_exporter import Receiver, SpanExporter, otlp_pipeline
exporter = SpanExporter(lambda: otlp_pipeline(Receiver(endpoint="http://127.0.0.1:9/v1/traces")))
print(any(name.startswith("opentelemetry") for name in sys.modules), threading.active_count())
asyncio.run(exporter.close())
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "False 1\n"


def span(number: int) -> Span:
    return Span(
        name=str(number), trace=1 + number, id=7, parent=None, start=1, end=2, attributes={}
    )


def test_the_trace_id_equals_the_bits_of_the_run_id() -> None:
    assert trace_of("01ARZ3NDEKTSV4RRFFQ69G5FAV") == 0x01563E3AB5D3D6764C61EFB99302BD5B
    assert trace_of("not a ulid") and span_id("a", "b") != span_id("ab")


def test_span_attributes_follow_the_semantic_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.schemas import Schemas

    from daemon.providers import traced
    from daemon.runs import tracing
    from daemon.telemetry import otel_sdk, spans

    attribute_names = {
        value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")
    }
    used_names: set[str] = set()
    for module in (spans, traced):
        text = Path(str(module.__file__)).read_text()
        used_names |= {
            word
            for word in text.split('"')
            if word.startswith("gen_ai.") and not word.endswith("}")
        }
    assert len(used_names) > 20 and used_names <= attribute_names
    vendors = {name.value for name in gen_ai_attributes.GenAiProviderNameValues}
    assert set(tracing.VENDORS.values()) | {"anthropic"} <= vendors
    assert {name.value for name in gen_ai_attributes.GenAiOperationNameValues} >= {
        "chat",
        "invoke_agent",
    }
    assert otel_sdk.SCHEMA in {schema.value for schema in Schemas}


FILE = "config.toml"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("endpoint", "env", "goes"),
    [
        (None, {}, None),
        ("http://a:4318", {}, "http://a:4318/v1/traces"),
        ("http://a:4318/v1/traces", {}, "http://a:4318/v1/traces"),
        (None, ENDPOINT, "as the environment says"),
        ("http://a/", ENDPOINT, "http://a/v1/traces"),
        (None, ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, None),
        (None, ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (None, ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"}, "as the environment says"),
    ],
)
def test_otel_config_precedes_the_environment_and_both_may_disable_tracing(
    endpoint: str | None, env: dict[str, str], goes: str | None
) -> None:
    receiver = find_receiver(endpoint, env, file=FILE)
    assert (receiver and (receiver.endpoint or "as the environment says")) == goes


def test_a_missing_otel_extra_is_a_config_fault_and_an_environment_warning(
    tmp_path: Path,
) -> None:
    code = """
import importlib.util, sys
importlib.util.find_spec = lambda name: None
from daemon.errors import ConfigError
from daemon.telemetry.span_exporter import find_receiver
assert find_receiver(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, file="config.toml") is None
try:
    find_receiver("http://a", {}, file="config.toml")
except ConfigError as error:
    sys.exit(str(error))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (
        "pip install 'agentd-routines[otel]'" in process.stderr
        and "otel.endpoint" in process.stderr
    )


async def test_tracing_starts_when_a_reload_configures_a_receiver(
    story: InProcessHome,
) -> None:
    with Collector() as collector:
        async with Vendor(["All is well."]) as vendor:
            text = CONFIG.format(url=vendor.url, receiver=collector.url, content="false", more="")
            story.write("config.toml", text.partition("[otel]")[0])
            story.routine("look", ROUTINE)
            await story.start()
            story.write("config.toml", text)
            assert (await story.agentctl("reload")).code == 0
            assert (await story.agentctl("run", "look")).code == 0
            assert await story.stop() == 0, "what is left goes out at the end"
        assert sorted(span.name for span in collector.spans) == ["chat llama", "invoke_agent look"]


async def test_otel_environment_variables_set_endpoint_and_key(
    story: InProcessHome,
) -> None:
    with Collector() as collector:
        async with Vendor(["All is well."]) as vendor:
            text = CONFIG.format(url=vendor.url, receiver="", content="false", more="")
            story.write("config.toml", text.partition("[otel]")[0])
            story.routine("look", ROUTINE)
            story.env |= {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20k3y",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
                "OTEL_SERVICE_NAME": "night-watch",
            }
            assert (await story.agentd("once", "look")).code == 0
        assert collector.requests[0]["authorization"] == "Bearer k3y"
        assert {span.resource["service.name"] for span in collector.spans} == {"night-watch"}
        call, root = sorted(collector.spans, key=lambda span: span.name)
        assert root.start <= call.start < call.end <= root.end


async def test_cancelled_run_has_a_span(story: InProcessHome) -> None:
    with Collector() as collector:
        async with Vendor([{"text": "never", "hang": True}]) as vendor:
            story.write(
                "config.toml",
                CONFIG.format(url=vendor.url, receiver=collector.url, content="false", more=""),
            )
            story.routine("look", ROUTINE)
            await story.start()
            run = (await story.agentctl("run", "look", "--detach")).out.strip()
            await vendor.wait_for_requests(1)
            assert (await story.agentctl("cancel", run)).code == 0
            await asyncio.to_thread(collector.wait, lambda receiver: len(receiver.spans) == 2)
            errors = {span.name: span.attributes["error.type"] for span in collector.spans}
            assert errors == {"chat llama": "CancelledError", "invoke_agent look": "cancelled"}


async def test_a_damaged_run_is_left_out_and_does_not_keep_back_the_spans_of_others(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write_routine("look", '[run]\nprompt = "Look around."\n')
    spans: list[Span] = []
    pipeline: Any = SimpleNamespace(add=spans.append, shutdown=lambda: None)
    async with app:
        app.model.enqueue("One.", "Two.", "Three.")
        runs = [await app.run("look") for _ in range(3)]
        store = app.daemon.store
        with closing(sqlite3.connect(store.database.path, isolation_level=None)) as connection:
            connection.execute("UPDATE run SET slot = ? WHERE id = ?", (b"\xff", runs[0].id))
            connection.execute("UPDATE step SET body = ? WHERE run_id = ?", (b"\xff", runs[1].id))
        tracer = RunTracer(
            SpanExporter(lambda: pipeline),
            store.journal,
            settings=app.daemon.settings,
            clock=app.clock,
            redact=str,
        )
        for run in runs:
            tracer.export_run(run.id)
        await tracer.close()
        left_out = app.log("traces.run_left_out")
    assert [line["run"] for line in left_out] == [run.id for run in runs[:2]]
    assert [span.attributes["gen_ai.conversation.id"] for span in spans] == [runs[2].id]


NOW = datetime(2026, 11, 20, tzinfo=UTC)


def make_run(status: Status) -> Run:
    return Run(
        id="01ARZ3NDEKTSV4RRFFQ69G5FAV", routine="look", definition="", trigger="cron", slot=NOW, created=NOW,  # noqa: E501
        started=NOW, ended=NOW, status=status,
    )  # fmt: skip


def make_call(at: datetime = NOW) -> Step:
    body = {"tool": "shell", "arguments": {}}
    return Step(kind=StepKind.CALL, iteration=1, call_id="1.0", body=body, at=at)


def test_the_span_of_a_repeated_call_ends_with_its_last_attempt() -> None:
    repetition = make_call(NOW + timedelta(seconds=60))
    body = {"tool": "shell", "ok": True, "text": "", "seconds": 2.0}
    result = Step(
        kind=StepKind.RESULT, iteration=1, call_id="1.0", body=body, at=NOW + timedelta(seconds=62)
    )
    steps = [make_call(), repetition, result]
    call, _ = spans_of_run(make_run(Status.SUCCEEDED), steps, provider="", with_content=False)
    assert (call.start, call.end) == (to_nanoseconds(NOW), to_nanoseconds(NOW) + 62 * 10**9)


def test_an_unfinished_call_has_an_interrupted_span(app: ReplayedApp) -> None:
    run, step = make_run(Status.INTERRUPTED), make_call()
    call, root = spans_of_run(run, [step, step], provider="", with_content=False)
    assert (call.attributes["error.type"], root.attributes["error.type"]) == (
        "interrupted",
        "interrupted",
    )
