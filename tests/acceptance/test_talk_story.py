"""Conversations with the agent: `ask` and `tell` on the real daemon, kill -9 included."""

import asyncio
import json
import signal
import sqlite3
import sys
from contextlib import closing

import pytest

from daemon.testing import TestApp
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


async def start_home(home, vendor, extra=""):
    home.write("config.toml", config(vendor, extra))
    await home.start()


def conversation_of(request):
    return [
        (message["role"], message["content"])
        for message in request.body["messages"]
        if message["role"] != "system"
    ]


async def test_ask_continues_the_conversation_until_new_begins_another(spoken_to):
    async with Vendor(["Green tea.", "You like green tea.", "I do not know."]) as vendor:
        await start_home(spoken_to, vendor)
        first = await spoken_to.agentctl("ask", "I", "like", "--", "--green tea")
        assert (first.code, first.out) == (0, "Green tea.\n")
        await spoken_to.agentctl("ask", "what do I like?")
        assert conversation_of(vendor.requests[1]) == [
            ("user", "I like --green tea"),
            ("assistant", "Green tea."),
            ("user", "what do I like?"),
        ]
        await spoken_to.agentctl("ask", "--new", "what do I like?")
        assert conversation_of(vendor.requests[2]) == [("user", "what do I like?")]


async def test_conversations_of_different_sessions_are_separate(spoken_to):
    async with Vendor(["A.", "B.", "C."]) as vendor:
        await start_home(spoken_to, vendor)
        await spoken_to.agentctl("ask", "--session", "one", "alpha")
        await spoken_to.agentctl("ask", "--session", "one/two", "beta")
        await spoken_to.agentctl("ask", "--session", "one", "gamma")
        assert conversation_of(vendor.requests[1]) == [("user", "beta")]
        assert conversation_of(vendor.requests[2]) == [
            ("user", "alpha"),
            ("assistant", "A."),
            ("user", "gamma"),
        ]


async def test_ask_sends_standard_input_to_the_model_unchanged(spoken_to):
    text = '/help\n\n  $(date) `x` "quoted" 你好\n'
    async with Vendor(["Read."]) as vendor:
        await start_home(spoken_to, vendor)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "daemon.cli.main", "--socket", str(spoken_to.socket), "ask"),
            env=spoken_to.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate(text.encode())
        assert (process.returncode, out) == (0, b"Read.\n")
        assert conversation_of(vendor.requests[0]) == [("user", text)]


async def test_ask_without_text_is_a_usage_error(spoken_to):
    async with Vendor() as vendor:
        await start_home(spoken_to, vendor)
        result = await spoken_to.agentctl("ask")
        assert result.code == 2 and "say something" in result.err


async def test_an_answer_is_streamed_to_watchers(spoken_to):
    async with Vendor([{"text": "The disks are half full.", "stream": True}]) as vendor:
        await start_home(spoken_to, vendor)
        run_id = (await spoken_to.agentctl("ask", "--detach", "the disks?")).out.strip()
        events = [event async for event in spoken_to.watch(run_id)]
        ended_event = next(event for event in events if event["type"] == "run_ended")
        assert ended_event["report"] == "The disks are half full."
        pieces = "".join(event["text"] for event in events if event["type"] == "delta")
        # whoever comes late has missed it, and is told the whole
        assert pieces in (
            "",
            "The disks are half full.",
        )


async def test_tell_adds_a_user_message_to_the_next_model_call(spoken_to):
    slow = {
        "text": "",
        "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}],
        "held": True,
    }
    async with Vendor([slow, "In French, then: bonjour."]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        await spoken_to.agentctl("tell", run, "answer in French", "--detach")
        vendor.release()
        ended_event = await spoken_to.until(run, "run_ended")
        assert ended_event["report"] == "In French, then: bonjour."
        roles = conversation_of(vendor.requests[1])
        assert roles[-1] == ("user", "answer in French")
        assert roles[-2][0] == "tool"
        steps = (await spoken_to.agentctl("inspect", run)).out
        assert "told by a person" in steps and "answer in French" in steps


async def test_tell_during_the_final_model_call_is_still_answered(spoken_to):
    async with Vendor([{"text": "Done.", "held": True}, "Done, and in French."]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        await spoken_to.agentctl("tell", run, "in French", "--detach")
        vendor.release()
        ended_event = await spoken_to.until(run, "run_ended")
        assert ended_event["report"] == "Done, and in French."


async def test_a_message_that_a_killed_daemon_left_unanswered_is_answered_once(spoken_to):
    async with Vendor(["Done.", "Done, and in French."]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--json")).json
        await spoken_to.stop()
        with closing(sqlite3.connect(spoken_to.state / "agentd.db")) as database:
            (ended,) = database.execute("SELECT ended FROM run").fetchone()
            # it came while the run was under way, and the daemon died when that had ended
            values = (run["id"], "e", "And in French.", ended - 1)
            database.execute(
                "INSERT INTO told (run_id, event, text, at) VALUES (?, ?, ?, ?)", values
            )
            database.commit()
        for _ in range(2):
            await spoken_to.start()
            (answer,) = (await spoken_to.agentctl("runs", "ask", "--json")).json["items"]
            if not answer["ended"]:
                await spoken_to.until(answer["id"], "run_ended")
            await spoken_to.stop()
        assert vendor.requests[-1].body["messages"][-1]["content"] == "And in French."
        assert len(vendor.requests) == 2


async def test_tell_to_an_ended_run_starts_a_new_run_with_the_earlier_report(spoken_to):
    async with Vendor(["All is well.", "Because nothing failed."]) as vendor:
        await start_home(spoken_to, vendor)
        run_view = (await spoken_to.agentctl("run", "work", "--json")).json
        result = await spoken_to.agentctl("tell", run_view["id"], "why?")
        assert result.out.strip() == "Because nothing failed."
        (task, answer, question) = conversation_of(vendor.requests[1])
        assert (
            "Do your work." in task[1]
            and answer[1] == "All is well."
            and question == ("user", "why?")
        )


async def test_ask_goes_to_the_running_run_that_the_model_names(spoken_to):
    slow = {
        "text": "",
        "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}],
        "held": True,
    }
    turns = [{**slow, "when": "Do your work."}, {"text": "1", "when": "<message>"}, "Shorter."]
    async with Vendor(turns) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        words = ("ask", "keep it short, please")
        asking = await spoken_to.spawn("agentctl", "--socket", spoken_to.socket, *words)
        assert b"taken as said to work" in await asking.stderr.readline()
        vendor.release()
        out, _ = await asking.communicate()
        assert out.decode().strip() == "Shorter."
        assert (await spoken_to.agentctl("inspect", run, "--json")).json["report"] == "Shorter."


async def test_ask_starts_a_new_run_if_the_model_is_not_sure(spoken_to):
    slow = {"text": "Worked.", "held": True, "when": "Do your work."}
    async with Vendor([slow, {"text": "perhaps 1?", "when": "<message>"}, "Noon."]) as vendor:
        await start_home(spoken_to, vendor)
        await spoken_to.agentctl("run", "work", "--detach")
        await vendor.wait_for_requests(1)
        result = await spoken_to.agentctl("ask", "what time is it?")
        assert result.out.strip() == "Noon."
        assert result.err == ""


async def test_ctrl_c_during_ask_cancels_the_run_and_reports_it(spoken_to):
    async with Vendor([{"text": "never", "hang": True}]) as vendor:
        await start_home(spoken_to, vendor)
        asking = await spoken_to.spawn("agentctl", "--socket", spoken_to.socket, "ask", "slowly")
        await vendor.wait_for_requests(1)
        asking.send_signal(signal.SIGINT)
        _, err = await asking.communicate()
        assert asking.returncode == 130
        assert "cancelled; run" in err.decode()
        await spoken_to.wait_for_log("run.finished", routine="ask", status="cancelled")


async def test_ctrl_c_before_the_first_answer_of_the_daemon_cancels_the_run(spoken_to, tmp_path):
    path, is_held = tmp_path / "slow.sock", asyncio.Event()

    async def slow(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        size = int(request.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        behind, onwards = await asyncio.open_unix_connection(str(spoken_to.socket))
        onwards.write(request + await reader.readexactly(size))
        answer = await behind.read()
        onwards.close()
        if b"/v1/ask" in request and not is_held.is_set():
            is_held.set()
            await reader.read()  # the first answer is not there yet when the person gives up
        else:
            writer.write(answer)
        writer.close()

    async with Vendor([{"text": "never", "hang": True}]) as vendor:
        await start_home(spoken_to, vendor)
        async with await asyncio.start_unix_server(slow, str(path)):
            asking = await spoken_to.spawn("agentctl", "--socket", path, "ask", "slowly")
            await is_held.wait()
            asking.send_signal(signal.SIGINT)
            _, err = await asking.communicate()
        assert asking.returncode == 130
        assert "cancelled; run" in err.decode()
        await spoken_to.wait_for_log("run.finished", routine="ask", status="cancelled")
        assert len((await spoken_to.agentctl("runs", "--json")).json["items"]) == 1


@pytest.mark.process
async def test_kill_9_during_a_conversation_repeats_no_tool_call_and_no_message(spoken_to):
    look = {"text": "", "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]}
    async with Vendor(
        ["First.", look, {"text": "never arrives", "hang": True}, "Here you are."]
    ) as vendor:
        await start_home(spoken_to, vendor)
        await spoken_to.agentctl("ask", "one")
        run = (await spoken_to.agentctl("ask", "--detach", "two")).out.strip()
        await vendor.wait_for_requests(3)
        await spoken_to.kill()
        await spoken_to.start()
        assert (await spoken_to.until(run, "run_ended"))["report"] == "Here you are."
        assert vendor.requests[2].body["messages"] == vendor.requests[3].body["messages"]
        assert conversation_of(vendor.requests[3])[:3] == [
            ("user", "one"),
            ("assistant", "First."),
            ("user", "two"),
        ]


@pytest.mark.process
async def test_kill_9_after_tell_keeps_the_user_message_exactly_once(spoken_to):
    async with Vendor([{"text": "never arrives", "hang": True}, "In French."]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        await spoken_to.agentctl("tell", run, "in French", "--detach")
        await spoken_to.kill()
        await spoken_to.start()
        assert (await spoken_to.until(run, "run_ended"))["report"] == "In French."
        assert [text for _, text in conversation_of(vendor.requests[1])].count("in French") == 1


async def post(home, path, **fields):
    reader, writer = await asyncio.open_unix_connection(str(home.socket))
    body = json.dumps(fields).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "
        f"{len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
    writer.close()
    return answer


async def test_the_same_ask_event_sent_twice_goes_to_one_running_run_and_is_known_there(spoken_to):
    work = {"text": "Worked.", "held": True, "when": "Do your work."}
    async with Vendor([work, {"text": "1", "when": "<message>"}, "Shorter."]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        for _ in range(2):
            view = await post(spoken_to, "/v1/ask", text="keep it short", event="mine")
            assert (view["id"], view["new"]) == (run, False)
        withdrawn = await post(spoken_to, "/v1/ask/withdraw", event="mine")
        assert withdrawn == {"run": run, "new": False}
        vendor.release()
        await spoken_to.until(run, "run_ended")
        assert len(vendor.requests) == 3, "the model was asked once whose message it is"


async def test_the_same_ask_event_sent_twice_starts_one_run(spoken_to):
    async with Vendor(["Once."]) as vendor:
        await start_home(spoken_to, vendor)
        views = [await post(spoken_to, "/v1/ask", text="hello", event="mine") for _ in range(2)]
        assert views[0]["id"] == views[1]["id"]
        await spoken_to.until(views[0]["id"], "run_ended")
        assert len(vendor.requests) == 1


async def test_forget_erases_every_byte_of_a_conversation(spoken_to):
    slow = {
        "text": "",
        "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}],
        "held": True,
    }
    async with Vendor([slow, "It is done.", "So be it."]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("ask", "--detach", "the word is zinnober")).out.strip()
        await vendor.wait_for_requests(1)
        await spoken_to.agentctl("tell", run, "and the other is karmesin", "--detach")
        vendor.release()
        await spoken_to.until(run, "run_ended")
        await spoken_to.agentctl("ask", "go on")
        forget_result = await spoken_to.agentctl("memory", "forget", "--run", run, "--yes")
        assert forget_result.code == 0, forget_result.err
        assert await spoken_to.stop() == 0
        database_bytes = b"".join(path.read_bytes() for path in spoken_to.state.glob("agentd.db*"))
        assert b"zinnober" not in database_bytes and b"karmesin" not in database_bytes


async def test_a_sub_agent_has_no_more_rights_than_its_parent(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Append a line.", "tools": ["shell"]}}
    secret = {"name": "shell", "arguments": {"command": "cat my.key"}}
    turns = [
        {"tool_calls": [hand]},
        {"tool_calls": [EFFECT, secret], "when": "Append a line."},
        {"text": "Appended.", "when": "Append a line."},
        "My helper has appended it.",
    ]
    async with Vendor(turns) as vendor:
        await start_home(spoken_to, vendor)
        run_view = (await spoken_to.agentctl("run", "work", "--json")).json
        assert (run_view["status"], run_view["report"]) == (
            "succeeded",
            "My helper has appended it.",
        )
        (child,) = (await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]
        steps = (await spoken_to.agentctl("inspect", child["id"], "--json")).json["steps"]
        verdicts = [step["body"]["verdict"]["effect"] for step in steps if step["kind"] == "call"]
        assert verdicts == ["allow", "deny"]
        assert (spoken_to.workspace / "effects.txt").read_text() == "once\n"
        tools = [tool["function"]["name"] for tool in vendor.requests[1].body["tools"]]
        assert sorted(tools) == ["finish", "shell"]
        assert "Do your work." not in str(vendor.requests[1].body["messages"])


async def test_a_sub_agent_with_a_tool_its_parent_lacks_is_not_started(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Look it up.", "tools": ["http_request"]}}
    async with Vendor([{"tool_calls": [hand]}, "I cannot."]) as vendor:
        await start_home(spoken_to, vendor)
        run_view = (await spoken_to.agentctl("run", "work", "--json")).json
        assert run_view["report"] == "I cannot."
        assert (
            "you have no http_request to pass on"
            in vendor.requests[1].body["messages"][-1]["content"]
        )
        assert (await spoken_to.agentctl("runs", "--json")).json["items"][0]["routine"] == "work"


async def test_cancelling_a_run_cancels_its_sub_agent(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Think long."}}
    async with Vendor([{"tool_calls": [hand]}, {"text": "never", "hang": True}]) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(2)
        await spoken_to.agentctl("cancel", run)
        await spoken_to.until(run, "run_ended")
        (child,) = (await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]
        assert child["status"] == "cancelled"


async def test_cancelling_a_sub_agent_lets_its_parent_go_on(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Think long."}}
    turns = [{"tool_calls": [hand]}, {"text": "never", "hang": True}, "I do it myself."]
    async with Vendor(turns) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(2)
        (child,) = (await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]
        await spoken_to.agentctl("cancel", child["id"])
        assert (await spoken_to.until(run, "run_ended"))["report"] == "I do it myself."
        result = vendor.requests[-1].body["messages"][-1]["content"]
        assert "a person cancelled the sub-agent" in result
        (child,) = (await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]
        assert child["status"] == "cancelled"


@pytest.mark.process
async def test_kill_9_during_a_sub_agent_continues_the_sub_agent_without_repeats(spoken_to):
    hand = {"name": "subagent", "arguments": {"task": "Append a line."}}
    turns = [
        {"tool_calls": [hand]},
        {"tool_calls": [EFFECT], "when": "Append a line."},
        {"text": "never arrives", "hang": True, "when": "Append a line."},
        {"text": "Appended.", "when": "Append a line."},
        "It is done.",
    ]
    async with Vendor(turns) as vendor:
        await start_home(spoken_to, vendor)
        run = (await spoken_to.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(3)
        await spoken_to.kill()
        await spoken_to.start()
        assert (await spoken_to.until(run, "run_ended"))["report"] == "It is done."
        assert (spoken_to.workspace / "effects.txt").read_text() == "once\n"
        assert len((await spoken_to.agentctl("runs", "subagent", "--json")).json["items"]) == 1
        assert len(vendor.requests) == 5


async def test_ctrl_c_withdraws_a_message_whose_run_the_model_is_still_looking_for(spoken_to):
    async with Vendor([{"hang": True}, {"hang": True}]) as vendor:
        await start_home(spoken_to, vendor)
        await spoken_to.agentctl("run", "work", "--detach")
        await vendor.wait_for_requests(1)
        asking = await spoken_to.spawn(
            "agentctl", "--socket", spoken_to.socket, "ask", "how full are the disks"
        )
        await vendor.wait_for_requests(2)
        for _ in range(2):
            asking.send_signal(signal.SIGINT)
        _, complaint = await asyncio.wait_for(asking.communicate(), 120)
        assert asking.returncode == 130
        assert "withdrawn; no run has begun." in complaint.decode()
        runs = (await spoken_to.agentctl("runs", "--json")).json["items"]
        assert [run["routine"] for run in runs] == ["work"]


async def test_a_message_that_was_withdrawn_before_it_came_begins_no_run(tmp_path):
    app = TestApp(tmp_path)
    async with app:
        message = {"text": "How many roses?", "event": "a" * 32}
        withdrawn = await app.request("POST", "/v1/ask/withdraw", {"event": "a" * 32})
        assert withdrawn.json == {"run": None, "new": False}
        answer = await app.request("POST", "/v1/ask", message)
        assert (answer.status, answer.json["detail"]) == (409, "the message was withdrawn")
        assert (await app.request("GET", "/v1/runs")).json["items"] == []


async def test_withdrawing_a_message_cancels_the_run_that_began_for_it(tmp_path):
    app = TestApp(tmp_path)
    async with app:
        app.model.enqueue("Twelve.")
        message = {"text": "How many roses?", "event": "b" * 32, "session": "garden"}
        run = (await app.request("POST", "/v1/ask", message)).json
        del message["text"]
        withdrawn = (await app.request("POST", "/v1/ask/withdraw", message)).json
        assert withdrawn == {"run": run["id"], "new": True}
        assert (await app.finish(run["id"])).status.has_ended
