"""The forecast of coming runs from earlier runs."""

from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

from daemon.scheduler.forecast import RunUsage, forecast
from daemon.testing import TestApp
from tests.api.harness import open_harness
from tests.cli.agentctl import agentctl

BERLIN = ZoneInfo("Europe/Berlin")


def took(*tokens):
    return [RunUsage(tokens=token, dollars=token / 1000, seconds=token / 10) for token in tokens]


def daily(first, days, hour):
    begin = datetime.fromisoformat(first).replace(hour=hour, tzinfo=BERLIN)
    return [(begin + timedelta(days=n)).astimezone(UTC) for n in range(days)]


def test_one_start_is_forecast_from_its_history():
    totals = forecast({"a": daily("2026-11-20", 1, 8)}, {"a": took(*range(101))}, BERLIN)
    [day] = totals.days.values()
    assert (day.tokens.p50, day.tokens.p95) == (50, 95)
    assert totals.total == day and totals.routines["a"] == day


def test_the_forecast_of_many_starts_varies_less_than_of_one():
    starts = {"a": [datetime(2026, 11, 20, 8, n, tzinfo=UTC) for n in range(48)]}
    totals = forecast(starts, {"a": took(0, 0, 0, 100)}, BERLIN)
    total = totals.total.tokens
    assert total.p50 == 48 * 25 and total.p50 < total.p95 < 48 * 100
    assert abs(total.p95 - (1200 + 1.645 * (48 * 1875) ** 0.5)) < 0.01


def test_a_routine_without_history_is_named_without_a_forecast():
    totals = forecast(
        {"a": daily("2026-11-20", 2, 8), "new": daily("2026-11-20", 2, 9)}, {"a": took(10)}, BERLIN
    )
    assert totals.unknown == ("new",) and totals.total.tokens.p50 == 20 and totals.total.starts == 4


def test_the_forecast_counts_collisions_and_clock_changes():
    starts = {
        "a": daily("2026-10-23", 4, 2),
        "b": daily("2026-10-23", 4, 2),
        "c": daily("2026-10-23", 4, 9),
    }
    totals = forecast(starts, {}, BERLIN)
    assert totals.collision_count == 4 and totals.collisions[0][1] == ("a", "b")
    assert totals.nights == ((date(2026, 10, 25), timedelta(hours=-1), ("a", "b")),)


def test_forecast_without_starts_is_zero():
    totals = forecast({}, {}, BERLIN)
    assert (totals.total.starts, totals.total.tokens.p95, totals.nights) == (0, 0.0, ())


async def test_forecast_shows_days_routines_and_the_cap_to_be_reached(tmp_path):
    async with open_harness(tmp_path, budget=SimpleNamespace(day=None, month=0.000001)) as harness:
        for _ in range(3):
            await harness.complete_run()
        result = await agentctl(harness.path, "forecast", "--days", "3")
        assert result.code == 0 and "DAY" in result.out and "total" in result.out
        assert "daily-report" in result.out and "heartbeat has never run" in result.out
        assert (await agentctl(harness.path, "forecast", "--json")).code == 0


DAILY = '[trigger]\ncron = "30 8 * * *"\n[run]\nprompt = "Look at the disks."\n'


@asynccontextmanager
async def schedule(app):
    """Let the schedules of the routines count while the block lasts."""
    await app.daemon.scheduling.engine.start(await app.daemon.reloader.load_routines())
    try:
        yield
    finally:
        await app.daemon.scheduling.engine.stop()


async def test_a_routine_that_ran_only_without_a_model_is_named_without_a_forecast(tmp_path):
    config = """timezone = "UTC"\nprovider = "offline"
[providers.offline]\nkind = "offline"\n[providers.scripted]\nkind = "scripted"\n"""
    app = TestApp(tmp_path, config=config)
    app.write_routine("disks", DAILY)
    app.write_routine("quiet", DAILY + 'provider = "offline"\n')
    async with app:
        await app.run("disks")
        await app.run("quiet")
    app.write("config.toml", config.replace('provider = "offline"', 'provider = "scripted"', 1))
    async with app, schedule(app), app.serve_api() as socket:
        answer = (await app.request("GET", "/v1/forecast?days=2")).json
        assert answer["without_model"] == ["disks"]
        output = await agentctl(socket, "forecast")
        assert "disks ran only without a model" in output.out and "quiet ran" not in output.out
        (row,) = [line for line in output.out.splitlines() if line.startswith("disks")]
        assert row.split()[2:6] == ["?", "?", "?", "?"]


async def test_a_forecast_without_days_is_of_a_week_with_one_line_for_each_routine(tmp_path):
    app = TestApp(tmp_path)
    app.write_routine("disks", DAILY)
    async with app, schedule(app), app.serve_api() as socket:
        rows = (await agentctl(socket, "forecast")).out.splitlines()
        assert rows[0].startswith("ROUTINE")
        assert [line.split()[:2] for line in rows[1:3]] == [["disks", "7"], ["7", "days"]]
        by_day = (await agentctl(socket, "forecast", "--days", "2")).out.splitlines()
        assert by_day[0].startswith("DAY") and by_day[1].startswith("2026-11-21")
