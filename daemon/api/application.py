"""What all HTTP servers of agentd share: routes of one method, errors as problem+json, and the
refusal of requests that a browser sends for a web page.
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
    handle_daemon_error,
    handle_http_error,
    handle_invalid_request,
    handle_unexpected_error,
    make_problem,
)
from daemon.errors import DaemonError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute


def make_application(routes: Sequence[BaseRoute]) -> Starlette:
    """Return an ASGI application with these routes that answers every error as problem+json."""
    application = Starlette(
        routes=routes,
        exception_handlers={
            DaemonError: handle_daemon_error,
            InvalidRequest: handle_invalid_request,
            HTTPException: handle_http_error,  # type: ignore[dict-item]
            Exception: handle_unexpected_error,
        },
    )
    # By default a path with a slash at its end is answered with a redirect to the one without;
    # here it is no route. Starlette has no parameter for this.
    application.router.redirect_slashes = False
    return application


def route_of(method: str, path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a route that answers requests of this method only."""
    route = Route(path, handler, methods=[method])
    # Starlette lets each GET route answer HEAD as well, and has no parameter to prevent it
    # (tests/api/test_starlette_contract.py). Here HEAD would cost as much as GET.
    route.methods = {method}
    return route


def refuse_browser(headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
    """Return the refusal of a request that a browser sends for a web page; None for any other.

    Such a request can reach the socket through a proxy.
    """
    for name, _ in headers:
        if name in (b"origin", b"referer") or name.startswith(b"sec-fetch-"):
            return make_problem(
                HTTPStatus.FORBIDDEN, "requests of web pages are not answered here", "browser"
            )
    return None
