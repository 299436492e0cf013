"""A full tool loop with every vendor and wire format."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from daemon.models import FunctionCall, Json, LLMMessage
from daemon.providers import create_provider
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import FUNCTIONS, KEY, LANGUAGES, TRANSPORTS, WAYS, Opener, Talk, user


def call(command: str | Json) -> Json:
    return {
        "name": "shell",
        "arguments": {"command": command} if isinstance(command, str) else command,
    }


LOOP: list[Json] = [
    {
        "thinking": "I look first.",
        "text": "Let me look.",
        "tool_calls": [call("uptime"), call("df -h")],
    },
    {"thinking": "", "tool_calls": [call("温度 😀")], "redacted": True},
    {"tool_calls": [call("ls")]},
    {"thinking": "Done.", "text": "All is well."},
]


@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_loop_passes_the_vendors_rules(way: str, provider_for: Opener) -> None:
    async with FakeVendor(LOOP) as vendor:
        talk = Talk(provider_for(way, vendor))
        answers = [
            await talk.ask(temperature=0.1, max_tokens=20_000, routine="daily-report") for _ in LOOP
        ]
    assert vendor.refusals == []
    assert [answer.finish_reason for answer in answers] == [
        "tool_calls",
        "tool_calls",
        "tool_calls",
        "stop",
    ]
    assert [c.arguments["command"] for a in answers for c in a.function_calls] == [
        "uptime",
        "df -h",
        "温度 😀",
        "ls",
    ]
    assert answers[-1].content == "All is well."
    assert all(answer.usage.input and answer.usage.output for answer in answers)
    assert [answer.request_id for answer in answers] == ["req_1", "req_2", "req_3", "req_4"]


@pytest.mark.parametrize("way", WAYS)
async def test_conversation_only_grows(way: str, provider_for: Opener) -> None:
    """Byte for byte: caches and bound thinking depend on it."""
    async with FakeVendor(LOOP) as vendor:
        talk = Talk(provider_for(way, vendor))
        for _ in LOOP:
            await talk.ask()
    requests = [
        json.dumps(request.body.get("messages") or request.body["input"])
        for request in vendor.requests
    ]
    for before, after in pairwise(requests):
        assert after.startswith(before.removesuffix("]"))
    assert (
        len(
            {
                json.dumps([r.body.get("system"), r.body.get("instructions"), r.body["tools"]])
                for r in vendor.requests
            }
        )
        == 1
    )


@pytest.mark.parametrize("way", WAYS)
async def test_invalid_json_arguments_are_answered_and_the_conversation_continues(
    way: str, provider_for: Opener
) -> None:
    broken_reply = {
        "thinking": "Hm.",
        "tool_calls": [{"name": "shell", "arguments": '{"command": "upti'}],
    }
    async with FakeVendor([broken_reply, "Never mind."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        first = await talk.ask()
        last = await talk.ask()
    (bad,) = first.function_calls
    assert bad.arguments == {}
    assert bad.invalid
    assert "arguments" in bad.invalid
    assert vendor.refusals == []
    assert last.content == "Never mind."


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_cut_by_the_token_limit_is_invalid(way: str, provider_for: Opener) -> None:
    cut = {"thinking": "Hm.", "tool_calls": [call("df"), call("rm -r old")], "finish": "length"}
    async with FakeVendor([cut, "Never mind."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        first = await talk.ask()
        await talk.ask()
    assert first.finish_reason == "length"
    whole, cut_off = first.function_calls
    assert (whole.arguments, whole.invalid) == ({"command": "df"}, None)
    assert cut_off.arguments == {}
    assert "limit of output tokens" in str(cut_off.invalid)
    assert vendor.refusals == []


@pytest.mark.parametrize("way", WAYS)
async def test_an_empty_turn_is_left_out_of_later_requests(way: str, provider_for: Opener) -> None:
    stall: Json = {"thinking": "I think, therefore", "text": ""}
    async with FakeVendor([stall, "Here."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        first = await talk.ask()
        talk.messages.append(user("Please go on."))
        last = await talk.ask()
    assert (first.content, first.function_calls) == ("", ())
    assert vendor.refusals == []
    assert last.content == "Here."


@pytest.mark.parametrize("first", LANGUAGES)
@pytest.mark.parametrize("second", LANGUAGES)
async def test_another_vendor_can_continue_a_conversation(
    first: str, second: str, provider_for: Opener
) -> None:
    """What one vendor's model thought stays with that vendor; its calls get ids that the next one
    takes.
    """
    first_replies: list[str | Json] = [
        {
            "thinking": "Secret thoughts.",
            "tool_calls": [{**call("uptime"), "id": "functions.shell:0"}],
        },
        {"thinking": "More of them.", "tool_calls": [call("df")]},
    ]
    async with (
        FakeVendor(first_replies, name="one") as first_vendor,
        FakeVendor(["Taken over."], name="other") as other_vendor,
    ):
        talk = Talk(provider_for(first, first_vendor))
        await talk.ask()
        if not first.startswith(("claude", "minimax")):  # these would not give out such an id
            await talk.ask()
        talk.provider = provider_for(second, other_vendor)
        answer = await talk.ask()
    assert other_vendor.refusals == []
    assert answer.content == "Taken over."
    assert b"houghts" not in other_vendor.requests[0].raw


@pytest.mark.parametrize("way", LANGUAGES)
async def test_repeated_call_ids_are_replaced(way: str, provider_for: Opener) -> None:
    reply = {"tool_calls": [{**call("a"), "id": "call_1"}, {**call("b"), "id": "call_1"}]}
    async with FakeVendor([reply, reply, "ok"]) as vendor:
        talk = Talk(provider_for(way, vendor))
        answers = [await talk.ask() for _ in range(3)]
    ids = [c.id for answer in answers for c in answer.function_calls]
    assert len(set(ids)) == 4
    assert vendor.refusals == []


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_lone_surrogate_leaves_the_request_readable(way: str, provider_for: Opener) -> None:
    """A file's name that is no UTF-8 comes out of Python as a lone surrogate, which JSON must not
    hold.
    """
    async with FakeVendor(["ok"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.chat([user("caf\udce9.txt")])
    assert "caf?.txt" in vendor.requests[0].raw.decode()


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_the_functions_are_translated_once(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        talk = Talk(provider_for(way, vendor), functions=[*FUNCTIONS])
        await talk.ask()
        first = vendor.requests[-1].body["tools"]
        talk.functions[0] = {"name": "changed", "parameters": {}}  # type: ignore[index]
        talk.messages.append(user("And?"))
        await talk.ask()
    assert vendor.requests[-1].body["tools"] == first  # a list's identity stands for its content


@pytest.mark.parametrize("way", LANGUAGES)
async def test_no_tools_are_offered_when_there_are_none(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["ok", "ok", "ok"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.chat([user("hi")], [])
        await provider.chat([user("hi")], None)
        toolless = provider_for(way, vendor, capabilities={"tools": False})
        await toolless.chat([user("hi")], [{"name": "shell", "parameters": {"type": "object"}}])
    assert vendor.refusals == []
    assert not any("tools" in request.body for request in vendor.requests)
    assert not toolless.supports_function_calling()


@pytest.mark.parametrize("way", ["openai responses", "openai chat", "claude opus", "minimax"])
async def test_a_parameter_refused_by_the_model_is_dropped_and_logged_once(
    way: str, log_lines: list[Json], provider_for: Opener
) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for(way, vendor, temperature=0.0)
        await provider.chat([user("hi")])
        await provider.chat([user("hi")], temperature=1.7)
    assert vendor.refusals == []
    assert not any("temperature" in request.body for request in vendor.requests)
    (warning,) = [line for line in log_lines if line["log_level"] == "warning"]
    assert warning["event"] == "provider.param_dropped"
    assert (warning["param"], warning["model"]) == ("temperature", WAYS[way][1])


async def test_a_parameter_supported_by_the_model_is_sent(provider_for: Opener) -> None:
    async with FakeVendor(["a", "b", "c"]) as vendor:
        minimax = provider_for("minimax", vendor, temperature=0.5, max_tokens=500)
        local = provider_for("vllm", vendor, temperature=0.5, max_tokens=500)
        astra = provider_for("openai chat", vendor, max_tokens=500)
        for provider in (minimax, local, astra):
            await provider.chat([user("hi")])
    assert [request.body.get("temperature") for request in vendor.requests] == [0.5, 0.5, None]
    assert [request.body.get("max_tokens") for request in vendor.requests] == [500, 500, None]
    assert vendor.requests[2].body["max_completion_tokens"] == 500


async def test_claude_gets_a_thinking_budget_within_the_configured_limit(
    provider_for: Opener,
) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for("claude opus", vendor)
        await provider.chat([user("hi")])
        await provider.chat([user("hi")], max_tokens=64_000)
    assert [request.body["max_tokens"] for request in vendor.requests] == [16_384, 64_000]
    # at the vendor's own pace the second may take half an hour: on an idle connection it would be
    # lost on the way
    assert [request.body.get("stream") for request in vendor.requests] == [None, True]


async def test_a_tool_loop_is_marked_for_claudes_cache_and_a_single_question_is_not(
    provider_for: Opener,
) -> None:
    async with FakeVendor(["a", "b", "c"]) as vendor:
        claude, minimax = provider_for("claude opus", vendor), provider_for("minimax", vendor)
        await Talk(claude).ask()
        await claude.chat([user("hi")])
        await Talk(minimax).ask()
    assert ["cache_control" in request.body for request in vendor.requests] == [True, False, False]


async def test_responses_stores_nothing_with_the_vendor(provider_for: Opener) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        for way in ("openai responses", "openai responses, no reasoning"):
            provider = provider_for(way, vendor)
            await provider.chat([user("hi")], routine="daily-report")
    assert [request.body["store"] for request in vendor.requests] == [False, False]
    # "Encrypted content is not supported with this model" is what one that does not reason says
    assert [request.body.get("include") for request in vendor.requests] == [
        ["reasoning.encrypted_content"],
        None,
    ]
    assert vendor.requests[0].body["prompt_cache_key"] == "routine:daily-report"


@pytest.mark.parametrize("length", [56, 57, 250])
async def test_a_routine_with_a_long_name_has_a_key_of_the_prompt_cache_of_its_own(
    provider_for: Opener, length: int
) -> None:
    """The vendor refuses a key of more than 64 characters."""
    names = ["r" * length, "r" * (length - 1) + "s"]
    async with FakeVendor(["a", "b", "c"]) as vendor:
        provider = provider_for("openai responses", vendor)
        for name in (*names, names[0]):
            await provider.chat([user("hi")], routine=name)
    first, second, again = (request.body["prompt_cache_key"] for request in vendor.requests)
    assert first == again != second and len(first) == 64


async def test_the_openai_interface_depends_on_the_host() -> None:
    from daemon.providers.openai import OpenAIProvider

    def api(**settings: str) -> str:
        provider = create_provider("openai", model="gpt-6-astra", api_key=KEY, **settings)  # type: ignore[arg-type]
        assert isinstance(provider, OpenAIProvider)
        return provider.wire.api

    assert api() == "responses"
    assert api(base_url="https://api.openai.com/v1/") == "responses"
    assert api(base_url="https://gateway.example/v1") == "chat"
    assert api(api="chat") == "chat"
    assert api(base_url="https://gateway.example/v1", api="responses") == "responses"


@pytest.mark.parametrize(
    ("region", "host"),
    [(None, "api.minimaxi.com"), ("cn", "api.minimaxi.com"), ("intl", "api.minimax.io")],
)
def test_minimax_has_two_base_urls(region: str | None, host: str) -> None:
    from daemon.providers.minimax import MiniMaxProvider

    provider = create_provider("minimax", model="MiniMax-M3", api_key=KEY, region=region)
    assert isinstance(provider, MiniMaxProvider)
    assert provider.base_url == f"https://{host}/anthropic"


async def test_tool_results_precede_text_and_mark_failures(provider_for: Opener) -> None:
    history = [
        user("Report."),
        LLMMessage(
            role="assistant",
            tool_calls=tuple(
                FunctionCall(name="shell", arguments={}, id=call_id)
                for call_id in ("call00000", "call00001")
            ),
        ),
        LLMMessage(role="tool", content="fine", tool_call_id="call00000"),
        LLMMessage(role="tool", content="", tool_call_id="call00001", ok=False),
        LLMMessage(role="system", content="One iteration is left."),
    ]
    async with FakeVendor(["ok"]) as vendor:
        talk = Talk(provider_for("claude opus", vendor), messages=history)
        await talk.ask()
    assert vendor.refusals == []
    assert vendor.requests[0].body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "call00000", "content": "fine"},
        {"type": "tool_result", "tool_use_id": "call00001", "is_error": True},
        {"type": "text", "text": "One iteration is left."},
    ]


async def test_each_answer_is_logged_without_its_text(
    provider_for: Opener, log_lines: list[Json]
) -> None:
    async with FakeVendor(["What I say."]) as vendor:
        await provider_for("deepseek", vendor).chat([user("What you ask.")])
    (line,) = log_lines
    assert (line["event"], line["log_level"], line["request_id"]) == (
        "provider.answered",
        "debug",
        "req_1",
    )
    assert not {"What I say.", "What you ask.", KEY} & {str(value) for value in line.values()}


# some 2,000 tokens
LONG = "The host carries a database, a web server and the family's photographs. " * 120


@pytest.mark.parametrize(
    "way",
    [
        "openai responses",
        "openai chat",
        "claude opus",
        "minimax",
        "deepseek",
        "kimi",
        "openai chat, deepseek",
    ],
)
async def test_the_prompt_comes_from_the_vendor_cache_after_the_first_iteration(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor(LOOP) as vendor:
        history = [LLMMessage(role="system", content=LONG), user("Report, please.")]
        talk = Talk(provider_for(way, vendor), messages=history)
        answers = [await talk.ask(routine="daily-report") for _ in LOOP]
    assert vendor.refusals == []
    assert answers[0].usage.cache_read == 0
    for answer in answers[1:]:
        assert answer.usage.cache_read > 1500
        assert answer.usage.input >= answer.usage.cache_read + answer.usage.cache_write


async def test_unmarked_blocks_are_not_cached_by_claude(provider_for: Opener) -> None:
    async with FakeVendor(LOOP) as vendor:
        history = [LLMMessage(role="system", content=LONG), user("Report, please.")]
        talk = Talk(
            provider_for("claude opus", vendor, capabilities={"cache": False}), messages=history
        )
        answers = [await talk.ask() for _ in LOOP]
    assert {answer.usage.cache_read for answer in answers} == {0}


async def test_a_paused_turn_of_claude_is_sent_back_unchanged(provider_for: Opener) -> None:
    async with FakeVendor(
        [{"thinking": "Hm.", "text": "I search.", "finish": "pause_turn"}, "Found."]
    ) as vendor:
        talk = Talk(provider_for("claude opus", vendor))
        first, second = await talk.ask(), await talk.ask()
    assert vendor.refusals == []
    assert (first.finish_reason, first.function_calls, second.content) == ("pause", (), "Found.")
    message = vendor.requests[1].body["messages"][-1]
    assert message["role"] == "assistant"
    assert [block["type"] for block in message["content"]] == [
        "thinking",
        "text",
        "server_tool_use",
    ]


@pytest.mark.parametrize("way", ["openai responses", "openai chat", "claude opus"])
async def test_a_foreign_tool_schema_is_repaired_for_the_vendor(
    way: str, provider_for: Opener
) -> None:
    """Tools of MCP servers come with schemas that their own clients take."""
    parameters = {
        "properties": {
            "list": {"type": "array"},
            "deep": {"type": "object", "properties": {"l": {"type": "array"}}},
        },
        "anyOf": [{"required": ["list"]}, {"required": ["deep"]}],
    }
    async with FakeVendor(["ok"]) as vendor:
        before = json.dumps(parameters)
        await Talk(
            provider_for(way, vendor), functions=[{"name": "theirs", "parameters": parameters}]
        ).ask()
    assert vendor.refusals == []
    assert json.dumps(parameters) == before
