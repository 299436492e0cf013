"""People speak to the agent: `ask` and `tell` on the real daemon, kill -9 included."""

import asyncio
import json
import signal
import sys

import pytest

from tests.acceptance.story import Vendor

POLICY = """
version = 1
[[rule]]
tool = "*"
effect = "deny"
paths = ["*.key"]
[[rule]]
tool = "file_list"
effect = "allow"
[[rule]]
tool = "subagent"
effect = "allow"
[[rule]]
tool = "shell"
argv = ["tee", "-a", "effects.txt"]
effect = "allow"
[[rule]]
tool = "shell"
argv = ["echo"]
effect = "allow"
"""
WORK = """
[run]
mode = "agent"
prompt = "Do your work."
tools = ["shell", "file_list", "subagent"]
timeout = "1m"
[[deliver]]
to = "log"
"""
EFFECT = {"name": "shell", "arguments": {"command": "echo once | tee -a effects.txt"}}


def config(vendor, extra=""):
    return f"""
provider = "local"
[providers.local]
kind = "open_source"
base_url = "{vendor.url}/v1"
model = "local"
{extra}
"""


@pytest.fixture
def spoken_to(home):
    home.write("policy.toml", POLICY)
    home.routine("work", WORK)
    return home


async def started(home, vendor, extra=""):
    home.write("config.toml", config(vendor, extra))
    await home.start()


def said(request):
    return [
        (each["role"], each["content"])
        for each in request.body["messages"]
        if each["role"] != "system"
    ]


async def test_a_conversation_goes_on_until_it_is_begun_anew(spoken_to):
    async with Vendor(["Green tea.", "You like green tea.", "I do not know."]) as vendor:
        await started(spoken_to, vendor)
        first = await spoken_to.agentctl("ask", "I", "like", "--", "--green tea")
        assert (first.code, first.out) == (0, "Green tea.\n")
        await spoken_to.agentctl("ask", "what do I like?")
        assert said(vendor.requests[1]) == [
            ("user", "I like --green tea"),
            ("assistant", "Green tea."),
            ("user", "what do I like?"),
        ]
        await spoken_to.agentctl("ask", "--new", "what do I like?")
        assert said(vendor.requests[2]) == [("user", "what do I like?")]


async def test_conversations_of_other_names_know_nothing_of_each_other(spoken_to):
    async with Vendor(["A.", "B.", "C."]) as vendor:
        await started(spoken_to, vendor)
        await spoken_to.agentctl("ask", "--session", "one", "alpha")
        await spoken_to.agentctl("ask", "--session", "one/two", "beta")
        await spoken_to.agentctl("ask", "--session", "one", "gamma")
        assert said(vendor.requests[1]) == [("user", "beta")]
        assert said(vendor.requests[2]) == [
            ("user", "alpha"),
            ("assistant", "A."),
            ("user", "gamma"),
        ]


async def test_what_a_pipe_brings_goes_to_the_model_as_it_is(spoken_to):
    text = '/help\n\n  $(date) `x` "quoted" 你好\n'
    async with Vendor(["Read."]) as vendor:
        await started(spoken_to, vendor)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "daemon.cli.main", "--socket", str(spoken_to.socket), "ask"),
            env=spoken_to.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate(text.encode())
        assert (process.returncode, out) == (0, b"Read.\n")
        assert said(vendor.requests[0]) == [("user", text)]


async def test_nothing_said_is_a_usage_error(spoken_to):
    async with Vendor() as vendor:
        await started(spoken_to, vendor)
        told = await spoken_to.agentctl("ask")
        assert told.code == 2 and "say something" in told.err


async def test_an_answer_streams_to_whoever_watches(spoken_to):
    async with Vendor([{"text": "The disks are half full.", "stream": True}]) as vendor:
        await started(spoken_to, vendor)
        begun = (await spoken_to.agentctl("ask", "--detach", "the disks?")).out.strip()
        events = [event async for event in spoken_to.watch(begun)]
        ended = next(event for event in events if event["type"] == "run_ended")
        assert ended["report"] == "The disks are half full."
        pieces = "".join(event["text"] for event in events if event["type"] == "delta")
        assert pieces in (
            "",
            "The disks are half full.",
        )  # whoever comes late has missed it, and is told the whole


async def test_a_told_run_hears_it_at_its_next_iteration(spoken_to):
    slow = {
        "text": "",
        "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}],
        "latency": 1.0,
    }
    async with Vendor([slow, "In French, then: bonjour."]) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.asked(1)
        told = await spoken_to.agentctl("tell", run, "answer in French", "--json")
        assert told.json["report"] == "In French, then: bonjour."
        roles = said(vendor.requests[1])
        assert roles[-1] == ("user", "answer in French")
        assert roles[-2][0] == "tool"
        steps = (await spoken_to.agentctl("inspect", run)).out
        assert "told by a person" in steps and "answer in French" in steps


async def test_what_is_told_while_the_last_answer_is_on_its_way_is_still_answered(spoken_to):
    async with Vendor([{"text": "Done.", "latency": 1.0}, "Done, and in French."]) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.asked(1)
        told = await spoken_to.agentctl("tell", run, "in French")
        assert told.out.strip() == "Done, and in French."


async def test_an_ended_run_is_asked_anew_with_its_report_before_it(spoken_to):
    async with Vendor(["All is well.", "Because nothing failed."]) as vendor:
        await started(spoken_to, vendor)
        ran = (await spoken_to.agentctl("run", "work", "--json")).json
        told = await spoken_to.agentctl("tell", ran["id"], "why?")
        assert told.out.strip() == "Because nothing failed."
        (task, answer, question) = said(vendor.requests[1])
        assert (
            "Do your work." in task[1]
            and answer[1] == "All is well."
            and question == ("user", "why?")
        )


async def test_a_message_goes_to_the_run_that_the_model_says_it_belongs_to(spoken_to):
    slow = {
        "text": "",
        "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}],
        "latency": 1.5,
    }
    turns = [{**slow, "when": "Do your work."}, {"text": "1", "when": "<message>"}, "Shorter."]
    async with Vendor(turns) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.asked(1)
        asked = await spoken_to.agentctl("ask", "keep it short, please")
        assert "taken as said to work" in asked.err
        assert asked.out.strip() == "Shorter."
        assert (await spoken_to.agentctl("inspect", run, "--json")).json["report"] == "Shorter."


async def test_a_model_that_is_not_sure_makes_it_a_new_run(spoken_to):
    slow = {"text": "Worked.", "latency": 2.0, "when": "Do your work."}
    async with Vendor([slow, {"text": "perhaps 1?", "when": "<message>"}, "Noon."]) as vendor:
        await started(spoken_to, vendor)
        await spoken_to.agentctl("run", "work", "--detach")
        await vendor.asked(1)
        asked = await spoken_to.agentctl("ask", "what time is it?")
        assert asked.out.strip() == "Noon."
        assert asked.err == ""


async def test_ctrl_c_cancels_the_run_and_says_so(spoken_to):
    async with Vendor([{"text": "never", "hang": True}]) as vendor:
        await started(spoken_to, vendor)
        asking = await spoken_to.spawn("agentctl", "--socket", spoken_to.socket, "ask", "slowly")
        await vendor.asked(1)
        asking.send_signal(signal.SIGINT)
        _, err = await asking.communicate()
        assert asking.returncode == 130
        assert "cancelled; run" in err.decode()
        await spoken_to.logged("run.finished", routine="ask", status="cancelled")


async def test_ctrl_c_before_the_daemon_has_answered_cancels_the_run_all_the_same(
    spoken_to, tmp_path
):
    path, held = tmp_path / "slow.sock", asyncio.Event()

    async def slow(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        size = int(request.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        behind, onwards = await asyncio.open_unix_connection(str(spoken_to.socket))
        onwards.write(request + await reader.readexactly(size))
        answer = await behind.read()
        onwards.close()
        if b"/v1/ask" in request and not held.is_set():
            held.set()
            await reader.read()  # the first answer is not there yet when the person gives up
        else:
            writer.write(answer)
        writer.close()

    async with Vendor([{"text": "never", "hang": True}]) as vendor:
        await started(spoken_to, vendor)
        async with await asyncio.start_unix_server(slow, str(path)):
            asking = await spoken_to.spawn("agentctl", "--socket", path, "ask", "slowly")
            await held.wait()
            asking.send_signal(signal.SIGINT)
            _, err = await asking.communicate()
        assert asking.returncode == 130
        assert "cancelled; run" in err.decode()
        await spoken_to.logged("run.finished", routine="ask", status="cancelled")
        assert len((await spoken_to.agentctl("runs", "--json")).json["items"]) == 1


@pytest.mark.process
async def test_kill_9_in_the_middle_of_an_answer_asks_nothing_twice(spoken_to):
    look = {"text": "", "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]}
    async with Vendor(
        ["First.", look, {"text": "never arrives", "hang": True}, "Here you are."]
    ) as vendor:
        await started(spoken_to, vendor)
        await spoken_to.agentctl("ask", "one")
        run = (await spoken_to.agentctl("ask", "--detach", "two")).out.strip()
        await vendor.asked(3)
        await spoken_to.kill()
        await spoken_to.start()
        assert (await spoken_to.until(run, "run_ended"))["report"] == "Here you are."
        assert vendor.requests[2].body["messages"] == vendor.requests[3].body["messages"]
        assert said(vendor.requests[3])[:3] == [
            ("user", "one"),
            ("assistant", "First."),
            ("user", "two"),
        ]


@pytest.mark.process
async def test_kill_9_after_a_tell_keeps_what_was_told_and_hears_it_once(spoken_to):
    async with Vendor([{"text": "never arrives", "hang": True}, "In French."]) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.asked(1)
        await spoken_to.agentctl("tell", run, "in French", "--detach")
        await spoken_to.kill()
        await spoken_to.start()
        assert (await spoken_to.until(run, "run_ended"))["report"] == "In French."
        assert [text for _, text in said(vendor.requests[1])].count("in French") == 1


async def test_the_same_message_sent_twice_is_said_once(spoken_to):
    async with Vendor(["Once."]) as vendor:
        await started(spoken_to, vendor)
        views = []
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(str(spoken_to.socket))
            body = json.dumps({"text": "hello", "event": "mine"}).encode()
            head = (
                "POST /v1/ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "
                f"{len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            views.append(json.loads((await reader.read()).partition(b"\r\n\r\n")[2]))
            writer.close()
        assert views[0]["id"] == views[1]["id"]
        await spoken_to.until(views[0]["id"], "run_ended")
        assert len(vendor.requests) == 1


async def test_what_was_said_can_be_forgotten_to_the_last_byte(spoken_to):
    slow = {
        "text": "",
        "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}],
        "latency": 1.0,
    }
    async with Vendor([slow, "It is done.", "So be it."]) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("ask", "--detach", "the word is zinnober")).out.strip()
        await vendor.asked(1)
        await spoken_to.agentctl("tell", run, "and the other is karmesin")
        await spoken_to.agentctl("ask", "go on")
        forgotten = await spoken_to.agentctl("memory", "forget", "--run", run, "--yes")
        assert forgotten.code == 0, forgotten.err
        assert await spoken_to.stop() == 0
        held = b"".join(path.read_bytes() for path in spoken_to.state.glob("agentd.db*"))
        assert b"zinnober" not in held and b"karmesin" not in held


async def test_a_sub_agent_works_for_its_parent_with_no_more_than_its_rights(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Append a line.", "tools": ["shell"]}}
    secret = {"name": "shell", "arguments": {"command": "cat my.key"}}
    turns = [
        {"tool_calls": [hand]},
        {"tool_calls": [EFFECT, secret], "when": "Append a line."},
        {"text": "Appended.", "when": "Append a line."},
        "My helper has appended it.",
    ]
    async with Vendor(turns) as vendor:
        await started(spoken_to, vendor)
        ran = (await spoken_to.agentctl("run", "work", "--json")).json
        assert (ran["status"], ran["report"]) == ("succeeded", "My helper has appended it.")
        (child,) = (await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]
        steps = (await spoken_to.agentctl("inspect", child["id"], "--json")).json["steps"]
        verdicts = [step["body"]["verdict"]["effect"] for step in steps if step["kind"] == "call"]
        assert verdicts == ["allow", "deny"]
        assert (spoken_to.workspace / "effects.txt").read_text() == "once\n"
        offered = [tool["function"]["name"] for tool in vendor.requests[1].body["tools"]]
        assert sorted(offered) == ["finish", "shell"]
        assert "Do your work." not in str(vendor.requests[1].body["messages"])


async def test_a_sub_agent_that_is_given_what_its_parent_has_not_is_not_begun(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Look it up.", "tools": ["http_request"]}}
    async with Vendor([{"tool_calls": [hand]}, "I cannot."]) as vendor:
        await started(spoken_to, vendor)
        ran = (await spoken_to.agentctl("run", "work", "--json")).json
        assert ran["report"] == "I cannot."
        assert (
            "you have no http_request to pass on"
            in vendor.requests[1].body["messages"][-1]["content"]
        )
        assert (await spoken_to.agentctl("runs", "--json")).json["items"][0]["routine"] == "work"


async def test_a_cancelled_parent_takes_its_sub_agent_with_it(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Think long."}}
    async with Vendor([{"tool_calls": [hand]}, {"text": "never", "hang": True}]) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.asked(2)
        await spoken_to.agentctl("cancel", run)
        await spoken_to.until(run, "run_ended")
        (child,) = (await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]
        assert child["status"] == "cancelled"


@pytest.mark.process
async def test_kill_9_in_a_sub_agent_goes_on_there_and_repeats_nothing(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Append a line."}}
    turns = [
        {"tool_calls": [hand]},
        {"tool_calls": [EFFECT], "when": "Append a line."},
        {"text": "never arrives", "hang": True, "when": "Append a line."},
        {"text": "Appended.", "when": "Append a line."},
        "It is done.",
    ]
    async with Vendor(turns) as vendor:
        await started(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.asked(3)
        await spoken_to.kill()
        await spoken_to.start()
        assert (await spoken_to.until(run, "run_ended"))["report"] == "It is done."
        assert (spoken_to.workspace / "effects.txt").read_text() == "once\n"
        assert len((await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]) == 1
        assert len(vendor.requests) == 5
