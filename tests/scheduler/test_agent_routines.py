"""Routines made by agents: with no more rights than their maker, and never over a person's file."""

import tomllib

import pytest
import tomli_w

from daemon.models import Effect, Taint
from daemon.policy.policy import Policy
from tests.replaying import ReplayedApp

RULES = """
version = 1
[[rule]]
tool = "routine"
effect = "allow"
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "sysinfo"
effect = "allow"
routines = ["other"]
[[rule]]
tool = "self_info"
effect = "allow"
"""
PLANNER = """
[trigger]
cron = "0 8 * * *"
timezone = "Europe/Berlin"
[run]
mode = "agent"
prompt = "Plan."
tools = ["routine", "file_read", "self_info", "memory_*"]
timeout = "2m"
max_iterations = 5
max_tool_calls = 9
memory = "none"
[run.budget]
tokens = 9000
[[deliver]]
to = "file"
path = "plans/{slot:%Y}.md"
[[deliver]]
to = "log"
"""
TEA = {
    "action": "create",
    "name": "tea",
    "when": "daily at 16:00",
    "prompt": "Say that it is time for tea.",
}


def call(**arguments):
    return {"name": "routine", "arguments": arguments}


def script(app, *replies):
    """Have the model call these one after another, then say that it is done."""
    lines = [reply if isinstance(reply, str) else {"tool_calls": [reply]} for reply in replies]
    model = {"kind": "scripted", "replies": [*lines, "Done."]}
    app.write("config.toml", tomli_w.dumps({"provider": "s", "providers": {"s": model}}))


@pytest.fixture
def app(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write("policy.toml", RULES)
    app.write_routine("planner", PLANNER)
    return app


async def results(app, run):
    return [step.body for step in await app.journal.runs.get_steps(run.id) if step.kind == "result"]


async def run_calls(app, *replies, routine="planner"):
    """Live one run in which the model makes these calls; return what it was told of each."""
    script(app, *replies)
    async with app:
        run = await app.run(routine)
        return [(body["ok"], body["text"]) for body in await results(app, run)]


def made_routine(app, name="tea"):
    path = app.state / "routines.d" / f"{name}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else None


async def test_routine_made_by_an_agent_has_its_makers_origin_limits_tools_and_targets(app):
    ((ok, text),) = await run_calls(app, call(**TEA))
    assert ok, text
    file = made_routine(app)
    assert file["trigger"] == {"cron": "0 16 * * *", "timezone": "Europe/Berlin"}
    assert file["origin"]["routine"] == "planner" and len(file["origin"]["run"]) == 26
    assert file["run"]["tools"] == ["file_read", "self_info"], (
        "neither what makes routines nor patterns go along"
    )
    assert (
        file["run"]["timeout"] == "2m"
        and file["run"]["max_iterations"] == 5
        and file["run"]["max_tool_calls"] == 9
    )
    assert file["run"]["budget"] == {"tokens": 9000} and file["run"]["memory"] == "none"
    assert file["deliver"] == [
        {"to": "file", "path": "plans/{routine}/{slot:%Y}.md"},
        {"to": "log"},
    ]
    assert [path.name for path in (app.folder / "routines").iterdir()] == ["planner.toml"]
    async with app:
        assert app.engine.routines["tea"].origin.routine == "planner" and not app.faults


async def test_routine_made_by_an_agent_may_have_a_pace(app):
    ((ok, text),) = await run_calls(app, call(**(TEA | {"when": "20m..6h"})))
    assert ok, text
    assert made_routine(app)["trigger"] == {"pace": "20m..6h", "timezone": "Europe/Berlin"}
    async with app:
        assert not app.faults
        assert "20 minutes to 6 hours after each run" in app.engine.describe_schedule(
            app.engine.routines["tea"]
        )


REFUSED = [
    ({"name": "planner"}, "there is a routine planner already"),
    ({"name": "../x"}, "a routine's name is made of"),
    ({"name": "ask"}, "is taken by agentd"),
    ({"name": "other"}, "the policy has rules for routines of that name"),
    ({"tools": ["shell"]}, "you have no shell to pass on"),
    ({"tools": ["routine"]}, "you have no routine to pass on"),
    ({"tools": ["*"]}, "you have no * to pass on"),
    ({"deliver": ["mail"]}, "you have no target mail"),
    ({"when": "every 2 minutes"}, "runs too often"),
    ({"when": "*/5 * * * *"}, "runs too often"),
    ({"when": "5m..6h"}, "may run too often"),
    ({"when": "6h..1h"}, "shorter than the shortest"),
    ({"when": "when it rains"}, "is not understood"),
    ({"when": "at startup"}, "an agent gives its routines a schedule and nothing else"),
    ({"prompt": " "}, "needs a prompt"),
    ({"prompt": "x" * 20_001}, "characters"),
    ({"tools": ["memory_stor"]}, "no such tool"),
]
"""What an agent asks for in vain, as a change of `TEA`, and words of the refusal."""


async def test_refused_routines_name_their_reason_and_leave_no_file(app):
    calls = [call(**(TEA | change)) for change, _ in REFUSED]
    planner = tomllib.loads(PLANNER)
    planner["run"] |= {"max_iterations": 50, "max_tool_calls": 50, "budget": {"tokens": 900_000}}
    app.write_routine("planner", tomli_w.dumps(planner))
    answers = await run_calls(app, *calls)
    assert len(answers) == len(REFUSED)
    for (change, reason), (ok, text) in zip(REFUSED, answers, strict=True):
        assert not ok, change
        assert reason in text, change
    assert not list((app.state / "routines.d").glob("*"))


async def test_routines_made_by_an_agent_overwrite_nothing_and_respect_the_limit(app):
    app.write("policy.toml", RULES + "[limits]\nroutines = 1\n")
    await run_calls(app, call(**TEA))
    before = made_routine(app)
    first_result, second_result = await run_calls(
        app, call(**TEA | {"prompt": "Coffee."}), call(**TEA | {"name": "coffee"})
    )
    assert not first_result[0] and "nothing is overwritten" in first_result[1]
    assert not second_result[0] and "may keep 1 routines of its own making: tea" in second_result[1]
    assert made_routine(app) == before and made_routine(app, "coffee") is None


async def test_routine_made_by_an_agent_has_no_more_rights_than_its_maker(app):
    """The maker may not use sysinfo; what it made may not either, whatever the policy grants to
    everybody else.
    """
    app.write(
        "policy.toml",
        RULES.replace('routines = ["other"]', "")
        + '[[rule]]\ntool = "file_read"\neffect = "deny"\npaths = ["k*"]\n'
        'routines = ["planner"]\n[routine.planner]\ntools = ["file_*", "routine"]\nlimits = { '
        "tool_calls = 3 }\n",
    )
    await run_calls(app, call(**TEA))
    policy = Policy.load(app.folder / "policy.toml", workspace=app.state / "workspace")
    under = "planner/tea"
    assert (
        policy.judge("sysinfo", {}, routine="tea").allows
        and not policy.judge("sysinfo", {}, routine=under).allows
    )
    assert not policy.judge("file_read", {"path": "key"}, routine=under).allows
    assert policy.judge("file_read", {"path": "notes"}, routine=under).allows
    assert policy.limits_for(under).tool_calls == 3
    look = {"name": "self_info", "arguments": {}}
    ((ok, text),) = await run_calls(app, look, routine="tea")
    assert not ok and "planner may not use self_info" in text


async def test_a_policy_rule_for_an_agent_made_routine_grants_nothing_but_may_deny(app):
    app.write(
        "policy.toml",
        RULES + '[[rule]]\ntool = "shell"\nargv = ["df"]\neffect = "allow"\nroutines = ["te*"]\n'
        '[[rule]]\ntool = "file_read"\neffect = "deny"\npaths = ["n*"]\nroutines = ["te*"]\n',
    )
    policy = Policy.load(app.folder / "policy.toml", workspace=app.state / "workspace")
    assert not policy.judge("shell", {"command": "df"}, routine="planner/tea").allows
    assert not policy.judge("file_read", {"path": "notes"}, routine="planner/tea").allows
    ((ok, text),) = await run_calls(app, call(**TEA))
    assert not ok and "the policy has rules for routines of that name (rule 5 (shell: df))" in text


async def test_routine_made_by_an_agent_makes_no_routines(app):
    await run_calls(app, call(**TEA))
    path = app.state / "routines.d" / "tea.toml"
    path.write_text(path.read_text().replace('"self_info"', '"routine"'))
    script(app)
    async with app:
        assert "run.tools" in str(app.faults["tea"])


async def test_routine_made_by_a_tainted_run_stays_tainted(app):
    app.write("policy.toml", RULES + '[routine.planner]\ntainted_tools = ["routine"]\n')
    (app.state / "workspace").mkdir(parents=True)
    (app.state / "workspace" / "letter").write_text("Dear agent")
    read_result, create_result = await run_calls(
        app, {"name": "file_read", "arguments": {"path": "letter"}}, call(**TEA)
    )
    assert read_result[0] and create_result[0], create_result
    assert made_routine(app)["origin"]["tainted"] is True
    script(app)
    async with app:
        assert (await app.run("tea")).taint is Taint.TAINTED


@pytest.mark.slow
@pytest.mark.parametrize("reading", [{"action": "list"}, {"action": "show", "name": "tea"}])
@pytest.mark.parametrize("made_after_reading", [True, False])
async def test_who_reads_of_a_routine_that_a_tainted_run_made_is_tainted(
    app, reading, made_after_reading
):
    app.write("policy.toml", RULES + '[routine.planner]\ntainted_tools = ["routine"]\n')
    (app.state / "workspace").mkdir(parents=True)
    (app.state / "workspace" / "letter").write_text("Dear agent")
    letter = {"name": "file_read", "arguments": {"path": "letter"}}
    await run_calls(app, *([letter] if made_after_reading else []), call(**TEA))
    script(app, call(**reading))
    async with app:
        run = await app.run("planner")
        assert [body["ok"] for body in await results(app, run)] == [True]
        assert run.taint is (Taint.TAINTED if made_after_reading else Taint.NONE)


@pytest.mark.parametrize("is_tainted", [True, False])
async def test_no_answer_that_taints_nobody_names_a_routine_that_a_tainted_run_made(
    app, is_tainted
):
    app.write(
        "policy.toml",
        RULES + '[routine.planner]\ntainted_tools = ["routine"]\nlimits = { routines = 1 }\n',
    )
    (app.state / "workspace").mkdir(parents=True)
    (app.state / "workspace" / "letter").write_text("Dear agent")
    letter = {"name": "file_read", "arguments": {"path": "letter"}}
    name = "obey-the-letter"
    await run_calls(app, *([letter] if is_tainted else []), call(**TEA | {"name": name}))
    script(
        app,
        {"name": "self_info", "arguments": {}},
        call(action="show", name="unknown"),
        call(**TEA | {"name": "one-too-many"}),
    )
    async with app:
        bodies = await results(app, await app.run("planner"))
    assert [name in body["text"] for body in bodies] == [not is_tainted] * 3
    assert not any("taint" in body for body in bodies)


async def test_tainted_run_asks_before_making_a_routine(app):
    (app.state / "workspace").mkdir(parents=True)
    (app.state / "workspace" / "letter").write_text("Dear agent")
    script(app, {"name": "file_read", "arguments": {"path": "letter"}}, call(**TEA))
    async with app:
        assert (await app.run("planner")).status == "waiting"
    assert made_routine(app) is None


async def test_only_the_maker_removes_its_routine(app):
    app.write_routine("other", PLANNER.replace("Plan.", "Meddle."))
    await run_calls(app, call(**TEA))
    ((ok, text),) = await run_calls(app, call(action="remove", name="tea"), routine="other")
    assert not ok and "not of your making" in text and made_routine(app)
    listing, description, deletion, refusal = await run_calls(
        app,
        call(action="list"),
        call(action="show", name="tea"),
        call(action="remove", name="tea"),
        call(action="remove", name="other"),
    )
    assert '"made_by": "planner"' in listing[1] and "Say that it is time for tea." in description[1]
    assert deletion[0] and made_routine(app) is None
    assert not refusal[0] and (app.folder / "routines" / "other.toml").exists()


async def test_without_a_daemon_the_routine_tool_steers_nothing(app):
    for action in ("pause", "resume", "run"):
        ((ok, text),) = await run_calls(app, call(action=action, name="planner"))
        assert not ok and "no daemon is at work here" in text


async def test_a_routine_of_a_person_wins_over_an_agent_made_routine_of_the_same_name(app):
    await run_calls(app, call(**TEA))
    app.write_routine("tea", '[run]\nprompt = "Mine."\n')
    app.write_routine("marked", '[run]\nprompt = "x"\n[origin]\nroutine = "a"\nrun = "b"\n')
    script(app)
    async with app:
        assert app.engine.routines["tea"].run.prompt == "Mine."
        assert "a routine of yours has this name" in str(app.faults["routines.d/tea"])
        assert "origin: is of routines that agents make" in str(app.faults["marked"])


@pytest.mark.parametrize("pattern", ['"rout*"', '"*"', '"r*"'])
def test_the_routine_tool_must_be_named_by_the_policy(tmp_path, pattern):
    path = tmp_path / "policy.toml"
    (tmp_path / "w").mkdir()
    path.write_text(
        f'version = 1\ndefault = "ask"\n[[rule]]\ntool = {pattern}\neffect = "ask"\n'
        '[routine.r]\ntainted_tools = ["*"]\n'
    )
    policy = Policy.load(path, workspace=tmp_path / "w")
    assert policy.judge("routine", TEA, routine="r").effect is Effect.DENY
    assert policy.judge("config", {"action": "show"}, routine="r").effect is Effect.DENY
    assert not policy.has_rule_naming("routine", "r")
    path.write_text(
        path.read_text()
        + '[[rule]]\ntool = "routine"\neffect = "allow"\nargv = [["list", "create"]]\n'
    )
    named_policy = Policy.load(path, workspace=tmp_path / "w")
    assert named_policy.judge("routine", TEA, routine="r").allows
    assert named_policy.judge("routine", TEA, routine="r", tainted=True).effect is Effect.ASK
    assert named_policy.judge("routine", {"action": "list"}, routine="r", tainted=True).allows
    assert not named_policy.judge("routine", {"action": "pause", "name": "r"}, routine="r").allows


async def test_the_routine_tool_is_offered_only_where_the_policy_names_it(app):
    app.write_routine(
        "all",
        PLANNER.replace(
            'tools = ["routine", "file_read", "self_info", "memory_*"]', 'tools = ["*"]'
        ),
    )
    script(app)
    async with app:
        tools = {
            function["name"]
            for function in (await app.parts.preview(app.engine.routines["all"])).functions
        }
        assert "routine" in tools and "config" not in tools


async def test_the_shipped_policy_allows_neither_routine_nor_config(tmp_path):
    from tests.acceptance.story import ROOT

    policy = Policy.load(ROOT / "policy.toml", workspace=tmp_path)
    assert not policy.judge("routine", {"action": "list"}, routine="daily-report").allows
    assert not policy.judge("config", {"action": "show"}, routine="daily-report").allows
