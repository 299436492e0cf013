"""No field of any route of the API's description answers with a fault of agentd's own, whatever is
sent in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from daemon.testing import TestApp
from tests.api.harness import ask

# As they stand in a body of JSON; in a path or a query, texts are sent without their quotes.
HOSTILE_VALUES = (
    "9" * 20,
    "-" + "9" * 20,
    "9" * 5_000,
    str(2**63 - 1),
    str(-(2**63)),
    str(2**63),
    "-1",
    "1e999",
    "NaN",
    "1.5",
    "true",
    "[]",
    '["x"]',
    '["\\ud800"]',
    '{"a": "\\ud800"}',
    "[" * 900 + "]" * 900,
    '"\\ud800"',
    '"\\u0000"',
    '"a\\u0000b"',
    '""',
    '"' + "9" * 20 + '"',
    '"' + "9" * 5_000 + '"',
    '"' + "x" * 5_000 + '"',
    '"\\u00b2"',
    '"x/y"',
    '"../x"',
    '"0001-01-01"',
    '"0001-01-01T00:00:00+23:59"',
    '"9999-12-31T23:59:59-23:59"',
    '"9999-12-31T23:59:59-23:59 daily"',
    '"99999d"',
    '"99999999999999999999d"',
)
ROUTINE = """
[trigger]
every = "1d"
[dedupe]
[run]
prompt = "Say what is new."
mode = "agent"
tools = ["report_items"]
"""


@dataclass(frozen=True)
class Field:
    """A field of a route: where it is sent, and the other fields that the route requires."""

    method: str
    path: str
    name: str
    source: str  # path, query or body
    required: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}: {self.source} field {self.name}"


def fields_of(document: dict[str, Any]) -> Iterator[Field]:
    """Yield each field of each route of an OpenAPI document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", [])
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            while "$ref" in schema:
                schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            names = [
                (entry["name"], entry["in"]) for entry in parameters if entry["in"] != "header"
            ]
            names += [(name, "body") for name in schema.get("properties", {})]
            required = [entry["name"] for entry in parameters if entry.get("required")]
            required += schema.get("required", [])
            for name, source in names:
                yield Field(method.upper(), path, name, source, tuple(required))


async def send(socket: Path, field: Field, value: str, valid_values: dict[str, str]) -> str:
    """Send a request with this value of the field; return the head and what came with it."""
    values = {name: valid_values[name] for name in field.required} | {field.name: value}
    target = field.path
    query, body = [], []
    for name, text in values.items():
        plain = json.loads(text) if text.startswith('"') else text
        escaped = quote(plain, safe="", errors="surrogatepass")
        if f"{{{name}}}" in field.path:
            target = target.replace(f"{{{name}}}", escaped)
        elif field.method == "GET":
            query.append(f"{name}={escaped}")
        else:
            body.append(f"{json.dumps(name)}: {text}")
    if query:
        target += "?" + "&".join(query)
    if field.path.endswith("/events"):  # a stream has no end
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(f"{field.method} {target} HTTP/1.1\r\nHost: agentd\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n")).decode()
        writer.close()
        await writer.wait_closed()
        return head.split()[1]
    data = "{" + ", ".join(body) + "}" if field.method != "GET" else ""
    answer = await ask(socket, field.method, target, data.encode())
    return f"{answer.status} {answer.raw.decode()}"


@pytest.fixture
async def app(tmp_path: Path) -> TestApp:
    app = TestApp(tmp_path)
    app.write_routine("daily", ROUTINE)
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "report_items"\neffect = "allow"\n')
    return app


async def test_no_field_of_any_route_makes_agentd_fail(app: TestApp) -> None:
    failures = []
    async with app:
        await app.daemon.scheduling.engine.start(await app.daemon.reloader.load_routines())
        app.model.enqueue("All is well.")
        run = await app.run("daily")
        document = (await app.request("GET", "/v1/openapi.json")).json
        fields = list(fields_of(document))
        assert {field.source for field in fields} == {"path", "query", "body"}
        async with app.serve_api() as socket:
            for field in fields:
                for value in HOSTILE_VALUES:
                    valid_values = {
                        "name": json.dumps(min(app.daemon.scheduling.engine.routines)),
                        "id": json.dumps(run.id),
                    }
                    for name in field.required:
                        valid_values.setdefault(name, '"x"')
                    answer = await send(socket, field, value, valid_values)
                    if answer.startswith("5"):
                        failures.append(f"{field} = {value[:60]}: {answer[:300]}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    ("text", "found"),
    [("\ud800", "half of a surrogate pair, \\ud800"), ("a\0b", "a NUL character")],
)
@pytest.mark.parametrize(
    ("path", "name", "others"),
    [
        ("/v1/routines/daily/run", "event", {}),
        ("/v1/routines/daily/run", "input", {}),
        ("/v1/ask", "text", {}),
        ("/v1/ask", "event", {"text": "How are you?"}),
        ("/v1/ask/withdraw", "event", {}),
        ("/v1/memory/forget", "run", {}),
        ("/v1/memory/pin", "key", {}),
    ],
)
async def test_a_text_that_cannot_be_stored_is_refused_and_its_field_named(
    app: TestApp, path: str, name: str, others: dict[str, str], text: str, found: str
) -> None:
    async with app:
        answer = await app.request("POST", path, {name: text, **others})
    assert answer.status == 422
    assert answer.json["detail"] == f"'{name}': expected text in Unicode (found {found})"


@pytest.mark.parametrize("value", ["a\ud800", "a\0b"])
async def test_a_fields_name_that_cannot_be_stored_is_refused(app: TestApp, value: str) -> None:
    async with app:
        answer = await app.request("POST", "/v1/ask", {"text": "How are you?", value: "x"})
    assert (answer.status, answer.json["code"]) == (422, "bad_request")


async def test_a_surrogate_pair_is_one_character_and_accepted(app: TestApp) -> None:
    async with app:
        app.model.enqueue("Fine.")
        answer = await app.request("POST", "/v1/ask", {"text": "\N{GRINNING FACE}"})  # \ud83d\ude00
        assert answer.status == 200
        await app.finish(answer.json["id"])


async def test_an_empty_confirmation_is_that_of_no_erasure(app: TestApp) -> None:
    async with app:
        await app.daemon.store.memory.store("birthday", "Ada's is on 10 December.")
        answer = await app.request("POST", "/v1/memory/forget", {"key": "birthday", "confirm": ""})
        assert (answer.status, answer.json["code"]) == (409, "refused")


@pytest.mark.parametrize("name", ["x/y", "../x", "..", "x.toml"])
async def test_a_routine_is_not_renamed_to_what_is_no_name(app: TestApp, name: str) -> None:
    async with app:
        answer = await app.request("POST", "/v1/routines/daily/rename", {"to": name})
        assert answer.status == 409
        assert "a routine's name is made of a-z, 0-9 and -" in answer.json["detail"]
        assert [file.name for file in app.folder.rglob("*.toml") if "routines" in file.parts] == [
            "daily.toml"
        ]


@pytest.mark.parametrize(
    ("cursor", "expectation"),
    [
        ("9" * 20, "a number from 0 to 9007199254740991"),
        ("-1", "a number from 0 to 9007199254740991"),
        ("%C2%B2", "a whole number"),
        ("soon", "a whole number"),
    ],
)
async def test_a_cursor_of_the_audit_is_the_number_of_a_row(
    app: TestApp, cursor: str, expectation: str
) -> None:
    async with app:
        answer = await app.request("GET", f"/v1/audit?cursor={cursor}")
    assert answer.status == 422
    assert f"'cursor': expected {expectation} (found " in answer.json["detail"]


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
async def test_a_moment_beyond_the_calendar_is_refused(app: TestApp, since: str) -> None:
    async with app:
        answer = await app.request("GET", f"/v1/slots?since={quote(since)}")
    assert answer.status == 422
    assert "'since': expected a moment with its zone" in answer.json["detail"]
