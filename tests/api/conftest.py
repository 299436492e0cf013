from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.house import House, built


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with built(tmp_path) as house:
        yield house
