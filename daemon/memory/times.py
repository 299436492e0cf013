"""Find relative times in a question ("yesterday", "two weeks ago", "上周三") as time spans.

Absolute days (a date, a month, a weekday) are words of the index. A time span only raises texts
and excludes none: people misremember.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, TypeAlias


class TimeSpan(NamedTuple):
    """The time from `begin` until before `end`, and the words of the question that name it."""

    begin: datetime
    end: datetime
    words: str


_Interval: TypeAlias = tuple[datetime, datetime]

_ENGLISH_NUMBERS = {
    word: number
    for number, words in enumerate(
        [
            "",
            "a an one",
            "two couple",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
        ]
    )
    for word in words.split()
}
_CHINESE_NUMBERS = {
    **{digit: n for n, digit in enumerate("零一二三四五六七八九十")},
    "两": 2,
    "几": 3,
}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CHINESE_DAYS = {**{day: n for n, day in enumerate("一二三四五六")}, "日": 6, "天": 6}
_UNITS = {"小时": "hour", "天": "day", "日": "day", "月": "month", "年": "year"}
_UNITS |= dict.fromkeys(("周", "星期", "礼拜"), "week")

_N = r"(?P<n>\d{1,3}|" + "|".join(_ENGLISH_NUMBERS) + r")"
_CN = r"(?P<n>\d{1,3}|[一二两三四五六七八九十几]+)"
_UNIT = r"(?P<unit>hour|day|week|month|year)s?"
_CUNIT = r"(?P<unit>小时|天|日|周|星期|礼拜|月|年)"
_DAY = rf"(?P<day>{'|'.join(_DAYS)})"


def find_time_span(question: str, now: datetime) -> TimeSpan | None:
    """Return the time span that a question names relative to `now`, in the zone of `now`; None if
    it names none.
    """
    for match, to_interval in _find_patterns(question):
        try:
            begin, end = to_interval(match, now)
        except (OverflowError, ValueError):  # 999 years ago
            continue
        return TimeSpan(begin, end, match[0])
    return None


@lru_cache(maxsize=64)  # runs of one routine have the same question
def _find_patterns(
    question: str,
) -> tuple[tuple[re.Match[str], Callable[[re.Match[str], datetime], _Interval]], ...]:
    """Return the matches of the patterns in a question, in the order of the patterns."""
    return tuple(
        (match, to_interval)
        for pattern, to_interval in _PATTERNS
        if (match := pattern.search(question))
    )


def _parse_number(text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text in _ENGLISH_NUMBERS:
        return _ENGLISH_NUMBERS[text]
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
        case "month":
            return _months(now, number)
    return _years(now, number)


def _interval_since(match: re.Match[str], now: datetime) -> _Interval:
    number = _parse_number(match["n"])
    lengths = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
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
    day = _DAYS.index(match["day"].lower())
    return _days(now, (now.weekday() - day - 1) % 7 + 1)


def _chinese_weekday(match: re.Match[str], now: datetime) -> _Interval:
    day, prefix = _CHINESE_DAYS[match["day"]], match["which"] or ""
    if prefix.startswith("上"):
        return _days(now, now.weekday() - day + 7 * prefix.count("上"))
    return _days(now, (now.weekday() - day - 1) % 7 + 1)


def _day_back(days_back: int) -> Callable[[re.Match[str], datetime], _Interval]:
    return lambda _match, now: _days(now, days_back)


# The first match decides, so a longer pattern stands before the ones it contains.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], _Interval]], ...] = (
    tuple(
        (re.compile(pattern, re.IGNORECASE), to_interval)
        for pattern, to_interval in (
            (r"\bday before yesterday\b", _day_back(2)),
            (r"\b(yesterday|last night)\b", _day_back(1)),
            (r"\b(today|tonight|this (morning|afternoon|evening))\b", _day_back(0)),
            (rf"\b{_N}( of)? {_UNIT} ago\b", _interval_ago),
            (rf"\b(last|past|previous) {_N}( of)? {_UNIT}\b", _interval_since),
            (r"\b(?P<which>this|last|past|previous) (?P<unit>week|month|year)\b", _this_or_last),
            (r"\b(?P<which>this|last|over the) weekend\b", _weekend),
            (rf"\b(last|on|since|this) {_DAY}\b", _weekday),
            (r"大前天", _day_back(3)),
            (r"前天|前晚", _day_back(2)),
            (r"昨天|昨日|昨晚|昨夜", _day_back(1)),
            (r"今天|今日|今早|今晚|今晨", _day_back(0)),
            (rf"{_CN}个?{_CUNIT}(以|之)?前", _interval_ago),
            (rf"(最近|过去|近){_CN}个?{_CUNIT}", _interval_since),
            (
                r"(?P<which>上上?|这|本)?个?(周|星期|礼拜)(?P<day>[一二三四五六日天])",
                _chinese_weekday,
            ),
            (r"(?P<which>上)?个?周末", _weekend),
            (r"(?P<which>上上|上|这|本)个?(?P<unit>周|星期|礼拜|月)", _this_or_last),
            (r"(?P<which>去|今|前)(?P<unit>年)", _this_or_last),
        )
    )
)
