"""Run command lines as the tool shell does, for a test that traces this process.

    python -m tests.policy.traced_lines WORKSPACE POLICY RESULTS < lines.json

Each line of the JSON list is run in the workspace; the results are written as a JSON list.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from daemon.models import FunctionCall, ToolContext
from daemon.policy.policy import Policy
from daemon.tools.builtin import shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry


async def run_lines(workspace: Path, policy_file: Path, lines: list[str]) -> list[str]:
    """Return what a model would read after each line."""
    policy = Policy.load(policy_file, workspace=workspace)
    registry = FunctionRegistry()
    shell.register(registry, SimpleNamespace(policy=policy))
    executor = ToolExecutor(registry)
    texts = []
    for line in lines:
        context = ToolContext(run="run", routine="x", workspace=workspace)
        call = FunctionCall(name="shell", arguments={"command": line})
        texts.append((await executor.run(call, context)).text)
    return texts


if __name__ == "__main__":
    texts = asyncio.run(run_lines(Path(sys.argv[1]), Path(sys.argv[2]), json.load(sys.stdin)))
    Path(sys.argv[3]).write_text(json.dumps(texts))
