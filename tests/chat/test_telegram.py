"""The adapter of Telegram against a fake that refuses what Telegram refuses."""

import asyncio
import gc
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.chat.base import Button, ButtonPress, ChatFailed, ChatFile, Person, ReceivedMessage
from daemon.chat.commands import HELP
from daemon.chat.telegram import MAX_FILE, MAX_MESSAGE, TelegramChat, parse_update
from daemon.chat.telegram_html import render_telegram_html, utf16_length, visible_length
from daemon.delivery.sanitize import neutralize
from tests.fakes.telegram import ADA, BOT, GROUP, FakeTelegram, Refusal, accepts
from tests.properties import scaled_settings


@pytest.fixture
async def telegram():
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
async def chat(telegram):
    adapter = TelegramChat(telegram.TOKEN, base_url=telegram.url)
    yield adapter
    await adapter.close()


async def test_a_message_is_read_until_its_position_is_passed_on(telegram, chat):
    telegram.write("hello", reply_to=7)
    first = await chat.receive("")
    (event,) = first.events
    assert event == ReceivedMessage(
        id="1000",
        position="1001",
        person=Person(id=str(ADA), name="Ada"),
        conversation=str(ADA),
        message="1",
        text="hello",
        reply_to="7",
    )
    assert (await chat.receive("")).events == first.events, "nobody has confirmed it"
    telegram.write("again")
    second = await chat.receive(first.position)
    assert [event.text for event in second.events] == ["again"]


async def test_calls_that_begin_together_share_one_client(telegram, chat):
    await asyncio.gather(*(chat.show_typing(str(ADA)) for _ in range(3)))
    gc.collect()  # of a second client, which nobody closes: that is a warning


async def test_a_poll_asks_for_messages_and_buttons_only_and_waits_less_than_a_minute(
    telegram, chat
):
    telegram.write("hello")
    await chat.receive("")
    (poll,) = telegram.of("getUpdates")
    assert poll == {"timeout": 50, "allowed_updates": ["message", "callback_query"]}


def update(**message):
    return {
        "update_id": 5,
        "message": {
            "message_id": 3,
            "from": {"id": ADA, "is_bot": False, "first_name": "Ada"},
            "chat": {"id": ADA, "type": "private"},
            **message,
        },
    }


def parse_message(**message):
    return parse_update(update(**message), bot=str(BOT))


def test_what_is_forwarded_or_quoted_is_apart_from_the_persons_own_words():
    forward = parse_message(text="Do it!", forward_origin={"type": "user"})
    assert (forward.text, forward.quotation) == ("", "Do it!")
    for old_key in (
        {"forward_from": {"id": 6}},
        {"forward_sender_name": "Eve"},
        {"forward_date": 1},
    ):
        forward = parse_message(text="/run backup", **old_key)
        assert (forward.text, forward.quotation) == ("", "/run backup")
    by_another_bot = parse_message(text="Do it!", via_bot={"id": 1})
    assert (by_another_bot.text, by_another_bot.quotation) == ("", "Do it!")
    quote = parse_message(text="what is that?", quote={"text": "Do it!"})
    assert (quote.text, quote.quotation) == ("what is that?", "Do it!")
    of_others = parse_message(
        text="what is that?",
        reply_to_message={"message_id": 2, "from": {"id": 666}, "text": "Do it!"},
    )
    assert (of_others.text, of_others.quotation, of_others.reply_to) == (
        "what is that?",
        "Do it!",
        "2",
    )
    of_ours = parse_message(
        text="and?", reply_to_message={"message_id": 2, "from": {"id": BOT}, "text": "A report."}
    )
    assert (of_ours.text, of_ours.quotation, of_ours.reply_to) == ("and?", "", "2")


def test_files_and_pictures_are_named_not_read():
    document = {"file_id": "f", "file_name": "a.txt", "file_size": 5}
    file = parse_message(caption="see", document=document)
    assert (file.text, file.files) == ("see", (ChatFile(id="f", name="a.txt", size=5),))
    picture = parse_message(photo=[{"file_id": "p"}])
    assert picture.notes == ("What is no text is not read here: photo.",)


def test_events_that_no_person_sent_are_left_out():
    assert parse_message(text="x", **{"from": {"id": 5, "is_bot": True}}) is None
    assert parse_message(text="x", sender_chat={"id": GROUP}) is None
    assert parse_message(new_chat_members=[{"id": 1}]) is None
    assert parse_update({"update_id": 5, "channel_post": {"text": "x"}}, bot="1") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "id from chat message message_id text quote document data file_id file_size "  # noqa: SIM905
                "reply_to_message first_name caption is_bot".split()
            ),
            values,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@scaled_settings(1000)
@given(
    st.dictionaries(
        st.sampled_from(["update_id", "message", "callback_query"]), json_values, max_size=3
    )
)
def test_no_update_makes_the_parser_raise(rubbish):
    event = parse_update(rubbish, bot="99")
    if event is not None:
        assert event.position == str(int(event.id) + 1)
        assert "/" not in event.conversation + event.message + event.person.id


@scaled_settings(500)
@given(st.dictionaries(st.sampled_from(list(update(text="x")["message"])), json_values))
def test_a_message_with_rubbish_in_some_fields_does_not_raise(fields):
    parse_message(**fields)


async def test_rubbish_among_the_updates_does_not_hide_the_messages_behind_it(telegram, chat):
    for rubbish in (7, [], {"message": 5}, {"message": {"chat": []}}, {"callback_query": "x"}):
        telegram.update(rubbish)
    telegram.write("hello")
    batch = await chat.receive("")
    assert [event.text for event in batch.events] == ["hello"]
    assert batch.position == str(telegram.next_update)


async def test_a_message_arrives_with_its_formatting_and_buttons(telegram, chat):
    rows = [[Button(label="Yes", data="y" * 64), Button(label="No", data="n")]]
    id_ = await chat.send(str(ADA), "**bold** `code`\n\n- one", reply_to="5", buttons=rows)
    (message,) = telegram.messages
    assert (str(message.id), message.reply_to) == (id_, 5)
    assert message.source == "<b>bold</b> <code>code</code>\n\n• one"
    assert [button["text"] for button in message.buttons[0]] == ["Yes", "No"]
    assert telegram.of("sendMessage")[0]["link_preview_options"] == {"is_disabled": True}
    await chat.edit(str(ADA), id_, "done")
    await chat.edit(str(ADA), id_, "done")  # Telegram refuses what changes nothing
    assert (message.text, message.buttons) == ("done", [])


async def test_data_of_a_button_that_is_too_long_is_refused(telegram, chat):
    with pytest.raises(ChatFailed, match="BUTTON_DATA_INVALID") as failure:
        await chat.send(str(ADA), "x", buttons=[[Button(label="Yes", data="y" * 65)]])
    assert not failure.value.retry


async def test_a_long_text_comes_in_parts_as_utf_16_counts_them(telegram, chat):
    text = "\n\n".join("🦆" * 700 for _ in range(9))
    parts = chat.split(text)
    assert len(parts) > 1
    for part in parts:
        await chat.send(str(ADA), part)
    assert all(utf16_length(part) <= MAX_MESSAGE for part in parts)
    assert "".join(telegram.texts).count("🦆") == 6300
    assert not telegram.refusals


async def test_what_telegram_cannot_format_arrives_as_plain_text(telegram, chat):
    telegram.fail("sendMessage", Refusal(400, "Bad Request: can't parse entities: no reason"))
    await chat.send(str(ADA), "**bold**")
    assert telegram.texts == ["**bold**"]


async def test_a_short_wait_that_telegram_asks_for_is_waited(telegram, chat):
    telegram.fail("sendMessage", Refusal(429, "Too Many Requests: retry after 0", retry_after=0))
    await chat.send(str(ADA), "hello")
    assert telegram.texts == ["hello"]


async def test_a_long_wait_that_telegram_asks_for_is_told(telegram, chat):
    refusal = Refusal(429, "Too Many Requests: retry after 300", retry_after=300)
    telegram.fail("sendMessage", refusal)
    with pytest.raises(ChatFailed) as failure:
        await chat.send(str(ADA), "hello")
    assert (failure.value.retry, failure.value.after) == (True, 300.0)


@pytest.mark.parametrize(
    ("refusal", "words", "retry"),
    [
        (Refusal(500, "Internal Server Error"), "500 Internal", True),
        (Refusal(403, "Forbidden: bot was blocked by the user"), "blocked", False),
        ("<html>bad gateway</html>", "status 502 without an answer", True),
        ("reset", "sendMessage|Error", True),
    ],
)
async def test_a_failure_says_whether_trying_again_can_help(telegram, chat, refusal, words, retry):
    telegram.fail("sendMessage", refusal)
    with pytest.raises(ChatFailed, match=words) as failure:
        await chat.send(str(ADA), "hello")
    assert failure.value.retry is retry
    assert telegram.TOKEN not in str(failure.value)


async def test_a_chat_that_the_bot_does_not_know_is_refused(telegram, chat):
    with pytest.raises(ChatFailed, match="chat not found") as failure:
        await chat.send("12345", "hello")
    assert not failure.value.retry


@pytest.mark.parametrize(("token", "code"), [("99:wrong", "401"), ("nothing", "404")])
async def test_a_wrong_token_is_named(telegram, token, code):
    chat = TelegramChat(token, base_url=telegram.url)
    with pytest.raises(ChatFailed, match=f"{code} .*BotFather") as failure:
        await chat.receive("")
    assert not failure.value.retry
    await chat.close()


async def test_two_who_read_with_one_token_learn_of_it(telegram, chat):
    other = TelegramChat(telegram.TOKEN, base_url=telegram.url)
    first = asyncio.create_task(chat.receive(""))
    await telegram.until(lambda: telegram.polls)
    second = asyncio.create_task(other.receive(""))
    with pytest.raises(ChatFailed, match=r"409 .*a bot of its own for each"):
        await first
    telegram.write("hello")
    assert len((await second).events) == 1
    await other.close()


async def test_a_webhook_that_another_program_has_set_is_named(telegram, chat):
    telegram.webhook = True
    with pytest.raises(ChatFailed, match="deleteWebhook ends that"):
        await chat.receive("")


async def test_a_server_that_is_away_is_told_without_the_token(telegram, unused_address):
    chat = TelegramChat(telegram.TOKEN, base_url=f"http://{unused_address}")
    with pytest.raises(ChatFailed, match="nothing listens there") as failure:
        await chat.receive("")
    assert telegram.TOKEN not in str(failure.value)
    await chat.close()


async def test_text_files_are_read_and_others_refused(telegram, chat):
    telegram.files = {"documents/a": b"one\x1b[31m two", "documents/b": b"\xff\xfe"}
    assert await chat.read_file(ChatFile(id="a", name="a.txt", size=12)) == "one two"
    with pytest.raises(ChatFailed, match="no text in UTF-8"):
        await chat.read_file(ChatFile(id="b", name="b.bin", size=2))
    with pytest.raises(ChatFailed, match="at most 200000 are read"):
        await chat.read_file(ChatFile(id="a", name="a.txt", size=MAX_FILE + 1))
    telegram.files["documents/c"] = b"x" * (MAX_FILE + 1)  # the size that was told is not true
    with pytest.raises(ChatFailed, match="more than 200000 bytes"):
        await chat.read_file(ChatFile(id="c", name="c.txt", size=1))


async def test_the_text_of_an_error_is_not_taken_for_a_persons_file(telegram, chat):
    telegram.files, telegram.lost_files = {"documents/a": b"one"}, {"documents/a"}
    with pytest.raises(ChatFailed, match="answers with status 404") as failure:
        await chat.read_file(ChatFile(id="a", name="a.txt", size=12))
    assert not failure.value.retry


async def test_a_press_that_is_too_old_is_left_alone(telegram, chat):
    await chat.send(str(ADA), "?", buttons=[[Button(label="Yes", data="y")]])
    press = telegram.press("Yes")
    (event,) = (await chat.receive("")).events
    assert isinstance(event, ButtonPress)
    assert (event.data, event.message, event.callback_id) == ("y", "1", press)
    await chat.answer_press(event, "x" * 500)
    assert len(telegram.presses[press]) == 200
    await chat.answer_press(event, "again")


@scaled_settings(500)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=400))
def test_any_markdown_becomes_html_that_telegram_takes(markdown):
    markup = render_telegram_html(markdown)
    assert accepts(markup)
    assert visible_length(markup) >= 0


SOURCES = [
    "# T",
    "**b**",
    "*i*",
    "`c`",
    "[l](https://e.org/?a=1&b=2)",
    "<b>",
    "&lt;",
    "- x",
    "1. x",
]


@scaled_settings(500)
@given(
    st.lists(st.sampled_from([*SOURCES, "> q", "```\nc<d\n```", "\n", "\n\n", "  "]), max_size=12)
)
def test_markdown_of_all_kinds_becomes_html_that_telegram_takes(pieces):
    assert accepts(render_telegram_html("".join(pieces)))


def test_markdown_is_rendered_as_readers_of_a_chat_expect_it():
    markdown = (
        "# Title <x>\n\nOne\ntwo\n\n- a\n  - b\n\n2. x\n3. y\n\n```sh\nif a < b\n```\n\n"
        "> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[bad](javascript:x)\n"
    )
    assert render_telegram_html(markdown) == (
        "<b>Title &lt;x&gt;</b>\n\nOne\ntwo\n\n• a\n  • b\n\n2. x\n3. y\n\n"
        "<pre>if a &lt; b</pre>\n\n<blockquote>quote</blockquote>\n\n"
        "<b>a</b> | <b>b</b>\n1 | 2\n\n[bad](javascript:x)"
    )


def test_no_command_of_a_chat_can_be_tapped_in_the_report_of_a_tainted_run():
    names = re.findall(r"(?m)^/(\w+)", HELP)
    assert "resume" in names
    for name in names:
        assert f"/{name}" not in render_telegram_html(neutralize(f"tap /{name}, or send /{name}"))


@pytest.mark.slow
async def test_messages_keep_to_the_rate_that_telegram_takes():
    async with FakeTelegram(burst=6) as telegram:
        chat = TelegramChat(telegram.TOKEN, base_url=telegram.url)
        for number in range(7):
            await chat.send(str(ADA), f"message {number}")
        assert not telegram.refusals
        await chat.close()


async def test_a_command_with_any_name_is_taken_in_a_private_chat(telegram, chat):
    telegram.write("/status@former_name")
    (event,) = (await chat.receive("")).events
    assert event.text == "/status@former_name"
    assert telegram.of("getMe") == []


async def test_a_bot_that_was_renamed_hears_commands_by_its_new_name(telegram):
    chat = TelegramChat(telegram.TOKEN, base_url=telegram.url, name_seconds=0)
    telegram.write("/status@new_bot", chat=GROUP)
    batch = await chat.receive("")
    assert batch.events == []
    telegram.username = "New_bot"
    telegram.write("/status@new_bot", chat=GROUP)
    batch = await chat.receive(batch.position)
    assert [event.text for event in batch.events] == ["/status@new_bot"]
    telegram.write("/status@fake_bot", chat=GROUP)
    assert (await chat.receive(batch.position)).events == []
    await chat.close()


async def test_an_answer_that_is_no_json_object_is_refused(telegram, chat):
    telegram.fail("getUpdates", json.dumps(["x"]))
    with pytest.raises(ChatFailed, match="without an answer of the Bot API"):
        await chat.receive("")
