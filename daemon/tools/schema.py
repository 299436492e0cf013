"""JSON schemas as small as they can be: models pay for every token of them, and simple servers know
no references.
"""

from __future__ import annotations

from typing import Any

from daemon.models import Json

# Keys whose value is a schema, a list of schemas, and a name -> schema map; everything else is data
# and stays as it is.
_ONE = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
)
_MANY = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties"})
# `discriminator` is OpenAPI's, and points at definitions that have moved.
_DROPPED = frozenset({"title", "$defs", "discriminator"})
_PREFIX = "#/$defs/"


def tidy(schema: Json) -> Json:
    """Return the schema without titles, and with each definition put where it is used unless it
    contains itself.
    """
    definitions = schema.get("$defs", {})
    recursive: dict[str, Any] = {}

    def walk(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str) and node["$ref"].startswith(_PREFIX):
            name = node["$ref"].removeprefix(_PREFIX)
            beside = {key: value for key, value in node.items() if key != "$ref"}
            if _contains(definitions, name, name):
                if name not in recursive:
                    recursive[name] = None  # before going down, where it meets itself
                    recursive[name] = level(definitions[name])
                return {"$ref": _PREFIX + name, **beside}
            return {**level(definitions[name]), **beside}
        return level(node)

    def level(node: Json) -> Json:
        out: Json = {}
        for key, value in node.items():
            if key in _DROPPED:
                continue
            if key in _ONE:
                out[key] = walk(value)
            elif key in _MANY:
                out[key] = [walk(each) for each in value]
            elif key in _NAMED:
                out[key] = {name: walk(each) for name, each in value.items()}
            else:
                out[key] = value
        return out

    result = level(schema)
    return {**result, "$defs": recursive} if recursive else result


def without_null(schema: Json) -> Json:
    """Return the schema of an argument that may be left out: `null` need not be offered beside
    that.
    """
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    beside = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if not choices:
        return schema
    return {**choices[0], **beside} if len(choices) == 1 else {**beside, "anyOf": choices}


def _contains(
    definitions: Json, name: str, sought: str, seen: frozenset[str] = frozenset()
) -> bool:
    """Tell whether the definition `name` refers to `sought`, at any depth."""
    return any(
        found == sought
        or (found not in seen and _contains(definitions, found, sought, seen | {found}))
        for found in _references(definitions.get(name))
    )


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"].removeprefix(_PREFIX)} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(_references(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(_references(value) for value in node))
    return set()
