"""A trial of a routine as a user has it: observed, denied, shown, confirmed, and then allowed."""

import re

import pytest

from tests.acceptance.story import Vendor
from tests.acceptance.test_story import AGENT, EFFECT, config, effects
from tests.delivery.receivers import Receiver

POLICY = """
version = 1
[[rule]]
tool = "shell"
argv = ["echo"]
effect = "allow"
[[rule]]
tool = "file_write"
effect = "ask"
"""


@pytest.mark.process
async def test_a_routine_is_observed_and_then_may_do_what_it_was_denied(home):
    home.routine("work", AGENT.replace('tools = ["shell"]', 'tools = ["shell", "file_write"]'))
    home.write("policy.toml", POLICY)
    calls = [
        *EFFECT["tool_calls"],
        {"name": "file_write", "arguments": {"path": "a.md", "content": "x"}},
    ]
    async with Vendor([{"tool_calls": calls}, "Denied.", EFFECT, "Done."]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        preview = await home.agentctl("observe", "work", "--for", "7d")
        assert (preview.code, '+mode = "observe"' in preview.out) == (5, True), preview
        assert (await home.agentctl("observe", "work", "--for", "7d", "--yes")).code == 0
        reload_result = await home.agentctl("reload")
        assert reload_result.code == 0, reload_result.err
        listing = await home.agentctl("list")
        assert "work: observe until " in listing.out
        assert (await home.agentctl("run", "work")).code == 0, "nobody was asked"
        assert effects(home) == []
        inspection = await home.agentctl("inspect", "work")
        assert "policy    observe: nobody was asked" in inspection.out
        assert "nobody is asked while this routine is observed" in inspection.out
        suggestion = await home.agentctl("policy", "suggest", "work")
        assert '+argv = ["tee", "-a", "effects.txt"]' in suggestion.out, suggestion
        assert "rule 2 (file_write)" in suggestion.out, "what a rule asks about stays so"
        assert "2 calls in 1 run since 30d denied in observe mode" in suggestion.out
        digest = re.search(r"--confirm (\w{16})", suggestion.out)[1]
        result = await home.agentctl("policy", "suggest", "work", "--confirm", digest)
        assert result.code == 0, result.err
        assert (await home.agentctl("observe", "work", "--stop", "--yes")).code == 0
        assert (await home.agentctl("reload")).code == 0
        assert "observe" not in (await home.agentctl("list")).out
        assert (await home.agentctl("run", "work")).code == 0
        assert effects(home) == ["once"]


NEWS = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 16\r\n\r\nBread is dearer."


@pytest.mark.process
async def test_a_page_of_this_machine_is_allowed_by_what_explain_and_suggest_say(home):
    home.write("policy.toml", "version = 1\n")
    async with Receiver(NEWS, NEWS).open() as server:
        home.routine(
            "pages",
            f'[run]\nmode = "script"\n[[gather]]\nname = "news"\ntool = "http_request"\n'
            f'args = {{ url = "{server.url}" }}\n',
        )
        await home.start()
        assert (await home.agentctl("run", "pages")).code == 1
        suggestion = await home.agentctl("policy", "suggest", "pages", "--json")
        words = ("--routine", "pages", "--tool", "http_request", server.url)
        explanation = await home.agentctl("policy", "explain", "--json", *words)
        home.write("policy.toml", f"version = 1\n{explanation.json['suggested']}")
        assert "Bread is dearer." in (await home.agentctl("run", "pages")).out
        home.write("policy.toml", "version = 1\n")
        digest = suggestion.json["confirm"]
        confirmation = await home.agentctl("policy", "suggest", "pages", "--confirm", digest)
        assert confirmation.code == 0, confirmation.err
        assert "Bread is dearer." in (await home.agentctl("run", "pages")).out
