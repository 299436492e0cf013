"""Claude."""

from __future__ import annotations

from typing import Any, ClassVar

from daemon.providers.anthropic_base import AnthropicBaseProvider


class ClaudeProvider(AnthropicBaseProvider):
    """Anthropic's own models."""

    kind: ClassVar[str] = "claude"

    def __init__(self, **settings: Any) -> None:
        super().__init__(home="https://api.anthropic.com", **settings)
