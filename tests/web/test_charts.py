"""Numbers turned into shapes: nothing that happened is left out, and the worst of several is what
shows.
"""

from datetime import UTC, date, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.web.charts import (
    OTHERS,
    WORST_FIRST,
    ChartPoint,
    chart,
    heat_map,
    hours,
    time_line,
    worst,
)

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
END = BEGIN + timedelta(days=2)
MOMENTS = st.builds(
    ChartPoint,
    at=st.integers(0, 2 * 24 * 60).map(lambda minutes: BEGIN + timedelta(minutes=minutes)),
    kind=st.sampled_from(WORST_FIRST),
    about=st.just("x"),
)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(MOMENTS, max_size=60))
def test_every_moment_lies_under_a_mark_and_no_failure_is_hidden(moments):
    marks = time_line(moments, BEGIN, END)
    for each in moments:
        at = 100 * (each.at - BEGIN) / (END - BEGIN)
        over = [mark for mark in marks if mark.left - 0.01 <= at <= mark.left + mark.width + 0.01]
        assert any(WORST_FIRST.index(mark.kind) <= WORST_FIRST.index(each.kind) for mark in over)
    assert all(0 <= mark.left <= mark.left + mark.width <= 100.001 for mark in marks)


def test_what_lies_outside_is_not_drawn():
    assert time_line([ChartPoint(END + timedelta(hours=1), "failed", "later")], BEGIN, END) == []


def test_a_failure_among_successes_of_one_moment_is_what_shows():
    near = [
        ChartPoint(BEGIN + timedelta(minutes=place), "succeeded", "x", f"/{place}")
        for place in range(3)
    ]
    near[1] = near[1]._replace(kind="failed")
    (mark,) = time_line(near, BEGIN, END)
    assert (mark.kind, mark.href) == ("failed", "/1")
    assert mark.about == "3 times until 00:02, the worst: failed"


def test_the_axis_names_days_and_hours():
    assert [label for _, label in hours(BEGIN, END)][:5] == [
        "Mon 02",
        "06:00",
        "12:00",
        "18:00",
        "Tue 03",
    ]


def test_a_day_takes_the_colour_of_its_worst_run_and_says_them_all():
    items = [{"routine": "a", "day": "2026-03-02", "outcomes": {"succeeded": 3, "failed": 1}}]
    ((name, cells), (other, empty)) = heat_map(
        items, ["a", "b"], [date(2026, 3, 1), date(2026, 3, 2)]
    )
    assert (name, other) == ("a", "b")
    assert [cell.kind for cell in cells] == ["", "failed"]
    assert (cells[1].sign, cells[1].about) == ("✗", "Mon 02 Mar: 1 failed, 3 succeeded")
    assert {cell.kind for cell in empty} == {""}


def test_a_routine_whose_file_is_gone_keeps_its_row():
    items = [{"routine": "gone", "day": "2026-03-02", "outcomes": {"missed": 2}}]
    assert [name for name, _ in heat_map(items, ["a"], [date(2026, 3, 2)])] == ["a", "gone"]


AMOUNTS = st.dictionaries(
    st.sampled_from("abcdefghijkl"), st.integers(0, 10**9).map(float), max_size=12
)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(AMOUNTS, min_size=1, max_size=31), st.lists(st.floats(0.01, 1e12), max_size=3))
def test_a_chart_shows_every_amount_once_and_never_above_its_top(rows, limits):
    days = {f"{date(2026, 3, 1) + timedelta(days=place)}": row for place, row in enumerate(rows)}
    drawn = chart(days, [("cap", limit) for limit in limits])
    for column, row in zip(drawn.columns, rows, strict=True):
        assert sum(part.amount for part in column.parts) == column.total == sum(row.values())
        assert [part.name for part in column.parts if part.name not in drawn.names] == []
        assert all(part.foot >= 0 and part.foot + part.height <= 100.01 for part in column.parts)
    assert all(limit.height is None or 0 <= limit.height <= 100 for limit in drawn.limits)
    assert len(drawn.names) <= 7


def test_the_largest_have_a_colour_each_and_the_rest_one_together():
    days = {"2026-03-01": {f"r{place}": float(place) for place in range(1, 11)}}
    drawn = chart(days, most=6)
    assert drawn.names == ["r10", "r9", "r8", "r7", "r6", "r5", OTHERS]
    assert drawn.columns[0].parts[-1].amount == 1 + 2 + 3 + 4


def test_a_cap_is_a_line_at_its_height_and_one_far_above_everything_is_only_named():
    days = {"2026-03-01": {"a": 2.0}, "2026-03-02": {}}
    near, far = chart(days, [("day = 4", 4.0), ("day = 100", 100.0)]).limits
    assert (near.height, far.height) == (100.0, None)
    assert chart(days, [("day = 4", 4.0)]).columns[0].parts[0].height == 50.0
    assert chart(days, [("day = 1", 1.0)]).limits[0].height == 50.0


def test_a_month_in_which_nothing_was_spent_divides_by_nothing():
    drawn = chart({"2026-03-01": {}, "2026-03-02": {"a": 0.0}}, [("day = 5", 5.0)])
    assert drawn.names == [] and [column.parts for column in drawn.columns] == [[], []]


def test_the_worst_of_nothing_is_nothing():
    assert worst([]) == ""
