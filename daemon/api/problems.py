"""Answer every error as application/problem+json (RFC 9457): a code for programs, and what to do
for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import Response

from daemon.api.schemas import FaultView, ProblemView, encode_json, views_of_faults
from daemon.errors import (
    ConfigError,
    DaemonError,
    FileChanged,
    NotFound,
    Refused,
    RunUnderWay,
    StateBusy,
    StoreFull,
    SwitchedOff,
)

if TYPE_CHECKING:
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

MEDIA_TYPE = "application/problem+json"

# The status and code of each error: the first row that fits.
ANSWERS: tuple[tuple[type[DaemonError], HTTPStatus, str], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND, "not_found"),
    (FileChanged, HTTPStatus.PRECONDITION_FAILED, "changed"),
    (SwitchedOff, HTTPStatus.FORBIDDEN, "switched_off"),
    (Refused, HTTPStatus.CONFLICT, "refused"),
    (StateBusy, HTTPStatus.CONFLICT, "busy"),
    (ConfigError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"),
    (StoreFull, HTTPStatus.INSUFFICIENT_STORAGE, "disk_full"),
    (DaemonError, HTTPStatus.INTERNAL_SERVER_ERROR, "failed"),
)

# Python 3.13 has the phrases of RFC 9110 for these; clients may compare them, so they stay the same
# on every Python.
_TITLES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Request Entity Too Large",
    HTTPStatus.REQUEST_URI_TOO_LONG: "Request-URI Too Long",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Entity",
}


class InvalidRequest(Exception):
    """A request cannot be used, whatever the state of the daemon."""

    def __init__(self, detail: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        self.status = status
        super().__init__(detail)


def make_problem(
    status: HTTPStatus,
    detail: str,
    code: str,
    *,
    faults: Sequence[FaultView] = (),
    run: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response with a problem: `detail` is for people, `code` for programs; `faults` are
    those of a file, `run` is the id of a run that stands in the way.
    """
    body = ProblemView(
        title=_TITLES.get(status, status.phrase), status=status.value, detail=detail, code=code
    )
    if faults:
        body["faults"] = list(faults)
    if run:
        body["run"] = run
    return Response(
        encode_json(body), status_code=status.value, media_type=MEDIA_TYPE, headers=headers
    )


def handle_daemon_error(_request: Request, error: Exception) -> Response:
    """Answer with the status and code that ANSWERS has for this kind of DaemonError."""
    status, code = next((status, code) for kind, status, code in ANSWERS if isinstance(error, kind))
    return make_problem(
        status,
        str(error),
        code,
        faults=views_of_faults(error) if isinstance(error, ConfigError) else (),
        run=error.run if isinstance(error, RunUnderWay) else None,
    )


def handle_invalid_request(_request: Request, error: Exception) -> Response:
    """Answer a request that cannot be used, whatever the state of the daemon."""
    status = error.status if isinstance(error, InvalidRequest) else HTTPStatus.BAD_REQUEST
    return make_problem(status, str(error), "bad_request")


def handle_http_error(request: Request, error: HTTPException) -> Response:
    """Answer a request for a path or method that does not exist."""
    status = HTTPStatus(error.status_code)
    path, method = request.url.path[:100], request.method[:20]
    if status is HTTPStatus.NOT_FOUND:
        detail = f"there is no {path} here; /v1/openapi.json lists what there is"
        return make_problem(status, detail, "no_route")
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        methods = (error.headers or {}).get("Allow", "")
        detail = f"{path} takes {methods}, not {method}"
        return make_problem(status, detail, "method", headers={"Allow": methods})
    return make_problem(status, error.detail, "http")


def handle_unexpected_error(_request: Request, _error: Exception) -> Response:
    """Answer for an exception that nobody expected: its traceback goes to the log of agentd, not to
    the client.
    """
    detail = "agentd made a mistake here; `agentctl logs --level error` shows it"
    return make_problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, "internal")
