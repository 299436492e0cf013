from __future__ import annotations

from tests.api.conftest import harness

__all__ = ["harness"]
