"""A memory with strangers' words costs no later run the tools that are held by taint."""

from __future__ import annotations

from tests.acceptance.story import Home, Vendor

CONFIG = """
provider = "local"
[providers.local]
kind = "open_source"
model = "local"
base_url = "{}/v1"
"""


async def test_a_conversation_about_a_file_lets_no_later_routine_wait_for_a_person(
    home: Home,
) -> None:
    rule = '[[rule]]\ntool = "{}"\neffect = "allow"\n'
    home.write(
        "policy.toml", "version = 1\n" + rule.format("file_read") + rule.format("file_write")
    )
    home.routine(
        "garden",
        '[run]\nmode = "agent"\nprompt = "Write down what the garden notes say of the roses."\n'
        'tools = ["file_write"]\nmemory = "recall+store"\n',
    )
    read = {"name": "file_read", "arguments": {"path": "garden.md"}}
    write = {"name": "file_write", "arguments": {"path": "todo.md", "content": "Water it.\n"}}
    small_talk = ["Blue.", "At noon.", "On Tuesday."]
    turns = [
        *small_talk,
        {"tool_calls": [read]},
        "The garden notes say: water the roses.",
        {"tool_calls": [write]},
        "It is written down.",
    ]
    async with Vendor(turns) as vendor:
        home.write("config.toml", CONFIG.format(vendor.url))
        await home.start()
        (home.workspace / "garden.md").write_text("The roses in the garden want water.\n")
        for text in ("Which colour has the sea?", "When is lunch?", "When does the bin go out?"):
            await home.agentctl("ask", "--new", text)
        question = await home.agentctl("ask", "--new", "What do the garden notes say?")
        assert (question.code, question.out) == (0, "The garden notes say: water the roses.\n")
        result = await home.agentctl("run", "garden")
        prompt = vendor.requests[5].body["messages"][0]["content"]
    assert (result.code, result.out) == (0, "It is written down.\n"), result.err
    assert (home.workspace / "todo.md").read_text() == "Water it.\n"
    assert "water the roses" not in prompt, "it would take the tool from the run"
    inspection = await home.agentctl("inspect", "garden")
    assert "memories with words of strangers; a run that has read them asks" in inspection.out
    assert (await home.agentctl("approvals", "--json")).json["items"] == []
