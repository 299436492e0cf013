"""Routes about what is wrong: the incidents, and that a person knows of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daemon.api.binding import Limit, Number, Offset
from daemon.api.context import ApiContext
from daemon.api.schemas import IncidentView, Page, iso, iso_or_none
from daemon.models import Incident


def incident_view(incident: Incident) -> IncidentView:
    return IncidentView(
        id=incident.id,
        subject=incident.subject,
        detail=incident.detail,
        opened=iso(incident.opened),
        seen=iso(incident.last_seen),
        count=incident.count,
        told=iso_or_none(incident.last_alert),
        targets=list(incident.targets),
        acked=iso_or_none(incident.acked),
        closed=iso_or_none(incident.closed),
        run=incident.run,
    )


async def list_incidents(
    api: ApiContext,
    *,
    all: Number = 0,  # noqa: A002 - the name in the query
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[IncidentView]:
    """List what is wrong now, the latest first; with `all` = 1 also what is over."""
    found = await api.journal.incidents(closed=bool(all), limit=cursor + limit + 1)
    items = [incident_view(each) for each in found[cursor : cursor + limit]]
    return Page(items=items, next=str(cursor + limit) if len(found) > cursor + limit else None)


async def acknowledge(api: ApiContext, *, id: Offset) -> IncidentView:  # noqa: A002
    """Take note that a person knows of an incident: no more reminders until it is over."""
    known = [
        *(f"routine {name}" for name in api.engine.routines),
        *(f"target {name}" for name in api.targets()),
        *(f"provider {name}" for name in api.providers()),
        *(f"approval for {name}" for name in api.engine.routines),
        "database",
    ]
    return incident_view(await api.journal.acknowledge(id, known=known))


ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("GET", "/v1/incidents", list_incidents),
    ("POST", "/v1/incidents/{id}/ack", acknowledge),
)
