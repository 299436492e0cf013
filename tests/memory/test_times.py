"""What a question means by yesterday, in both languages."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from daemon.memory.times import find_time_span
from tests.memory.conftest import START, Library

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 3, 4, 10, 0, tzinfo=BERLIN)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "begin", "end"),
    [
        ("what broke today?", "2026-03-04", "2026-03-05"),
        ("what broke yesterday?", "2026-03-03", "2026-03-04"),
        ("the day before yesterday", "2026-03-02", "2026-03-03"),
        ("who called last night", "2026-03-03", "2026-03-04"),
        ("the backup three days ago", "2026-03-01", "2026-03-02"),
        ("a couple of days ago", "2026-03-02", "2026-03-03"),
        ("two weeks ago", "2026-02-16", "2026-02-23"),
        ("one month ago", "2026-02-01", "2026-03-01"),
        ("2 years ago", "2024-01-01", "2025-01-01"),
        ("in the last 3 days", "2026-03-01T10:00", "2026-03-04T10:00"),
        ("this week", "2026-03-02", "2026-03-09"),
        ("last week", "2026-02-23", "2026-03-02"),
        ("Last Week", "2026-02-23", "2026-03-02"),
        ("LAST MONTH", "2026-02-01", "2026-03-01"),
        ("in the last 3 Days", "2026-03-01T10:00", "2026-03-04T10:00"),
        ("Two Weeks ago", "2026-02-16", "2026-02-23"),
        ("last month", "2026-02-01", "2026-03-01"),
        ("this year", "2026-01-01", "2027-01-01"),
        ("last weekend", "2026-02-28", "2026-03-02"),
        ("what happened on Monday", "2026-03-02", "2026-03-03"),
        ("the night before last", "2026-03-02", "2026-03-03"),
        ("a fortnight ago", "2026-02-16", "2026-02-23"),
        ("in the past hour", "2026-03-04T09:00", "2026-03-04T10:00"),
        ("since Monday", "2026-03-02", "2026-03-04T10:00"),
        ("since yesterday", "2026-03-03", "2026-03-04T10:00"),
        ("on Friday last week", "2026-02-27", "2026-02-28"),
        ("3 天前", "2026-03-01", "2026-03-02"),
        ("前两天", "2026-03-02T10:00", "2026-03-04T10:00"),
        ("昨天以来", "2026-03-03", "2026-03-04T10:00"),
        ("last Wednesday", "2026-02-25", "2026-02-26"),
        ("今天的备份", "2026-03-04", "2026-03-05"),
        ("昨天的备份失败了吗", "2026-03-03", "2026-03-04"),
        ("前天", "2026-03-02", "2026-03-03"),
        ("大前天", "2026-03-01", "2026-03-02"),
        ("前晚的备份", "2026-03-02", "2026-03-03"),
        ("三天前", "2026-03-01", "2026-03-02"),
        ("三天之前天气如何", "2026-03-01", "2026-03-02"),
        ("三天前晚上发生了什么", "2026-03-01", "2026-03-02"),
        ("两周前", "2026-02-16", "2026-02-23"),
        ("两周前天气如何", "2026-02-16", "2026-02-23"),
        ("三年前天气如何", "2023-01-01", "2024-01-01"),
        ("一小时前天气如何", "2026-03-04T08:00", "2026-03-04T10:00"),
        ("十二个月前", "2025-03-01", "2025-04-01"),
        ("最近七天", "2026-02-25T10:00", "2026-03-04T10:00"),
        ("上周", "2026-02-23", "2026-03-02"),
        ("上上周", "2026-02-16", "2026-02-23"),
        ("上个月的报告", "2026-02-01", "2026-03-01"),
        ("去年", "2025-01-01", "2026-01-01"),
        ("上周三", "2026-02-25", "2026-02-26"),
        ("星期一", "2026-03-02", "2026-03-03"),
        ("星期天", "2026-03-01", "2026-03-02"),
        ("上周天气怎么样", "2026-02-23", "2026-03-02"),
        ("这周天气怎么样", "2026-03-02", "2026-03-09"),
        ("周末", "2026-02-28", "2026-03-02"),
    ],
)
def test_a_relative_time_in_a_question_is_a_span_of_days(
    question: str, begin: str, end: str
) -> None:
    span = find_time_span(question, NOW)
    assert span is not None
    assert (span.begin, span.end) == tuple(
        datetime.fromisoformat(text).replace(tzinfo=BERLIN) for text in (begin, end)
    )
    assert span.words in question


@pytest.mark.parametrize(
    ("question", "begin"),
    [
        ("周末做了什么", "2026-03-07"),
        ("上周末做了什么", "2026-02-28"),
        ("over the weekend", "2026-03-07"),
        ("what broke this Saturday?", "2026-03-07"),
        ("what broke last Saturday?", "2026-02-28"),
        ("本周六做了什么", "2026-03-07"),
        ("周六做了什么", "2026-02-28"),
        ("三天前天气如何", "2026-03-04"),
        ("昨天前天都没有备份", "2026-03-06"),
    ],
)
def test_a_relative_time_is_understood_on_a_saturday(question: str, begin: str) -> None:
    span = find_time_span(question, datetime(2026, 3, 7, 10, 0, tzinfo=BERLIN))
    assert span is not None
    assert span.begin == datetime.fromisoformat(begin).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "the lasting weekly report",
        "in 2024",
        "12 March",
        "2025年3月",
        "agoraphobia",
        "目前天气如何",
    ],
)
def test_question_without_a_time_names_no_days(question: str) -> None:
    assert find_time_span(question, NOW) is None


def test_yesterday_has_23_hours_after_a_clock_change() -> None:
    span = find_time_span("yesterday", datetime(2026, 3, 30, 9, 0, tzinfo=BERLIN))
    assert span is not None
    assert span.end.astimezone(ZoneInfo("UTC")) - span.begin.astimezone(
        ZoneInfo("UTC")
    ) == timedelta(hours=23)


def test_a_relative_time_before_year_1_is_ignored() -> None:
    assert find_time_span("999 years ago", NOW.replace(year=400)) is None


async def test_question_about_yesterday_ranks_yesterday_first(library: Library) -> None:
    for day in range(10):
        library.clock.move_to(START + timedelta(days=day))
        await library.run(
            f"01{day}", f"The backup number {day} took {day + 20} minutes.", routine=f"r{day}"
        )
    assert await library.find_texts("how long did the backup take yesterday?", 1) == [
        "The backup number 8 took 28 minutes."
    ]
    assert await library.find_texts("备份 昨天", 1) == ["The backup number 8 took 28 minutes."]
    # the others are not left out
    assert len(await library.find_texts("how long did the backup take yesterday?")) == 10


async def test_a_question_naming_only_a_day_recalls_texts_of_the_day(library: Library) -> None:
    for day in range(5):
        library.clock.move_to(START + timedelta(days=day))
        await library.run(f"01{day}", f"Pump {day} was oiled.", routine=f"r{day}")
    assert (await library.find_texts("what happened three days ago?", 1)) == ["Pump 1 was oiled."]
