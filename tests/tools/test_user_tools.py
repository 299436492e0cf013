"""User tools: files beside the config whose functions agents may call if the policy allows them."""

import os
import re
import textwrap
from pathlib import Path

import pytest

from daemon.definitions.config.loading import load_config
from daemon.errors import ConfigError
from daemon.models import FunctionCall
from daemon.testing import CONFIG, TestApp, tool_call
from daemon.tools import user_tools
from daemon.tools.executor import ToolExecutor

WEATHER = '''
"""Weather."""
from dataclasses import dataclass

@dataclass
class Place:
    name: str

def weather(place: Place, days: int = 1) -> dict:
    """Tell the weather.

    Args:
        place: Where.
        days: How many days ahead.
    """
    return {"place": place.name, "days": days}

async def later(seconds: float) -> str:
    """Do it later."""
    return "later"

def _hidden() -> None: ...
'''


class Folder:
    """A config with a folder of tools."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tools").mkdir(mode=0o755)

    def tool(self, name, text, mode=0o644):
        path = self.folder / "tools" / name
        path.write_text(text)
        path.chmod(mode)

    def load(self, text):
        path = self.folder / "config.toml"
        path.write_text(text)
        path.chmod(0o600)
        return user_tools.load(load_config(path))

    def fault(self, text):
        with pytest.raises(ConfigError) as error:
            self.load(text)
        return [str(fault) for fault in error.value.faults]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


async def run_tool_of_the_docs(folder, add_to_policy=lambda section: section):
    """Have a model call the tool of docs/tools.md twice in a run; return the run, the results, and
    what the daemon says that a person will be asked about.

    `add_to_policy` gets the section `[routine.count]` of the page.
    """
    page = (Path(__file__).parents[2] / "docs/tools.md").read_text("utf-8")
    section = page.partition("\n## A tool of your own\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    tools, policy = map(textwrap.dedent, re.findall(r"```toml\n(.*?)```", section, re.DOTALL))
    rule, _, routine_section = policy.replace("NAME", "count").partition("\n\n")
    app = TestApp(folder, config=CONFIG + tools)
    app.write("tools/notes.py", textwrap.dedent(code))
    app.write("policy.toml", f"version = 1\n{rule}\n{add_to_policy(routine_section)}")
    app.write_routine(
        "count", '[run]\nprompt = "How many?"\nmode = "agent"\ntools = ["count_notes"]\n'
    )
    async with app:
        (app.workspace / "fern.md").write_text("Water it on Mondays.")
        app.model.enqueue(tool_call("count_notes"), tool_call("count_notes", ending="txt"), "One.")
        run = await app.run("count")
        results = [step.body for step in await app.steps(run) if step.kind == "result"]
        asks = (await app.request("GET", "/v1/routines/count")).json["asks"]
    return run, results, asks


async def test_the_tool_of_the_docs_is_called_by_a_model_as_often_as_it_likes(tmp_path):
    run, results, asks = await run_tool_of_the_docs(tmp_path)
    assert (run.status, run.report) == ("succeeded", "One.")
    assert [(result["text"], result["taint"]) for result in results] == [
        ("1", "tainted"),
        ("0", "tainted"),
    ]
    assert asks is None


async def test_without_tainted_tools_a_read_only_tool_is_asked_about_at_its_second_call(tmp_path):
    run, results, asks = await run_tool_of_the_docs(tmp_path, lambda section: "")
    assert run.status == "waiting"
    assert [result["text"] for result in results] == ["1"]
    assert asks.startswith("count: once it has read words of strangers (count_notes), a person is ")
    assert '[routine.count] tainted_tools = ["count_notes"] in policy.toml' in asks


async def test_autonomy_readonly_denies_each_call_of_a_read_only_tool(tmp_path):
    _, results, _ = await run_tool_of_the_docs(
        tmp_path, lambda section: f'{section}autonomy = "readonly"\n'
    )
    assert len(results) == 2
    assert all("denied" in result["text"] for result in results)


async def test_autonomy_supervised_asks_about_the_first_call(tmp_path):
    run, results, _ = await run_tool_of_the_docs(
        tmp_path, lambda section: f'{section}autonomy = "supervised"\n'
    )
    assert (run.status, results) == ("waiting", [])


async def test_public_functions_of_a_user_file_become_tools_with_schemas(folder):
    folder.tool("weather.py", WEATHER)
    registry = folder.load('[tools]\nfiles = ["weather.py"]\n')
    assert registry.names() == ["weather", "later"]
    schema = registry.get_function("weather").parameters
    assert schema["properties"]["place"]["properties"] == {"name": {"type": "string"}}
    assert schema["properties"]["days"]["description"] == "How many days ahead."
    call = FunctionCall(name="weather", arguments={"place": {"name": "Bonn"}})
    assert (await ToolExecutor(registry).run(call)).value == {"place": "Bonn", "days": 1}
    assert (
        await ToolExecutor(registry).run(FunctionCall(name="later", arguments={"seconds": 1}))
    ).text == "later"


def test_all_unusable_tool_files_are_reported_at_once(folder):
    folder.tool("broken.py", "1 / 0\n")
    folder.tool("empty.py", "x = 1\n")
    folder.tool("open.py", WEATHER, mode=0o666)
    faults = folder.fault(
        '[tools]\nfiles = ["broken.py", "empty.py", "open.py", "gone.py"]\npackages = ["nobody"]\n'
    )
    expected_words = (
        "ZeroDivisionError",
        "no public function",
        "can be written by everybody",
        "no such file",
        "nobody",
    )
    assert len(faults) == 5
    for fault, words in zip(faults, expected_words, strict=True):
        place = {
            "nobody": "config.toml:3: tools.",
            "can be written by everybody": "tools/open.py: ",
        }
        assert place.get(words, "config.toml:2: tools.") in fault and words in fault


def test_a_tool_file_not_named_by_the_config_is_not_imported(folder, tmp_path):
    folder.tool("unnamed.py", f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert folder.load("").names() == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.root
def test_a_tool_file_of_another_user_is_refused(folder):
    folder.tool("theirs.py", WEATHER)
    os.chown(folder.folder / "tools" / "theirs.py", 12345, 12345)
    (fault,) = folder.fault('[tools]\nfiles = ["theirs.py"]\n')
    assert "belongs to user 12345" in fault


async def test_agent_calls_user_tools_named_by_the_policy(home):
    (home.folder / "tools").mkdir()
    home.write(
        "tools/greet.py", 'def greet(name: str) -> str:\n    "Greet."\n    return f"Hello {name}"\n'
    )
    calls = '{ name = "greet", arguments = { name = "Ada" } }'
    home.write(
        "config.toml",
        f'[tools]\nfiles = ["greet.py"]\n[providers.s]\nkind = "scripted"\n'
        f'replies = [{{ text = "", tool_calls = [{calls}] }}, "done"]\n',
    )
    home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "greet"\neffect = "allow"\n')
    home.routine(
        "hi",
        (
            '[run]\nmode = "agent"\nprovider = "s"\ntools = ["greet"]\nprompt = '
            '"x"\n[[deliver]]\nto = "log"\n'
        ),
    )
    await home.start()
    ran = (await home.agentctl("run", "hi", "--json")).json
    assert ran["report"] == "done"
    steps = (await home.agentctl("inspect", "hi", "--json")).json["steps"]
    assert [step["body"]["text"] for step in steps if step["kind"] == "result"] == ["Hello Ada"]


async def test_a_duplicate_tool_name_stops_the_start_with_one_line(home):
    (home.folder / "tools").mkdir()
    home.write(
        "tools/mine.py", 'def shell(command: str) -> str:\n    "Mine."\n    return command\n'
    )
    home.write("config.toml", '[tools]\nfiles = ["mine.py"]\n')
    result = await home.agentd()
    assert result.code == 78
    assert "there is already a tool called shell" in result.err
