"""OpenAI, and whoever else answers to its SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from daemon.providers.sdk import SdkProvider
from daemon.providers.vendor import CONNECT_TIMEOUT, same_host
from daemon.providers.wire.chat import CHAT
from daemon.providers.wire.responses import RESPONSES

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_URL = "https://api.openai.com/v1"
_WIRES = {"chat": CHAT, "responses": RESPONSES}


class OpenAIProvider(SdkProvider):
    """OpenAI's models by Responses; any other `base_url` by Chat Completions, unless `api` says otherwise."""

    kind: ClassVar[str] = "openai"
    sdk: ClassVar[str] = "openai"

    def __init__(
        self, *, base_url: str | None = None, api: Literal["responses", "chat"] | None = None, **settings: Any
    ) -> None:
        url = base_url or _URL
        own = same_host(url, _URL)
        wire = _WIRES[api or ("responses" if own else "chat")]
        super().__init__(base_url=url, wire=wire, needs_key=own, **settings)

    def _build(self) -> AsyncOpenAI:
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        from daemon.providers.transport import OnlyBodiesDiffer, client_to

        # the SDK insists on a key; local servers want one to be there and ignore it
        key = self._api_key or "none"
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "User-Agent": "agentd"}

        class Client(OnlyBodiesDiffer, AsyncOpenAI):
            @property
            def default_headers(self) -> dict[str, Any]:
                # the SDK's own describe this machine, and hold what OPENAI_CUSTOM_HEADERS, OPENAI_ORG_ID and others say
                return headers

        return Client(
            api_key=key,
            base_url=self.base_url,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
            http_client=client_to(self.base_url, limit=self.max_answer, usual=DefaultAsyncHttpxClient),
        )
