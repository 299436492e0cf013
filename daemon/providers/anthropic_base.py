"""What the vendors that speak Anthropic's language have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from daemon.providers.sdk import SdkProvider
from daemon.providers.vendor import CONNECT_TIMEOUT, same_host
from daemon.providers.wire.messages import MESSAGES

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# The version of the API that `wire.messages` is written for.
_VERSION = "2026-10-21"


class AnthropicBaseProvider(SdkProvider):
    """A model that speaks Messages; `home` is its vendor's address."""

    sdk: ClassVar[str] = "anthropic"

    def __init__(self, *, home: str, base_url: str | None = None, **settings: Any) -> None:
        # people copy the address with the version, which is part of the path here
        url = (base_url or home).rstrip("/").removesuffix("/v1")
        self._own = same_host(url, home)
        super().__init__(base_url=url, wire=MESSAGES, needs_key=self._own, **settings)

    def _build(self) -> AsyncAnthropic:
        import httpx2
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        from daemon.providers.transport import OnlyBodiesDiffer, client_to

        key = self._api_key or "none"
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "User-Agent": "agentd"}
        headers["anthropic-version"] = _VERSION
        if not self._own:
            headers["X-Api-Key"] = key  # some compatible servers look only there

        class Client(OnlyBodiesDiffer, AsyncAnthropic):
            @property
            def default_headers(self) -> dict[str, Any]:
                return headers  # the SDK's own describe this machine

        client = Client(
            api_key=key,
            base_url=self.base_url,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
            http_client=client_to(self.base_url, limit=self.max_answer, usual=DefaultAsyncHttpxClient),
            open_telemetry=False,
        )
        client._custom_headers = {}  # what ANTHROPIC_CUSTOM_HEADERS put there would win over ours
        return client
