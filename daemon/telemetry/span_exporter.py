"""Export spans to an OTLP receiver by OpenTelemetry's SDK, which is imported with the first
span.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from daemon.errors import ConfigError, Fault

if TYPE_CHECKING:
    from daemon.telemetry.otel_sdk import SpanPipeline
    from daemon.telemetry.spans import Span

log = structlog.get_logger()

PACKAGE = "opentelemetry.exporter.otlp.proto.http"
CLOSE_TIMEOUT = 3.0  # seconds that a stop waits for the last request


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """Where spans go."""

    endpoint: str | None
    """The address, path included; None: as the variables OTEL_EXPORTER_OTLP_… say."""


def find_receiver(endpoint: str | None, env: Mapping[str, str], *, file: str) -> Receiver | None:
    """Return the receiver that config.toml or the environment names; None if there is none.

    Raises ConfigError if config.toml names one and the SDK is not installed.
    """
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    addresses = [
        env.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "").strip() for signal in ("TRACES_", "")
    ]
    if not (endpoint or any(addresses)) or (
        not endpoint and env.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    ):
        return None
    protocol = (
        env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or ""
    )
    if not endpoint and protocol not in ("", "http/protobuf"):
        log.warning(
            "traces.off",
            found=protocol,
            fix="OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or otel.endpoint",
        )
        return None
    if not _is_installed():
        hint = "pip install 'agentd-routines[otel]'"
        if endpoint:
            problem = "traces need the extra otel, which is not installed"
            raise ConfigError(
                Fault(file=file, key="otel.endpoint", found=endpoint, problem=problem, hint=hint)
            )
        log.warning(
            "traces.off",
            found="OTEL_EXPORTER_OTLP_ENDPOINT is set, the extra otel is not installed",
            fix=hint,
        )
        return None
    if endpoint and not endpoint.rstrip("/").endswith("/v1/traces"):
        endpoint = f"{endpoint.rstrip('/')}/v1/traces"
    return Receiver(endpoint=endpoint)


def _is_installed() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False


def otlp_pipeline(receiver: Receiver) -> SpanPipeline:
    """Return a pipeline to a receiver; imports the SDK, which takes some 0.3 s."""
    from daemon.telemetry import otel_sdk

    return otel_sdk.otlp_pipeline(receiver.endpoint)


class SpanExporter:
    """Export spans in the background; the first span imports the SDK and starts its thread."""

    def __init__(self, make_pipeline: Callable[[], SpanPipeline]) -> None:
        self._make_pipeline = make_pipeline
        self._pipeline: SpanPipeline | None = None
        self._is_off = False

    def export(self, spans: Sequence[Span]) -> None:
        """Queue spans for the batch processor. Call it in a thread: the first call imports the
        SDK.
        """
        if self._is_off:
            return
        try:
            if self._pipeline is None:
                self._pipeline = self._make_pipeline()
            for span in spans:
                self._pipeline.add(span)
        except Exception:  # a background task, of the SDK: runs go on without traces
            log.exception("traces.off")
            self._is_off = True

    async def close(self, seconds: float = CLOSE_TIMEOUT) -> None:
        """Send the queued spans; give up after `seconds`."""
        pipeline, self._is_off = self._pipeline, True
        if pipeline is None:
            return
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            pipeline.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(closed.set)

        # a daemon thread: a receiver that hangs must not hold up the end of the process
        threading.Thread(target=shut_down, name="traces", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await closed.wait()
        except TimeoutError:
            log.warning(
                "traces.lost",
                spans=pipeline.unsent_count,
                detail="the receiver did not answer in time",
            )
            pipeline.give_up()
