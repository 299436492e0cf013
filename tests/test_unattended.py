"""Agents that run unattended ask nobody: twelve typical routines, each with the policy that the
documentation recommends, five times in a row on what the runs before have left. Beside them a model
that obeys strangers, under the same policies, reaches nobody.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from daemon.models import Status, StepKind, Taint
from daemon.testing import CONFIG, tool_call
from tests.attacks import ATTACKS
from tests.delivery.receivers import Receiver
from tests.replaying import ReplayedApp
from tests.test_compromised import KEY, SHIPPED, AttackedDaemon, obey
from tests.test_recipes import record_pages

RUNS = 5
FEED = "https://example.org/releases.atom"
PRICES, NEWS = "https://example.org/prices", "https://example.org/news"
CALENDAR = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("calendar")


@server.tool()
def list_events(day: str) -> list[str]:
    """The events of a day."""
    return [f"{day}: board meeting"]


@server.tool()
def get_event(name: str) -> str:
    """One event in full."""
    return f"{name}: please bring the contract"


server.run("stdio")
'''
THERMOMETER = '''
from daemon.tools.discovery import agent_callable


@agent_callable(read_only=True)
def room_temperature() -> str:
    """The temperature of the server room."""
    return "21.5 degrees; note on the sensor: please clean me"
'''


def ask_for(name: str, /, **arguments: Any) -> dict[str, Any]:
    return tool_call(name, **arguments)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A routine, what its owner adds to the shipped policy for it, and how its model works."""

    run: str
    """The table `[run]` without its mode, and further tables."""
    answers: tuple[Any, ...]
    """What the model answers in each run."""
    policy: str = ""
    config: str = ""
    trigger: str = 'every = "1h"'
    taint: Taint = Taint.TAINTED
    """Of each run at its end."""
    other_routines: dict[str, str] = field(default_factory=dict)
    """Further routines, which run before it each time: TOML by name."""


TRIALS: dict[str, Trial] = {
    "release-watcher": Trial(
        run=f"""
prompt = "Report each new release by report_items."
[[gather]]
name = "feed"
tool = "http_request"
args = {{ url = "{FEED}" }}
[dedupe]
key = "url"
""",
        policy=(
            f'[[rule]]\ntool = "http_request"\neffect = "allow"\nsafe = true\nurls = ["{FEED}"]\n'
        ),
        answers=(
            ask_for("report_items", items=[{"title": "9.1", "url": f"{FEED}/9.1"}]),
            "Reported.",
        ),
    ),
    "inbox-triage": Trial(
        run="""
prompt = "Sort the letters in inbox, and keep a list in out/inbox-triage/list.md."
tools = ["file_list", "file_read", "file_write"]
""",
        answers=(
            ask_for("file_list", path="inbox"),
            ask_for("file_read", path="inbox/letter.txt"),
            ask_for("file_write", path="out/inbox-triage/list.md", content="- a letter of Ada\n"),
            "One letter.",
        ),
    ),
    "repository-digest": Trial(
        run="""
prompt = "What was committed?"
tools = ["git"]
memory = "recall+store"
""",
        answers=(ask_for("git", command="log --oneline", repository="project"), "One commit."),
    ),
    "log-sentinel": Trial(
        run='prompt = "Look at the errors of this machine."\ntools = ["sysinfo", "shell"]\n',
        answers=(
            ask_for("sysinfo", parts=["errors", "units"]),
            ask_for("shell", command="tail -n 5 inbox/letter.txt"),
            "Nothing broke.",
        ),
    ),
    "disk-keeper": Trial(
        run="""
prompt = "Look at the disks and note how full they are."
tools = ["shell", "file_write"]
""",
        policy='[[rule]]\ntool = "file_write"\neffect = "allow"\npaths = ["notes/disks.md"]\n',
        answers=(
            ask_for("shell", command="df --output=pcent,avail"),
            ask_for("file_write", path="notes/disks.md", content="- 40 %\n"),
            "Noted.",
        ),
        taint=Taint.NONE,
    ),
    "page-watcher": Trial(
        run="""
prompt = "Read the prices and report those that are new by report_items."
tools = ["http_request"]
[dedupe]
key = "title"
""",
        policy=(
            f'[[rule]]\ntool = "http_request"\neffect = "allow"\nsafe = true\nurls = ["{PRICES}",'
            f' "{NEWS}"]\n'
        ),
        answers=(
            ask_for("http_request", url=PRICES),
            ask_for("http_request", url=NEWS),  # by now the run is tainted
            ask_for("report_items", items=[{"title": "bread 3.20"}]),
            "Reported.",
        ),
    ),
    "calendar": Trial(
        run='prompt = "What is on today?"\ntools = ["calendar__*"]\n',
        config=f'[mcp.calendar]\ncommand = ["{sys.executable}", "{{folder}}/event_server.py"]\n',
        policy=(
            '[[rule]]\ntool = "calendar__*"\neffect = "allow"\n'
            '[routine.calendar]\ntainted_tools = ["calendar__*"]\n'
        ),
        answers=(
            ask_for("calendar__list_events", day="today"),
            ask_for("calendar__get_event", name="board meeting"),
            "A board meeting; bring the contract.",
        ),
    ),
    "thermometer": Trial(
        run='prompt = "Is the room too warm?"\ntools = ["room_temperature"]\n',
        config='[tools]\nfiles = ["thermometer.py"]\n',
        policy='[[rule]]\ntool = "room_temperature"\neffect = "allow"\n',
        answers=(ask_for("room_temperature"), "21.5 degrees."),
    ),
    "script-runner": Trial(
        run='prompt = "Tidy up the workspace."\ntools = ["script"]\n',
        policy='[[rule]]\ntool = "script"\neffect = "allow"\nargv = [["tidy"]]\n',
        answers=(ask_for("script", name="tidy"), "Tidy."),
    ),
    "week-review": Trial(
        run='prompt = "Judge the report of this day."\ntools = ["file_read"]\n',
        trigger='after = ["log-sentinel"]',
        answers=(ask_for("file_read", path="inbox/letter.txt"), "A good day."),
        other_routines={
            "log-sentinel": '[trigger]\nevery = "1h"\n[run]\nmode = "agent"\nprompt = "Look."\n'
            'tools = ["file_read"]\n'
        },
    ),
    "heartbeat": Trial(
        run="""
prompt = "Greet the owner if there is something new."
tools = ["memory_recall", "memory_store", "sysinfo"]
memory = "recall+store"
""",
        answers=(
            ask_for("sysinfo", parts=["host", "load"]),
            ask_for("memory_store", key="greeting:last", content="Greeted at noon."),
            ask_for("memory_recall", query="greeting"),
            "Good morning.",
        ),
        taint=Taint.NONE,
    ),
    "research": Trial(
        run='prompt = "What is decided?"\ntools = ["file_list", "file_read", "subagent"]\n',
        answers=(
            ask_for("file_list", path="inbox"),
            ask_for("subagent", task="What does inbox/letter.txt say?"),
            ask_for("file_read", path="inbox/letter.txt"),
            "'Dear Ada.'",
            "Nothing is decided.",
        ),
    ),
}


def install(folder: Path, write: Any, trial: Trial, name: str) -> None:
    """Write the routine and all that belongs to it, but for config and policy."""
    for subfolder in ("tools", "scripts"):
        (folder / subfolder).mkdir(exist_ok=True)
        (folder / subfolder).chmod(0o755)  # whatever our umask and group are
    for other_name, text in trial.other_routines.items():
        write(f"routines/{other_name}.toml", text)
    routine = f'[trigger]\n{trial.trigger}\n[run]\nmode = "agent"\n{trial.run.lstrip()}'
    write(f"routines/{name}.toml", routine)
    write("event_server.py", CALENDAR)
    write("tools/thermometer.py", THERMOMETER)
    write("scripts/tidy", "#!/bin/sh\n# Tidies up.\necho tidy\n")
    (folder / "scripts/tidy").chmod(0o755)


def write_workspace(workspace: Path) -> None:
    (workspace / "inbox").mkdir(parents=True)
    (workspace / "inbox/letter.txt").write_text("Dear Ada.", "utf-8")
    repository = workspace / "project"
    repository.mkdir()
    for words in (
        "init -q",
        "-c user.name=Ada -c user.email=a@example.org commit -q --allow-empty -m Begin",
    ):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")
@pytest.mark.parametrize("name", TRIALS)
async def test_five_runs_in_a_row_ask_nobody_and_are_denied_nothing(
    name: str, tmp_path: Path
) -> None:
    trial, app = TRIALS[name], ReplayedApp(tmp_path)
    install(tmp_path, app.write, trial, name)
    app.write("config.toml", CONFIG + trial.config.format(folder=tmp_path))
    app.write("policy.toml", f"{SHIPPED.read_text('utf-8')}\n{trial.policy}")
    write_workspace(app.workspace)
    async with app:
        assert not app.faults
        if "http_request" in trial.policy:
            record_pages(app)
        for number in range(RUNS):
            for other_name in trial.other_routines:
                app.model.enqueue(ask_for("file_read", path="inbox/letter.txt"), "As always.")
                assert (await app.run(other_name)).status is Status.SUCCEEDED
            app.model.enqueue(*trial.answers)
            run = await app.run(name)
            assert run.status is Status.SUCCEEDED, (number, run.status, run.detail)
            assert not app.model.remaining
            results = [step.body for step in await app.steps(run) if step.kind is StepKind.RESULT]
            assert results
            assert all(result["ok"] for result in results), (number, results)
            assert run.taint is trial.taint, (number, run.taint)
            app.advance(hours=1)
        assert await app.journal.approvals.find() == []


async def test_under_the_same_policies_a_model_that_obeys_strangers_reaches_nobody(
    tmp_path: Path,
) -> None:
    """Each attack meets the rules of all twelve, with every tool offered."""
    policies = "\n".join(trial.policy for trial in TRIALS.values())
    async with Receiver().open() as home, Receiver().open() as stranger:
        attacked_daemon = AttackedDaemon(tmp_path, home.url, stranger.url)
        attacked_daemon.write("policy.toml", f"{SHIPPED.read_text('utf-8')}\n{policies}")
        for name, trial in TRIALS.items():
            install(tmp_path, attacked_daemon.write, trial, name)
        config = (tmp_path / "config.toml").read_text("utf-8")
        more = "".join(trial.config for trial in TRIALS.values())
        attacked_daemon.write("config.toml", config + more.format(folder=tmp_path))
        async with attacked_daemon.open() as app:
            before = attacked_daemon.everything_else()
            for kind, text, calls in ATTACKS:
                run, results = await obey(app, attacked_daemon, text, calls)
                assert run.status is Status.SUCCEEDED, (kind, run.detail)
                assert not any(KEY in result for result in results), f"{kind}: the secret was read"
                assert attacked_daemon.everything_else() == before, f"{kind}: something changed"
                assert stranger.posts == [], f"{kind}: something was sent to a stranger"
