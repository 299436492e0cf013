"""A model may give tools any arguments that JSON can hold: each call is answered, and the run goes
on to its end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from daemon.models import Status, StepKind
from daemon.policy.policy_file import TOOLS
from daemon.testing import TestApp
from tests.fuzz.hostile import HOSTILE_VALUES, LONG, Raw

POLICY = """\
version = 1
on_ask = "deny"
[limits]
tool_calls = 5000
[paths]
read = ["/proc", "/etc"]
[[rule]]
tool = "shell"
argv = [["ls", "cat"]]
effect = "allow"
[[rule]]
tool = "http_request"
hosts = ["*.example"]
effect = "allow"
"""
ALLOWED = ("file_*", "memory_*", "git", "script", "routine", "sysinfo", "self_info", "skill")
POLICY += "".join(f'[[rule]]\ntool = "{tool}"\neffect = "allow"\n' for tool in ALLOWED)
ROUTINE = """\
[run]
mode = "agent"
prompt = "Try all tools."
tools = ["*"]
max_tool_calls = 5000
max_iterations = 200
"""
# How the result of a tool that raised what it should not begins.
CRASH = re.compile(r"\[error\] \w+(Error|Exception|Exit)\b")
DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
VALUES = [
    *(value for value in HOSTILE_VALUES if not isinstance(value, Raw)),
    10**4_000,
    float("inf"),
    DEEP,
    "\0",
    "a\0b",
    "\ud800/\udfff",
    "/proc/1/root",
    "/proc/self/fd/0",
    "/proc/self/task/../cwd",
    "//proc/1/cwd/x",
    "x" * 5_000 + "/y",
    "a/" * 3_000,
    "~nobody\ud800/x",
    "git log \ud800",
    "ls '" + "\ud800" + "'",
    "grep -r '' /proc/1/root",
    "http://[::ffff:0:127.0.0.1]/",
    "http://" + "a" * 300 + ".example/\ud800",
    "https://[" + ":" * 500,
    "9999-12-31T23:59:59.999999-23:59",
]


def calls(tool: str, argument_names: list[str]) -> list[dict[str, Any]]:
    """Return calls of a tool with each hostile value in its first argument and in one of the
    others, and with all of them, none and others.
    """
    sound = dict.fromkeys(argument_names, "x")
    # each value is tried in some argument, as each call takes a commit to the disk
    count = len(argument_names)
    hostile = [
        {**sound, name: value}
        for position, name in enumerate(argument_names)
        for value in (VALUES if position == 0 else VALUES[position::count])
    ]
    whole = [dict.fromkeys(argument_names, value) for value in VALUES[::10]]
    return [
        {"name": tool, "arguments": arguments}
        for arguments in (*hostile, *whole, {}, {"": ""}, {LONG: LONG}, {"\ud800": "\ud800"})
    ]


@pytest.mark.parametrize("tool", [*sorted(TOOLS.keys() - {"finish", "subagent"}), "no_such_tool"])
async def test_a_run_survives_any_arguments_of_a_tool(tool: str, tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    app.write_routine("try", ROUTINE)
    async with app:
        function = app.daemon.tools.registry.get_function(tool)
        names = [*function.parameters.get("properties", {})] if function else ["path"]
        batch = calls(tool, names)
        answers = [{"tool_calls": batch[at : at + 40]} for at in range(0, len(batch), 40)]
        app.model.enqueue(*answers, "Done.")
        run = await app.run("try")
        assert run.report == "Done.", run.detail
        if run.status is not Status.SUCCEEDED:
            assert "it could do nothing, as its calls were denied" in (run.detail or "")
        results = [step for step in await app.steps(run) if step.kind is StepKind.RESULT]
        assert len(results) == len(batch)
        crashes = [text for step in results if CRASH.match(text := step.body["text"])]
        assert crashes == []
