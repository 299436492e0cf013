"""Routines: what to do, when, and where the report goes; one TOML file each."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AwareDatetime, BeforeValidator, Field, PlainSerializer

from daemon import crontab
from daemon.config import Name, Zone
from daemon.definitions import (
    Conflict,
    Duration,
    Items,
    JsonTable,
    Rule,
    SomeDuration,
    Table,
    Wrong,
    as_fault,
    did_you_mean,
    display,
    format_duration,
    parse,
    parse_duration,
    read_toml,
)
from daemon.errors import ConfigError, Fault

CHANNELS = ("file", "log")
RESERVED = ("ask",)

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@lru_cache(maxsize=4096)  # thousands of routines share a few schedules
def _judged(read: Callable[[str], object], text: str) -> Wrong | None:
    try:
        read(text)
    except crontab.CronError as error:
        return Wrong(f"{error.place} {error.found!r}: {error.problem}", hint=error.hint)
    return None


def _readable_by(read: Callable[[str], object]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, str) and (wrong := _judged(read, value)):
            raise wrong
        return value

    return BeforeValidator(check)


def _catch_up(value: Any) -> Any:
    if isinstance(value, str) and value not in ("once", "none"):
        try:
            return parse_duration(value)
        except Wrong:
            raise Wrong('expected "once", "none" or a duration such as "6h"') from None
    return value


def _catch_up_text(value: str | timedelta) -> str:
    return value if isinstance(value, str) else format_duration(value)


CatchUp: TypeAlias = Annotated[
    Literal["once", "none"] | timedelta, BeforeValidator(_catch_up), PlainSerializer(_catch_up_text)
]


def _active_hours(value: Any) -> Any:
    if isinstance(value, str):
        match = _HOURS.fullmatch(value)
        if not match or value[6:] > "24:00":
            raise Wrong('expected hours like "08:00-22:00"', hint='over midnight: "22:00-06:00"')
        if match[1] + match[2] == match[3] + match[4]:
            raise Wrong("begins and ends at the same time", hint='the whole day is "00:00-24:00"')
    return value


Count = Annotated[int, Field(ge=1)]


class Trigger(Table):
    """What starts it: one of `cron`, `every`, `at`, and `on_start`, which may join any."""

    cron: Annotated[str, _readable_by(crontab.parse)] | None = None
    """Five fields of crontab(5), or @daily and its like."""
    every: Annotated[Duration, Field(ge=timedelta(seconds=1))] | None = None
    """At fixed distances, counted from the Unix epoch."""
    at: AwareDatetime | None = None
    """Once."""
    on_start: bool = False
    """When the daemon starts, at most once an hour."""
    timezone: Zone | None = None
    """The zone of cron and active_hours; by default that of config.toml, else the host's."""
    catch_up: CatchUp = "once"
    """once: the latest missed slot if late by at most half its period; none; or how late it may be."""
    spread: Duration = timedelta(0)
    """Delay the start by up to so much, always the same for one name; the slot stays."""
    active_hours: Annotated[str, BeforeValidator(_active_hours)] | None = None
    """Skip slots outside of these hours."""
    active_days: Annotated[str, _readable_by(crontab.weekdays)] | None = None
    """Skip slots on other days than these, such as "mon-fri" or "sat,sun"."""


class Retry(Table):
    """How often to try again what is transient."""

    attempts: Count = 3
    """How many attempts in all."""
    backoff: SomeDuration = timedelta(seconds=30)
    """The wait before the second attempt; it doubles."""
    max: SomeDuration = timedelta(minutes=10)
    """The longest wait."""


class Budget(Table):
    """What one run may use."""

    tokens: Count | None = None
    """Input and output together."""


class RunSpec(Table):
    """What to do."""

    mode: Literal["collect-then-summarise", "agent"] = "collect-then-summarise"
    """Gather and ask the model once, without tools; or let an agent work with tools."""
    prompt: str = ""
    """The task, in words."""
    provider: Name | None = None
    """A [providers.NAME] of config.toml; by default the one named there."""
    model: Name | None = None
    """Another model of that provider."""
    fallback: Items[Name] = ()
    """Providers to go on with when the first one fails."""
    memory: Literal["none", "recall", "recall+store"] = "recall"
    """Whether the run is told what is remembered, and remembered itself."""
    timeout: SomeDuration = timedelta(minutes=10)
    """Active time; suspended, down and waiting do not count."""
    overlap: Literal["skip", "queue_one", "cancel_previous"] = "skip"
    """What to do with a slot while an earlier run is under way."""
    silent_token: Name | None = None
    """An answer of exactly these words is not delivered."""
    tools: Items[Name] = ()
    """Mode agent: the tools offered, by name or pattern (`time__*`); the policy judges each call."""
    required_tools: Items[Name] = ()
    """Tools without which the run is no success: denied or failed = failed."""
    max_iterations: Count = 10
    """Model calls in one run."""
    max_tool_calls: Count = 40
    """Tool calls in one run."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sent only where the model takes it."""
    max_tokens: Count | None = None
    """The longest answer, in tokens."""
    retry: Retry = Retry()
    budget: Budget = Budget()
    sections: dict[str, str] = Field(default_factory=dict)
    """More sections of the prompt, in this order."""


class Gather(Table):
    """One fact collected before the model is asked."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    """What the fact is called in the prompt and in [gate]."""
    tool: Name
    """The tool that collects it."""
    args: JsonTable = Field(default_factory=dict)
    """Its arguments."""
    required: bool = True
    """Whether the run is no success without it."""


class Gate(Table):
    """When not to ask the model at all."""

    changed: Items[Name] = ()
    """Go on only if one of these facts (`host`, `host.disks`) differs from the last successful run."""
    idle: SomeDuration | None = None
    """Go on only if no operator did anything for so long."""
    max_per_day: Count | None = None
    """Go on at most so often a day."""


End = Literal["succeeded", "failed", "timed_out", "cancelled", "interrupted"]


class Deliver(Table):
    """One place the report goes to."""

    to: Name
    """`file` or `log`."""
    path: Name | None = None
    """Of `file`: relative to the workspace, with {routine}, {run} and {slot:%Y-%m-%d}."""
    on: Items[End] = ("succeeded", "failed", "timed_out", "interrupted")
    """At which ends."""


class Definition(Table):
    """What a routine file may say."""

    description: str = ""
    """One line for people."""
    enabled: bool = True
    """Whether its trigger counts; by hand it runs anyway."""
    first_run: bool = False
    """Run once as soon as the daemon sees it, if it has never run."""
    trigger: Trigger = Trigger()
    run: RunSpec = RunSpec()
    gather: Items[Gather] = ()
    gate: Gate = Gate()
    deliver: Items[Deliver] = ()


class Routine(Definition):
    """A definition with the name its file gives it."""

    name: str
    path: Path | None = Field(default=None, exclude=True)
    """Where it was read; not part of what it says."""

    @property
    def schedule_key(self) -> str:
        """A digest of what decides when it runs: a new one means a new baseline."""
        text = f"{self.enabled} {self.trigger.model_dump_json(exclude_none=True)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def dump(self) -> str:
        """Return the definition as JSON, defaults included, equal for equal routines: a run keeps what it started with."""
        return self.model_dump_json(exclude_none=True)  # keys stay in their order: that of the sections counts

    @classmethod
    def restore(cls, text: str) -> Self:
        """Return the routine that `dump` wrote."""
        return cls.model_validate_json(text)


# --- rules across fields --------------------------------------------------------------------------


def _one_trigger(routine: Definition) -> Iterator[Conflict]:
    trigger = routine.trigger
    named = [key for key in ("cron", "every", "at") if getattr(trigger, key) is not None]
    if len(named) > 1:
        yield Conflict("trigger", f"{' and '.join(named)} exclude one another", hint="keep one, or make two routines")
    elif not named and not trigger.on_start and trigger.model_fields_set:
        hint = "add cron, every, at or on_start; without [trigger] it runs by hand only"
        yield Conflict("trigger", "nothing here starts the routine", hint=hint)


def _nothing_to_do(routine: Definition) -> Iterator[Conflict]:
    if not routine.run.prompt.strip() and not routine.gather:
        yield Conflict("run.prompt", "is missing, and nothing is gathered", hint="say what to do")
    elif routine.run.mode == "agent" and not routine.run.prompt.strip():
        yield Conflict("run.prompt", "is missing; an agent needs its task")


def _tools_fit_the_mode(routine: Definition) -> Iterator[Conflict]:
    run = routine.run
    if run.mode == "collect-then-summarise" and run.tools:
        hint = 'set mode = "agent", or collect with [[gather]]'
        yield Conflict("run.tools", "this mode asks the model once, without tools", run.tools, hint)
    if run.mode == "agent":
        for tool in run.required_tools:
            if tool not in run.tools:
                yield Conflict("run.required_tools", "is not among tools", tool, did_you_mean(tool, run.tools))
    elif run.required_tools and not run.tools:
        yield Conflict("run.required_tools", "this mode offers no tools", run.required_tools, 'set mode = "agent"')


def _gathered_names(routine: Definition) -> Iterator[Conflict]:
    seen: set[str] = set()
    for index, gather in enumerate(routine.gather):
        if gather.name in seen:
            yield Conflict(f"gather[{index}].name", "an earlier [[gather]] has this name", gather.name)
        seen.add(gather.name)


def _gate_knows_its_facts(routine: Definition) -> Iterator[Conflict]:
    if not routine.gate.changed:
        return
    names = {gather.name for gather in routine.gather}
    for index, fact in enumerate(routine.gate.changed):
        if (name := fact.partition(".")[0]) not in names:
            hint = did_you_mean(name, names) or "add the [[gather]] it compares"
            yield Conflict(f"gate.changed[{index}]", "no [[gather]] has this name", fact, hint)


_FIELD = re.compile(r"\{([^{}]*)\}")


def _deliveries(routine: Definition) -> Iterator[Conflict]:
    for index, target in enumerate(routine.deliver):
        key = f"deliver[{index}]"
        if target.to not in CHANNELS:
            yield Conflict(f"{key}.to", "no such channel", target.to, did_you_mean(target.to, CHANNELS))
        elif target.to != "file":
            if target.path is not None:
                yield Conflict(f"{key}.path", f'"{target.to}" takes no path', target.path)
        elif target.path is None:
            hint = 'like path = "reports/{routine}/{slot:%Y-%m-%d}.md"'
            yield Conflict(f"{key}.path", "is missing", hint=hint)
        elif fault := _path_fault(target.path):
            yield Conflict(f"{key}.path", fault[0], target.path, fault[1])


def _path_fault(path: str) -> tuple[str, str] | None:
    for name in _FIELD.findall(path):
        if name not in ("routine", "run", "slot") and not name.startswith("slot:%"):
            return f"unknown field {{{name}}}", "known: {routine} {run} {slot:%Y-%m-%d}"
    if set(_FIELD.sub("", path)) & set("{}"):
        return "a { or } stands alone", "fields look like {routine}"
    if path.startswith(("/", "~")) or ".." in Path(path).parts:
        return "leaves the workspace", "reports are written beneath it: give a relative path"
    if path.endswith("/"):
        return "names a folder", "add a file name"
    return None


RULES: tuple[Rule[Definition], ...] = (
    Rule(("trigger.cron", "trigger.every", "trigger.at", "trigger.on_start"), _one_trigger),
    Rule(("run.prompt", "run.mode", "gather"), _nothing_to_do),
    Rule(("run.mode", "run.tools", "run.required_tools"), _tools_fit_the_mode),
    Rule(("gather.name",), _gathered_names),
    Rule(("gate.changed", "gather.name"), _gate_knows_its_facts),
    Rule(("deliver.to", "deliver.path"), _deliveries),
)


# --- files and folders ----------------------------------------------------------------------------


def load_routine(path: Path) -> Routine:
    """Return the routine of one file; ConfigError with all its faults."""
    name = path.name.removesuffix(".toml")
    faults = list(_name_faults(name, path))
    try:
        definition = parse(read_toml(path), Definition, file=display(path), rules=RULES)
    except ConfigError as error:
        raise ConfigError(*faults, *error.faults) from None
    if faults:
        raise ConfigError(*faults)
    return Routine.model_validate(vars(definition) | {"name": name, "path": path})


def _name_faults(name: str, path: Path) -> Iterator[Fault]:
    if name in RESERVED:
        yield Fault(
            file=display(path), key="", found="", problem=f'the name "{name}" is taken by agentd', hint="rename it"
        )
    elif not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f"rename it to {better}.toml" if better else "rename it"
        problem = "a routine's name is made of a-z, 0-9 and -"
        yield Fault(file=display(path), key="", found=display(name), problem=problem, hint=hint)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a folder of routines held: those that live, and why the others do not."""

    routines: dict[str, Routine] = field(default_factory=dict)
    faults: dict[str, ConfigError] = field(default_factory=dict)


def load_folder(folder: Path, *, check: Callable[[Routine], None] | None = None) -> Loaded:
    """Return every routine of a folder; one bad file harms no other. `check` may raise ConfigError for a routine."""
    loaded = Loaded()
    for entry in _entries(folder):
        name = display(entry.name).removesuffix(".toml")
        path = folder / entry.name
        try:
            if not entry.is_file():  # opening a pipe would wait for its writer forever
                raise ConfigError(Fault(file=display(path), key="", found="", problem="is not a regular file"))
            routine = load_routine(path)
            if check:
                check(routine)
        except ConfigError as error:
            loaded.faults[name] = error
        else:
            loaded.routines[name] = routine
    return loaded


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if is_routine_file(entry.name)), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        problem = f"the folder of routines cannot be read: {error.strerror}"
        raise ConfigError(Fault(file=display(folder), key="", found="", problem=problem)) from None


def is_routine_file(name: str) -> bool:
    """Tell whether a file of this name counts: editors leave others in the folder."""
    return name.endswith(".toml") and not name.startswith(".")


def against(providers: Collection[str], tools: Collection[str] | None = None) -> Callable[[Routine], None]:
    """Return a check for `load_folder`: what a routine names must be there. Patterns of tools may match nothing yet."""

    def check(routine: Routine) -> None:
        faults = [*_unknown_providers(routine, providers), *(_unknown_tools(routine, tools) if tools else ())]
        if faults:
            file = display(routine.path or f"{routine.name}.toml")
            raise ConfigError(*(as_fault(conflict, file) for conflict in faults))

    return check


def _unknown_providers(routine: Routine, known: Collection[str]) -> Iterator[Conflict]:
    run = routine.run
    for key, name in (("run.provider", run.provider), *((f"run.fallback[{i}]", n) for i, n in enumerate(run.fallback))):
        if name is not None and name not in known:
            hint = did_you_mean(name, known)
            yield Conflict(key, "no such provider in config.toml", name, hint)


def _unknown_tools(routine: Routine, known: Collection[str]) -> Iterator[Conflict]:
    named = [(f"gather[{index}].tool", gather.tool) for index, gather in enumerate(routine.gather)]
    named += [
        (f"run.tools[{index}]", tool) for index, tool in enumerate(routine.run.tools) if not set(tool) & set("*?[")
    ]
    for key, tool in named:
        if tool not in known:
            yield Conflict(key, "no such tool", tool, did_you_mean(tool, known))


@dataclass(frozen=True, slots=True)
class Changes:
    """What a reload brings, by name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    schedule_changed: tuple[str, ...] = ()
    """Those of `changed` that get a new baseline."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def diff(old: Mapping[str, Routine], new: Mapping[str, Routine]) -> Changes:
    """Return how `new` differs from `old`; nothing is done about it."""
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    return Changes(
        added=tuple(name for name in new if name not in old),
        changed=changed,
        removed=tuple(name for name in old if name not in new),
        schedule_changed=tuple(name for name in changed if new[name].schedule_key != old[name].schedule_key),
    )
