"""How many tokens a text is expected to have."""

from __future__ import annotations

import pytest

from daemon.token_estimate import estimate_tokens


def test_tokens_are_estimated_by_script() -> None:
    assert estimate_tokens("word " * 100) == pytest.approx(126, abs=1)
    assert estimate_tokens("报告" * 50) == 101
