"""Schemas in the form in which a vendor can hold its model to them, and arguments as our functions
expect them.

In strict mode (OpenAI's rules, https://developers.openai.com/api/docs/guides/structured-outputs)
every property is required and nothing else is allowed; what may be left out is made nullable
instead, and the null that then comes is taken out again. A schema that cannot be said so is sent as
it is, and the model is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemon.models import Json

# Keywords that mean something there. Whatever else only narrows a value (`minLength`, `format`, …)
# is left out: the call is checked against the function itself before it runs.
_KEPT = frozenset(
    [
        "type",
        "description",
        "enum",
        "const",
        "items",
        "properties",
        "required",
        "anyOf",
        "$ref",
        "$defs",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
        "pattern",
    ]
)
# Keywords without which the schema would say something else.
_TELLING = frozenset(
    [
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "patternProperties",
        "dependentRequired",
        "dependentSchemas",
        "prefixItems",
        "propertyNames",
        "unevaluatedProperties",
        "$dynamicRef",
    ]
)
# Keywords that hold schemas, or lists of them.
_NESTED = frozenset(
    ["items", "prefixItems", "anyOf", "oneOf", "allOf", "not", "additionalProperties"]
)
_DEEPEST, _MOST = 10, 5000


class _Impossible(Exception):
    """This schema cannot be said in strict mode."""


def without_broken_entries(functions: Sequence[Json]) -> list[Json]:
    """Return functions whose schemas every vendor takes; those of MCP servers are often a little
    careless.

    Parameters are an object, without alternatives at the top, and an array says what it holds, if
    only that it may be anything.
    """
    written = []
    for function in functions:
        parameters = _mended(function.get("parameters") or {})
        if "type" not in parameters or not {"anyOf", "oneOf", "allOf"}.isdisjoint(parameters):
            rest = {
                key: value
                for key, value in parameters.items()
                if key not in ("anyOf", "oneOf", "allOf")
            }
            parameters = {"properties": {}, **rest, "type": "object"}
        same = parameters == function.get("parameters")
        written.append(function if same else {**function, "parameters": parameters})
    return written


def _mended(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_mended(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _mended(value) if key in _NESTED else value for key, value in schema.items()}
    for key in ("properties", "$defs"):
        if isinstance(schema.get(key), dict):
            made[key] = {name: _mended(each) for name, each in schema[key].items()}
    if "array" in _types(schema) and "items" not in schema and "prefixItems" not in schema:
        made["items"] = {}
    return made


def strictly(functions: Sequence[Json]) -> list[Json]:
    """Return functions with their schemas made strict, and marked so, where that can be done."""
    written = []
    for function in functions:
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        try:
            if parameters.get("type") != "object" or "anyOf" in parameters:
                raise _Impossible
            strict = _strict(parameters, depth=0, count=[0])
        except _Impossible:
            written.append(function)
        else:
            written.append({**function, "parameters": strict, "strict": True})
    return written


def _strict(schema: Any, *, depth: int, count: list[int]) -> Json:
    if not isinstance(schema, dict) or depth > _DEEPEST or not _TELLING.isdisjoint(schema):
        raise _Impossible
    made = {key: value for key, value in schema.items() if key in _KEPT}
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        made["anyOf"] = [_strict(variant, depth=depth + 1, count=count) for variant in variants]
    if "$defs" in schema:
        made["$defs"] = {
            name: _strict(part, depth=depth, count=count) for name, part in schema["$defs"].items()
        }
    if "items" in schema:
        made["items"] = _strict(schema["items"], depth=depth + 1, count=count)
    if "default" in schema:
        made["description"] = (
            f"{schema.get('description', '')} Default: {schema['default']!r}.".strip()
        )
    if not {"type", "anyOf", "$ref", "enum", "const"} & made.keys() or (
        "array" in _types(made) and "items" not in made
    ):
        raise _Impossible  # anything at all is no schema to be held to
    if "object" in _types(made):
        _close(made, schema, depth, count)
    return made


def _close(made: Json, schema: Json, depth: int, count: list[int]) -> None:
    """Require every property of an object, and allow no other."""
    properties = schema.get("properties")
    if schema.get("additionalProperties") or (properties is None and depth):
        raise _Impossible  # a table of keys that nobody knows
    required = set(schema.get("required") or ())
    count[0] += len(properties or {})
    if count[0] > _MOST:
        raise _Impossible
    made["properties"] = {
        name: part if name in required else _nullable(part)
        for name, given in (properties or {}).items()
        for part in (_strict(given, depth=depth + 1, count=count),)
    }
    made["required"], made["additionalProperties"] = list(made["properties"]), False


def _nullable(schema: Json) -> Json:
    if _takes_null(schema):
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" not in schema or "const" in schema:
        description = {"description": schema["description"]} if "description" in schema else {}
        return {
            "anyOf": [{k: v for k, v in schema.items() if k != "description"}, {"type": "null"}],
            **description,
        }
    more = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*_types(schema), "null"], **more}


def _types(schema: Mapping[str, Any]) -> list[Any]:
    given = schema.get("type")
    return list(given) if isinstance(given, list) else [given] if given else []


def _takes_null(schema: Mapping[str, Any]) -> bool:
    return "null" in _types(schema) or any(
        _takes_null(each) for each in schema.get("anyOf") or schema.get("oneOf") or ()
    )


def loosened(arguments: Json, schema: Json | None) -> Json:
    """Return arguments without the nulls that stand for what was left out, by the function's own
    schema.
    """
    found = _loosened(arguments, schema or {}, (schema or {}).get("$defs") or {})
    return found if isinstance(found, dict) else arguments


def _loosened(value: Any, schema: Any, defs: Json) -> Any:
    schema = _resolved(schema, defs)
    if isinstance(value, list):
        return [_loosened(item, schema.get("items"), defs) for item in value]
    if not isinstance(value, dict):
        return value
    variants = schema.get("anyOf") or schema.get("oneOf") or ()
    fitting = [
        each
        for each in (_resolved(one, defs) for one in variants)
        if value.keys() <= _properties(each).keys()
    ]
    schema = fitting[0] if fitting else schema
    properties, required = _properties(schema), schema.get("required") or ()
    return {
        key: _loosened(item, properties.get(key), defs)
        for key, item in value.items()
        if item is not None
        or key in required
        or key not in properties
        or _may_be_null(properties[key], defs)
    }


def _may_be_null(schema: Any, defs: Json) -> bool:
    schema = _resolved(schema, defs)
    if not schema or not {"type", "anyOf", "oneOf", "enum", "const"} & schema.keys():
        return True  # anything goes
    nullable = "null" in _types(schema) or None in (schema.get("enum") or ())
    return nullable or any(
        _may_be_null(each, defs) for each in schema.get("anyOf") or schema.get("oneOf") or ()
    )


def _resolved(schema: Any, defs: Json) -> Json:
    for _ in range(_DEEPEST):
        name = schema.get("$ref", "") if isinstance(schema, dict) else ""
        if not name.startswith("#/$defs/"):
            break
        schema = defs.get(name.removeprefix("#/$defs/"))
    return schema if isinstance(schema, dict) else {}


def _properties(schema: Json) -> Json:
    return schema.get("properties") or {}
