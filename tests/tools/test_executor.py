"""The execution of one tool call."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import structlog
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from daemon.errors import Fenced, NotFound, ToolFailed, Unavailable
from daemon.models import FunctionCall, Json, ToolContext, ToolResult
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

CONTEXT = ToolContext(run="01RUN", routine="daily", workspace=Path("/w"))


def executor(
    func: Callable[..., Any], parameters: Json | None = None, **marks: Any
) -> ToolExecutor:
    registry = FunctionRegistry()
    registry.register("tool", "", func, parameters, **marks)
    return ToolExecutor(registry)


async def run(func: Callable[..., Any], language: str = "en", **arguments: Any) -> ToolResult:
    context = ToolContext(run="01RUN", routine="daily", workspace=Path("/w"), language=language)
    return await executor(func).run(FunctionCall(name="tool", arguments=arguments), context)


class Limits(BaseModel):
    lines: int = 10
    mode: Literal["head", "tail"] = "head"


async def test_sync_and_async_functions_are_both_executed() -> None:
    async def slow(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    assert await executor(slow).execute("tool", {"a": 1}) == 2
    assert await executor(lambda a: a).execute("tool", {"a": 1}) == 1
    assert await executor(lambda: slow(4)).execute("tool", {}) == 5


async def test_a_sync_function_runs_in_a_thread_with_the_bound_log_context() -> None:
    def work() -> tuple[bool, Json]:
        return (
            threading.current_thread() is threading.main_thread(),
            structlog.contextvars.get_contextvars(),
        )

    with structlog.contextvars.bound_contextvars(run="01RUN"):
        assert await executor(work).execute("tool", {}) == (False, {"run": "01RUN"})


async def test_arguments_are_converted_to_the_types_of_the_signature() -> None:
    def func(path: Path, limits: Limits, at: datetime, n: int) -> Any:
        return path, limits.lines, at, n

    values = await executor(func).execute(
        "tool", {"path": "a/b", "limits": {"lines": "7"}, "at": "2026-03-02T08:00:00Z", "n": "3"}
    )
    assert values == (Path("a/b"), 7, datetime(2026, 3, 2, 8, tzinfo=UTC), 3)


async def test_omitted_arguments_use_the_default_of_the_function() -> None:
    marker = object()

    def func(
        a: int,
        b: Any = marker,
        /,
        c: int = 3,
        *numbers: int,
        d: Any = marker,
        e: int = Field(5, ge=1),
    ) -> Any:
        return a, b is marker, c, numbers, d is marker, e

    tool = executor(func)
    assert await tool.execute("tool", {"a": 1}) == (1, True, 3, (), True, 5)
    assert await tool.execute("tool", {"a": 1, "numbers": [7, 8], "d": None}) == (
        1,
        True,
        3,
        (7, 8),
        False,
        5,
    )
    assert await tool.execute("tool", {"a": 1, "c": 9, "numbers": ["7"], "e": 2}) == (
        1,
        True,
        9,
        (7,),
        True,
        2,
    )


async def test_extra_keyword_arguments_are_collected_and_checked() -> None:
    tool = executor(lambda **names: names)
    assert await tool.execute("tool", {"x": 1, "names": 2}) == {"x": 1, "names": 2}

    def floats(**names: float) -> Json:
        return names

    with pytest.raises(ToolFailed, match='`y` should be a valid number, found "much"'):
        await executor(floats).execute("tool", {"x": 1, "y": "much"})


async def test_the_tool_context_is_passed_to_the_function() -> None:
    def func(context: ToolContext, a: int = 1) -> str:
        return f"{context.routine} {a}"

    assert await executor(func).execute("tool", {"a": 2}, context=CONTEXT) == "daily 2"
    with pytest.raises(ToolFailed, match="tool works only inside a run"):
        await executor(func).execute("tool", {})


async def test_a_function_with_optional_context_runs_without_context() -> None:
    def func(context: ToolContext | None = None) -> bool:
        return context is None

    assert await executor(func).execute("tool", {})
    assert not await executor(func).execute("tool", {}, context=CONTEXT)


async def test_a_model_cannot_pass_the_tool_context() -> None:
    def func(context: ToolContext, **arguments: Any) -> Any:
        return context.run, arguments

    with pytest.raises(ToolFailed, match="`context` is not an argument"):
        await executor(func).execute("tool", {"context": {"run": "another"}}, context=CONTEXT)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "`path` is missing (string, Where it is.)"),
        ({"path": "a", "limt": 3}, "`limt` is not an argument, did you mean `limit`?"),
        (
            {"path": "a", "zzz": 3},
            "`zzz` is not an argument, there are `path`, `limit`, `ratio`, `limits`, `either`",
        ),
        ({"path": "a", "limit": "soon"}, '`limit` should be a valid integer, found "soon"'),
        ({"path": None}, "`path` should be a valid string, found null"),
        ({"path": "a", "ratio": 2}, "`ratio` should be less than or equal to 1, found 2"),
        (
            {"path": "a", "limits": {"mode": "middle"}},
            "`limits.mode` should be 'head' or 'tail', found \"middle\"",
        ),
        (
            {"path": "a", "limits": [1]},
            "`limits` should be a valid dictionary or instance of Limits, found [1]",
        ),
        (
            {"path": "a", "either": {}},
            "`either` should be a valid integer or a valid list, found {}",
        ),
        ({"path": "a", "either": [1, "x"]}, '`either[1]` should be a valid integer, found "x"'),
        (
            {"path": "x" * 99, "limit": "y" * 99},
            '`limit` should be a valid integer, found "' + "y" * 59 + "…",
        ),
    ],
)
async def test_an_invalid_argument_is_refused_with_its_name_value_and_expected_type(
    arguments: Json, says: str
) -> None:
    def func(
        path: str,
        limit: int = 10,
        ratio: Annotated[float, Field(le=1)] = 0.5,
        limits: Limits | None = None,
        either: int | list[int] = 1,
    ) -> None:
        """Read.

        :param path: Where it is.
        """
        raise AssertionError

    with pytest.raises(ToolFailed) as error:
        await executor(func).execute("tool", arguments)
    assert str(error.value).startswith("the arguments do not fit tool, nothing was executed: ")
    assert says in str(error.value)


async def test_all_invalid_arguments_are_reported_up_to_a_limit() -> None:
    def func(a: int, b: int) -> None: ...

    with pytest.raises(ToolFailed) as error:
        await executor(func).execute("tool", {"a": "x"} | {f"c{n}": n for n in range(20)})
    assert str(error.value).count("; ") == 8
    assert str(error.value).endswith("; and 14 more")


async def test_explicit_parameters_are_checked_at_the_first_level() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where"},
            "days": {"type": ["integer", "null"]},
            "unit": {"enum": ["C", "F"]},
            "flag": {"type": "boolean"},
        },
        "required": ["city"],
    }
    tool = executor(lambda **arguments: arguments, parameters)
    good = {"city": "Bonn", "days": None, "unit": "C", "flag": True, "else": [1]}
    assert await tool.execute("tool", good) == good
    with pytest.raises(ToolFailed) as error:
        await tool.execute("tool", {"days": True, "unit": "K", "flag": 1})
    assert str(error.value).endswith(
        "`city` is missing (string, where); `days` should be integer or null, found true;"
        ' `unit` should be one of "C", "F", found "K"; `flag` should be boolean, found 1'
    )


@pytest.mark.parametrize(
    "odd",
    [
        {"required": None, "properties": None},  # as servers in Go write empty lists
        {"required": True, "properties": []},
        {"required": [{}, 1], "properties": {"query": None}},
    ],
)
async def test_explicit_parameters_in_an_odd_form_refuse_no_call(odd: Json) -> None:
    registry = FunctionRegistry()
    registry.register("find", "finds", lambda **arguments: arguments, {"type": "object", **odd})
    call = FunctionCall(name="find", arguments={"query": "x"})
    assert (await ToolExecutor(registry).run(call)).value == {"query": "x"}


async def test_explicit_parameters_refuse_unknown_arguments_of_the_function() -> None:
    tool = executor(
        lambda city: city, {"type": "object", "properties": {"city": {"type": "string"}}}
    )
    assert await tool.execute("tool", {"city": "Bonn"}) == "Bonn"
    with pytest.raises(ToolFailed, match="`cty` is not an argument, did you mean `city`"):
        await tool.execute("tool", {"cty": "Bonn"})


async def test_an_argument_may_be_named_self_beside_a_positional_only_context() -> None:
    def call(context: ToolContext, /, **arguments: Any) -> Any:
        return context.run, arguments

    tool = executor(call, {"type": "object", "properties": {"self": {"type": "string"}}})
    assert await tool.execute("tool", {"self": "x"}, context=CONTEXT) == ("01RUN", {"self": "x"})


async def test_an_unknown_tool_is_reported_with_the_nearest_name() -> None:
    tool = executor(lambda: None)
    result = await tool.run(FunctionCall(name="tol", arguments={}))
    assert result == ToolResult(ok=False, text="[failed] there is no tool tol, did you mean tool?")


async def test_a_call_with_unreadable_arguments_is_never_executed() -> None:
    result = await executor(lambda: 1 / 0).run(
        FunctionCall(name="tool", arguments={}, invalid="line 1: no comma")
    )
    assert result.text == (
        "[failed] the arguments of tool could not be read, nothing was executed: line 1: no comma"
    )


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", "[failed] exit code 2\n[partial output]\nhalf"),
        ("zh", "[失败] exit code 2\n[部分输出]\nhalf"),
    ],
)
async def test_a_failed_tool_keeps_its_partial_output(language: str, expected: str) -> None:
    def func() -> None:
        raise ToolFailed("exit code 2", partial="half", transient=True)

    result = await run(func, language)
    assert (result.ok, result.text, result.transient) == (False, expected, True)


async def test_daemon_errors_of_a_tool_are_failures_with_their_message() -> None:
    def func() -> None:
        raise NotFound("no such run")

    assert (await run(func)).text == "[failed] no such run"


@pytest.mark.parametrize(("language", "mark"), [("en", "[error]"), ("zh", "[错误]")])
async def test_a_crashed_tool_gives_the_model_one_line_and_the_log_a_traceback(
    language: str, mark: str
) -> None:
    def func() -> None:
        raise ValueError("first\nsecond")

    with capture_logs() as logs:
        result = await run(func, language)
    assert result == ToolResult(ok=False, text=f"{mark} ValueError: first second")
    (entry,) = logs
    assert (entry["event"], entry["tool"], entry["exc_info"]) == ("tool.crashed", "tool", True)


async def test_a_tool_that_ends_the_process_ends_only_its_call() -> None:
    def in_a_thread() -> None:
        sys.exit(3)

    async def on_the_loop() -> None:
        sys.exit(3)

    def stops() -> None:
        raise StopIteration

    assert (
        await run(in_a_thread)
    ).text == "[error] RuntimeError: the tool tried to end the process (SystemExit)"
    assert (await run(on_the_loop)).text == "[error] SystemExit: 3"
    assert (await run(stops)).text == "[error] RuntimeError: StopIteration"


async def test_stale_run_is_stopped_without_a_tool_result() -> None:
    async def func() -> None:
        raise Fenced

    with pytest.raises(Fenced):
        await run(func)


async def test_a_time_limit_stops_an_async_function() -> None:
    has_stopped = asyncio.Event()

    async def func() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            has_stopped.set()

    result = await executor(func, timeout=0.02).run(FunctionCall(name="tool", arguments={}))
    assert result.text == "[failed] tool did not finish within 0.02 s"
    assert has_stopped.is_set()


async def test_a_sync_function_over_its_time_limit_is_abandoned_and_reported() -> None:
    release, end = threading.Event(), threading.Event()

    def func() -> None:
        release.wait(30)
        end.set()

    result = await executor(func, timeout=0.02).run(FunctionCall(name="tool", arguments={}))
    assert result.text == (
        "[failed] tool did not finish within 0.02 s; it could not be stopped and may still be at "
        "work,"
        " so check what it did before calling it again"
    )
    release.set()
    assert await asyncio.to_thread(end.wait, 30)


async def test_hanging_tool_occupies_no_thread_of_other_calls() -> None:
    release = threading.Event()
    registry = FunctionRegistry()
    registry.register("hang", "", lambda: release.wait(30), timeout=0.01)
    registry.register("work", "", lambda: "done")
    tools = ToolExecutor(registry)
    hanging_calls = [tools.run(FunctionCall(name="hang", arguments={})) for _ in range(40)]
    assert not any(result.ok for result in await asyncio.gather(*hanging_calls))
    assert (await tools.run(FunctionCall(name="work", arguments={}))).text == "done"
    release.set()


async def test_the_time_limit_of_the_executor_applies_to_functions_without_a_limit() -> None:
    registry = FunctionRegistry()
    registry.register("patient", "", lambda: asyncio.sleep(0.05, "late"), timeout=30)
    registry.register("hasty", "", lambda: asyncio.Event().wait())
    tools = ToolExecutor(registry, limit=0.01)
    assert (await tools.run(FunctionCall(name="patient", arguments={}))).text == "late"
    assert (
        "hasty did not finish within 0.01 s"
        in (await tools.run(FunctionCall(name="hasty", arguments={}))).text
    )


async def test_timeout_raised_by_a_tool_is_a_failure_of_the_tool() -> None:
    async def func() -> None:
        raise TimeoutError("upstream")

    assert (await run(func)).text == "[error] TimeoutError: upstream"


async def test_cancelling_a_call_cancels_the_function() -> None:
    has_started, is_cancelled = asyncio.Event(), asyncio.Event()

    async def func() -> None:
        has_started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    task = asyncio.create_task(run(func))
    await has_started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_cancelled.is_set()


@dataclass
class Point:
    x: int
    at: datetime


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Done."),
        ("as it is", "as it is"),
        ("", ""),
        ({"城市": "北京", "t": 22}, '{"城市": "北京", "t": 22}'),
        ([1, "二"], '[1, "二"]'),
        ((1, {2}), "[1, [2]]"),
        (Limits(), '{"lines": 10, "mode": "head"}'),
        (Point(1, datetime(2026, 3, 2, tzinfo=UTC)), '{"x": 1, "at": "2026-03-02T00:00:00Z"}'),
        ({"p": Path("/a"), "o": 1j}, '{"p": "/a", "o": "1j"}'),
        (3.5, "3.5"),
        (True, "True"),
        (b"abc".decode(), "abc"),
        ("half \ud800", "half ?"),
        ({"k": "\udfff"}, '{"k": "?"}'),
    ],
)
async def test_a_result_value_becomes_text(value: Any, text: str) -> None:
    result = await run(lambda: value)
    assert (result.ok, result.text) == (True, text)
    json.dumps(result.value, ensure_ascii=False).encode()


def test_result_none_is_a_success_in_either_language() -> None:
    tools = ToolExecutor(FunctionRegistry())
    assert (tools.format_result(None), tools.format_result(None, "zh")) == ("Done.", "执行成功")


async def test_a_result_of_fifty_megabytes_is_cut_in_the_middle_with_a_note() -> None:
    result = await run(lambda: "a" * 25_000_000 + "b" * 25_000_000)
    assert len(result.text) < 101_000
    assert result.text.startswith("aaa")
    assert result.text.endswith("bbb")
    assert "[… 49900000 characters cut …]" in result.text


@pytest.mark.parametrize(
    ("error", "is_transient"),
    [(ConnectionResetError("reset"), True), (TimeoutError("late"), True), (KeyError("x"), False)],
)
async def test_a_lost_connection_of_a_tool_is_transient(
    error: Exception, is_transient: bool
) -> None:
    def look() -> str:
        raise error

    assert (await run(look)).transient is is_transient


def _say_that_no_file_can_be_opened() -> str:
    try:
        raise OSError(errno.EMFILE, "Too many open files")
    except OSError as error:
        raise ToolFailed(f"cannot be read: {error.strerror}") from None


def _raise(error: Exception) -> str:
    raise error


@pytest.mark.parametrize(
    "work",
    [
        lambda: _raise(RuntimeError("can't start new thread")),
        lambda: _raise(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")),
        _say_that_no_file_can_be_opened,
    ],
    ids=["threads", "processes", "descriptors"],
)
async def test_a_call_for_which_the_machine_has_no_room_is_no_result_for_a_model(
    work: Callable[[], str],
) -> None:
    with pytest.raises(Unavailable, match="this machine lacks room: "):
        await run(work)


async def test_another_error_of_the_system_is_told_to_the_model() -> None:
    result = await run(lambda: _raise(PermissionError(errno.EACCES, "Permission denied")))
    assert not result.ok and "Permission denied" in result.text
