"""Traces: what runs did and when, as OpenTelemetry's conventions for generative AI put it (extra `otel`).

In this room: a run as spans (values), the provider that times each call to a model, and the exporter that leaves spans
to the SDK's batch processor. Not in this room: any change to a run. A receiver that is slow, wrong or gone costs spans
and nothing else; what the spans are made of is in the journal anyway.

Nothing of OpenTelemetry is imported until the first span is on its way, and nothing of this room while traces are off.
"""

from daemon.traces.exporter import Receiver, SpanExporter, otlp_pipeline, wanted
from daemon.traces.traced import Traced
from daemon.traces.traces import Traces

__all__ = ["Receiver", "SpanExporter", "Traced", "Traces", "otlp_pipeline", "wanted"]
