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
