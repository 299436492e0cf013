"""What the servers of agentd share: routes of one method, errors as problem+json, no answers for
web pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from daemon.api.problems import (
    InvalidRequest,
    of_bad_request,
    of_daemon_error,
    of_http_error,
    of_our_fault,
    problem,
)
from daemon.errors import DaemonError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute


def application_with(routes: Sequence[BaseRoute]) -> Starlette:
    """Return an ASGI application that answers every error as problem+json."""
    application = Starlette(
        routes=routes,
        exception_handlers={
            DaemonError: of_daemon_error,
            InvalidRequest: of_bad_request,
            HTTPException: of_http_error,  # type: ignore[dict-item]
            Exception: of_our_fault,
        },
    )
    application.router.redirect_slashes = False
    return application


def route_of(method: str, path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a route that takes requests of this method only."""
    route = Route(path, handler, methods=[method])
    # Starlette lets each GET route answer HEAD as well, and has no parameter against that
    # (tests/api/test_starlette_contract.py). Here HEAD would cost as much as GET.
    route.methods = {method}
    return route


def refuse_browser(headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
    """Return the refusal of a request that a browser sends for a web page; None for any other.

    Such a request can reach the socket through a proxy.
    """
    for name, _ in headers:
        if name in (b"origin", b"referer") or name.startswith(b"sec-fetch-"):
            return problem(
                HTTPStatus.FORBIDDEN, "requests of web pages are not answered here", "browser"
            )
    return None
