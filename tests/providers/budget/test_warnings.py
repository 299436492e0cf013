"""People are warned once, in a day or month, when a part of a budget is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.errors import Refused
from tests.replaying import ReplayedApp

CONFIG = """
provider = "script"
[budget]
{budget}
[incidents]
{to}
[targets.ada]
kind = "webhook"
url = "http://127.0.0.1:9/ada"
[providers.script]
kind = "scripted"
price = {{ input = 1.0, output = 10.0 }}
replies = [{replies}]
"""
# 1,000 tokens in and 100 out: $0.002
REPLY = '{ text = "Well.", usage = { input = 1000, output = 100 } },'


def configure(
    app: ReplayedApp, budget: str, *, to: str = 'to = ["ada"]', replies: int = 20
) -> None:
    app.write("config.toml", CONFIG.format(budget=budget, to=to, replies=REPLY * replies))
    for name in ("daily", "other"):
        text = '[run]\nprompt = "Report."\nmemory = "none"\nmax_tokens = 100\n'
        own_budget = "[run.budget]\nmonth = 0.008\n" if name == "other" else ""
        app.write_routine(name, text + own_budget)


async def notices(app: ReplayedApp) -> list[tuple[str, str]]:
    """Return target and title of all warnings ever put into the outbox, in order."""
    deliveries = await app.journal.outbox.find(limit=100)
    return [
        (delivery.target, str(delivery.options["title"]))
        for delivery in sorted(deliveries, key=lambda delivery: delivery.id)
        if delivery.options.get("notice") == "budget.warning"
    ]


async def warn(app: ReplayedApp, runs: int, name: str = "daily") -> list[str]:
    for _ in range(runs):
        await app.run(name)
    return [title for _, title in await notices(app)]


async def test_each_level_is_told_once_a_day_and_again_the_next_day(tmp_path: Path) -> None:
    app = ReplayedApp(tmp_path)
    configure(app, "day = 0.02\nwarn_at = [50, 75, 90]")
    async with app:
        assert await warn(app, 4) == []  # $0.008
        first = "50 % of [budget] day is spent"
        assert await warn(app, 1) == [first]
        assert await warn(app, 2) == [first]
        second = "75 % of [budget] day is spent"
        assert await warn(app, 1) == [first, second]
        assert {target for target, _ in await notices(app)} == {"ada"}
        (line,) = [line for line in app.log("budget.warning") if line["percent"] == 75]
        assert (line["cap"], line["routine"]) == ("[budget] day", "")
        assert line["spent"] == "$0.0160 of $0.02"
        app.advance(days=1)
        assert await warn(app, 5) == [first, second, first]


async def test_a_restart_and_a_smaller_cap_repeat_no_warning(tmp_path: Path) -> None:
    app = ReplayedApp(tmp_path)
    configure(app, "month = 0.008\nwarn_at = [50]")
    first = "50 % of [budget] month is spent"
    async with app:
        assert await warn(app, 2) == [first]
    again = ReplayedApp(tmp_path)
    configure(again, "month = 0.0079\nwarn_at = [50]")
    async with again:
        assert await warn(again, 1) == [first]


@pytest.mark.parametrize("levels", ["", "warn_at = [50]"])
async def test_a_used_up_cap_is_told_once_whatever_the_levels(tmp_path: Path, levels: str) -> None:
    app = ReplayedApp(tmp_path)
    configure(app, f"day = 0.004\n{levels}")
    async with app:
        warnings = await warn(app, 2)
        for name in ("daily", "daily", "other"):
            with pytest.raises(Refused, match="may spend no more for now"):
                await app.run(name)
        titles = [title for _, title in await notices(app)]
        assert titles == [*warnings, "[budget] day is used up"]
        app.advance(days=1)
        await warn(app, 2)
        with pytest.raises(Refused):
            await app.run("daily")
        titles = [title for _, title in await notices(app)]
        assert titles == [*warnings, "[budget] day is used up"] * 2


async def test_only_the_highest_of_several_levels_is_told(tmp_path: Path) -> None:
    app = ReplayedApp(tmp_path)
    configure(app, "day_tokens = 1200\nwarn_at = [50, 75, 90]")
    async with app:
        assert await warn(app, 1) == ["90 % of [budget] day_tokens is spent"]
        (delivery,) = [
            d for d in await app.journal.outbox.find(limit=10) if d.options.get("notice")
        ]
        assert "1100 of 1200 tokens since 2026-11-20." in str(delivery.options["text"])


async def test_the_cap_of_a_routine_names_it(tmp_path: Path) -> None:
    app = ReplayedApp(tmp_path)
    configure(app, "warn_at = [50]")
    async with app:
        assert await warn(app, 2, "other") == ["other: 50 % of [run.budget] month is spent"]


async def test_without_a_target_the_log_says_it_and_without_levels_nothing_does(
    tmp_path: Path,
) -> None:
    cases: list[tuple[str, list[Any]]] = [
        ("day = 0.004\nwarn_at = [50]", [50]),
        ("day = 0.004", []),
    ]
    for number, (budget, levels) in enumerate(cases):
        (folder := tmp_path / str(number)).mkdir()
        app = ReplayedApp(folder)
        configure(app, budget, to="")
        async with app:
            assert await warn(app, 1) == []
            assert [line["percent"] for line in app.log("budget.warning")] == levels
