"""Documents that are nearly right: a valid one in which some values are replaced by hostile ones.

A document is a value of JSON whose leaves may also be a `Raw`: text that a renderer puts in as it
stands, since no Python value can say `1e999` or a number of 5,000 digits in every format.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st
from pydantic import BaseModel

Document: TypeAlias = Any
Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Raw:
    """A value as it is written in each format; None where the format has no such thing."""

    json: str
    toml: str | None = None
    yaml: str | None = None


LONG = "x" * 300_000
# Values that some parser, database, calendar or encoding cannot hold.
HOSTILE_VALUES: tuple[Any, ...] = (
    Raw("9" * 5_000, "9" * 5_000, "9" * 5_000),
    Raw("-" + "9" * 4_000, "-" + "9" * 4_000, "-" + "9" * 4_000),
    Raw("1" + "0" * 400, "0x" + "f" * 100_000, "0x" + "f" * 10_000),
    Raw("1e999", "1e999", "1e999"),
    Raw("-1e999", "-inf", "-.inf"),
    Raw("NaN", "nan", ".nan"),
    Raw("1e308", "1e308", "1e308"),
    Raw('"\\ud800"', '"\\uD800"', '"\\ud800"'),
    Raw('"\\u0000"', '"\\u0000"', '"\\0"'),
    Raw("[" * 100_000, "[" * 5_000 + "]" * 5_000, "[" * 5_000),
    Raw('{"a":' * 20_000 + "1" + "}" * 20_000, "{a = " * 300 + "1" + "}" * 300, "{a: " * 5_000),
    Raw('"9999-12-31T23:59:59.999999-23:59"', "9999-12-31T23:59:59-23:59", "9999-12-31"),
    Raw('"0001-01-01T00:00:00+23:59"', "0001-01-01T00:00:00+23:59", "0001-01-01"),
    Raw('"2026-02-30T00:00:00Z"', "2026-02-30", "2026-02-30"),
    Raw("false", "23:59:60", "&a [*a, *a]"),
    Raw("18446744073709551616", "9223372036854775808", "!!python/object/apply:os.getpid []"),
    2**63 - 1,
    -(2**63),
    -1,
    0,
    0.5,
    True,
    None,
    "",
    LONG,
    "\x1b[2J\u202e\u200b",
    "\ud800",
    "/proc/1/root",
    "/proc/self/mem",
    "../" * 500 + "etc/passwd",
    "9999-12-31",
    "99999999999999999999d",
    "1" * 5_000 + "s",
    "*/0 * * * *",
    "0 0 30 2 *",
    "%(x)s {x.__class__} $x",
    [],
    {},
    [[]],
    [None] * 2_000,
    {"": ""},
    {LONG[:70_000]: 1},
)
hostile_values = st.sampled_from(HOSTILE_VALUES)
any_values = hostile_values | st.text(max_size=20) | st.integers() | st.floats() | st.booleans()


@st.composite
def broken_documents(
    draw: st.DrawFn, samples: Sequence[Document], keys: Sequence[str] = ()
) -> Document:
    """Draw one of these documents with one to three places changed: a value replaced, removed or
    doubled, or a key of `keys` added.
    """
    document = copy.deepcopy(draw(st.sampled_from(list(samples))))
    for _ in range(draw(st.integers(1, 3))):
        paths = [*_paths(document)]
        path = draw(st.sampled_from(paths))
        change = draw(st.sampled_from(("replace", "replace", "replace", "remove", "double", "add")))
        value = copy.deepcopy(draw(any_values))  # a later change may lie within it
        document = _change(document, path, change, value, keys, draw)
    return document


def _paths(value: Document, above: Path = ()) -> Iterator[Path]:
    yield above
    entries: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        entries = iter(value.items())
    elif isinstance(value, list) and len(value) < 50:
        entries = iter(enumerate(value))
    for key, entry in entries:
        yield from _paths(entry, (*above, key))


def _change(
    document: Document,
    path: Path,
    change: str,
    value: Any,
    keys: Sequence[str],
    draw: st.DrawFn,
) -> Document:
    if not path:
        if change == "add" and isinstance(document, dict) and keys:
            document[draw(st.sampled_from(list(keys)))] = value
            return document
        return document if isinstance(document, dict) and change != "replace" else value
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    last: Any = path[-1]
    if change == "remove":
        del parent[last]
    elif change == "double":
        parent[last] = [parent[last], copy.deepcopy(parent[last])]
    elif change == "add" and keys and isinstance(parent, dict):
        parent[draw(st.sampled_from(list(keys)))] = value
    else:
        parent[last] = value
    return document


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the names of all keys of a model and of the models within it."""
    names: dict[str, None] = {}
    types: set[type] = set()

    def visit(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation in types:
                return
            types.add(annotation)
            for name, field in annotation.model_fields.items():
                names[field.alias or name] = None
                visit(field.annotation)
        for argument in getattr(annotation, "__args__", ()):
            visit(argument)

    visit(model)
    return list(names)


def to_json(value: Document) -> bytes:
    """Write a document as JSON; lone surrogates as escapes."""
    return _json(value).encode("utf-8", "surrogatepass")


def _json(value: Document) -> str:
    match value:
        case Raw():
            return value.json
        case Mapping():
            return "{" + ", ".join(f"{json.dumps(k)}: {_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_json, value)) + "]"
        case _:
            return json.dumps(value)


def to_toml(value: Document) -> bytes:
    """Write a document as TOML: a key a line, and tables within it inline."""
    if not isinstance(value, dict):
        return _toml(value).encode("utf-8", "surrogatepass")
    lines = [f"{_toml(str(key))} = {_toml(entry)}" for key, entry in value.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _toml(value: Document) -> str:
    match value:
        case Raw():
            return value.toml or value.json
        case Mapping():
            entries = (f"{_toml(str(key))} = {_toml(entry)}" for key, entry in value.items())
            return "{" + ", ".join(entries) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case int() | float():
            return str(value)
        case None:
            return '""'
        case _:
            return str(value.isoformat())


def to_yaml(value: Document) -> bytes:
    """Write a document as YAML: a key a line, and what is within it in the flow style of JSON."""
    if not isinstance(value, dict):
        return _yaml(value).encode("utf-8", "surrogatepass")
    lines = [f"{_yaml(key)}: {_yaml(entry)}" for key, entry in value.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _yaml(value: Document) -> str:
    match value:
        case Raw():
            return value.yaml or value.json
        case Mapping():
            return "{" + ", ".join(f"{_yaml(k)}: {_yaml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_yaml, value)) + "]"
        case _:
            return json.dumps(value)
