"""What the servers of agentd share: errors as problem+json, and no answers for web pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

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


def refuse_browser(headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
    """Return the refusal of a request that a web page makes, by way of a proxy it found; None for
    any other.
    """
    for name, _ in headers:
        if name in (b"origin", b"referer") or name.startswith(b"sec-fetch-"):
            return problem(
                HTTPStatus.FORBIDDEN, "requests of web pages are not answered here", "browser"
            )
    return None
