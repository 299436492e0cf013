"""Find relative times in a question ("yesterday", "two weeks ago", "上周三") as time spans, by the
words and patterns of time_words.toml.

Absolute days (a date, a month, a weekday) are words of the index. A time span only moves texts up
in the hits of a search and excludes none, because people misremember.
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


# The first moment, and the first one after the interval.
_Interval: TypeAlias = tuple[datetime, datetime]

# Returns the interval that the match of a pattern names, relative to the present moment.
_ToInterval: TypeAlias = Callable[[re.Match[str], datetime], _Interval]

_WORDS = tomllib.loads(Path(__file__).with_name("time_words.toml").read_text("utf-8"))
_NUMBERS: dict[str, int] = _WORDS["numbers"]
_CHINESE_NUMBERS: dict[str, int] = _WORDS["numbers_zh"]
_WEEKDAYS: dict[str, int] = _WORDS["weekdays"] | _WORDS["weekdays_zh"]
_UNITS: dict[str, str] = {
    chinese: english for english, words in _WORDS["units"].items() for chinese in words
}


def find_time_span(question: str, now: datetime) -> TimeSpan | None:
    """Return the time span that a question names relative to `now`, in the zone of `now`; of
    several the one whose pattern comes first in time_words.toml. Returns None if it names none.
    """
    for match, to_interval in _find_matches(question):
        try:
            begin, end = to_interval(match, now)
        except (OverflowError, ValueError):  # a datetime has no year 0, or one beyond 9999
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
    """Return a number in digits, or in English or Chinese words. Patterns ignore case."""
    if text.isdecimal():
        return int(text)
    if (number := _NUMBERS.get(text.lower())) is not None:
        return number
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return _CHINESE_NUMBERS.get(text, 1)
    return 10 * _CHINESE_NUMBERS.get(tens, 1) + _CHINESE_NUMBERS.get(ones, 0)


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _interval_of_days(now: datetime, days_back: int, length: int = 1) -> _Interval:
    """Return `length` days, of which the first is `days_back` days before today."""
    begin = _midnight(now) - timedelta(days=days_back)
    return begin, begin + timedelta(days=length)


def _interval_of_weeks(now: datetime, weeks_back: int) -> _Interval:
    """Return a week from Monday on; 0 weeks back is the present one."""
    return _interval_of_days(now, now.weekday() + 7 * weeks_back, 7)


def _interval_of_months(now: datetime, months_back: int, length: int = 1) -> _Interval:
    """Return `length` months of the calendar; 0 months back begins with the present one."""
    months = now.year * 12 + now.month - 1 - months_back  # since the year 0
    begin_year, begin_month = divmod(months, 12)
    end_year, end_month = divmod(months + length, 12)
    midnight = _midnight(now)
    return (
        midnight.replace(year=begin_year, month=begin_month + 1, day=1),
        midnight.replace(year=end_year, month=end_month + 1, day=1),
    )


def _interval_of_years(now: datetime, years_back: int) -> _Interval:
    return _interval_of_months(now, now.month - 1 + 12 * years_back, 12)


def _translate_unit(name: str) -> str:
    """Return the English name of a unit of time, which may be Chinese. Patterns ignore case."""
    return _UNITS.get(name, name.lower())


def _interval_ago(match: re.Match[str], now: datetime) -> _Interval:
    """Return the day of "days ago", the whole week of "weeks ago": people count weeks roughly."""
    number = _parse_number(match["number"])
    match _translate_unit(match["unit"]):
        case "hour":
            at = now - timedelta(hours=number)
            return at - timedelta(hours=1), at + timedelta(hours=1)
        case "day":
            return _interval_of_days(now, number)
        case "week":
            return _interval_of_weeks(now, number)
        case "fortnight":
            return _interval_of_weeks(now, 2 * number)
        case "month":
            return _interval_of_months(now, number)
    return _interval_of_years(now, number)


def _interval_since(match: re.Match[str], now: datetime) -> _Interval:
    """Return the last so many units until now; of months and years the longest."""
    number = _parse_number(match["number"])
    lengths = {
        "hour": timedelta(hours=1),
        "day": timedelta(days=1),
        "week": timedelta(weeks=1),
        "fortnight": timedelta(weeks=2),
        "month": timedelta(days=31),
        "year": timedelta(days=366),
    }
    return now - number * lengths[_translate_unit(match["unit"])], now


def _interval_of_period(match: re.Match[str], now: datetime) -> _Interval:
    """Return this, the last or the last but one week, month or year."""
    if match["which"] in ("上上", "上上个", "前"):
        periods_back = 2
    elif match["which"].lower() in ("last", "previous", "past", "上", "上个", "去"):
        periods_back = 1
    else:
        periods_back = 0
    intervals: dict[str, Callable[[datetime, int], _Interval]] = {
        "week": _interval_of_weeks,
        "month": _interval_of_months,
        "year": _interval_of_years,
    }
    return intervals[_translate_unit(match["unit"])](now, periods_back)


def _interval_of_weekend(match: re.Match[str], now: datetime) -> _Interval:
    """Return the weekend that is under way, unless the last one is meant; else the last one."""
    which = (match["which"] or "").lower()  # in Chinese it may be left out
    weeks_back = 1 if now.weekday() < 5 or which in ("last", "上") else 0
    return _interval_of_days(now, now.weekday() - 5 + 7 * weeks_back, 2)


def _interval_of_last_weekday(match: re.Match[str], now: datetime) -> _Interval:
    """Return the last day with this name before today."""
    day = _WEEKDAYS[match["day"].lower()]
    return _interval_of_days(now, (now.weekday() - day - 1) % 7 + 1)


def _interval_of_weekday(match: re.Match[str], now: datetime) -> _Interval:
    """Return the last day with this name before today; of "this Saturday" on a Saturday, today."""
    if match["which"].lower() == "this" and _WEEKDAYS[match["day"].lower()] == now.weekday():
        return _interval_of_days(now, 0)
    return _interval_of_last_weekday(match, now)


def _interval_since_weekday(match: re.Match[str], now: datetime) -> _Interval:
    """Return the time from the beginning of the last day with this name until now."""
    return _interval_of_last_weekday(match, now)[0], now


def _interval_of_weekday_last_week(match: re.Match[str], now: datetime) -> _Interval:
    return _interval_of_days(now, now.weekday() - _WEEKDAYS[match["day"].lower()] + 7)


def _interval_of_chinese_weekday(match: re.Match[str], now: datetime) -> _Interval:
    """Return the day in the week that as many 上 stand for as weeks back; without one, the last day
    with this name before today, or today if this week (这, 本) is named.
    """
    day, prefix = _WEEKDAYS[match["day"]], match["which"] or ""
    if prefix in ("这", "本") and day == now.weekday():
        return _interval_of_days(now, 0)
    if prefix.startswith("上"):
        return _interval_of_days(now, now.weekday() - day + 7 * prefix.count("上"))
    return _interval_of_days(now, (now.weekday() - day - 1) % 7 + 1)


def _make_day_interval(days_back: int) -> _ToInterval:
    return lambda _match, now: _interval_of_days(now, days_back)


def _make_interval_since_day(days_back: int) -> _ToInterval:
    return lambda _match, now: (_interval_of_days(now, days_back)[0], now)


# The spans in time_words.toml that are counted in days from today.
_DAY_SPANS: dict[str, Callable[[int], _ToInterval]] = {
    "day": _make_day_interval,
    "since_day": _make_interval_since_day,
}
# The other words for `span`.
_SPANS: dict[str, _ToInterval] = {
    "ago": _interval_ago,
    "since": _interval_since,
    "period": _interval_of_period,
    "weekend": _interval_of_weekend,
    "weekday": _interval_of_weekday,
    "since_weekday": _interval_since_weekday,
    "weekday_of_last_week": _interval_of_weekday_last_week,
    "weekday_zh": _interval_of_chinese_weekday,
}


@cache
def _load_patterns() -> tuple[tuple[re.Pattern[str], _ToInterval], ...]:
    """Return the patterns of time_words.toml, each with the function that makes its time span."""
    groups = {
        "<any_number>": rf"(?P<number>\d{{1,3}}|{'|'.join(_NUMBERS)})",
        "<any_number_zh>": r"(?P<number>\d{1,3}|[一二两三四五六七八九十几]+)",
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
