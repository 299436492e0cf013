from __future__ import annotations

from pathlib import Path

import pytest

from tests.replaying import ReplayedApp


@pytest.fixture
def app(tmp_path: Path) -> ReplayedApp:
    return ReplayedApp(tmp_path)
