"""The values that all packages share, such as runs, steps and deliveries: frozen, keyword-only,
standard library only.

A run changes by `run.to(Status.RUNNING)`, which returns a new value.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self, TypeAlias

Json: TypeAlias = dict[str, Any]


WAIT_MOVED = "its time was moved, as the clock was set back"
"""What status and lists say of a run whose wait began while the clock was ahead."""


class Status(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def has_ended(self) -> bool:
        return not MOVES.get(self)


# Every way a run may move. The diagram in docs/routines.md is drawn from this table.
MOVES: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELLED, Status.INTERRUPTED}),
    # back to QUEUED: suspended by a shutdown or by a transient fault, to be resumed
    Status.RUNNING: frozenset(
        {
            Status.SUCCEEDED,
            Status.FAILED,
            Status.TIMED_OUT,
            Status.CANCELLED,
            Status.SKIPPED,
            Status.WAITING,
            Status.QUEUED,
            Status.INTERRUPTED,
        }
    ),
    # to QUEUED: approved, rejected or expired, and resumed
    Status.WAITING: frozenset({Status.QUEUED, Status.CANCELLED}),
}
# The ends that are failures of the routine; a cancelled run and one with a closed gate are none.
FAILURES = frozenset({Status.FAILED, Status.TIMED_OUT, Status.INTERRUPTED})


class Outcome(StrEnum):
    """What became of a slot."""

    RAN = "ran"
    LATE = "late"
    CAUGHT_UP = "caught_up"
    SKIPPED = "skipped"
    MISSED = "missed"


class Reason(StrEnum):
    """Why a slot was skipped or missed."""

    OVERLAP = "overlap"
    QUIET_HOURS = "quiet_hours"
    BUDGET = "budget"
    GATE = "gate"
    PAUSED = "paused"
    BACKOFF = "not_before"
    """After failures, nothing is started yet."""
    DOWN = "down"
    DISK_FULL = "disk_full"
    """The daemon was up, and could write no slot."""


class DeliveryStatus(StrEnum):
    """Where a report is on its way to one target."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    SUPPRESSED = "suppressed"


class StepKind(StrEnum):
    """The kinds of steps in the journal of a run."""

    PROMPT = "prompt"
    LLM = "llm"
    CALL = "call"
    RESULT = "result"
    MESSAGE = "message"
    FAILOVER = "failover"
    LIMIT = "limit"
    """A cap did not cover asking the model: the run ends by it."""


class Effect(StrEnum):
    """What the policy says of a call; the strictest of several wins."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Taint(StrEnum):
    """Whether a run has read texts of strangers, who may have put orders into them. The taint of a
    run only ever rises.
    """

    NONE = ""
    TAINTED = "tainted"
    HIGH = "high"
    """Some of it read like orders to a model."""


def max_taint(first: Taint, second: Taint) -> Taint:
    """Return the higher of two taints."""
    return first if _TAINT_RANKS[first] >= _TAINT_RANKS[second] else second


_TAINT_RANKS = {taint: rank for rank, taint in enumerate(Taint)}


class ApprovalStatus(StrEnum):
    """What became of a request for approval."""

    PENDING = "pending"
    APPROVED = "approved"
    USED = "used"
    """Approved, and the call was started: one approval starts one call."""
    REJECTED = "rejected"
    EXPIRED = "expired"
    VOID = "void"
    """The call would no longer do what was asked about, or its run does not wait any more."""


class SegmentType(StrEnum):
    """What kind of text an anchor points at."""

    USER_MESSAGE = "user_message"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    RESPONSE = "response"
    SUMMARY = "summary"
    KNOWLEDGE = "knowledge"


NO_MODEL = "none"
"""The `model` of a run without one: its report is the gathered facts."""

ADVICE_AFTER_DENIAL = {
    "en": "Nobody can be asked; do without it.",
    "zh": "没有人可以询问;请不用它继续,或说明缺少什么。",
}
"""How what a model is told of a denied call ends, by language; see `without_advice`."""


def without_advice(text: str) -> str:
    """Return what a model was told of a denied call as a person reads it: the person can be asked,
    and can change the policy.
    """
    for advice in ADVICE_AFTER_DENIAL.values():
        text = text.replace(f" {advice}", "")
    return text


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
# For bytes.translate: the five low bits of each byte as a character.
_BYTES_TO_CROCKFORD = (_CROCKFORD * 8).encode()
_MILLISECOND = 1_000_000  # nanoseconds


def new_id() -> str:
    """Return a ULID: 26 characters that sort by the time they were made
    (https://github.com/ulid/spec).

    Of its 80 random bits the first 20 tell the nanosecond: two runs of one millisecond are in order
    too.
    """
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """Return `count` ULIDs in ascending order, as if a nanosecond lay between one and the next.

    Ten thousand runs that are due together need as many ids at once. Random bytes come from one
    system call for all: each such call releases the interpreter's lock, which a thread gets back
    late while the event loop is busy.
    """
    random_characters = os.urandom(12 * count).translate(_BYTES_TO_CROCKFORD).decode()
    now = time.time_ns()
    ids: list[str] = []
    last_milliseconds, prefix = -1, ""
    for index in range(count):
        milliseconds, nanoseconds = divmod(now + index, _MILLISECOND)
        if milliseconds != last_milliseconds:  # ids of one millisecond share their first part
            last_milliseconds = milliseconds
            prefix = "".join(
                [_PAIRS[milliseconds >> shift & 1023] for shift in (40, 30, 20, 10, 0)]
            )
        order = _PAIRS[nanoseconds >> 10] + _PAIRS[nanoseconds & 1023]
        ids.append(prefix + order + random_characters[12 * index : 12 * index + 12])
    return ids


def utc(moment: datetime) -> datetime:
    """Return the same instant in UTC; a time without zone is a programming error and raises
    ValueError.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone")
    return moment.astimezone(UTC)


# --- talking to a model -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call a model asked for."""

    name: str
    arguments: Json
    id: str | None = None
    """`call_…` or `toolu_…`: ties the result to the call."""
    _: KW_ONLY
    invalid: str | None = None
    """Why the arguments could not be read, if so; such a call is never executed and its `arguments`
    are `{}`.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image for a model."""

    data: bytes = field(repr=False)
    media_type: str
    """By the first bytes of the data: image/png, image/jpeg, image/gif or image/webp."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """The result of one gather step."""

    name: str
    tool: str
    ok: bool
    text: str
    """For people and models to read."""
    value: Any = None
    """What the tool returned; not part of the prompt."""
    changes: tuple[str, ...] = ()
    """What differs from the last report, in words."""


@dataclass(frozen=True, slots=True)
class LLMMessage:
    """One message of a conversation, in no vendor's format."""

    role: str
    """system, user, assistant or tool"""
    content: str = ""
    name: str | None = None
    """The function's name, on a tool message."""
    tool_calls: Sequence[FunctionCall] = ()
    tool_call_id: str | None = None
    provider_extras: Any = None
    """The vendor's own payload, JSON only: what `LLMResponse.provider_extras` of the answer was.

    Opaque to all but its provider. Those of agentd write `{"vendor", "model", "api", "blocks"}`,
    replay it byte for byte when vendor and api match, and else drop it.
    """
    _: KW_ONLY
    ok: bool = True
    """False on a tool message that reports a failure."""
    images: tuple[Image, ...] = ()
    """Shown before the text, on a user message."""
    facts: tuple[Fact, ...] = ()
    """The facts that the text holds; only the provider `offline` reads them here."""

    def __post_init__(self) -> None:
        if type(self.tool_calls) is not tuple:  # a list or None, as programs write it
            object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens in one convention for all vendors: `input` is everything sent, cached parts
    included.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    """Reasoning included."""
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
        )

    @property
    def total(self) -> int:
        return self.input + self.output


_TOKEN_COUNTS = frozenset({"input", "cache_read", "cache_write", "output", "reasoning"})


@dataclass(frozen=True, slots=True, init=False)
class LLMResponse:
    """What a model answered."""

    content: str
    function_calls: tuple[FunctionCall, ...]
    finish_reason: str
    """One vocabulary for all vendors: stop | tool_calls | length | refusal | content_filter | pause
    | context.
    """
    usage: Usage
    reasoning: str
    """Readable thinking, if the vendor shows it."""
    provider_extras: Any
    """Goes into the assistant message's `provider_extras`; JSON only."""
    model: str
    request_id: str | None
    note: str
    """What a person should know of this answer, such as that the server has read only a part of the
    question.
    """
    other_metadata: Json
    """What else the provider says of the answer; not kept in the journal."""

    def __init__(
        self,
        content: str,
        function_calls: Iterable[FunctionCall] | None = None,
        finish_reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        raw_response: Any = None,
        *,
        usage: Usage | None = None,
        reasoning: str = "",
        provider_extras: Any = None,
        model: str = "",
        request_id: str | None = None,
        note: str = "",
        other_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the fields by their names, or as the properties `metadata` and `raw_response` return
        them.

        Of `metadata`, `thinking` is the reasoning and `usage` the fields of a Usage, unless these
        are given by name. `raw_response` is another name of `provider_extras`. Without
        `finish_reason` it is "tool_calls" where there are calls, else "stop".
        """
        fields = {**(metadata or {}), **(other_metadata or {})}
        counts = fields.get("usage")
        if isinstance(counts, Mapping) and _TOKEN_COUNTS.issuperset(counts):
            usage = usage or Usage(**counts)
            del fields["usage"]
        metadata_reasoning = fields.pop("thinking", "")
        metadata_model = fields.pop("model", "")
        metadata_request_id = fields.pop("request_id", None)
        metadata_note = fields.pop("note", "")
        calls = tuple(function_calls or ())
        values = {
            "content": content,
            "function_calls": calls,
            "finish_reason": finish_reason or ("tool_calls" if calls else "stop"),
            "usage": usage or Usage(),
            "reasoning": reasoning or metadata_reasoning,
            "provider_extras": raw_response if provider_extras is None else provider_extras,
            "model": model or metadata_model,
            "request_id": request_id or metadata_request_id,
            "note": note or metadata_note,
            "other_metadata": fields,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the class is frozen

    @property
    def metadata(self) -> Json:
        """What is known of the answer besides its text, in one table."""
        fields = {
            "thinking": self.reasoning,
            "model": self.model,
            "request_id": self.request_id,
            "note": self.note,
        }
        tokens = {
            name: getattr(self.usage, name)
            for name in ("input", "cache_read", "cache_write", "output", "reasoning")
        }
        texts = {key: value for key, value in fields.items() if value}
        return {"usage": tokens, **self.other_metadata, **texts}

    @property
    def raw_response(self) -> Any:
        """What the vendor wants to see again as it sent it: the message's `provider_extras`."""
        return self.provider_extras

    def as_message(self) -> LLMMessage:
        return LLMMessage(
            role="assistant",
            content=self.content,
            tool_calls=self.function_calls,
            provider_extras=self.provider_extras,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A piece of a streamed answer; the last one carries the whole response."""

    delta: str = ""
    thinking: str = ""
    response: LLMResponse | None = None


# --- judging and running a call -----------------------------------------------------------------


# The rule of a verdict on a call of which the policy cannot tell what it would do, or that no rule
# could allow.
BUILT_IN_RULE = "built in"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the policy says of one call, and by which rule."""

    effect: Effect
    rule: str
    """As in the file: `rule 7 (shell: git log)`, or `default`."""
    reason: str = ""
    alternative: str = ""
    """What would be allowed instead, for the model to read."""
    once: str = ""
    """The address that a run reads at most once: later calls get the first answer. Empty for calls
    that may be repeated.
    """
    output_folder: str = ""
    """The folder of the workspace whose bounds hold for a file that a tainted run writes unasked;
    empty for all other calls.
    """

    @property
    def allows(self) -> bool:
        return self.effect is Effect.ALLOW


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """How one tool call ended, as the model reads it."""

    ok: bool
    text: str
    value: Any = None
    """What the tool returned, where it was JSON: gates compare it."""
    transient: bool = False
    """Trying again soon may help; an idempotent tool is then tried again."""
    taint: Taint = Taint.NONE
    """The taint that a run gets by reading the text."""
    dry_run_effect: str = ""
    """What the call would have done, in a rehearsal, which did not run it; else empty."""
    withheld: bool = False
    """Whether the injection check kept what the tool returned from the model."""


@dataclass(slots=True)
class ProgramTime:
    """How long the programs of a run have run so far."""

    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """The run that a tool works for: passed to every function that has a parameter of this type,
    never shown to the model.
    """

    run: str
    routine: str
    """As the policy knows it: the routine's name; `maker/name` for one that an agent made."""
    workspace: Path
    language: str = "en"
    tainted: bool = False
    """Whether the run has read texts of strangers: its calls are judged more strictly."""
    approved: str = ""
    """The approval that a person gave for this very call, once or for good; empty where none was
    needed.
    """
    call: str = ""
    """The id of the call in its run, the same after a crash: `3.0` is the first call of iteration
    3.
    """
    programs: ProgramTime = field(default_factory=ProgramTime)
    """Shared by all calls of the run."""
    dedupe: str = ""
    """The field by which reported items are told apart (`[dedupe] key`); empty where the routine
    does not report items.
    """
    verbatim: bool = False
    """Whether people read the result as it is, and no model does: words for a model are left out.
    A call that failed has its output so far as text, and why it failed as
    `value = {"failure": …}`.
    """

    def permits(self, verdict: Verdict) -> bool:
        """Return whether a call with this verdict may run here."""
        return verdict.allows or (verdict.effect is Effect.ASK and bool(self.approved))


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """One call that a person is to be asked about."""

    call_id: str
    """The id of the call in its run, as `ToolContext.call`."""
    tool: str
    request: Json
    """What the call would do: see runs/approvals/request.py."""
    digest: str
    """SHA-256 of the request, to which an approval is bound."""
    rule: str
    reason: str = ""
    taint: Taint = Taint.NONE


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingNotice:
    """What people are told when a run starts to wait for them, before its time is up, and when it
    has waited in vain.
    """

    title: str
    head: str
    """The text above the questions."""
    questions: tuple[tuple[str, str], ...]
    """For each approval request the id that its approval gets if it is new, and the text about it.
    """
    targets: tuple[str, ...] = ()
    """The targets to send it to, without duplicates: the routine's own and those of `[incidents]
    to`. Empty for a later notice of the same wait, which goes to the targets of the first.
    """
    is_tainted: bool = False
    """Whether a question quotes a call of a tainted run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """An approval request as a person was asked, and the answer."""

    id: str
    run: str
    routine: str
    approval_request: ApprovalRequest
    status: ApprovalStatus
    created: datetime
    expires: datetime
    decided: datetime | None = None
    """When it was answered, expired or was voided; None while it is pending."""
    by: str = ""
    """The user who answered: `uid 1000`; empty where nobody did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One record of a run in the journal."""

    kind: StepKind
    iteration: int
    body: Json
    call_id: str | None = None
    """Ties a `result` to its `call`; unique within the run."""
    seq: int = -1
    """Its number in the run, from 0; the journal sets it."""
    at: datetime | None = None
    """When it was written; the journal sets it."""


# --- a run ---------------------------------------------------------------------------------------


# How the event of a run by hand begins that asks the gate of its routine.
GATED_EVENT = "gate/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One execution of a routine."""

    id: str
    routine: str
    definition: str
    """The hash of the routine's definition as the run began it, whatever is edited meanwhile."""
    trigger: str
    """cron, every, at, on_start, manual, first_run, …"""
    slot: datetime
    event: str | None = None
    """What makes the slot unique where it is an event: the client's id of a manual run, for
    instance.
    """
    status: Status = Status.QUEUED
    attempt: int = 0
    """How often it was claimed, resuming included."""
    fruitless_attempts: int = 0
    """Attempts in a row without a new step, the present one included; they count against `attempts`
    of `[run.retry]`.
    """
    fence: int = 0
    """The number of the latest claim: a process with an older one writes nothing more."""
    created: datetime
    started: datetime | None = None
    """When it was claimed first; None until then."""
    ended: datetime | None = None
    not_before: datetime | None = None
    """A queued run is not claimed before this moment; None: at once."""
    active: float = 0.0
    """Seconds under way so far, which count towards the timeout: not while it was suspended,
    waiting or the daemon was down.
    """
    cancel: bool = False
    """Whether it was asked to stop; the process that owns it then ends it as cancelled."""
    goal: str = ""
    report: str | None = None
    silent: bool = False
    """It ended well with nothing to say."""
    detail: str | None = None
    """Why it ended as it did, one line."""
    provider: str = ""
    model: str = ""
    usage: Usage = Usage()
    iterations: int = 0
    taint: Taint = Taint.NONE
    """The taint of all it has read; a sub-agent begins with that of its parent."""
    sandbox: str = ""
    """The sandbox that its programs ran in, as `SandboxDetection` names its level."""
    waits_moved: bool = False
    """`not_before` was moved, as the clock was set back while it waited."""

    @property
    def base_routine(self) -> str:
        """The name of the routine in routines/: a rehearsal runs under the name
        `rehearsal:NAME`.
        """
        return self.routine.removeprefix("rehearsal:")

    @property
    def asks_gate(self) -> bool:
        """Whether a person wanted the gate to be asked, which runs by hand do not do otherwise."""
        return (self.event or "").startswith(GATED_EVENT)

    def to(self, status: Status, **changes: Any) -> Self:
        """Return this run in another status; raises ValueError for a move that MOVES does not
        hold.
        """
        if status not in MOVES.get(self.status, frozenset()):
            raise ValueError(f"a run cannot go from {self.status} to {status}")
        return replace(self, status=status, **changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """How an agent answered one message."""

    content: str
    function_calls: tuple[Json, ...] = ()
    """Every call in order: `{"name", "arguments", "id", "ok", "verdict"}`."""
    iterations: int = 0
    usage: Usage = Usage()
    status: Status = Status.SUCCEEDED
    silent: bool = False
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The report of a run, as targets get it."""

    run: str
    routine: str
    slot: datetime
    status: Status
    text: str
    scheduled_zone: str = "UTC"
    """The time zone of the routine, in which people read `slot`."""
    taint: Taint = Taint.NONE


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One report on its way to one target."""

    id: int
    run: str
    routine: str
    target: str
    """A built-in target (`file`, `log`, `desktop`), or a target or chat of config.toml."""
    options: Json
    """The `path` of a file, the event of a `ping`, the ids of the `approvals` that a chat shows
    buttons for, and what a message is composed from: MessageOptions of delivery/message.py.
    """
    status: DeliveryStatus
    attempts: int
    next_at: datetime | None
    """When it is tried next; None if it is not tried again."""
    receipt: str | None
    """What the target said when it took the delivery; None until then."""
    error: str | None
    """Why the last attempt failed; None if it did not."""
    report: Report
    created: datetime | None = None
    """When its run ended: what a limit on retrying counts from."""
    content: str = "report"
    """`report`, or the kind of a notice: `approval.asked`, `incident.opened`."""

    @property
    def kind(self) -> str:
        """`report`, `question` (a notice that asks for the approval of a call) or `notice`."""
        kinds = {
            "report": "report",
            "approval.asked": "question",
            "approval.reminder": "question",
        }
        return kinds.get(self.content, "notice")


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What a target said when it took a delivery."""

    detail: str
    """Where it is now: a path, a message id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """A fault, from its first failure to the success that ended it."""

    id: int
    subject: str
    """What is faulty: `routine daily-report`, `target mail`."""
    signature: str
    """The error without numbers and ids: failures of the subject with the same signature are one
    incident.
    """
    detail: str
    """The error as it was last."""
    opened: datetime
    last_seen: datetime
    """When it failed last."""
    count: int
    last_alert: datetime | None
    """When people were sent the last alert or reminder."""
    targets: tuple[str, ...]
    """The targets that were alerted, and are sent the recovery."""
    acked: datetime | None
    """When a person said that they know of it, which stops reminders; None if nobody did."""
    closed: datetime | None
    """When it was over; None while it lasts."""
    run: str | None
    """The last run that failed by it; None if no run did."""


# --- memory --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """The exact place of a text in memory."""

    run_id: str
    iteration: int
    segment: int
    type: SegmentType
    timestamp: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryChunk:
    """A text found in memory, its place and how well it fits the question."""

    content: str
    anchor: Anchor
    relevance: float
    """1.0 is the best hit of this question; not comparable between questions."""
    key: str | None = None
    """Set when it is an item that was stored by key."""
    source: str = ""
    """The routine it comes from."""
    speaker: str = ""
    """`person`, `agent` or the name of a tool."""
    tainted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpandedContext:
    """A text found in memory, with those around it."""

    run: str
    focus: MemoryChunk
    before: tuple[MemoryChunk, ...]
    after: tuple[MemoryChunk, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedItem:
    """An item that a run has reported by the tool `report_items`, as the journal keeps it."""

    digest: str
    key: str
    title: str


def digest_of(key: str) -> str:
    """Return the digest by which the journal knows a reported item: 32 hexadecimal digits."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
