"""Requests to the daemon that several views share."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from daemon.cli.call import quote

if TYPE_CHECKING:
    from daemon.cli.client import Client


def request_items(
    client: Client, path: str, limit: int, *, since: datetime | None = None
) -> list[Any]:
    """Return the items of a list, page after page, until there are `limit` of them.

    With `since`, stop after a page whose last item was created before. The last page is returned
    whole, so there may be more or older items than asked for.
    """
    answer = client.request("GET", path)
    items = list(answer["items"])
    while answer["next"] is not None and len(items) < limit:
        if since and datetime.fromisoformat(items[-1]["created"]) < since:
            break
        answer = client.request("GET", f"{path}&cursor={quote(answer['next'])}")
        items += answer["items"]
    return items
