"""Walking the data of a file side by side with the models it should fit."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel

Loc: TypeAlias = tuple[int | str, ...]


def path_of(loc: Loc, data: Any, value: Any, *, missing: bool) -> Loc:
    """Return the place in the data that an error speaks of; pydantic mixes the names of union
    branches into it.
    """
    names: Loc = loc[:-1] if missing else loc

    def walk(node: Any, at: int) -> Loc | None:
        if at == len(names):
            return () if node is value else None
        part = names[at]
        inside = (
            part in node
            if isinstance(node, dict)
            else isinstance(node, list) and _index(part, node)
        )
        if inside and (rest := walk(node[part], at + 1)) is not None:
            return (part, *rest)
        return walk(node, at + 1)

    path = walk(data, 0)
    if path is None:  # a key of a dict, or a value made by a validator
        path = names
    return (*path, loc[-1]) if missing else path


def _index(part: int | str, node: list[Any]) -> bool:
    return isinstance(part, int) and part < len(node)


def dotted(*path: int | str) -> str:
    """Return a place in a file as its writer would name it: `gather[1].args`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (
                part if re.fullmatch(r"[\w-]+", part) else json.dumps(part)
            )
    return text


def mended(node: Any, path: Loc, broken: Collection[Loc], model: type[BaseModel]) -> Any:
    """Return a copy of the data in which nothing is broken: the entry is left out or, where it must
    be, stands in.

    No rule that reads a broken key sees the copy, so a stand-in deceives nobody.
    """
    if isinstance(node, list):
        return [mended(item, (*path, index), broken, model) for index, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    copy = {}
    for key, value in node.items():
        here = (*path, key)
        items = [(*here, index) for index in range(len(value))] if isinstance(value, list) else []
        if here not in broken and not any(item in broken for item in items):
            copy[key] = mended(value, here, broken, model)
    for table in tables_at(model, path):
        for key, known in table.model_fields.items():
            if key not in copy and known.is_required():
                copy[key] = _stand_in(known.annotation)
    return copy


def _stand_in(annotation: Any) -> Any:
    kind = next(plain(annotation))
    return get_args(kind)[0] if get_origin(kind) is Literal else "x"


def keys_of(path: Loc) -> tuple[str, ...]:
    return tuple(part for part in path if isinstance(part, str))


def covers(broken: Sequence[str], read: Sequence[str]) -> bool:
    """Tell whether what is broken is the entry that is read, or holds it."""
    return len(broken) <= len(read) and all(
        b in (a, "*") for a, b in zip(broken, read, strict=False)
    )


def plain(annotation: Any) -> Iterator[Any]:
    """Yield the members of an annotation without Annotated and Union around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from plain(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from plain(member)
    else:
        yield annotation


def tables_at(model: type[BaseModel], path: Loc) -> list[type[BaseModel]]:
    """Return the models that may stand at this place of the data."""
    here: list[Any] = [model]
    for part in path:
        here = [inner for one in here for inner in _inside(one, part)]
    return [one for one in here if _is_table(one)]


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _inside(annotation: Any, part: int | str) -> Iterator[Any]:
    args = get_args(annotation)
    if _is_table(annotation):
        known = annotation.model_fields.get(part)
        yield from plain(known.annotation) if known else ()
    elif isinstance(part, int) and args:
        yield from plain(args[0])
    elif len(args) == 2:  # dict[str, X]
        yield from plain(args[1])


def all_tables(model: type[BaseModel], name: str = "") -> Iterator[tuple[str, Collection[str]]]:
    """Yield every table of a file as the reader writes its head, with its keys."""
    yield (f"[{name}]" if name else "the top of the file"), model.model_fields
    for key, known in model.model_fields.items():
        for annotation in plain(known.annotation):
            inner = [
                one for one in (annotation, *map(_first, get_args(annotation))) if _is_table(one)
            ]
            for table in inner:
                dotted = f"{name}.{key}".lstrip(".")
                if annotation is table:
                    yield from all_tables(table, dotted)
                elif get_origin(annotation) is dict:
                    yield from all_tables(table, f"{dotted}.NAME")
                else:
                    yield f"[[{dotted}]]", table.model_fields


def _first(annotation: Any) -> Any:
    return next(plain(annotation))
