"""The OpenAPI document, made from the table of routes: their paths, inputs, answers and
docstrings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_origin

from daemon.api.binding import Endpoint, RouteRow, make_endpoint
from daemon.api.problems import MEDIA_TYPE
from daemon.api.schemas import ProblemView
from daemon.models import Json

if TYPE_CHECKING:
    from pydantic import BaseModel

_REFERENCE_TEMPLATE = "#/components/schemas/{model}"


def make_document(routes: Iterable[RouteRow], version: str) -> Json:
    """Return the description of these routes as an OpenAPI 3.1 document."""
    # imported here: pydantic's code for JSON Schemas takes some 20 ms to import
    from pydantic import TypeAdapter

    endpoints = [make_endpoint(*row) for row in routes]
    answers: dict[object, TypeAdapter[Any]]
    answers = {
        endpoint.handler: TypeAdapter(endpoint.answer)
        for endpoint in endpoints
        if not is_stream(endpoint)
    }
    answers["problem"] = TypeAdapter(ProblemView)
    inputs: list[tuple[object, Literal["serialization"], TypeAdapter[Any]]]
    inputs = [(key, "serialization", adapter) for key, adapter in answers.items()]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE_TEMPLATE)
    answer_schemas = {key: schema for (key, _), schema in schemas.items()}
    paths: Json = {}
    for endpoint in endpoints:
        content = (
            {"text/event-stream": {"schema": {"type": "string"}}}
            if is_stream(endpoint)
            else {"application/json": {"schema": answer_schemas[endpoint.handler]}}
        )
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, content, answer_schemas["problem"]
        )
    info = {
        "title": "agentd",
        "version": version,
        "description": "The control API of agentd, over its Unix socket.",
    }
    return {
        "openapi": "3.1.0",
        "info": info,
        "servers": [
            {"url": "http://agentd", "description": "the Unix socket; the host name is ignored"}
        ],
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def is_stream(endpoint: Endpoint) -> bool:
    """Return whether an endpoint answers with a stream of events."""
    return get_origin(endpoint.answer) is AsyncIterator


def _operation(endpoint: Endpoint, content: Json, problem: Json) -> Json:
    operation: Json = {
        "operationId": endpoint.handler.__name__,
        "summary": " ".join((endpoint.handler.__doc__ or "").split()),
        "parameters": _parameters(endpoint.path_model, "path"),
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
    operation["parameters"] += [
        {"name": header, "in": "header", "required": False, "schema": {"type": "string"}}
        for header in endpoint.headers.values()
    ]
    if endpoint.input_source == "query":
        operation["parameters"] += _parameters(endpoint.input_model, "query")
    elif endpoint.input_model.model_fields:
        properties, required = _properties(endpoint.input_model)
        schema = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        operation["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


_VERSION = {"description": "The daemon's version.", "schema": {"type": "string"}}


def _parameters(model: type[BaseModel], source: str) -> list[Json]:
    properties, required = _properties(model)
    return [
        {"name": name, "in": source, "required": name in required, "schema": schema}
        for name, schema in properties.items()
    ]


def _properties(model: type[BaseModel]) -> tuple[dict[str, Json], list[str]]:
    """Return the schema of each field of a model by name, and the names of those that must be sent.

    A field whose default is null may be left out; the schema says nothing of null.
    """
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    properties: dict[str, Json] = {}
    for name, field in schema.get("properties", {}).items():
        reference = field.pop("$ref", "").rpartition("/")[2]
        property_schema = {**definitions.get(reference, {}), **field}
        properties[name] = {
            key: value
            for key, value in property_schema.items()
            if key not in ("title", "description") and not (key == "default" and value is None)
        }
    return properties, schema.get("required", [])
