"""The targets of a routine get the reminder of a call that waits, and the word that nobody
answered, each once over restarts.
"""

from __future__ import annotations

import json
from pathlib import Path

from daemon.models import Status
from daemon.testing import FakeClock, TestApp
from tests.delivery.receivers import Mailbox, Receiver

CONFIG = """
timezone = "Europe/Berlin"
provider = "scripted"
[providers.scripted]
kind = "scripted"
replies = [{ tool_calls = [{ name = "file_write", arguments = { path = "a.md", content = "x" } }] }]
[targets.hook]
kind = "webhook"
url = "HOOK"
[targets.mail]
kind = "mail"
url = "MAIL"
"""
ROUTINE = """
[run]
prompt = "Work."
mode = "agent"
tools = ["file_write"]
[[deliver]]
to = "hook"
[[deliver]]
to = "mail"
[[deliver]]
to = "log"
"""
POLICY = 'version = 1\n[[rule]]\ntool = "file_write"\neffect = "ask"\n'


async def start_and_stop(app: TestApp) -> None:
    """Start the daemon on what is in its folder, let it do what is due, and stop it."""
    async with app:
        await app.daemon.runs.approvals.handle_due()
        await app.daemon.delivery.outbox.flush()


async def test_a_webhook_and_a_mailbox_get_question_reminder_and_expiry_once(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with Receiver().open() as hook, Mailbox().open() as box:
        config = CONFIG.replace("HOOK", hook.url).replace("MAIL", box.url)
        app = TestApp(tmp_path, config=config, clock=clock)
        app.write("policy.toml", POLICY)
        app.write_routine("work", ROUTINE)
        async with app:
            run = await app.run("work")
            assert run.status is Status.WAITING
            (approval,) = await app.daemon.store.journal.approvals.find()
            await app.daemon.delivery.outbox.flush()
        for hours in (17, 1, 5, 1, 1):
            clock.advance(hours=hours)
            await start_and_stop(app)

        # The run goes on without the call and fails, as its model has no other answer: that may be
        # told before the last stop.
        messages = [json.loads(post.body) for post in hook.posts]
        messages = [message for message in messages if message["type"] != "run.failed"]
        assert [message["type"] for message in messages] == [
            "approval.asked",
            "approval.reminder",
            "approval.expired",
        ]
        assert {message["data"]["run"] for message in messages} == {run.id}
        _, reminder, expiry = (message["data"]["report"] for message in messages)
        assert f"agentctl approve {approval.id}" in reminder
        assert "Without an answer by 2026-11-21 13:00 CET" in reminder
        assert "the call was not made" in expiry and "path = 'a.md'" in expiry
        subjects = [mail["subject"].partition("] ")[2] for mail in box.mails]
        assert [subject for subject in subjects if "failed" not in subject] == [
            "work waits for your approval",
            "work still waits for your approval",
            "work was not allowed a call in time",
        ]


async def test_an_answer_in_time_sends_nothing_more(tmp_path: Path) -> None:
    clock = FakeClock()
    async with Receiver().open() as hook, Mailbox().open() as box:
        config = CONFIG.replace("HOOK", hook.url).replace("MAIL", box.url)
        app = TestApp(tmp_path, config=config, clock=clock)
        app.write("policy.toml", POLICY)
        app.write_routine("work", ROUTINE)
        async with app:
            assert (await app.run("work")).status is Status.WAITING
            (approval,) = await app.daemon.store.journal.approvals.find()
            clock.advance(hours=17)
            await app.daemon.runs.approvals.reject(approval.id, by="uid 1000")
        for _ in range(3):
            clock.advance(hours=4)
            await start_and_stop(app)
        assert hook.posts == [] and box.mails == []
