"""Schedules in plain words: the common ones are understood, everything else is refused and never
guessed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.reading import parse
from daemon.definitions.routines.routine import Trigger
from daemon.definitions.schedule import Schedule
from daemon.definitions.schedule_text import (
    DAYS,
    EXAMPLES,
    MONTHS,
    UnclearSchedule,
    parse_schedule_text,
)
from tests.properties import scaled_settings

BERLIN = ZoneInfo("Europe/Berlin")


def cron(text: str) -> dict[str, object]:
    return {"cron": text}


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("weekdays at 9am", cron("0 9 * * 1-5")),
        ("Weekdays at 9 a.m.", cron("0 9 * * 1-5")),
        ("every weekday at 9:30am", cron("30 9 * * 1-5")),
        ("at 09:00 on weekdays", cron("0 9 * * 1-5")),
        ("9am on weekdays", cron("0 9 * * 1-5")),
        ("daily at 7", cron("0 7 * * *")),
        ("every day at 7 o'clock", cron("0 7 * * *")),
        ("daily at 12am", cron("0 0 * * *")),
        ("daily at 12pm", cron("0 12 * * *")),
        ("daily at noon and midnight", cron("0 0,12 * * *")),
        ("daily at 9:00, 12:00 and 17:00", cron("0 9,12,17 * * *")),
        ("every day", cron("0 0 * * *")),
        ("mondays and thursdays at 18:30", cron("30 18 * * 1,4")),
        ("mon, wed and fri at 8pm", cron("0 20 * * 1,3,5")),
        ("every monday at 9", cron("0 9 * * 1")),
        ("monday to friday at 8:15", cron("15 8 * * 1,2,3,4,5")),
        ("friday through monday at 8:15", cron("15 8 * * 1,5,6,0")),
        ("at noon on weekends", cron("0 12 * * 6,0")),
        ("on the last day of the month", cron("0 0 L * *")),
        ("on the last day of each month at 17:00", cron("0 17 L * *")),
        ("the last workday of the month at 4pm", cron("0 16 LW * *")),
        ("on the first day of every month at 6", cron("0 6 1 * *")),
        ("on the 1st and 15th at 9:00", cron("0 9 1,15 * *")),
        ("on the 31st of the month at 9:00", cron("0 9 31 * *")),
        ("on the first monday of the month at 10am", cron("0 10 * * 1#1")),
        ("last friday of the month at 4pm", cron("0 16 * * 5L")),
        ("on 24 december at 18:00", cron("0 18 24 12 *")),
        ("december 24th at 18:00", cron("0 18 24 12 *")),
        ("every 2 hours", {"every": "2h"}),
        ("every two hours", {"every": "2h"}),
        ("hourly", {"every": "1h"}),
        ("every hour at :15", cron("15 * * * *")),
        ("every half hour", {"every": "30m"}),
        ("every 15 min", {"every": "15m"}),
        ("every 2 hrs", {"every": "2h"}),
        ("weekly on monday at 9am", cron("0 9 * * 1")),
        ("every week on mon and thu at 9", cron("0 9 * * 1,4")),
        ("monthly on the 1st at 9am", cron("0 9 1 * *")),
        ("every month on the last day at 23:00", cron("0 23 L * *")),
        ("each month on the first monday", cron("0 0 * * 1#1")),
        ("every year on 24 december", cron("0 0 24 12 *")),
        ("last day of month", cron("0 0 L * *")),
        ("@reboot", {"on_start": True}),
        ("every minute", {"every": "1m"}),
        ("every 90 seconds", {"every": "90s"}),
        ("every 3 days", {"every": "3d"}),
        (
            "every 30 minutes between 8:00 and 22:00 on weekdays",
            {"every": "30m", "active_hours": "08:00-22:00", "active_days": "1-5"},
        ),
        ("every 2 hours from 9am to 5pm", {"every": "2h", "active_hours": "09:00-17:00"}),
        ("every 2 hours on weekends", {"every": "2h", "active_days": "6,0"}),
        ("once on 2026-12-01 at 09:00", {"at": datetime(2026, 12, 1, 9, tzinfo=BERLIN)}),
        ("when the daemon starts", {"on_start": True}),
        ("30 8 * * 1-5", cron("30 8 * * 1-5")),
        ("@daily", cron("0 0 * * *")),
    ],
)
def test_common_forms_are_understood(text: str, trigger: dict[str, object]) -> None:
    assert parse_schedule_text(text, BERLIN) == trigger


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *[
            (text, "")
            for text in (
                "",
                "soon",
                "now and then",
                "every other day",
                "fortnightly",
                "tomorrow at 9",
            )
        ],
        *[
            (text, "")
            for text in (
                "weekdays at 9am if it rains",
                "every morning",
                "mondays at nine",
                "every 2 weeks",
            )
        ],
        *[
            (text, "on which day")
            for text in ("weekly", "every month", "weekly at 9", "at 9am", "9am")
        ],
        ("daily at 25", "'25' is no time of the day"),
        ("daily at 9:75", "'9:75' is no time of the day"),
        ("daily at 13pm", "'13pm' is no time"),
        ("daily at 9:00 and 12:30", "times at different minutes need a routine each"),
        ("every 0 hours", "every 0 is no distance"),
        ("every 2 days at 9am", "goes with no such distance"),
        ("every 2 hours at :15", "only every hour has a minute"),
        ("on 31 february at 9am", "there is no such day"),
        ("on the 32nd at 9am", "a month has the days 1 to 31"),
        ("once on 2026-02-30 at 09:00", "2026-02-30 is no date"),
        ("61 * * * *", "it looks like a crontab line, but is none"),
    ],
)
def test_ambiguous_phrase_is_refused_with_examples(text: str, why: str) -> None:
    with pytest.raises(UnclearSchedule) as caught:
        parse_schedule_text(text, BERLIN)
    told = str(caught.value)
    assert why in told
    assert "'weekdays at 9am', " in told
    assert "\n" not in told


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_are_understood(text: str) -> None:
    assert parse_schedule_text(text, BERLIN)


def schedule(text: str) -> Schedule:
    """Return what a routine file with this trigger would mean."""
    said = parse(dict(parse_schedule_text(text, BERLIN)), Trigger, file="x.toml")
    return Schedule.of(
        timezone="Europe/Berlin",
        cron=said.cron,
        every=said.every,
        at=said.at,
        on_start=said.on_start,
        active_hours=said.active_hours,
        active_days=said.active_days,
    )


@scaled_settings(100)
@given(
    st.sampled_from(
        [
            "daily",
            "weekdays",
            "weekends",
            "every {day}",
            "{day}s",
            "{short} and sunday",
            "{day} to sunday",
        ]
    ),
    st.integers(0, 6),
    st.integers(0, 23),
    st.integers(0, 59),
    st.booleans(),
)
def test_phrase_of_a_time_on_days_becomes_that_cron_line(
    days: str, day: int, hour: int, minute: int, half: bool
) -> None:
    words = days.format(day=DAYS[day], short=DAYS[day][:3])
    clock = (
        f"{hour % 12 or 12}:{minute:02}{'am' if hour < 12 else 'pm'}"
        if half
        else f"{hour}:{minute:02}"
    )
    wanted = {
        "daily": set(range(7)),
        "weekdays": set(range(1, 6)),
        "weekends": {6, 0},
        "{day} to sunday": {0, *range(day, 7)} if day else {0},
        "{short} and sunday": {day, 0},
    }.get(days, {day})
    made, moment = schedule(f"{words} at {clock}"), datetime(2026, 6, 1, tzinfo=UTC)
    found = []
    while (following := made.next(moment)) and following < datetime(2026, 6, 15, tzinfo=UTC):
        moment = following
        local = moment.astimezone(BERLIN)
        assert (local.hour, local.minute) == (hour, minute)
        found.append(local.isoweekday() % 7)
    assert set(found) == wanted


VOCABULARY = (
    *(
        "every",
        "at",
        "on",
        "the",
        "of",
        "month",
        "and",
        ",",
        "last",
        "first",
        "2",
        "hours",
        "weekdays",
        "daily",
    ),
    *("1st", "between", "to", "noon", "9", "9am", "18:30"),
    *DAYS,
    *MONTHS,
)


@scaled_settings(100)
@given(st.integers(1, 500), st.sampled_from(["second", "minute", "hour", "day"]))
def test_interval_phrase_becomes_that_interval(count: int, unit: str) -> None:
    made = schedule(
        f"every {count} {unit}{'s' * (count > 1)}"
        if count > 1 or unit == "day"
        else f"every {unit}"
    )
    assert made.every == timedelta(**{f"{unit}s": count})


@scaled_settings(100)
@given(st.lists(st.sampled_from(VOCABULARY), max_size=8))
def test_any_phrase_is_refused_or_becomes_a_valid_trigger(words: list[str]) -> None:
    try:
        trigger = parse_schedule_text(" ".join(words), BERLIN)
    except UnclearSchedule:
        return
    assert parse(dict(trigger), Trigger, file="x.toml").model_fields_set == set(trigger)
