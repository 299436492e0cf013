"""Say what is wrong with a model's arguments, in words it can act on: the argument, what it gave,
what is expected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from daemon.errors import ToolFailed
from daemon.models import Json

# More faults than these say only that the whole call was a guess.
_MOST = 8
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def misfit(tool: str, faults: Iterable[str]) -> ToolFailed:
    """Return the failure the model reads when its arguments do not fit."""
    found = list(dict.fromkeys(faults))
    if len(found) > _MOST:
        found = [*found[:_MOST], f"and {len(found) - _MOST} more"]
    return ToolFailed(f"the arguments do not fit {tool}, nothing was executed: {'; '.join(found)}")


def by_pydantic(error: ValidationError, arguments: Json, schema: Json) -> list[str]:
    """Put every fault of a validation into words; the branches of a union make one fault
    together.
    """
    places: dict[str, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False, include_context=False):
        places.setdefault(_place(each, arguments), []).append(each)
    return [_words(place, group, schema) for place, group in places.items()]


def by_schema(arguments: Json, schema: Json, *, closed: bool) -> list[str]:
    """Check the first level of arguments against a schema that somebody wrote by hand."""
    properties: Json = schema.get("properties", {})
    closed = closed or schema.get("additionalProperties") is False
    faults = [
        _missing(key, properties.get(key, {}))
        for key in schema.get("required", ())
        if key not in arguments
    ]
    for key, value in arguments.items():
        if key not in properties:
            faults += [unknown(key, properties)] if closed else []
        elif not _of_type(value, wanted := properties[key].get("type")):
            faults.append(f"`{key}` should be {_kind(wanted)}, found {_shown(value)}")
        elif "enum" in properties[key] and value not in properties[key]["enum"]:
            options = ", ".join(_shown(each) for each in properties[key]["enum"])
            faults.append(f"`{key}` should be one of {options}, found {_shown(value)}")
    return faults


def unknown(key: str, known: Iterable[str]) -> str:
    """Say that an argument does not exist, and which one was probably meant."""
    names = list(known)
    if near := get_close_matches(key, names, n=1):
        return f"`{key}` is not an argument, did you mean `{near[0]}`?"
    if not names:
        return f"`{key}` is not an argument, there are none"
    return f"`{key}` is not an argument, there are {', '.join(f'`{name}`' for name in names)}"


def _words(place: str, group: list[ErrorDetails], schema: Json) -> str:
    first = group[0]
    if first["type"] == "missing":
        return _missing(place, schema.get("properties", {}).get(place, {}))
    if first["type"] == "extra_forbidden":
        parent, _, key = place.rpartition(".")
        return (
            f"`{parent}`: {unknown(key, ())}"
            if parent
            else unknown(key, schema.get("properties", {}))
        )
    expected = dict.fromkeys(
        each["msg"].removeprefix("Input should be ").partition(", unable to")[0] for each in group
    )
    if all(each["msg"].startswith("Input should be ") for each in group):
        return f"`{place}` should be {' or '.join(expected)}, found {_shown(first['input'])}"
    return f"`{place}`: {' or '.join(expected)}, found {_shown(first['input'])}"


def _place(error: ErrorDetails, arguments: Any) -> str:
    """Return the path to a value as the model wrote it: without the names pydantic gives to
    branches of a union.
    """
    path = ""
    value = arguments
    location = error["loc"]
    for index, part in enumerate(location):
        inside = (isinstance(value, dict) and part in value) or (
            isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
        )
        if inside:
            value = value[part]
        elif error["type"] != "missing" or index < len(location) - 1:
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _missing(key: str, schema: Json) -> str:
    about = ", ".join(
        filter(
            None,
            (_kind(schema.get("type")) if "type" in schema else "", schema.get("description", "")),
        )
    )
    return f"`{key}` is missing" + (f" ({about})" if about else "")


def _of_type(value: Any, wanted: Any) -> bool:
    names = wanted if isinstance(wanted, list) else [wanted]
    if any(name not in _TYPES for name in names):
        return True  # no type stated, or one we do not know: the tool's own business
    if isinstance(value, bool):
        return "boolean" in names  # Python calls True an int; JSON does not
    return any(isinstance(value, _TYPES[name]) for name in names)


def _kind(wanted: Any) -> str:
    return " or ".join(wanted) if isinstance(wanted, list) else str(wanted)


def _shown(value: Any, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}…"
