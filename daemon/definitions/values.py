"""The types of values in files, and how each is read."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, Strict

from daemon import durations
from daemon.models import Json

T = TypeVar("T")

Items: TypeAlias = Annotated[tuple[T, ...], Strict(strict=False)]
"""A TOML list as a tuple; strict pydantic would refuse the list."""


class Table(BaseModel):
    """The base of models of tables: unknown keys are refused, values are not converted, and the
    model is immutable.
    """

    # The schema is built on first use: a table within a table is then built only as a part of it.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class InvalidValue(ValueError):
    """A value of the right type is refused; raised by validators."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(problem)


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_duration(value: Any) -> timedelta:
    """Return the duration that a text such as "90s", "10m", "1h30m", "20 minutes" or "1 hour and
    30 min" means; raise InvalidValue for other values.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidValue(
            'expected a duration in quotes, like "10m"',
            hint=f'write "{value}s" for {value} seconds',
        )
    if not isinstance(value, str):
        raise InvalidValue('expected a duration in quotes, like "10m"')
    try:
        duration = durations.parse_duration(value)
    except ValueError:
        raise InvalidValue("is longer than ten years") from None
    if duration is None:
        raise InvalidValue('expected a duration, like "90s", "10m", "2h", "1d" or "1h30m"')
    return duration


def format_duration(value: timedelta) -> str:
    """Return a duration as it is written in files: "1h30m"."""
    seconds = value.total_seconds()
    text = ""
    for unit, size in _UNITS.items():
        count = seconds // size if unit != "s" else seconds
        if count:
            text += f"{count:g}{unit}" if unit == "s" else f"{int(count)}{unit}"
        seconds -= count * size
    return text or "0s"


Duration: TypeAlias = Annotated[
    timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)
]
"""A duration, written "90s", "10m", "1h30m" or "20 minutes" and serialised as the shorter."""


def bounded_below(text: str) -> AfterValidator:
    """Return a validator that refuses durations shorter than `text`."""
    bound = parse_duration(text)

    def check(value: timedelta) -> timedelta:
        if value < bound:
            raise InvalidValue(f'must be at least "{text}"')
        return value

    return AfterValidator(check)


PositiveDuration: TypeAlias = Annotated[Duration, bounded_below("0.001s")]
"""A duration longer than zero."""


def _as_json(value: Any) -> Any:
    """Return a TOML value with types of JSON only: dates become text."""
    match value:
        case dict():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise InvalidValue("nan and inf cannot be passed on")
        case _:
            return value


JsonTable: TypeAlias = Annotated[Json, BeforeValidator(_as_json)]
"""A table with any keys, such as the arguments of a tool."""
