"""Every error as application/problem+json (RFC 9457): what it is for machines, what to do for
people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import Response

from daemon.api.schemas import FaultView, ProblemView, encoded, fault_views
from daemon.errors import ConfigError, DaemonError, NotFound, Refused, StateBusy, StoreFull

if TYPE_CHECKING:
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

MEDIA_TYPE = "application/problem+json"

# Which answer an error gets: the first row that fits. Everything else of ours is somebody's fault
# but not the client's.
ANSWERS: tuple[tuple[type[DaemonError], HTTPStatus, str], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND, "not_found"),
    (Refused, HTTPStatus.CONFLICT, "refused"),
    (StateBusy, HTTPStatus.CONFLICT, "busy"),
    (ConfigError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"),
    (StoreFull, HTTPStatus.INSUFFICIENT_STORAGE, "disk_full"),
    (DaemonError, HTTPStatus.INTERNAL_SERVER_ERROR, "failed"),
)

# Python 3.13 has other words for these (of RFC 9110); what a client compares stays the same with
# every Python.
_TITLES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Request Entity Too Large",
    HTTPStatus.REQUEST_URI_TOO_LONG: "Request-URI Too Long",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Entity",
}


class InvalidRequest(Exception):
    """The request itself cannot be used; the API's own complaint, before any room of the daemon is
    asked.
    """

    def __init__(self, detail: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        self.status = status
        super().__init__(detail)


def problem(
    status: HTTPStatus,
    detail: str,
    code: str,
    *,
    faults: Sequence[FaultView] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an answer that says what went wrong."""
    body = ProblemView(
        title=_TITLES.get(status, status.phrase), status=status.value, detail=detail, code=code
    )
    if faults:
        body["faults"] = list(faults)
    return Response(encoded(body), status_code=status.value, media_type=MEDIA_TYPE, headers=headers)


def of_daemon_error(_request: Request, error: Exception) -> Response:
    """Answer for an error of ours."""
    status, code = next((status, code) for kind, status, code in ANSWERS if isinstance(error, kind))
    return problem(
        status,
        str(error),
        code,
        faults=fault_views(error) if isinstance(error, ConfigError) else (),
    )


def of_bad_request(_request: Request, error: Exception) -> Response:
    """Answer for a request that cannot be used."""
    status = error.status if isinstance(error, InvalidRequest) else HTTPStatus.BAD_REQUEST
    return problem(status, str(error), "bad_request")


def of_http_error(request: Request, error: HTTPException) -> Response:
    """Answer for a path or method that does not exist."""
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.NOT_FOUND:
        detail = f"there is no {request.url.path[:100]} here; /v1/openapi.json lists what there is"
        return problem(status, detail, "no_route")
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"{request.url.path} takes {allowed}, not {request.method}"
        return problem(status, detail, "method", headers={"Allow": allowed})
    return problem(status, error.detail, "http")


def of_our_fault(_request: Request, _error: Exception) -> Response:
    """Answer for a mistake of agentd itself; the traceback is for its log, not for the client."""
    detail = "agentd made a mistake here; `agentctl logs --level error` shows it"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, "internal")
