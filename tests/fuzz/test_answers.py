"""Whatever a vendor of models answers, it is an answer of a model or one named error."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daemon.errors import ProviderError
from daemon.models import LLMResponse
from tests.fakes.vendor import FakeVendor
from tests.fuzz.hostile import Document, broken_documents, to_json
from tests.properties import scaled_settings
from tests.providers.calls import provider, user

MOST_TOKENS = 2**53
"""More than any answer has: what is counted is added up, and stored in 64 bits."""

CALL = {"name": "f", "arguments": '{"a": 1, "b": [1.5, "x"]}'}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
ANSWERS: dict[str, Document] = {
    "openai chat": {
        "id": "1",
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": "hello",
                    "tool_calls": [{"id": "c", "type": "function", "function": CALL}],
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}},
    },
    "openai responses": {
        "id": "1",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hello"}],
            },
            {"type": "function_call", "call_id": "c", **CALL},
        ],
        "usage": {"input_tokens": 10, "output_tokens": 5},
    },
    "claude opus": {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 2},
    },
}
# Shrinking a document of 300,000 characters takes minutes, and most failures name their place.
FUZZ = settings(
    scaled_settings(60, fewest=8, suppress=[HealthCheck.data_too_large]),
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.parametrize("way", ANSWERS)
@FUZZ
@given(data=st.data())
async def test_an_answer_of_a_vendor_is_one_of_a_model_or_a_named_error(
    way: str, data: st.DataObject
) -> None:
    documents = data.draw(
        st.lists(broken_documents([ANSWERS[way]]).map(to_json), min_size=5, max_size=20)
    )
    turns = [
        {"raw": document.decode(), "content_type": "application/json"} for document in documents
    ]
    async with FakeVendor(turns) as vendor:
        model = provider(way, vendor, name="mine", timeout=60)
        try:
            for _ in documents:
                try:
                    check_response(await model.chat([user("hi")]))
                except ProviderError as error:
                    text = str(error)
                    assert text.startswith("mine (") and len(text) < 1_000
                    text.encode()
        finally:
            await model.close()


def check_response(response: LLMResponse) -> None:
    """Everything in it can be counted, stored and sent."""
    usage = response.usage
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    assert all(0 <= count < MOST_TOKENS for count in counts)
    response.content.encode()
    for call in response.function_calls:
        call.name.encode()
        assert call.id
        json.dumps(call.arguments)
