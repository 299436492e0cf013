"""Convert JSON schemas of functions to OpenAI's strict mode, and arguments back.

In strict mode (https://developers.openai.com/api/docs/guides/structured-outputs) the vendor
guarantees that arguments match the schema. Every property must be required and no other allowed; so
an optional property is made nullable instead, and a null that stands for "left out" is removed from
the arguments. A schema that strict mode cannot express is sent unchanged, without the guarantee.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from daemon.models import Json

# Keywords that strict mode knows. Others that only narrow a value (`minLength`, `format`, …) are
# left out: the arguments are validated against the function itself before it runs.
_KEYWORDS = frozenset(
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
# Keywords that strict mode does not know, and without which the schema would mean something else.
_UNSUPPORTED = frozenset(
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
# Keywords whose value is a schema, or a list of schemas.
_NESTED = frozenset(
    ["items", "prefixItems", "anyOf", "oneOf", "allOf", "not", "additionalProperties"]
)
_DEFINITIONS = "#/$defs/"  # where a `$ref` finds a definition
_MAX_DEPTH, _MAX_PROPERTIES = 10, 5000  # OpenAI's limits


class _NotStrictError(Exception):
    """Strict mode cannot express this schema."""


def normalize_functions(functions: Sequence[Json]) -> list[Json]:
    """Return functions with schemas that every vendor accepts, which those of MCP servers often are
    not.

    Parameters are made an object without alternatives at the top, and every array gets `items`, if
    need be the empty schema.
    """
    result = []
    for function in functions:
        parameters = _normalize(function.get("parameters") or {})
        if "type" not in parameters or not {"anyOf", "oneOf", "allOf"}.isdisjoint(parameters):
            plain = {
                key: value
                for key, value in parameters.items()
                if key not in ("anyOf", "oneOf", "allOf")
            }
            parameters = {"properties": {}, **plain, "type": "object"}
        is_same = parameters == function.get("parameters")
        result.append(function if is_same else {**function, "parameters": parameters})
    return result


def _normalize(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_normalize(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _normalize(value) if key in _NESTED else value for key, value in schema.items()}
    for key in ("properties", "$defs"):
        if isinstance(schema.get(key), dict):
            result[key] = {name: _normalize(item) for name, item in schema[key].items()}
    if "array" in _types(schema) and "items" not in schema and "prefixItems" not in schema:
        result["items"] = {}
    return result


def make_strict(functions: Sequence[Json]) -> list[Json]:
    """Return functions with their schemas converted to strict mode and marked `strict`; unchanged
    where strict mode cannot express a schema.
    """
    strict_functions = []
    for function in functions:
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        try:
            if parameters.get("type") != "object" or "anyOf" in parameters:
                raise _NotStrictError
            definitions = parameters.get("$defs") or {}
            strict = _Converter(definitions).convert(parameters, depth=0)
        except _NotStrictError:
            strict_functions.append(function)
        else:
            strict_functions.append({**function, "parameters": strict, "strict": True})
    return strict_functions


class _Converter:
    """Converts one schema with all that it holds."""

    def __init__(self, definitions: Collection[str]) -> None:
        """`definitions` are the names in the `$defs` of the schema."""
        self._definitions = definitions
        self._property_count = 0

    def convert(self, schema: Any, *, depth: int) -> Json:
        """Return a schema in strict mode. Raises _NotStrictError where strict mode cannot express
        it.
        """
        if (
            not isinstance(schema, dict)
            or depth > _MAX_DEPTH
            or not _UNSUPPORTED.isdisjoint(schema)
            or not self._has_target(schema.get("$ref", "#"))
        ):
            raise _NotStrictError
        strict_schema = {key: value for key, value in schema.items() if key in _KEYWORDS}
        if variants := schema.get("anyOf") or schema.get("oneOf"):
            strict_schema["anyOf"] = [
                self.convert(variant, depth=depth + 1) for variant in variants
            ]
        if "$defs" in schema:
            strict_schema["$defs"] = {
                name: self.convert(definition, depth=depth)
                for name, definition in schema["$defs"].items()
            }
        if "items" in schema:
            strict_schema["items"] = self.convert(schema["items"], depth=depth + 1)
        if "default" in schema:
            default = json.dumps(schema["default"], ensure_ascii=False)
            strict_schema["description"] = (
                f"{schema.get('description', '')} Default: {default}.".strip()
            )
        if not {"type", "anyOf", "$ref", "enum", "const"} & strict_schema.keys() or (
            "array" in _types(strict_schema) and "items" not in strict_schema
        ):
            raise _NotStrictError  # a schema must restrict the value
        if "object" in _types(strict_schema):
            self._close_object(strict_schema, schema, depth)
        return strict_schema

    def _has_target(self, reference: str) -> bool:
        """Return whether the strict schema has what a `$ref` refers to: the whole of it, or a
        definition. Older drafts of JSON Schema keep definitions under another name.
        """
        name = reference.removeprefix(_DEFINITIONS).partition("/")[0]
        return reference == "#" or (
            reference.startswith(_DEFINITIONS) and name in self._definitions
        )

    def _close_object(self, strict_schema: Json, schema: Json, depth: int) -> None:
        """Require every property of an object, and allow no other."""
        properties = schema.get("properties")
        if schema.get("additionalProperties") or (properties is None and depth):
            raise _NotStrictError  # an object whose keys are not known in advance
        properties = properties or {}
        required_names = set(schema.get("required") or ())
        if not required_names <= properties.keys():
            raise _NotStrictError  # a property that only strict mode would forbid
        self._property_count += len(properties)
        if self._property_count > _MAX_PROPERTIES:
            raise _NotStrictError
        strict_properties = {}
        for name, subschema in properties.items():
            strict_property = self.convert(subschema, depth=depth + 1)
            strict_properties[name] = (
                strict_property if name in required_names else _nullable(strict_property)
            )
        strict_schema["properties"] = strict_properties
        strict_schema["required"] = list(strict_properties)
        strict_schema["additionalProperties"] = False


def _nullable(schema: Json) -> Json:
    """Return a schema that also allows null."""
    if _takes_null(schema):
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" not in schema or "const" in schema:
        description = {"description": schema["description"]} if "description" in schema else {}
        plain_schema = {key: value for key, value in schema.items() if key != "description"}
        return {
            "anyOf": [plain_schema, {"type": "null"}],
            **description,
        }
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*_types(schema), "null"], **values}


def _types(schema: Mapping[str, Any]) -> list[Any]:
    types = schema.get("type")
    return list(types) if isinstance(types, list) else [types] if types else []


def _takes_null(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema names null among its types."""
    return "null" in _types(schema) or any(
        _takes_null(variant) for variant in schema.get("anyOf") or schema.get("oneOf") or ()
    )


def remove_filler_nulls(arguments: Json, schema: Json | None) -> Json:
    """Return arguments without the nulls that stand for optional properties left out.

    `schema` is the function's own, not the strict one.
    """
    result = _remove_nulls(arguments, schema or {}, (schema or {}).get("$defs") or {})
    return result if isinstance(result, dict) else arguments


def _remove_nulls(value: Any, schema: Any, defs: Json) -> Any:
    schema = _resolve(schema, defs)
    variants = [
        _resolve(variant, defs) for variant in schema.get("anyOf") or schema.get("oneOf") or ()
    ]
    if isinstance(value, list):
        arrays = [variant for variant in variants if "array" in _types(variant)]
        items = (arrays[0] if arrays else schema).get("items")
        return [_remove_nulls(item, items, defs) for item in value]
    if not isinstance(value, dict):
        return value
    matching_variants = [
        variant for variant in variants if value.keys() <= _properties(variant).keys()
    ]
    schema = matching_variants[0] if matching_variants else schema
    properties, required_names = _properties(schema), schema.get("required") or ()
    return {
        key: _remove_nulls(item, properties.get(key), defs)
        for key, item in value.items()
        if item is not None
        or key in required_names
        or key not in properties
        or _may_be_null(properties[key], defs)
    }


def _may_be_null(schema: Any, defs: Json) -> bool:
    """Return whether null fits the schema of the function itself."""
    schema = _resolve(schema, defs)
    if not schema or not {"type", "anyOf", "oneOf", "enum", "const"} & schema.keys():
        return True  # a schema without restrictions
    nullable = "null" in _types(schema) or None in (schema.get("enum") or ())
    return nullable or any(
        _may_be_null(variant, defs) for variant in schema.get("anyOf") or schema.get("oneOf") or ()
    )


def _resolve(schema: Any, defs: Json) -> Json:
    for _ in range(_MAX_DEPTH):
        name = schema.get("$ref", "") if isinstance(schema, dict) else ""
        if not name.startswith(_DEFINITIONS):
            break
        schema = defs.get(name.removeprefix(_DEFINITIONS))
    return schema if isinstance(schema, dict) else {}


def _properties(schema: Json) -> Json:
    return schema.get("properties") or {}
