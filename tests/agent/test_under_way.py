"""Changes during a conversation: user messages, context overflow, streaming to a watcher."""

import re
from collections import namedtuple
from dataclasses import replace

import pytest

from daemon.agent.loop import LoopLimits
from daemon.agent.transcript import Transcript
from daemon.errors import ContextOverflow
from daemon.models import Fact, LLMMessage, Status, Taint
from daemon.providers.facts import wrap
from tests.agent.conftest import call, calls

Message = namedtuple("Message", "id text")


class Box:
    """An inbox that fills as the test says: messages by how often it has been looked into."""

    def __init__(self, **at):
        self.looks, self.at = 0, {int(key[1:]): value for key, value in at.items()}

    def take(self, run, known_ids):
        self.looks += 1
        return [message for message in self.at.get(self.looks, ()) if message.id not in known_ids]


async def test_user_message_joins_next_model_call_and_becomes_a_step(make, journal):
    agent = make(
        calls(call("add", a=1, b=2)), "three, and hello", messages=Box(_2=[Message(7, "say hello")])
    )
    reply = await agent.process_message("add")
    assert reply.content == "three, and hello"
    assert [message.role for message in agent.provider.calls[1].messages][-2:] == ["tool", "user"]
    (step,) = [step for step in journal.steps if step.body.get("source") == "told"]
    assert (step.body["text"], step.body["told"]) == ("say hello", 7)
    assert Transcript(journal.steps).received_messages == {7}


async def test_user_message_at_the_final_answer_gets_another_answer(make):
    agent = make("done", "done, in French", messages=Box(_2=[Message(1, "in French")]))
    assert (await agent.process_message("work")).content == "done, in French"


async def test_user_message_at_the_final_answer_is_left_where_no_other_answer_is_allowed(make):
    box = Box(_2=[Message(1, "in French")])
    agent = make("done", messages=box, limits=LoopLimits(max_iterations=1))
    reply = await agent.process_message("work")
    assert (reply.status, reply.content, box.looks) == (Status.SUCCEEDED, "done", 1)


async def test_earlier_conversation_is_frozen_with_the_prompt_and_equal_after_a_crash(
    make, journal
):
    earlier = [LLMMessage(role="user", content="hi"), LLMMessage(role="assistant", content="hello")]
    agent = make("again", earlier_messages=earlier)
    await agent.process_message("and now?")
    assert [m.content for m in agent.provider.calls[0].messages[1:]] == ["hi", "hello", "and now?"]
    assert [m.content for m in Transcript(journal.steps).messages[1:4]] == [
        "hi",
        "hello",
        "and now?",
    ]


async def test_a_conversation_over_the_context_limit_restarts_with_a_note(make, journal):
    agent = make(calls(call("add", a=1, b=2), text="I add."), ContextOverflow("too long"), "three")
    reply = await agent.process_message("add one and two")
    assert (reply.status, reply.content) == (Status.SUCCEEDED, "three")
    last = agent.provider.calls[2].messages
    assert [message.role for message in last] == ["system", "user"]
    assert (
        "add one and two" in last[1].content
        and "add: 3" in last[1].content
        and "I add." in last[1].content
    )
    (step,) = [step for step in journal.steps if step.body.get("source") == "afresh"]
    assert "begins afresh" in step.body["text"]


class Tainting:
    """An inspector that finds the words of strangers in every result."""

    async def inspect(self, call_id, call, result):
        return replace(result, taint=Taint.TAINTED)


async def test_marks_around_words_of_strangers_that_a_summary_cuts_are_closed(make, registry):
    registry.register("page", "A page.", lambda: "words <data 00> of strangers " * 200)
    fact = Fact(name="news", tool="page", ok=True, text="news of strangers " * 1000)
    goal = f"Read it.\n\n{wrap([fact], 'a' * 32)}"
    overflow = ContextOverflow("too long")
    agent = make(calls(call("page")), overflow, overflow, "Read.", inspector=Tainting())
    await agent.process_message(goal, facts=[fact], facts_boundary="a" * 32)
    for asked in agent.provider.calls[2:]:
        summary = asked.messages[-1].content
        assert re.search(
            r'<fact [^>]* boundary="(a{32})">\s(news of strangers )+[a-z ]* \[…\].* </fact \1>',
            summary,
        )
        marks = re.findall(r"<data ([0-9a-f]{32})>", summary)
        assert [summary.count(f"</data {mark}>") for mark in marks] == [1] * len(marks)
    assert re.search(
        r"<data ([0-9a-f]{32})> (words|<data 00>|of|strangers| )+\S* \[…\] </data 00> </data \1>",
        agent.provider.calls[2].messages[-1].content,
    )


async def test_a_conversation_that_never_fits_the_context_fails(make):
    agent = make(*[ContextOverflow("too long")] * 3)
    with pytest.raises(ContextOverflow):
        await agent.process_message("x" * 100)
    assert len(agent.provider.calls) == 3


async def test_full_context_is_shortened_and_asked_again_once(make):
    full = {"text": "I was about", "finish_reason": "context"}
    agent = make(full, "done")
    assert (await agent.process_message("work")).content == "done"
    agent = make(full, full)
    reply = await agent.process_message("work")
    assert (reply.status, reply.detail) == (
        Status.FAILED,
        "the conversation outgrew the model's context",
    )


async def test_watcher_receives_the_answer_in_pieces(make):
    events = []
    agent = make("as it comes")
    reply = await agent.process_message_stream("work", events.append)
    assert reply.content == "as it comes"
    assert "".join(event["text"] for event in events if event["type"] == "delta") == "as it comes"
    assert next(event["type"] for event in events) == "thinking"


async def test_secrets_are_redacted_from_streamed_pieces(make):
    events = []
    agent = make(
        "the key is hunter2hunter2",
        redact=lambda text: text.replace("hunter2hunter2", "[redacted]"),
    )
    await agent.process_message_stream("work", events.append)
    assert "hunter2" not in str(events)
