"""Why a slot ran or did not, in one sentence that names the rule: from the ledger's row and the
schedule, as values.

What is written down decides. Only where nothing is, the schedule and the baseline say why there is
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule, span
from daemon.definitions.values import format_duration
from daemon.models import WAIT_MOVED, Outcome, Reason, Run, Status
from daemon.scheduler.skip_reasons import UNREHEARSED, moments_rule, rule_of
from daemon.scheduler.slots import INSTANT, random_moments
from daemon.store.journal import RoutineState, SlotRow

# How a run that no slot started is told, by its trigger.
STARTED_BY = {
    "manual": "by hand",
    "agent": "by another run, with the tool routine",
    "once": "by `agentd once`",
    "first_run": "as its first run (first_run = true)",
    "on_start": "as the daemon started (on_start = true)",
    "watch": "by files that had landed (watch)",
    "webhook": "by a webhook (webhook = true)",
    "after": "by the end of another run (after)",
}
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotExplanation:
    """What became of a slot, and why."""

    slot: datetime | None
    """None where the moment is none of the routine's."""
    outcome: str
    """An Outcome, or: not_yet, undecided, before_baseline, disabled, elsewhere, never_due."""
    reason: Reason | None = None
    rule: str
    """The key or the fact that decided it."""
    sentence: str
    run: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotQuery:
    """All that is known when somebody asks about the moments from `first` until before `until`."""

    routine: Routine
    schedule: Schedule
    state: RoutineState
    first: datetime
    until: datetime
    now: datetime
    rows: Sequence[SlotRow]
    """Of these moments."""
    following: SlotRow | None
    """The scheduled row after them."""
    run: Run | None
    """Of the row that has one."""
    held: bool = False
    """It is held back until a rehearsal was approved."""
    waits_for: str = ""
    """What the run waits for that no machine has, in words."""
    elsewhere: str = ""
    """Why the routine is not for this machine, if it is not."""

    @property
    def name(self) -> str:
        return self.routine.name

    def at(self, moment: datetime) -> str:
        """Return a moment as the routine's zone has it."""
        local = moment.astimezone(self.schedule.zone)
        year = "" if local.year == self.now.astimezone(self.schedule.zone).year else " %Y"
        seconds = ":%S" if local.second else ""
        return local.strftime(f"%a %d %b{year} %H:%M{seconds} %Z")


def default_slot(
    schedule: Schedule, state: RoutineState, now: datetime, latest: SlotRow | None
) -> datetime:
    """Return the slot that is meant by somebody who names none: the last one that counted, else the
    next one.
    """
    slot = schedule.prev(now)
    if slot is not None and slot > state.baseline:
        return slot
    if latest is not None:
        return latest.last
    return schedule.next(now) or now


def explain(question: SlotQuery) -> SlotExplanation:
    """Say what became of a slot, or why there is none."""
    scheduled = [row for row in question.rows if row.event is None]
    if scheduled:
        return _from_row(question, scheduled[0])
    if question.rows:
        row = question.rows[0]
        return _from_event(question, row) if row.run else _from_row(question, row)
    slot = question.schedule.next(question.first - INSTANT)
    if slot is None or slot >= question.until:
        return _never_due(question)
    return _from_schedule(question, slot)


# --- what is written down
# --------------------------------------------------------------------------


def _from_row(q: SlotQuery, row: SlotRow) -> SlotExplanation:
    # A row of several slots tells of each; the one asked about is where the schedule has it.
    slot = row.first if row.first == row.last else max(row.first, min(row.last, _slot_in(q)))
    match row.outcome:
        case Outcome.RAN | Outcome.LATE | Outcome.CAUGHT_UP:
            rule, text = _started(q, row, slot)
        case Outcome.SKIPPED:
            rule, text = _skipped(q, row, slot)
        case Outcome.MISSED:
            rule, text = _missed(q, row, slot)
    run = f"; {_told(q.run, q.waits_for)}" if q.run and row.outcome is not Outcome.SKIPPED else ""
    return SlotExplanation(
        slot=slot,
        outcome=row.outcome.value,
        reason=row.reason,
        rule=rule,
        sentence=f"{q.name} {text}{run}.",
        run=row.run,
    )


def _slot_in(q: SlotQuery) -> datetime:
    slot = q.schedule.next(q.first - INSTANT)
    return slot if slot and slot < q.until else q.first


def _told(run: Run, waits_for: str) -> str:
    name, status = f"run {run.id[-8:]}", run.status
    if waits_for:
        return f"{name} {waits_for}"
    if status is Status.QUEUED and run.not_before:
        moved = f" ({WAIT_MOVED})" if run.waits_moved else ""
        return f"{name} waits for its time{moved}"
    told = {
        Status.QUEUED: "waits for room",
        Status.RUNNING: "is under way",
        Status.WAITING: "waits for an approval",
    }
    ended = {
        Status.TIMED_OUT: "took too long",
        Status.CANCELLED: "was cancelled",
        Status.INTERRUPTED: "was interrupted",
    }
    text = f"{name} {told.get(status) or ended.get(status) or status.value}"
    return f"{text} ({run.detail.rstrip('.')})" if status.ended and run.detail else text


def _started(q: SlotQuery, row: SlotRow, slot: datetime) -> tuple[str, str]:
    rule = _trigger(q.routine) if q.schedule.prev(slot) == slot else "the schedule it had then"
    if row.outcome is Outcome.RAN:
        return rule, f"started on time for {q.at(slot)}, by {rule}"
    late = _about(timedelta(seconds=row.lateness))
    catch_up = _catch_up(q, slot)
    if row.outcome is Outcome.LATE:
        how = "the machine slept over it, or its clock was set"
        return catch_up, f"started {late} late for {q.at(slot)}: {how}, and {catch_up}"
    return (
        catch_up,
        (
            f"was caught up {late} late for {q.at(slot)}: the daemon was down at the time, and "
            f"{catch_up}"
        ),
    )


def _catch_up(q: SlotQuery, slot: datetime) -> str:
    """Return the rule of what may come late, as far as it is one that lets something start."""
    rule = q.schedule.catch_up
    if isinstance(rule, timedelta):
        return (
            f'catch_up = "{format_duration(rule)}" starts the latest missed slot if it is no later '
            "than that"
        )
    if rule == "none":
        return 'catch_up = "none" starts no slot late'
    period = q.schedule.period(slot)
    half = (
        f"if late by at most half the period ({_about(period / 2)})" if period else "however late"
    )
    return f'catch_up = "once" starts the latest missed slot {half}'


def _missed(q: SlotQuery, row: SlotRow, slot: datetime) -> tuple[str, str]:
    stretch = ""
    if row.count > 1:
        stretch = f", as {row.count} slots in a row were ({q.at(row.first)} to {q.at(row.last)})"
    following = q.following
    others = row.last > slot or (
        following and following.run and following.first == q.schedule.next(slot)
    )
    if q.schedule.catch_up == "none":
        rule = 'catch_up = "none" starts no slot late'
    elif others:
        rule = "of all missed slots only the latest one may be caught up"
    else:
        rule = f"it was too late by then: {_catch_up(q, slot)}"
    return (
        rule,
        (
            f"missed {q.at(slot)}{stretch}: the daemon was down or asleep, or its clock jumped, and "  # noqa: E501
            f"{rule}"
        ),
    )


def _skipped(q: SlotQuery, row: SlotRow, slot: datetime) -> tuple[str, str]:
    rule = _hindrance(q, row, slot)
    return rule, f"skipped {q.at(slot)}: {rule}"


def _hindrance(q: SlotQuery, row: SlotRow, slot: datetime) -> str:
    if row.reason is None:
        return "nobody wrote down why"
    rule = row.rule or rule_of(row.reason, q.routine, q.state)
    match row.reason:
        case Reason.OVERLAP:
            return f"an earlier run of it was still under way, and {rule}"
        case Reason.QUIET_HOURS:
            return f"it lay outside of {rule or 'its active hours'}"
        case Reason.PAUSED:
            return f"it was paused{f' ({rule})' if rule else ''}"
        case Reason.NOT_BEFORE:
            return f"it rested, as its last runs had failed ({rule})"
        case Reason.BUDGET:
            return f"its budget was used up{f' ({rule})' if rule else ''}"
        case Reason.GATE if rule == UNREHEARSED:
            return f"it was held back ({rule}); agentctl rehearse {q.name} shows what it would do"
        case Reason.GATE if q.run and q.run.detail:
            return f"its gate was closed: {q.run.detail} (run {q.run.id[-8:]})"
    number = q.routine.gate.moments
    if number and rule == moments_rule(number):
        rule += f" (drawn for that day: {_drawn(q, number, slot)})"
    return f"its gate was closed before anything was asked: {rule or '[gate]'}"


def _drawn(q: SlotQuery, number: int, slot: datetime) -> str:
    found = random_moments(q.schedule, q.name, number, slot)
    return " and ".join(f"{each.astimezone(q.schedule.zone):%H:%M}" for each in found) or "none"


def _from_event(q: SlotQuery, row: SlotRow) -> SlotExplanation:
    trigger = q.run.trigger if q.run else ""
    by = STARTED_BY.get(trigger, f"by its trigger {trigger}" if trigger else "by an event")
    told = f"; {_told(q.run, q.waits_for)}" if q.run else ""
    schedule = q.schedule
    apart = ", not by its schedule" if schedule.cron or schedule.every or schedule.at else ""
    return SlotExplanation(
        slot=None,
        outcome=row.outcome.value,
        reason=row.reason,
        rule=by,
        sentence=f"{q.name} was started {by} at {q.at(row.first)}{apart}{told}.",
        run=row.run,
    )


# --- what is not written down
# ----------------------------------------------------------------------


def _never_due(q: SlotQuery) -> SlotExplanation:
    words = q.schedule.words(q.routine.trigger.event_words)
    before, after = q.schedule.prev(q.first), q.schedule.next(q.first)
    around = " and ".join(q.at(each) for each in (before, after) if each)
    near = (
        f"; its slots around that are {around}"
        if before and after
        else f"; its slot is {around}"
        if around
        else ""
    )
    held = (
        f"; besides, it is held back ({UNREHEARSED}); agentctl rehearse {q.name}" if q.held else ""
    )
    sentence = f"{q.name} is never due at {q.at(q.first)}: it runs {words}{near}{held}."
    return SlotExplanation(slot=None, outcome="never_due", rule=words, sentence=sentence)


def _from_schedule(q: SlotQuery, slot: datetime) -> SlotExplanation:
    def because(
        outcome: str, rule: str, text: str, reason: Reason | None = None
    ) -> SlotExplanation:
        return SlotExplanation(
            slot=slot, outcome=outcome, reason=reason, rule=rule, sentence=f"{q.name} {text}."
        )

    if not q.routine.enabled:
        rule = "enabled = false"
        return because("disabled", rule, f"does not start at {q.at(slot)}: its file says {rule}")
    if q.elsewhere:
        return because(
            "elsewhere", q.elsewhere, f"does not start here at {q.at(slot)}: {q.elsewhere}"
        )
    start = slot + q.schedule.delay
    if start > q.now:
        soon = f"is not due until {q.at(slot)}, in {_about(slot - q.now)}"
        if slot <= q.now:
            spread = f'spread = "{format_duration(q.routine.trigger.spread)}"'
            return because(
                "not_yet",
                spread,
                f"is due since {q.at(slot)} and starts at {q.at(start)}, by {spread}",
            )
        rule, but = _foreseen(q, slot)
        return because("not_yet", rule, f"{soon}{but}")
    if slot <= q.state.baseline:
        rule = f"the schedule counts since {q.at(q.state.baseline)}"
        how = "when it was first seen, edited, enabled or resumed, or the clock was put back"
        return because("before_baseline", rule, f"did not start at {q.at(slot)}: {rule}, {how}")
    return because(
        "undecided", "the ledger", f"is due since {q.at(slot)}, and its slot is just being settled"
    )


def _foreseen(q: SlotQuery, slot: datetime) -> tuple[str, str]:
    """Return the rule by which a slot to come will start or be skipped, and how to say the
    latter.
    """
    if q.state.pausing(slot):
        until = (
            f"until {q.at(q.state.paused_until)}" if q.state.paused_until else "until it is resumed"
        )
        why = f" ({q.state.paused_why})" if q.state.paused_why else ""
        return f"paused {until}", f", and will be skipped then: it is paused {until}{why}"
    if not q.schedule.active(slot):
        row = SlotRow(
            routine=q.name,
            first=slot,
            last=slot,
            count=1,
            event=None,
            outcome=Outcome.SKIPPED,
            reason=Reason.QUIET_HOURS,
            run=None,
            lateness=0.0,
        )
        rule = _hindrance(q, row, slot).replace("it lay", "it lies")
        return rule, f", and will be skipped then: {rule}"
    if q.held:
        rehearse = f"agentctl rehearse {q.name}"
        return (
            UNREHEARSED,
            f", and will be skipped then: it is held back ({UNREHEARSED}); {rehearse}",
        )
    number = q.routine.gate.moments
    if number and slot not in random_moments(q.schedule, q.name, number, slot):
        rule = f"{moments_rule(number)} (drawn for that day: {_drawn(q, number, slot)})"
        return rule, f", and speaks only if a moment is open then: {rule}"
    rule = _trigger(q.routine)
    return rule, f", by {rule}"


def _trigger(routine: Routine) -> str:
    trigger = routine.trigger
    if trigger.cron is not None:
        return f'cron = "{trigger.cron}"'
    if trigger.every is not None:
        return f'every = "{format_duration(trigger.every)}"'
    return f"at = {trigger.at.isoformat()}" if trigger.at else "its trigger"


def _about(length: timedelta) -> str:
    """Return a length of time as exactly as it matters."""
    unit = (
        timedelta(hours=1)
        if length >= timedelta(days=2)
        else MINUTE
        if length >= 2 * MINUTE
        else timedelta(seconds=1)
    )
    words = span(max(1, round(length / unit)) * unit)
    return words if words[0].isdigit() else f"1 {words}"
