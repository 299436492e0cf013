"""Parse TOML that people, models or other programs wrote, within bounds that all later code can
rely on: its numbers fit into 64 bits, its dates into a calendar that can be reckoned with, and its
tables and lists into the stack.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime
from typing import Any

from daemon.definitions.shape import Loc, format_key_path
from daemon.models import Json

MAX_BYTES = 4_000_000
"""The longest file; tomllib takes some 30 times its length of memory."""
MAX_DEPTH = 64
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1  # https://toml.io/en/v1.0.0#integer
FIRST_YEAR, LAST_YEAR = 1900, 2999
_TOO_MANY_DIGITS = re.compile(r"[0-9_]{4300,}")  # sys.int_info.default_max_str_digits
# Strings of several lines, strings and comments. A string without an end goes as far as it can, so
# that nothing is looked at twice.
_TEXTS = re.compile(
    r""""{3}(?:[^"\\]|\\.|"(?!""))*(?:"{3})?|'{3}.*?(?:'{3}|\Z)"""
    r"""|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|(#)[^\n]*""",
    re.DOTALL,
)


class TomlOutOfBounds(ValueError):
    """A text is TOML, but a value in it is beyond the bounds."""

    def __init__(self, key: str, problem: str, hint: str = "", *, line: int | None = None) -> None:
        """`line` is its line where that is known and its key is not."""
        self.key, self.problem, self.hint, self.line = key, problem, hint, line
        place = f"line {line}" if line else key
        super().__init__(f"{place}: {problem}" + (f"; {hint}" if hint else ""))


def parse_toml_text(text: str) -> Json:
    """Return the tables of a text. Raises tomllib.TOMLDecodeError if it is not TOML, and
    TomlOutOfBounds with the key or the line that is out of bounds.
    """
    if len(text) > MAX_BYTES:
        raise TomlOutOfBounds("", f"has more than {MAX_BYTES:,} characters", "divide it")
    _refuse_deep_keys(text)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise TomlOutOfBounds(
            "", "its lists or tables are nested too deeply", "flatten them"
        ) from None
    except ValueError:  # int() takes no more than 4,300 digits, and datetime no 30th of February
        raise _explain_failed_value(text) from None
    _check(data)
    return data


def _refuse_deep_keys(text: str) -> None:
    """Raise TomlOutOfBounds for a dotted key of too many parts: each is a table in a table, and
    tomllib takes the square of their number.
    """
    if all(line.count(".") <= MAX_DEPTH for line in text.split("\n")):
        return

    def replace(match: re.Match[str]) -> str:
        return "" if match[1] else "x" + "\n" * match[0].count("\n")

    bare = _TEXTS.sub(replace, text).replace(" ", "").replace("\t", "")
    for number, line in enumerate(bare.split("\n"), 1):
        if any(key.count(".") > MAX_DEPTH for key in re.split(r"[=,\[\]{}]", line)):
            problem = f"has a key of more than {MAX_DEPTH} parts"
            raise TomlOutOfBounds("", problem, line=number)


def _explain_failed_value(text: str) -> TomlOutOfBounds:
    match = _TOO_MANY_DIGITS.search(text)
    if match is None:
        return TomlOutOfBounds("", "holds a number or date that does not exist")
    line = text.count("\n", 0, match.start()) + 1
    return TomlOutOfBounds("", "is a number with more digits than can be read", line=line)


def _check(data: Json) -> None:
    """Raise TomlOutOfBounds for the first value that is out of bounds. Without recursion, which
    deep tables would exhaust.
    """
    remaining: list[tuple[Loc, Any]] = [((), data)]
    while remaining:
        path, value = remaining.pop()
        problem = hint = ""
        match value:
            case dict() | list():
                if len(path) > MAX_DEPTH:
                    problem, hint = f"lies more than {MAX_DEPTH} levels deep", "flatten it"
                    path = path[:3]
                else:
                    entries = value.items() if isinstance(value, dict) else enumerate(value)
                    remaining += [((*path, key), entry) for key, entry in entries]
            case int() if not MIN_INTEGER <= value <= MAX_INTEGER:
                problem = "is a whole number that does not fit into 64 bits"
            case datetime() | date() if not FIRST_YEAR <= value.year <= LAST_YEAR:
                problem = f"is no date of the years {FIRST_YEAR} to {LAST_YEAR}"
        if problem:
            raise TomlOutOfBounds(format_key_path(*path), problem, hint)
