"""Read the data files of the policy, tables/*.toml: programs with their options, lists of words."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

Fields: TypeAlias = Mapping[str, Any]


@cache
def load_table(name: str) -> Mapping[str, Any]:
    """Return the content of `tables/<name>.toml`."""
    with Path(__file__).with_name("tables").joinpath(f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def word_list(table: str, name: str) -> frozenset[str]:
    """Return the words of one list of words.toml: the key `name` of the table `[table]`."""
    return frozenset(load_table("words")[table][name].split())


def program_fields_of(
    tables: Mapping[str, Fields], code: Mapping[str, Fields]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of options.Program for each program: those of its table, and the functions
    of `code`.
    """
    for name, fields in tables.items():
        row = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in fields.items()
            if key != "numbers"  # of outputs: numbers.py reads it
        }
        yield {"name": name, **row, **code.get(name, {})}
