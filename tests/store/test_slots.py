"""Every slot is accounted for exactly once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil, floor
from zoneinfo import ZoneInfo

import pytest

from daemon.errors import NotFound
from daemon.models import Outcome, Reason, Status
from daemon.store.journal import SlotRange
from daemon.testing import FakeClock
from tests.store.conftest import START, Ledger

HOUR = timedelta(hours=1)


def at(hour: float) -> datetime:
    return START + hour * HOUR


async def recorded_rows(
    ledger: Ledger, routine: str = "daily"
) -> list[tuple[float, float, int, str, str | None]]:
    """Return the ledger's rows, oldest first, with hours since START."""
    return [
        ((row.first - START) / HOUR, (row.last - START) / HOUR, row.count, row.outcome, row.reason)
        for row in reversed(await ledger.journal.slots.find(routine))
    ]


def hourly(after: datetime, before: datetime) -> SlotRange | None:
    """Return the full hours between two moments."""
    first, last = floor((after - START) / HOUR) + 1, ceil((before - START) / HOUR) - 1
    return (
        SlotRange(first=at(first), last=at(last), count=last - first + 1) if first <= last else None
    )


async def account_slots(
    ledger: Ledger, first: float, last: float, count: int, reason: Reason = Reason.DOWN
) -> list[tuple[float, float, int]]:
    """Tell of slots that were not started; return what was new of them."""
    outcome = Outcome.MISSED if reason is Reason.DOWN else Outcome.SKIPPED
    new = await ledger.journal.slots.account(
        "daily",
        first=at(first),
        last=at(last),
        count=count,
        outcome=outcome,
        reason=reason,
        between=hourly,
    )
    return [
        ((slot_range.first - START) / HOUR, (slot_range.last - START) / HOUR, slot_range.count)
        for slot_range in new
    ]


async def put_right(ledger: Ledger, remains: SlotRange | None = None) -> None:
    """Take back what was told ahead of the clock; of a row that it stands in, `kept` remains."""
    await ledger.journal.slots.reopen_future_slots(lambda row, baseline: remains)


# --- baselines


async def test_a_new_routine_and_a_changed_schedule_have_their_baseline_now(
    ledger: Ledger, clock: FakeClock
) -> None:
    first = await ledger.journal.routines.set_baselines({"a": "1", "b": "1"})
    assert {state.baseline for state in first.values()} == {START}
    later = clock.advance(hours=5)
    states = await ledger.journal.routines.set_baselines({"a": "1", "b": "2", "c": "1"})
    assert {name: state.baseline for name, state in states.items()} == {
        "a": START,
        "b": later,
        "c": later,
    }
    assert await ledger.journal.routines.get_states() == states


async def test_a_removed_routine_keeps_its_baseline(ledger: Ledger, clock: FakeClock) -> None:
    await ledger.journal.routines.set_baselines({"a": "1"})
    clock.advance(hours=1)
    assert (await ledger.journal.routines.set_baselines({}))["a"].baseline == START


async def test_resuming_sets_a_new_baseline_and_pausing_does_not(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ledger.journal.routines.set_baselines({"a": "1"})
    clock.advance(hours=1)
    await ledger.journal.routines.pause("a")
    state = (await ledger.journal.routines.get_states())["a"]
    assert (state.paused, state.baseline) == (True, START)
    resume_time = clock.advance(hours=1)
    await ledger.journal.routines.resume("a")
    clock.advance(hours=1)
    await ledger.journal.routines.resume("a")  # was not paused any more: nothing to resume
    state = (await ledger.journal.routines.get_states())["a"]
    assert (state.paused, state.baseline) == (False, resume_time)


async def test_a_changed_schedule_does_not_resume_a_paused_routine(ledger: Ledger) -> None:
    await ledger.journal.routines.set_baselines({"a": "1"})
    await ledger.journal.routines.pause("a")
    assert (await ledger.journal.routines.set_baselines({"a": "2"}))["a"].paused


async def test_only_a_known_routine_can_be_paused(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="there is no routine 'b'"):
        await ledger.journal.routines.pause("b")


# --- claims


async def test_a_slot_is_claimed_once(ledger: Ledger) -> None:
    claim = ledger.claim(lateness=2.5)
    first, second = await ledger.journal.slots.claim([claim, claim])
    assert first is not None
    assert second is None
    assert await ledger.journal.slots.claim([claim]) == [None]
    (row,) = await ledger.journal.slots.find()
    assert (row.run, row.outcome, row.lateness, row.first, row.last) == (
        first.id,
        "ran",
        2.5,
        START,
        START,
    )
    assert await ledger.journal.runs.get_definition(first.definition) == claim.definition


async def test_a_run_is_queued_with_the_fields_of_its_claim(ledger: Ledger) -> None:
    claim = ledger.claim(goal="say \ud800 hello", not_before=at(1), outcome=Outcome.LATE)
    (run,) = await ledger.journal.slots.claim([claim])
    assert run is not None
    assert (run.status, run.not_before, run.goal) == (Status.QUEUED, at(1), "say ? hello")
    assert await ledger.journal.runs.get(run.id) == run


async def test_each_routine_has_its_own_slot_at_the_same_moment(ledger: Ledger) -> None:
    runs = await ledger.journal.slots.claim([ledger.claim("a"), ledger.claim("b")])
    assert [run.routine for run in runs if run] == ["a", "b"]


async def test_a_repeated_hour_has_two_slots(ledger: Ledger) -> None:
    first = datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    claims = [
        replace(ledger.claim(name), slot=slot) for name in ("a", "b") for slot in (first, second)
    ]
    runs = await ledger.journal.slots.claim(claims)
    assert [run.slot for run in runs if run] == 2 * [first.astimezone(UTC), second.astimezone(UTC)]
    assert await ledger.journal.slots.claim(claims) == [None] * 4


async def test_an_event_is_unique_by_its_id(ledger: Ledger) -> None:
    claims = [ledger.claim(event=event) for event in ("client:1", "client:2", "client:1")]
    first, second, third = await ledger.journal.slots.claim([*claims])
    assert first is not None
    assert second is not None
    assert third is None
    assert await ledger.journal.slots.get_run_of_event("daily", "client:1") == first
    assert await ledger.journal.slots.get_run_of_event("other", "client:1") is None
    (run,) = await ledger.journal.slots.claim([ledger.claim()])
    assert run is not None


async def test_ten_thousand_slots_share_one_definition(ledger: Ledger) -> None:
    claims = [ledger.claim(f"r{number}") for number in range(1_000)]
    runs = await ledger.journal.slots.claim(claims)
    assert len({run.id for run in runs if run}) == 1_000
    assert len({run.definition for run in runs if run}) == 1


# --- slots without a run


async def test_consecutive_missed_slots_of_one_reason_share_a_row(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=20)
    await account_slots(ledger, 1, 4, 4)
    await account_slots(ledger, 5, 5, 1)
    await account_slots(ledger, 6, 7, 2, Reason.PAUSED)
    await account_slots(ledger, 8, 8, 1)
    assert await recorded_rows(ledger) == [
        (1, 5, 5, "missed", "down"),
        (6, 7, 2, "skipped", "paused"),
        (8, 8, 1, "missed", "down"),
    ]


async def test_a_run_between_missed_slots_separates_their_rows(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=20)
    await account_slots(ledger, 1, 2, 2)
    await ledger.journal.slots.claim([ledger.claim(slot=at(3))])
    await account_slots(ledger, 4, 4, 1)
    assert await recorded_rows(ledger) == [
        (1, 2, 2, "missed", "down"),
        (3, 3, 1, "ran", None),
        (4, 4, 1, "missed", "down"),
    ]


async def test_a_slot_is_not_counted_twice(ledger: Ledger, clock: FakeClock) -> None:
    clock.advance(hours=20)
    await account_slots(ledger, 1, 4, 4)
    await account_slots(ledger, 1, 4, 4)
    await account_slots(ledger, 2, 3, 2)
    await account_slots(ledger, 1, 6, 6)
    await account_slots(ledger, 6, 6, 1, Reason.OVERLAP)
    assert await recorded_rows(ledger) == [(1, 6, 6, "missed", "down")]


async def test_recorded_slots_keep_their_reason_and_only_new_slots_are_added(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=20)
    await account_slots(ledger, 1, 4, 4)
    await account_slots(ledger, 1, 5, 5, Reason.PAUSED)
    assert await recorded_rows(ledger) == [
        (1, 4, 4, "missed", "down"),
        (5, 5, 1, "skipped", "paused"),
    ]


async def test_a_slot_recorded_as_missed_cannot_be_claimed(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=20)
    await account_slots(ledger, 1, 4, 4)
    claims = [ledger.claim(slot=at(hour)) for hour in (0, 1, 2, 4, 5)]
    assert [run is not None for run in await ledger.journal.slots.claim(claims)] == [
        True,
        False,
        False,
        False,
        True,
    ]


async def test_accounted_until_is_the_newest_scheduled_slot(
    ledger: Ledger, clock: FakeClock
) -> None:
    assert await ledger.journal.slots.get_accounted_until("daily") is None
    clock.advance(hours=20)
    await account_slots(ledger, 1, 4, 4)
    assert await ledger.journal.slots.get_accounted_until("daily") == at(4)
    await ledger.journal.slots.claim(
        [ledger.claim(slot=at(5)), ledger.claim(slot=at(9), event="manual")]
    )
    assert await ledger.journal.slots.get_accounted_until("daily") == at(5)
    assert await ledger.journal.slots.get_accounted_until("other") is None


async def test_slots_claimed_with_a_wrong_clock_do_not_mute_a_routine(
    ledger: Ledger, clock: FakeClock
) -> None:
    years = 5 * 365 * 24
    await ledger.journal.slots.claim([ledger.claim(slot=at(-3))])
    await account_slots(ledger, -2, -1, 2)
    clock.advance(hours=years)
    await account_slots(ledger, 0, years - 1, years)
    await ledger.journal.slots.claim([ledger.claim(slot=at(years))])
    clock.move_to(at(2))
    await put_right(ledger)
    assert await ledger.journal.slots.get_accounted_until("daily") == at(-3)
    await account_slots(ledger, -2, 1, 4)
    (run,) = await ledger.journal.slots.claim([ledger.claim(slot=at(2))])
    assert run is not None
    assert await recorded_rows(ledger) == [
        (-3, -3, 1, "ran", None),
        (-2, 1, 4, "missed", "down"),
        (2, 2, 1, "ran", None),
        (years, years, 1, "ran", None),
    ]


async def test_missed_slots_are_recorded_around_recorded_slots(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=20)
    await ledger.journal.slots.claim([ledger.claim(slot=at(hour)) for hour in (3, 4, 7)])
    assert await account_slots(ledger, 1, 9, 9) == [(1, 2, 2), (5, 6, 2), (8, 9, 2)]
    assert await account_slots(ledger, 1, 9, 9) == []
    assert [row[:3] for row in await recorded_rows(ledger)] == [
        (1, 2, 2),
        (3, 3, 1),
        (4, 4, 1),
        (5, 6, 2),
        (7, 7, 1),
        (8, 9, 2),
    ]


async def test_a_run_after_a_clock_set_back_accounts_only_for_its_own_slot(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=9)
    await account_slots(ledger, 1, 5, 5)
    await ledger.journal.slots.claim([ledger.claim(slot=at(6))])
    await account_slots(ledger, 7, 9, 3)
    clock.move_to(at(3))
    await put_right(ledger, SlotRange(first=at(1), last=at(2), count=2))
    assert await recorded_rows(ledger) == [(1, 2, 2, "missed", "down"), (6, 6, 1, "ran", None)]
    clock.move_to(at(8))
    assert await ledger.journal.slots.get_accounted_until("daily") == at(2), (
        "not the run of a time that was taken back"
    )
    assert await account_slots(ledger, 3, 8, 6) == [(3, 5, 3), (7, 8, 2)]
    assert await ledger.journal.slots.get_accounted_until("daily") == at(8)
    assert [row[:3] for row in await recorded_rows(ledger)] == [(1, 5, 5), (6, 6, 1), (7, 8, 2)]


async def test_a_row_of_missed_slots_ends_at_a_new_baseline(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ledger.journal.routines.set_baselines({"daily": "1"})
    clock.move_to(at(5))
    await account_slots(ledger, 1, 4, 4)
    await ledger.journal.routines.set_baselines({"daily": "2"})
    clock.move_to(at(9))
    await account_slots(ledger, 8, 9, 2)
    assert [row[:3] for row in await recorded_rows(ledger)] == [(1, 4, 4), (8, 9, 2)]


async def test_a_run_with_a_closed_gate_marks_its_slot_skipped(ledger: Ledger) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.end(run.to(Status.SKIPPED, detail="nothing changed"))
    other_run = await ledger.start_run()
    await ledger.journal.runs.end(other_run.to(Status.SKIPPED), reason=Reason.BUDGET)
    rows = [(row.run, row.outcome, row.reason) for row in await ledger.journal.slots.find("daily")]
    assert rows == [(other_run.id, "skipped", "budget"), (run.id, "skipped", "gate")]


async def test_slots_are_listed_newest_first_up_to_the_limit(
    ledger: Ledger, clock: FakeClock
) -> None:
    clock.advance(hours=20)
    claims = [ledger.claim(name, slot=at(hour)) for name in "ab" for hour in range(5)]
    await ledger.journal.slots.claim(claims)
    assert [row.first for row in await ledger.journal.slots.find("a", limit=2)] == [at(4), at(3)]
    assert [row.first for row in await ledger.journal.slots.find(limit=3)] == [at(4), at(4), at(3)]


async def test_slots_run_with_a_clock_ahead_hide_no_slot_of_today(
    ledger: Ledger, clock: FakeClock
) -> None:
    now = clock.advance(hours=20)
    await ledger.journal.slots.claim([ledger.claim("a", slot=at(hour)) for hour in (1, 2, 50, 60)])
    assert [row.first for row in await ledger.journal.slots.find("a", now=now, limit=3)] == [
        at(2),
        at(1),
        at(60),
    ]
    assert [row.first for row in await ledger.journal.slots.find("a", now=now, limit=2)] == [
        at(2),
        at(1),
    ]
    assert [row.first for row in await ledger.journal.slots.find("a", now=at(60), limit=1)] == [
        at(60)
    ]
