"""web_search with Tavily, SearXNG and Wikipedia on a real socket, including invalid answers."""

import json
import re

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from daemon import __version__
from daemon.models import FunctionCall
from daemon.tools.builtin import web_search
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

HITS = [
    {
        "title": f"Page {n}",
        "url": f"https://example.org/{n}",
        "content": "word " * 400,
        "published_date": "2026-11-20",
    }
    for n in range(5)
]

# As in https://www.mediawiki.org/wiki/API:REST_API/Reference#Search_result_object
PAGES = [
    {
        "id": 38930,
        "key": "Jupiter_(Planet)?",
        "title": "Jupiter (Planet)?",
        "excerpt": '<span class="searchmatch">Jupiter</span> &amp; its moons &lt;b&gt; are',
        "matched_title": None,
        "description": "fifth planet from the Sun",
        "thumbnail": None,
    },
    {"id": 2, "key": "Zürich", "title": "Zürich", "excerpt": "word " * 400, "description": None},
]


class Engine:
    """The search engines in one, as they answer by their documentation."""

    def __init__(self):
        self.requests, self.answer = [], None

    async def tavily(self, request):
        if request.headers.get("authorization") != "Bearer tvly-secret":
            return JSONResponse({"detail": {"error": "Unauthorized"}}, 401)
        body = await request.json()
        if not {"query"} <= set(body) <= {"query", "max_results"}:
            return JSONResponse({"detail": "unknown field"}, 422)
        self.requests.append(body)
        return self.answer or JSONResponse(
            {"query": body["query"], "results": HITS[: body["max_results"]]}
        )

    async def searxng(self, request):
        if request.query_params.get("format") != "json":
            return PlainTextResponse("<html>", 200)
        self.requests.append(dict(request.query_params))
        return self.answer or JSONResponse({"results": HITS})

    async def wikipedia(self, request):
        query, limit = request.query_params.get("q", ""), request.query_params.get("limit", "50")
        if not re.match(r"\S+/\S+ ", request.headers.get("user-agent", "")):
            return PlainTextResponse("Please set a user-agent", 403)
        if not query or len(query) > 300 or not 1 <= int(limit) <= 100:
            return JSONResponse({"errorKey": "rest-param", "httpCode": 400}, 400)
        self.requests.append({"q": query, "user-agent": request.headers["user-agent"]})
        return self.answer or JSONResponse({"pages": PAGES[: int(limit)]})


@pytest.fixture
async def engine():
    import asyncio
    import socket

    fake_engine = Engine()
    routes = [
        Route("/search", fake_engine.tavily, methods=["POST"]),
        Route("/search", fake_engine.searxng, methods=["GET"]),
        Route("/w/rest.php/v1/search/page", fake_engine.wikipedia, methods=["GET"]),
    ]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off")
    )
    serving = asyncio.create_task(server.serve([listener]))
    fake_engine.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    yield fake_engine
    server.should_exit = True
    await serving


async def search(kind, url, key=None, contact=None, **arguments):
    registry = FunctionRegistry()
    web_search.register(registry, kind, base_url=url, key=key, contact=contact)
    return await ToolExecutor(registry).run(
        FunctionCall(name="web_search", arguments={"query": "agentd", **arguments})
    )


@pytest.mark.parametrize("kind", ["tavily", "searxng"])
async def test_search_hits_have_title_address_date_and_a_short_excerpt(engine, kind):
    result = await search(kind, engine.url, "tvly-secret", limit=3)
    assert result.ok and len(result.value) == 3
    assert result.value[0]["url"] == "https://example.org/0"
    assert result.value[0]["date"] == "2026-11-20"
    assert len(result.value[0]["excerpt"]) == web_search.MAX_EXCERPT_CHARACTERS


async def test_a_hit_without_an_address_is_left_out(engine):
    engine.answer = JSONResponse({"results": [{"title": "x"}, {"title": "y", "url": None}, *HITS]})
    result = await search("searxng", engine.url, limit=1)
    assert [hit["url"] for hit in result.value] == ["https://example.org/0"]


async def test_wikipedia_is_searched_without_a_key_and_told_whom_to_reach(engine):
    result = await search("wikipedia", engine.url, contact="ada@example.org", query="planet " * 50)
    jupiter, zurich = result.value
    assert jupiter == {
        "title": "Jupiter (Planet)?",
        "url": f"{engine.url}/wiki/Jupiter_(Planet)%3F",
        "excerpt": "fifth planet from the Sun: Jupiter & its moons <b> are",
    }
    assert zurich["url"] == f"{engine.url}/wiki/Z%C3%BCrich"
    assert len(zurich["excerpt"]) == web_search.MAX_EXCERPT_CHARACTERS
    (request,) = engine.requests
    assert request["user-agent"].startswith(f"agentd/{__version__} (ada@example.org) python-httpx/")
    assert len((await search("wikipedia", engine.url, limit=1)).value) == 1


async def test_a_hostile_excerpt_of_wikipedia_is_read_in_linear_time(engine):
    # minutes if each < were followed to the end; the time limit of tests tells
    page = {"key": "A", "title": "A", "excerpt": "&#" + "9" * 5000 + "<" * 500_000}
    engine.answer = JSONResponse({"pages": [page]})
    (hit,) = (await search("wikipedia", engine.url)).value
    assert hit["excerpt"].startswith("\ufffd<<<")


@pytest.mark.parametrize(
    ("answer", "expected_text", "transient"),
    [
        (PlainTextResponse("no", 403), "say in [search] contact how you are reached", False),
        (JSONResponse({}, 429), "Wikipedia answered 429", True),
        (JSONResponse({"results": []}), "no list of hits", False),
        (JSONResponse({"pages": [{"title": "no key"}]}), "no list of hits", False),
        (JSONResponse({"pages": []}), "nothing was found", False),
    ],
)
async def test_an_error_of_wikipedia_is_one_line(engine, answer, expected_text, transient):
    engine.answer = answer
    result = await search("wikipedia", engine.url)
    assert expected_text in result.text and result.transient is transient


async def test_a_refused_search_key_is_reported_without_the_key(engine):
    result = await search("tavily", engine.url, "tvly-wrong")
    assert not result.ok and "the key is refused" in result.text
    assert "tvly-wrong" not in result.text


@pytest.mark.parametrize(
    ("answer", "expected_text", "transient"),
    [
        (JSONResponse({}, 403), "add json to search.formats", False),
        (JSONResponse({}, 429), "answered 429", True),
        (PlainTextResponse("<html>"), "no list of hits", False),
        (JSONResponse({"results": [{"title": "no address"}]}), "no list of hits", False),
        (JSONResponse({"results": []}), "nothing was found", False),
    ],
)
async def test_an_error_of_a_search_engine_is_one_line(engine, answer, expected_text, transient):
    engine.answer = answer
    result = await search("searxng", engine.url)
    assert expected_text in result.text and result.transient is transient


async def test_an_unreachable_search_engine_is_a_temporary_failure(engine):
    result = await search("searxng", "http://127.0.0.1:9")
    assert not result.ok and result.transient and "cannot be reached" in result.text
    assert json.dumps(engine.requests) == "[]"
