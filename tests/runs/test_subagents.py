"""A sub-agent does a part of its parent's task: what the file of the routine says of the whole run
does not count for it.
"""

from daemon.testing import CONFIG, TestApp, tool_call

POLICY = 'version = 1\n[[rule]]\ntool = "subagent"\neffect = "allow"\n'
ROUTINE = """
ping = "watchdog"

[run]
prompt = "Report."
mode = "agent"
tools = ["subagent"]

[check]
contains = ["## Summary"]
"""
SHORT_ROUTINE = """
[run]
prompt = "Report."
mode = "agent"
tools = ["subagent", "other__*"]
max_iterations = 2
"""
HELP = tool_call("subagent", task="Count.")


async def test_a_sub_agent_is_neither_checked_nor_pinged(tmp_path):
    target = '[targets.watchdog]\nkind = "ping"\nurl = "http://127.0.0.1:1/x"\n'
    app = TestApp(tmp_path, config=f"{CONFIG}{target}")
    app.write("policy.toml", POLICY)
    app.write_routine("work", ROUTINE)
    async with app:
        app.model.enqueue(HELP, "There are 3.", "## Summary\n3")
        run = await app.run("work")
        assert (run.status, run.report) == ("succeeded", "## Summary\n3")
        journal = app.daemon.store.journal
        (child,) = await journal.runs.find("subagent")
        assert (child.status, child.report) == ("succeeded", "There are 3.")
        (ping,) = await journal.outbox.find()
        assert (ping.run, ping.options["ping"]) == (run.id, "success")


async def test_a_message_that_a_sub_agent_has_not_read_before_its_end_is_answered(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY + '[[rule]]\ntool = "other__look"\neffect = "allow"\n')
    app.write_routine("work", SHORT_ROUTINE)
    async with app:
        runs, conversations = app.daemon.store.journal.runs, app.daemon.runs.conversations

        async def look() -> str:
            """Look."""
            (child,) = await runs.find("subagent")
            assert await conversations.tell_active(child, "And yours?", event="e")
            return "looked"

        app.daemon.tools.registry.register("other__look", None, look, read_only=True)
        last = tool_call("finish", report="There are 3.")
        last["tool_calls"] += tool_call("other__look")["tool_calls"]
        # the empty answer leaves the sub-agent no iteration in which it could read the message
        app.model.enqueue(HELP, "", last, "3.", "3.")
        run = await app.run("work")
        assert run.report == "3."
        (child,) = await runs.find("subagent")
        assert child.report == "There are 3."
        (answer,) = await runs.find("ask")
        assert (answer.goal, (await app.finish(answer.id)).report) == ("And yours?", "3.")
