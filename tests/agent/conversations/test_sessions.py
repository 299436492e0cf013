"""Conversations: which earlier turns the model sees, and how older turns are summarized."""

import pytest

from daemon.agent.conversations.conversations import find_run_of_message
from daemon.agent.conversations.sessions import (
    MAX_MESSAGE_CHARACTERS,
    MAX_TURNS,
    TURNS_PER_SUMMARY,
    SessionHistory,
)
from daemon.models import Status, Taint
from daemon.providers import create_provider
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database


class Shelf:
    """A memory that keeps what it is given."""

    def __init__(self):
        self.contents = {}

    async def store(self, key, content, **about):
        self.contents[key] = content


class Chat:
    """A journal with a conversation in it."""

    def __init__(self, db):
        self.clock = FakeClock()
        self.journal, self.memory = Journal(db, clock=self.clock.now), Shelf()
        self.sessions = SessionHistory(self.journal, self.memory, routine="ask", language="en")
        self.count = 0

    async def turn(
        self, message="hi", answer="hello", session="s", status=Status.SUCCEEDED, taint=Taint.NONE
    ):
        self.count += 1
        self.clock.advance(minutes=1)
        claim = Claim(
            routine="ask",
            definition="{}",
            trigger="ask",
            slot=self.clock.now(),
            goal=message,
            event=f"{session}/{self.count}",
        )
        (run,) = await self.journal.slots.claim([claim])
        if answer is not None:
            claimed_run = await self.journal.runs.claim(run.id, owner="me")
            await self.journal.runs.end(
                claimed_run.to(status, ended=self.clock.now(), report=answer, taint=taint)
            )
        return run

    async def history(self, run, provider=None, session="s"):
        return [
            (m.role, m.content)
            for m in (await self.sessions.load_earlier_turns(session, run, provider)).messages
        ]


@pytest.fixture
async def chat(tmp_path):
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield Chat(database)
    await database.close()


async def test_history_holds_answered_turns_in_order(chat):
    await chat.turn("one", "1")
    await chat.turn("never answered", None)
    await chat.turn("cancelled", "x", status=Status.CANCELLED)
    await chat.turn("two", "2")
    now = await chat.turn("three", None)
    assert await chat.history(now) == [
        ("user", "one"),
        ("assistant", "1"),
        ("user", "two"),
        ("assistant", "2"),
    ]


async def test_untrusted_text_of_one_turn_taints_the_next_turn(chat):
    await chat.turn("read the web", "it says…", taint=Taint.TAINTED)
    now = await chat.turn("and now?", None)
    assert (await chat.sessions.load_earlier_turns("s", now, None)).tainted
    await chat.sessions.start_over("s", now.id)
    clean = await chat.turn("fresh", None)
    assert not (await chat.sessions.load_earlier_turns("s", clean, None)).tainted


async def test_session_names_with_a_common_prefix_are_separate_conversations(chat):
    await chat.turn("mine", "1", session="s")
    await chat.turn("not mine", "2", session="s2")
    await chat.turn("nor this", "3", session="s-")
    now = await chat.turn("now", None)
    assert await chat.history(now) == [("user", "mine"), ("assistant", "1")]


async def test_reset_conversation_forgets_all_earlier_turns(chat):
    before = await chat.turn("old", "1")
    await chat.sessions.start_over("s", before.id)
    await chat.turn("new", "2")
    now = await chat.turn("now", None)
    assert await chat.history(now) == [("user", "new"), ("assistant", "2")]


async def test_many_failed_attempts_hide_no_earlier_turn(chat):
    await chat.turn("my name is Ada", "hello, Ada")
    for _ in range(2 * MAX_TURNS + 1):
        await chat.turn("what is my name?", "", status=Status.FAILED)
    now = await chat.turn("and now?", None)
    assert await chat.history(now) == [("user", "my name is Ada"), ("assistant", "hello, Ada")]


async def test_a_long_conversation_is_summed_up_and_the_summary_remembered(chat):
    for number in range(MAX_TURNS):
        await chat.turn(f"question {number}", f"answer {number}")
    now = await chat.turn("now", None)
    model = create_provider("scripted", replies=["They asked ten things."])
    messages = await chat.history(now, model)
    assert len(messages) <= 2 * MAX_TURNS
    assert messages[0] == (
        "user",
        "[Earlier in this conversation, summed up:]\nThey asked ten things.",
    )
    assert messages[1][0] == "assistant"
    assert messages[2] == ("user", f"question {TURNS_PER_SUMMARY}")
    assert chat.memory.contents == {"conversation:s": "They asked ten things."}
    assert "question 0" in model.calls[0].messages[1].content
    assert await chat.history(now, model) == messages, "the summary is kept; nobody is asked again"


async def test_summary_without_a_model_quotes_the_beginning_of_each_message(chat):
    for number in range(MAX_TURNS):
        await chat.turn(f"question {number}", f"answer {number}")
    now = await chat.turn("now", None)
    messages = await chat.history(now)
    assert "user: question 0" in messages[0][1] and "assistant: answer 0" in messages[0][1]
    assert len(messages) <= 2 * MAX_TURNS


async def test_failed_summary_loses_no_turn(chat):
    for number in range(MAX_TURNS):
        await chat.turn(f"question {number}", f"answer {number}")
    now = await chat.turn("now", None)
    messages = await chat.history(now, create_provider("scripted", replies=[]))
    assert "question 0" in messages[0][1]


async def test_very_long_message_is_cut_with_a_note(chat):
    await chat.turn("x" * (MAX_MESSAGE_CHARACTERS * 2), "short")
    now = await chat.turn("now", None)
    ((_, cut), _) = await chat.history(now)
    assert len(cut) < MAX_MESSAGE_CHARACTERS + 50 and "[… cut …]" in cut


@pytest.mark.parametrize(
    "answer", ["new", "", "3", "0", "1 or 2", "the first one", "-1", "1. because"]
)
async def test_answer_that_is_no_run_number_matches_no_run(chat, answer):
    runs = [await chat.turn("a", None), await chat.turn("b", None)]
    model = create_provider("scripted", replies=[answer])
    assert await find_run_of_message("hello", runs, model, "en") is None


@pytest.mark.parametrize("answer", ["2", " 2.\n", "[2]"])
async def test_answer_with_a_run_number_matches_that_run(chat, answer):
    runs = [await chat.turn("a", None), await chat.turn("b", None)]
    assert (
        await find_run_of_message(
            "hello", runs, create_provider("scripted", replies=[answer]), "zh"
        )
        == runs[1]
    )


async def test_no_match_without_runs_or_without_a_model(chat):
    model = create_provider("scripted", replies=["1"])
    assert await find_run_of_message("hello", [], model, "en") is None
    runs = [await chat.turn("a", None)]
    assert await find_run_of_message("hello", runs, create_provider("offline"), "en") is None
    assert (
        await find_run_of_message("hello", runs, create_provider("scripted", replies=[]), "en")
        is None
    )
    assert model.calls == []
