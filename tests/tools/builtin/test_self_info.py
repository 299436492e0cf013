"""The tool self_info describes the run and the daemon to the agent."""

from pathlib import Path

import pytest

from daemon.errors import ToolFailed
from daemon.models import ToolContext
from daemon.tools.builtin import self_info
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

DAEMON = {
    "version": "1.2.3",
    "routines": [{"name": "daily-report", "next": "2026-11-21 08:30 CET"}],
}


@pytest.fixture
def ask():
    registry = FunctionRegistry()
    self_info.register(registry, lambda: DAEMON, lambda name: {"policy": f"what {name} may do"})
    context = ToolContext(run="01J", routine="daily-report", workspace=Path("/ws"))

    async def ask(**arguments):
        return await ToolExecutor(registry).execute("self_info", arguments, context=context)

    return ask


YOU = {"run": "01J", "routine": "daily-report", "policy": "what daily-report may do"}


async def test_self_info_describes_run_and_daemon(ask):
    assert await ask() == {"you": YOU, **DAEMON}


async def test_self_info_returns_requested_parts_only(ask):
    assert await ask(parts=["you"]) == {"you": YOU}
    assert await ask(parts=["version"]) == {"version": "1.2.3"}


async def test_an_unknown_part_of_self_info_is_refused_with_the_known_parts(ask):
    with pytest.raises(ToolFailed, match="no such part: secrets; there are you, version, routines"):
        await ask(parts=["secrets"])


def test_self_info_is_read_only_and_hides_its_context():
    registry = FunctionRegistry()
    self_info.register(registry, lambda: DAEMON)
    [schema] = registry.list_functions(["self_info"])
    assert list(schema["parameters"]["properties"]) == ["parts"]
    assert registry.get_function("self_info").read_only
