"""What daemon/api/application.py uses of Starlette beyond its documentation: `Route.methods`."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from daemon.api.application import make_application, route_of


async def answer(_request: Request) -> Response:
    return Response("here")


def test_starlette_adds_head_to_each_get_route() -> None:
    assert Route("/", answer, methods=["GET"]).methods == {"GET", "HEAD"}, (
        "Starlette adds no HEAD any more: daemon/api/application.py::route_of can be a plain Route"
    )


def test_a_route_answers_no_method_but_its_own() -> None:
    with TestClient(make_application([route_of("GET", "/", answer)])) as client:
        assert client.get("/").status_code == HTTPStatus.OK
        response = client.head("/")
        assert response.status_code == HTTPStatus.METHOD_NOT_ALLOWED
        assert response.headers["allow"] == "GET"
