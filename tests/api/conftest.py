from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.harness import ApiHarness, open_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ApiHarness]:
    async with open_harness(tmp_path) as harness:
        yield harness
