"""The OpenAPI document, read off the table of routes: their paths, inputs, answers and
docstrings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import Any, Literal, get_origin

from daemon.api.binding import Endpoint, Input, endpoint
from daemon.api.problems import MEDIA_TYPE
from daemon.api.schemas import ProblemView
from daemon.models import Json

_REF = "#/components/schemas/{model}"


def document(routes: Iterable[tuple[str, str, Any]], version: str) -> Json:
    """Return the description of these routes as an OpenAPI 3.1 document."""
    # pydantic's JSON Schema machinery costs some 20 ms to import; nobody pays for it who does not
    # ask
    from pydantic import TypeAdapter

    endpoints = [endpoint(*row) for row in routes]
    answers: dict[object, TypeAdapter[Any]]
    answers = {each.handler: TypeAdapter(each.answer) for each in endpoints if not streams(each)}
    answers["problem"] = TypeAdapter(ProblemView)
    wanted: list[tuple[object, Literal["serialization"], TypeAdapter[Any]]]
    wanted = [(key, "serialization", adapter) for key, adapter in answers.items()]
    schemas, shared = TypeAdapter.json_schemas(wanted, ref_template=_REF)
    refs = {key: schema for (key, _), schema in schemas.items()}
    paths: Json = {}
    for each in endpoints:
        content = (
            {"text/event-stream": {"schema": {"type": "string"}}}
            if streams(each)
            else {"application/json": {"schema": refs[each.handler]}}
        )
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(
            each, content, refs["problem"]
        )
    about = {
        "title": "agentd",
        "version": version,
        "description": "The control API of agentd, over its Unix socket.",
    }
    return {
        "openapi": "3.1.0",
        "info": about,
        "servers": [
            {"url": "http://agentd", "description": "the Unix socket; the host name is ignored"}
        ],
        "paths": paths,
        "components": {"schemas": shared.get("$defs", {})},
    }


def streams(each: Endpoint) -> bool:
    """Say whether a route answers with a stream of events."""
    return get_origin(each.answer) is AsyncIterator


def _operation(each: Endpoint, content: Json, problem: Json) -> Json:
    inputs = each.inputs.values()
    operation: Json = {
        "operationId": each.handler.__name__,
        "summary": " ".join((each.handler.__doc__ or "").split()),
        "parameters": [_parameter(one) for one in inputs if one.place != "body"],
        "responses": {
            "200": {
                "description": "Done.",
                "headers": {"agentd-version": _VERSION},
                "content": content,
            },
            "default": {
                "description": "What went wrong, and what to do.",
                "headers": {"agentd-version": _VERSION},
                "content": {MEDIA_TYPE: {"schema": problem}},
            },
        },
    }
    if body := [one for one in inputs if one.place == "body"]:
        schema = {
            "type": "object",
            "properties": {one.name: _schema(one) for one in body},
            "required": [one.name for one in body if one.required],
            "additionalProperties": False,
        }
        operation["requestBody"] = {
            "required": False,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


_VERSION = {"description": "The daemon's version.", "schema": {"type": "string"}}


def _parameter(one: Input) -> Json:
    return {"name": one.name, "in": one.place, "required": one.required, "schema": _schema(one)}


def _schema(one: Input) -> Json:
    schema: Json = {"type": "integer"} if one.kind is int else {"type": "string"}
    if issubclass(one.kind, StrEnum):
        schema["enum"] = [member.value for member in one.kind]
    if one.bounds:
        schema |= {"minimum": one.bounds.least, "maximum": one.bounds.most}
    if one.default is not None:
        schema["default"] = one.default
    return schema
