"""Routines that agents made with the tool `routine`: files in the state folder.

The routine whose run made another one is its maker, and its file names it (`[origin]`). A routine
that was made has at most the rights of its maker, whatever its own name: the policy judges its
calls for both names (`maker/name`). It has the maker's model and at most the maker's limits, caps,
tools and targets; only a clock starts it; and it makes no routines itself. If the maker's run was
tainted, all runs of the routine begin tainted.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import tomli_w

from daemon.definitions.routines.checks import AGENT_CHECKS
from daemon.definitions.routines.folder import name_faults, routine_of, write_new
from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import interval_in_words
from daemon.definitions.schedule_text import UnclearScheduleError, parse_schedule_text
from daemon.definitions.values import format_duration
from daemon.durations import parse_duration
from daemon.errors import ConfigError, NotFound, Refused, ToolFailed
from daemon.models import Json, Run, ToolContext
from daemon.scheduler.routine_checks import routine_checks
from daemon.scheduler.routine_times import schedule_of

if TYPE_CHECKING:
    from daemon.runs.parts import RunParts
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.tools.builtin.routine import RoutineProposal
    from daemon.tools.registry import FunctionRegistry

AGENT_TRIGGER = "agent"
"""The trigger of a run that another run has started."""
# A routine of an agent may not run more often, as each run costs: what has to be noticed sooner
# needs `watch`, which only people write.
MIN_PERIOD = timedelta(minutes=10)
MAX_SLOTS_CHECKED = 50
MAX_PROMPT_LENGTH = 20_000


@dataclass(frozen=True, kw_only=True)
class AgentRoutines:
    """Create, remove and adopt routines of agents; list, pause and start routines for agents."""

    folder: Path
    """The folder of the files that agents made."""
    settings: LiveSettings
    engine: RoutineEngine
    journal: Journal
    registry: FunctionRegistry
    runs: RunParts
    reload: Callable[[], Awaitable[None]]
    """Read the files of all routines that have changed."""
    clock: Clock

    # --- for agents

    def list_routines(self) -> list[Json]:
        """Return a summary of each routine, ordered by name."""
        return [self._summarize(routine) for _, routine in sorted(self.engine.routines.items())]

    def show(self, name: str) -> Json:
        """Return a summary of a routine with its definition. Raises NotFound."""
        routine = self._get(name)
        return {
            **self._summarize(routine),
            "next": [slot.isoformat() for slot in self._next_slots(routine, 3)],
            "definition": routine.model_dump(mode="json", exclude_none=True),
        }

    async def create(self, context: ToolContext, proposal: RoutineProposal) -> Json:
        """Write the file of a routine that an agent proposes, and load it; return its summary.

        Raises ToolFailed with all faults of the proposal.
        """
        run = await self.journal.runs.get(context.run)
        maker = await self.runs.routine_of(run)
        self._refuse_creation(maker, proposal.name)
        zone = maker.timezone or self.engine.zone
        data = _compose_definition(
            proposal,
            maker,
            run,
            tainted=context.tainted,
            zone=ZoneInfo(zone),
            now=self.clock.now(),
        )
        path = self.folder / f"{proposal.name}.toml"
        try:
            checks = routine_checks(self.settings.config, self.registry.names())
            routine = routine_of(data, path, checks=(*AGENT_CHECKS, *checks))
        except ConfigError as error:
            raise ToolFailed("; ".join(_describe_faults(error))) from None
        self._refuse_if_too_often(routine, zone)
        comment = (
            f"# Made by a run of {maker.name}; `agentctl adopt {proposal.name}` makes it yours.\n"
        )
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_new(path, comment + tomli_w.dumps(data, multiline_strings=True))
        await self.reload()
        return {"made": proposal.name, **self._summarize(routine)}

    async def remove(self, context: ToolContext, name: str) -> Json:
        """Remove a routine that a run of the caller's routine has made.

        Raises NotFound, and ToolFailed for a routine that others have made.
        """
        maker = await self.runs.routine_of(await self.journal.runs.get(context.run))
        routine = self._get(name)
        if routine.origin is None or routine.origin.routine != maker.name:
            raise ToolFailed(f"{name} is not of your making; a person removes it, or you pause it")
        await self.remove_for_person(name)
        return {"removed": name}

    async def pause(self, name: str, until: str) -> Json:
        """Pause a routine until a moment (ISO 8601), for a duration (`2h`), or until it is resumed
        if `until` is empty.

        Raises NotFound, and ToolFailed for an unreadable text, a past moment or no time at all.
        """
        self._get_if_daemon_runs(name)
        end = length = None
        if until:
            try:
                length = parse_duration(until)
                moment = datetime.fromisoformat(until) if length is None else None
            except ValueError:
                raise ToolFailed(
                    f"{until} is no moment; write it like 2026-12-01T09:00:00Z, or 2h for so long"
                ) from None
            if moment is not None:
                zone = moment.tzinfo or ZoneInfo(self.engine.zone)
                end = moment.replace(tzinfo=zone).astimezone(UTC)
            if length == timedelta() or (end is not None and end <= self.clock.now()):
                raise ToolFailed(f"{until} has passed already")
        await self.engine.pause(name, until=end, length=length)
        end = self.engine.states[name].paused_until
        return {"paused": name, "until": end.isoformat() if end else "resume"}

    async def resume(self, name: str) -> Json:
        """Let a paused routine start again. Raises NotFound."""
        routine = self._get_if_daemon_runs(name)
        await self.engine.resume(name)
        return {
            "resumed": name,
            "next": [slot.isoformat() for slot in self._next_slots(routine, 1)],
        }

    async def run(self, context: ToolContext, name: str) -> Json:
        """Start a run of a routine; the same call gets the same run, also after a crash.

        Raises NotFound, and ToolFailed if the routine may not start.
        """
        caller = await self.journal.runs.get(context.run)
        routine = self._get_if_daemon_runs(name)
        if caller.trigger == AGENT_TRIGGER:
            raise ToolFailed("this run was started by another run, and starts none itself")
        state = self.engine.states.get(name)
        if not routine.enabled or (state and state.is_paused(self.clock.now())):
            raise ToolFailed(f"{name} is {'paused' if routine.enabled else 'disabled'}")
        run = await self.engine.run_now(
            name, event=f"{context.run}/{context.call}", trigger=AGENT_TRIGGER
        )
        return {"run": run.id, "routine": name, "status": run.status.value}

    # --- for people

    async def remove_for_person(self, name: str) -> None:
        """Remove a routine that an agent made.

        Raises NotFound; Refused for a routine that a person wrote.
        """
        self._agent_file(name).unlink(missing_ok=True)
        await self.reload()

    async def adopt(self, name: str) -> Path:
        """Move a routine that an agent made into the folder of people, without its origin, and load
        it; return the new file.

        Raises NotFound; Refused for a routine that a person wrote, or that has faults.
        """
        old, new = self._agent_file(name), self.settings.config.routines_path / f"{name}.toml"
        routine = self.engine.routines.get(name)
        if routine is None or routine.origin is None:
            raise Refused(f"{name} cannot be used as it is; mend {old} first, or remove it")
        data = routine.model_dump(
            mode="json", exclude={"name", "origin"}, exclude_unset=True, exclude_none=True
        )
        # TOML has a type for moments, JSON has none
        tables = data["trigger"] if isinstance(data["trigger"], list) else [data["trigger"]]
        for table, trigger in zip(tables, routine.triggers, strict=True):
            if trigger.at:
                table["at"] = trigger.at
        comment = (
            f"# Made by a run of {routine.origin.routine} ({routine.origin.run}), and adopted.\n"
        )
        write_new(new, comment + tomli_w.dumps(data, multiline_strings=True))
        old.unlink()
        await self.reload()
        return new

    def _agent_file(self, name: str) -> Path:
        """Return the file of a routine that an agent made; `name` may be `maker/name`."""
        name = name.rpartition("/")[2]
        path = self.folder / f"{name}.toml"
        is_file = os.path.isfile(path)  # noqa: PTH113 - Path raises for a name that is too long
        if not is_file or path.name != f"{name}.toml":
            if name in self.engine.routines:
                raise Refused(
                    f"{name} is a person's, not an agent's: its file is "
                    f"{self.engine.routines[name].path}"
                )
            raise NotFound(
                f"no agent has made a routine {name!r}; agentctl list shows those there are"
            )
        return path

    # --- checks of a proposal

    def _refuse_creation(self, maker: Routine, name: str) -> None:
        """Raise ToolFailed if `maker` may not make a routine of this name."""
        if maker.origin is not None:
            raise ToolFailed("a routine that an agent made makes none itself")
        if problems := [fault.problem for fault in name_faults(name, self.folder / f"{name}.toml")]:
            raise ToolFailed("; ".join(problems))
        if name in self.engine.routines or name in self.engine.faults:
            raise ToolFailed(
                f"there is a routine {name} already, and nothing is overwritten; take another name"
            )
        policy, routines = self.settings.policy, self._routines_made_by(maker.name)
        if section := policy.find_rule_for_one_only(name, maker.name):
            raise ToolFailed(
                f"the policy has rules for routines of that name ({section}); take another one"
            )
        limit = policy.limits_for(maker.name).routines
        if len(routines) >= limit:
            names = [name for name in routines if name in self._trusted_names()]
            listing = f": {', '.join(names)}" if names else ""
            raise ToolFailed(
                f"{maker.name} may keep {limit} routines of its own making{listing}; "
                "remove one first"
            )

    def _refuse_if_too_often(self, routine: Routine, zone: str) -> None:
        """Raise ToolFailed if two of the next slots lie too close together, or there is none."""
        if routine.pace:
            if routine.pace[0] < MIN_PERIOD:
                period = interval_in_words(MIN_PERIOD)
                raise ToolFailed(f"may run too often: the shortest wait is at least {period}")
            return
        schedule = schedule_of(routine, zone=zone)
        moment, previous_slot = self.clock.now(), None
        for _ in range(MAX_SLOTS_CHECKED):
            slot = schedule.next(moment)
            if slot is None:
                break
            if previous_slot is not None and slot - previous_slot < MIN_PERIOD:
                period = interval_in_words(MIN_PERIOD)
                raise ToolFailed(
                    f"runs too often: at least {period} must lie between two runs of it"
                )
            previous_slot = moment = slot
        if previous_slot is None:
            raise ToolFailed("would never run: that moment has passed")

    def _routines_made_by(self, maker: str) -> list[str]:
        return [
            name
            for name, routine in self.engine.routines.items()
            if routine.origin and routine.origin.routine == maker
        ]

    # --- summaries

    def _get(self, name: str) -> Routine:
        if name not in self.engine.routines:
            raise NotFound(
                f"there is no routine {name!r}; there are {', '.join(self._trusted_names())}"
            )
        return self.engine.routines[name]

    def _trusted_names(self) -> list[str]:
        """Return the names of routines without those that strangers may have chosen: the errors
        that name them taint nobody.
        """
        return sorted(
            name
            for name, routine in self.engine.routines.items()
            if not (routine.origin and routine.origin.tainted)
        )

    def _get_if_daemon_runs(self, name: str) -> Routine:
        """Return a routine. Raises NotFound, and ToolFailed in `agentd once`, which starts no
        routine by its schedule.
        """
        if not self.engine.is_started:
            raise ToolFailed(
                "no daemon is at work here (this is `agentd once`), so nothing is paused or started"
            )
        return self._get(name)

    def _summarize(self, routine: Routine) -> Json:
        state = self.engine.states.get(routine.name)
        is_paused = state is not None and state.is_paused(self.clock.now())
        slots = self._next_slots(routine, 1)
        summary: Json = {
            "name": routine.name,
            "runs": self.engine.describe_schedule(routine),
            "next": slots[0].isoformat() if slots else None,
            "state": "paused" if is_paused else "on" if routine.enabled else "disabled",
        }
        if routine.description:
            summary["description"] = routine.description
        if routine.origin:
            summary["made_by"] = routine.origin.routine
            if routine.origin.tainted:
                summary["untrusted"] = True  # strangers may have chosen its words
        return summary

    def _next_slots(self, routine: Routine, count: int) -> list[datetime]:
        """Return the next slots; none of a routine that is not loaded, as it has faults."""
        if routine.name not in self.engine.routines:
            return []
        return self.engine.next_slots(routine.name, count)


def _compose_definition(
    proposal: RoutineProposal,
    maker: Routine,
    run: Run,
    *,
    tainted: bool,
    zone: ZoneInfo,
    now: datetime,
) -> dict[str, Any]:
    """Return the keys of the proposed routine's file, with at most what its maker has.

    Raises ToolFailed for what the maker cannot pass on, and for an unclear schedule.
    """
    if not proposal.prompt.strip() or not proposal.when.strip():
        raise ToolFailed("a new routine needs a prompt, and a schedule in `when`")
    if len(proposal.prompt) > MAX_PROMPT_LENGTH:
        raise ToolFailed(
            f"the prompt has {len(proposal.prompt)} characters; {MAX_PROMPT_LENGTH} are the most"
        )
    try:
        trigger: Json = {"pace": proposal.when}
        if ".." not in proposal.when:
            trigger = dict(parse_schedule_text(proposal.when, zone, now=now))
    except UnclearScheduleError as error:
        raise ToolFailed(str(error)) from None
    maker_settings = maker.run
    inherited_keys = {
        "provider": maker_settings.provider,
        "model": maker_settings.model,
        "fallback": list(maker_settings.fallback),
        "on_rate_limit": maker_settings.on_rate_limit,
        "memory": maker_settings.memory,
        "timeout": format_duration(maker_settings.timeout),
        "max_iterations": maker_settings.max_iterations,
        "max_tool_calls": maker_settings.max_tool_calls,
        "temperature": maker_settings.temperature,
        "effort": maker_settings.effort,
        "max_tokens": maker_settings.max_tokens,
        "budget": maker_settings.budget.model_dump(exclude_none=True),
        "retry": {"attempts": maker_settings.retry.attempts},
    }
    data: dict[str, Any] = {
        "description": proposal.description or f"made by {maker.name}",
        "trigger": {**trigger, "timezone": zone.key},
        "run": {
            "mode": "agent",
            "prompt": proposal.prompt.strip(),
            "tools": list(_choose_tools(proposal, maker_settings.tools)),
            **{key: value for key, value in inherited_keys.items() if value not in (None, [], {})},
        },
        "origin": {"routine": maker.name, "run": run.id, **({"tainted": True} if tainted else {})},
    }
    if deliver := list(_choose_targets(proposal, maker)):
        data["deliver"] = deliver
    return data


def _choose_tools(proposal: RoutineProposal, maker_tools: tuple[str, ...]) -> Iterator[str]:
    """Yield the tools of a new routine: those of its maker that are proposed, by default all, but
    never a tool that makes routines or changes settings.
    """
    allowed_tools = [tool for tool in maker_tools if tool not in ("routine", "config")]
    for tool in dict.fromkeys(allowed_tools if proposal.tools is None else proposal.tools):
        if set(tool) & set("*?[") and proposal.tools is None:
            continue  # a pattern would come to stand for more as tools are added
        is_allowed = any(fnmatchcase(tool, pattern) for pattern in allowed_tools)
        if tool in ("routine", "config") or not is_allowed:
            raise ToolFailed(
                f"you have no {tool} to pass on; yours: {', '.join(allowed_tools) or 'none'}"
            )
        yield tool


def _choose_targets(proposal: RoutineProposal, maker: Routine) -> Iterator[Json]:
    """Yield the `[[deliver]]` tables of a new routine: its maker's own, by default all of them.

    A path gets the routine's name into it, so that reports of two routines do not mix.
    """
    maker_targets = list(dict.fromkeys(delivery.to for delivery in maker.deliver))
    unknown_targets = [name for name in proposal.deliver or () if name not in maker_targets]
    if unknown_targets:
        raise ToolFailed(
            f"you have no target {', '.join(unknown_targets)}; "
            f"yours: {', '.join(maker_targets) or 'none'}"
        )
    for delivery in maker.deliver:
        if proposal.deliver is not None and delivery.to not in proposal.deliver:
            continue
        table: Json = {"to": delivery.to}
        if delivery.path:
            path = PurePosixPath(delivery.path)
            if "{routine}" not in delivery.path:
                path = path.parent / "{routine}" / path.name
            table["path"] = str(path)
        yield table


def _describe_faults(error: ConfigError) -> Iterator[str]:
    """Yield each fault in words, without the name of the file, which was not written."""
    for fault in error.faults:
        value = f" (found {fault.found})" if fault.found else ""
        hint = f"; {fault.hint}" if fault.hint else ""
        yield f"{fault.key}: {fault.problem}{value}{hint}"
