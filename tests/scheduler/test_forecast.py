"""What the coming days will take, from what was."""

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

from daemon.scheduler.forecast import RunUsage, forecast
from tests.api.harness import open_harness
from tests.cli.agentctl import agentctl

BERLIN = ZoneInfo("Europe/Berlin")


def took(*tokens):
    return [RunUsage(tokens=each, dollars=each / 1000, seconds=each / 10) for each in tokens]


def daily(first, days, hour):
    begin = datetime.fromisoformat(first).replace(hour=hour, tzinfo=BERLIN)
    return [(begin + timedelta(days=n)).astimezone(UTC) for n in range(days)]


def test_one_start_takes_what_its_history_says():
    found = forecast({"a": daily("2026-11-20", 1, 8)}, {"a": took(*range(101))}, BERLIN)
    [day] = found.days.values()
    assert (day.tokens.p50, day.tokens.p95) == (50, 95)
    assert found.total == day and found.routines["a"] == day


def test_many_starts_take_the_sum_and_vary_less_than_one():
    starts = {"a": [datetime(2026, 11, 20, 8, n, tzinfo=UTC) for n in range(48)]}
    found = forecast(starts, {"a": took(0, 0, 0, 100)}, BERLIN)
    total = found.total.tokens
    assert total.p50 == 48 * 25 and total.p50 < total.p95 < 48 * 100
    assert abs(total.p95 - (1200 + 1.645 * (48 * 1875) ** 0.5)) < 0.01


def test_a_routine_that_never_ran_is_named_and_not_guessed():
    found = forecast(
        {"a": daily("2026-11-20", 2, 8), "new": daily("2026-11-20", 2, 9)}, {"a": took(10)}, BERLIN
    )
    assert found.unknown == ("new",) and found.total.tokens.p50 == 20 and found.total.starts == 4


def test_collisions_and_nights_in_which_clocks_change_are_seen():
    starts = {
        "a": daily("2026-10-23", 4, 2),
        "b": daily("2026-10-23", 4, 2),
        "c": daily("2026-10-23", 4, 9),
    }
    found = forecast(starts, {}, BERLIN)
    assert found.collided == 4 and found.collisions[0][1] == ("a", "b")
    assert found.nights == ((date(2026, 10, 25), timedelta(hours=-1), ("a", "b")),)


def test_forecast_without_starts_is_zero():
    found = forecast({}, {}, BERLIN)
    assert (found.total.starts, found.total.tokens.p95, found.nights) == (0, 0.0, ())


async def test_a_person_sees_days_routines_and_the_cap_that_will_be_reached(tmp_path):
    async with open_harness(tmp_path, budget=SimpleNamespace(day=None, month=0.000001)) as harness:
        for _ in range(3):
            await harness.complete_run()
        told = await agentctl(harness.path, "forecast", "--days", "3")
        assert told.code == 0 and "DAY" in told.out and "total" in told.out
        assert "daily-report" in told.out and "heartbeat has never run" in told.out
        assert (await agentctl(harness.path, "forecast", "--json")).code == 0
