"""A chat on the real daemon: a report is answered there, a waiting call is approved by a button."""

import pytest

from tests.acceptance.story import Vendor
from tests.fakes.telegram import ADA, GROUP, FakeTelegram

POLICY = """
version = 1
[[rule]]
tool = "shell"
argv = ["echo"]
effect = "allow"
[[rule]]
tool = "shell"
argv = ["tee", "-a", "effects.txt"]
effect = "ask"
reason = "it is appended to for good"
"""
DISKS = """
[run]
prompt = "How full are the disks?"
[[deliver]]
to = "phone"
"""
WORK = """
[run]
mode = "agent"
prompt = "Do your work."
tools = ["shell"]
[[deliver]]
to = "phone"
"""
EFFECT = {
    "tool_calls": [{"name": "shell", "arguments": {"command": "echo once | tee -a effects.txt"}}]
}
REPORT = "# Disks\n\nThe disk `/` is **91 %** full."


@pytest.fixture
async def telegram():
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
def chatting(home, telegram):
    """A home with a chat for Ada, and a routine that asks before it appends a line to a file."""
    home.write("policy.toml", POLICY)
    home.write("telegram.token", telegram.TOKEN)
    home.routine("disks", DISKS)
    home.routine("work", WORK)
    return home


async def start(home, vendor, telegram, allow=f"[{ADA}, {GROUP}]", more=""):
    home.write(
        "config.toml",
        f"""
provider = "local"
[providers.local]
kind = "open_source"
base_url = "{vendor.url}/v1"
model = "local"
[ask]
auto_route = false
[chat.phone]
kind = "telegram"
token_file = "telegram.token"
allow = {allow}
base_url = "{telegram.url}"
{more}
""",
    )
    await home.start()


def conversation_of(request):
    return [
        (message["role"], message["content"])
        for message in request.body["messages"]
        if message["role"] != "system"
    ]


async def test_a_report_is_answered_twice_and_a_call_is_approved_by_a_button(chatting, telegram):
    turns = [REPORT, "The logs fill it.", "Since Monday.", EFFECT, "It is there."]
    async with Vendor(turns) as vendor:
        await start(chatting, vendor, telegram)
        assert (await chatting.agentctl("run", "disks")).code == 0
        await telegram.until(lambda: telegram.messages)
        (report,) = telegram.messages
        assert report.chat == ADA
        assert report.text.startswith("Disks\n\nRun ")
        assert report.text.endswith("The disk / is 91 % full.")
        assert "<b>91 %</b>" in report.source

        telegram.write("what fills it?", reply_to=report.id)
        await telegram.until(lambda: "The logs fill it." in telegram.texts)
        first_answer = telegram.messages[-1]
        assert conversation_of(vendor.requests[1]) == [
            ("user", conversation_of(vendor.requests[1])[0][1]),
            ("assistant", REPORT),
            ("user", "what fills it?"),
        ]
        telegram.write("since when?", reply_to=first_answer.id)
        await telegram.until(lambda: "Since Monday." in telegram.texts)
        assert conversation_of(vendor.requests[2])[1:] == [
            ("assistant", REPORT),
            ("user", "what fills it?"),
            ("assistant", "The logs fill it."),
            ("user", "since when?"),
        ]

        telegram.write("/run work")
        await telegram.until(lambda: telegram.messages[-1].buttons)
        question = telegram.messages[-1]
        assert "echo once | tee -a effects.txt" in question.text
        press = telegram.press("Approve", message=question)
        await telegram.until(lambda: telegram.presses[press])
        assert telegram.presses[press] == "Approved."
        await telegram.until(lambda: "It is there." in telegram.texts[-1])
        await telegram.until(lambda: not question.buttons)
        assert question.text.endswith("approved by Ada (phone 4711): shell")
        assert (chatting.workspace / "effects.txt").read_text() == "once\n"

        (run,) = (await chatting.agentctl("runs", "work", "--json")).json["items"]
        inspection = await chatting.agentctl("inspect", run["id"])
        assert "Ada (phone 4711)" in inspection.out
        (answer, *_) = (await chatting.agentctl("runs", "ask", "--json")).json["items"]
        assert "since when?" in (await chatting.agentctl("inspect", answer["id"])).out
        assert not telegram.refusals
        assert not vendor.refusals


@pytest.mark.process
async def test_chat_on_postgres_loses_nothing_and_says_nothing_twice_over_kill_9(
    chatting, telegram, postgres_url
):
    turns = [REPORT, "The logs fill it.", EFFECT, "It is there.", "All is well."]
    async with Vendor(turns) as vendor:
        await start(chatting, vendor, telegram, more=f'[store]\nurl = "{postgres_url}"')
        assert (await chatting.agentctl("run", "disks")).code == 0
        await telegram.until(lambda: telegram.messages)
        await chatting.wait_for_log("delivery.arrived")
        await chatting.kill()

        (report,) = telegram.messages
        telegram.write("what fills it?", reply_to=report.id)
        await chatting.start()
        await telegram.until(lambda: "The logs fill it." in telegram.texts)
        assert conversation_of(vendor.requests[1])[1:] == [
            ("assistant", REPORT),
            ("user", "what fills it?"),
        ]
        telegram.write("/run work")
        await telegram.until(lambda: telegram.messages[-1].buttons)
        question = telegram.messages[-1]
        await chatting.wait_for_log("delivery.arrived", times=3)
        await chatting.kill()

        press = telegram.press("Approve", message=question)
        await chatting.start()
        await telegram.until(lambda: telegram.presses[press])
        assert telegram.presses[press] == "Approved."
        await telegram.until(lambda: "It is there." in telegram.texts[-1])
        await telegram.until(lambda: not question.buttons)
        assert (chatting.workspace / "effects.txt").read_text() == "once\n"
        assert await chatting.stop() == 0

        texts = telegram.texts
        await chatting.start()
        telegram.write("how is it?")
        await telegram.until(lambda: "All is well." in telegram.texts)
        assert telegram.texts == [*texts, "All is well."], "nothing is sent anew by a restart"
        assert len(vendor.requests) == len(turns)
        assert not (chatting.state / "agentd.db").exists()
        assert not telegram.refusals
        assert not vendor.refusals
    assert await chatting.stop() == 0
    assert "Traceback" not in chatting.complaints


async def test_routines_are_paused_resumed_and_run_by_commands(chatting, telegram):
    async with Vendor([]) as vendor:
        await start(chatting, vendor, telegram)
        for text in ("/pause disks 2h", "/pause work", "/status", "/resume disks", "/resume"):
            telegram.write(text)
        await telegram.until(lambda: len(telegram.messages) == 5)
        assert telegram.texts[:2] == [
            "disks is paused for 2h.",
            "work is paused until /resume work.",
        ]
        assert "2 routines." in telegram.texts[2]
        assert "Paused:\n\n• disks\n• work" in telegram.texts[2]
        assert telegram.texts[3:] == ["disks goes on.", "work go on."]


async def test_an_answer_is_shown_while_it_is_written(chatting, telegram):
    answer = "word " * 300
    async with Vendor([{"text": answer, "pause": 0.01, "piece": 100}]) as vendor:
        await start(chatting, vendor, telegram)
        telegram.write("tell me a story")
        await telegram.until(lambda: answer.strip() in telegram.texts)
        (message,) = telegram.messages
        assert len(message.texts) > 1
        assert message.texts[0].endswith("word …")
