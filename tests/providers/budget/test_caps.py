"""No call is made that a cap does not cover, and every call that is made is written down."""

from __future__ import annotations

import asyncio
from datetime import UTC
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.agent.conversations.conversations import ask_routine
from daemon.agent.conversations.sessions import MAX_TURNS
from daemon.api.usage import GroupBy, show_usage
from daemon.app.api_context import api_context
from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import PriceConfig
from daemon.definitions.routines.routine import Budget
from daemon.errors import OverBudget, Refused
from daemon.models import Reason, Run, Status
from daemon.providers.budget import MIN_ANSWER, BudgetLedger, RunBudget
from daemon.providers.pricing import NANO, Rates
from daemon.store.journal import Claim
from tests.fakes.vendor import FakeVendor
from tests.replaying import ReplayedApp

MODEL = """
provider = "script"
timezone = "Europe/Berlin"
[providers.script]
kind = "scripted"
price = {{ input = 1.0, output = 10.0 }}
replies = {replies}
{more}
"""
# 1,000 tokens in and 100 out: $0.002
USED = {"text": "All is well.", "usage": {"input": 1000, "output": 100}}


def script(app: ReplayedApp, replies: list[Any], more: str = "") -> None:
    import tomli_w

    text = tomli_w.dumps({"replies": replies}).removeprefix("replies = ")
    app.write("config.toml", MODEL.format(replies=text, more=more))


def routine(app: ReplayedApp, name: str = "daily", budget: str = "", run: str = "") -> None:
    app.write_routine(
        name, f'[run]\nprompt = "Report."\nmemory = "none"\n{run}\n[run.budget]\n{budget}\n'
    )


async def test_every_model_call_is_recorded_with_its_cost(app: ReplayedApp) -> None:
    script(
        app,
        [
            USED,
            {
                "text": "Again.",
                "usage": {"input": 500, "cache_read": 400, "output": 10, "reasoning": 4},
            },
        ],
    )
    routine(app)
    async with app:
        first, _ = await app.run("daily"), await app.run("daily")
        assert await app.spending("outcome, model, input, cache_read, output, reasoning, cost") == [
            ("answered", "scripted", 1000, 0, 100, 0, 2_000_000),
            ("answered", "scripted", 500, 400, 10, 4, 600_000),
        ]
        assert await app.journal.spending.get_cost_of_run(first.id) == 0.002


async def test_a_run_ends_when_its_cap_does_not_cover_another_call(app: ReplayedApp) -> None:
    turn = {"text": "I look.", "tool_calls": [{"name": "finish", "arguments": {"report": 1}}]}
    script(app, [{**turn, "usage": {"input": 3000, "output": 700}}, "never asked"])
    # $0.010 for the first call leaves less than an answer of MIN_ANSWER tokens
    routine(app, budget="usd = 0.02", run='mode = "agent"\nmax_tokens = 1500')
    async with app:
        run = await app.run("daily")
        assert app.model_named("script").remaining == 1
        (call,) = app.model_named("script").calls
    assert run.status is Status.FAILED
    assert run.report is not None
    assert run.report.startswith(
        "I look.\n\n[stopped: a cap on spending does not cover another call"
    )
    assert "[run.budget] usd = 0.02, $0.0100 left" in run.report
    assert "a cap on spending" in str(run.detail)
    assert call.options["max_tokens"] == 1500


async def test_a_cap_shortens_the_answer_instead_of_refusing_the_call(app: ReplayedApp) -> None:
    script(app, ["short"])
    routine(app, budget="usd = 0.05")
    async with app:
        assert (await app.run("daily")).status is Status.SUCCEEDED
        (call,) = app.model_named("script").calls
    # at $10 a million, 5 cents are 5,000 tokens, and the input wants its share
    assert MIN_ANSWER < call.options["max_tokens"] < 5000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "more", "rule"),
    [
        ("day = 0.015", "", "[run.budget] day = 0.015"),
        ("month = 0.015", "", "[run.budget] month = 0.015"),
        ("", "[budget]\nday = 0.015", "[budget] day = 0.015"),
        ("", "[budget]\nmonth = 0.015", "[budget] month = 0.015"),
        ("", "[budget]\nday_tokens = 2100", "[budget] day_tokens = 2100"),
        ("", "[budget]\nmonth_tokens = 2100", "[budget] month_tokens = 2100"),
    ],
)
async def test_a_cap_of_a_day_or_a_month_holds_over_restarts(
    app: ReplayedApp, budget: str, more: str, rule: str
) -> None:
    script(app, [USED, USED, USED], more)
    routine(app, budget=budget, run="max_tokens = 1030")
    async with app:
        assert (await app.run("daily")).status is Status.SUCCEEDED
    if "tokens" not in more:  # $0.004 of $0.015 are left after this one: no room for an answer
        async with app:
            for _ in range(2):
                assert (await app.run("daily")).status is Status.SUCCEEDED
    async with app:
        with pytest.raises(Refused, match="may spend no more for now") as error:
            await app.run("daily")
        assert rule in str(error.value)
        skip_reason = await app.engine._ledger.find_used_up_cap(app.engine.routines["daily"])
        assert skip_reason is not None and rule in skip_reason
    app.clock.advance(days=40)
    async with app:
        assert (await app.run("daily")).status is Status.SUCCEEDED


async def test_a_cap_that_covers_a_short_answer_lets_the_run_start(app: ReplayedApp) -> None:
    script(app, [{"text": "All is well.", "usage": {"input": 100, "output": 20}}])
    # room for some 1,000 tokens, of which the longest answer takes 200
    routine(app, budget="day = 0.01", run="max_tokens = 200")
    async with app:
        assert (await app.run("daily")).status is Status.SUCCEEDED


async def test_a_slot_is_skipped_when_its_budget_is_spent(app: ReplayedApp) -> None:
    script(app, [USED], "[budget]\nday = 0.002")
    app.write_routine(
        "daily", '[trigger]\ncron = "0 * * * *"\n[run]\nprompt = "x"\nmemory = "none"'
    )
    async with app:
        await app.engine.start(await app.daemon.reloader.load_routines())
        await app.journal._db.write(
            lambda connection: connection.execute(
                "INSERT INTO spending (at, run_id, routine, provider, model, outcome, cost) VALUES "
                "(?, 'r', 'other',"
                " 'script', 'm', 'answered', 3000000)",
                (int(app.clock.now().timestamp() * 1e6),),
            )
        )
        app.clock.advance(hours=1)
        async with app.engine._ledger.lock():
            await app.engine._ledger.process_due(["daily"])
        (slot,) = await app.journal.slots.find("daily", limit=1)
        await app.engine.stop()
    assert slot.reason is Reason.BUDGET
    assert slot.rule == "[budget] day = 0.002, $0.0000 left"


async def test_concurrent_runs_cannot_spend_the_same_dollar(app: ReplayedApp) -> None:
    """Each call may come to 1.1 cents and there are 2.3: two at a time; as they come to less, all
    get their turn.
    """
    turn = {
        "text": "ok",
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    # the first two are answered when both are there; the last may come when all others are gone
    turns = [{**turn, "together": 2, "latency": 0.5, "repeat": 2}, {**turn, "repeat": 2}]
    async with FakeVendor(turns) as vendor:
        app.write(
            "config.toml",
            'provider = "local"\n[providers.local]\nkind = "open_source"\nmodel = "m"\nbase_url = '
            f'"{vendor.url}/v1"\n'
            "price = { input = 0, output = 10.0 }\n[budget]\nday = 0.023",
        )
        for number in range(4):
            routine(app, f"r{number}", run="max_tokens = 1100")
        async with app:
            runs = await asyncio.gather(*(app.run(f"r{number}") for number in range(4)))
            assert await app.spending("outcome, cost") == [("answered", 50_000)] * 4
        assert vendor.most_at_once == 2
    assert {run.status for run in runs} == {Status.SUCCEEDED}


async def test_an_interrupted_call_counts_with_its_reservation(app: ReplayedApp) -> None:
    turns = [{"reset": True}, {"error": 400, "message": "no"}, "fine"]
    async with FakeVendor(turns) as vendor:
        app.write(
            "config.toml",
            'provider = "local"\n[providers.local]\nkind = "open_source"\nmodel = "m"\nbase_url = '
            f'"{vendor.url}/v1"\n'
            "price = { input = 0, output = 10.0 }\n[budget]\nday = 0.05",
        )
        routine(app, run="max_tokens = 2000")
        async with app:
            await app.run("daily")  # asked again after the reset, and refused for its form
            assert await app.spending("outcome, cost") == [("unknown", 20_000_001), ("failed", 0)]
            run = await app.run("daily")
            assert run.status is Status.SUCCEEDED


async def test_a_call_of_a_killed_daemon_counts_with_its_reservation(app: ReplayedApp) -> None:
    script(app, [USED], "[budget]\nday = 0.012")
    routine(app, run="max_tokens = 1100")
    async with app:
        await app.journal._db.write(
            lambda connection: connection.execute(
                "INSERT INTO spending (at, run_id, routine, provider, model, outcome, cost) VALUES "
                "(?, 'r', 'daily',"
                " 'script', 'm', 'asked', 11000000)",
                (int(app.clock.now().timestamp() * 1e6),),
            )
        )
        with pytest.raises(Refused, match=r"\$0.0010 left"):
            await app.run("daily")


async def test_dollars_cannot_be_capped_without_a_price(app: ReplayedApp) -> None:
    app.write(
        "config.toml",
        'provider = "local"\n[providers.local]\nkind = "open_source"\nmodel = "llama"\n'
        'base_url = "http://127.0.0.1:1/v1"\n',
    )
    routine(app, "capped", budget="usd = 0.2")
    routine(app, "counted", budget="tokens = 5000")
    routine(app, "falls-back", budget="day = 1", run='provider = "offline"\nfallback = ["local"]')
    async with app:
        assert set(app.faults) == {"capped", "falls-back"}
        text = str(app.faults["capped"])
    assert "run.budget.usd: no price is known for llama of provider local" in text
    assert "providers.local.price = { input = 3.0, output = 15.0 }" in text
    assert "cap tokens only" in text


async def test_a_global_dollar_cap_requires_a_price_of_every_used_model(app: ReplayedApp) -> None:
    app.write(
        "config.toml",
        'provider = "offline"\n[providers.local]\nkind = "open_source"\nmodel = "llama"\n'
        'base_url = "http://127.0.0.1:1/v1"\n[budget]\nmonth = 30',
    )
    routine(app, "quiet")
    routine(app, "asks", run='provider = "local"')
    async with app:
        assert set(app.faults) == {"asks"}
    assert "budget.month of config.toml caps dollars" in str(app.faults["asks"])


async def test_usage_is_shown_by_routine_model_and_day(app: ReplayedApp) -> None:
    script(
        app,
        [USED, USED, {"text": "x", "usage": {"input": 10, "output": 1}}],
        "[budget]\nday = 1\nday_tokens = 9999",
    )
    routine(app, "daily", budget="month = 2")
    routine(app, "other")
    async with app:
        await app.run("daily")
        app.clock.advance(hours=11, minutes=30)  # past midnight in Berlin, not in London
        await app.run("daily")
        await app.run("other")
        api = api_context(app.daemon)
        usage = {by: await show_usage(api, by=by) for by in GroupBy}
    assert [
        (item["key"], item["calls"], item["usd"]) for item in usage[GroupBy.ROUTINE]["items"]
    ] == [
        ("daily", 2, 0.004),
        ("other", 1, 0.00002),
    ]
    assert [(item["key"], item["input"]) for item in usage[GroupBy.MODEL]["items"]] == [
        ("scripted", 2010)
    ]
    assert [(item["key"], item["calls"]) for item in usage[GroupBy.DAY]["items"]] == [
        ("2026-11-20", 1),
        ("2026-11-21", 2),
    ]
    assert usage[GroupBy.DAY]["total"]["usd"] == 0.00402
    assert [
        (cap["routine"], cap["rule"], cap["period"], cap["unit"], cap["spent"])
        for cap in usage[GroupBy.DAY]["caps"]
    ] == [
        (None, "[budget] day = 1", "day", "usd", 0.00202),
        (None, "[budget] day_tokens = 9999", "day", "tokens", 1111),
        ("daily", "[run.budget] month = 2", "month", "usd", 0.004),
    ]


async def test_tokens_of_a_run_are_reserved_before_each_call(app: ReplayedApp) -> None:
    script(app, [{"text": "Short.", "usage": {"input": 800, "output": 90}}])
    routine(app, budget="tokens = 4000")
    async with app:
        assert (await app.run("daily")).status is Status.SUCCEEDED
        (call,) = app.model_named("script").calls
        assert 64 <= call.options["max_tokens"] < 4000, "what is asked takes its share"
        assert await app.spending("outcome, input, output") == [("answered", 800, 90)]


async def test_a_call_over_the_token_budget_of_its_run_is_not_made(app: ReplayedApp) -> None:
    look = {
        "tool_calls": [{"name": "self_info", "arguments": {}}],
        "usage": {"input": 2900, "output": 50},
    }
    script(app, [look, "never asked"])
    routine(app, budget="tokens = 3000", run='mode = "agent"\ntools = ["self_info"]')
    async with app:
        run = await app.run("daily")
        assert len(app.model_named("script").calls) == 1
        assert (await app.parts.replays.replay(run.id))["identical"]
    assert (
        run.status is Status.FAILED
        and "the budget of 3000 tokens does not cover another call" in str(run.detail)
    )


async def test_a_sub_agent_spends_the_token_budget_of_its_parent_run(
    app: ReplayedApp,
) -> None:
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "subagent"\neffect = "allow"\n')
    begin = {"tool_calls": [{"name": "subagent", "arguments": {"task": "Count."}}]}
    script(
        app,
        [
            {**begin, "usage": {"input": 1000, "output": 50}},
            {"text": "Counted.", "usage": {"input": 5000, "output": 500}},
            "Done.",
        ],
    )
    routine(app, budget="tokens = 20000", run='mode = "agent"\ntools = ["subagent"]')
    async with app:
        assert (await app.run("daily")).status is Status.SUCCEEDED
        rooms = [call.options["max_tokens"] for call in app.model_named("script").calls]
        (run,) = await app.journal.runs.find("daily")
        cost, tokens = await app.journal.spending.get_total_of_run(run.id)
    assert cost >= 11_500_000 and tokens >= 6550, "both runs are in it"
    assert rooms[2] < 20_000 - 1000 - 50 - 5500, "what the sub-agent took is gone"


async def test_a_sub_agent_spends_the_day_of_its_parents_routine_and_of_no_other(
    app: ReplayedApp,
) -> None:
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "subagent"\neffect = "allow"\n')
    begin = {"tool_calls": [{"name": "subagent", "arguments": {"task": "Count."}}]}
    turns = [
        {**begin, "usage": {"input": 1000, "output": 100}},
        {"text": "Counted.", "usage": {"input": 20_000, "output": 2000}},
        {"text": "Done.", "usage": {"input": 1000, "output": 100}},
    ]
    script(app, [*turns, *turns, "never asked"])
    for name in ("research", "other"):
        routine(app, name, budget="day = 0.2", run='mode = "agent"\ntools = ["subagent"]')
    async with app:
        for name in ("research", "other"):
            assert (await app.run(name)).status is Status.SUCCEEDED
        usage = await show_usage(api_context(app.daemon), by=GroupBy.ROUTINE)
    assert [(item["key"], item["calls"], item["usd"]) for item in usage["items"]] == [
        ("other", 3, 0.044),
        ("research", 3, 0.044),
    ]
    assert [(cap["routine"], cap["spent"]) for cap in usage["caps"]] == [
        ("other", 0.044),
        ("research", 0.044),
    ]


async def test_a_total_counts_what_was_spent_while_no_cap_in_force_needed_it(
    app: ReplayedApp,
) -> None:
    settings = SimpleNamespace(config=None, zone=UTC)
    run_budget = RunBudget(run="r", routine="daily", budget=Budget())
    rates = Rates.from_config(PriceConfig(input=1.0, output=10.0))
    async with app:
        budget_ledger = BudgetLedger(app.journal.spending, clock=app.clock, settings=settings)  # type: ignore[arg-type]

        async def spend(dollars: int, **caps: int) -> None:
            settings.config = Config.model_validate({"budget": caps})
            reservation = await budget_ledger.reserve(
                run_budget, rates, input_tokens=1000, max_tokens=2000
            )
            budget_ledger.settle(
                reservation, run_budget, app.clock.now(), cost=dollars * NANO, tokens=3000
            )

        await spend(1, month=10)
        await spend(8, day=50)
        settings.config = Config.model_validate({"budget": {"month": 10, "day": 50}})
        left = {cap.period: cap for cap in await budget_ledger.caps(run_budget)}
    assert left["month"].describe() == "[budget] month = 10, $1.0000 left"
    assert left["month"].reserved == 0


@pytest.mark.parametrize(
    ("price", "is_run"), [("input = 0, output = 0", True), ("input = 1, output = 1", False)]
)
async def test_a_cap_of_no_dollars_leaves_models_without_a_price_alone(
    app: ReplayedApp, price: str, is_run: bool
) -> None:
    config = MODEL.format(replies='["All is well."]', more="[budget]\nday = 0")
    app.write("config.toml", config.replace("input = 1.0, output = 10.0", price))
    routine(app)
    async with app:
        cap = await app.engine._ledger.find_used_up_cap(app.engine.routines["daily"])
        if is_run:
            assert cap is None
            assert (await app.run("daily")).status is Status.SUCCEEDED
        else:
            assert cap == "[budget] day = 0, $0.0000 left"


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": -100_000, "completion_tokens": -1},
        {"prompt_tokens": 10**40, "completion_tokens": True},
        {"prompt_tokens": "many", "completion_tokens": 1.5},
    ],
    ids=["none", "negative", "absurd", "no numbers"],
)
async def test_an_answer_whose_tokens_the_vendor_does_not_count_is_counted_by_estimate(
    app: ReplayedApp, usage: Any
) -> None:
    async with FakeVendor([{"text": "well " * 1000, "usage": usage, "repeat": 9}]) as vendor:
        app.write(
            "config.toml",
            'provider = "local"\n[providers.local]\nkind = "open_source"\nmodel = "m"\nbase_url = '
            f'"{vendor.url}/v1"\n[budget]\nday_tokens = 4000',
        )
        routine(app, run="max_tokens = 1500")
        async with app:
            run = await app.run("daily")
            assert run.status is Status.SUCCEEDED
            assert 1000 < run.usage.output < 2500 and run.usage.input > 10
            await app.run("daily")
            with pytest.raises(Refused, match=r"may spend no more.*day_tokens = 4000"):
                await app.run("daily")


async def test_calls_that_begin_together_after_a_restart_count_what_was_spent(
    app: ReplayedApp,
) -> None:
    """As of runs that a crash broke off: the first one reads the total while the others ask."""
    script(app, [USED], "[budget]\nday = 0.0125")
    routine(app)
    async with app:
        await app.run("daily")
    again = ReplayedApp(app.folder)
    async with again:
        ledger = again.daemon.runs.parts.contexts.services.budget_ledger
        rates = await ledger.prices.load("script", None)
        reservations = await asyncio.gather(
            *(
                ledger.reserve(
                    RunBudget(run=f"r{number}", routine="daily", budget=Budget()),
                    rates,
                    input_tokens=1000,
                    max_tokens=4000,
                )
                for number in range(3)
            ),
            return_exceptions=True,
        )
    assert [type(reservation) for reservation in reservations] == [OverBudget] * 3


async def write_turn(app: ReplayedApp, number: int) -> Run:
    """Write a run of `ask` into the journal, the first of a conversation; return it, queued."""
    claim = Claim(
        routine="ask",
        definition=ask_routine(app.daemon.settings.config).dump(),
        trigger="ask",
        slot=app.clock.advance(minutes=1),
        goal=f"question {number}",
        event=f"default/{number}",
        input={"session": "default"},
    )
    (run,) = await app.journal.slots.claim([claim])
    assert run
    return run


async def test_the_question_which_run_a_message_belongs_to_is_paid(app: ReplayedApp) -> None:
    script(app, [{"text": "new", "usage": {"input": 1000, "output": 100}}, USED])
    async with app:
        run_under_way = await write_turn(app, 1)
        message = await app.daemon.runs.conversations.ask("How are you?", event="e")
        assert message.has_new_run
        await app.finish(message.run.id)
        assert await app.spending("run_id, routine, cost") == [
            ("", "ask", 2_000_000),
            (message.run.id, "ask", 2_000_000),
        ]
        await app.journal.runs.request_cancel(run_under_way.id)


async def test_a_cap_on_the_day_covers_the_question_which_run_a_message_belongs_to(
    app: ReplayedApp,
) -> None:
    script(app, ["new", "never asked"], more="[budget]\nday = 0.000001\n")
    async with app:
        run_under_way = await write_turn(app, 1)
        message = await app.daemon.runs.conversations.ask("How are you?", event="e")
        run = await app.finish(message.run.id)
        assert message.has_new_run and run.status is Status.FAILED
        assert app.model_named("script").calls == []
        await app.journal.runs.request_cancel(run_under_way.id)


async def test_the_summary_of_a_conversation_is_paid_by_the_run_that_needs_it(
    app: ReplayedApp,
) -> None:
    summary = {"text": "A summary.", "usage": {"input": 1000, "output": 100}}
    script(app, [*MAX_TURNS * ["answer"], summary, USED])
    async with app:
        for number in range(MAX_TURNS + 1):
            message = await app.daemon.runs.conversations.ask("And now?", event=str(number))
            await app.finish(message.run.id)
        assert (await app.spending("run_id, cost"))[-2:] == 2 * [(message.run.id, 2_000_000)]
