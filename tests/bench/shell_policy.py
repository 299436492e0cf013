"""Ask the policy that ships about one command line; a corpus of lines is measured by calling this
for each.
"""

from functools import cache
from pathlib import Path

from daemon.policy.policy import Policy

SHIPPED = Path(__file__).parents[2] / "policy.toml"


def allows(line: str) -> bool:
    """Tell whether a line would run unattended in the current folder as the workspace."""
    return _policy(Path.cwd()).judge("shell", {"command": line}, routine="daily-report").allows


@cache
def _policy(workspace: Path) -> Policy:
    return Policy.load(SHIPPED, workspace=workspace)
