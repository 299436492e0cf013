"""Questions to the daemon that several views have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.call import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.cli.client import Client


def all_of(
    client: Client, target: str, most: int, until: Callable[[Any], bool] = lambda item: False
) -> list[Any]:
    """Return the items of a list, page after page, up to so many or to the first page that ends
    where it should.
    """
    answer = client.request("GET", target)
    items = list(answer["items"])
    while answer["next"] is not None and len(items) < most and not until(items[-1]):
        answer = client.request("GET", f"{target}&cursor={quote(answer['next'])}")
        items += answer["items"]
    return items
