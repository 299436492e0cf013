"""MiniMax, through its API that is compatible with Anthropic's.

Its other API, compatible with OpenAI's, puts the thinking of most models into the text.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from daemon.providers.anthropic_base import AnthropicBaseProvider

# Two sites with separate accounts: a key of one is refused by the other.
_URLS = {"cn": "https://api.minimaxi.com/anthropic", "intl": "https://api.minimax.io/anthropic"}


class MiniMaxProvider(AnthropicBaseProvider):
    """MiniMax's models, in China or abroad."""

    kind: ClassVar[str] = "minimax"

    def __init__(self, *, region: Literal["cn", "intl"] | None = None, **settings: Any) -> None:
        super().__init__(home=_URLS[region or "cn"], **settings)
