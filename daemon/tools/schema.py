"""JSON schemas as small as they can be: models pay for every token of them, and simple servers know
no references.
"""

from __future__ import annotations

from typing import Any

from daemon.models import Json

# Keys whose value is a schema, a list of schemas, and a name -> schema map; everything else is data
# and stays as it is.
_SCHEMA_KEYS = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
)
_SCHEMA_LIST_KEYS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_SCHEMA_MAP_KEYS = frozenset({"properties", "patternProperties"})
# `discriminator` is OpenAPI's, and points at definitions that have moved.
_DROPPED_KEYS = frozenset({"title", "$defs", "discriminator"})
_PREFIX = "#/$defs/"


def simplify_schema(schema: Json) -> Json:
    """Return the schema without titles, and with each definition put where it is used unless it
    contains itself.
    """
    definitions = schema.get("$defs", {})
    recursive: dict[str, Any] = {}

    def walk_node(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str) and node["$ref"].startswith(_PREFIX):
            name = node["$ref"].removeprefix(_PREFIX)
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            if _contains(definitions, name, name):
                if name not in recursive:
                    recursive[name] = None  # before going down, where it meets itself
                    recursive[name] = walk_level(definitions[name])
                return {"$ref": _PREFIX + name, **siblings}
            return {**walk_level(definitions[name]), **siblings}
        return walk_level(node)

    def walk_level(node: Json) -> Json:
        simplified_node: Json = {}
        for key, value in node.items():
            if key in _DROPPED_KEYS:
                continue
            if key in _SCHEMA_KEYS:
                simplified_node[key] = walk_node(value)
            elif key in _SCHEMA_LIST_KEYS:
                simplified_node[key] = [walk_node(item) for item in value]
            elif key in _SCHEMA_MAP_KEYS:
                simplified_node[key] = {name: walk_node(item) for name, item in value.items()}
            else:
                simplified_node[key] = value
        return simplified_node

    result = walk_level(schema)
    return {**result, "$defs": recursive} if recursive else result


def drop_null(schema: Json) -> Json:
    """Return the schema of an argument that may be left out: `null` need not be offered beside
    that.
    """
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    siblings = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if not choices:
        return schema
    return {**choices[0], **siblings} if len(choices) == 1 else {**siblings, "anyOf": choices}


def _contains(
    definitions: Json, name: str, target: str, visited: frozenset[str] = frozenset()
) -> bool:
    """Return whether the definition `name` refers to `target`, at any depth."""
    return any(
        reference == target
        or (
            reference not in visited
            and _contains(definitions, reference, target, visited | {reference})
        )
        for reference in _references(definitions.get(name))
    )


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        references = (
            {node["$ref"].removeprefix(_PREFIX)} if isinstance(node.get("$ref"), str) else set()
        )
        return references.union(*(_references(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(_references(value) for value in node))
    return set()
