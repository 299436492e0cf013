"""agentctl preview: what a run would be told, section by section, without running anything."""

import pytest

from tests.acceptance.story import Vendor

ROUTINE = """
[run]
mode = "agent"
prompt = "Look after the disks."
tools = ["file_list"]
[run.sections]
Audience = "One busy person."
[[deliver]]
to = "log"
"""


async def test_a_preview_is_what_the_run_is_told_and_asks_nobody(home):
    async with Vendor(["Done."]) as vendor:
        home.write(
            "config.toml",
            (
                'provider = "v"\n[providers.v]\nkind = "open_source"\nbase_url = '
                f'"{vendor.url}/v1"\nmodel = "m"\n'
            ),
        )
        home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "file_list"\neffect = "allow"\n')
        home.routine("care", ROUTINE)
        await home.start()
        told = (await home.agentctl("preview", "care", "--json")).json
        assert vendor.requests == []
        assert (await home.agentctl("runs", "--json")).json["items"] == []
        assert [each["name"] for each in told["functions"]] == ["finish", "file_list"]
        sections = {each["name"]: each for each in told["sections"]}
        assert "One busy person." in sections["own sections"]["text"]
        assert all(each["tokens"] > 0 for each in told["sections"])
        parts = (*told["sections"], *told["functions"], told["task"])
        assert told["tokens"] == sum(each["tokens"] for each in parts)
        await home.agentctl("run", "care")
        steps = (await home.agentctl("inspect", "care", "--json")).json["steps"]
        prompt = next(step["body"] for step in steps if step["kind"] == "prompt")
        for name in ("identity", "tools", "principles", "own sections"):
            assert sections[name]["text"] in prompt["system"]
        assert [each["name"] for each in prompt["functions"]] == ["finish", "file_list"]


@pytest.mark.process
async def test_a_preview_is_a_table_and_in_full_the_text(home):
    home.routine("care", ROUTINE.replace('prompt = "Look', 'provider = "offline"\nprompt = "Look'))
    await home.start()
    short = await home.agentctl("preview", "care")
    assert (
        short.code == 0
        and "safety" in short.out
        and "tokens" in short.out
        and "One busy person." not in short.out
    )
    assert "One busy person." in (await home.agentctl("preview", "care", "--full")).out
    gone = await home.agentctl("preview", "cares")
    assert gone.code == 4 and "did you mean 'care'" in gone.err
