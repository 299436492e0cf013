"""`agentctl preview` shows the prompt of a run, section by section, without running anything."""

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


async def test_preview_equals_the_prompt_of_the_run_and_calls_no_model(home):
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
        preview = (await home.agentctl("preview", "care", "--json")).json
        assert vendor.requests == []
        assert (await home.agentctl("runs", "--json")).json["items"] == []
        assert [function["name"] for function in preview["functions"]] == ["finish", "file_list"]
        sections = {section["name"]: section for section in preview["sections"]}
        assert "One busy person." in sections["own sections"]["text"]
        assert all(section["tokens"] > 0 for section in preview["sections"])
        parts = (*preview["sections"], *preview["functions"], preview["task"])
        assert preview["tokens"] == sum(part["tokens"] for part in parts)
        await home.agentctl("run", "care")
        steps = (await home.agentctl("inspect", "care", "--json")).json["steps"]
        prompt = next(step["body"] for step in steps if step["kind"] == "prompt")
        for name in ("identity", "tools", "principles", "own sections"):
            assert sections[name]["text"] in prompt["system"]
        assert [function["name"] for function in prompt["functions"]] == ["finish", "file_list"]


@pytest.mark.process
async def test_preview_is_a_table_and_with_full_the_whole_text(home):
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
    assert "Not counted" not in short.out
    home.routine("care", ROUTINE + '[[gather]]\nname = "disks"\ntool = "sysinfo"\n')
    short = await home.agentctl("preview", "care")
    assert "Not counted, as a preview gathers nothing: the facts disks." in short.out
    result = await home.agentctl("preview", "cares")
    assert result.code == 4 and "did you mean 'care'" in result.err
