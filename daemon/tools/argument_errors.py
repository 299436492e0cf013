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
_MAX_FAULTS = 8
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def make_failure(tool: str, faults: Iterable[str]) -> ToolFailed:
    """Return the failure the model reads when its arguments do not fit."""
    unique_faults = list(dict.fromkeys(faults))
    if len(unique_faults) > _MAX_FAULTS:
        unique_faults = [
            *unique_faults[:_MAX_FAULTS],
            f"and {len(unique_faults) - _MAX_FAULTS} more",
        ]
    return ToolFailed(
        f"the arguments do not fit {tool}, nothing was executed: {'; '.join(unique_faults)}"
    )


def describe_validation_error(error: ValidationError, arguments: Json, schema: Json) -> list[str]:
    """Put every fault of a validation into words; the branches of a union make one fault
    together.
    """
    errors_by_location: dict[str, list[ErrorDetails]] = {}
    for error_details in error.errors(include_url=False, include_context=False):
        errors_by_location.setdefault(_location_of(error_details, arguments), []).append(
            error_details
        )
    return [
        _describe_errors(location, group, schema) for location, group in errors_by_location.items()
    ]


def check_by_schema(arguments: Json, schema: Json, *, closed: bool) -> list[str]:
    """Return the faults of the first level of arguments by a schema that was written by hand.

    What stands in the schema in another form than expected, as in one of a server, says nothing.

    `closed`: an argument that the schema does not have is a fault, as with `additionalProperties`
    = false.
    """
    stated_properties, stated_keys = schema.get("properties"), schema.get("required")
    properties: dict[str, Json] = {
        # JSON Schema has `true` for whatever there may be
        key: value if isinstance(value, dict) else {}
        for key, value in (stated_properties.items() if isinstance(stated_properties, dict) else ())
    }
    closed = closed or schema.get("additionalProperties") is False
    faults = [
        _describe_missing(key, properties.get(key, {}))
        for key in (stated_keys if isinstance(stated_keys, list | tuple) else ())
        if isinstance(key, str) and key not in arguments
    ]
    for key, value in arguments.items():
        if key not in properties:
            faults += [describe_unknown(key, properties)] if closed else []
        elif not _is_of_type(value, expected_type := properties[key].get("type")):
            faults.append(
                f"`{key}` should be {_describe_type(expected_type)}, found {_shorten_value(value)}"
            )
        elif isinstance(enum := properties[key].get("enum"), list) and value not in enum:
            options = ", ".join(_shorten_value(option) for option in enum)
            faults.append(f"`{key}` should be one of {options}, found {_shorten_value(value)}")
    return faults


def describe_unknown(key: str, parameters: Iterable[str]) -> str:
    """Say that an argument does not exist, and which one was probably meant."""
    names = list(parameters)
    if similar_names := get_close_matches(key, names, n=1):
        return f"`{key}` is not an argument, did you mean `{similar_names[0]}`?"
    if not names:
        return f"`{key}` is not an argument, there are none"
    return f"`{key}` is not an argument, there are {', '.join(f'`{name}`' for name in names)}"


def _describe_errors(location: str, group: list[ErrorDetails], schema: Json) -> str:
    first_error = group[0]
    if first_error["type"] == "missing":
        return _describe_missing(location, schema.get("properties", {}).get(location, {}))
    if first_error["type"] == "extra_forbidden":
        parent, _, key = location.rpartition(".")
        return (
            f"`{parent}`: {describe_unknown(key, ())}"
            if parent
            else describe_unknown(key, schema.get("properties", {}))
        )
    expectations = dict.fromkeys(
        error["msg"].removeprefix("Input should be ").partition(", unable to")[0] for error in group
    )
    value = _shorten_value(first_error["input"])
    if all(error["msg"].startswith("Input should be ") for error in group):
        return f"`{location}` should be {' or '.join(expectations)}, found {value}"
    return f"`{location}`: {' or '.join(expectations)}, found {value}"


def _location_of(error: ErrorDetails, arguments: Any) -> str:
    """Return the path to a value as the model wrote it: without the names pydantic gives to
    branches of a union.
    """
    path = ""
    value = arguments
    location = error["loc"]
    for index, part in enumerate(location):
        is_inside = (isinstance(value, dict) and part in value) or (
            isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
        )
        if is_inside:
            value = value[part]
        elif error["type"] != "missing" or index < len(location) - 1:
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _describe_missing(key: str, schema: Json) -> str:
    notes = [_describe_type(schema["type"])] if "type" in schema else []
    if description := schema.get("description"):
        notes.append(str(description))
    return f"`{key}` is missing" + (f" ({', '.join(notes)})" if notes else "")


def _is_of_type(value: Any, expected_type: Any) -> bool:
    names = expected_type if isinstance(expected_type, list) else [expected_type]
    if any(not isinstance(name, str) or name not in _TYPES for name in names):
        return True  # no type stated, or one we do not know: the tool's own business
    if isinstance(value, bool):
        return "boolean" in names  # Python calls True an int; JSON does not
    return any(isinstance(value, _TYPES[name]) for name in names)


def _describe_type(expected_type: Any) -> str:
    names = expected_type if isinstance(expected_type, list) else [expected_type]
    return " or ".join(map(str, names))


def _shorten_value(value: Any, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}…"
