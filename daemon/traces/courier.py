"""The courier: a thread that hands spans to an OTLP receiver over HTTP, and the only one to know OpenTelemetry.

The SDK's own batch processor wakes up every five seconds for nothing and logs every failure; this one sleeps until
there is a span, and says once that the receiver does not answer, and once that it does again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from daemon import __version__
from daemon.errors import ConfigError, Fault

if TYPE_CHECKING:
    from daemon.traces.spans import Span

log = structlog.get_logger()

PACKAGE = "opentelemetry.exporter.otlp.proto.http"
MOST = 8192  # spans waiting; beyond that the oldest go, as a receiver that is gone must not fill the memory
BATCH = 512  # spans to a request, as the SDK does
GATHER = 1.0  # seconds in which more may come before a request is made
PATIENCE = 3.0  # seconds that a stop waits for the last request
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """Where spans go."""

    endpoint: str | None
    """The address, path included; None: as the variables OTEL_EXPORTER_OTLP_… say."""


class Exporter(Protocol):
    """What the courier needs of an exporter of OpenTelemetry."""

    def export(self, spans: Sequence[Any], /) -> Any: ...
    def shutdown(self) -> None: ...


def wanted(endpoint: str | None, env: Mapping[str, str], *, file: str) -> Receiver | None:
    """Return where spans are to go, None if nowhere; ConfigError if the config wants what is not installed."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    named = [env.get(f"OTEL_EXPORTER_OTLP_{each}ENDPOINT", "").strip() for each in ("TRACES_", "")]
    if not (endpoint or any(named)) or (not endpoint and env.get("OTEL_TRACES_EXPORTER", "").strip() == "none"):
        return None
    protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
    if not endpoint and protocol not in ("", "http/protobuf"):
        log.warning("traces.off", found=protocol, fix="OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or otel.endpoint")
        return None
    if not _installed():
        hint = "pip install 'agentd-routines[otel]'"
        if endpoint:
            problem = "traces need the extra otel, which is not installed"
            raise ConfigError(Fault(file=file, key="otel.endpoint", found=endpoint, problem=problem, hint=hint))
        log.warning("traces.off", found="OTEL_EXPORTER_OTLP_ENDPOINT is set, the extra otel is not installed", fix=hint)
        return None
    if endpoint and not endpoint.rstrip("/").endswith("/v1/traces"):
        endpoint = f"{endpoint.rstrip('/')}/v1/traces"
    return Receiver(endpoint=endpoint)


def _installed() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False


def over_http(receiver: Receiver) -> Exporter:
    """Return the exporter for a receiver."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it says at each failure, we say once
    module = import_module(f"{PACKAGE}.trace_exporter")
    exporter: Exporter = module.OTLPSpanExporter(endpoint=receiver.endpoint)
    return exporter


class Courier:
    """Take spans from any thread, hand them over from its own."""

    def __init__(self, make: Callable[[], Exporter], *, gather: float = GATHER) -> None:
        self._make, self._gather = make, gather
        self._spans: deque[Span] = deque(maxlen=MOST)
        self._lost = 0
        self._failing = False
        self._thread: threading.Thread | None = None
        self._news, self._closing = threading.Event(), threading.Event()
        self._exporter: Exporter | None = None

    def take(self, span: Span) -> None:
        """Send a span off, by and by; never blocks."""
        if self._closing.is_set():
            return
        self._lost += len(self._spans) == MOST
        self._spans.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
            self._thread.start()
        self._news.set()

    async def close(self, patience: float = PATIENCE) -> None:
        """Send what is left; a receiver that does not answer in time gets none of it."""
        self._closing.set()
        self._news.set()
        if self._thread is None:
            return
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        thread = self._thread

        def wait() -> None:
            thread.join(patience)
            loop.call_soon_threadsafe(gone.set)

        threading.Thread(target=wait, name="traces, closing", daemon=True).start()
        await gone.wait()
        if thread.is_alive():
            log.warning("traces.lost", spans=len(self._spans), detail="the receiver did not answer in time")
            if self._exporter:
                self._exporter.shutdown()

    def _work(self) -> None:
        try:
            maker = _Maker()
            exporter = self._exporter = self._make()
            while self._spans or not self._closing.is_set():
                self._news.wait()
                self._closing.wait(self._gather)
                self._news.clear()
                while self._spans:
                    batch = [self._spans.popleft() for _ in range(min(BATCH, len(self._spans)))]
                    self._told(
                        len(batch), done=_export(exporter, [made for each in batch if (made := maker.made_of(each))])
                    )
            exporter.shutdown()
        except Exception:  # of somebody else's package: runs go on without traces
            log.exception("traces.off")
            self._closing.set()

    def _told(self, count: int, *, done: bool) -> None:
        """Say when the receiver begins to fail, and when it is there again."""
        if not done:
            self._lost += count
            if not self._failing:
                log.warning("traces.lost", spans=count, detail="the receiver did not take them; what follows is tried")
        elif self._lost:
            log.warning("traces.sent_again", lost=self._lost)
            self._lost = 0
        self._failing = not done


def _export(exporter: Exporter, spans: Sequence[Any]) -> bool:
    return not spans or exporter.export(spans).name == "SUCCESS"


class _Maker:
    """Makes spans of OpenTelemetry out of ours; its sampler and limits are those that the environment sets."""

    def __init__(self) -> None:
        self._trace = import_module("opentelemetry.trace")
        sdk = import_module("opentelemetry.sdk.trace")
        resources = import_module("opentelemetry.sdk.resources")
        self._trace_id = self._span_id = 1
        ids = import_module("opentelemetry.sdk.trace.id_generator").RandomIdGenerator()
        ids.generate_trace_id, ids.generate_span_id = lambda: self._trace_id, lambda: self._span_id
        resource = resources.Resource.create({"service.version": __version__})
        if str(resource.attributes["service.name"]).startswith("unknown_service"):  # nobody named it
            resource = resource.merge(resources.Resource({"service.name": "agentd"}))
        self._provider = sdk.TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        self._tracer = self._provider.get_tracer("agentd", __version__, schema_url=SCHEMA)

    def made_of(self, span: Span) -> Any:
        """Return the finished span; None if the sampler does not want its trace."""
        trace = self._trace
        decision = self._provider.sampler.should_sample(None, span.trace, span.name).decision
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if decision.is_sampled() else trace.TraceFlags.DEFAULT)
        context = None
        if span.parent is not None:
            above = trace.SpanContext(span.trace, span.parent, is_remote=False, trace_flags=flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(above))
        self._trace_id, self._span_id = span.trace, span.id
        made = self._tracer.start_span(
            span.name,
            context=context,
            kind=trace.SpanKind.CLIENT if span.client else trace.SpanKind.INTERNAL,
            attributes=span.attributes,
            start_time=span.start,
            record_exception=False,
        )
        if not made.is_recording():
            return None
        if span.error is not None:
            made.set_status(trace.Status(trace.StatusCode.ERROR, span.error or None))
        made.end(max(span.start, span.end))
        return made
