"""Config, policy and routines, read again."""

from __future__ import annotations

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.schemas import ReloadView


async def reload(api: ApiContext) -> ReloadView:
    """Read config, policy and routines again; a fault changes nothing and is returned."""
    return await api.administration.reload_by_request()


ROUTES: tuple[RouteRow, ...] = (("POST", "/v1/reload", reload),)
