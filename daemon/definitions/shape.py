"""Relate the data of a file to the pydantic models that it should fit."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# A place in a file: names of keys and indexes of lists, as in `loc` of a pydantic error.
Loc: TypeAlias = tuple[int | str, ...]
MAX_KEY_LENGTH = 100  # characters of one key that a fault shows


def path_of(loc: Loc, data: Any, value: Any, *, missing: bool) -> Loc:
    """Return the path in `data` of the entry that an error of pydantic is about.

    `loc` and `value` are those of the error; with `missing`, the last part of `loc` is a key that
    the data lacks. `loc` also has the names of union branches, which are no keys of the file, so
    the path is the part of it that leads to the very object `value`.
    """
    names: Loc = loc[:-1] if missing else loc

    def walk(node: Any, index: int) -> Loc | None:
        if index == len(names):
            return () if node is value else None
        name = names[index]
        has_part = (
            name in node
            if isinstance(node, dict)
            else isinstance(node, list) and _is_index(name, node)
        )
        if has_part and (tail := walk(node[name], index + 1)) is not None:
            return (name, *tail)
        return walk(node, index + 1)

    path = walk(data, 0)
    if path is None:  # the error is about a key of a dict, or a value that a validator made
        path = tuple(name for name in names if not _is_validator(name))
    return (*path, loc[-1]) if missing else path


def _is_validator(part: int | str) -> bool:
    """Tell whether a part is how pydantic names a union branch with a validator of ours."""
    return isinstance(part, str) and re.fullmatch(r"function-\w+\[.*\]", part) is not None


def _is_index(part: int | str, node: list[Any]) -> bool:
    return isinstance(part, int) and part < len(node)


def format_key_path(*path: int | str) -> str:
    """Return a path in a file as a person writes it: `gather[1].args`; longer names are cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if len(part) <= MAX_KEY_LENGTH else part[:MAX_KEY_LENGTH] + "…"
            text += ("." if text else "") + (
                name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)
            )
    return text


def drop_broken_entries(
    node: Any, path: Loc, broken_paths: Collection[Loc], model: type[BaseModel]
) -> Any:
    """Return a copy of the data without the entries at `broken_paths`; required entries are
    replaced by a placeholder. `path` is that of `node` in the file, of which `model` is the model.

    No check that reads a broken key sees the copy, so placeholders cause no false faults.
    """
    if isinstance(node, list):
        return [
            drop_broken_entries(item, (*path, index), broken_paths, model)
            for index, item in enumerate(node)
        ]
    if not isinstance(node, dict):
        return node
    copy = {}
    for key, value in node.items():
        entry = (*path, key)
        items = [(*entry, index) for index in range(len(value))] if isinstance(value, list) else []
        if entry not in broken_paths and not any(item in broken_paths for item in items):
            copy[key] = drop_broken_entries(value, entry, broken_paths, model)
    for table in models_at(model, path):
        for key, model_field in fields_by_key(table).items():
            if key not in copy and model_field.is_required():
                copy[key] = _make_placeholder(model_field.annotation)
    return copy


def _make_placeholder(annotation: Any) -> Any:
    kind = next(union_members(annotation))
    return get_args(kind)[0] if get_origin(kind) is Literal else "x"


def keys_of(path: Loc) -> tuple[str, ...]:
    """Return a path without the indexes of lists."""
    return tuple(part for part in path if isinstance(part, str))


def covers(broken_path: Sequence[str], read_path: Sequence[str]) -> bool:
    """Tell whether the broken entry is the one that a check reads, or contains it. In `read_path`,
    `*` stands for any key.
    """
    return len(broken_path) <= len(read_path) and all(
        read_key in (broken_key, "*")
        for broken_key, read_key in zip(broken_path, read_path, strict=False)
    )


def union_members(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation unites, without Annotated around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from union_members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from union_members(member)
    else:
        yield annotation


def models_at(model: type[BaseModel], path: Loc) -> list[type[BaseModel]]:
    """Return the models that the data at this path may belong to."""
    annotations: list[Any] = [model]
    for part in path:
        annotations = [
            member for annotation in annotations for member in _annotations_inside(annotation, part)
        ]
    return [annotation for annotation in annotations if _is_table(annotation)]


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a table by the keys that a file has for them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _annotations_inside(annotation: Any, part: int | str) -> Iterator[Any]:
    args = get_args(annotation)
    if _is_table(annotation):
        model_field = fields_by_key(annotation).get(str(part))
        yield from union_members(model_field.annotation) if model_field else ()
    elif isinstance(part, int) and args:
        yield from union_members(args[0])
    elif len(args) == 2:  # dict[str, X]
        yield from union_members(args[1])


def list_tables(model: type[BaseModel], name: str = "") -> Iterator[tuple[str, Collection[str]]]:
    """Yield (header, keys) of every table that a file may have; a header is such as `[run.retry]`.
    `name` is the dotted name of the table whose model is `model`, empty for the whole file.
    """
    yield (f"[{name}]" if name else "the top of the file"), fields_by_key(model)
    for key, model_field in fields_by_key(model).items():
        annotations = list(union_members(model_field.annotation))
        for annotation in annotations:
            models = [
                member
                for member in (annotation, *map(_first_member, get_args(annotation)))
                if _is_table(member)
            ]
            for table in models:
                table_name = f"{name}.{key}".lstrip(".")
                if annotation is not table and table in annotations:
                    continue  # a key that is a table or a list of them
                if annotation is table:
                    yield from list_tables(table, table_name)
                elif get_origin(annotation) is dict:
                    yield from list_tables(table, f"{table_name}.NAME")
                else:
                    yield f"[[{table_name}]]", fields_by_key(table)


def _first_member(annotation: Any) -> Any:
    return next(union_members(annotation))
