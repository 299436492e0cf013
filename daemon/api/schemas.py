"""The answers of the API as typed JSON, and how they are made from runs, routines, deliveries and
others. The OpenAPI document is made from these types and their docstrings.

Moments are ISO 8601 in UTC; durations are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NotRequired, TypeVar

# typing's own TypedDict hides from pydantic, before Python 3.12, which keys may be absent
from typing_extensions import TypedDict

from daemon.delivery.markup import is_generic_heading
from daemon.models import NO_MODEL, Delivery, DeliveryStatus, Run, Status, Step, Usage

if TYPE_CHECKING:
    from daemon.errors import ConfigError
    from daemon.store.journal import SlotRow
    from daemon.store.workers import Worker

T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """Part of a list; `next` is the `cursor` of the following part, null on the last one."""

    items: list[T]
    """This part of the list."""
    next: str | None
    """The `cursor` of the following part; null on the last one."""


class ProcessView(TypedDict):
    """What only the process itself knows."""

    pid: int
    """The process id."""
    started: str
    """When the process started."""
    config: str | None
    """The path of config.toml; null if there is none."""
    state: str
    """The path of the state folder."""
    socket: str
    """The path of the socket."""
    zone: str
    """The time zone by which routines run, such as `Europe/Berlin`."""
    log: str | None
    """The path of the log file; null if there is none."""
    provider: str
    """Which model answers unless a routine says otherwise; "offline" asks none."""
    sandbox: str | None
    """How well programs of tools are confined; None while it is still being found out."""
    fault: str | None
    """Why the last reload changed nothing, if it failed."""


class FaultView(TypedDict):
    """One fault in one place of a file."""

    file: str
    """The file, as a person writes it."""
    key: str
    """The dotted key; empty if the fault is of the whole file or of a line that is no TOML."""
    line: int | None
    """The line of the key, or of its table where the key is missing; null where it is not known."""
    found: str
    """What stands there; empty if nothing does."""
    problem: str
    """What is wrong with it."""
    hint: str
    """What to do; empty if nothing is known."""
    text: str
    """All of it in one line."""


class ProblemView(TypedDict, total=False):
    """What went wrong, by RFC 9457."""

    title: str
    """The words of the HTTP status."""
    status: int
    """The HTTP status."""
    detail: str
    """What went wrong, in a sentence for a person."""
    code: str
    """The error for programs: see the table of errors."""
    faults: list[FaultView]
    """The faults of a file that was refused."""
    run: str
    """The id of the run that the error is about."""


class UsageView(TypedDict):
    """Tokens; `input` is everything sent, cached parts included."""

    input: int
    """Tokens sent, cached parts included."""
    cache_read: int
    """Of `input`, tokens that the vendor read from its cache."""
    cache_write: int
    """Of `input`, tokens that the vendor wrote to its cache."""
    output: int
    """Tokens answered, reasoning included."""
    reasoning: int
    """Of `output`, tokens of reasoning."""


class DeliveryView(TypedDict):
    """One report on its way to one target."""

    id: int
    """The number of the delivery."""
    run: str
    """The id of the run; empty where it is about none."""
    routine: str
    """The routine of the run; empty where it is about none."""
    target: str
    """The name of the target."""
    kind: str
    """report, question (a run waits for an approval) or notice (an incident, a recovery, the
    digest)
    """
    status: str
    """pending, delivered, failed or suppressed"""
    attempts: int
    """How often it was tried."""
    created: str | None
    """When its run ended, or what the notice tells of happened."""
    next_at: str | None
    """When it is tried next; null unless it is pending."""
    receipt: str | None
    """What the target said when it took it; null until then."""
    error: str | None
    """Why the last attempt failed; null if none did."""


class RunBrief(TypedDict):
    """A run as a line of a list."""

    id: str
    """The id of the run; in requests its end is enough."""
    routine: str
    """Its routine."""
    status: str
    """queued, running, waiting, succeeded, skipped, failed, timed_out, cancelled or interrupted"""
    trigger: str
    """What started it: cron, every, at, on_start, manual, first_run, watch, webhook, after, pace,
    …
    """
    slot: str
    """The moment at which it was due."""
    created: str
    """When it was queued."""
    started: str | None
    """When it was executed first; null until then."""
    ended: str | None
    """When it ended; null until then."""
    not_before: str | None
    """When it goes on, where it was put off."""
    silent: bool
    """Whether it ended well with nothing to report."""
    detail: str | None
    """Why it ended as it did or what it waits for, in a line; null if there is nothing to say."""
    headline: str
    """The first line of its report."""
    delivery: str | None
    """Its deliveries in a word: failed if one is, else pending if one is, else delivered; null
    without any.
    """
    usage: UsageView
    """The tokens that it has used."""


class RunView(RunBrief):
    """All of a run but its steps."""

    event: str | None
    """What makes the slot unique where an event started it, such as the client's id of a manual
    run; else null.
    """
    definition: str
    """The hash of the routine's definition as the run began it."""
    attempt: int
    """How often it was claimed, resuming included."""
    active: float
    """Seconds under way, which count towards the timeout: not while it waited or the daemon was
    down.
    """
    cancel: bool
    """Whether a person has asked to stop it."""
    goal: str
    """What it is to do: the `prompt` of its routine, or a person's message."""
    input: Any
    """What the event that started it brought along: the paths of files, the body of a webhook, the
    run before.
    """
    report: str | None
    """Its report; null until it has one."""
    provider: str
    """The provider that answered last; empty if none was asked."""
    model: str
    """The model that answered last; empty if none was asked."""
    iterations: int
    """How many answers the model gave."""
    sandbox: str
    """How well its programs were confined: bubblewrap, landlock, profiles or off; empty until it
    has ended.
    """
    taint: str
    """What of strangers it has read: empty, tainted, or high if some of it read like orders."""
    deliveries: list[DeliveryView]
    """Its deliveries, one for each target."""
    position: int | None
    """How many runs stand before it, while it waits for room."""
    usd: float | None
    """What its calls to models cost, where all their prices are known."""


class StepView(TypedDict):
    """One step of a run, as the journal has it."""

    seq: int
    """Its number in the run, from 0 without gaps."""
    kind: str
    """prompt, llm (an answer of the model), call, result, message, failover (to another provider)
    or limit (a cap ended the run)
    """
    iteration: int
    """The answer of the model that it belongs to, from 1; 0 before the first one."""
    call: str | None
    """What ties a result to its call, such as `3.0`: the first call of iteration 3; null for other
    steps.
    """
    at: str | None
    """When it was written."""
    body: dict[str, Any]
    """What was recorded, by kind."""


class RoutineView(TypedDict):
    """A routine, when it runs and how it last went."""

    name: str
    """Its name: that of its file without `.toml`."""
    description: str
    """The `description` of its file."""
    state: str
    """on, paused, held (back until a rehearsal was approved), disabled, elsewhere (on other
    machines) or invalid
    """
    paused_until: str | None
    """When it goes on by itself, where it is paused until then."""
    paused_why: str | None
    """Why the daemon paused it, where it was not a person."""
    words: str
    """When it runs, in words."""
    by_hand: bool
    """Whether neither a schedule nor an event starts it."""
    next: str | None
    """When it starts next; null if no time is known."""
    last: RunBrief | None
    """Its latest run; null before the first one."""
    path: str | None
    """The path of its file; null if there is none."""
    made_by: str | None
    """The routine whose run made it, where it was no person."""
    asks: str | None
    """What a person will be asked about in its runs, and how that is changed; before that a line
    for each call of its own, such as what it gathers, that the policy denies or asks about.
    """
    faults: list[FaultView]
    """What is wrong with its file; empty if nothing is."""


class RoutineDetail(RoutineView):
    """All of a routine."""

    fires: list[str]
    """The next moments at which it starts."""
    definition: dict[str, Any]
    """Its keys with their values, defaults included; empty if its file cannot be used."""


class RoutineSource(TypedDict):
    """The file of a routine."""

    path: str
    """The path of the file."""
    text: str
    """The TOML as it was written."""
    digest: str
    """The SHA-256 of the file's bytes, which a change sends back as `If-Match`."""
    read_only: str | None
    """Why a change is refused; null where it is not."""


class RecipeView(TypedDict):
    """A shipped text for a new routine."""

    name: str
    """The name that `agentctl new --recipe` takes."""
    text: str
    """The TOML."""


class FireView(TypedDict):
    """One scheduled start to come."""

    routine: str
    """The name of the routine."""
    at: str
    """When it starts."""


class PausedRoutineView(TypedDict):
    """A routine that is paused."""

    routine: str
    """The name of the routine."""
    until: str | None
    """When it goes on by itself; null if a person has to resume it."""
    why: str | None
    """Why the daemon paused it; null if a person did."""


class SlotExplanationView(TypedDict):
    """What became of a slot, and by which rule."""

    routine: str
    """The name of the routine."""
    slot: str | None
    """Null where the moment is none of the routine's."""
    outcome: str
    """ran, late, caught_up, skipped, missed, not_yet, undecided, before_baseline, disabled,
    elsewhere or never_due
    """
    reason: str | None
    """Why it was skipped, in a word such as `quiet_hours`; null if it was not."""
    rule: str
    """The key of the routine that decided it, with its value; null if none did."""
    sentence: str
    """The same in a sentence for a person."""
    run: str | None
    """The id of the run that the slot started; null if it started none."""


class RenamedRoutineView(TypedDict):
    """A routine under its new name."""

    routine: RoutineDetail
    """The routine as it is now."""
    named_by: list[str]
    """The routines whose `after` still has the old name."""


class SlotView(TypedDict):
    """What became of one slot, or of `count` slots from `first` to `last` that were not started."""

    routine: str
    """The name of the routine."""
    first: str
    """The first of the slots, or the only one."""
    last: str
    """The last of the slots, or the only one."""
    count: int
    """How many slots it stands for."""
    outcome: str
    """ran, late, caught_up, skipped or missed"""
    reason: str | None
    """Why it was skipped, in a word such as `quiet_hours`; null if it was not."""
    rule: str | None
    """The key of the routine that decided it, with its value; null if none did."""
    run: str | None
    """The id of the run that it started; null if it started none."""
    lateness: float
    """How many seconds after the slot the decision was made."""


class DayView(TypedDict):
    """What became of one routine on one day."""

    routine: str
    """The name of the routine."""
    day: str
    """The date, in the daemon's zone."""
    outcomes: dict[str, int]
    """Runs by status, those that had nothing to say as `silent`; slots `missed` or `skipped`
    without a run.
    """
    tokens: dict[str, int]
    """`input` and `output`."""


class CheckView(TypedDict):
    """One row of `doctor`."""

    name: str
    """What was checked."""
    state: str
    """ok, warn or fail"""
    found: str
    """What was found."""
    fix: str
    """What to do; empty where nothing is to be done."""


class DoctorView(TypedDict):
    """Whether the installation is sound; `ok` is false if one check fails."""

    ok: bool
    """Whether no check failed."""
    checks: list[CheckView]
    """The checks, in the order in which `agentd doctor` prints them."""


class ReloadView(TypedDict):
    """What a reload changed."""

    added: list[str]
    """Names of routines that are new."""
    changed: list[str]
    """Names of routines whose files were edited."""
    removed: list[str]
    """Names of routines whose files are gone."""
    files: list[str]
    """What else was taken up: config and policy by the names of their files, keys, addresses, tools
    of one's own.
    """
    restart: list[str]
    """Tables and keys of the config that have changed since the daemon was started, and that count
    from its next start on.
    """
    faults: list[FaultView]
    """Faults of the files that were not taken up."""


class ResumedRoutinesView(TypedDict):
    """Which routines go on."""

    resumed: list[str]
    """Their names; those that were not paused are none of them."""


class RoutineCounts(TypedDict):
    """How many routines there are, by state."""

    on: int
    """Those that run when they are due."""
    paused: int
    """Paused by a person or by the daemon."""
    disabled: int
    """Those with `enabled = false`."""
    elsewhere: int
    """Those that other machines run."""
    held: int
    """Those that do not start until a rehearsal of them was approved."""
    invalid: int
    """Those whose files cannot be used."""
    kept: int
    """Those among the others whose files are invalid by now: they run by what was there before."""


class IncidentView(TypedDict):
    """Something that is wrong, from its first failure to the success that ended it."""

    id: int
    """The number that `agentctl ack` takes."""
    subject: str
    """What has failed: `routine NAME`, `target NAME` and the like."""
    detail: str
    """The latest error."""
    opened: str
    """When it failed first."""
    seen: str
    """When it failed last."""
    count: int
    """How often it failed."""
    told: str | None
    """When people were sent the last alert or reminder; null if they were sent none."""
    targets: list[str]
    """The targets that were alerted, and are sent the recovery."""
    acked: str | None
    """When a person took note of it, which ends the reminders; null until then."""
    closed: str | None
    """When it ended; null until then."""
    run: str | None
    """The id of the last run that failed by it; null where it is about no run."""


class RangeView(TypedDict):
    """A forecast amount: the median, and what is exceeded one time in twenty."""

    p50: float
    """The median."""
    p95: float
    """The 95th percentile."""


class ExpectedUsageView(TypedDict):
    """What some starts will take."""

    key: str
    """The day, as `2026-11-28`, the routine, or `total`."""
    starts: int
    """How many starts are counted."""
    tokens: RangeView
    """Tokens, input and output."""
    usd: RangeView
    """Dollars."""
    seconds: RangeView
    """Seconds under way."""


class ForecastView(TypedDict):
    """What the coming days will take."""

    days: list[ExpectedUsageView]
    """One for each day, the next one first."""
    routines: list[ExpectedUsageView]
    """One for each routine that starts in these days."""
    unknown: list[str]
    """Routines that never ran; they are not in the sums."""
    without_model: list[str]
    """Routines that ask a model by now, and have only run without one; the sums hold no tokens of
    them.
    """
    collisions: list[dict[str, Any]]
    """The first minutes in which several routines start."""
    collided: int
    """In how many minutes several routines start."""
    paced: NotRequired[list[dict[str, Any]]]
    """Routines whose runs say when to come again (`pace`): the fewest starts, which the sums hold,
    and the most; left out if there are none.
    """
    nights: list[dict[str, Any]]
    """Nights in which clocks change, and what starts in them."""
    breaches: list[dict[str, Any]]
    """The caps that may be reached, and the first day of that."""
    total: ExpectedUsageView
    """The sum of all days."""


class WorkerView(TypedDict):
    """A daemon or worker, of several on one database."""

    id: str
    """The id of the process in the database."""
    kind: str
    """daemon or worker"""
    host: str
    """The name of its machine."""
    pid: int
    """Its process id on that machine."""
    version: str
    """The version of agentd that it runs."""
    started: str
    """When it started."""
    seen: str
    """When it sent its latest heartbeat."""
    silent: float
    """How many seconds ago that was."""
    running: int
    """How many runs it executes now."""
    capacity: int
    """How many runs it executes at once, at most."""
    leads: bool
    """Whether it is the leader, which sends deliveries and maintains the journal."""


class StatusView(ProcessView):
    """The daemon at a glance."""

    version: str
    """The version of agentd."""
    edit: bool
    """Whether the files of routines may be written here: [ui] edit."""
    routines: RoutineCounts
    """How many routines there are, by state."""
    counts: dict[str, Any] | None
    """`runs` and `deliveries` by status, how many `steps` there are, and the `bytes` of the
    database; null if they were not asked for.
    """
    next: list[FireView]
    """The next starts, the earliest first."""
    active: list[RunBrief]
    """The runs that have not ended."""
    waiting: dict[str, int]
    """The active runs that wait for room, with how many stand before each."""
    stranded: dict[str, str]
    """The active runs that no machine can execute, with what they wait for."""
    paused: list[PausedRoutineView]
    """The paused routines."""
    incidents: list[IncidentView]
    """What is wrong now."""
    workers: list[WorkerView]
    """Who executes runs, where several processes share the database."""


def encode_json(value: object) -> bytes:
    """Return JSON; what no UTF-8 can carry, such as half of a file name in another encoding, is
    replaced.
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:  # of a damaged row, which may hold bytes in place of a text
        text = json.dumps(_decode_bytes(value), ensure_ascii=False)
    return text.encode(errors="replace")


def _decode_bytes(value: Any) -> Any:
    """Return a value for JSON with texts in place of bytes."""
    match value:
        case bytes():
            return value.decode(errors="replace")
        case dict():
            return {_decode_bytes(key): _decode_bytes(item) for key, item in value.items()}
        case list() | tuple():
            return [_decode_bytes(item) for item in value]
    return value


def iso(moment: datetime) -> str:
    """Return the moment in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(moment: datetime | None) -> str | None:
    return iso(moment) if moment is not None else None


def view_of_worker(worker: Worker) -> WorkerView:
    """Return a process as clients see it."""
    return WorkerView(
        id=worker.id,
        kind=worker.kind,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        started=iso(worker.started),
        seen=iso(worker.seen),
        silent=round(worker.since_heartbeat.total_seconds(), 1),
        running=worker.running,
        capacity=worker.capacity,
        leads=worker.is_leader,
    )


def views_of_faults(error: ConfigError) -> list[FaultView]:
    return [
        FaultView(
            file=fault.file,
            key=fault.key,
            line=fault.line,
            found=fault.found,
            problem=fault.problem,
            hint=fault.hint,
            text=str(fault),
        )
        for fault in error.faults
    ]


def view_of_delivery(delivery: Delivery) -> DeliveryView:
    return DeliveryView(
        id=delivery.id,
        run=delivery.run,
        routine=delivery.routine,
        target=delivery.target,
        kind=delivery.kind,
        status=delivery.status.value,
        attempts=delivery.attempts,
        created=iso_or_none(delivery.created),
        next_at=iso_or_none(delivery.next_at),
        receipt=delivery.receipt,
        error=delivery.error,
    )


def worst_status(statuses: Iterable[DeliveryStatus]) -> str | None:
    """Return the worst of a run's deliveries: a report that did not arrive is never hidden by one
    that did.
    """
    statuses_found = set(statuses)
    worst_first = (
        DeliveryStatus.FAILED,
        DeliveryStatus.PENDING,
        DeliveryStatus.DELIVERED,
        DeliveryStatus.SUPPRESSED,
    )
    return next((status.value for status in worst_first if status in statuses_found), None)


def view_of_usage(usage: Usage) -> UsageView:
    return UsageView(
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        output=usage.output,
        reasoning=usage.reasoning,
    )


def brief_of_run(run: Run, delivery: str | None) -> RunBrief:
    lines = [line for line in (run.report or "").splitlines() if line.strip("# ")]
    # like a mail, it passes over a heading such as "Report", where something follows
    if len(lines) > 1 and lines[0].startswith("#") and is_generic_heading(lines[0], run.routine):
        del lines[0]
    headline = lines[0].strip("# ") if lines else ""
    if run.model == NO_MODEL and run.report:
        headline = "facts only"
    return RunBrief(
        id=run.id,
        routine=run.routine,
        status=run.status.value,
        trigger=run.trigger,
        slot=iso(run.slot),
        created=iso(run.created),
        started=iso_or_none(run.started),
        ended=iso_or_none(run.ended),
        not_before=iso_or_none(run.not_before),
        silent=run.silent,
        detail=run.detail,
        headline=headline[:200],
        delivery=delivery,
        usage=view_of_usage(run.usage),
    )


def view_of_run(
    run: Run,
    deliveries: Sequence[Delivery],
    position: int | None,
    event_input: Any = None,
    *,
    usd: float | None = None,
) -> RunView:
    return RunView(
        **brief_of_run(run, worst_status(delivery.status for delivery in deliveries)),
        event=run.event,
        definition=run.definition,
        attempt=run.attempt,
        active=round(run.active, 3),
        cancel=run.cancel,
        goal=run.goal,
        input=event_input,
        report=run.report,
        provider=run.provider,
        model=run.model,
        iterations=run.iterations,
        taint=run.taint.value,
        sandbox=run.sandbox,
        deliveries=[view_of_delivery(delivery) for delivery in deliveries],
        position=position if run.status is Status.QUEUED else None,
        usd=usd,
    )


def view_of_step(step: Step) -> StepView:
    return StepView(
        seq=step.seq,
        kind=step.kind.value,
        iteration=step.iteration,
        call=step.call_id,
        at=iso_or_none(step.at),
        body=_view_body(step.body),
    )


def _view_body(body: dict[str, Any]) -> dict[str, Any]:
    """Return a step's body without facts and their boundary, which its text holds, and with the
    size of each picture for its bytes.
    """
    if "facts" in body:
        body = {name: body[name] for name in body if name not in ("facts", "boundary")}
    if "images" not in body:
        return body
    images = [
        {
            "media_type": image["media_type"],
            "bytes": len(image["data"]) * 3 // 4 - image["data"][-2:].count("="),
        }
        for image in body["images"]
    ]
    return {**body, "images": images}


def view_of_slot(slot: SlotRow) -> SlotView:
    return SlotView(
        routine=slot.routine,
        first=iso(slot.first),
        last=iso(slot.last),
        count=slot.count,
        outcome=slot.outcome.value,
        reason=slot.reason.value if slot.reason else None,
        rule=slot.rule,
        run=slot.run,
        lateness=round(slot.lateness, 3),
    )
