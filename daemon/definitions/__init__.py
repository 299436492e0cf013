"""Read the user's TOML files strictly, and answer kindly: every fault of a file at once, each with its way out.

Theory of operation: pydantic judges shape and types in one pass and names everything that is wrong. What no single
field can know (one trigger only, a gate that names a gather) stands in a table of `Rule`s, each with the keys it
reads. When the first pass finds faults, the broken entries are taken out, the rest is validated once more, and the
rules that read none of the broken entries still have their say; so one call tells everything, and nothing twice.

In this room: TOML to values, faults in words. Not in this room: what config, routines or policy may say, and anything
that depends on it.
"""

from daemon.definitions.reading import Conflict, Rule, as_fault, load_toml, parse, read_toml
from daemon.definitions.shape import dotted
from daemon.definitions.values import (
    Duration,
    Items,
    JsonTable,
    SomeDuration,
    Table,
    Wrong,
    at_least,
    format_duration,
    parse_duration,
)
from daemon.definitions.words import did_you_mean, display, nearest, shown

__all__ = [
    "Conflict",
    "Duration",
    "Items",
    "JsonTable",
    "Rule",
    "SomeDuration",
    "Table",
    "Wrong",
    "as_fault",
    "at_least",
    "did_you_mean",
    "display",
    "dotted",
    "format_duration",
    "load_toml",
    "nearest",
    "parse",
    "parse_duration",
    "read_toml",
    "shown",
]
