"""What a run is shown of earlier runs decides its taint, and what a run may do decides what it is
shown: words of strangers are left out of a prompt that would take a tool from the run.
"""

from __future__ import annotations

import pytest

from daemon.models import Status, StepKind, Taint
from daemon.testing import TestApp, tool_call
from tests.cli.agentctl import agentctl

POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "memory_recall"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["notes/**"]
"""
WRITER = """
[run]
mode = "agent"
memory = "recall+store"
prompt = "Note what is new in the inbox about the garden."
tools = ["file_read", "file_write", "memory_recall"]
"""
READER = """
[run]
mode = "agent"
memory = "recall+store"
prompt = "Say what is new in the inbox about the garden."
tools = ["file_read", "memory_recall"]
"""
SUMMARY = """
[run]
prompt = "Sum up what is new in the inbox about the garden."
"""
WRITE = tool_call("file_write", path="notes/garden.md", content="The garden is green.")
READ = tool_call("file_read", path="inbox.txt")
REPORT = "The garden letter says: the roses bloom."


@pytest.fixture
def app(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    for name, text in (("writer", WRITER), ("reader", READER), ("summary", SUMMARY)):
        app.write_routine(name, text)
    app.write("state/workspace/inbox.txt", "Letter to the garden: the roses bloom.\n")
    (tmp_path / "state").chmod(0o700)
    return app


async def prompt_of(app, run):
    (body,) = [step.body for step in await app.steps(run) if step.kind is StepKind.PROMPT]
    return body


async def run_with_report(app, routine, *turns):
    app.model.enqueue(*turns, REPORT)
    return await app.run(routine)


async def test_five_runs_that_write_and_then_read_never_wait_for_an_approval(app):
    async with app:
        for _ in range(5):
            run = await run_with_report(app, "writer", WRITE, READ)
            assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.TAINTED), run.detail
        prompt = await prompt_of(app, run)
        assert REPORT not in prompt["system"]
        assert prompt["left_out"]["previous_report"]
        assert "The last report (2026-11-20 12:00 UTC" in prompt["system"]
        assert "is not shown, as strangers may have written parts of it" in prompt["system"]
        assert prompt["left_out"]["memories"] >= 1
        assert prompt["left_out"]["tools"] == ["file_write"]


@pytest.mark.parametrize(
    ("goal", "shown"),
    [
        ("Read the config of the tools that exist here.", False),
        ("Read the config of agentd.", True),
        ("Say which config agentctl reads.", True),
        ("Read the config of myagentdir.", False),
    ],
)
async def test_a_routine_is_told_of_agentd_only_if_its_goal_asks(app, goal, shown):
    app.write_routine(
        "asker", WRITER.replace("Note what is new in the inbox about the garden.", goal)
    )
    async with app:
        await app.daemon.store.memory.seed({"agentd:config": "The config is here.toml."})
        run = await run_with_report(app, "asker")
        assert ("here.toml" in (await prompt_of(app, run))["system"]) is shown
        recall = tool_call("memory_recall", query="which config")
        run = await run_with_report(app, "asker", recall)
        results = [
            step.body["text"] for step in await app.steps(run) if step.kind is StepKind.RESULT
        ]
        assert "here.toml" in results[0]


async def test_recalling_tainted_memory_taints_the_run(app):
    async with app:
        await run_with_report(app, "writer", READ)
        recall = tool_call("memory_recall", query="garden letter")
        run = await run_with_report(app, "writer", recall, WRITE)
        assert (run.status, run.taint) == (Status.WAITING, Taint.TAINTED)
        assert not (app.workspace / "notes/garden.md").exists()


async def test_the_prompt_says_that_memory_recall_finds_memories_that_are_left_out(app):
    async with app:
        await run_with_report(app, "writer", READ)
        await run_with_report(app, "writer", WRITE)
        preview = (await app.request("GET", "/v1/routines/writer/preview")).json
        (memory,) = [part["text"] for part in preview["sections"] if part["name"] == "memory"]
        assert "memory_recall finds them" in memory
        assert preview["left_out"]["tools"] == ["file_write"]


@pytest.mark.parametrize("routine", ["reader", "summary"])
async def test_a_run_without_tools_to_lose_gets_tainted_memory_and_report(app, routine):
    async with app:
        await run_with_report(app, "writer", READ)
        if routine == "reader":
            await run_with_report(app, routine, READ)
        run = await run_with_report(app, routine)
        prompt = await prompt_of(app, run)
        assert "the roses bloom" in prompt["system"]
        assert "left_out" not in prompt
        assert run.taint is Taint.TAINTED


async def test_a_routine_with_tainted_tools_gets_all_memory(app):
    app.write("policy.toml", f'{POLICY}[routine.writer]\ntainted_tools = ["file_write"]\n')
    async with app:
        await run_with_report(app, "writer", READ)
        run = await run_with_report(app, "writer", WRITE)
        assert run.status is Status.SUCCEEDED
        prompt = await prompt_of(app, run)
        assert REPORT in prompt["system"]
        assert "left_out" not in prompt


async def test_a_run_tainted_from_the_start_gets_all_memory(app):
    app.write_routine(
        "writer",
        WRITER + '[[gather]]\nname = "inbox"\ntool = "file_read"\nargs = { path = "inbox.txt" }\n',
    )
    async with app:
        await run_with_report(app, "writer")
        prompt = await prompt_of(app, await run_with_report(app, "writer"))
        assert REPORT in prompt["system"]
        assert "left_out" not in prompt


async def test_untainted_memory_is_shown_beside_the_note_on_memory_that_is_left_out(app):
    async with app:
        memory = app.daemon.store.memory
        await memory.store("garden", "What is new in the garden, the owner likes to know.")
        for room in ("kitchen", "cellar", "attic", "hall"):
            await memory.store(room, f"The {room} was painted last year.")
        await run_with_report(app, "writer", READ)
        prompt = await prompt_of(app, await run_with_report(app, "writer", WRITE))
        assert "the owner likes to know" in prompt["system"]
        assert REPORT not in prompt["system"]
        assert "taint" not in prompt


async def test_inspect_names_the_memory_that_is_left_out(app):
    async with app, app.serve_api() as socket:
        await run_with_report(app, "writer", READ)
        run = await run_with_report(app, "writer", WRITE)
        inspection = await agentctl(socket, "inspect", run.id)
        preview = await agentctl(socket, "preview", "writer")
    inspected_text, previewed_text = (
        " ".join(result.out.split()) for result in (inspection, preview)
    )
    assert "and the last report with words of strangers" in inspected_text
    for text in (inspected_text, previewed_text):
        assert "a run that has read them asks a person before it uses file_write" in text


async def test_a_routine_with_subagents_that_read_safe_addresses_begins_untainted(app):
    rule = """
[[rule]]
tool = "http_request"
effect = "allow"
safe = true
urls = ["https://example.org/"]
[[rule]]
tool = "subagent"
effect = "allow"
"""
    app.write("policy.toml", POLICY + rule)
    app.write_routine("reader", READER.replace('"memory_recall"]', '"http_request", "subagent"]'))
    async with app:
        await run_with_report(app, "reader", READ)
        prompt = await prompt_of(app, await run_with_report(app, "reader"))
        assert prompt["left_out"]["tools"] == ["http_request"]
        assert "taint" not in prompt


async def test_a_remembered_approval_holds_for_the_next_run(app):
    app.write(
        "policy.toml",
        POLICY.replace('"file_write"\neffect = "allow"', '"file_write"\neffect = "ask"'),
    )
    async with app:
        waiting_run = await run_with_report(app, "writer", WRITE, READ)
        assert waiting_run.status is Status.WAITING
        approvals = app.daemon.runs.approvals
        (request,) = await app.daemon.store.journal.approvals.find(run=waiting_run.id)
        _, token = await approvals.propose(request.id)
        await approvals.approve(request.id, by="uid 1000", remember=token)
        assert (await app.finish(waiting_run.id)).status is Status.SUCCEEDED
        for _ in range(3):
            run = await run_with_report(app, "writer", WRITE, READ)
            assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.TAINTED), run.detail
        assert (await prompt_of(app, run))["left_out"]["tools"] == ["file_write"]


async def test_a_preview_of_a_routine_that_gathers_tainted_text_leaves_nothing_out(app):
    async with app:
        await run_with_report(app, "writer", READ)
    gather = '[[gather]]\nname = "inbox"\ntool = "file_read"\nargs = { path = "inbox.txt" }\n'
    app.write_routine("writer", WRITER + gather)
    async with app:
        preview = (await app.request("GET", "/v1/routines/writer/preview")).json
        assert preview["left_out"] is None


async def test_a_count_of_left_out_memories_never_exceeds_what_would_be_shown(app):
    async with app:
        for number in range(40):
            await app.daemon.store.memory.store(
                f"garden-{number}", f"A word {number} of the garden inbox.", tainted=True
            )
        prompt = await prompt_of(app, await run_with_report(app, "writer", WRITE))
        assert prompt["left_out"]["memories"] == 10


async def test_a_run_without_errors_in_its_machine_report_is_not_tainted(app):
    app.write("policy.toml", POLICY + '[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
    app.write_routine("writer", WRITER.replace('["file_read"', '["sysinfo"'))
    async with app:
        look = tool_call("sysinfo", parts=["load"])
        run = await run_with_report(app, "writer", look, WRITE)
        assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.NONE)


async def test_the_prompt_says_denied_where_nobody_is_asked(app):
    app.write("policy.toml", f'{POLICY}[routine.writer]\non_ask = "deny"\n')
    async with app:
        await run_with_report(app, "writer", READ)
        await run_with_report(app, "writer", WRITE)
        preview = (await app.request("GET", "/v1/routines/writer/preview")).json
        (memory,) = [part["text"] for part in preview["sections"] if part["name"] == "memory"]
        assert "once you have read one, file_write may be denied" in memory


async def test_the_prompt_tells_of_finish_where_it_is_offered(app):
    async with app:
        app.model.enqueue("Twelve.")
        answer = (await app.request("POST", "/v1/ask", {"text": "How many roses?"})).json
        answer_prompt = await prompt_of(app, await app.finish(answer["id"]))
        assert "finish" not in [tool["name"] for tool in answer_prompt["functions"]]
        assert (
            "`finish" not in answer_prompt["system"]
            and "End with your final text" in answer_prompt["system"]
        )
        scheduled_prompt = await prompt_of(app, await run_with_report(app, "writer"))
        assert "End with `finish` or with your final text" in scheduled_prompt["system"]
