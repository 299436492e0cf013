"""How the API's answers look: typed JSON, made from the words of the product.

The OpenAPI document is read off here.

Moments are ISO 8601 in UTC; durations are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

# typing's own TypedDict hides from pydantic, before Python 3.12, which keys may be absent
from typing_extensions import TypedDict

from daemon.models import NO_MODEL, Delivery, DeliveryStatus, Run, Status, Step, Usage

if TYPE_CHECKING:
    from daemon.errors import ConfigError
    from daemon.store.journal import SlotRow
    from daemon.store.workers import Worker

T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """Part of a list; `next` is the `cursor` of the following part, null on the last one."""

    items: list[T]
    next: str | None


class ProcessView(TypedDict):
    """What only the process itself knows."""

    pid: int
    started: str
    config: str | None
    state: str
    socket: str
    zone: str
    log: str | None
    provider: str
    """Which model answers unless a routine says otherwise; "offline" asks none."""
    sandbox: str | None
    """How well programs of tools are confined; None while it is still being found out."""
    fault: str | None
    """Why the last reload changed nothing, if it failed."""


class FaultView(TypedDict):
    """One fault in one place of a file."""

    file: str
    key: str
    found: str
    problem: str
    hint: str
    text: str
    """All of it in one line."""


class ProblemView(TypedDict, total=False):
    """What went wrong, by RFC 9457."""

    title: str
    status: int
    detail: str
    code: str
    faults: list[FaultView]
    run: str


class UsageView(TypedDict):
    """Tokens; `input` is everything sent, cached parts included."""

    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int


class DeliveryView(TypedDict):
    """One report on its way to one target."""

    id: int
    run: str
    routine: str
    target: str
    kind: str
    """report, question (a run waits for an approval) or notice (an incident, a recovery, the
    digest)
    """
    status: str
    attempts: int
    created: str | None
    """When its run ended, or what the notice tells of happened."""
    next_at: str | None
    receipt: str | None
    error: str | None


class RunBrief(TypedDict):
    """A run as a line of a list."""

    id: str
    routine: str
    status: str
    trigger: str
    slot: str
    created: str
    started: str | None
    ended: str | None
    not_before: str | None
    """When it goes on, where it was put off."""
    silent: bool
    detail: str | None
    headline: str
    """The first line of its report."""
    delivery: str | None
    """Its deliveries in a word: failed if one is, else pending if one is, else delivered; null
    without any.
    """
    usage: UsageView


class RunView(RunBrief):
    """All of a run but its steps."""

    event: str | None
    definition: str
    attempt: int
    active: float
    cancel: bool
    goal: str
    input: Any
    """What the event that started it brought along: the paths of files, the body of a webhook, the
    run before.
    """
    report: str | None
    provider: str
    model: str
    iterations: int
    sandbox: str
    """How well its programs were confined: bubblewrap, landlock, profiles or off; empty until it
    has ended.
    """
    taint: str
    """What of strangers it has read: empty, tainted, or high if some of it read like orders."""
    deliveries: list[DeliveryView]
    position: int | None
    """How many runs stand before it, while it waits for room."""
    usd: float | None
    """What its models were paid, where all their prices are known."""


class StepView(TypedDict):
    """One step of a run, as the journal has it."""

    seq: int
    kind: str
    iteration: int
    call: str | None
    at: str | None
    body: dict[str, Any]


class RoutineView(TypedDict):
    """A routine, when it runs and how it last went."""

    name: str
    description: str
    state: str
    """on, paused, held (back until a rehearsal was approved), disabled, elsewhere (on other
    machines) or invalid
    """
    paused_until: str | None
    """When it goes on by itself, where it is paused until then."""
    paused_why: str | None
    """Why the daemon paused it, where it was not a person."""
    words: str
    """When it runs."""
    by_hand: bool
    """Neither a schedule nor an event starts it."""
    next: str | None
    last: RunBrief | None
    path: str | None
    made_by: str | None
    """The routine whose run made it, where it was no person."""
    asks: str | None
    """What a person will be asked about in its runs, and how that is changed."""
    faults: list[FaultView]


class RoutineDetail(RoutineView):
    """All of a routine."""

    fires: list[str]
    definition: dict[str, Any]


class RoutineSource(TypedDict):
    """The file of a routine."""

    path: str
    text: str
    """The TOML as it was written."""
    digest: str
    """The SHA-256 of the file's bytes, which a change sends back as `If-Match`."""
    read_only: str | None
    """Why a change is refused; null where it is not."""


class RecipeView(TypedDict):
    """A shipped text for a new routine."""

    name: str
    text: str


class FireView(TypedDict):
    """One scheduled start to come."""

    routine: str
    at: str


class PausedView(TypedDict):
    """A routine that is paused."""

    routine: str
    until: str | None
    why: str | None


class WhyView(TypedDict):
    """What became of a slot, and by which rule."""

    routine: str
    slot: str | None
    """Null where the moment is none of the routine's."""
    outcome: str
    """ran, late, caught_up, skipped, missed, not_yet, undecided, before_baseline, disabled,
    elsewhere or never_due
    """
    reason: str | None
    rule: str
    sentence: str
    run: str | None


class RenamedView(TypedDict):
    """A routine under its new name."""

    routine: RoutineDetail
    named_by: list[str]
    """Those that still come after the old name."""


class SlotView(TypedDict):
    """What became of one slot, or of `count` slots from `first` to `last` that were not started."""

    routine: str
    first: str
    last: str
    count: int
    outcome: str
    reason: str | None
    rule: str | None
    """The key that let it pass."""
    run: str | None
    lateness: float


class DayView(TypedDict):
    """What became of one routine on one day."""

    routine: str
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
    state: str
    """ok, warn or fail"""
    found: str
    fix: str


class DoctorView(TypedDict):
    """Whether the installation is sound; `ok` is false if one check fails."""

    ok: bool
    checks: list[CheckView]


class ReloadView(TypedDict):
    """What a reload changed."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    files: list[str]
    """What else was taken up: config and policy by the names of their files, keys, addresses, tools
    of one's own.
    """
    faults: list[FaultView]


class ResumedView(TypedDict):
    """Which routines go on."""

    resumed: list[str]


class RoutineCounts(TypedDict):
    """How many routines there are, by state."""

    on: int
    paused: int
    disabled: int
    elsewhere: int
    held: int
    """Until a rehearsal of them was approved."""
    invalid: int
    kept: int
    """Those among the others whose files are invalid by now: they run by what was there before."""


class IncidentView(TypedDict):
    """Something that is wrong, from its first failure to the success that ended it."""

    id: int
    subject: str
    """What is in trouble: `routine NAME` or `target NAME`."""
    detail: str
    opened: str
    seen: str
    count: int
    told: str | None
    targets: list[str]
    acked: str | None
    closed: str | None
    run: str | None


class RangeView(TypedDict):
    """What is as likely to be exceeded as not, and what one time in twenty is."""

    p50: float
    p95: float


class NeedView(TypedDict):
    """What some starts will take."""

    key: str
    starts: int
    tokens: RangeView
    usd: RangeView
    seconds: RangeView


class ForecastView(TypedDict):
    """What the coming days will take."""

    days: list[NeedView]
    routines: list[NeedView]
    unknown: list[str]
    """Routines that never ran; they are not in the sums."""
    without_model: list[str]
    """Routines that ask a model by now, and have only run without one; the sums hold no tokens of
    them.
    """
    collisions: list[dict[str, Any]]
    """The first minutes in which several routines start."""
    collided: int
    nights: list[dict[str, Any]]
    """Nights in which clocks change, and what starts in them."""
    breaches: list[dict[str, Any]]
    """The caps that may be reached, and the first day of that."""
    total: NeedView


class WorkerView(TypedDict):
    """A daemon or worker, of several on one database."""

    id: str
    kind: str
    """daemon or worker"""
    host: str
    pid: int
    version: str
    started: str
    seen: str
    """When it was heard of last."""
    silent: float
    """How many seconds ago that was."""
    running: int
    """How many runs it executes now."""
    capacity: int
    """How many runs it executes at once, at most."""
    leads: bool
    """Whether it is the one that sends reports and keeps house."""


class StatusView(ProcessView):
    """The daemon at a glance."""

    version: str
    edit: bool
    """Whether the files of routines may be written here: [ui] edit."""
    routines: RoutineCounts
    counts: dict[str, Any]
    next: list[FireView]
    active: list[RunBrief]
    waiting: dict[str, int]
    """The active runs that wait for room, with how many stand before each."""
    stranded: dict[str, str]
    """The active runs that no machine can execute, with what they wait for."""
    paused: list[PausedView]
    incidents: list[IncidentView]
    """What is wrong now."""
    workers: list[WorkerView]
    """Who executes runs, where several processes share the database."""


def encode_json(value: object) -> bytes:
    """Return JSON; what no UTF-8 can carry, such as half of a file name in another encoding, is
    replaced.
    """
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def iso(moment: datetime) -> str:
    """Return the moment in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(moment: datetime | None) -> str | None:
    return iso(moment) if moment is not None else None


def worker_view(worker: Worker) -> WorkerView:
    """Return a process as clients see it."""
    return WorkerView(
        id=worker.id,
        kind=worker.kind,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        started=iso(worker.started),
        seen=iso(worker.seen),
        silent=round(worker.silent.total_seconds(), 1),
        running=worker.running,
        capacity=worker.capacity,
        leads=worker.leads,
    )


def fault_views(error: ConfigError) -> list[FaultView]:
    return [
        FaultView(
            file=fault.file,
            key=fault.key,
            found=fault.found,
            problem=fault.problem,
            hint=fault.hint,
            text=str(fault),
        )
        for fault in error.faults
    ]


def delivery_view(delivery: Delivery) -> DeliveryView:
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


def in_a_word(statuses: Iterable[DeliveryStatus]) -> str | None:
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


def usage_view(usage: Usage) -> UsageView:
    return UsageView(
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        output=usage.output,
        reasoning=usage.reasoning,
    )


def run_brief(run: Run, delivery: str | None) -> RunBrief:
    headline = next(
        (line.strip("# ") for line in (run.report or "").splitlines() if line.strip("# ")), ""
    )
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
        usage=usage_view(run.usage),
    )


def run_view(
    run: Run,
    deliveries: Sequence[Delivery],
    position: int | None,
    event_input: Any = None,
    *,
    usd: float | None = None,
) -> RunView:
    return RunView(
        **run_brief(run, in_a_word(delivery.status for delivery in deliveries)),
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
        deliveries=[delivery_view(delivery) for delivery in deliveries],
        position=position if run.status is Status.QUEUED else None,
        usd=usd,
    )


def step_view(step: Step) -> StepView:
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


def slot_view(slot: SlotRow) -> SlotView:
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
