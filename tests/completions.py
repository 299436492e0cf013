"""The shell completions in completions/, as `agentctl completion` prints them; `python -m
tests.completions` writes them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "completions"


def scripts() -> dict[Path, str]:
    """Return the script of each shell by its file."""
    return {
        FOLDER / f"agentctl.{shell}": print_completion(shell) for shell in ("bash", "zsh", "fish")
    }


def print_completion(shell: str) -> str:
    command = [sys.executable, "-m", "daemon.cli.main", "completion", shell]
    folder = FOLDER.parent  # where the module is, also without an installation
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for path, text in scripts().items():
        path.write_text(text, encoding="utf-8")
