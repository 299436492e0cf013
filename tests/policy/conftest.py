"""A workspace full of temptations, and policies written down in a test."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from daemon.policy.policy import Policy
from tests.policy.fixture import build

Write: TypeAlias = Callable[[str], Policy]
SHIPPED = Path(__file__).parents[2] / "policy.toml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return build(folder)


@pytest.fixture
def shipped_policy(workspace: Path) -> Policy:
    return Policy.load(SHIPPED, workspace=workspace)


@pytest.fixture
def write_policy(workspace: Path, tmp_path: Path) -> Write:
    """Return a way to load a policy from text; `version = 1` is put before it."""

    def write(text: str) -> Policy:
        path = tmp_path / "policy.toml"
        path.write_text(f"version = 1\n{text}")
        return Policy.load(path, workspace=workspace)

    return write
