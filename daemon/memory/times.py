"""Find relative times in a question ("yesterday", "two weeks ago", "上周三") as time spans, by the
words and patterns of time_words.toml.

Absolute days (a date, a month, a weekday) are words of the index. A time span only raises texts
and excludes none: people misremember.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias


class TimeSpan(NamedTuple):
    """The time from `begin` until before `end`, and the words of the question that name it."""

    begin: datetime
    end: datetime
    words: str


_Interval: TypeAlias = tuple[datetime, datetime]

# How the span of one way to name a time is computed from its match and the present moment.
_ToInterval: TypeAlias = Callable[[re.Match[str], datetime], _Interval]

_WORDS = tomllib.loads(Path(__file__).with_name("time_words.toml").read_text("utf-8"))
_NUMBERS: dict[str, int] = _WORDS["numbers"]
_CHINESE_NUMBERS: dict[str, int] = _WORDS["numbers_zh"]
_WEEKDAYS: dict[str, int] = _WORDS["weekdays"] | _WORDS["weekdays_zh"]
_UNITS: dict[str, str] = {
    chinese: english for english, words in _WORDS["units"].items() for chinese in words
}


def find_time_span(question: str, now: datetime) -> TimeSpan | None:
    """Return the time span that a question names relative to `now`, in the zone of `now`; None if
    it names none.
    """
    for match, to_interval in _find_matches(question):
        try:
            begin, end = to_interval(match, now)
        except (OverflowError, ValueError):  # 999 years ago
            continue
        return TimeSpan(begin, end, match[0])
    return None


@lru_cache(maxsize=64)  # runs of one routine have the same question
def _find_matches(question: str) -> tuple[tuple[re.Match[str], _ToInterval], ...]:
    """Return the matches of the patterns in a question, in the order of the patterns."""
    return tuple(
        (match, to_interval)
        for pattern, to_interval in _load_patterns()
        if (match := pattern.search(question))
    )


def _parse_number(text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text in _NUMBERS:
        return _NUMBERS[text]
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return _CHINESE_NUMBERS.get(text, 1)
    return 10 * _CHINESE_NUMBERS.get(tens, 1) + _CHINESE_NUMBERS.get(ones, 0)


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _days(now: datetime, days_back: int, length: int = 1) -> _Interval:
    begin = _midnight(now) - timedelta(days=days_back)
    return begin, begin + timedelta(days=length)


def _weeks(now: datetime, weeks_back: int) -> _Interval:
    return _days(now, now.weekday() + 7 * weeks_back, 7)


def _months(now: datetime, months_back: int, length: int = 1) -> _Interval:
    count = now.year * 12 + now.month - 1 - months_back
    first_month, end_month = divmod(count, 12), divmod(count + length, 12)
    midnight = _midnight(now)
    return (
        midnight.replace(year=first_month[0], month=first_month[1] + 1, day=1),
        midnight.replace(year=end_month[0], month=end_month[1] + 1, day=1),
    )


def _years(now: datetime, years_back: int) -> _Interval:
    return _months(now, now.month - 1 + 12 * years_back, 12)


def _unit_name(name: str) -> str:
    return _UNITS.get(name, name)


def _interval_ago(match: re.Match[str], now: datetime) -> _Interval:
    """Return the day of "days ago", the whole week of "weeks ago": people count weeks roughly."""
    number = _parse_number(match["n"])
    match _unit_name(match["unit"]):
        case "hour":
            at = now - timedelta(hours=number)
            return at - timedelta(hours=1), at + timedelta(hours=1)
        case "day":
            return _days(now, number)
        case "week":
            return _weeks(now, number)
        case "fortnight":
            return _weeks(now, 2 * number)
        case "month":
            return _months(now, number)
    return _years(now, number)


def _interval_since(match: re.Match[str], now: datetime) -> _Interval:
    number = _parse_number(match["n"])
    lengths = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
    lengths["fortnight"] = timedelta(weeks=2)
    lengths |= {"month": timedelta(days=31), "year": timedelta(days=366)}
    return now - number * lengths[_unit_name(match["unit"])], now


def _this_or_last(match: re.Match[str], now: datetime) -> _Interval:
    periods_back = int(match["which"].lower() in ("last", "previous", "past", "上", "上个", "去"))
    periods_back += 2 * (match["which"] in ("上上", "上上个", "前"))
    intervals: dict[str, Callable[[datetime, int], _Interval]] = {
        "week": _weeks,
        "month": _months,
        "year": _years,
    }
    return intervals[_unit_name(match["unit"])](now, periods_back)


def _weekend(match: re.Match[str], now: datetime) -> _Interval:
    weeks_back = 1 if now.weekday() < 5 or match["which"].lower() in ("last", "上") else 0
    return _days(now, now.weekday() - 5 + 7 * weeks_back, 2)


def _weekday(match: re.Match[str], now: datetime) -> _Interval:
    """Return the last such day before today."""
    day = _WEEKDAYS[match["day"].lower()]
    return _days(now, (now.weekday() - day - 1) % 7 + 1)


def _since_weekday(match: re.Match[str], now: datetime) -> _Interval:
    """Return the time from the begin of the last such day until now."""
    return _weekday(match, now)[0], now


def _weekday_of_last_week(match: re.Match[str], now: datetime) -> _Interval:
    return _days(now, now.weekday() - _WEEKDAYS[match["day"].lower()] + 7)


def _chinese_weekday(match: re.Match[str], now: datetime) -> _Interval:
    day, prefix = _WEEKDAYS[match["day"]], match["which"] or ""
    if prefix.startswith("上"):
        return _days(now, now.weekday() - day + 7 * prefix.count("上"))
    return _days(now, (now.weekday() - day - 1) % 7 + 1)


def _day_back(days_back: int) -> _ToInterval:
    return lambda _match, now: _days(now, days_back)


def _since_day(days_back: int) -> _ToInterval:
    return lambda _match, now: (_days(now, days_back)[0], now)


# The spans in time_words.toml that are counted in days from today.
_DAY_SPANS: dict[str, Callable[[int], _ToInterval]] = {"day": _day_back, "since_day": _since_day}
# The other words for `span`.
_SPANS: dict[str, _ToInterval] = {
    "ago": _interval_ago,
    "since": _interval_since,
    "period": _this_or_last,
    "weekend": _weekend,
    "weekday": _weekday,
    "since_weekday": _since_weekday,
    "weekday_of_last_week": _weekday_of_last_week,
    "weekday_zh": _chinese_weekday,
}


@cache
def _load_patterns() -> tuple[tuple[re.Pattern[str], _ToInterval], ...]:
    """Return the patterns of time_words.toml, each with the function that makes its time span."""
    groups = {
        "<any_number>": rf"(?P<n>\d{{1,3}}|{'|'.join(_NUMBERS)})",
        "<any_number_zh>": r"(?P<n>\d{1,3}|[一二两三四五六七八九十几]+)",
        "<any_unit>": rf"(?P<unit>{'|'.join(_WORDS['units'])})s?",
        "<any_unit_zh>": rf"(?P<unit>{'|'.join(_UNITS)})",
        "<any_weekday>": rf"(?P<day>{'|'.join(_WORDS['weekdays'])})",
        "<any_weekday_zh>": rf"(?P<day>[{''.join(_WORDS['weekdays_zh'])}])",
    }
    patterns = []
    for row in _WORDS["time"]:
        source = row["pattern"]
        for name, group in groups.items():
            source = source.replace(name, group)
        span = row["span"]
        to_interval = _DAY_SPANS[span](row["days_back"]) if span in _DAY_SPANS else _SPANS[span]
        patterns.append((re.compile(source, re.IGNORECASE), to_interval))
    return tuple(patterns)
