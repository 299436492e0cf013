"""Incidents: what is wrong, and that a person knows of one."""

from __future__ import annotations

from daemon.api.binding import Limit, Number, Offset, RouteRow
from daemon.api.context import ApiContext
from daemon.api.paging import next_offset
from daemon.api.schemas import IncidentView, Page, iso, iso_or_none
from daemon.models import Incident


def view_of_incident(incident: Incident) -> IncidentView:
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
    end = cursor + limit
    incidents = await api.journal.incidents.find(closed=bool(all), limit=end + 1)
    items = [view_of_incident(incident) for incident in incidents[cursor:end]]
    return Page(items=items, next=next_offset(incidents, end))


async def acknowledge(api: ApiContext, *, id: Offset) -> IncidentView:  # noqa: A002
    """Record that a person knows of an incident: no reminder is sent until it is over."""
    subjects = [
        *(f"routine {name}" for name in api.engine.routines),
        *(f"target {name}" for name in api.settings.config.target_names),
        *(f"provider {name}" for name in api.settings.config.provider_names),
        *(f"approval for {name}" for name in api.engine.routines),
        *(f"injection check of {name}" for name in api.engine.routines),
        *(f"mcp {name}" for name in api.mcp_servers.configs),
        "database",
    ]
    return view_of_incident(await api.journal.incidents.acknowledge(id, existing_subjects=subjects))


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/incidents", list_incidents),
    ("POST", "/v1/incidents/{id}/ack", acknowledge),
)
