"""Read common schedules in plain words: `weekdays at 9am`, `every 2 hours`, `on the last day of the
month`.

An ambiguous text is not guessed at: it raises UnclearScheduleError, which shows what can be
written. A day without a time means 00:00, as with @daily; a time without a day means every day.

What `Schedule.words` says of a schedule that was written in words can be read here, too, and means
the same (tests/definitions/test_schedule_text.py).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from daemon.definitions import cron
from daemon.definitions.values import format_duration
from daemon.system import patterns

Trigger: TypeAlias = dict[str, str | bool | datetime | list[str]]

EXAMPLES = (
    "daily at 7",
    "every morning",
    "weekdays at 9am",
    "mondays and thursdays at 18:30",
    "every 10 minutes",
    "every 2 hours between 8:00 and 22:00",
    "tomorrow at 9",
    "on the first of each month",
    "on the first monday of the month at 10am",
    "when a file lands in inbox",
    "30 8 * * 1-5",
)

DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
SHORT_DAYS = {"tues": "tue", "weds": "wed", "thur": "thu", "thurs": "thu"}
# Which weekday or day of a month; 0 is the last one.
NTH = {
    "first": 1,
    "1st": 1,
    "second": 2,
    "2nd": 2,
    "third": 3,
    "3rd": 3,
    "fourth": 4,
    "4th": 4,
    "last": 0,
}
# A number by its index.
NUMBERS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
SHORT_UNITS = {"sec": "seconds", "min": "minutes", "hr": "hours"}
UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d"}
# By part of the day: the hour at which a schedule without a time starts, and the hours that belong
# to that part: `7 in the evening` is 19:00.
PARTS_OF_DAY = {
    "morning": (8, range(4, 12)),
    "afternoon": (14, range(12, 18)),
    "evening": (18, range(17, 24)),
    "night": (22, (20, 21, 22, 23, 0, 1, 2, 3, 4)),
}

_CLOCK = r"(?:noon|midnight|\d{1,2}(?::\d\d)?(?:am|pm)|\d{1,2}:\d\d)"
_TIME = rf"(?:{_CLOCK}|\d{{1,2}})"
_AND = r"(?: ?, ?and |, ?| and )"
_MONTH = r"of (?:(?:the|each|every) )?month"
_OF_THE_MONTH = rf"(?: (?:day )?{_MONTH})?"
_DATE = r"\d{1,2}(?:st|nd|rd|th)"
_PART = "|".join(PARTS_OF_DAY)
_FILE_LANDS = (
    r"(?:when|whenever|as soon as) (?:(?:a|any|another|new) )*(?:files?|something) "
    r"(?:lands?|arrives?|appears?|changes?|is (?:put|dropped|changed)) in(?:to)? "
    r"(?:the folder )?(.+)"
)


class UnclearScheduleError(ValueError):
    """A text is not understood as a schedule, or is ambiguous."""

    def __init__(self, text: str, cause: str = "") -> None:
        reason = f": {cause}" if cause else ""
        super().__init__(
            f"{text!r} is not understood{reason}; write it like {', '.join(map(repr, EXAMPLES))}"
        )


def parse_schedule_text(text: str, zone: ZoneInfo, *, now: datetime) -> Trigger:
    """Return the keys of a [trigger] for a schedule in words. Raises UnclearScheduleError.

    `zone` is for a date with a time, which has no zone of its own; `now` is what today and tomorrow
    are counted from.
    """
    if re.fullmatch(r"@[a-z]+|[\d*].*", text.strip()) and len(text.split()) in (1, 5):
        try:
            return {"cron": cron.parse(text).expr}
        except cron.CronError as error:
            if len(text.split()) == 5 and ("*" in text or re.fullmatch(r"[\d\s,/-]+", text)):
                raise UnclearScheduleError(
                    text, f"it looks like a crontab line, but is none: {error}"
                ) from None
    words = _normalize(text)
    if re.fullmatch(r"@reboot|(?:on|at|when) (?:the )?(?:daemon )?(?:starts?|startup)", words):
        return {"on_start": True}
    local_now = now.astimezone(zone)
    trigger = (
        _parse_file_arrival(text)
        or _parse_interval(words, text)
        or _parse_once(words, text, local_now)
        or _parse_today_or_tomorrow(words, text, local_now)
        or _parse_days_and_times(words, text)
    )
    if trigger is None and re.search(r"\bwebhooks?\b", words):
        raise UnclearScheduleError(
            text,
            "for a webhook take a recipe that has one, as --recipe alert-triage does; "
            "docs/webhooks.md tells more",
        )
    if trigger is None:
        raise UnclearScheduleError(text)
    return trigger


def _normalize(text: str) -> str:
    words = " ".join(text.lower().rstrip(".! ").split())
    words = re.sub(r"(?<=\d )(sec|min|hr)s?\b", lambda match: SHORT_UNITS[match[1]], words)
    words = re.sub(r"\b([ap])\.?m\b\.?", r"\1m", words.replace(" o'clock", ""))
    return re.sub(r"(\d) (am|pm)\b", r"\1\2", words)


# --- when files land


def _parse_file_arrival(text: str) -> Trigger | None:
    """Read `when a file lands in inbox`: any file in that folder, or one that fits a glob."""
    match = re.fullmatch(_FILE_LANDS, " ".join(text.split()).rstrip(".! "), re.IGNORECASE)
    if match is None:
        return None
    path = match[1].strip("\"'")
    if not set(path.rpartition("/")[2]) & set("*?["):
        path = f"{path.rstrip('/')}/*"
    try:
        patterns.parse(path)
    except patterns.PatternError as error:
        raise UnclearScheduleError(text, f"{match[1]} {error.problem}: {error.hint}") from None
    return {"watch": [path]}


# --- every so often


def _parse_interval(words: str, text: str) -> Trigger | None:
    words = re.sub(r"^hourly\b", "every hour", words)
    words = re.sub(r"^every half (?:an )?hour\b", "every 30 minutes", words)
    match = re.fullmatch(
        rf"(?:every|each) (?:(\d+|{'|'.join(NUMBERS)}) )?({'|'.join(UNITS)})s?"
        rf"((?: (?:and )?\d+ (?:{'|'.join(UNITS)})s?)*)((?: .*)?)",
        words,
    )
    if match is None or (match[2] == "day" and match[1] is None):
        return None
    count = NUMBERS.index(match[1]) if match[1] in NUMBERS else int(match[1] or 1)
    if count < 1:
        raise UnclearScheduleError(text, "every 0 is no interval")
    trigger: Trigger = {"every": f"{count}{UNITS[match[2]]}"}
    if match[3]:
        try:
            interval = timedelta(**{f"{match[2]}s": count})
            for number, unit in re.findall(rf"(\d+) ({'|'.join(UNITS)})", match[3]):
                interval += timedelta(**{f"{unit}s": int(number)})
        except OverflowError:
            raise UnclearScheduleError(text, "that is too long") from None
        trigger = {"every": format_duration(interval)}
    remainder = match[4].strip()
    if match[1] is None and match[2] == "second" and _parse_weekdays(remainder):
        raise UnclearScheduleError(text, "a second of time, or every other one?")
    if minute := re.fullmatch(r"at (?:minute |:)(\d{1,2})", remainder):
        if count != 1 or match[2] != "hour" or int(minute[1]) > 59:
            raise UnclearScheduleError(text, "only every hour has a minute, which is 0-59")
        return {"cron": f"{int(minute[1])} * * * *"}
    hours = re.search(
        rf"\b(?:between ({_TIME}) and |from ({_TIME}) (?:to|until) |within ({_TIME})-)({_TIME})\b",
        remainder,
    )
    if hours:
        begin, end = _parse_hours(hours[1] or hours[2] or hours[3], hours[4], text)
        trigger["active_hours"] = f"{begin[0]:02}:{begin[1]:02}-{end[0]:02}:{end[1]:02}"
        remainder = (
            f"{remainder[: hours.start()].strip()} {remainder[hours.end() :].strip()}".strip()
        )
    if remainder:
        days = _parse_weekdays(remainder.removeprefix("on "))
        if days is None:
            raise UnclearScheduleError(text, f"{remainder!r} goes with no such interval")
        trigger["active_days"] = days
    return trigger


def _parse_hours(first: str, last: str, text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return hour and minute of both ends. `9 to 5` is refused: it may be a day or a night."""
    begin, end = _parse_clock(first, text), _parse_clock(last, text)
    has_bare_hour = first.isdecimal() or last.isdecimal()
    if not has_bare_hour or begin < end or not (1 <= begin[0] <= 12 and 1 <= end[0] <= 12):
        return begin, end
    short_begin, short_end = begin, ((end[0] + 12) % 24, end[1])
    if last.endswith("am"):
        short_begin, short_end = (begin[0] + 12, begin[1]), end
    day = f"{short_begin[0]}:{short_begin[1]:02} to {short_end[0]}:{short_end[1]:02}"
    if begin == end:
        raise UnclearScheduleError(text, f"{day}, or around the clock? write {day}, or no hours")
    raise UnclearScheduleError(
        text,
        f"{day}, or over midnight, {begin[0]}:{begin[1]:02} to {end[0]}:{end[1]:02}? write {day}, "
        f"or {begin[0]:02}:{begin[1]:02} to {end[0]:02}:{end[1]:02}",
    )


# --- on days, at times


def _parse_days_and_times(words: str, text: str) -> Trigger | None:
    times_after_at, clear_times = rf"{_TIME}(?:{_AND}{_TIME})*", rf"{_CLOCK}(?:{_AND}{_CLOCK})*"
    words, part = _take_part_of_day(words)
    match = re.search(rf"\bat ({times_after_at})(?![\w:])", words) or re.search(
        rf"(?<![\w:])({clear_times})(?![\w:])", words
    )
    times = [(PARTS_OF_DAY[part][0] if part else 0, 0)]
    if match:
        times = [_parse_clock(word, text, part) for word in re.findall(_TIME, match[1])]
        words = f"{words[: match.start()].strip(' ,')} {words[match.end() :].strip(' ,')}".strip()
    days = _parse_days(words, text, has_time=bool(match))
    if days is None:
        return None
    minutes = {minute for _, minute in times}
    if len(minutes) > 1:
        raise UnclearScheduleError(text, "times at different minutes need a routine each")
    hours = ",".join(str(hour) for hour in sorted({hour for hour, _ in times}))
    return {"cron": f"{minutes.pop()} {hours} {days}"}


def _take_part_of_day(words: str) -> tuple[str, str]:
    """Return the words without a part of the day, and that part; "" if there is none.

    `every morning` and `mornings` mean every day; `monday mornings` mean mondays.
    """
    match = re.search(rf" ?\b(?:in the )?({_PART})(s?)\b", words)
    if match is None:
        return words, ""
    remainder = f"{words[: match.start()]}{words[match.end() :]}".strip()
    if match[2] and not remainder:
        remainder = "daily"
    return re.sub(r"^(?:every|each)(?= at |$)", "daily", remainder), match[1]


def _parse_days(words: str, text: str, *, has_time: bool) -> str | None:
    """Return the last three fields of a crontab line; None if the words are no days."""
    if words in ("weekly", "monthly", "yearly", "every week", "every month", "every year"):
        raise UnclearScheduleError(text, "on which day?")
    if words in ("daily", "every day", "each day", "everyday") or (not words and has_time):
        return "* * *"
    if match := re.fullmatch(
        r"(?:(weekly|monthly|yearly|annually)|(?:every|each) (week|month|year)) on (.+)", words
    ):
        return _parse_days_of_period(match[1] or match[2], match[3], text)
    words = re.sub(r"^(?:every|each) ", "", words).removeprefix("on ")
    if (weekdays := _parse_weekdays(words)) is not None:
        return f"* * {weekdays}"
    words = words.removeprefix("the ")
    if re.fullmatch(rf"last day {_MONTH}", words):
        return "L * *"
    if re.fullmatch(rf"last (?:workday|weekday|working day) {_MONTH}", words):
        return "LW * *"
    if re.fullmatch(rf"first day {_MONTH}", words):
        return "1 * *"
    if match := re.fullmatch(rf"({'|'.join(NTH)}) {_MONTH}", words):
        return f"{NTH[match[1]] or 'L'} * *"
    nth, _, remainder = words.partition(" ")
    day = _parse_weekday(re.sub(_OF_THE_MONTH + "$", "", remainder))
    if nth in NTH and day is not None and "of" in remainder:
        return f"* * {day}#{NTH[nth]}" if NTH[nth] else f"* * {day}L"
    return _parse_dates(words, text)


def _parse_days_of_period(period: str, words: str, text: str) -> str | None:
    """Read `on mondays` of every week, `on the 15th` of every month, `on 24 december` of every
    year.
    """
    if period in ("week", "weekly"):
        weekdays = _parse_weekdays(words)
        return None if weekdays is None else f"* * {weekdays}"
    if period in ("month", "monthly"):
        return _parse_days(
            words if words.endswith("month") else f"{words} of the month", text, has_time=True
        )
    words = words.removeprefix("the ")
    if _parse_days_of_month(words, text) is not None:
        raise UnclearScheduleError(text, "in which month?")
    return _parse_dates(words, text)


def _parse_days_of_month(words: str, text: str) -> str | None:
    """Read `1st and 15th` of each month."""
    if not re.fullmatch(rf"{_DATE}(?:{_AND}(?:the )?{_DATE})*{_OF_THE_MONTH}", words):
        return None
    days = sorted({int(number) for number in re.findall(r"\d+", words)})
    if days[-1] > 31 or days[0] < 1:
        raise UnclearScheduleError(text, "a month has the days 1 to 31")
    return f"{','.join(map(str, days))} * *"


def _parse_dates(words: str, text: str) -> str | None:
    if (days := _parse_days_of_month(words, text)) is not None:
        return days
    month = "|".join(f"{name}|{name[:3]}" for name in MONTHS) + "|sept"
    match = re.fullmatch(
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{month})", words
    ) or re.fullmatch(rf"(?P<month>{month}) (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?", words)
    if match is None:
        return None
    day, name = match["day"], match["month"]
    number = next(
        number for number, month_name in enumerate(MONTHS, 1) if month_name.startswith(name)
    )
    try:
        cron.parse(f"0 0 {int(day)} {number} *")
    except cron.CronError:
        raise UnclearScheduleError(text, "there is no such day") from None
    return f"{int(day)} {number} *"


def _parse_weekdays(words: str) -> str | None:
    """Return a crontab's weekday field for a set of weekdays; None if the words are none."""
    if words in ("weekdays", "weekday", "workdays", "workday"):
        return "1-5"
    if words in ("weekends", "weekend", "the weekend"):
        return "6,0"
    if match := re.fullmatch(r"(\w+)(?: to | through |-)(\w+)", words):
        first, last = _parse_weekday(match[1]), _parse_weekday(match[2])
        if first is None or last is None:
            return None
        days = [(first + offset) % 7 for offset in range((last - first) % 7 + 1)]
    else:
        numbers = [_parse_weekday(re.sub(r"^every ", "", word)) for word in re.split(_AND, words)]
        if None in numbers:
            return None
        days = [day for day in numbers if day is not None]
    return ",".join(map(str, sorted(set(days), key=lambda day: day or 7)))


def _parse_weekday(word: str) -> int | None:
    word = word.removesuffix("s") if word.removesuffix("s") in DAYS else word
    word = SHORT_DAYS.get(word, word)
    return next((number for number, day in enumerate(DAYS) if word in (day, day[:3])), None)


def _parse_clock(word: str, text: str, part_of_day: str = "") -> tuple[int, int]:
    """Return hour and minute. In the evening `7` is 19:00, and `7am` is refused."""
    if word in ("noon", "midnight"):
        return (12 if word == "noon" else 0), 0
    suffix = word[-2:] if word[-2:] in ("am", "pm") else ""
    hour, _, minute = word.removesuffix(suffix).partition(":")
    number, minutes = int(hour), int(minute or 0)
    if suffix and not 1 <= number <= 12:
        raise UnclearScheduleError(text, f"{word!r} is no time: am and pm go with 1 to 12")
    if suffix:
        number = number % 12 + (12 if suffix == "pm" else 0)
    if number > 23 or minutes > 59:
        raise UnclearScheduleError(text, f"{word!r} is no time of the day")
    if part_of_day and number not in (hours := PARTS_OF_DAY[part_of_day][1]):
        if suffix or word.startswith("0") or number + 12 not in hours:
            raise UnclearScheduleError(text, f"{word!r} is no time of the {part_of_day}")
        number += 12
    return number, minutes


# --- once


def _parse_once(words: str, text: str, now: datetime) -> Trigger | None:
    """Read `on 2026-12-01 at 9`; `now` is in the zone that is meant."""
    match = re.fullmatch(rf"(?:once )?(?:on |at )?(\d{{4}}-\d\d-\d\d)(?:t| at | )({_TIME})", words)
    if match is None:
        return None
    hour, minute = _parse_clock(match[2], text)
    try:
        day = datetime.fromisoformat(match[1])
    except ValueError:
        raise UnclearScheduleError(text, f"{match[1]} is no date") from None
    start = day.replace(hour=hour, minute=minute, tzinfo=now.tzinfo)
    if start <= now:
        raise UnclearScheduleError(text, f"it is {now:%Y-%m-%d %H:%M} already")
    return {"at": start}


def _parse_today_or_tomorrow(words: str, text: str, now: datetime) -> Trigger | None:
    """Read `tomorrow at 9` and `today at 17:30`; `now` is in the zone that is meant."""
    words, part = _take_part_of_day(words)
    words = re.sub(rf"^(?:once )?(?:at )?({_TIME}) (today|tomorrow)$", r"\2 at \1", words)
    match = re.fullmatch(rf"(?:once )?(today|tomorrow)(?: at ({_TIME})| ({_CLOCK}))?", words)
    if match is None:
        return None
    word = match[2] or match[3]
    if word is None and not part:
        raise UnclearScheduleError(text, "at what time?")
    hour, minute = _parse_clock(word, text, part) if word else (PARTS_OF_DAY[part][0], 0)
    day = now + timedelta(days=int(match[1] == "tomorrow"))
    start = day.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    if start <= now:
        raise UnclearScheduleError(text, f"it is {now:%H:%M} already")
    return {"at": start}
