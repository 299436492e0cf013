"""Each example of docs/library.md runs and prints its documented output."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from structlog.testing import capture_logs

import daemon
from daemon.errors import ConfigError
from daemon.models import FunctionCall, Json, LLMMessage, LLMResponse, Status, Usage
from daemon.providers import LLMProvider, create_provider
from tests.library import PAGE, examples, find_printed_lines
from tests.replaying import ReplayedApp


@pytest.mark.parametrize("name", examples())
async def test_each_library_example_prints_its_documented_output(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = examples()[name]
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # pydantic looks annotations up there
    code = compile(text, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with capture_logs():
        result = eval(code, vars(module))
        if inspect.isawaitable(result):
            await result
    lines = capsys.readouterr().out.splitlines()
    assert lines == find_printed_lines(text)
    assert lines or name == "Vendors 1"


def test_every_example_of_the_library_page_is_tested() -> None:
    assert len(examples()) == PAGE.read_text("utf-8").count("\n```python\n")


def test_every_name_imported_by_the_library_page_is_public() -> None:
    names = {
        alias.name
        for text in examples().values()
        for node in ast.walk(compile(text, "", "exec", flags=ast.PyCF_ONLY_AST | 0x2000))
        if isinstance(node, ast.ImportFrom) and node.module == "daemon"
        for alias in node.names
    }
    assert names
    assert names <= set(daemon.__all__)


def test_messages_and_calls_accept_positional_arguments() -> None:
    call = FunctionCall("f", {}, "id")
    assert call == FunctionCall(name="f", arguments={}, id="id")
    assert LLMMessage("user", "hi") == LLMMessage(role="user", content="hi")
    message = LLMMessage("assistant", "", None, [call], None, {"blocks": []})
    assert (message.tool_calls, message.provider_extras) == ((call,), {"blocks": []})
    assert LLMMessage("tool", "done", "f", None, "id").tool_call_id == "id"


def test_llm_response_accepts_its_property_names() -> None:
    call = FunctionCall("f", {}, "id")
    answer = LLMResponse(
        content="",
        function_calls=[call],
        metadata={"thinking": "Hm.", "usage": {"input": 3, "output": 1}, "region": "eu"},
        raw_response=[{"type": "text"}],
    )
    assert answer.function_calls == (call,) and answer.finish_reason == "tool_calls"
    assert (answer.reasoning, answer.usage) == ("Hm.", Usage(input=3, output=1))
    assert answer.raw_response == answer.provider_extras == [{"type": "text"}]
    assert answer.metadata["region"] == "eu" and answer.metadata["thinking"] == "Hm."
    again = LLMResponse("", metadata=answer.metadata)
    assert again.metadata == answer.metadata
    assert LLMResponse("hi", None, None).finish_reason == "stop"
    foreign = LLMResponse("hi", metadata={"usage": {"total_tokens": 9}})
    assert foreign.usage == Usage() and foreign.metadata["usage"] == {"total_tokens": 9}


class SeedProvider(LLMProvider):
    """A provider as somebody would write it who has read no more than the page."""

    def __init__(self, api_key: str = "", model: str = "my-model") -> None:
        self._model = model

    @property
    def model_name(self) -> str:
        return self._model

    def supports_function_calling(self) -> bool:
        return True

    async def chat(
        self, messages: Sequence[LLMMessage], functions: Sequence[Json] | None = None, **kwargs: Any
    ) -> LLMResponse:
        if functions and messages[-1].role == "user":
            return LLMResponse(
                "",
                [FunctionCall("sysinfo", {"parts": ["host"]}, "call_1")],
                None,
                {"thinking": "Let me look."},
                [{"type": "tool_use", "id": "call_1"}],
            )
        extras = [message.provider_extras for message in messages if message.provider_extras]
        return LLMResponse(content=json.dumps(extras), metadata={"thinking": "Hm."})


@pytest.mark.parametrize("budget", ["", "[run.budget]\ntokens = 100000\n"])
async def test_a_provider_that_takes_the_temperature_by_name_works_in_the_daemon(
    tmp_path: Path, budget: str
) -> None:
    app = ReplayedApp(tmp_path)
    app.write(
        "config.toml",
        'provider = "mine"\ntimezone = "UTC"\n'
        f'[providers.mine]\nkind = "{__name__}:SeedProvider"\nmodel = "m"\ntemperature = 0.5\n',
    )
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
    app.write_routine(
        "look",
        '[trigger]\nevery = "1d"\n[run]\nmode = "agent"\nprompt = "Look."\n'
        f'tools = ["sysinfo"]\n{budget}',
    )
    async with app:
        run = await app.run("look")
    assert (run.status, run.detail) == (Status.SUCCEEDED, None)
    assert run.report == '[[{"type": "tool_use", "id": "call_1"}]]'


def test_a_missing_model_in_a_program_is_reported_without_config_toml() -> None:
    with pytest.raises(ConfigError) as error:
        create_provider("claude", api_key="sk-ant-1")
    assert "config.toml" not in str(error.value)
    assert "model: is missing" in str(error.value)
