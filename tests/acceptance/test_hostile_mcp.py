"""A daemon whose MCP server over HTTP is hostile goes on, says the truth of the run, and stops."""

import asyncio
import itertools

import pytest

from tests.tools.mcp.hostile_web import STREAM, HostileWeb, event, respond, result

CONFIG = """
[mcp.web]
url = "URL"
timeout = "1s"
[providers.s]
kind = "scripted"
replies = [{ text = "", tool_calls = [{ name = "web__t", arguments = {} }] }, "Done."]
"""
POLICY = 'version = 1\n[[rule]]\ntool = "web__*"\neffect = "allow"\n'
POLICY += '[routine.work]\ntainted_tools = ["web__*"]\n'
ROUTINE = '[run]\nmode = "agent"\nprovider = "s"\nprompt = "Work."\ntools = ["web__*"]\n'
MESSAGE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'


async def be_silent(_request):
    await asyncio.Event().wait()
    yield b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"tools/call": be_silent, "DELETE": be_silent}, "did not answer within 1 s"),
        (
            {"tools/call": lambda _: itertools.chain([STREAM], itertools.repeat(event(MESSAGE)))},
            "did not answer within 1 s",
        ),
        ({"tools/call": lambda _: {"code": 1, "message": "\x1b[2Jno\u202e"}}, "web: "),
        ({"tools/call": lambda _: respond(b"no")}, "what came of it is unknown"),
    ],
    ids=["silent", "endless", "control characters", "no JSON"],
)
async def test_a_hostile_server_costs_its_call_and_nothing_else(home, answers, fault):
    async with HostileWeb() as web:
        initialize = web.answers["initialize"]
        web.answers |= answers
        web.answers["initialize"] = lambda request: respond(
            result(request, initialize(request)), headers="mcp-session-id: s\r\n"
        )
        home.write("config.toml", CONFIG.replace("URL", web.config["url"]))
        home.write("policy.toml", POLICY)
        home.routine("work", ROUTINE)
        await home.start()
        under_way = asyncio.create_task(home.agentctl("run", "work"))
        assert (await home.agentctl("status")).code in (0, 1)
        ended = await under_way
        assert ended.code == 0, ended.err + ended.out
        (run,) = (await home.agentctl("runs", "--json")).json["items"]
        assert run["status"] == "succeeded"
        inspected = await home.agentctl("inspect", run["id"])
        assert "Done." in inspected.out
        assert fault in inspected.out
        assert "\x1b[2J" not in inspected.out
        assert "\u202e" not in inspected.out
        await home.stop()
        assert web.methods()[-1] == "DELETE"
