"""Routines that agents made: each a file of the state folder, with its maker's name in it.

Such a routine has at most the rights of its maker, whatever it is called: the policy judges it as
both (`maker/name`). It has its maker's model and, at most, its limits, caps, tools and targets; a
clock starts it and nothing else; and it makes no routines itself. Where its maker had read what
strangers wrote, all its runs begin as if they had, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import tomli_w

from daemon.definitions.routines.folder import name_faults, routine_of, write_new
from daemon.definitions.routines.routine import Routine
from daemon.definitions.routines.rules import OF_AGENTS
from daemon.definitions.schedule import span
from daemon.definitions.schedule_text import Unclear, trigger_of
from daemon.definitions.values import format_duration
from daemon.errors import ConfigError, NotFound, Refused, ToolFailed
from daemon.models import Json, Run, ToolContext
from daemon.scheduler.routine_rules import routine_rules
from daemon.scheduler.routine_times import schedule_of

if TYPE_CHECKING:
    from daemon.runs.parts import RunParts
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.tools.builtin.routine import RoutineProposal
    from daemon.tools.registry import FunctionRegistry

BY_AGENT = "agent"
"""The trigger of a run that another run has started."""
# Who is to be woken more often than that wants a watch, which is a person's to write: each run
# costs.
LEAST_PERIOD = timedelta(minutes=10)
FIRES_LOOKED_AT = 50
LONGEST_PROMPT = 20_000


@dataclass(frozen=True, kw_only=True)
class AgentRoutines:
    """Make routines for agents, remove them, hand them over to people; and steer routines."""

    folder: Path
    """Where the routines that agents made lie."""
    settings: LiveSettings
    engine: RoutineEngine
    journal: Journal
    registry: FunctionRegistry
    runs: RunParts
    reload: Callable[[], Awaitable[None]]
    """Take up what has changed in the folders."""
    clock: Clock

    # --- for agents

    def every(self) -> list[Json]:
        """Return every routine in a few words."""
        return [self._brief(routine) for _, routine in sorted(self.engine.routines.items())]

    def show(self, name: str) -> Json:
        """Return a routine in full; NotFound."""
        routine = self._known(name)
        fires = [each.isoformat() for each in self._fires(routine, 3)]
        return {
            **self._brief(routine),
            "next": fires,
            "definition": routine.model_dump(mode="json", exclude_none=True),
        }

    async def create(self, context: ToolContext, wish: RoutineProposal) -> Json:
        """Write a routine as an agent wants it and take it up; ToolFailed, with all that is wrong
        with it.
        """
        run = await self.journal.get(context.run)
        maker = await self.runs.routine_of(run)
        self._refuse_if_not_its_to_make(maker, wish.name)
        zone = maker.trigger.timezone or self.engine.zone
        data = _composed(wish, maker, run, tainted=context.tainted, zone=ZoneInfo(zone))
        path = self.folder / f"{wish.name}.toml"
        try:
            routine = routine_of(
                data,
                path,
                rules=(*OF_AGENTS, *routine_rules(self.settings.config, self.registry.names())),
            )
        except ConfigError as error:
            raise ToolFailed("; ".join(_in_words(error))) from None
        self._refuse_if_too_often(routine, zone)
        said = f"# Made by a run of {maker.name}; `agentctl adopt {wish.name}` makes it yours.\n"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_new(path, said + tomli_w.dumps(data, multiline_strings=True))
        await self.reload()
        return {"made": wish.name, **self._brief(routine)}

    async def remove(self, context: ToolContext, name: str) -> Json:
        """Remove a routine that the same routine has made; ToolFailed for any other."""
        maker = await self.runs.routine_of(await self.journal.get(context.run))
        routine = self._known(name)
        if routine.origin is None or routine.origin.routine != maker.name:
            raise ToolFailed(f"{name} is not of your making; a person removes it, or you pause it")
        await self.removed(name)
        return {"removed": name}

    async def pause(self, name: str, until: str) -> Json:
        """Pause a routine; ToolFailed for a moment that is none."""
        self._steered(name)
        end = None
        if until:
            try:
                end = datetime.fromisoformat(until)
            except ValueError:
                raise ToolFailed(
                    f"{until} is no moment; write it like 2026-12-01T09:00:00Z"
                ) from None
            end = end.replace(tzinfo=end.tzinfo or ZoneInfo(self.engine.zone)).astimezone(UTC)
            if end <= self.clock.now():
                raise ToolFailed(f"{until} has passed already")
        await self.engine.pause(name, until=end)
        return {"paused": name, "until": end.isoformat() if end else "resume"}

    async def resume(self, name: str) -> Json:
        """Let a paused routine go on."""
        routine = self._steered(name)
        await self.engine.resume(name)
        return {"resumed": name, "next": [each.isoformat() for each in self._fires(routine, 1)]}

    async def run(self, context: ToolContext, name: str) -> Json:
        """Start a run of a routine; asked again after a crash it is the same run.

        ToolFailed where it may not start.
        """
        asking, routine = await self.journal.get(context.run), self._steered(name)
        if asking.trigger == BY_AGENT:
            raise ToolFailed("this run was started by another run, and starts none itself")
        state = self.engine.states.get(name)
        if not routine.enabled or (state and state.pausing(self.clock.now())):
            raise ToolFailed(f"{name} is {'paused' if routine.enabled else 'disabled'}")
        run = await self.engine.trigger(
            name, event=f"{context.run}/{context.call}", trigger=BY_AGENT
        )
        return {"run": run.id, "routine": name, "status": run.status.value}

    # --- for people

    async def removed(self, name: str) -> None:
        """Remove what an agent made; Refused for a person's own, NotFound."""
        self._made(name).unlink(missing_ok=True)
        await self.reload()

    async def adopt(self, name: str) -> Path:
        """Make what an agent made a person's own: its file, without the origin, in their folder.

        Refused, NotFound.
        """
        old, new = self._made(name), self.settings.config.routines_path / f"{name}.toml"
        routine = self.engine.routines.get(name)
        if routine is None or routine.origin is None:
            raise Refused(f"{name} cannot be used as it is; mend {old} first, or remove it")
        data = routine.model_dump(
            mode="json", exclude={"name", "origin"}, exclude_unset=True, exclude_none=True
        )
        if routine.trigger.at:
            data["trigger"]["at"] = routine.trigger.at
        said = f"# Made by a run of {routine.origin.routine} ({routine.origin.run}), and adopted.\n"
        write_new(new, said + tomli_w.dumps(data, multiline_strings=True))
        old.unlink()
        await self.reload()
        return new

    def _made(self, name: str) -> Path:
        """Return the file of what an agent made."""
        name = name.rpartition("/")[2]
        path = self.folder / f"{name}.toml"
        if not path.is_file() or path.name != f"{name}.toml":
            if name in self.engine.routines:
                raise Refused(
                    (  # noqa: UP034
                        f"{name} is a person's, not an agent's: its file is "
                        f"{self.engine.routines[name].path}"
                    )
                )
            raise NotFound(
                f"no agent has made a routine {name!r}; agentctl list shows those there are"
            )
        return path

    # --- what must hold

    def _refuse_if_not_its_to_make(self, maker: Routine, name: str) -> None:
        if maker.origin is not None:
            raise ToolFailed("a routine that an agent made makes none itself")
        if faults := [fault.problem for fault in name_faults(name, self.folder / f"{name}.toml")]:
            raise ToolFailed("; ".join(faults))
        if name in self.engine.routines or name in self.engine.faults:
            raise ToolFailed(
                f"there is a routine {name} already, and nothing is overwritten; take another name"
            )
        policy, made = self.settings.policy, self._made_by(maker.name)
        if what := policy.singles_out(name, maker.name):
            raise ToolFailed(
                f"the policy speaks of routines of that name ({what}); take another one"
            )
        if len(made) >= (most := policy.limits_for(maker.name).routines):
            kept = f": {', '.join(made)}" if made else ""
            raise ToolFailed(
                f"{maker.name} may keep {most} routines of its own making{kept}; remove one first"
            )

    def _refuse_if_too_often(self, routine: Routine, zone: str) -> None:
        moment, last, schedule = self.clock.now(), None, schedule_of(routine, zone=zone)
        for _ in range(FIRES_LOOKED_AT):
            following = schedule.next(moment)
            if following is None:
                break
            if last is not None and following - last < LEAST_PERIOD:
                raise ToolFailed(
                    f"runs too often: at least {span(LEAST_PERIOD)} must lie between two runs of it"
                )
            last = moment = following
        if last is None:
            raise ToolFailed("would never run: that moment has passed")

    def _made_by(self, maker: str) -> list[str]:
        return [
            name
            for name, each in self.engine.routines.items()
            if each.origin and each.origin.routine == maker
        ]

    # --- in words

    def _known(self, name: str) -> Routine:
        if name not in self.engine.routines:
            raise NotFound(
                f"there is no routine {name!r}; there are {', '.join(sorted(self.engine.routines))}"
            )
        return self.engine.routines[name]

    def _steered(self, name: str) -> Routine:
        """Return a routine that a daemon lets run; ToolFailed where none is there to do that."""
        if not self.engine.started:
            raise ToolFailed(
                "no daemon is at work here (this is `agentd once`), so nothing is paused or started"
            )
        return self._known(name)

    def _brief(self, routine: Routine) -> Json:
        state = self.engine.states.get(routine.name)
        paused = state is not None and state.pausing(self.clock.now())
        following = self._fires(routine, 1)
        said: Json = {"name": routine.name, "runs": self.engine.describe_schedule(routine)}
        said["next"] = following[0].isoformat() if following else None
        said["state"] = "paused" if paused else "on" if routine.enabled else "disabled"
        if routine.description:
            said["description"] = routine.description
        if routine.origin:
            said["made_by"] = routine.origin.routine
        return said

    def _fires(self, routine: Routine, count: int) -> list[datetime]:
        return (
            self.engine.next_fires(routine.name, count)
            if routine.name in self.engine.routines
            else []
        )


def _composed(
    wish: RoutineProposal, maker: Routine, run: Run, *, tainted: bool, zone: ZoneInfo
) -> dict[str, Any]:
    """Return the file of a routine: what is wished for, as far as its maker has it."""
    if not wish.prompt.strip() or not wish.when.strip():
        raise ToolFailed("a new routine needs a prompt, and a schedule in `when`")
    if len(wish.prompt) > LONGEST_PROMPT:
        raise ToolFailed(
            f"the prompt has {len(wish.prompt)} characters; {LONGEST_PROMPT} are the most"
        )
    try:
        trigger = trigger_of(wish.when, zone)
    except Unclear as error:
        raise ToolFailed(str(error)) from None
    spec = maker.run
    inherited = {
        "provider": spec.provider,
        "model": spec.model,
        "fallback": list(spec.fallback),
        "on_rate_limit": spec.on_rate_limit,
        "memory": spec.memory,
        "timeout": format_duration(spec.timeout),
        "max_iterations": spec.max_iterations,
        "max_tool_calls": spec.max_tool_calls,
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "budget": spec.budget.model_dump(exclude_none=True),
        "retry": {"attempts": spec.retry.attempts},
    }
    data: dict[str, Any] = {
        "description": wish.description or f"made by {maker.name}",
        "trigger": {**trigger, "timezone": zone.key},
        "run": {
            "mode": "agent",
            "prompt": wish.prompt.strip(),
            "tools": list(_tools(wish, spec.tools)),
            **{key: value for key, value in inherited.items() if value not in (None, [], {})},
        },
        "origin": {"routine": maker.name, "run": run.id, **({"tainted": True} if tainted else {})},
    }
    if deliver := list(_targets(wish, maker)):
        data["deliver"] = deliver
    return data


def _tools(wish: RoutineProposal, mine: tuple[str, ...]) -> Iterator[str]:
    """Yield the tools of a new routine: of its maker's those that are wished for, but never what
    makes routines.
    """
    own = [tool for tool in mine if tool not in ("routine", "config")]
    for tool in dict.fromkeys(own if wish.tools is None else wish.tools):
        if set(tool) & set("*?[") and wish.tools is None:
            continue  # a pattern would come to stand for more as tools are added
        if tool in ("routine", "config") or not any(fnmatchcase(tool, each) for each in own):
            raise ToolFailed(f"you have no {tool} to pass on; yours: {', '.join(own) or 'none'}")
        yield tool


def _targets(wish: RoutineProposal, maker: Routine) -> Iterator[Json]:
    """Yield where the reports of a new routine go: to its maker's own targets, in files of their
    own.
    """
    mine = {each.to: each for each in maker.deliver}
    if strange := [name for name in wish.deliver or () if name not in mine]:
        raise ToolFailed(
            f"you have no target {', '.join(strange)}; yours: {', '.join(mine) or 'none'}"
        )
    for place in maker.deliver:
        if wish.deliver is not None and place.to not in wish.deliver:
            continue
        target: Json = {"to": place.to}
        if place.path:
            path = PurePosixPath(place.path)
            target["path"] = str(
                path if "{routine}" in place.path else path.parent / "{routine}" / path.name
            )
        yield target


def _in_words(error: ConfigError) -> Iterator[str]:
    """Yield what is wrong, without the name of a file that is not there."""
    for fault in error.faults:
        found = f" (found {fault.found})" if fault.found else ""
        yield f"{fault.key}: {fault.problem}{found}" + (f"; {fault.hint}" if fault.hint else "")
