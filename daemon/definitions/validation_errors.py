"""Translate errors of pydantic into problems and hints for the writer of a file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from daemon.definitions.shape import (
    Loc,
    fields_by_key,
    format_key_path,
    list_tables,
    models_at,
    path_of,
)
from daemon.definitions.words import may_be_secret, nearest, show_value
from daemon.models import Json

_TEXT = "expected text in quotes"
_NUMBER = "expected a number, like 10"
_TABLE = "expected a table of keys and values"
_LIST = 'expected a list, like ["a", "b"]'
# The problem by pydantic's error type; braces are filled from the context of the error.
_PROBLEMS = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "string_type": _TEXT,
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "does not have the expected form {pattern}",
    "bool_type": "expected true or false, without quotes",
    "int_type": "expected a whole number, like 10",
    "int_from_float": "expected a whole number, like 10",
    "float_type": _NUMBER,
    "finite_number": "expected a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "expected {choices}",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "too_short": "needs at least {min_length} of them",
    "too_long": "takes at most {max_length} of them",
    "datetime_type": "expected a date with time, like 2026-12-01T09:00:00+01:00, without quotes",
    "timezone_aware": "needs its offset from UTC, like 2026-12-01T09:00:00+01:00",
    "date_type": "expected a date, like 2026-12-01, without quotes",
    "time_type": "expected a time, like 09:00:00, without quotes",
    "union_tag_invalid": "expected {choices}",
    "union_tag_not_found": "is missing",
}
# An error of these types in one branch of a union is left out if another branch found errors deeper
# inside the value: that branch is the one that was meant. Of a list that is too short pydantic
# counts the sound items only.
_TYPE_ERRORS = {
    "too_short",
    "string_type",
    "bool_type",
    "int_type",
    "float_type",
    "list_type",
    "tuple_type",
    "dict_type",
    "model_type",
    "literal_error",
    "datetime_type",
}


@dataclass(slots=True)
class FieldError:
    """What pydantic found at one path; several problems come from the branches of a union."""

    path: Loc
    input: Any
    problems: list[str] = field(default_factory=list)
    hint: str = ""
    is_shallow: bool = True
    """Whether all its errors are of _TYPE_ERRORS."""
    missing: bool = False
    meant_path: Loc | None = None
    """Where an unknown key was probably meant to stand, as another key of its table."""

    def add(self, problem: str, hint: str) -> None:
        if self.problems:
            problem = problem.removeprefix("expected ")
        if problem not in self.problems:
            self.problems.append(problem)
        self.hint = self.hint or hint


def field_errors(error: ValidationError, data: Json, model: type[BaseModel]) -> list[FieldError]:
    """Return what pydantic found, one entry a path; of a union only the branch that fits best."""
    findings: dict[Loc, FieldError] = {}
    for item in error.errors(include_url=False):
        kind, context, value = item["type"], item.get("ctx", {}), item["input"]
        is_missing = kind in ("missing", "union_tag_not_found")
        path = path_of(item["loc"], data, value, missing=kind == "missing")
        if kind.startswith("union_tag"):
            path, value = (*path, context["discriminator"].strip("'")), context.get("tag")
        finding = findings.setdefault(path, FieldError(path, value, missing=is_missing))
        if kind == "extra_forbidden" and (close := nearest(str(path[-1]), _keys_at(path, model))):
            finding.meant_path = (*path[:-1], close)
        hint = getattr(context.get("error"), "hint", "") or _hint(kind, path, value, context, model)
        finding.add(_sentence(kind, context, item["msg"]), hint)
        finding.is_shallow = finding.is_shallow and kind in _TYPE_ERRORS
    parents = {path[:end] for path in findings for end in range(len(path))}
    return [
        finding
        for path, finding in findings.items()
        if not (finding.is_shallow and path in parents)
    ]


def _sentence(kind: str, context: Mapping[str, Any], message: str) -> str:
    if cause := context.get("error"):  # raised by one of our validators
        return str(cause)
    if kind == "too_short" and context["min_length"] == 1:
        kind = "string_too_short"
    if kind not in _PROBLEMS:
        message = message.removeprefix("Input ")
        return message[:1].lower() + message[1:]
    *choices, last_choice = (f'"{choice}"' for choice in _choices(context) or ["…"])
    return _PROBLEMS[kind].format(
        **context, choices=f"{', '.join(choices)} or {last_choice}" if choices else last_choice
    )


def _choices(context: Mapping[str, Any]) -> list[str]:
    return re.findall(r"'([^']*)'", context.get("expected") or context.get("expected_tags") or "")


def _hint(
    kind: str, path: Loc, value: Any, context: Mapping[str, Any], model: type[BaseModel]
) -> str:
    match kind:
        case "missing":
            values = ", ".join(f'"{value}"' for value in _values_of(path, model))
            return f"one of {values}" if values else ""
        case "extra_forbidden":
            return _hint_for_unknown(path, model)
        case "literal_error" | "union_tag_invalid":
            close = nearest(str(value), _choices(context))
            return f'did you mean "{close}"?' if close else ""
        case "int_type" | "float_type" if isinstance(value, str):
            return "leave out the quotes" if re.fullmatch(r"[\d._+-]+", value) else ""
        case "string_type" if isinstance(value, dict) and value:
            return _hint_for_plural(path, next(iter(value)), model)
        case "string_type" if isinstance(value, int | float):
            return f'write "{value}"' if not isinstance(value, bool) else ""
        case "string_type" if isinstance(value, date):  # TOML has dates, as skip = [2026-12-24]
            return f'write "{value.isoformat()}"'
        case "tuple_type" | "list_type" if isinstance(value, str):
            if may_be_secret(value, format_key_path(*path)):
                return ""
            if models_at(model, (*path, 0)):  # a list of tables
                return f"write [[{format_key_path(*path)}]] with two brackets, and its keys below"
            words = _split_words(value) if path[-1] == "command" else [value]
            text = json.dumps(words, ensure_ascii=False)
            # TOML takes no control characters as they are, and a terminal should not get them
            escaped_text = "".join(
                char if char.isprintable() else f"\\U{ord(char):08X}" for char in text
            )
            return f"write {escaped_text}"
        case "string_type" if isinstance(value, list) and len(value) == 1:
            if isinstance(value[0], str) and not may_be_secret(value, format_key_path(*path)):
                return f"write {show_value(value[0])}"
        case "model_type" | "model_attributes_type" if isinstance(value, str | int | float):
            if isinstance(path[-1], int):
                key = format_key_path(*path[:-1])
                return f"write [[{key}]] with two brackets, and its keys below"
            return f"write [{format_key_path(*path)}], and its keys below"
        case "tuple_type" | "list_type" if isinstance(value, dict) and path:
            return f"write [[{format_key_path(*path)}]] with two brackets"
    return ""


def _values_of(path: Loc, model: type[BaseModel]) -> list[str]:
    """Return the texts that the key at this path may have, or those that its field names as
    examples; none if it takes any text.
    """
    fields = (fields_by_key(table).get(str(path[-1])) for table in models_at(model, path[:-1]))
    return [
        value
        for field_info in fields
        if field_info
        for value in field_info.examples or get_args(field_info.annotation)
        if isinstance(value, str)
    ]


def _split_words(text: str) -> list[str]:
    """Return the words of a command as a shell would cut them."""
    try:
        return shlex.split(text) or [text]
    except ValueError:  # a quote without an end
        return text.split() or [text]


def _hint_for_plural(path: Loc, name: str, model: type[BaseModel]) -> str:
    """Return the tables that were probably meant by the table `name` of a key: those of its
    plural.
    """
    key = f"{path[-1]}s"
    if any(key in fields_by_key(table) for table in models_at(model, path[:-1])):
        return f"write [{format_key_path(*path[:-1], key, name)}]"
    return ""


def _keys_at(path: Loc, model: type[BaseModel]) -> set[str]:
    """Return the keys that the table of this key has."""
    return {key for table in models_at(model, path[:-1]) for key in fields_by_key(table)}


def _hint_for_unknown(path: Loc, model: type[BaseModel]) -> str:
    """Return the key that was probably meant instead of an unknown one, here or in another
    table.
    """
    name = str(path[-1])
    keys = _keys_at(path, model)
    if close := nearest(name, keys, cutoff=0.8):
        return f'did you mean "{close}"?'
    if tables := sorted(table for table, keys in list_tables(model) if name in keys):
        return f"it belongs in {' or '.join(tables)}"
    if close := nearest(name, keys):
        return f'did you mean "{close}"?'
    return "known here: " + ", ".join(sorted(keys)) if keys else ""
