from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control.house import House, built


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "root: needs root, as it becomes another user")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with built(tmp_path) as house:
        yield house
