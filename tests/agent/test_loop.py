"""The loop of model calls and tool calls, its limits and its ending."""

import asyncio
from datetime import UTC, datetime

import pytest

from daemon.agent.loop import LoopLimits
from daemon.errors import BadKey, Overloaded, ProviderError
from daemon.models import FunctionCall, LLMResponse, Status, StepKind, Usage
from daemon.providers import create_provider
from tests.agent.conftest import Rules, call, calls

NOW = datetime(2026, 11, 20, tzinfo=UTC)


async def test_an_answer_of_text_is_the_reply(make):
    reply = await make("All is well.").process_message("Report.")
    assert (reply.content, reply.status, reply.iterations) == ("All is well.", Status.SUCCEEDED, 1)


async def test_tool_results_reach_the_model_in_call_order(make):
    agent = make(calls(call("add", a=1, b=2), call("add", a=3, b=4)), "3 and 7")
    reply = await agent.process_message("Add.")
    assert reply.content == "3 and 7"
    assert [m.content for m in agent.history if m.role == "tool"] == ["3", "7"]
    assert [record["ok"] for record in reply.function_calls] == [True, True]


async def test_read_only_calls_run_concurrently(make, registry):
    barrier = asyncio.Barrier(2)

    async def look() -> str:
        """Look."""
        await barrier.wait()
        return "seen"

    registry.register("look", None, look, read_only=True)
    reply = await make(calls(call("look"), call("look")), "done").process_message("Look twice.")
    assert reply.status is Status.SUCCEEDED


async def test_changing_calls_run_one_by_one_in_order(make, registry):
    order = []

    async def write(n: int) -> None:
        """Write."""
        order.append(("begin", n))
        await asyncio.sleep(0)
        order.append(("end", n))

    registry.register("write", None, write)
    await make(calls(call("write", n=1), call("write", n=2)), "done").process_message("Write.")
    assert order == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


async def test_only_a_changing_call_is_preceded_by_a_durable_step(make, registry, journal):
    durable_steps = []

    def write() -> None:
        """Write."""
        durable_steps.append([step.kind for step in journal.steps if step.kind is StepKind.CALL])

    registry.register("write", None, write)
    await make(calls(call("add", a=1, b=1)), calls(call("write")), "done").process_message("Go.")
    assert durable_steps == [[StepKind.CALL, StepKind.CALL]]
    assert sum(journal.durable) == 1


async def test_call_with_unreadable_arguments_is_answered_and_never_run(make, registry):
    ran = []
    registry.register(
        "write", "Write.", lambda: ran.append(1), {"type": "object", "properties": {}}
    )
    broken_reply = LLMResponse(
        content="",
        function_calls=(
            FunctionCall(name="write", arguments={}, id="c1", invalid="line 1: cut off"),
        ),
    )
    agent = make(broken_reply, "gave up")
    await agent.process_message("Go.")
    (answer,) = [m for m in agent.history if m.role == "tool"]
    assert not ran
    assert answer.content.startswith("[error] not run: the arguments of write could not be read")


async def test_unknown_tool_is_answered_with_the_nearest_name(make):
    agent = make(calls(call("ad", a=1)), "ok")
    await agent.process_message("Go.")
    (answer,) = [m for m in agent.history if m.role == "tool"]
    assert "there is no tool 'ad' here. Did you mean 'add'?" in answer.content


async def test_tool_not_offered_to_the_run_is_unknown(make, registry):
    registry.register("danger", "Danger.", lambda: "boom", {"type": "object", "properties": {}})
    agent = make(calls(call("danger")), "ok", offered_tools=["add"])
    await agent.process_message("Go.")
    assert "there is no tool 'danger'" in next(m.content for m in agent.history if m.role == "tool")


async def test_a_denied_call_is_answered_with_the_rule_and_the_alternative(make, journal):
    agent = make(calls(call("add", a=1, b=2)), "ok", policy=Rules(denied_tools=["add"]))
    await agent.process_message("Go.")
    (answer,) = [m for m in agent.history if m.role == "tool"]
    assert answer.content.startswith(
        "[error] denied by rule 3 (deny): not here. What would be allowed: git log."
    )
    (step,) = [step for step in journal.steps if step.kind is StepKind.CALL]
    assert step.body["verdict"]["effect"] == "deny"


async def test_empty_answer_is_followed_by_one_reminder(make):
    agent = make("", "Here it is.")
    assert (await agent.process_message("Go.")).content == "Here it is."
    assert [m.role for m in agent.history] == ["system", "user", "assistant", "user", "assistant"]


async def test_second_empty_answer_fails_the_run(make):
    reply = await make("", " ").process_message("Go.")
    assert (reply.status, reply.detail) == (
        Status.FAILED,
        "the model answered twice with neither text nor a call",
    )


async def test_a_run_over_its_iteration_limit_fails_and_keeps_its_last_text(make):
    agent = make(
        *[calls(call("add", a=1, b=1), text=f"step {n}") for n in range(5)],
        limits=LoopLimits(max_iterations=3),
    )
    reply = await agent.process_message("Go.")
    assert reply.iterations == 3
    assert reply.status is Status.FAILED
    assert reply.content == "step 2\n\n[stopped: 3 iterations reached without a final answer]"


async def test_an_answer_in_the_last_iteration_is_a_success(make):
    reply = await make(
        calls(call("add", a=1, b=1)), "2", limits=LoopLimits(max_iterations=2)
    ).process_message("Go.")
    assert reply.status is Status.SUCCEEDED


async def test_calls_past_the_limit_are_not_run(make, registry):
    ran = []

    def write(n: int) -> None:
        """Write."""
        ran.append(n)

    registry.register("write", None, write)
    many = calls(*[call("write", n=n) for n in range(4)])
    reply = await make(many, "done", limits=LoopLimits(max_tool_calls=3)).process_message("Go.")
    assert ran == [0, 1, 2]
    assert reply.status is Status.FAILED
    assert "3 tool calls reached" in reply.content


async def test_token_budget_is_checked_before_each_model_call(make):
    turn = LLMResponse(
        content="",
        function_calls=(FunctionCall(name="add", arguments={"a": 1, "b": 1}, id="c1"),),
        finish_reason="tool_calls",
        usage=Usage(input=900, output=50),
    )
    reply = await make(turn, "never asked", limits=LoopLimits(tokens=1_800)).process_message("Go.")
    assert reply.iterations == 1
    assert "budget of 1800 tokens" in reply.content
    assert reply.status is Status.FAILED


async def test_a_goal_over_the_token_budget_calls_no_model(make):
    reply = await make("never asked", limits=LoopLimits(tokens=1_000)).process_message("x" * 10_000)
    assert (reply.iterations, reply.usage, reply.status) == (0, Usage(), Status.FAILED)


async def test_a_cut_answer_is_kept_and_fails_the_run(make):
    cut = LLMResponse(content="The first half", finish_reason="length")
    reply = await make(cut).process_message("Go.")
    assert reply.content.startswith("The first half\n\n[cut:")
    assert reply.status is Status.FAILED


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
async def test_a_refusal_of_the_model_fails_the_run_with_the_reason(make, reason):
    reply = await make(LLMResponse(content="I can't.", finish_reason=reason)).process_message("Go.")
    assert reply.status is Status.FAILED
    assert "declined" in reply.detail


async def test_paused_turn_continues_with_the_same_conversation(make):
    agent = make(LLMResponse(content="", finish_reason="pause"), "Done.")
    assert (await agent.process_message("Go.")).content == "Done."
    assert [m.role for m in agent.history] == ["system", "user", "assistant", "assistant"]


async def test_finish_carries_the_report(make):
    reply = await make(calls(call("finish", report="All good."))).process_message("Go.")
    assert (reply.content, reply.status, reply.silent) == ("All good.", Status.SUCCEEDED, False)


async def test_finish_without_a_report_uses_the_text_of_its_message(make):
    reply = await make(calls(call("finish"), text="Two disks are full.")).process_message("Go.")
    assert reply.content == "Two disks are full."


async def test_finish_can_end_in_silence_with_its_reason(make):
    reply = await make(calls(call("finish", notify=False, reason="nothing new"))).process_message(
        "Go."
    )
    assert (reply.silent, reply.detail, reply.status) == (True, "nothing new", Status.SUCCEEDED)


async def test_a_declared_failure_is_never_silent(make):
    reply = await make(
        calls(call("finish", status="failed", notify=False, reason="which account?"))
    ).process_message("Go.")
    assert (reply.silent, reply.status, reply.detail) == (False, Status.FAILED, "which account?")
    assert reply.content == "which account?"


async def test_finish_with_nothing_to_show_is_a_failure(make):
    assert (await make(calls(call("finish"))).process_message("Go.")).status is Status.FAILED


async def test_the_silent_token_must_be_the_whole_answer(make):
    from pathlib import Path

    from daemon.agent.prompt import Persona, PromptContext

    context = PromptContext(
        persona=Persona(), workspace=Path(), now=NOW, zone=UTC, silent_token="NOTHING TO REPORT"
    )
    silent = await make("NOTHING TO REPORT\n", prompt_context=context).process_message("Go.")
    reply = await make(
        "NOTHING TO REPORT, but the disk is full", prompt_context=context
    ).process_message("Go.")
    assert (silent.silent, silent.content) == (True, "")
    assert (reply.silent, reply.status) == (False, Status.SUCCEEDED)


async def test_denied_or_failed_required_tool_fails_the_run(make):
    agent = make(
        calls(call("add", a=1, b=2)),
        "ok",
        policy=Rules(denied_tools=["add"]),
        required_tools=["add"],
    )
    reply = await agent.process_message("Go.")
    assert (reply.status, reply.detail) == (
        Status.FAILED,
        "a required tool was denied or failed: add",
    )


@pytest.mark.parametrize("answer", ["It is 3.", calls(call("finish", report="It is 3."))])
async def test_an_answer_without_a_call_of_a_required_tool_fails_the_run(make, answer):
    reply = await make(answer, required_tools=["add"]).process_message("Add them.")
    assert (reply.status, reply.detail) == (
        Status.FAILED,
        "a required tool was not called: add",
    )


async def test_required_tool_succeeding_after_a_failure_lets_the_run_succeed(make):
    agent = make(
        calls(call("add", a="x", b=2)), calls(call("add", a=1, b=2)), "3", required_tools=["add"]
    )
    assert (await agent.process_message("Go.")).status is Status.SUCCEEDED


async def test_failover_asks_the_next_provider_and_is_journaled(make, journal):
    first = create_provider("scripted", name="first", replies=[BadKey("no key")])
    second = create_provider("scripted", name="second", replies=[calls(call("add", a=1, b=1)), "2"])
    agent = make(provider=first, fallback=[second])
    assert (await agent.process_message("Go.")).content == "2"
    (step,) = [step for step in journal.steps if step.kind is StepKind.FAILOVER]
    assert (step.body["from"], step.body["to"]) == ("first", "second")


async def test_a_failover_holds_for_the_rest_of_the_run(make):
    first = create_provider(
        "scripted", name="first", replies=[BadKey("no key"), "never asked again"]
    )
    second = create_provider("scripted", name="second", replies=[calls(call("add", a=1, b=1)), "2"])
    agent = make(provider=first, fallback=[second])
    await agent.process_message("Go.")
    assert agent.provider.name == "second"


async def test_offline_provider_does_not_replace_a_vendor_after_a_short_fault(make):
    vendor = create_provider(
        "scripted", name="vendor", replies=[Overloaded("busy", retry_after=0)] * 2 + ["back"]
    )
    offline = create_provider("offline", name="offline")
    limits = LoopLimits(attempts=1, backoff=0.0, offline_after=60)
    reply = await make(provider=vendor, fallback=[offline], limits=limits).process_message("Go.")
    assert reply.content == "back"


async def test_offline_provider_replaces_a_vendor_that_stays_unavailable(make):
    vendor = create_provider(
        "scripted", name="vendor", replies=[Overloaded("busy", retry_after=0)] * 50
    )
    offline = create_provider("offline", name="offline")
    limits = LoopLimits(attempts=1, backoff=0.0, offline_after=0.0)
    agent = make(provider=vendor, fallback=[offline], limits=limits)
    assert (await agent.process_message("Go.")).status is Status.SUCCEEDED
    assert agent.provider.name == "offline"


async def test_when_no_provider_answers_the_error_of_the_last_one_is_raised(make):
    agent = make(provider=create_provider("scripted", replies=[BadKey("no key for you")]))
    with pytest.raises(ProviderError, match="no key for you"):
        await agent.process_message("Go.")


async def test_agent_continues_a_conversation(make):
    agent = make("first", "second")
    await agent.process_message("one")
    reply = await agent.process_message("two")
    assert (reply.content, reply.iterations) == ("second", 1)
    assert [m.content for m in agent.history if m.role == "user"] == ["one", "two"]


async def test_clearing_the_history_keeps_the_system_prompt(make):
    agent = make("first", "second", system_prompt="You are a lighthouse.")
    await agent.process_message("one")
    agent.clear_history()
    assert [(m.role, m.content) for m in agent.history] == [("system", "You are a lighthouse.")]
    assert (await agent.process_message("two")).content == "second"


async def test_secrets_in_a_result_never_reach_the_model(make, registry):
    registry.register(
        "leak", "Leak.", lambda: "key sk-canary-123", {"type": "object", "properties": {}}
    )
    agent = make(
        calls(call("leak")), "ok", redact=lambda text: text.replace("sk-canary-123", "[secret]")
    )
    await agent.process_message("Go.")
    assert "canary" not in repr(agent.history)


async def test_secret_written_by_the_model_is_neither_stored_shown_nor_passed_to_a_tool(
    make, registry, journal
):
    texts = []

    def write(text: str) -> None:
        """Write."""
        texts.append(text)

    registry.register("write", None, write)
    agent = make(
        calls(call("write", text="sk-canary-123"), text="I use sk-canary-123"),
        "The key is sk-canary-123",
        redact=lambda text: text.replace("sk-canary-123", "[secret]"),
    )
    reply = await agent.process_message("Go.")
    assert (texts, reply.content) == (["[secret]"], "The key is [secret]")
    assert "canary" not in repr(journal.steps) + repr(agent.history)
