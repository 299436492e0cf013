"""A second opinion on Chat Completions and Messages: a real llama.cpp server, whose model speaks
noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.errors import ContextOverflow
from daemon.models import FunctionCall, LLMMessage
from daemon.providers import create_provider
from tests.fakes.llama import CONTEXT, MISSING, Llama
from tests.providers.calls import FUNCTIONS, user

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs `pip install {MISSING}`")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    with Llama(tmp_path_factory.mktemp("llama")) as server:
        yield server


WAYS = {"open_source": "/v1", "openai": "/v1", "claude": ""}


@pytest.mark.parametrize("kind", WAYS)
async def test_a_llama_server_answers_whole_and_streamed(kind: str, llama: Llama) -> None:
    provider = create_provider(
        kind, model="noise", base_url=llama.url + WAYS[kind], api_key="none", temperature=0.5
    )
    try:
        whole = await provider.chat([user("Say something.")], max_tokens=16)
        chunks = [
            chunk async for chunk in provider.chat_stream([user("Say something.")], max_tokens=16)
        ]
    finally:
        await provider.close()
    last = chunks[-1].response
    assert last is not None
    for answer in (whole, last):
        assert answer.content
        assert answer.finish_reason in ("length", "stop")
        assert 0 < answer.usage.output <= 16
    # a stream of its /v1/messages may begin without the count of what it read
    assert 10 < whole.usage.input < 80
    assert "".join(chunk.delta for chunk in chunks).strip() == last.content.strip()


async def test_a_llama_server_accepts_a_tool_loop(llama: Llama) -> None:
    """It accepts more than it should; what matters is that it can read what we send, odd arguments
    included.
    """
    call = FunctionCall(name="shell", arguments={"command": "温度 😀"}, id="call_1")
    broken_call = FunctionCall(
        name="shell", arguments={}, id="call_2", invalid="the arguments are not JSON"
    )
    history = [
        LLMMessage(role="system", content="You are agentd."),
        user("Report."),
        LLMMessage(role="assistant", tool_calls=(call, broken_call)),
        LLMMessage(role="tool", content="42 °C", tool_call_id="call_1"),
        LLMMessage(role="tool", content="[error]", tool_call_id="call_2", ok=False),
    ]
    provider = create_provider("open_source", model="noise", base_url=f"{llama.url}/v1")
    try:
        assert (await provider.chat(history, FUNCTIONS, max_tokens=8)).usage.output
    finally:
        await provider.close()


@pytest.mark.parametrize("kind", WAYS)
async def test_a_too_long_prompt_for_a_llama_server_is_a_context_overflow(
    kind: str, llama: Llama
) -> None:
    provider = create_provider(kind, model="noise", base_url=llama.url + WAYS[kind], api_key="none")
    try:
        with pytest.raises(ContextOverflow, match="longer than the model takes"):
            await provider.chat([user("word " * CONTEXT)])
    finally:
        await provider.close()


async def test_a_llama_server_lists_its_models(llama: Llama) -> None:
    provider = create_provider("open_source", model="noise", base_url=f"{llama.url}/v1")
    try:
        (model,) = await provider.list_models()
    finally:
        await provider.close()
    assert model.name
