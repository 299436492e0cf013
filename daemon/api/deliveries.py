"""Deliveries: what was sent, what was not, and what becomes of it."""

from __future__ import annotations

from daemon.api.binding import Limit, Offset, RouteRow
from daemon.api.context import ApiContext
from daemon.api.paging import next_offset
from daemon.api.schemas import DeliveryView, Page, view_of_delivery
from daemon.models import DeliveryStatus


async def list_deliveries(
    api: ApiContext,
    *,
    run: str | None = None,
    status: DeliveryStatus | None = None,
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[DeliveryView]:
    """List deliveries, newest first."""
    run_id = (await api.journal.runs.get(run)).id if run is not None else None
    end = cursor + limit
    deliveries = await api.journal.outbox.find(run=run_id, status=status, limit=end + 1)
    items = [view_of_delivery(delivery) for delivery in deliveries[cursor:end]]
    return Page(items=items, next=next_offset(deliveries, end))


async def retry_delivery(api: ApiContext, *, id: Offset) -> DeliveryView:  # noqa: A002
    """Send a delivery again that failed or was withheld; failures are retried for a day again."""
    delivery = await api.journal.outbox.send_again(id)
    api.outbox.wake()
    return view_of_delivery(delivery)


async def drop_delivery(api: ApiContext, *, id: Offset) -> DeliveryView:  # noqa: A002
    """Drop a delivery for good: it is neither sent nor shown as trouble any more."""
    return view_of_delivery(await api.journal.outbox.drop(id))


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/deliveries", list_deliveries),
    ("POST", "/v1/deliveries/{id}/retry", retry_delivery),
    ("POST", "/v1/deliveries/{id}/drop", drop_delivery),
)
