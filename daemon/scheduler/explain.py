"""Explain in one sentence why a slot ran or did not, with the rule that decided it.

The ledger's rows come first. Where there is none, schedule and baseline explain why. Everything is
computed from values; nothing here reads the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import SKIP_RULE, Schedule
from daemon.definitions.values import format_duration
from daemon.durations import duration_in_words
from daemon.models import WAIT_MOVED, Approval, Outcome, Reason, Run, Status
from daemon.scheduler.skip_reasons import UNREHEARSED, moments_rule, rule_of
from daemon.scheduler.slots import random_moments
from daemon.store.journal import RoutineState, SlotRow
from daemon.store.rows import MICROSECOND

# How the sentence names what started a run that its schedule did not start, by `Run.trigger`.
STARTED_BY = {
    "manual": "by hand",
    "agent": "by another run, with the tool routine",
    "once": "by `agentd once`",
    "first_run": "as its first run (first_run = true)",
    "on_start": "as the daemon started (on_start = true)",
    "watch": "by files that had landed (watch)",
    "webhook": "by a webhook (webhook = true)",
    "after": "by the end of another run (after)",
    "pace": "by its pace (pace)",
}
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotExplanation:
    """What became of a slot, and why."""

    slot: datetime | None
    """None if the schedule has no slot at the moment that was asked about."""
    outcome: str
    """An Outcome, or: not_yet, undecided, before_baseline, disabled, elsewhere, never_due."""
    reason: Reason | None = None
    rule: str
    """The key with its value, or the fact, that decided what became of the slot."""
    sentence: str
    run: str | None = None
    """The id of the run that the slot started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotQuery:
    """The moments from `first` until before `until`, and all that is known of them."""

    routine: Routine
    schedule: Schedule
    state: RoutineState
    first: datetime
    until: datetime
    now: datetime
    rows: Sequence[SlotRow]
    """What the ledger has of these moments, oldest first."""
    next_row: SlotRow | None
    """The first row of a scheduled slot after these moments."""
    run: Run | None
    """The run of the first row that has one."""
    needs_rehearsal: bool = False
    """Whether the routine does not start until a rehearsal of it was approved."""
    waits_for: str = ""
    """What the run waits for that no machine has, in words."""
    approvals: Sequence[Approval] = ()
    """What the routine's runs wait for a person to allow, this run's or those of others."""
    paced_start: datetime | None = None
    """When a routine with a pace is started next, where that is known and asked for."""
    elsewhere: str = ""
    """Why the routine is not started by this host; empty if it is."""
    file_changed: datetime | None = None
    """When the routine's file was last changed, where it is there."""

    @property
    def name(self) -> str:
        return self.routine.name

    def at(self, moment: datetime) -> str:
        """Return a moment in the routine's time zone, as text."""
        local = moment.astimezone(self.schedule.zone)
        year = "" if local.year == self.now.astimezone(self.schedule.zone).year else " %Y"
        seconds = ":%S" if local.second else ""
        return local.strftime(f"%a %d %b{year} %H:%M{seconds} %Z")


def default_slot(
    schedule: Schedule, state: RoutineState, now: datetime, latest: SlotRow | None
) -> datetime:
    """Return the slot to explain if none was named: the last one after the baseline, else that of
    the ledger's latest row, else the next one.
    """
    slot = schedule.prev(now)
    if slot is not None and slot > state.baseline:
        return slot
    if latest is not None:
        return latest.last
    return schedule.next(now) or now


def explain(query: SlotQuery) -> SlotExplanation:
    """Explain what became of a slot, or why there is none, and which other runs of the routine wait
    for a person.
    """
    explanation = _explain_slot(query)
    other_runs = dict.fromkeys(
        approval.run for approval in query.approvals if approval.run != explanation.run
    )
    sentences = [
        explanation.sentence,
        *(f"Run {run[-8:]} {_describe_approvals(query.approvals, run)}." for run in other_runs),
    ]
    if query.paced_start and query.state.is_paused(query.now):
        until = query.state.paused_until
        words = f"until {query.at(until)}" if until else f"agentctl resume {query.name} ends that"
        sentences.append(f"It is paused, so its pace starts no run ({words}).")
    elif query.paced_start:
        wait = duration_in_words((query.paced_start - query.now).total_seconds())
        sentences.append(f"By its pace it starts next at {query.at(query.paced_start)}, in {wait}.")
    return replace(explanation, sentence=" ".join(sentences))


def _describe_approvals(approvals: Sequence[Approval], run: str) -> str:
    """Say what a run waits for, with the commands that allow it; it may be unknown."""
    own_approvals = [approval for approval in approvals if approval.run == run]
    if not own_approvals:
        return "waits for an approval: agentctl approvals"
    tools = ", ".join(dict.fromkeys(approval.approval_request.tool for approval in own_approvals))
    commands = " and ".join(f"agentctl approve {approval.id[-8:]}" for approval in own_approvals)
    return f"waits for a person to allow {tools}: {commands}"


def _explain_slot(query: SlotQuery) -> SlotExplanation:
    scheduled_rows = [row for row in query.rows if row.event is None]
    if scheduled_rows:
        return _from_row(query, scheduled_rows[0])
    if query.rows:
        row = query.rows[0]
        return _from_event(query, row) if row.run else _from_row(query, row)
    slot = query.schedule.next(query.first - MICROSECOND)
    if slot is None or slot >= query.until:
        return _never_due(query)
    return _from_schedule(query, slot)


# --- what the ledger has


def _from_row(query: SlotQuery, row: SlotRow) -> SlotExplanation:
    # A row may stand for several slots; the one in question is where the schedule has it.
    slot = row.first if row.first == row.last else max(row.first, min(row.last, _slot_in(query)))
    match row.outcome:
        case Outcome.RAN | Outcome.LATE | Outcome.CAUGHT_UP:
            rule, text = _explain_start(query, row, slot)
        case Outcome.SKIPPED:
            rule, text = _explain_skip(query, row, slot)
        case Outcome.MISSED:
            rule, text = _explain_miss(query, row, slot)
    run_text = ""
    if query.run and row.outcome is not Outcome.SKIPPED:
        run_text = f"; {_describe_run(query.run, query)}"
    return SlotExplanation(
        slot=slot,
        outcome=row.outcome.value,
        reason=row.reason,
        rule=rule,
        sentence=f"{query.name} {text}{run_text}.",
        run=row.run,
    )


def _slot_in(query: SlotQuery) -> datetime:
    """Return the first slot of the moments in question, or the first of these moments."""
    slot = query.schedule.next(query.first - MICROSECOND)
    return slot if slot and slot < query.until else query.first


def _describe_run(run: Run, query: SlotQuery) -> str:
    name, status = f"run {run.id[-8:]}", run.status
    if query.waits_for:
        return f"{name} {query.waits_for}"
    if status is Status.WAITING:
        return f"{name} {_describe_approvals(query.approvals, run.id)}"
    if status is Status.QUEUED and run.not_before:
        note = f" ({WAIT_MOVED})" if run.waits_moved else ""
        return f"{name} waits for its time{note}"
    status_texts = {
        Status.QUEUED: "waits for room",
        Status.RUNNING: "is under way",
        Status.TIMED_OUT: "took too long",
        Status.CANCELLED: "was cancelled",
        Status.INTERRUPTED: "was interrupted",
    }
    text = f"{name} {status_texts.get(status, status.value)}"
    return f"{text} ({run.detail.rstrip('.')})" if status.has_ended and run.detail else text


# The functions _explain_… return the rule, and the part of the sentence that follows the routine's
# name.


def _explain_start(query: SlotQuery, row: SlotRow, slot: datetime) -> tuple[str, str]:
    # the baseline also moves without a change of the file, as after a pause
    is_changed = query.file_changed is not None and slot < query.file_changed
    is_of_older_schedule = is_changed and slot < query.state.baseline
    if query.schedule.prev(slot) == slot and not is_of_older_schedule:
        rule = query.schedule.rule(slot)
    else:
        rule = "the schedule it had then"
    if row.outcome is Outcome.RAN:
        grace = ""
        if row.lateness >= 1:
            delay = duration_in_words(row.lateness)
            grace = f" ({delay} after it: up to a minute is on time)"
        return rule, f"started on time for {query.at(slot)}{grace}, by {rule}"
    lateness = duration_in_words(row.lateness)
    catch_up = _describe_catch_up(query, slot)
    if row.outcome is Outcome.LATE:
        cause = "the machine slept over it, or its clock was set"
        if row.reason is Reason.DISK_FULL:
            cause = "the disk was full, and the daemon could write nothing"
        return catch_up, f"started {lateness} late for {query.at(slot)}: {cause}, and {catch_up}"
    cause = "the daemon was down at the time"
    return catch_up, f"was caught up {lateness} late for {query.at(slot)}: {cause}, and {catch_up}"


def _describe_catch_up(query: SlotQuery, slot: datetime) -> str:
    """Return what `catch_up` says about a slot that is late."""
    rule = query.schedule.catch_up(slot)
    if isinstance(rule, timedelta):
        return (
            f'catch_up = "{format_duration(rule)}" starts the latest missed slot if it is no later '
            "than that"
        )
    if rule == "none":
        return 'catch_up = "none" starts no slot late'
    period = query.schedule.period(slot)
    limit = (
        f"if late by at most half the period ({duration_in_words(period.total_seconds() / 2)})"
        if period
        else "however late"
    )
    return f'catch_up = "once" starts the latest missed slot {limit}'


def _explain_miss(query: SlotQuery, row: SlotRow, slot: datetime) -> tuple[str, str]:
    row_text = ""
    if row.count > 1:
        row_text = (
            f", as {row.count} slots in a row were ({query.at(row.first)} to {query.at(row.last)})"
        )
    next_row = query.next_row
    is_earlier_one = row.last > slot or (
        next_row and next_row.run and next_row.first == query.schedule.next(slot)
    )
    if query.schedule.catch_up(slot) == "none":
        rule = 'catch_up = "none" starts no slot late'
    elif is_earlier_one:
        rule = "of all missed slots only the latest one may be caught up"
    else:
        rule = f"it was too late by then: {_describe_catch_up(query, slot)}"
    cause = "the daemon was down or asleep, or its clock jumped"
    if row.reason is Reason.DISK_FULL:
        cause = "the disk was full, and the daemon could write nothing"
    return rule, f"missed {query.at(slot)}{row_text}: {cause}, and {rule}"


def _explain_skip(query: SlotQuery, row: SlotRow, slot: datetime) -> tuple[str, str]:
    rule = _describe_skip(query, row, slot)
    return rule, f"skipped {query.at(slot)}: {rule}"


def _describe_skip(query: SlotQuery, row: SlotRow, slot: datetime) -> str:
    """Return why a slot was skipped, with the rule."""
    if row.reason is None:
        return "nobody wrote down why"
    rule = row.rule or rule_of(row.reason, query.routine, query.state)
    match row.reason:
        case Reason.OVERLAP:
            return f"an earlier run of it was still under way, and {rule}"
        case Reason.QUIET_HOURS:
            return f"it lay {_describe_quiet_hours(query, slot, rule)}"
        case Reason.PAUSED:
            return f"it was paused{f' ({rule})' if rule else ''}"
        case Reason.BACKOFF:
            return f"it rested, as its last runs had failed ({rule})"
        case Reason.BUDGET:
            return f"its budget was used up{f' ({rule})' if rule else ''}"
        case Reason.GATE if rule == UNREHEARSED:
            return (
                f"it was held back ({rule}); agentctl rehearse {query.name} shows what it would do"
            )
        case Reason.GATE if query.run and query.run.detail:
            return f"its gate was closed: {query.run.detail} (run {query.run.id[-8:]})"
    number = query.routine.gate.moments
    if number and rule == moments_rule(number):
        rule += f" (drawn for that day: {_describe_moments(query, number, slot)})"
    return f"its gate was closed before anything was asked: {rule or '[gate]'}"


def _describe_quiet_hours(query: SlotQuery, slot: datetime, rule: str | None = None) -> str:
    """Return where a slot lies at which the routine does not start, with the rule; by default the
    one of today's schedule.
    """
    rule = rule or query.schedule.quiet_rule(slot, slot=slot)
    if rule.startswith(SKIP_RULE):
        return f"on a day to skip ({rule})"
    return f"outside of {rule or 'its active hours'}"


def _describe_moments(query: SlotQuery, number: int, slot: datetime) -> str:
    """Return the random moments of the day of a slot, in the routine's time zone."""
    moments = random_moments(query.schedule, query.name, number, slot)
    times = [f"{moment.astimezone(query.schedule.zone):%H:%M}" for moment in moments]
    return " and ".join(times) or "none"


def _from_event(query: SlotQuery, row: SlotRow) -> SlotExplanation:
    trigger = query.run.trigger if query.run else ""
    cause = STARTED_BY.get(trigger, f"by its trigger {trigger}" if trigger else "by an event")
    run_text = f"; {_describe_run(query.run, query)}" if query.run else ""
    schedule_note = ", not by its schedule" if query.schedule.clock_entries else ""
    start = f"{query.name} was started {cause} at {query.at(row.first)}"
    return SlotExplanation(
        slot=None,
        outcome=row.outcome.value,
        reason=row.reason,
        rule=cause,
        sentence=f"{start}{schedule_note}{run_text}.",
        run=row.run,
    )


# --- what the ledger does not have


def _never_due(query: SlotQuery) -> SlotExplanation:
    words = query.schedule.words(*query.routine.event_words)
    before, after = query.schedule.prev(query.first), query.schedule.next(query.first)
    sentence = f"{query.name} is never due at {query.at(query.first)}: it runs {words}"
    if before and after:
        sentence += f"; its slots around that are {query.at(before)} and {query.at(after)}"
    elif nearest := before or after:
        sentence += f"; its slot is {query.at(nearest)}"
    else:
        sentence = f"{query.name} has no fixed times: it runs {words}"
    if query.needs_rehearsal:
        sentence += f"; besides, it is held back ({UNREHEARSED}); agentctl rehearse {query.name}"
    return SlotExplanation(slot=None, outcome="never_due", rule=words, sentence=f"{sentence}.")


def _from_schedule(query: SlotQuery, slot: datetime) -> SlotExplanation:
    def explanation(
        outcome: str, rule: str, text: str, reason: Reason | None = None
    ) -> SlotExplanation:
        return SlotExplanation(
            slot=slot, outcome=outcome, reason=reason, rule=rule, sentence=f"{query.name} {text}."
        )

    if not query.routine.enabled:
        rule = "enabled = false"
        return explanation(
            "disabled", rule, f"does not start at {query.at(slot)}: its file says {rule}"
        )
    if query.elsewhere:
        return explanation(
            "elsewhere",
            query.elsewhere,
            f"does not start here at {query.at(slot)}: {query.elsewhere}",
        )
    start = slot + query.schedule.delay
    if start > query.now:
        if slot <= query.now:
            spread = f'spread = "{format_duration(query.routine.spread)}"'
            return explanation(
                "not_yet",
                spread,
                f"is due since {query.at(slot)} and starts at {query.at(start)}, by {spread}",
            )
        rule, ending = _foresee(query, slot)
        wait = duration_in_words((slot - query.now).total_seconds())
        return explanation("not_yet", rule, f"is not due until {query.at(slot)}, in {wait}{ending}")
    if slot <= query.state.baseline:
        rule = f"the schedule counts since {query.at(query.state.baseline)}"
        cause = _cause_of_baseline(query)
        return explanation(
            "before_baseline", rule, f"did not start at {query.at(slot)}: {rule}, {cause}"
        )
    return explanation(
        "undecided",
        "the ledger",
        f"is due since {query.at(slot)}, and its start is being decided right now",
    )


def _cause_of_baseline(query: SlotQuery) -> str:
    """Return since what the schedule counts, as far as it can be told."""
    baseline = query.state.baseline
    pause_end = query.state.failures_reset
    # A resume sets the baseline to the end of the pause, and this to the time now, a moment later.
    if pause_end and timedelta(0) <= pause_end - baseline < timedelta(seconds=1):
        return "when its pause ended"
    if query.file_changed and timedelta(0) <= baseline - query.file_changed < MINUTE:
        return "just after its file was written"
    return "when it was first seen, edited, enabled or resumed, or the clock was put back"


def _foresee(query: SlotQuery, slot: datetime) -> tuple[str, str]:
    """Return the rule by which a future slot will start or be skipped, and the end of the sentence
    about it.
    """
    if query.state.is_paused(slot):
        until = (
            f"until {query.at(query.state.paused_until)}"
            if query.state.paused_until
            else "until it is resumed"
        )
        reason = f" ({query.state.paused_why})" if query.state.paused_why else ""
        return f"paused {until}", f", and will be skipped then: it is paused {until}{reason}"
    if not query.schedule.is_active(slot, slot=slot):
        rule = f"it lies {_describe_quiet_hours(query, slot)}"
        return rule, f", and will be skipped then: {rule}"
    if query.needs_rehearsal:
        rehearse = f"agentctl rehearse {query.name}"
        return (
            UNREHEARSED,
            f", and will be skipped then: it is held back ({UNREHEARSED}); {rehearse}",
        )
    number = query.routine.gate.moments
    if number and slot not in random_moments(query.schedule, query.name, number, slot):
        rule = (
            f"{moments_rule(number)} (drawn for that day: {_describe_moments(query, number, slot)})"
        )
        return rule, f", and starts only if no run reported since the last random moment: {rule}"
    rule = query.schedule.rule(slot)
    return rule, f", by {rule}"
