"""Numbers turned into shapes: nothing that happened is left out, and the worst of several is what shows."""

from datetime import UTC, date, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.control.page.pictures import WORST_FIRST, Moment, bars, heat_map, hours, time_line, worst

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
END = BEGIN + timedelta(days=2)
MOMENTS = st.builds(
    Moment,
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
    assert time_line([Moment(END + timedelta(hours=1), "failed", "later")], BEGIN, END) == []


def test_a_failure_among_successes_of_one_moment_is_what_shows():
    near = [Moment(BEGIN + timedelta(minutes=place), "succeeded", "x", f"/{place}") for place in range(3)]
    near[1] = near[1]._replace(kind="failed")
    (mark,) = time_line(near, BEGIN, END)
    assert (mark.kind, mark.href) == ("failed", "/1")
    assert mark.about == "3 times until 00:02, the worst: failed"


def test_the_axis_names_days_and_hours():
    assert [label for _, label in hours(BEGIN, END)][:5] == ["Mon 02", "06:00", "12:00", "18:00", "Tue 03"]


def test_a_day_takes_the_colour_of_its_worst_run_and_says_them_all():
    items = [{"routine": "a", "day": "2026-03-02", "outcomes": {"succeeded": 3, "failed": 1}}]
    ((name, cells), (other, empty)) = heat_map(items, ["a", "b"], [date(2026, 3, 1), date(2026, 3, 2)])
    assert (name, other) == ("a", "b")
    assert [cell.kind for cell in cells] == ["", "failed"]
    assert (cells[1].sign, cells[1].about) == ("✗", "Mon 02 Mar: 1 failed, 3 succeeded")
    assert {cell.kind for cell in empty} == {""}


def test_a_routine_whose_file_is_gone_keeps_its_row():
    items = [{"routine": "gone", "day": "2026-03-02", "outcomes": {"missed": 2}}]
    assert [name for name, _ in heat_map(items, ["a"], [date(2026, 3, 2)])] == ["a", "gone"]


def test_the_tallest_column_fills_the_chart_and_an_empty_one_divides_by_nothing():
    low, tall = bars({"a": {"input": 5}, "b": {"input": 10, "output": 10}}, ("input", "output"))
    assert (low.total, [share for _, share, _ in tall.parts]) == (5, [50.0, 50.0])
    assert bars({"a": {}}, ("input",))[0].parts == [("input", 0.0, 0)]


def test_the_worst_of_nothing_is_nothing():
    assert worst([]) == ""
