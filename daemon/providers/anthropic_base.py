"""Base of the providers of Anthropic's Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from daemon.providers.sdk import SdkProvider
from daemon.providers.vendor import same_host
from daemon.providers.wire.messages import MESSAGES

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# The version of the API that `wire.messages` is written for.
_VERSION = "2026-10-21"


class AnthropicBaseProvider(SdkProvider):
    """A model behind the Messages API. `home` is the vendor's own address."""

    sdk: ClassVar[str] = "anthropic"

    def __init__(self, *, home: str, base_url: str | None = None, **settings: Any) -> None:
        # People copy the address with /v1, which is part of the path here.
        url = (base_url or home).rstrip("/").removesuffix("/v1")
        self._is_own_vendor = same_host(url, home)
        super().__init__(base_url=url, wire=MESSAGES, needs_key=self._is_own_vendor, **settings)

    def _build_client(self) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        headers = {"anthropic-version": _VERSION}
        if not self._is_own_vendor:
            # some compatible servers look only there
            headers["X-Api-Key"] = self._api_key or "none"
        return AsyncAnthropic(**self._client_settings(headers), open_telemetry=False)
