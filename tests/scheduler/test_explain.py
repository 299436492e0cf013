"""`why` explains any slot in one sentence with the rule that decided it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.schedule import spread_offset
from daemon.models import Outcome, Reason, Run, Status
from daemon.scheduler.explain import SlotExplanation, SlotQuery, default_slot, explain
from daemon.scheduler.skip_reasons import UNREHEARSED
from daemon.store.journal import RoutineState, SlotRow
from daemon.testing import TestApp, tool_call
from tests.cli.agentctl import agentctl
from tests.engine_harness import HALF_HOURLY, EngineHarness, at, routine
from tests.engine_harness import schedule_of_routine as schedule_of
from tests.properties import scaled_settings


def row(first: str, outcome: Outcome, reason: Reason | None = None, **more: Any) -> SlotRow:
    fields = {"last": at(first), "count": 1, "event": None, "run": None, "lateness": 0.0, **more}
    return SlotRow(routine="daily", first=at(first), outcome=outcome, reason=reason, **fields)


def run(status: Status, **more: Any) -> Run:
    fields = {
        "routine": "daily",
        "definition": "d",
        "trigger": "cron",
        "slot": at("01 09:00"),
        "created": at("01 09:00"),
    }
    return Run(id="01ABCDEFGHJKMNPQRSTVWXYZ12", status=status, **{**fields, **more})


def explain_slot(
    moment: str,
    *,
    now: str = "05 12:00",
    rows: Any = (),
    next_row: Any = None,
    last_run: Run | None = None,
    baseline: str = "01 00:00",
    state: Any = None,
    seconds: int = 60,
    elsewhere: str = "",
    needs_rehearsal: bool = False,
    paced_start: str | None = None,
    file_changed: str | None = None,
    **words: Any,
) -> SlotExplanation:
    """Ask why about a minute of January; by default about a routine that runs at nine each day, in
    UTC.
    """
    routine_ = routine(**{"trigger": {"cron": "0 9 * * *", "timezone": "UTC"}, **words})
    state_fields = {
        "name": "daily",
        "schedule_key": "k",
        "baseline": at(baseline),
        "paused": False,
        **(state or {}),
    }
    return explain(
        SlotQuery(
            routine=routine_,
            schedule=schedule_of(routine_),
            state=RoutineState(**state_fields),
            first=at(moment),
            until=at(moment) + timedelta(seconds=seconds),
            now=at(now),
            rows=rows,
            next_row=next_row,
            run=last_run,
            elsewhere=elsewhere,
            needs_rehearsal=needs_rehearsal,
            paced_start=at(paced_start) if paced_start else None,
            file_changed=at(file_changed) if file_changed else None,
        )
    )


NINE = 'cron = "0 9 * * *"'
HOURS = {
    "trigger": {"every": timedelta(minutes=30), "timezone": "UTC", "active_hours": "08:00-22:00"}
}


@pytest.mark.parametrize(
    ("arguments", "outcome", "sentence"),
    [
        (
            {"rows": [row("02 09:00", Outcome.RAN, run="r")], "last_run": run(Status.SUCCEEDED)},
            "ran",
            f"daily started on time for @, by {NINE}; run TVWXYZ12 succeeded.",
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.RAN, run="r")],
                "last_run": run(Status.FAILED, detail="no key"),
            },
            "ran",
            f"daily started on time for @, by {NINE}; run TVWXYZ12 failed (no key).",
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.LATE, run="r", lateness=14_520.0)],
                "last_run": run(Status.RUNNING),
            },
            "late",
            (
                "daily started 4 h 2 min late for @: the machine slept over it, or its "
                "clock was"
                ' set, and catch_up = "once" starts the latest missed slot if late by at most half '
                "the period (12"
                " h); run TVWXYZ12 is under way."
            ),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.CAUGHT_UP, run="r", lateness=3600.0)],
                "last_run": run(Status.QUEUED, not_before=at("02 10:00")),
                "trigger": {"cron": "0 9 * * *", "timezone": "UTC", "catch_up": "6h"},
            },
            "caught_up",
            (
                "daily was caught up 1 h late for @: the daemon was down at the time, and "
                "catch_up ="
                ' "6h" starts the latest missed slot if it is no later than that; run TVWXYZ12 '
                "waits for its time."
            ),
        ),
        (
            {"rows": [row("02 09:00", Outcome.SKIPPED, Reason.OVERLAP)]},
            "skipped",
            'daily skipped @: an earlier run of it was still under way, and overlap = "skip".',
        ),
        (
            {"rows": [row("02 09:00", Outcome.SKIPPED, Reason.QUIET_HOURS)], **HOURS},
            "skipped",
            'daily skipped @: it lay outside of active_hours = "08:00-22:00".',
        ),
        (
            {"rows": [row("02 09:00", Outcome.SKIPPED, Reason.PAUSED)]},
            "skipped",
            "daily skipped @: it was paused.",
        ),
        (
            {"rows": [row("02 09:00", Outcome.SKIPPED, Reason.BACKOFF)]},
            "skipped",
            (
                'daily skipped @: it rested, as its last runs had failed (backoff = "30s", '
                'doubling up to max = "10m").'
            ),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.SKIPPED, Reason.GATE, rule="max_per_day = 2")],
                "gate": {"idle": "4h", "max_per_day": 3},
            },
            "skipped",
            ("daily skipped @: its gate was closed before anything was asked: max_per_day = 2."),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.SKIPPED, Reason.GATE, run="r")],
                "last_run": run(Status.SKIPPED, detail="the gate's command said no: test -s todo"),
            },
            "skipped",
            (
                "daily skipped @: its gate was closed: the gate's command said no: test -s todo "
                "(run TVWXYZ12)."
            ),
        ),
        (
            {"rows": [row("02 09:00", Outcome.LATE, Reason.DISK_FULL, lateness=300.0)]},
            "late",
            (
                "daily started 5 min late for @: the disk was full, and the daemon could write "
                'nothing, and catch_up = "once" starts the latest missed slot if late by at most '
                "half the period (12 h)."
            ),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.MISSED, Reason.DISK_FULL)],
                "trigger": {"cron": "0 9 * * *", "timezone": "UTC", "catch_up": "none"},
            },
            "missed",
            (
                "daily missed @: the disk was full, and the daemon could write nothing, and"
                ' catch_up = "none" starts no slot late.'
            ),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.MISSED, Reason.DOWN)],
                "trigger": {"cron": "0 9 * * *", "timezone": "UTC", "catch_up": "none"},
            },
            "missed",
            (
                "daily missed @: the daemon was down or asleep, or its clock jumped, and"
                ' catch_up = "none" starts no slot late.'
            ),
        ),
        (
            {"rows": [row("01 09:00", Outcome.MISSED, Reason.DOWN, last=at("03 09:00"), count=3)]},
            "missed",
            (
                "daily missed @, as 3 slots in a row were (Thu 01 Jan 09:00 UTC to Sat 03 Jan 09:00 "  # noqa: E501
                "UTC): the daemon was down or asleep, or its clock jumped, and of all missed slots "
                "only the latest one may be caught up."
            ),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.MISSED, Reason.DOWN)],
                "next_row": row("03 09:00", Outcome.CAUGHT_UP, run="r"),
            },
            "missed",
            (
                "daily missed @: the daemon was down or asleep, or its clock jumped, and of all "
                "missed"
                " slots only the latest one may be caught up."
            ),
        ),
        (
            {"rows": [row("02 09:00", Outcome.MISSED, Reason.DOWN)]},
            "missed",
            (
                "daily missed @: the daemon was down or asleep, or its clock jumped, and it was too "  # noqa: E501
                "late by"
                ' then: catch_up = "once" starts the latest missed slot if late by at most half the '  # noqa: E501
                "period (12 h)."
            ),
        ),
        (
            {"now": "02 07:30"},
            "not_yet",
            f"daily is not due until @, in 1 h 30 min, by {NINE}.",
        ),
        (
            {"now": "02 07:30", "state": {"paused": True, "paused_why": "3 runs in a row failed"}},
            "not_yet",
            (
                "daily is not due until @, in 1 h 30 min, and will be skipped then: it is "
                "paused"
                " until it is resumed (3 runs in a row failed)."
            ),
        ),
        (
            {
                "now": "02 07:30",
                "trigger": {"cron": "0 9 * * *", "timezone": "UTC", "active_days": "mon"},
            },
            "not_yet",
            (
                "daily is not due until @, in 1 h 30 min, and will be skipped then: it lies "
                "outside"
                ' of active_days = "mon".'
            ),
        ),
        (
            {"baseline": "03 12:00"},
            "before_baseline",
            (
                "daily did not start at @: the schedule counts since Sat 03 Jan 12:00 UTC, when it "
                "was"
                " first seen, edited, enabled or resumed, or the clock was put back."
            ),
        ),
        (
            {"baseline": "03 12:00", "file_changed": "03 12:00"},
            "before_baseline",
            (
                "daily did not start at @: the schedule counts since Sat 03 Jan 12:00 UTC, just "
                "after its file was written."
            ),
        ),
        (
            {
                "baseline": "03 12:00",
                "file_changed": "03 12:00",
                "state": {"failures_reset": at("03 12:00")},
            },
            "before_baseline",
            (
                "daily did not start at @: the schedule counts since Sat 03 Jan 12:00 UTC, when "
                "its pause ended."
            ),
        ),
        (
            {"enabled": False},
            "disabled",
            "daily does not start at @: its file says enabled = false.",
        ),
        ({}, "undecided", "daily is due since @, and its start is being decided right now."),
        (
            {"trigger": {"cron": "0 8 * * *", "timezone": "UTC"}},
            "never_due",
            (
                "daily is never due at @: it runs at 08:00, UTC; its slots around that are Fri 02 "
                "Jan"
                " 08:00 UTC and Sat 03 Jan 08:00 UTC."
            ),
        ),
        ({"trigger": {}}, "never_due", "daily has no fixed times: it runs by hand only."),
        (
            {
                "rows": [row("02 09:00", Outcome.RAN, event="e", run="r")],
                "last_run": run(Status.SUCCEEDED, trigger="manual"),
                "trigger": {},
            },
            "ran",
            "daily was started by hand at @; run TVWXYZ12 succeeded.",
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.RAN, event="e", run="r")],
                "last_run": run(Status.SUCCEEDED, trigger="on_start"),
                "trigger": {"cron": "0 8 * * *", "on_start": True, "timezone": "UTC"},
            },
            "ran",
            (
                "daily was started as the daemon started (on_start = true) at @, not by its "
                "schedule;"
                " run TVWXYZ12 succeeded."
            ),
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.RAN, event="e", run="r")],
                "last_run": run(Status.SUCCEEDED, trigger="watch"),
                "trigger": {"watch": ["inbox/*"]},
            },
            "ran",
            "daily was started by files that had landed (watch) at @; run TVWXYZ12 succeeded.",
        ),
        (
            {
                "rows": [row("02 09:00", Outcome.SKIPPED, Reason.OVERLAP, event="e")],
                "trigger": {"after": ["backup"]},
            },
            "skipped",
            'daily skipped @: an earlier run of it was still under way, and overlap = "skip".',
        ),
        (
            {"trigger": {"watch": ["inbox/*"]}},
            "never_due",
            "daily has no fixed times: it runs when a file lands in inbox/*.",
        ),
        (
            # the ledger knows what was, whatever the file says now
            {
                "rows": [row("02 09:00", Outcome.RAN, run="r")],
                "last_run": run(Status.SUCCEEDED),
                "trigger": {"cron": "0 8 * * *", "timezone": "UTC"},
            },
            "ran",
            "daily started on time for @, by the schedule it had then; run TVWXYZ12 succeeded.",
        ),
        *[
            (
                {
                    "rows": [row("02 09:00", Outcome.RAN, run="r")],
                    "last_run": run(Status.SUCCEEDED),
                    "baseline": "03 12:00",
                    "file_changed": file_changed,
                },
                "ran",
                f"daily started on time for @, by {rule}; run TVWXYZ12 succeeded.",
            )
            for file_changed, rule in (
                ("03 12:00", "the schedule it had then"),
                ("01 12:00", NINE),  # the baseline moved by a pause
            )
        ],
    ],
)
def test_why_names_the_rule_in_one_sentence(
    arguments: dict[str, Any], outcome: str, sentence: str
) -> None:
    because = explain_slot("02 09:00", **arguments)
    assert because.sentence == sentence.replace("@", "Fri 02 Jan 09:00 UTC")
    assert because.outcome == outcome
    assert because.rule in because.sentence or because.rule == "the ledger"


def test_why_names_the_missing_rehearsal() -> None:
    before = explain_slot(
        "02 09:00", rows=[row("02 09:00", Outcome.SKIPPED, Reason.GATE, rule=UNREHEARSED)]
    )
    assert before.sentence == (
        "daily skipped Fri 02 Jan 09:00 UTC: it was held back (rehearse_first = true, and no "
        "rehearsal of it as it is "
        "now was approved); agentctl rehearse daily shows what it would do."
    )
    explanation = explain_slot("06 09:00", needs_rehearsal=True)
    assert (explanation.outcome, explanation.rule) == ("not_yet", UNREHEARSED)
    assert explanation.sentence.endswith(
        "and will be skipped then: it is held back (" + UNREHEARSED + "); agentctl rehearse daily."
    )


def test_why_names_the_machines_of_a_routine() -> None:
    because = explain_slot("02 09:00", elsewhere="not on this machine: desk is none of box-*")
    assert because.outcome == "elsewhere"
    assert because.sentence == (
        "daily does not start here at Fri 02 Jan 09:00 UTC: not on this machine: desk is none "
        "of box-*."
    )


def test_why_names_the_start_of_a_slot_waiting_for_its_spread() -> None:
    offset = spread_offset("daily", timedelta(minutes=10), "")
    because = explain_slot(
        "02 09:00",
        now="02 09:00",
        trigger={"cron": "0 9 * * *", "timezone": "UTC", "spread": "10m"},
    )
    assert because.sentence == (
        "daily is due since Fri 02 Jan 09:00 UTC and starts at "
        f"{at('02 09:00') + offset:%a %d %b %H:%M:%S} UTC,"
        ' by spread = "10m".'
    )


def test_why_names_the_random_moments_of_the_day() -> None:
    keys = {**HOURS, "gate": {"moments": 2}, "deliver": [{"to": "log"}]}
    because = explain_slot(
        "02 09:00",
        rows=[row("02 09:00", Outcome.SKIPPED, Reason.GATE, rule="moments = 2")],
        **keys,
    )
    assert "moments = 2 (drawn for that day: " in because.sentence
    sentence = explain_slot("06 09:00", **keys).sentence
    assert (
        "starts only if no run reported since the last random moment" in sentence
        or "by every" in sentence
    )


def test_why_without_a_time_explains_the_last_or_else_the_next_slot() -> None:
    daily = schedule_of(routine(trigger={"cron": "0 9 * * *", "timezone": "UTC"}))
    state = RoutineState(name="daily", schedule_key="k", baseline=at("01 00:00"), paused=False)
    assert default_slot(daily, state, at("05 12:00"), None) == at("05 09:00")
    assert default_slot(daily, state, at("01 08:00"), None) == at("01 09:00")
    resumed_state = RoutineState(
        name="daily", schedule_key="k", baseline=at("05 10:00"), paused=False
    )
    assert default_slot(
        daily, resumed_state, at("05 12:00"), row("04 09:00", Outcome.MISSED)
    ) == at("04 09:00")


@scaled_settings(100)
@given(
    st.sampled_from(
        [{"cron": "*/20 8-17 * * 1-5"}, {"every": timedelta(minutes=7)}, {"at": at("03 09:00")}, {}]
    ),
    st.sampled_from(list(Outcome)),
    st.none() | st.sampled_from(list(Reason)),
    st.booleans(),
    st.integers(0, 6 * 24 * 60),
    st.integers(0, 6 * 24 * 60),
)
def test_why_explains_every_moment(
    trigger: dict[str, Any],
    outcome: Outcome,
    reason: Reason | None,
    is_recorded: bool,
    minute: int,
    now: int,
) -> None:
    moment = at("01 00:00") + timedelta(minutes=minute)
    rows = [row(moment.isoformat()[:16], outcome, reason)] if is_recorded else []
    because = explain_slot(
        moment.isoformat()[:16],
        now=(at("01 00:00") + timedelta(minutes=now)).isoformat()[:16],
        rows=rows,
        trigger={**trigger, "timezone": "UTC"} if trigger else {},
    )
    assert because.sentence.startswith("daily ")
    assert because.sentence.endswith(".")
    assert "\n" not in because.sentence
    assert "None" not in because.sentence


async def test_why_agrees_with_what_the_engine_did(harness: EngineHarness) -> None:
    daily = routine(trigger=HALF_HOURLY)
    await harness.boot(daily)
    await harness.reach("01 08:30")
    await harness.crash()
    await harness.reach("01 10:10")
    await harness.boot(daily)
    explanations = {}
    for moment in ("01 08:00", "01 08:30", "01 09:00", "01 10:00", "01 10:30", "01 10:10"):
        first = at(moment)
        rows = await harness.journal.slots.find_within("daily", first, first + timedelta(minutes=1))
        after = await harness.journal.slots.find_within(
            "daily", first + timedelta(minutes=1), datetime.now(UTC)
        )
        explanations[moment] = explain(
            SlotQuery(
                routine=daily,
                schedule=harness.engine.schedule(daily),
                state=harness.engine.states["daily"],
                first=first,
                until=first + timedelta(minutes=1),
                now=datetime.now(UTC),
                rows=rows,
                next_row=after[0] if after else None,
                run=None,
            )
        ).outcome
    assert list(explanations.values()) == [
        "before_baseline",
        "ran",
        "missed",
        "skipped",
        "not_yet",
        "never_due",
    ]


async def test_why_names_the_command_that_approves_what_a_run_waits_for(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine(
        "notes",
        """
[trigger]
cron = "0 9 * * *"
[run]
mode = "agent"
prompt = "Write it down."
tools = ["file_write"]
""",
    )
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "file_write"\neffect = "ask"\n')
    async with app, app.serve_api() as socket:
        app.model.enqueue(tool_call("file_write", path="a.md", content="x"), "Done.")
        run = await app.run("notes")
        assert run.status is Status.WAITING
        [approval] = await app.daemon.store.journal.approvals.find_of_run(run.id)
        command = f"agentctl approve {approval.id[-8:]}"
        question = f"un {run.id[-8:]} waits for a person to allow file_write: {command}."
        by_hand = (
            await app.request("GET", f"/v1/routines/notes/why?at={run.slot:%Y-%m-%dT%H:%M}Z")
        ).json
        assert by_hand["sentence"].count(question) == 1
        assert by_hand["run"] == run.id
        sentence = (await app.request("GET", "/v1/routines/notes/why")).json["sentence"]
        assert sentence.startswith("notes ")
        assert sentence.endswith(f"R{question}"), "also where another slot is the last one"
        assert (await agentctl(socket, *command.split()[1:])).code == 0
        app.model.enqueue("Done.")
        assert (await app.finish(run.id)).status is Status.SUCCEEDED
        sentence = (await app.request("GET", "/v1/routines/notes/why")).json["sentence"]
        assert "waits" not in sentence


# --- several triggers, and days to skip

TWO = {
    "trigger": [
        {"cron": "0 9 * * 1-5", "timezone": "UTC", "skip": ["2026-01-07/2026-01-08"]},
        {"cron": "0 12 * * *", "timezone": "UTC", "active_days": "sat,sun", "catch_up": "none"},
        {"webhook": True},
    ]
}


@pytest.mark.parametrize(
    ("moment", "arguments", "sentence"),
    [
        (
            "02 09:00",
            {"rows": [row("02 09:00", Outcome.RAN, run="r")], "last_run": run(Status.SUCCEEDED)},
            (
                'started on time for Fri 02 Jan 09:00 UTC, by cron = "0 9 * * 1-5"; run TVWXYZ12 '
                "succeeded."
            ),
        ),
        (
            "03 12:00",
            {"rows": [row("03 12:00", Outcome.MISSED, Reason.DOWN)]},
            (
                "missed Sat 03 Jan 12:00 UTC: the daemon was down or asleep, or its clock jumped, "
                'and catch_up = "none" starts no slot late.'
            ),
        ),
        (
            "02 12:00",
            {"rows": [row("02 12:00", Outcome.SKIPPED, Reason.QUIET_HOURS, rule=None)]},
            'skipped Fri 02 Jan 12:00 UTC: it lay outside of active_days = "sat,sun".',
        ),
        (
            "07 09:00",
            {
                "rows": [
                    row(
                        "07 09:00",
                        Outcome.SKIPPED,
                        Reason.QUIET_HOURS,
                        rule='skip = "2026-01-07/2026-01-08"',
                    )
                ]
            },
            (
                "skipped Wed 07 Jan 09:00 UTC: it lay on a day to skip "
                '(skip = "2026-01-07/2026-01-08").'
            ),
        ),
        (
            "08 09:00",
            {"now": "08 08:00"},
            (
                "is not due until Thu 08 Jan 09:00 UTC, in 1 h, and will be skipped then: it lies "
                'on a day to skip (skip = "2026-01-07/2026-01-08").'
            ),
        ),
        (
            "09 09:00",
            {"now": "09 08:00"},
            'is not due until Fri 09 Jan 09:00 UTC, in 1 h, by cron = "0 9 * * 1-5".',
        ),
        (
            "02 10:00",
            {},
            (
                "is never due at Fri 02 Jan 10:00 UTC: it runs at 09:00 on weekdays, UTC, but not "
                "on 2026-01-07 to 2026-01-08; or at 12:00 on weekends, UTC; or by webhook; its "
                "slots around that are Fri 02 Jan 09:00 UTC and Fri 02 Jan 12:00 UTC."
            ),
        ),
        (
            "02 10:30",
            {
                "rows": [row("02 10:30", Outcome.RAN, event="webhook 1", run="r")],
                "last_run": run(Status.SUCCEEDED, trigger="webhook"),
            },
            (
                "was started by a webhook (webhook = true) at Fri 02 Jan 10:30 UTC, not by its "
                "schedule; run TVWXYZ12 succeeded."
            ),
        ),
    ],
)
def test_the_trigger_that_has_a_slot_explains_it(
    moment: str, arguments: dict[str, Any], sentence: str
) -> None:
    assert explain_slot(moment, **TWO, **arguments).sentence == f"daily {sentence}"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "By its pace it starts next at Mon 05 Jan 12:20 UTC, in 20 min."),
        (
            {"paused": True},
            "It is paused, so its pace starts no run (agentctl resume daily ends that).",
        ),
        (
            {"paused": True, "paused_until": at("05 13:00")},
            "It is paused, so its pace starts no run (until Mon 05 Jan 13:00 UTC).",
        ),
    ],
)
def test_a_pace_that_is_paused_is_said_to_start_nothing(state: Any, words: str) -> None:
    explanation = explain_slot(
        "05 12:00",
        state=state,
        paced_start="05 12:20",
        trigger={"pace": "5m..6h", "timezone": "UTC"},
        run={"mode": "agent"},
    )
    assert explanation.sentence.endswith(f" {words}")


async def test_why_tells_that_a_schedule_counts_since_its_file_was_written_or_its_pause_ended(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    file = app.write_routine("daily", '[trigger]\ncron = "0 9 * * *"\n[run]\nprompt = "x"\n')
    written = (app.clock.now() - timedelta(seconds=2)).timestamp()
    os.utime(file, (written, written))

    async def why() -> str:
        path = "/v1/routines/daily/why?at=2026-11-19T09:00:00Z"
        return str((await app.request("GET", path)).json["sentence"])

    async with app:
        assert (await why()).endswith("Fri 20 Nov 12:00 UTC, just after its file was written.")
        os.utime(file, (written - 60, written - 60))
        assert "when it was first seen, edited" in await why()
        engine = app.daemon.scheduling.engine
        await engine.pause("daily")
        app.advance(hours=1)
        await engine.resume("daily")
        assert (await why()).endswith("Fri 20 Nov 13:00 UTC, when its pause ended.")
