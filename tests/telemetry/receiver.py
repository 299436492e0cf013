"""An OTLP receiver: a real HTTP server that decodes what arrives, as a collector would."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Got:
    """A span as it arrived."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    status: int
    status_message: str
    resource: dict[str, Any]
    scope: str


class Collector:
    """Takes spans on a port of its own; `answers` are the codes it gives, the last one for good."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers) or [200]
        self.spans: list[Got] = []
        self.requests: list[dict[str, str]] = []
        self._news = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = collector._take(self.path, dict(self.headers.items()), body)
                self.send_response(code)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        code = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with self._news:
            self.requests.append(
                {"path": path, **{key.lower(): value for key, value in headers.items()}}
            )
            if code == 200:
                self.spans += spans_of(ExportTraceServiceRequest.FromString(body))
            self._news.notify_all()
        return code

    def wait(self, holds: Any) -> None:
        """Return once the condition holds of what has arrived."""
        with self._news:
            assert self._news.wait_for(lambda: holds(self), 120), [span.name for span in self.spans]


def spans_of(request: Any) -> list[Got]:
    return [
        Got(
            name=span.name,
            kind=span.kind,
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=values(span.attributes),
            status=span.status.code,
            status_message=span.status.message,
            resource=values(resource.resource.attributes),
            scope=scope.schema_url,
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: plain(attribute.value) for attribute in attributes}


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind)
