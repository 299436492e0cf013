"""Where the spans of this process come together and go out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from daemon.errors import NotFound
from daemon.models import Json
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.telemetry.span_exporter import SpanExporter
from daemon.telemetry.spans import Span, spans_of_run

if TYPE_CHECKING:
    from daemon.definitions.config.live import LiveConfig
    from daemon.store.journal import Journal

# As the conventions call them (gen_ai.provider.name), by the host they answer on; others go by
# their kind.
VENDORS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "api.anthropic.com": "anthropic",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.x.ai": "x_ai",
    "api.perplexity.ai": "perplexity",
    "api.cohere.com": "cohere",
    "generativelanguage.googleapis.com": "gcp.gemini",
}
_PORTS = {"https": 443, "http": 80}
_RETRY = 5.0  # seconds, after a journal that could not be read
_MOST_WAITING = 2048  # spans, until they are handed to the SDK, whose own queue is as long


class Traces:
    """Take in what runs do, and send it off; whoever tells of something waits for nothing."""

    def __init__(
        self,
        exporter: SpanExporter,
        journal: Journal,
        *,
        settings: LiveConfig,
        now: Callable[[], datetime],
        redact: Callable[[str], str],
    ) -> None:
        self._exporter, self._journal, self._settings = exporter, journal, settings
        self._redact = redact
        self.now = now
        self._ended = CoalescingQueue("traces", self._tell_of, retry=_RETRY)
        self._waiting: deque[Span] = deque(maxlen=_MOST_WAITING)
        self._export = CoalescingQueue("spans", self._export_waiting, retry=_RETRY)

    @property
    def content(self) -> bool:
        """Whether what was said goes along."""
        return self._settings.config.otel.content

    def vendor(self, provider: str) -> str:
        """Return how the conventions call a provider of config.toml."""
        config = self._settings.config
        if provider not in config.provider_names:
            return provider
        settings = config.provider_config(provider)
        host = urlsplit(settings.base_url or "").hostname or ""
        known = next(
            (name for each, name in VENDORS.items() if host == each or host.endswith(f".{each}")),
            None,
        )
        if known or settings.base_url:
            return known or settings.kind
        return {"claude": "anthropic"}.get(settings.kind, settings.kind)

    def server(self, provider: str) -> Json:
        """Return where a provider of config.toml answers, if the config says so."""
        config = self._settings.config
        base = (
            config.provider_config(provider).base_url if provider in config.provider_names else None
        )
        address = urlsplit(base or "")
        if not address.hostname:
            return {}
        return {
            "server.address": address.hostname,
            "server.port": address.port or _PORTS.get(address.scheme, 443),
        }

    def add(self, span: Span) -> None:
        """Take in a span; secrets in what was said are taken out."""
        if self.content:
            clean = {
                key: self._redact(value) if isinstance(value, str) else value
                for key, value in span.attributes.items()
            }
            span = replace(
                span, attributes=clean, error=self._redact(span.error) if span.error else span.error
            )
        self._waiting.append(span)
        self._export.add("waiting")

    def look(self, run: str) -> None:
        """Tell of a run, if it has ended."""
        self._ended.add(run)

    async def _tell_of(self, runs: Sequence[str]) -> None:
        for name in runs:
            try:
                run = await self._journal.runs.get(name)
            except NotFound:
                continue  # forgotten meanwhile
            if run.status.has_ended:
                steps = await self._journal.runs.get_steps(run.id)
                vendor = self.vendor(run.provider) if run.provider else ""
                for span in spans_of_run(run, steps, provider=vendor, content=self.content):
                    self.add(span)

    async def _export_waiting(self, _: Sequence[str]) -> None:
        """Hand over what waits, in a thread: the SDK is imported for the first span."""
        spans = [self._waiting.popleft() for _ in range(len(self._waiting))]
        await asyncio.to_thread(self._exporter.export, spans)

    async def close(self) -> None:
        """Send what is left, for as long as that does not hold up the stop."""
        await self._ended.finish()
        await self._export.finish()
        await self._exporter.close()
