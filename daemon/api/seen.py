"""Items that routines have reported already."""

from __future__ import annotations

from http import HTTPStatus

from typing_extensions import TypedDict

from daemon.api.binding import Limit, Number, Offset, RouteRow
from daemon.api.context import ApiContext
from daemon.api.problems import InvalidRequest
from daemon.api.routine_states import check_exists
from daemon.api.schemas import iso
from daemon.tools.reported_items import item_key


class SeenItemView(TypedDict):
    """An item that a routine has reported."""

    key: str
    """What tells it from others; empty where the run that reported it was forgotten."""
    title: str
    """The title that it was reported with."""
    first: str
    """When a run first found it."""
    last: str
    """When a run last found it."""
    times: int
    """In how many runs it was found."""
    run: str
    """The id of the run that reported it."""


class SeenItemList(TypedDict):
    """What a routine has reported."""

    items: list[SeenItemView]
    """This part of the items, the latest first."""
    next: str | None
    """The `cursor` of the following part; null on the last one."""
    total: int
    """How many there are in all parts."""


class SeenItemCountView(TypedDict):
    """How many items may be reported again."""

    forgotten: int
    """The count."""


async def list_seen(
    api: ApiContext, *, name: str, limit: Limit = 50, cursor: Offset = 0
) -> SeenItemList:
    """List what a routine with [dedupe] has reported, the latest first."""
    seen_items, total = await api.journal.seen_items.find(name, limit=limit, offset=cursor)
    if not total:
        await check_exists(api, name)
    items = [
        SeenItemView(
            key=item.key,
            title=item.title,
            first=iso(item.first),
            last=iso(item.last),
            times=item.times,
            run=item.run,
        )
        for item in seen_items
    ]
    return SeenItemList(
        items=items, next=str(cursor + limit) if cursor + limit < total else None, total=total
    )


async def forget_seen(
    api: ApiContext,
    *,
    name: str,
    key: str | None = None,
    all: Number = 0,  # noqa: A002
) -> SeenItemCountView:
    """Forget that an item was reported, or with `all` = 1 every item: it is new again when it is
    found again.
    """
    if (key is None) != bool(all):
        raise InvalidRequest("name one 'key', or send 'all': 1", HTTPStatus.UNPROCESSABLE_ENTITY)
    if key is None:
        return SeenItemCountView(forgotten=await api.journal.seen_items.forget(name))
    routine = api.engine.routines.get(name)
    key_field = routine.dedupe.key if routine and routine.dedupe else "url"
    return SeenItemCountView(
        forgotten=await api.journal.seen_items.forget(name, item_key({key_field: key}, key_field))
    )


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/routines/{name}/seen", list_seen),
    ("POST", "/v1/routines/{name}/seen/forget", forget_seen),
)
