"""What allowed people send in a chat, and what others do not get."""

import asyncio
import json
from contextlib import suppress

import pytest

from daemon.errors import StoreFull
from daemon.models import DeliveryStatus, Status, StepKind, Taint
from daemon.store.chat_messages import ChatMessageRepository
from daemon.testing import TestApp, tool_call
from tests.acceptance.story import Vendor
from tests.fakes.telegram import ADA, EVE, GROUP, FakeTelegram, Refusal

BEN = ADA + 1
CONFIG = """
timezone = "UTC"
provider = "scripted"
[providers.scripted]
kind = "scripted"
[ask]
auto_route = false
tools = ["file_write"]
[incidents]
to = ["phone"]
[chat.phone]
kind = "telegram"
token_file = "token"
allow = {allow}
base_url = "{url}"
"""
POLICY = """
version = 1
[[rule]]
tool = "file_write"
effect = "ask"
"""
WRITE = tool_call("file_write", path="a.txt", content="a")
DISKS = """
[run]
prompt = "How full are the disks?"
[[deliver]]
to = "phone"
"""


@pytest.fixture
async def telegram():
    async with FakeTelegram() as server:
        yield server


class ChattingApp(TestApp):
    """A daemon with a chat, which reads it when the test says so."""

    __test__ = False

    @property
    def chat(self):
        return self.daemon.chat_inbound[0]

    async def take(self):
        """Read what people have sent, wait for the runs that it begins, and deliver."""
        await self.chat.receive_once()
        await self.end_runs()

    async def end_runs(self):
        """Wait for the runs under way, and deliver: there is nothing to read."""
        for run in await self.daemon.store.journal.runs.find_active():
            await self.finish(run.id)
        await self.deliver()

    async def asks(self):
        """Return the runs that answer people, oldest first."""
        return (await self.daemon.store.journal.runs.find(routine="ask"))[::-1]


@pytest.fixture
def app(tmp_path, telegram):
    telegram.people[BEN] = "Ben"
    app = ChattingApp(tmp_path, config=CONFIG.format(url=telegram.url, allow=[ADA, BEN, GROUP]))
    app.write("token", telegram.TOKEN)
    app.write("policy.toml", POLICY)
    app.write_routine("disks", DISKS)
    return app


async def test_a_message_is_answered_by_a_run_that_asks_and_the_next_one_knows_it(app, telegram):
    async with app:
        app.model.enqueue("Green tea.", "You like green tea.", "I do not know.")
        telegram.write("I like green tea")
        await app.take()
        telegram.write("what do I like?")
        await app.take()
        assert telegram.texts == ["Green tea.", "You like green tea."]
        assert [message.reply_to for message in telegram.messages] == [1, 3]
        assert "I like green tea" in str(app.model.calls[1])
        telegram.write("/new what do I like?")
        await app.take()
        turns = [message for message in app.model.calls[2].messages if message.role != "system"]
        assert [message.role for message in turns] == ["user"]


class FullChatMessages(ChatMessageRepository):
    """A repository whose disk is full."""

    def __init__(self, journal):
        super().__init__(journal._db, clock=journal._clock)
        self.attempt_event = asyncio.Event()

    async def record(self, message):
        self.attempt_event.set()
        raise StoreFull("the disk is full")


async def deliver_on_a_full_disk(app):
    """Send what is due to the chat, until the journal does not take a message that has arrived."""
    journal = app.daemon.store.journal
    repository, full = journal.chat_messages, FullChatMessages(journal)
    journal.chat_messages = full
    sending = asyncio.create_task(app.daemon.delivery.outbox.flush())
    async with asyncio.timeout(60):
        await full.attempt_event.wait()
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending
    journal.chat_messages = repository


async def test_a_message_that_arrived_is_not_sent_again_while_the_disk_is_full(app, telegram):
    async with app:
        await app.run("disks")
        for _ in range(2):
            await deliver_on_a_full_disk(app)
        assert len(telegram.messages) == 1
        (delivery,) = await app.deliver()
        assert (len(telegram.messages), delivery.status) == (1, DeliveryStatus.DELIVERED)
        assert delivery.attempts == 1


async def test_a_message_that_arrived_is_forgotten_once_its_delivery_is_dropped(app, telegram):
    async with app:
        await app.run("disks")
        await deliver_on_a_full_disk(app)
        (delivery,) = await app.daemon.store.journal.outbox.find()
        await app.daemon.store.journal.outbox.drop(delivery.id)
        await app.run("disks")
        await app.deliver()
        assert len(telegram.messages) == 2
        assert app.daemon.chats.channels["phone"]._unwritten_messages == {}


async def test_people_who_are_not_on_the_list_get_nothing(app, telegram):
    async with app:
        report = await app.run("disks")
        await app.deliver()
        requests = len(telegram.requests)
        for text in ("/start", "hello", "/run disks"):
            telegram.write(text, person=EVE)
        telegram.write("in a group", person=EVE, chat=GROUP)
        telegram.write("in a group that is not listed", person=ADA, chat=-5)
        await app.take()
        assert [name for name, _ in telegram.requests[requests:]] == ["getUpdates"]
        runs = await app.daemon.store.journal.runs.find()
        assert [run.id for run in runs] == [report.id]
        log_pairs = [(line["person"], line["conversation"]) for line in app.log("chat.ignored")]
        assert log_pairs == [(str(EVE), str(EVE)), (str(EVE), str(GROUP)), (str(ADA), "-5")]
        assert not [line for line in app.log() if "in a group" in str(line)]


async def test_a_button_pressed_by_somebody_else_changes_nothing(app, telegram):
    async with app:
        app.model.enqueue(WRITE, "Written.")
        telegram.write("write it")
        await app.take()
        press = telegram.press("Approve", person=EVE)
        await app.take()
        assert telegram.presses[press] is None
        (run,) = await app.asks()
        assert run.status is Status.WAITING


async def test_somebody_who_is_taken_off_the_list_is_not_heard_any_more(app, telegram):
    async with app:
        app.write("config.toml", CONFIG.format(url=telegram.url, allow=[EVE]))
        await app.daemon.reloader.reload()
        telegram.write("hello")
        await app.take()
        assert telegram.messages == []


async def test_reports_go_to_whom_an_edited_list_names_first(app, telegram):
    """As where a person tries with a made-up id first, and writes in the right one later."""
    async with app:
        app.write("config.toml", CONFIG.format(url=telegram.url, allow=[BEN, ADA]))
        await app.daemon.reloader.reload()
        app.model.enqueue("Half full.")
        await app.run("disks")
        await app.deliver()
        (message,) = telegram.messages
        assert message.chat == BEN


async def test_who_is_taken_off_the_list_gets_nothing_more_of_a_run_under_way(app, telegram):
    app.write_routine("notes", "[run]\nmode = 'agent'\nprompt = 'p'\ntools = ['file_write']\n")
    async with app:
        app.model.enqueue(WRITE, "It is written.")
        telegram.write("/run notes")
        await app.take()
        (question,) = [message for message in telegram.messages if message.buttons]
        requests = len(telegram.requests)
        app.write("config.toml", CONFIG.format(url=telegram.url, allow=[BEN]))
        await app.daemon.reloader.reload()
        (approval,) = await app.daemon.store.journal.approvals.find()
        await app.daemon.runs.approvals.approve(approval.id, by="Ben")
        await app.end_runs()
        report = telegram.messages[-1]
        assert (report.chat, report.reply_to) == (BEN, None)
        assert "It is written." in report.text
        chats = [parameters.get("chat_id") for _, parameters in telegram.requests[requests:]]
        assert set(chats) <= {BEN, None}
        assert question.texts == [question.text], "not even the decision is shown there"


async def test_an_answer_to_somebody_who_is_taken_off_the_list_is_for_nobody(app, telegram):
    scripted = '[providers.scripted]\nkind = "scripted"'
    async with Vendor([{"text": "A secret.", "held": True}]) as vendor:
        provider = '[providers.scripted]\nkind = "open_source"\nmodel = "m"\n'
        provider += f'base_url = "{vendor.url}/v1"'
        config = CONFIG.replace(scripted, provider)
        app.write("config.toml", config.format(url=telegram.url, allow=[ADA]))
        async with app:
            telegram.write("what is it?")
            await app.chat.receive_once()
            app.write("config.toml", config.format(url=telegram.url, allow=[BEN]))
            await app.daemon.reloader.reload()
            (run,) = await app.asks()
            finishing = asyncio.create_task(app.finish(run.id))
            await vendor.wait_for_requests(1)
            vendor.release()
            await finishing
            await app.deliver()
            assert telegram.texts == [], "no preview, no answer"
            (delivery, *_) = await app.daemon.store.journal.outbox.find_of_runs([run.id])
            assert delivery.status == "suppressed"
            assert delivery.error == (
                f"left out: {ADA} is not on the list [chat.phone] allow any more"
            )
            assert await app.daemon.store.journal.incidents.find() == []


async def test_a_report_in_parts_begins_anew_for_whom_the_list_names_now(app, telegram):
    async with app:
        app.model.enqueue("\n\n".join(f"{number} " + "x" * 900 for number in range(9)))
        await app.run("disks")
        limit = Refusal(429, "Too Many Requests: retry after 400", retry_after=400)
        telegram.fail("sendMessage", None, limit)
        await app.deliver()
        assert [message.chat for message in telegram.messages] == [ADA]
        app.write("config.toml", CONFIG.format(url=telegram.url, allow=[BEN]))
        await app.daemon.reloader.reload()
        for _ in range(2):
            app.advance(minutes=10)
            await app.deliver()
        parts = [message.text for message in telegram.messages if message.chat == BEN]
        numbers = [text.split()[0] for text in "\n\n".join(parts).split("\n\n")]
        assert [number for number in numbers if number.isdecimal()] == [str(n) for n in range(9)]


async def test_a_reload_names_the_chat_that_takes_a_restart(app, telegram):
    config = CONFIG.format(url=telegram.url, allow=[ADA])
    async with app:
        for edited, expected in (
            (config, []),
            (config.replace('token_file = "token"', 'token_file = "other"'), ["chat.phone"]),
            (config.replace("[chat.phone]", "[chat.watch]"), ["chat.watch", "chat.phone"]),
            (config, []),
        ):
            edited = edited.replace('to = ["phone"]', "to = []")
            app.write("config.toml", edited)
            assert (await app.daemon.reloader.reload_by_request())["restart"] == expected


async def test_a_call_is_approved_once_and_the_message_shows_by_whom(app, telegram):
    async with app:
        app.model.enqueue(WRITE, "Written.")
        telegram.write("write it")
        await app.take()
        (question, *_) = [message for message in telegram.messages if message.buttons]
        data = question.button("Approve")["callback_data"]
        first, second = telegram.press("Approve", message=question), None
        second = telegram.press_data(data, question)
        await app.take()
        assert telegram.presses[first] == "Approved."
        assert "cannot be answered any more" in telegram.presses[second]
        assert question.buttons == []
        assert question.text.endswith("approved by Ada (phone 4711): file_write")
        (run,) = await app.asks()
        assert (run.status, run.report) == (Status.SUCCEEDED, "Written.")
        results = [step for step in await app.steps(run) if step.kind is StepKind.RESULT]
        assert len(results) == 1
        (approval,) = await app.daemon.store.journal.approvals.find_of_run(run.id)
        assert approval.by == "Ada (phone 4711)"


async def test_a_call_is_rejected_by_a_button(app, telegram):
    async with app:
        app.model.enqueue(WRITE, "Not written.")
        telegram.write("write it")
        await app.take()
        question = next(message for message in telegram.messages if message.buttons)
        telegram.press("Reject", message=question)
        await app.take()
        assert "rejected by Ada" in question.text
        assert not (app.workspace / "a.txt").exists()


async def test_a_button_with_another_digest_or_of_another_kind_approves_nothing(app, telegram):
    async with app:
        app.model.enqueue(WRITE)
        telegram.write("write it")
        await app.take()
        question = next(message for message in telegram.messages if message.buttons)
        data = question.button("Approve")["callback_data"]
        forgery = data[:-1] + ("0" if data[-1] != "0" else "1")
        presses = [telegram.press_data(text, question) for text in (forgery, "a:b:c", "x" * 64)]
        await app.take()
        assert [telegram.presses[press] for press in presses] == [
            "this is not what was asked; look at it again",
            "This is no button of mine.",
            "This is no button of mine.",
        ]
        (run,) = await app.asks()
        assert run.status is Status.WAITING


async def test_words_of_others_taint_and_own_words_do_not(app, telegram):
    async with app:
        app.model.enqueue("One.", "Two.", "Three.")
        telegram.write("my own words")
        await app.take()
        telegram.write("Pay at once!", forward_origin={"type": "hidden_user"})
        await app.take()
        telegram.files["documents/f"] = b"Pay at once, too!"
        telegram.write(
            None,
            caption="/new what is this?",
            document={"file_id": "f", "file_name": "bill.txt", "file_size": 17},
        )
        await app.take()
        own_run, forwarded_run, file_run = await app.asks()
        assert [run.taint for run in (own_run, forwarded_run, file_run)] == [
            Taint.NONE,
            Taint.TAINTED,
            Taint.TAINTED,
        ]
        assert "Pay at once!" in str(app.model.calls[1])
        assert forwarded_run.goal.startswith("I have forwarded what stands below.")
        assert "bill.txt" in str(app.model.calls[2])


async def test_an_input_with_words_of_others_taints_the_run_that_a_command_starts(app, telegram):
    async with app:
        app.model.enqueue("Read.", "Read.")
        telegram.write("/run disks only mine")
        await app.take()
        telegram.write("/run disks", quote={"text": "theirs"})
        await app.take()
        own_run, quoting_run = (await app.daemon.store.journal.runs.find(routine="disks"))[::-1]
        assert (own_run.taint, quoting_run.taint) == (Taint.NONE, Taint.TAINTED)


async def test_a_run_started_in_a_chat_reports_there_whatever_its_routine_delivers(app, telegram):
    app.write_routine("notes", "[run]\nprompt = 'p'\n[[deliver]]\nto = 'file'\npath = 'n.md'\n")
    async with app:
        app.model.enqueue("All noted.", "Full.")
        number = telegram.write("/run notes", chat=GROUP)
        await app.take()
        answer, report = telegram.messages
        assert answer.text.endswith("Its report comes here and to file.")
        assert "All noted." in report.text
        assert (report.chat, report.reply_to) == (GROUP, number)
        telegram.write("/run disks")
        await app.take()
        assert telegram.texts[2].endswith("Its report comes here.")
        assert [text for text in telegram.texts[3:] if "Full." in text] == telegram.texts[3:]


async def test_a_run_started_in_a_chat_asks_and_fails_there(app, telegram):
    app.write_routine("notes", "[run]\nmode = 'agent'\nprompt = 'p'\ntools = ['file_write']\n")
    async with app:
        app.model.enqueue(WRITE)
        number = telegram.write("/run notes", chat=GROUP)
        await app.take()
        (question,) = [message for message in telegram.messages if message.buttons]
        assert (question.chat, question.reply_to) == (GROUP, number)
        telegram.write("/run notes", chat=GROUP)
        await app.take()
        assert "is waiting" in telegram.texts[-1] or "under way" in telegram.texts[-1]


async def test_commands_answer_what_they_did_or_what_is_wrong(app, telegram):
    async with app:
        texts = ("/status", "/resume", "/help", "/pause", "/pause nosuch", "/pause disks soon")
        for text in texts[:5]:
            telegram.write(text)
        # in a conversation of its own: Telegram takes five messages of one at once
        for text in (texts[5], "/nothing", "/run nosuch", "/run", "/new"):
            telegram.write(text, person=BEN)
        telegram.write("/status@fake_bot", chat=GROUP)
        await app.take()
        assert telegram.texts[:2] == ["1 routines.", "Nothing is paused."]
        assert "/run NAME" in telegram.texts[2]
        assert telegram.texts[3] == "which routine? /pause NAME"
        assert "nosuch" in telegram.texts[4]
        assert telegram.texts[5].startswith("for how long? expected a duration")
        assert telegram.texts[6] == "there is no command /nothing; /help lists those there are"
        assert "nosuch" in telegram.texts[7]
        assert telegram.texts[8:10] == ["which routine? /run NAME", "Say something behind /new."]
        assert (telegram.messages[10].chat, telegram.texts[10]) == (GROUP, "1 routines.")
        assert await app.asks() == []


async def test_a_command_is_read_as_a_phone_writes_it(app, telegram):
    async with app:
        app.model.enqueue("Full.")
        telegram.write("/pause Disks\n2h")
        await app.take()
        telegram.write("/resume Disks")
        await app.take()
        telegram.write("/run Disks\nin two lines\nplease")
        await app.take()
        assert telegram.texts[:2] == ["disks is paused for 2h.", "disks goes on."]
        (run,) = await app.daemon.store.journal.runs.find(routine="disks")
        run_input = await app.daemon.store.journal.runs.get_input(run.id)
        assert "in two lines\nplease" in str(run_input["text"])


async def test_a_command_for_another_bot_of_a_group_is_left_to_it(app, telegram):
    async with app:
        for name in ("other_bot", "FAKE_bot", "other_bot"):
            telegram.write(f"/status@{name}", chat=GROUP)
            await app.take()
        assert telegram.texts == ["1 routines."]
        assert len(telegram.of("getMe")) == 1
        assert await app.asks() == []


async def test_a_message_is_handled_once_however_often_it_is_delivered(app, telegram):
    async with app:
        app.model.enqueue("One.")
        number = telegram.write("hello")
        await app.take()
        telegram.update(  # the same one again, as after a lost confirmation
            {
                "message": {
                    "message_id": number,
                    "from": {"id": ADA, "is_bot": False, "first_name": "Ada"},
                    "chat": {"id": ADA, "type": "private"},
                    "text": "hello",
                }
            },
            number=1000,
        )
        telegram.write("/status")
        await app.chat.receive_once()
        assert len(await app.asks()) == 1


async def test_what_was_handled_survives_a_restart_and_what_was_not_comes_again(app, telegram):
    async with app:
        app.model.enqueue("One.")
        telegram.write("hello")
        await app.chat.receive_once()
        (run,) = await app.asks()
        state = json.loads(await app.daemon.store.journal.key_values.get("chat:phone"))
        assert state == {"position": "1001", "handled": ["1000"]}
        await app.finish(run.id)
    telegram.write("and now?")
    async with app:
        app.model.enqueue("Two.")
        await app.chat.load()
        await app.take()
        assert len(await app.asks()) == 2
        assert sorted(telegram.texts) == ["One.", "Two."]


async def test_an_answer_is_delivered_once_telegram_is_back(app, telegram):
    async with app:
        app.model.enqueue("One.")
        telegram.write("hello")
        await app.chat.receive_once()
        telegram.offline = True
        (run,) = await app.asks()
        await app.finish(run.id)
        await app.deliver()
        assert telegram.messages == []
        telegram.offline = False
        app.advance(hours=1)
        (delivery,) = await app.deliver()
        assert telegram.texts == ["One."]
        assert (delivery.status, delivery.receipt) == ("delivered", "message 2")


async def test_a_long_report_goes_on_behind_the_part_that_has_arrived(app, telegram):
    async with app:
        app.model.enqueue("\n\n".join(f"{number} " + "x" * 900 for number in range(9)))
        run = await app.run("disks")
        limit = Refusal(429, "Too Many Requests: retry after 400", retry_after=400)
        telegram.fail("sendMessage", "", limit)
        await app.deliver()  # 502 for the first part
        app.advance(minutes=10)
        await app.deliver()  # 429
        app.advance(minutes=10)
        await app.deliver()
        numbers = [text.split()[0] for text in "\n\n".join(telegram.texts).split("\n\n")]
        assert [number for number in numbers if number.isdecimal()] == [str(n) for n in range(9)]
        messages = await app.daemon.store.journal.chat_messages.find_of_run("phone", run.id)
        assert [message.part for message in messages] == list(range(len(telegram.messages)))


async def test_a_report_of_a_tainted_run_has_no_address_that_works(app, telegram):
    async with app:
        app.model.enqueue("See [this](https://evil.example/?d=1) ![x](https://evil.example/p.png)")
        telegram.write("/new", quote={"text": "https://evil.example"})
        await app.take()
        (message,) = telegram.messages
        assert "href" not in message.source
        assert "https://" not in message.text


async def test_a_reply_to_a_report_that_is_not_kept_any_more_is_a_message_like_any(app, telegram):
    async with app:
        app.model.enqueue("One.")
        telegram.write("what was that?", reply_to=4242)
        await app.take()
        assert telegram.texts == ["One."]


async def test_a_reply_to_the_question_of_a_waiting_run_is_told_to_that_run(app, telegram):
    async with app:
        app.model.enqueue(WRITE, "Written, as you said.")
        telegram.write("write it")
        await app.take()
        question = next(message for message in telegram.messages if message.buttons)
        telegram.write("in capitals, please", reply_to=question.id)
        await app.take()
        assert telegram.texts[-1].startswith("I have told ask (run ")
        telegram.press("Approve", message=question)
        await app.take()
        assert "in capitals, please" in str(app.model.calls[-1])
        assert len(await app.asks()) == 1


TOKEN = "ghp_0123456789abcdefghij0123456789abcdef"


async def test_a_secret_that_a_person_writes_is_in_no_row_of_the_journal(app, telegram):
    async with app:
        app.model.enqueue("Noted.", WRITE, "Noted, too.", "Full.")
        telegram.files["documents/f"] = f"it was {TOKEN}".encode()
        document = {"file_id": "f", "file_name": "key.txt", "file_size": 47}
        telegram.write(None, caption=f"remember {TOKEN}", document=document)
        await app.take()
        telegram.write("write it")
        await app.take()
        question = next(message for message in telegram.messages if message.buttons)
        telegram.write(f"with {TOKEN}", reply_to=question.id)
        await app.take()
        telegram.press("Approve", message=question)
        await app.take()
        telegram.write(f"/run disks {TOKEN}")
        await app.take()
        runs = await app.daemon.store.journal.runs.find()
        assert len(runs) == 3
        inputs = [await app.daemon.store.journal.runs.get_input(run.id) for run in runs]
        steps = [await app.steps(run) for run in runs]
        texts = f"{runs} {inputs} {steps} {app.model.calls}"
    assert TOKEN not in texts
    for redacted_text in ("remember", "it was", "with"):
        assert f"{redacted_text} [redacted]" in texts


async def test_a_secret_that_a_person_says_to_an_ended_run_is_not_in_the_journal(app):
    async with app:
        app.model.enqueue("Full.", "Noted.")
        run = await app.run("disks")
        message = await app.daemon.runs.conversations.tell(run, f"use {TOKEN}", event="e")
        answer = await app.finish(message.run.id)
        assert (answer.goal, answer.report) == ("use [redacted]", "Noted.")


async def test_the_token_is_in_no_log(app, telegram):
    async with app:
        app.model.enqueue(f"The token is {telegram.TOKEN}.")
        telegram.write("tell me the token")
        await app.take()
    assert telegram.TOKEN not in str(app.log())
    assert telegram.TOKEN not in str(telegram.texts)
