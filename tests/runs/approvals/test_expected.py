"""What a routine's runs will ask a person about is said before the first run."""

from __future__ import annotations

import pytest

from daemon.app.commands.validate import policy_faults
from daemon.testing import TestApp
from tests.cli.agentctl import agentctl

RULES = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "http_request"
effect = "allow"
hosts = ["example.org"]
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
argv = ["df"]
[[rule]]
tool = "script"
effect = "ask"
"""
AGENT = """
[run]
mode = "agent"
prompt = "Look for releases."
tools = {tools}
"""
AFTER_READING = (
    "releases: once it has read words of strangers (http_request), a person is asked before "
    "http_request; to let it: name whole addresses in a rule with safe = true, or "
    '[routine.releases] tainted_tools = ["http_request"] in policy.toml'
)


async def asks(folder, tools, *, policy=RULES, routine=AGENT):
    app = TestApp(folder)
    app.write("policy.toml", policy)
    app.write_routine("releases", routine.format(tools=tools))
    async with app:
        routines = (await app.request("GET", "/v1/routines")).json["items"]
        routine_details = (await app.request("GET", "/v1/routines/releases")).json
    (asks,) = {routine["asks"] for routine in (*routines, routine_details)}
    return asks


async def test_a_routine_that_reads_and_sends_gets_a_note_with_the_policy_line_to_add(tmp_path):
    assert await asks(tmp_path, '["http_request"]') == AFTER_READING


async def test_tainted_tools_in_the_policy_end_the_note(tmp_path):
    policy = f'{RULES}[routine.releases]\ntainted_tools = ["http_request"]\n'
    assert await asks(tmp_path, '["http_request"]', policy=policy) is None


async def test_a_tool_that_always_asks_is_noted(tmp_path):
    text = await asks(tmp_path, '["script"]')
    assert text == "releases: a person is asked before some calls of script"


async def test_a_tool_of_a_supervised_routine_is_noted(tmp_path):
    policy = RULES.replace('effect = "ask"', 'effect = "allow"')
    policy += '[routine.releases]\nautonomy = "supervised"\n'
    text = await asks(tmp_path, '["script", "file_read"]', policy=policy)
    assert text == "releases: a person is asked before some calls of script"


async def test_with_on_ask_deny_the_note_says_that_calls_are_denied(tmp_path):
    policy = f'{RULES}[routine.releases]\non_ask = "deny"\n'
    text = await asks(tmp_path, '["http_request"]', policy=policy)
    assert "it is denied http_request" in text


@pytest.mark.parametrize("tools", ['["file_read"]', '["shell"]', '["file_read", "shell"]', "[]"])
async def test_a_read_only_routine_has_no_note(tmp_path, tools):
    assert await asks(tmp_path, tools) is None


async def test_a_denied_tool_has_no_note(tmp_path):
    assert await asks(tmp_path, '["file_read", "file_write", "web_search"]') is None


async def test_what_a_tool_says_of_its_own_work_is_not_counted_as_reading(tmp_path):
    policy = f'{RULES}[[rule]]\ntool = "file_write"\neffect = "allow"\npaths = ["notes/**"]\n'
    assert await asks(tmp_path, '["file_write"]', policy=policy) is None
    text = await asks(tmp_path, '["file_write", "file_read"]', policy=policy)
    assert "words of strangers (file_read), a person is asked before file_write" in text


async def test_an_event_with_untrusted_input_counts_as_reading(tmp_path):
    routine = '[trigger]\nwatch = ["inbox/*"]\n' + AGENT
    policy = f'{RULES}[[rule]]\ntool = "memory_store"\neffect = "allow"\n'
    text = await asks(tmp_path, '["memory_store"]', policy=policy, routine=routine)
    assert "once it has read words of strangers (watch)" in text


async def test_with_on_ask_deny_the_note_names_the_key_that_denies(tmp_path):
    policy = f'{RULES}[routine.releases]\non_ask = "deny"\n'
    text = await asks(tmp_path, '["script"]', policy=policy)
    assert text == (
        "releases: it is denied some calls of script; "
        'nobody is asked, by on_ask = "deny" in policy.toml'
    )


@pytest.mark.parametrize(
    ("tainted", "verdict"), [("deny", "it is denied"), ("ask", "a person is asked before")]
)
async def test_a_rule_on_tainted_runs_is_named_instead_of_a_line_that_would_not_help(
    tmp_path, tainted, verdict
):
    rule = f'[[rule]]\ntool = "file_read"\neffect = "allow"\ntainted = "{tainted}"\n'
    policy = f'version = 1\n{rule}[routine.releases]\ntainted_tools = ["file_read"]\n'
    assert await asks(tmp_path, '["file_read"]', policy=policy) == (
        f"releases: once it has read words of strangers (file_read), {verdict} file_read, as a "
        f'rule of policy.toml says tainted = "{tainted}"'
    )


async def test_the_note_says_that_sub_agents_ask_nobody(tmp_path):
    policy = f'{RULES}[[rule]]\ntool = "subagent"\neffect = "allow"\n'
    text = await asks(tmp_path, '["script", "subagent"]', policy=policy)
    assert text.endswith("; its sub-agents are denied what a person would be asked about")


GATHER = """
[run]
prompt = "x"
[[gather]]
name = "x"
tool = "shell"
args = {{ command = "{}" }}
"""


async def test_list_and_reload_name_what_a_routine_gathers_and_the_policy_denies(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", RULES)
    async with app, app.serve_api() as socket:
        engine = app.daemon.scheduling.engine
        await engine.start(await app.daemon.reloader.load_routines())
        app.write_routine("g", GATHER.format("curl http://x/"))
        app.write_routine("free", GATHER.format("df"))
        result = await agentctl(socket, "reload")
        assert result.out.strip() == "added free, g"
        (line,) = result.err.splitlines()
        assert line.startswith("g: gather[0]: every run of g fails: the policy denies this, by ")
        assert "agentctl policy explain --routine g -- 'curl http://x/'" in line
        assert line in (await agentctl(socket, "list")).out.splitlines()
        assert f"  {line}" in (await agentctl(socket, "show", "g")).out.splitlines()
        (fault,) = policy_faults(
            app.daemon.settings.policy, [app.daemon.scheduling.engine.routines["g"]]
        )
        assert fault.problem in line and fault.hint in line
        await engine.stop()


async def test_list_names_the_command_of_a_gate_that_waits_for_a_person(tmp_path):
    routine = '[run]\nprompt = "x"\n[gate]\ncommand = ["df"]\n'
    policy = RULES.replace('effect = "allow"\nprofile', 'effect = "ask"\nprofile')
    text = await asks(tmp_path, "", policy=policy, routine=routine)
    assert text.startswith("releases: gate.command: each run waits until a person has approved it")
