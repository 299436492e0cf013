"""A workspace, a policy of the test's own, and tools called as the agent calls them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.sandbox.sandbox import Sandbox
from daemon.tools.builtin import files, shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

Call: TypeAlias = Callable[..., Awaitable[ToolResult]]
SHIPPED = Path(__file__).parents[3] / "policy.toml"
UNCONFINED = Sandbox(level="off")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def calling(workspace: Path, tmp_path: Path) -> Callable[[str], Call]:
    """Return a way to call tools under a policy, given as text; the shipped one without. A sandbox
    may be given, too.
    """

    def under(policy: str = "", sandbox: Sandbox = UNCONFINED) -> Call:
        async def in_force() -> Sandbox:
            return sandbox

        path = SHIPPED
        if policy:
            path = tmp_path / "policy.toml"
            path.write_text(f"version = 1\n{policy}")
        policy = Policy.load(path, workspace=workspace)
        registry = FunctionRegistry()
        shell.register(registry, SimpleNamespace(policy=policy), sandbox=in_force)
        files.register(registry, SimpleNamespace(policy=policy))
        executor = ToolExecutor(registry)
        context = ToolContext(run="run", routine="daily-report", workspace=workspace)

        async def call(tool: str, **arguments: Any) -> ToolResult:
            return await executor.run(FunctionCall(name=tool, arguments=arguments), context)

        return call

    return under


@pytest.fixture
def call(calling: Callable[[str], Call]) -> Call:
    """Call a tool under the policy that ships."""
    return calling("")
