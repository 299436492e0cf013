"""The kinds of value a file may hold, and how each is read."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, Strict

from daemon.models import Json

T = TypeVar("T")

Items: TypeAlias = Annotated[tuple[T, ...], Strict(strict=False)]
"""A TOML list, kept as a tuple: strict pydantic would take no list for it."""


class Table(BaseModel):
    """One table of a file: nothing unknown, nothing converted behind the writer's back, nothing
    changed later.
    """

    # deferred: a table within a table is built as a part of it, and not once more by itself
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Wrong(ValueError):
    """A value is of the right type and still wrong; raised by validators."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(problem)


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_LONGEST = timedelta(days=366 * 10)


def parse_duration(value: Any) -> timedelta:
    """Return "90s", "10m", "2h", "1d" or "1h30m" as a time span."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Wrong(
            'expected a duration in quotes, like "10m"',
            hint=f'write "{value}s" for {value} seconds',
        )
    if not isinstance(value, str):
        raise Wrong('expected a duration in quotes, like "10m"')
    match = _DURATION.fullmatch(value.replace(" ", ""))
    if not match or not any(match.groups()):
        raise Wrong('expected a duration, like "90s", "10m", "2h", "1d" or "1h30m"')
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    if total > _LONGEST.total_seconds():
        raise Wrong("is longer than ten years")
    return timedelta(seconds=total)


def format_duration(value: timedelta) -> str:
    """Return a time span as one would write it in a file."""
    rest = value.total_seconds()
    text = ""
    for unit, size in _UNITS.items():
        count = rest // size if unit != "s" else rest
        if count:
            text += f"{count:g}{unit}" if unit == "s" else f"{int(count)}{unit}"
        rest -= count * size
    return text or "0s"


Duration: TypeAlias = Annotated[
    timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)
]
"""A time span, written "90s", "10m", "2h", "1d" or "1h30m" and serialised back to that."""


def at_least(least: str) -> AfterValidator:
    """Return a bound for a duration."""
    bound = parse_duration(least)

    def check(value: timedelta) -> timedelta:
        if value < bound:
            raise Wrong(f'must be at least "{least}"')
        return value

    return AfterValidator(check)


SomeDuration: TypeAlias = Annotated[Duration, at_least("0.001s")]
"""A duration that is more than nothing."""


def _as_json(value: Any) -> Any:
    """Return a TOML value as JSON knows it: dates become text, as the reader of JSON gets them
    anyway.
    """
    match value:
        case dict():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise Wrong("nan and inf cannot be passed on")
        case _:
            return value


JsonTable: TypeAlias = Annotated[Json, BeforeValidator(_as_json)]
"""A table whose keys are not ours to know."""
