"""What is wrong with the installation."""

from __future__ import annotations

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.schemas import DoctorView


async def examine(api: ApiContext) -> DoctorView:
    """Check the installation; every fault comes with its fix."""
    checks = list(await api.administration.examine())
    return DoctorView(ok=all(check["state"] != "fail" for check in checks), checks=checks)


ROUTES: tuple[RouteRow, ...] = (("GET", "/v1/doctor", examine),)
