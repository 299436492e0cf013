"""The control API as a table of routes; each module has the routes of one feature.

Every POST and PUT counts as an act of the operator, and the time of the last one is kept: a gate
can ask how long ago it was.
"""

from __future__ import annotations

from typing import Any

from daemon.api import (
    approvals,
    ask,
    deliveries,
    doctor,
    events,
    forecast,
    incidents,
    mcp,
    memory,
    preview,
    rehearse,
    reload,
    replay,
    routine_sources,
    routines,
    runs,
    schedule,
    seen,
    status,
    usage,
)
from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext


async def show_openapi(api: ApiContext) -> dict[str, Any]:
    """Return this API as an OpenAPI 3.1 document."""
    from daemon.api.openapi import make_document

    return make_document(ROUTES, api.version)


ROUTES: tuple[RouteRow, ...] = (
    *status.ROUTES,
    *routines.ROUTES,
    *routine_sources.ROUTES,
    *schedule.ROUTES,
    *runs.ROUTES,
    *events.ROUTES,
    *deliveries.ROUTES,
    *incidents.ROUTES,
    *forecast.ROUTES,
    *usage.ROUTES,
    *approvals.ROUTES,
    *ask.ROUTES,
    *preview.ROUTES,
    *replay.ROUTES,
    *rehearse.ROUTES,
    *memory.ROUTES,
    *seen.ROUTES,
    *mcp.ROUTES,
    *doctor.ROUTES,
    *reload.ROUTES,
    ("GET", "/v1/openapi.json", show_openapi),
)
