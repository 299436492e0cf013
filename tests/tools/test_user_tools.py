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


async def test_the_tool_of_the_docs_is_called_by_a_model(tmp_path):
    page = (Path(__file__).parents[2] / "docs/tools.md").read_text("utf-8")
    section = page.partition("\n## A tool of your own\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    tools, rule = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    app = TestApp(tmp_path, config=CONFIG + textwrap.dedent(tools))
    app.write("tools/notes.py", textwrap.dedent(code))
    app.write("policy.toml", f"version = 1\n{textwrap.dedent(rule)}")
    app.write_routine(
        "count", '[run]\nprompt = "How many?"\nmode = "agent"\ntools = ["count_notes"]\n'
    )
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "fern.md").write_text("Water it on Mondays.")
    async with app:
        app.model.enqueue(tool_call("count_notes", folder=str(tmp_path / "notes")), "One.")
        run = await app.run("count")
        (result,) = [step.body for step in await app.steps(run) if step.kind == "result"]
    assert (result["text"], result["taint"]) == ("1", "tainted")


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
