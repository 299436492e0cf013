"""The time zone of config.toml, which a reload changes for all that runs from then on."""

from daemon.testing import CONFIG, TestApp, tool_call

POLICY = """
version = 1
[[rule]]
tool = "shell"
argv = ["date"]
effect = "allow"
"""
ROUTINE = '[run]\nprompt = "Report."\nmode = "agent"\ntools = ["shell"]\n'


async def test_programs_see_the_time_zone_that_a_reload_has_set(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    app.write_routine("work", ROUTINE)
    async with app:
        app.write("config.toml", CONFIG.replace('"UTC"', '"Asia/Tokyo"'))
        await app.daemon.reloader.reload()
        app.model.enqueue(tool_call("shell", command="date +%Z"), "Done.")
        await app.run("work")
        assert "JST" in app.model.calls[-1].messages[-1].content
