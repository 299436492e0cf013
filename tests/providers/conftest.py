"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from daemon.providers import LLMProvider
from tests.fakes.vendor import FakeVendor
from tests.providers import calls


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """The events that are logged during the test."""
    before = structlog.get_config()
    # whatever another test has set
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**before)


@pytest.fixture
async def provider_for() -> AsyncIterator[calls.Opener]:
    """Open providers, and close them when the test is over."""
    providers: list[LLMProvider] = []

    def open_one(way: str, vendor: FakeVendor | str, **settings: Any) -> LLMProvider:
        providers.append(calls.provider(way, vendor, **settings))
        return providers[-1]

    yield open_one
    for provider in providers:
        await provider.close()
