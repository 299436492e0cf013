"""The tool `shell`: runs command lines without a shell, exactly as the policy judged them.

Not here: reading a line, and what may run (policy/); how it runs (command_lines.py).
"""

from __future__ import annotations

from daemon.models import ToolContext
from daemon.policy.policy import LivePolicy
from daemon.sandbox.current import SandboxSource, no_sandbox
from daemon.tools.builtin.command_lines import (
    MAX_PROGRAM_SECONDS,
    ZoneSource,
    no_zone,
    report_result,
    run_call,
)
from daemon.tools.registry import FunctionRegistry


def register(
    registry: FunctionRegistry,
    settings: LivePolicy,
    *,
    sandbox: SandboxSource = no_sandbox,
    find_zone: ZoneSource = no_zone,
) -> None:
    """Offer the tool. `find_zone` returns the time zone that programs see."""

    async def shell(command: str, *, context: ToolContext) -> str:
        """Run a command line and return what it puts out. There is no shell: a line is plain words, '…' or "…" (no
        $, no backticks), * and ? for file names, joined by | && || ; or a newline, with >/dev/null, 2>/dev/null, 2>&1
        and < FILE. Every line starts in the workspace and knows nothing of earlier ones. What the policy does not name
        is refused, with the reason.

        Args:
            command: For example: df -h && journalctl -p err --since yesterday | tail -n 20
        """  # noqa: E501
        call = {"command": command}
        result = await run_call(
            "shell",
            call,
            policy=settings.policy,
            context=context,
            sandbox=sandbox,
            zone=find_zone(),
        )
        return report_result(result, verbatim=context.verbatim)

    registry.register("shell", None, shell, timeout=MAX_PROGRAM_SECONDS)


def register_for_gates(
    registry: FunctionRegistry,
    settings: LivePolicy,
    *,
    sandbox: SandboxSource = no_sandbox,
    zone: str | None = None,
) -> None:
    """Offer the tool to gates, which look at the exit code: not to be offered to a model."""

    async def shell(command: str, *, context: ToolContext) -> dict[str, int | str]:
        """Run a command line and return its exit code and what it put out."""
        call = await run_call(
            "shell",
            {"command": command},
            policy=settings.policy,
            context=context,
            sandbox=sandbox,
            zone=zone,
            max_output_bytes=settings.policy.limits_for(context.routine).output_bytes,
        )
        if call.result.stop_cause:
            report_result(call)  # raises
        return {"exit_code": call.result.code, "output": call.result.output.text()}

    registry.register("shell", None, shell, timeout=MAX_PROGRAM_SECONDS)
