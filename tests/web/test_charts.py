"""Charts show every event, and the worst of several kinds."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from daemon.web.charts import (
    OTHERS,
    WORST_FIRST,
    ChartPoint,
    make_bar_chart,
    make_heat_map,
    make_hour_labels,
    make_time_line,
    percent_between,
    worst_kind,
)
from tests.properties import scaled_settings

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
END = BEGIN + timedelta(days=2)
POINTS = st.builds(
    ChartPoint,
    at=st.integers(0, 2 * 24 * 60).map(lambda minutes: BEGIN + timedelta(minutes=minutes)),
    kind=st.sampled_from(WORST_FIRST),
    label=st.just("x"),
)


@scaled_settings(100)
@given(st.lists(POINTS, max_size=60))
def test_every_point_lies_under_a_mark_and_no_failure_is_hidden(points):
    marks = make_time_line(points, BEGIN, END)
    for point in points:
        at = 100 * (point.at - BEGIN) / (END - BEGIN)
        marks_at_point = [
            mark for mark in marks if mark.left - 0.01 <= at <= mark.left + mark.width + 0.01
        ]
        assert any(
            WORST_FIRST.index(mark.kind) <= WORST_FIRST.index(point.kind) for mark in marks_at_point
        )
    assert all(0 <= mark.left <= mark.left + mark.width <= 100.001 for mark in marks)


def test_points_outside_the_time_line_are_not_drawn():
    assert (
        make_time_line([ChartPoint(END + timedelta(hours=1), "failed", "later")], BEGIN, END) == []
    )


def test_joined_points_show_the_worst_kind():
    points = [
        ChartPoint(BEGIN + timedelta(minutes=number), "succeeded", "x", f"/{number}")
        for number in range(3)
    ]
    points[1] = points[1]._replace(kind="failed")
    (mark,) = make_time_line(points, BEGIN, END)
    assert (mark.kind, mark.href) == ("failed", "/1")
    assert mark.label == "3 times until 00:02, the worst: failed"


def test_the_time_axis_names_days_and_hours():
    assert [label for _, label in make_hour_labels(BEGIN, END)][:5] == [
        "Mon 02",
        "06:00",
        "12:00",
        "18:00",
        "Tue 03",
    ]


def test_a_time_line_is_as_long_as_the_days_when_clocks_change() -> None:
    zone = ZoneInfo("Europe/Berlin")
    begin, end = (datetime(2026, 3, day, tzinfo=zone) for day in (29, 31))
    at = datetime(2026, 3, 29, 12, tzinfo=zone)  # eleven hours after midnight, of 47
    assert percent_between(at, begin, end) == round(1100 / 47, 3)
    assert (round(1100 / 47, 3), "12:00") in make_hour_labels(begin, end)


def test_marks_in_the_hour_that_comes_twice_stand_in_the_order_of_their_times() -> None:
    zone = ZoneInfo("Europe/Berlin")
    begin, end = (datetime(2026, 10, day, tzinfo=zone) for day in (25, 27))
    points = [
        ChartPoint(datetime(2026, 10, 25, minute // 60, minute % 60, tzinfo=UTC), "succeeded", "x")
        for minute in (0, 30, 60, 90)
    ]
    points = [point._replace(at=point.at.astimezone(zone)) for point in points]
    marks = make_time_line(points, begin, end)
    assert [(mark.left, mark.width) for mark in marks] == [
        (percent_between(point.at, begin, end), 0) for point in points
    ]


def test_a_day_shows_its_worst_kind_and_counts_all():
    items = [{"routine": "a", "day": "2026-03-02", "outcomes": {"succeeded": 3, "failed": 1}}]
    ((name, cells), (other_name, empty_cells)) = make_heat_map(
        items, ["a", "b"], [date(2026, 3, 1), date(2026, 3, 2)]
    )
    assert (name, other_name) == ("a", "b")
    assert [cell.kind for cell in cells] == ["", "failed"]
    assert (cells[1].sign, cells[1].label) == ("✗", "Mon 02 Mar: 1 failed, 3 succeeded")
    assert {cell.kind for cell in empty_cells} == {""}


def test_a_routine_without_a_file_keeps_its_row():
    items = [{"routine": "gone", "day": "2026-03-02", "outcomes": {"missed": 2}}]
    assert [name for name, _ in make_heat_map(items, ["a"], [date(2026, 3, 2)])] == ["a", "gone"]


AMOUNTS = st.dictionaries(
    st.sampled_from("abcdefghijkl"), st.integers(0, 10**9).map(float), max_size=12
)


@scaled_settings(100)
@given(st.lists(AMOUNTS, min_size=1, max_size=31), st.lists(st.floats(0.01, 1e12), max_size=3))
def test_a_chart_shows_every_amount_once_and_never_above_its_top(rows, limits):
    days = {f"{date(2026, 3, 1) + timedelta(days=number)}": row for number, row in enumerate(rows)}
    result = make_bar_chart(days, [("cap", limit) for limit in limits])
    for column, row in zip(result.columns, rows, strict=True):
        assert (
            sum(segment.amount for segment in column.segments) == column.total == sum(row.values())
        )
        assert [
            segment.name for segment in column.segments if segment.name not in result.names
        ] == []
        assert all(
            segment.bottom >= 0 and segment.bottom + segment.height <= 100.01
            for segment in column.segments
        )
    assert all(cap.height is None or 0 <= cap.height <= 100 for cap in result.caps)
    assert len(result.names) <= 7


def test_the_largest_names_have_a_segment_each_and_all_others_one_together():
    days = {"2026-03-01": {f"r{number}": float(number) for number in range(1, 11)}}
    result = make_bar_chart(days, max_names=6)
    assert result.names == ["r10", "r9", "r8", "r7", "r6", "r5", OTHERS]
    assert result.columns[0].segments[-1].amount == 1 + 2 + 3 + 4


def test_a_cap_far_above_all_columns_is_named_but_not_drawn():
    days = {"2026-03-01": {"a": 2.0}, "2026-03-02": {}}
    near, far = make_bar_chart(days, [("day = 4", 4.0), ("day = 100", 100.0)]).caps
    assert (near.height, far.height) == (100.0, None)
    assert make_bar_chart(days, [("day = 4", 4.0)]).columns[0].segments[0].height == 50.0
    assert make_bar_chart(days, [("day = 1", 1.0)]).caps[0].height == 50.0


def test_a_chart_without_amounts_has_empty_columns():
    result = make_bar_chart({"2026-03-01": {}, "2026-03-02": {"a": 0.0}}, [("day = 5", 5.0)])
    assert result.names == [] and [column.segments for column in result.columns] == [[], []]


def test_the_worst_of_no_kinds_is_empty():
    assert worst_kind([]) == ""
