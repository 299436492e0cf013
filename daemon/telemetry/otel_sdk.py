"""Converts spans of agentd to those of OpenTelemetry's SDK, whose batch processor exports them from
a thread of its own.

Imported with the first span; no other file uses OpenTelemetry.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace import export as sdk_export
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from daemon import __version__
from daemon.telemetry.spans import Span

log = structlog.get_logger()

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class SpanIds(IdGenerator):
    """Gives the next span the ids that follow from its run."""

    trace_id = span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class CountingExporter(sdk_export.SpanExporter):
    """An exporter that says once that the receiver takes no spans, and once that it does again."""

    def __init__(self, exporter: sdk_export.SpanExporter) -> None:
        self._exporter = exporter
        self._lost_spans = 0
        self._is_failing = False
        self.exported_count = 0
        """Spans that have left the queue, whatever became of them."""

    def export(self, spans: Sequence[ReadableSpan]) -> sdk_export.SpanExportResult:
        result = self._exporter.export(spans)
        self.exported_count += len(spans)
        if result is sdk_export.SpanExportResult.SUCCESS:
            if self._lost_spans:
                log.warning("traces.sent_again", lost=self._lost_spans)
            self._lost_spans, self._is_failing = 0, False
        else:
            self._lost_spans += len(spans)
            if not self._is_failing:
                detail = "the receiver did not take them; what follows is tried"
                log.warning("traces.lost", spans=len(spans), detail=detail)
            self._is_failing = True
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class SpanPipeline:
    """The SDK's sampler, batch processor and exporter, configured by the variables OTEL_…."""

    def __init__(self, exporter: sdk_export.SpanExporter) -> None:
        # The SDK logs each failed request; CountingExporter logs the first and the end of them.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._ids = SpanIds()
        resource = Resource.create({"service.version": __version__})
        has_name = not str(resource.attributes["service.name"]).startswith("unknown_service")
        if not has_name:
            resource = resource.merge(Resource({"service.name": "agentd"}))
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._tracer = self._provider.get_tracer("agentd", __version__, schema_url=SCHEMA)
        self._exporter = CountingExporter(exporter)
        self._provider.add_span_processor(sdk_export.BatchSpanProcessor(self._exporter))
        self._sampled_count = 0

    @property
    def unsent_count(self) -> int:
        """How many spans have not been sent; among them those that a full queue has dropped."""
        return self._sampled_count - self._exporter.exported_count

    def add(self, span: Span) -> None:
        """Queue a span for the batch processor, as a span of the SDK, if the sampler samples its
        trace.
        """
        decision = self._provider.sampler.should_sample(None, span.trace, span.name).decision
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        context = None
        if span.parent is not None:
            parent = SpanContext(span.trace, span.parent, is_remote=False, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(parent))
        self._ids.trace_id, self._ids.span_id = span.trace, span.id
        sdk_span = self._tracer.start_span(
            span.name,
            context=context,
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            attributes=span.attributes,
            start_time=span.start,
            record_exception=False,
        )
        if span.error is not None:
            sdk_span.set_status(Status(StatusCode.ERROR, span.error or None))
        self._sampled_count += sdk_span.get_span_context().trace_flags.sampled
        sdk_span.end(max(span.start, span.end))

    def shutdown(self) -> None:
        """Send what waits; blocks for as long as the receiver takes."""
        self._provider.shutdown()

    def give_up(self) -> None:
        """End a `shutdown` in another thread: no request is repeated, none is begun."""
        self._exporter.shutdown()


def otlp_pipeline(endpoint: str | None) -> SpanPipeline:
    """Return a pipeline to an OTLP receiver over HTTP; None: the endpoint that the variables
    OTEL_EXPORTER_OTLP_… name.
    """
    return SpanPipeline(OTLPSpanExporter(endpoint=endpoint))
