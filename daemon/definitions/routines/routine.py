"""The keys of a routine file: one model per table, a line of help per key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
)

from daemon.definitions import cron as crontab
from daemon.definitions.calendar_file import Calendar
from daemon.definitions.config.tables import Dollars, Name, Zone
from daemon.definitions.schedule import interval_in_words
from daemon.definitions.skipped_days import is_calendar, leaves_workspace, parse_dates
from daemon.definitions.values import (
    Duration,
    InvalidValue,
    Items,
    JsonTable,
    PositiveDuration,
    Table,
    bounded_below,
    format_duration,
    parse_duration,
)
from daemon.system import patterns

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@lru_cache(maxsize=4096)  # thousands of routines share a few schedules
def _parse_fault(parse: Callable[[str], object], text: str) -> InvalidValue | None:
    try:
        parse(text)
    except crontab.CronError as error:
        return InvalidValue(f"{error.field} {error.text!r}: {error.problem}", hint=error.hint)
    return None


def _parsed_by(parse: Callable[[str], object]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, str) and (fault := _parse_fault(parse, value)):
            raise fault
        return value

    return BeforeValidator(check)


def _parse_catch_up(value: Any) -> Any:
    if value in ("once", "none"):
        return value
    try:
        return parse_duration(value)
    except InvalidValue:
        hint = {"True": 'write "once"', "False": 'write "none"'}.get(str(value), "")
        problem = 'expected "once", "none" or a duration such as "6h"'
        raise InvalidValue(problem, hint=hint) from None


def _format_catch_up(value: str | timedelta) -> str:
    return value if isinstance(value, str) else format_duration(value)


CatchUp: TypeAlias = Annotated[
    Literal["once", "none"] | timedelta,
    BeforeValidator(_parse_catch_up),
    PlainSerializer(_format_catch_up),
]


def _check_active_hours(value: Any) -> Any:
    if isinstance(value, str):
        match = _HOURS.fullmatch(value)
        if not match or value[6:] > "24:00":
            raise InvalidValue(
                'expected hours like "08:00-22:00"', hint='over midnight: "22:00-06:00"'
            )
        if match[1] + match[2] == match[3] + match[4]:
            raise InvalidValue(
                "begins and ends at the same time", hint='the whole day is "00:00-24:00"'
            )
    return value


def _check_glob(value: Any) -> Any:
    if isinstance(value, str):
        try:
            patterns.parse(value)
        except patterns.PatternError as error:
            raise InvalidValue(error.problem, hint=error.hint) from None
    return value


def _check_media_pattern(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("/", "~/")):
        _check_glob(value.lstrip("~").lstrip("/"))
        return value
    return value if value == "{path}" else _check_glob(value)


def _check_skip(value: Any) -> Any:
    if isinstance(value, str):
        hint = 'like "2026-12-25", "2026-12-24/2027-01-06" or "holidays.ics"'
        if not is_calendar(value):
            try:
                parse_dates(value)
            except ValueError as error:
                raise InvalidValue(str(error), hint=hint) from None
        elif leaves_workspace(value):
            raise InvalidValue("leaves the workspace", hint=hint)
    return value


Skip = Annotated[str, BeforeValidator(_check_skip)]
MediaPattern = Annotated[str, BeforeValidator(_check_media_pattern)]
Count = Annotated[int, Field(ge=1)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Glob = Annotated[str, BeforeValidator(_check_glob)]


Pace: TypeAlias = tuple[timedelta, timedelta]
"""The shortest and the longest wait between two runs."""


def parse_pace(text: str) -> Pace:
    """Return the waits of a text such as "5m..6h". Raises InvalidValue."""
    shortest_text, dots, longest_text = text.partition("..")
    if not dots:
        raise InvalidValue('expected two durations, like "5m..6h"')
    shortest, longest = parse_duration(shortest_text.strip()), parse_duration(longest_text.strip())
    if shortest < timedelta(seconds=1):
        raise InvalidValue("the shortest wait is less than a second", hint='like "5m..6h"')
    if longest < shortest:
        raise InvalidValue("the longest wait is shorter than the shortest", hint="swap them")
    return shortest, longest


def _check_pace(value: Any) -> Any:
    if isinstance(value, str):
        parse_pace(value)
    return value


# The keys of a trigger that start a routine; one of them, and `on_start` may join it.
TRIGGER_KEYS = ("cron", "every", "at", "watch", "webhook", "after", "pace")


class Trigger(Table):
    """What starts it: one of `cron`, `every`, `at`, `watch`, `webhook`, `after`, `pace`; `on_start`
    may join any. `[[trigger]]` may be repeated: the routine starts whenever one of them says so.
    """

    cron: Annotated[str, _parsed_by(crontab.parse)] | None = None
    """Five fields of crontab(5), or @daily and its like."""
    every: Annotated[Duration, bounded_below("1s")] | None = None
    """At fixed distances, counted from the Unix epoch."""
    at: AwareDatetime | None = None
    """Once."""
    watch: Items[Glob] = ()
    """When files of the workspace, such as "inbox/*.csv", land or change; one run for all that come
    together.
    """
    settle: Annotated[Duration, bounded_below("0.1s")] = timedelta(seconds=2)
    """Of `watch`: how long files must have been left alone."""
    webhook: bool = False
    """By a POST to /v1/hooks/NAME on the webhook socket; its JSON body is the run's input."""
    sender: Name | None = None
    """Of `webhook`: the [hooks.senders.NAME] of config.toml that must have signed each request."""
    after: Items[Name] = ()
    """When a run of one of these routines has ended."""
    on: Literal["succeeded", "failed", "ended"] = "succeeded"
    """Of `after`: how it must have ended; failed: timed out and interrupted too; ended: in any way
    but skipped.
    """
    pace: Annotated[str, BeforeValidator(_check_pace)] | None = None
    """When its last run has asked for, by the tool `finish`, within these bounds, such as "5m..6h";
    after the longest wait if it has not asked.
    """
    on_start: bool = False
    """When the daemon starts, at most once an hour."""
    timezone: Zone | None = None
    """The zone of cron and active_hours; by default that of config.toml, else the host's."""
    catch_up: CatchUp = "once"
    """once: the latest missed slot if late by at most half its period; none; or how late it may be.
    """
    spread: Duration = timedelta(0)
    """Delay the start by up to so much, always the same for one name; the slot stays."""
    active_hours: Annotated[str, BeforeValidator(_check_active_hours)] | None = None
    """Skip slots outside of these hours."""
    active_days: Annotated[str, _parsed_by(crontab.weekdays)] | None = None
    """Skip slots on other days than these, such as "mon-fri" or "sat,sun"."""
    skip: Annotated[Items[Skip], Field(min_length=1, max_length=100)] | None = None
    """Skip slots and events of these days, whatever the hours say: dates such as "2026-12-25",
    ranges such as "2026-12-24/2027-01-06", and calendars of the workspace such as "holidays.ics".
    """
    machines: Items[Name] = ()
    """Start only on hosts whose names fit one of these, such as "box-*"; by default on any."""

    @property
    def is_automatic(self) -> bool:
        """Something besides a person starts it: a schedule or an event."""
        return self.on_start or any(getattr(self, kind) for kind in TRIGGER_KEYS)

    @property
    def skipped_calendars(self) -> tuple[str, ...]:
        """The calendars that `skip` names."""
        return tuple(text for text in self.skip or () if is_calendar(text))

    @property
    def has_clock(self) -> bool:
        """It has slots: moments at which the routine is due."""
        return self.cron is not None or self.every is not None or self.at is not None

    @property
    def event_words(self) -> str:
        """In English, which event starts it; empty if none does."""
        if self.watch:
            return f"when a file lands in {_joined_by_or(self.watch)}"
        if self.after:
            return f"after {_joined_by_or(self.after)} {self.on}"
        if self.pace:
            shortest, longest = (
                f"1 {words}" if words.isalpha() else words
                for words in map(interval_in_words, self.waits)
            )
            return f"{shortest} to {longest} after each run, as the run says"
        return "by webhook" if self.webhook else ""

    @property
    def waits(self) -> Pace:
        """The bounds of `pace`; ValueError without one."""
        return parse_pace(self.pace or "")


def _form_of_triggers(value: Any) -> str:
    return "list" if isinstance(value, list | tuple) else "table"


def _unwrap_single(value: Trigger | tuple[Trigger, ...]) -> Trigger | tuple[Trigger, ...]:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


Triggers: TypeAlias = Annotated[
    Annotated[Trigger, Tag("table")]
    | Annotated[Items[Trigger], Field(min_length=1, max_length=20), Tag("list")],
    Discriminator(_form_of_triggers),
    AfterValidator(_unwrap_single),
]
"""A table `[trigger]`, or several `[[trigger]]`. A list of one is that one, so that both ways to
write it are the same routine, and what versions before lists have written is read as ever.
"""


def _joined_by_or(choices: Iterable[str]) -> str:
    *words, last = choices
    return f"{', '.join(words)} or {last}" if words else last


class Retry(Table):
    """How often to try again what is transient."""

    attempts: Count = 3
    """How many attempts in all."""
    backoff: PositiveDuration = timedelta(seconds=30)
    """The wait before the second attempt is at most so long, by chance; it doubles with each one.
    """
    max: PositiveDuration = timedelta(minutes=10)
    """The longest wait."""
    pause_after: Annotated[int, Field(ge=0, le=1000)] = 10
    """After so many failed runs in a row the routine is paused until `agentctl resume`; 0: never.
    """


class Budget(Table):
    """What may be used; looked at before each call."""

    tokens: Count | None = None
    """Of one run and those it begins, input and output together; set aside before each call."""
    usd: Dollars | None = None
    """Of one run, in US dollars."""
    day: Dollars | None = None
    """Of all runs of this routine in a day, in US dollars."""
    month: Dollars | None = None
    """Likewise in a month."""


class RunSpec(Table):
    """What to do."""

    mode: Literal["collect-then-summarise", "agent", "script"] = "collect-then-summarise"
    """Gather and ask the model once, without tools; or let an agent work with tools; or ask no
    model: what is gathered is the report, as it is.
    """
    prompt: str = ""
    """The task, in words."""
    provider: Name | None = None
    """A [providers.NAME] of config.toml; by default the one named there."""
    model: Name | None = None
    """Another model of that provider."""
    fallback: Items[Name] = ()
    """Providers to go on with when the first one fails."""
    on_rate_limit: Literal["wait", "fallback"] = "wait"
    """When a provider is busy: ask it again first, after the pause that it names; or the next one
    at once.
    """
    memory: Literal["none", "recall", "recall+store"] = "recall"
    """Whether the run is told what is remembered, and remembered itself."""
    context_from: Annotated[Items[Name], Field(min_length=1, max_length=10)] | None = None
    """Other routines whose last report the run is told, beside its own; one with words of strangers
    only where it takes no tool from the run.
    """
    timeout: PositiveDuration = timedelta(minutes=10)
    """Active time; suspended, down and waiting do not count."""
    overlap: Literal["skip", "queue_one", "cancel_previous"] = "skip"
    """What to do with a slot while an earlier run is under way or waits for a person.

    skip: the slot is skipped; queue_one: one run may wait behind it; cancel_previous: the earlier
    run is cancelled.
    """
    silent_token: Name | None = None
    """An answer of exactly these words is not delivered."""
    tools: Items[Name] = ()
    """Mode agent: the tools offered, by name or pattern (`time__*`); the policy judges each call.
    """
    skills: Literal["auto"] | Items[Name] = ()
    """Mode agent: the skills whose guides it is given; "auto": the model says first which ones it
    needs.
    """
    rehearse_first: bool = False
    """Hold it back until a rehearsal of it was approved (`agentctl rehearse`); an edit of what it
    does asks again.
    """
    required_tools: Items[Name] = ()
    """Tools without which the run is no success: not called, denied or failed = failed."""
    max_iterations: Count = 10
    """Model calls in one run."""
    max_tool_calls: Count = 40
    """Tool calls in one run."""
    tool_retries: Annotated[int, Field(ge=0, le=10)] = 3
    """How often a call is tried again that failed for a passing reason; only one whose repetition
    does no harm.
    """
    tool_retry_delay: Duration = timedelta(seconds=1)
    """How long to wait before that."""
    media: Items[MediaPattern] = ()
    """Pictures that the model is shown: globs like "plots/*.png", in the workspace or absolute in
    what the policy lets it read; "{path}": the files that landed (`watch`). Those that cannot be
    shown are named in the run.
    """
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sent only where the model takes it."""
    effort: Effort | None = None
    """How much the model is to think, where its vendor has such levels; by default as the vendor
    does.
    """
    max_tokens: Count | None = None
    """The longest answer, in tokens; one that is cut is asked for once more with four times that,
    if the model can.
    """
    retry: Retry = Retry()
    budget: Budget = Budget()
    sections: dict[str, str] = Field(default_factory=dict)
    """More sections of the prompt, in this order."""

    @property
    def asks_model(self) -> bool:
        return self.mode != "script"


class Gather(Table):
    """One fact collected before the model is asked."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    """What the fact is called in the prompt and in [gate]."""
    tool: Name
    """The tool that collects it."""
    args: JsonTable = Field(default_factory=dict)
    """Its arguments. With `watch`, "{path}" stands for a file that landed: the step is taken once
    for each.
    """
    required: bool = True
    """Whether the run is no success without it."""


class Gate(Table):
    """When not to ask the model at all."""

    changed: Items[Name] = ()
    """Go on only if one of these facts (`host`, `host.disks`) differs from the last successful run.
    """
    idle: PositiveDuration | None = None
    """Go on only if no operator did anything for so long."""
    max_per_day: Count | None = None
    """Go on at most so often a day."""
    moments: Annotated[int, Field(ge=1, le=24)] | None = None
    """Go on so often a day, at moments of the active hours drawn by lot; one counts once its report
    is delivered.
    """
    command: Items[str] = ()
    """Go on if this program (words, no shell) exits with 0; 1 closes the gate, anything else is a
    failure.
    """


class Judge(Table):
    """A second model that reads the report and says by a rubric whether it holds up; its calls
    count towards the budget of the run.
    """

    provider: Name | None = None
    """A [providers.NAME] of config.toml; by default that of [run]."""
    model: Name | None = None
    """Another model of that provider."""
    rubric: Annotated[str, Field(max_length=20_000)] = ""
    """What the report must be like, in words."""

    def provider_of(self, run: RunSpec, default: str) -> tuple[str, str | None]:
        """Return the name of the provider to ask, and which other model of it; `default` is the
        provider of config.toml.
        """
        if self.provider is not None:
            return self.provider, self.model
        return run.provider or default, self.model or run.model


class ReportCheck(Table):
    """What a report must hold up to; one that does not makes the run a failure. Silence is not
    checked.
    """

    # `schema` is taken by pydantic
    model_config = ConfigDict(serialize_by_alias=True)

    contains: Items[Name] = ()
    """Texts, each of which the report must contain."""
    schema_file: Name | None = Field(default=None, alias="schema")
    """A JSON Schema, as a file of the workspace, that the report must fit: all of it, or the one
    block in it that is fenced as json.
    """
    command: Items[str] = ()
    """A program (words, no shell) that must exit with 0, such as a test of what the run has made;
    the policy judges it like a gate's.
    """
    repair: Annotated[int, Field(ge=0, le=3)] = 0
    """How often the model is told what is wrong, and answers again, within the limits of the run.
    """
    judge: Judge | None = None


class Dedupe(Table):
    """Report only what no earlier run has reported.

    The agent is given `report_items`, and the report is made of what of that is new; nothing new is
    silence.
    """

    key: Literal["url", "id", "title"] = "url"
    """What tells items from one another; addresses count as the same with another fragment or utm_
    parameters. In mode script, where each line is an item: title.
    """
    keep: PositiveDuration = timedelta(days=365)
    """What no run has found for so long is forgotten, and would be new again."""


# The serialisation context of pydantic for the copy of a definition that a run keeps.
RUN_COPY = "kept by a run"

End = Literal["succeeded", "failed", "timed_out", "cancelled", "interrupted", "waiting"]


class Deliver(Table):
    """One place the report goes to."""

    to: Name
    """`file`, `log`, `desktop`, or the name of one of config.toml's [targets]."""
    path: Name | None = None
    """Of `file` and targets of that kind: relative to the workspace, with {routine}, {run} and
    {slot:%Y-%m-%d}.
    """
    on: Items[End] = ("succeeded", "failed", "timed_out", "interrupted", "waiting")
    """At which ends. `waiting` is none: the run has to be approved, and the question goes there,
    but to no file.
    """

    @model_serializer(mode="wrap")
    def _serialize(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Leave a default `on` out of what a run keeps: an older worker, which knows no `waiting`,
        reads that too.
        """
        fields: dict[str, Any] = handler(self)
        if info.context == RUN_COPY and self.on == type(self).model_fields["on"].default:
            fields.pop("on", None)
        return fields


class Origin(Table):
    """Of a routine that an agent made with the tool `routine`: by whom.

    It never has more rights than its maker.
    """

    routine: Name
    """The routine whose run made it."""
    run: Name
    """That run."""
    tainted: bool = False
    """Whether the run had read what strangers may have written; then every run of this one begins
    as if it had, too.
    """


class RoutineDefinition(Table):
    """What a routine file may say."""

    description: str = ""
    """One line for people."""
    enabled: bool = True
    """Whether its trigger counts; by hand it runs anyway."""
    first_run: bool = False
    """Run once as soon as the daemon sees it, if it has never run; a paused one once it is
    resumed.
    """
    ping: Name | None = None
    """A target of kind ping that is told when a run starts, succeeds or fails: a dead man's switch.
    """
    trigger: Triggers = Trigger()
    run: RunSpec = RunSpec()
    gather: Items[Gather] = ()
    gate: Gate = Gate()
    check: ReportCheck | None = None
    dedupe: Dedupe | None = None
    deliver: Items[Deliver] = ()
    origin: Origin | None = None

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """What starts it, at least one; an empty one means by hand only."""
        return self.trigger if isinstance(self.trigger, tuple) else (self.trigger,)

    @property
    def keyed_triggers(self) -> tuple[tuple[str, Trigger], ...]:
        """Its triggers, each with its place in the file: `trigger`, or `trigger[0]` and so on."""
        if not isinstance(self.trigger, tuple):
            return (("trigger", self.trigger),)
        return tuple((f"trigger[{index}]", entry) for index, entry in enumerate(self.trigger))

    @property
    def is_automatic(self) -> bool:
        """Something besides a person starts it: a schedule or an event."""
        return any(trigger.is_automatic for trigger in self.triggers)

    @property
    def webhook(self) -> Trigger | None:
        """The trigger by which a webhook starts it; None if none does."""
        return next((trigger for trigger in self.triggers if trigger.webhook), None)

    @property
    def pace(self) -> Pace | None:
        """The waits that its runs choose from; None if no trigger has a pace."""
        return next((trigger.waits for trigger in self.triggers if trigger.pace), None)

    @property
    def is_started_by_events(self) -> bool:
        """Each of its runs but those by hand is told what an event has brought: files, a webhook,
        the end of another run.
        """
        return all(trigger.watch or trigger.webhook or trigger.after for trigger in self.triggers)

    @property
    def event_words(self) -> tuple[str, ...]:
        """In English, which event each trigger starts it by; empty for one without."""
        return tuple(trigger.event_words for trigger in self.triggers)

    @property
    def timezone(self) -> str | None:
        """The first time zone that a trigger names: its days and the times of its runs are of this
        one. None if none names any.
        """
        return next((trigger.timezone for trigger in self.triggers if trigger.timezone), None)

    @property
    def machines(self) -> tuple[str, ...]:
        """Globs of the hosts that it starts on; none: on any. All triggers have the same."""
        return self.triggers[0].machines

    @property
    def spread(self) -> timedelta:
        """By up to how much its starts are delayed; all triggers with a clock have the same."""
        spreads = (trigger.spread for trigger in self.triggers if trigger.has_clock)
        return max(spreads, default=timedelta(0))

    @property
    def named_providers(self) -> set[str]:
        """The providers that it names, besides the one that config.toml names for all."""
        judge = self.check.judge if self.check else None
        names = (self.run.provider, *self.run.fallback, judge.provider if judge else None)
        return {name for name in names if name}


class Routine(RoutineDefinition):
    """A definition with the name its file gives it."""

    name: str
    path: Path | None = Field(default=None, exclude=True)
    """The file it was read from; no part of its definition."""
    calendars: Items[Calendar] = Field(default=(), exclude=True)
    """Those that its triggers skip, as they were read; no part of its definition, either."""

    @property
    def policy_name(self) -> str:
        """The name by which the policy knows it: its own, or `maker/name` if an agent made it."""
        return f"{self.origin.routine}/{self.name}" if self.origin else self.name

    @property
    def schedule_key(self) -> str:
        """A digest of what decides when it runs: a new one means a new baseline."""
        texts = [trigger.model_dump_json(exclude_none=True) for trigger in self.triggers]
        text = f"{self.enabled} {' '.join(texts)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def rehearsal_key(self) -> str:
        """A digest of what decides what it does: a new one means that the rehearsal before tells
        nothing any more.
        """
        # without defaults: a key that a later version knows must not undo what people have approved
        definition = self.model_dump(
            mode="json", include={"run", "gather", "check", "deliver"}, exclude_defaults=True
        )
        for key in ("retry", "timeout", "overlap", "rehearse_first"):
            definition.get("run", {}).pop(key, None)
        text = json.dumps([definition, list(self.gate.command)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def dump(self) -> str:
        """Return the definition as JSON, defaults included: a run keeps what it started with."""
        # keys stay in their order: that of the sections counts
        return self.model_dump_json(exclude_none=True, context=RUN_COPY)

    @classmethod
    def restore(cls, text: str) -> Self:
        """Return the routine that `dump` wrote."""
        return cls.model_validate_json(text)
