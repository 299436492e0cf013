"""The route `/metrics`, for monitoring systems."""

from __future__ import annotations

from collections import Counter

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.api.application import refuse_browser, route_of
from daemon.api.context import ApiContext
from daemon.api.routine_states import names_of, state_of
from daemon.telemetry.metrics import JournalMetrics

# As Prometheus asks for it
# (https://prometheus.io/docs/instrumenting/exposition_formats/#basic-info).
MEDIA_TYPE = "text/plain; version=0.0.4"


async def render_metrics(api: ApiContext) -> str:
    """Return all metrics as Prometheus text."""
    history = await api.journal.history.get_metrics()
    journal_metrics = JournalMetrics(
        version=api.version,
        started=api.process.start.timestamp(),
        runs=history.runs,
        outbox=history.outbox,
        incidents=history.incidents,
        routines=Counter(state_of(api, name) for name in names_of(api)),
        successes=history.successes,
        tokens=history.tokens,
        cost=history.cost,
        size=history.size,
    )
    return api.metrics.render(journal_metrics)


def metrics_route(api: ApiContext) -> Route:
    """Return the route of `/metrics`."""

    async def answer(request: Request) -> Response:
        if refusal := refuse_browser(request.headers.raw):
            return refusal
        return PlainTextResponse(await render_metrics(api), media_type=MEDIA_TYPE)

    return route_of("GET", "/metrics", answer)
