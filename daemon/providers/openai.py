"""OpenAI, and other servers by the OpenAI SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from daemon.providers.sdk import SdkProvider
from daemon.providers.vendor import same_host
from daemon.providers.wire.chat import CHAT
from daemon.providers.wire.responses import RESPONSES

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_URL = "https://api.openai.com/v1"
_WIRES = {"chat": CHAT, "responses": RESPONSES}


class OpenAIProvider(SdkProvider):
    """A model behind OpenAI's Responses API, or behind Chat Completions at any other `base_url`.
    `api` chooses explicitly.
    """

    kind: ClassVar[str] = "openai"
    sdk: ClassVar[str] = "openai"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api: Literal["responses", "chat"] | None = None,
        **settings: Any,
    ) -> None:
        url = base_url or _URL
        is_own_vendor = same_host(url, _URL)
        wire = _WIRES[api or ("responses" if is_own_vendor else "chat")]
        super().__init__(base_url=url, wire=wire, needs_key=is_own_vendor, **settings)

    def _build_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(**self._client_settings({}))
