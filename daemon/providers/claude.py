"""Anthropic's own models."""

from __future__ import annotations

from typing import Any, ClassVar

from daemon.providers.anthropic_base import AnthropicBaseProvider


class ClaudeProvider(AnthropicBaseProvider):
    """A Claude model, served by Anthropic or at another `base_url`."""

    kind: ClassVar[str] = "claude"

    def __init__(self, **settings: Any) -> None:
        super().__init__(home="https://api.anthropic.com", **settings)
