"""Read the data files of the policy: tables/*.toml lists programs with their options, and words."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

Fields: TypeAlias = Mapping[str, Any]


@cache
def load_table(name: str) -> Mapping[str, Any]:
    """Return one file of tables."""
    with Path(__file__).with_name("tables").joinpath(f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def word_list(table: str, name: str) -> frozenset[str]:
    """Return one list of words.toml, like `find`, `number`."""
    return frozenset(load_table("words")[table][name].split())


def programs(tables: Mapping[str, Fields], code: Mapping[str, Fields]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each program as options.Program has them: of its table, and what no table
    can say.
    """
    for name, fields in tables.items():
        row = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in fields.items()
            if key != "numbers"  # of outputs: numbers.py reads it
        }
        yield {"name": name, **row, **code.get(name, {})}
