"""Collect the spans of this process and pass them to the exporter."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from daemon.errors import DaemonError, DatabaseAway, NotFound
from daemon.models import Json
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.telemetry.span_exporter import SpanExporter
from daemon.telemetry.spans import Span, spans_of_run

if TYPE_CHECKING:
    from daemon.definitions.config.live import LiveConfig
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

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
_RETRY_SECONDS = 5.0  # seconds, after a journal that could not be read
_MAX_QUEUED_SPANS = 2048  # spans, until they are handed to the SDK, whose own queue is as long


class RunTracer:
    """Queue spans and export them in the background; adding a span never blocks."""

    def __init__(
        self,
        exporter: SpanExporter,
        journal: Journal,
        *,
        settings: LiveConfig,
        clock: Clock,
        redact: Callable[[str], str],
    ) -> None:
        self._exporter, self._journal, self._settings = exporter, journal, settings
        self._redact = redact
        self._clock = clock
        self._ended_runs = CoalescingQueue("traces", self._add_spans_of, retry=_RETRY_SECONDS)
        self._queued_spans: deque[Span] = deque(maxlen=_MAX_QUEUED_SPANS)
        self._export_requests = CoalescingQueue("spans", self._export_queued, retry=_RETRY_SECONDS)

    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        return self._clock.now()

    @property
    def with_content(self) -> bool:
        """Whether spans hold the texts of prompts and answers."""
        return self._settings.config.otel.content

    def vendor(self, provider: str) -> str:
        """Return the name that OpenTelemetry's conventions have for a provider of config.toml."""
        config = self._settings.config
        if provider not in config.provider_names:
            return provider
        settings = config.provider_config(provider)
        host = urlsplit(settings.base_url or "").hostname or ""
        vendor_name = next(
            (
                name
                for domain, name in VENDORS.items()
                if host == domain or host.endswith(f".{domain}")
            ),
            None,
        )
        if vendor_name or settings.base_url:
            return vendor_name or settings.kind
        return {"claude": "anthropic"}.get(settings.kind, settings.kind)

    def server(self, provider: str) -> Json:
        """Return the server attributes of a provider of config.toml; empty if it has no
        `base_url`.
        """
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
        """Queue a span, with secrets in its texts redacted."""
        if self.with_content:
            attributes = {
                key: self._redact(value) if isinstance(value, str) else value
                for key, value in span.attributes.items()
            }
            span = replace(
                span,
                attributes=attributes,
                error=self._redact(span.error) if span.error else span.error,
            )
        self._queued_spans.append(span)
        self._export_requests.add("waiting")  # one name for all: they are exported together

    def export_run(self, run: str) -> None:
        """Export the spans of a run, if it has ended."""
        self._ended_runs.add(run)

    async def _add_spans_of(self, runs: Sequence[str]) -> None:
        for run_id in runs:
            try:
                run = await self._journal.runs.get(run_id)
                if not run.status.has_ended:
                    continue
                steps = await self._journal.runs.get_steps(run.id)
                vendor = self.vendor(run.provider) if run.provider else ""
                # a list, so that of a run with a damaged step nothing is added
                spans = list(
                    spans_of_run(run, steps, provider=vendor, with_content=self.with_content)
                )
            except NotFound:
                continue  # forgotten meanwhile
            except DatabaseAway:
                raise  # it is tried again
            except (DaemonError, AttributeError, LookupError, TypeError, ValueError) as error:
                # a damaged row stays so, and would keep the spans of all other runs back
                log.warning("traces.run_left_out", run=run_id, error=str(error))
                continue
            for span in spans:
                self.add(span)

    async def _export_queued(self, _: Sequence[str]) -> None:
        """Export the queued spans in a thread, as the first one imports the SDK."""
        spans = [self._queued_spans.popleft() for _ in range(len(self._queued_spans))]
        await asyncio.to_thread(self._exporter.export, spans)

    async def close(self) -> None:
        """Export what is left, as far as that does not delay the end of the process."""
        await self._ended_runs.finish()
        await self._export_requests.finish()
        await self._exporter.close()
