"""The JSON Schema that a report has to fit (`[check] schema`).

Nothing is ever fetched: a `$ref` may point within the file only.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.system.safe_open import open_beneath

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MAX_SCHEMA_BYTES = 256 * 1024
MAX_FAULTS = 3  # of a report, that a person or the model is told at once
MAX_FAULT_CHARACTERS = 200
_FENCED = re.compile(r"^```json[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
# Keywords whose value is data, in which a key `$ref` refers to nothing.
_DATA_KEYWORDS = frozenset({"const", "default", "enum", "examples"})
# How jsonschema fails on a schema that is odd in a way which its own check does not look for.
_LIBRARY_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, re.error)


class ReportSchemaError(Exception):
    """A schema cannot be used, and why, for people."""


def load_schema(workspace: Path, path: str) -> Validator:
    """Return a validator of the schema in a file of the workspace.

    A schema without `$schema` is one of draft 2020-12. Raises ReportSchemaError for a file that
    cannot be read, is no JSON Schema, or refers to another file, and where the package for schemas
    is missing.
    """
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise ReportSchemaError("needs `pip install 'agentd-routines[schema]'`") from None
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    schema = _read_json(workspace, path)
    if not isinstance(schema, dict | bool):
        raise ReportSchemaError("is no JSON Schema: expected an object")
    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        raise ReportSchemaError("is no JSON Schema: $schema: expected a text")
    validator_class = validator_for(schema, default=Draft202012Validator)
    try:
        validator_class.check_schema(schema)
    except SchemaError as error:
        fault = f"{_shorten(error.json_path)}: {_shorten(error.message)}"
        raise ReportSchemaError(f"is no JSON Schema: {fault}") from None
    except RecursionError:
        raise ReportSchemaError("is no JSON Schema: it is nested too deeply") from None
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ReportSchemaError(
                f"refers to {_shorten(reference)}, and nothing is fetched: "
                'write it into this file, below "$defs"'
            )
    validator: Validator = validator_class(schema, registry=Registry())
    try:
        validator.is_valid(None)
        _resolve_references(schema)
    except Unresolvable as error:
        raise ReportSchemaError(
            f"refers to what it does not hold: {_shorten(str(error))}"
        ) from None
    except RecursionError:
        raise ReportSchemaError("refers to itself without end") from None
    except _LIBRARY_ERRORS as error:
        raise ReportSchemaError(
            f"cannot be used: {_shorten(f'{type(error).__name__}: {error}')}"
        ) from None
    return validator


def _resolve_references(schema: Any) -> None:
    """Raise Unresolvable where a `$ref` names a part that the file does not hold. A schema with
    parts that have an `$id` of their own is left out: their references begin elsewhere.
    """
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    if '"$id"' in json.dumps(schema):
        return
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(resource)
    for reference in _references(schema):
        resolver.lookup(reference)


def _read_json(workspace: Path, path: str) -> Any:
    try:
        # programs of agents may write into the workspace, so no link leads out of it
        with os.fdopen(open_beneath(str(workspace), path), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ReportSchemaError("is no file")
            content = file.read(MAX_SCHEMA_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ReportSchemaError(f"cannot be read in the workspace: {reason}") from None
    if len(content) > MAX_SCHEMA_BYTES:
        raise ReportSchemaError(
            f"is longer than the {MAX_SCHEMA_BYTES:,} bytes that are read of a schema"
        )
    try:
        return _parse_json(content.decode().removeprefix("\ufeff"))
    except ValueError as error:
        raise ReportSchemaError(f"is no JSON: {error}") from None


def _references(node: Any) -> Iterator[str]:
    """Yield what each `$ref` and `$dynamicRef` within a schema names."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for key in ("$ref", "$dynamicRef"):
                if isinstance(node.get(key), str):
                    yield node[key]
            nodes += [value for key, value in node.items() if key not in _DATA_KEYWORDS]
        elif isinstance(node, list):
            nodes += node


def find_faults(validator: Validator, report: str) -> str:
    """Return where a report does not fit the schema, and how; empty if it fits.

    The report is JSON as a whole, or holds one block that is fenced as ```json. Blocks: call it in
    a thread.
    """
    from referencing.exceptions import Unresolvable

    try:
        value = _parse_json(_json_in(report))
    except ValueError as error:
        return f"it is no JSON: {_shorten(str(error))}"
    try:
        faults = [_describe(error) for error in islice(validator.iter_errors(value), MAX_FAULTS)]
    except Unresolvable as error:
        return f"the schema refers to what it does not hold: {_shorten(str(error))}"
    except RecursionError:
        return "it is nested too deeply for the schema"
    except OverflowError:
        return "a number in it is too large for the schema"
    except _LIBRARY_ERRORS as error:
        problem = _shorten(f"{type(error).__name__}: {error}")
        return f"the schema cannot be used for it: {problem}"
    return "; ".join(faults)


def _json_in(report: str) -> str:
    blocks = _FENCED.findall(report)
    if len(blocks) > 1:
        raise ValueError(f"{len(blocks)} blocks are fenced as ```json, and one is expected")
    return str(blocks[0]) if blocks else report


def _parse_json(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _describe(error: ValidationError) -> str:
    """Return the place in a document and what is wrong there."""
    from jsonschema.exceptions import best_match

    # of several alternatives, the fault of the one that fits best
    error = best_match([error]) or error
    instance = _shorten(json.dumps(error.instance, ensure_ascii=False, default=str))
    match error.validator:
        case "type":
            kinds = error.validator_value
            expected_type = kinds if isinstance(kinds, str) else " or ".join(kinds)
            problem = f"expected {expected_type}, found {instance}"
        case "enum":
            choices = ", ".join(
                json.dumps(value, ensure_ascii=False) for value in error.validator_value
            )
            problem = f"expected one of {_shorten(choices)}, found {instance}"
        case "const":
            expected_value = json.dumps(error.validator_value, ensure_ascii=False)
            problem = f"expected {_shorten(expected_value)}, found {instance}"
        case _:
            problem = _shorten(error.message)
    return f"{_shorten(error.json_path)}: {problem}"


def _shorten(text: str) -> str:
    """Return the beginning of a text in one line."""
    text = " ".join(text[: 4 * MAX_FAULT_CHARACTERS].split())
    return text if len(text) <= MAX_FAULT_CHARACTERS else f"{text[:MAX_FAULT_CHARACTERS]}…"
