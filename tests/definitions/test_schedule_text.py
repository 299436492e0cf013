"""Schedules in plain words: common phrases are parsed, all others refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.reading import parse
from daemon.definitions.routines.routine import Trigger as TriggerTable
from daemon.definitions.schedule import Schedule
from daemon.definitions.schedule_text import (
    DAYS,
    EXAMPLES,
    MONTHS,
    PARTS_OF_DAY,
    Trigger,
    UnclearScheduleError,
    parse_schedule_text,
)
from tests.properties import scaled_settings

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 24, 16, 20, tzinfo=BERLIN)  # a Tuesday


def read(text: str) -> Trigger:
    return parse_schedule_text(text, BERLIN, now=NOW)


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
        ("on 24 sept at 18:00", cron("0 18 24 9 *")),
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
        *[
            (f"every hour {hours}", {"every": "1h", "active_hours": active_hours})
            for hours, active_hours in (
                ("between 9 and 17", "09:00-17:00"),
                ("from 8 to 12", "08:00-12:00"),
                ("between 22 and 6", "22:00-06:00"),
                ("from 22:00 to 06:00", "22:00-06:00"),
                ("between 09:00 and 05:00", "09:00-05:00"),
                ("from 9pm to 5", "21:00-05:00"),
                ("from 9 to 5pm", "09:00-17:00"),
                ("between 9 and midnight", "09:00-00:00"),
            )
        ],
        ("every 2 hours on weekends", {"every": "2h", "active_days": "6,0"}),
        ("once on 2026-12-01 at 09:00", {"at": datetime(2026, 12, 1, 9, tzinfo=BERLIN)}),
        ("when the daemon starts", {"on_start": True}),
        ("30 8 * * 1-5", cron("30 8 * * 1-5")),
        ("@daily", cron("0 0 * * *")),
        ("every morning", cron("0 8 * * *")),
        ("mornings", cron("0 8 * * *")),
        ("each evening", cron("0 18 * * *")),
        ("every night", cron("0 22 * * *")),
        ("every morning at 7", cron("0 7 * * *")),
        ("every evening at 7", cron("0 19 * * *")),
        ("every evening at 7:30pm", cron("30 19 * * *")),
        ("at 7 in the evening", cron("0 19 * * *")),
        ("every weekday morning", cron("0 8 * * 1-5")),
        ("monday mornings at 6:45", cron("45 6 * * 1")),
        ("every day in the afternoon", cron("0 14 * * *")),
        ("at 7", cron("0 7 * * *")),
        ("at 9am", cron("0 9 * * *")),
        ("9am", cron("0 9 * * *")),
        ("every weekday at 7:30", cron("30 7 * * 1-5")),
        ("on the first of each month", cron("0 0 1 * *")),
        ("on the first of each month at 9", cron("0 9 1 * *")),
        ("at 9 on the third of every month", cron("0 9 3 * *")),
        ("on the last of the month at 17:00", cron("0 17 L * *")),
        ("every 10 minutes", {"every": "10m"}),
        ("every hour and 30 minutes", {"every": "1h30m"}),
        ("every 1 hour 30 minutes on weekdays", {"every": "1h30m", "active_days": "1-5"}),
        ("every 10 minutes within 08:00-22:00", {"every": "10m", "active_hours": "08:00-22:00"}),
        ("tomorrow at 9", {"at": datetime(2026, 11, 25, 9, tzinfo=BERLIN)}),
        ("tomorrow 9am", {"at": datetime(2026, 11, 25, 9, tzinfo=BERLIN)}),
        ("once at 9:15 tomorrow", {"at": datetime(2026, 11, 25, 9, 15, tzinfo=BERLIN)}),
        ("tomorrow morning", {"at": datetime(2026, 11, 25, 8, tzinfo=BERLIN)}),
        ("tomorrow evening at 9", {"at": datetime(2026, 11, 25, 21, tzinfo=BERLIN)}),
        ("today at 17:30", {"at": datetime(2026, 11, 24, 17, 30, tzinfo=BERLIN)}),
        ("when a file lands in inbox", {"watch": ["inbox/*"]}),
        ("When a new file arrives in Inbox/Invoices/.", {"watch": ["Inbox/Invoices/*"]}),
        ("when files land in 'my inbox'", {"watch": ["my inbox/*"]}),
        ("whenever something is dropped into inbox/*.csv", {"watch": ["inbox/*.csv"]}),
        ("when a file changes in notes", {"watch": ["notes/*"]}),
        ("when a file lands in the folder inbox/**/*.csv", {"watch": ["inbox/**/*.csv"]}),
    ],
)
def test_common_schedule_phrases_are_parsed(text: str, trigger: dict[str, object]) -> None:
    assert read(text) == trigger


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
                "the day after tomorrow at 9",
                "tomorrow at 9 and 10",
                "in the morning",
                "at night",
                "every",
                "when a file lands",
            )
        ],
        *[
            (text, "")
            for text in (
                "weekdays at 9am if it rains",
                "mondays at nine",
                "every 2 weeks",
            )
        ],
        *[
            (text, "on which day")
            for text in ("weekly", "every month", "weekly at 9", "monthly in the morning")
        ],
        ("tomorrow", "at what time?"),
        ("today at 16:20", "it is 16:20 already"),
        ("every evening at 7am", "'7am' is no time of the evening"),
        ("every evening at 07:00", "'07:00' is no time of the evening"),
        ("every morning at 14:00", "'14:00' is no time of the morning"),
        ("every 10 minutes in the morning", "goes with no such interval"),
        ("when a file lands in /tmp", "/tmp leaves the workspace: files are watched beneath it"),
        ("when a file lands in ~/inbox", "leaves the workspace"),
        ("when a file lands in ../inbox", "leaves the workspace"),
        ("daily at 25", "'25' is no time of the day"),
        ("daily at 9:75", "'9:75' is no time of the day"),
        ("daily at 13pm", "'13pm' is no time"),
        ("daily at 9:00 and 12:30", "times at different minutes need a routine each"),
        ("every 0 hours", "every 0 is no interval"),
        ("every second monday", "a second of time, or every other one?"),
        ("every year on the 1st", "in which month?"),
        ("yearly on the 15th of the month at 9", "in which month?"),
        ("every 99999999999 days 5 hours", "that is too long"),
        ("every second weekday", "a second of time, or every other one?"),
        ("every 2 days at 9am", "goes with no such interval"),
        ("every 2 hours at :15", "only every hour has a minute"),
        ("on 31 february at 9am", "there is no such day"),
        ("on the 32nd at 9am", "a month has the days 1 to 31"),
        ("once on 2026-02-30 at 09:00", "2026-02-30 is no date"),
        *[
            (f"every hour {hours}", f"{why}; write it like")
            for hours, why in (
                (
                    "between 9 and 5 on weekdays",
                    (
                        "9:00 to 17:00, or over midnight, 9:00 to 5:00? "
                        "write 9:00 to 17:00, or 09:00 to 05:00"
                    ),
                ),
                ("from 9 to 5", "write 9:00 to 17:00, or 09:00 to 05:00"),
                ("between 8 and 6", "write 8:00 to 18:00, or 08:00 to 06:00"),
                ("from 9am until 5", "write 9:00 to 17:00, or 09:00 to 05:00"),
                ("from 9 to 5:30", "write 9:00 to 17:30, or 09:00 to 05:30"),
                ("from 9 to 5am", "write 21:00 to 5:00, or 09:00 to 05:00"),
                ("from noon to 5", "write 12:00 to 17:00, or 12:00 to 05:00"),
                (
                    "between 9 and 9",
                    "9:00 to 21:00, or around the clock? write 9:00 to 21:00, or no hours",
                ),
            )
        ],
        ("once on 2026-11-24 at 16:20", "it is 2026-11-24 16:20 already"),
        ("2020-01-01 09:00", "it is 2026-11-24 16:20 already"),
        ("61 * * * *", "a crontab line, but is none: minute '61': 61 is not within 0-59"),
        ("60 8 1 1 1", "a crontab line, but is none: minute '60': 60 is not within 0-59"),
        ("0 0 31 2 *", "but is none: day of month '31': no month of these is so long"),
        ("on a webhook", "--recipe alert-triage"),
        ("when a webhook comes", "docs/webhooks.md"),
    ],
)
def test_ambiguous_phrase_is_refused_with_examples(text: str, why: str) -> None:
    with pytest.raises(UnclearScheduleError) as error:
        read(text)
    message = str(error.value)
    assert why in message
    assert all(repr(example) in message for example in EXAMPLES)
    assert "\n" not in message


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_example_phrases_are_parsed(text: str) -> None:
    assert read(text)


def schedule_of(trigger: TriggerTable) -> Schedule:
    """Return what a routine file with this trigger would mean."""
    return Schedule.of(
        timezone="Europe/Berlin",
        cron=trigger.cron,
        every=trigger.every,
        at=trigger.at,
        on_start=trigger.on_start,
        active_hours=trigger.active_hours,
        active_days=trigger.active_days,
    )


def schedule(text: str) -> Schedule:
    return schedule_of(parse(dict(read(text)), TriggerTable, file="x.toml"))


def words_and_slots(text: str) -> tuple[str, list[datetime]]:
    """Return how a schedule in words is said back, and when it would start next."""
    trigger = parse(dict(read(text)), TriggerTable, file="x.toml")
    new_schedule = schedule_of(trigger)
    slots, moment = list[datetime](), NOW.astimezone(UTC)
    while len(slots) < 5 and (slot := new_schedule.next_active(moment)):
        slots.append(slot)
        moment = slot
    return new_schedule.words(trigger.event_words).removesuffix(", Europe/Berlin"), slots


CLOCKS = st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda t: f"{t[0]}:{t[1]:02}")
WEEKDAYS = st.one_of(
    st.sampled_from(["weekdays", "weekends", "daily", *(f"{day}s" for day in DAYS)]),
    st.lists(st.sampled_from(DAYS), min_size=2, max_size=6, unique=True).map(" and ".join),
    st.tuples(st.sampled_from(DAYS), st.sampled_from(DAYS)).map(" to ".join),
)
DATES = st.one_of(
    st.sampled_from(
        [
            "on the last day of the month",
            "on the last workday of the month",
            "on the first of each month",
            "on the 1st, 2nd and 31st",
        ]
    ),
    st.tuples(st.sampled_from(["first", "2nd", "third", "fourth", "last"]), st.sampled_from(DAYS))
    .map(" ".join)
    .map("on the {} of the month".format),
    st.tuples(st.integers(1, 28), st.sampled_from(MONTHS)).map(lambda t: f"on {t[0]} {t[1]}"),
)
INTERVALS = st.tuples(st.integers(2, 400), st.sampled_from(["seconds", "minutes", "hours", "days"]))
LETTERS = st.characters(codec="ascii", categories=["L", "N"])
FOLDERS = st.text(LETTERS, min_size=1).map("when a file lands in {}".format)
# One strategy for each form that is read.
FORMS = {
    "days at a time": st.tuples(WEEKDAYS, CLOCKS).map(" at ".join),
    "days at times": st.tuples(WEEKDAYS, st.integers(0, 11), st.integers(12, 23)).map(
        lambda t: f"{t[0]} at {t[1]}:00 and {t[2]}:00"
    ),
    "a time": CLOCKS.map("at {}".format),
    "parts of the day": st.tuples(
        st.sampled_from(["every", "weekday", "every monday", "on the first of the month in the"]),
        st.sampled_from(sorted(PARTS_OF_DAY)),
    ).map(" ".join),
    "dates": DATES,
    "dates at a time": st.tuples(DATES, CLOCKS).map(" at ".join),
    "intervals": INTERVALS.map(lambda t: f"every {t[0]} {t[1]}"),
    "intervals within hours": st.tuples(INTERVALS, st.integers(0, 11), st.integers(12, 23)).map(
        lambda t: f"every {t[0][0]} {t[0][1]} between {t[1]}:00 and {t[2]}:30 on weekdays"
    ),
    "a minute of the hour": st.integers(0, 59).map("every hour at minute {}".format),
    "tomorrow": CLOCKS.map("tomorrow at {}".format),
    "a date": st.tuples(
        st.dates(NOW.date() + timedelta(1), NOW.date() + timedelta(9999)), CLOCKS
    ).map(lambda t: f"on {t[0]} at {t[1]}"),
    "files": FOLDERS,
    "the start": st.just("when the daemon starts"),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_said_back_of_a_schedule_means_the_same_schedule(form: str) -> None:
    @scaled_settings(40)
    @given(FORMS[form])
    def check(text: str) -> None:
        words, slots = words_and_slots(text)
        assert "crontab" not in words
        assert words_and_slots(words) == (words, slots)

    check()


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
    days_by_words = {
        "daily": set(range(7)),
        "weekdays": set(range(1, 6)),
        "weekends": {6, 0},
        "{day} to sunday": {0, *range(day, 7)} if day else {0},
        "{short} and sunday": {day, 0},
    }.get(days, {day})
    new_schedule, moment = schedule(f"{words} at {clock}"), datetime(2026, 6, 1, tzinfo=UTC)
    weekdays = []
    while (following := new_schedule.next(moment)) and following < datetime(
        2026, 6, 15, tzinfo=UTC
    ):
        moment = following
        local = moment.astimezone(BERLIN)
        assert (local.hour, local.minute) == (hour, minute)
        weekdays.append(local.isoweekday() % 7)
    assert set(weekdays) == days_by_words


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
    new_schedule = schedule(
        f"every {count} {unit}{'s' * (count > 1)}"
        if count > 1 or unit == "day"
        else f"every {unit}"
    )
    assert new_schedule.entries[0].every == timedelta(**{f"{unit}s": count})


@scaled_settings(200)
@given(st.integers(0, 23), st.integers(0, 23))
def test_hours_without_am_and_pm_are_refused_where_they_may_be_a_day_or_a_night(
    first: int, last: int
) -> None:
    text = f"every hour between {first} and {last}"
    if 1 <= last <= first <= 12:
        with pytest.raises(UnclearScheduleError, match=r"write \d"):
            read(text)
    else:
        assert read(text)["active_hours"] == f"{first:02}:00-{last:02}:00"


@scaled_settings(100)
@given(st.lists(st.sampled_from(VOCABULARY), max_size=8))
def test_any_phrase_is_refused_or_becomes_a_valid_trigger(words: list[str]) -> None:
    try:
        trigger = read(" ".join(words))
    except UnclearScheduleError:
        return
    assert parse(dict(trigger), TriggerTable, file="x.toml").model_fields_set == set(trigger)
