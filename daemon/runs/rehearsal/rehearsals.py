"""Rehearsals: a routine tried with the real model before it is trusted, and held back until a
person has seen that.

A rehearsal is a run of its own kind, under a name that no routine has (`rehearsal:NAME`): it fills
no slot, no gate and no later run compares with it, no memory keeps it, and nothing of it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from daemon.definitions.routines.routine import Routine
from daemon.delivery.channels.file import fill_path
from daemon.errors import NotFound, Refused
from daemon.models import Json, Report, Run, Status, Step, StepKind
from daemon.runs.rehearsal.approved import is_approved, key_of
from daemon.runs.rehearsal.dry_run import REHEARSAL
from daemon.store.journal import Claim

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import RunStarter
    from daemon.definitions.config.live import LiveConfig
    from daemon.providers.budget import BudgetLedger
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()
PREFIX = f"{REHEARSAL}:"


class RoutineCatalog(Protocol):
    """The routines that there are."""

    @property
    def routines(self) -> Mapping[str, Routine]: ...
    async def recheck_rehearsal(self, name: str) -> None:
        """Let the routine start, whose rehearsal was approved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsedCall:
    """One call that was not done."""

    call: str
    """The id of the call in the run."""
    tool: str
    text: str
    """What it would have done."""


class Rehearsals:
    """Starts rehearsals, describes what they would have done, and records approvals."""

    def __init__(
        self,
        journal: Journal,
        engine: RoutineCatalog,
        *,
        queue: RunStarter,
        budget_ledger: BudgetLedger,
        clock: Clock,
        settings: LiveConfig,
    ) -> None:
        self._journal, self._engine, self._queue = journal, engine, queue
        self._budget_ledger = budget_ledger
        self._clock, self._settings = clock, settings

    async def begin(self, name: str, event: str) -> Run:
        """Start a rehearsal of a routine and return its run; the same `event` gets the same run.

        Raises NotFound for an unknown routine, Refused where no more may be spent.
        """
        routine, rehearsed_name = self._routine(name), f"{PREFIX}{name}"
        if existing_run := await self._journal.slots.get_run_of_event(rehearsed_name, event):
            return existing_run
        if cap := await self._budget_ledger.find_used_up_cap(routine):
            raise Refused(
                f"{name} may spend no more for now: {cap}; agentctl usage shows what was spent"
            )
        claim = Claim(
            routine=rehearsed_name,
            definition=routine.dump(),
            trigger=REHEARSAL,
            slot=self._clock.now(),
            goal=routine.run.prompt,
            event=event,
        )
        (run,) = await self._journal.slots.claim([claim])
        if run is None:
            raise Refused(f"a rehearsal of {name} has begun at this very moment; ask again")
        await self._queue.submit(run)
        return run

    async def describe(self, run_id: str) -> Json:
        """Return what the calls and deliveries of a rehearsal would have done."""
        run, routine = await self._rehearsal(run_id)
        current_routine = self._engine.routines.get(routine.name)
        return {
            "run": run.id,
            "routine": routine.name,
            "status": run.status.value,
            "silent": run.silent,
            "effects": [
                {"call": effect.call, "tool": effect.tool, "text": effect.text}
                for effect in rehearsed_calls(await self._journal.runs.get_steps(run.id))
            ],
            "deliveries": []
            if run.silent
            else describe_deliveries(run, routine, self._settings.zone.key),
            "tokens": run.usage.total,
            "usd": await self._journal.spending.get_cost_of_run(run.id) if run.usage.total else 0.0,
            "held": bool(
                current_routine
                and current_routine.run.rehearse_first
                and not await is_approved(self._journal.key_values, current_routine)
            ),
            "current": current_routine is not None
            and current_routine.rehearsal_key == routine.rehearsal_key,
        }

    async def approve(self, run_id: str, by: str) -> Json:
        """Let a routine run as it was rehearsed.

        Raises Refused if the rehearsal failed, or if the routine was edited since.
        """
        run, routine = await self._rehearsal(run_id)
        name = routine.name
        if run.status is not Status.SUCCEEDED:
            raise Refused(
                f"the rehearsal {run.id} is {run.status}, which nobody can approve: agentctl "
                f"rehearse {name}"
            )
        if self._routine(name).rehearsal_key != routine.rehearsal_key:
            raise Refused(
                f"{name} was edited since: rehearse it as it is now: agentctl rehearse {name}"
            )
        await self._journal.key_values.put(
            key_of(name), json.dumps({"key": routine.rehearsal_key, "run": run.id, "by": by})
        )
        await self._journal.audit.write("rehearsed", actor=by, routine=name, body={"run": run.id})
        await self._engine.recheck_rehearsal(name)
        log.info("routine.rehearsed", routine=name, run=run.id, by=by)
        return await self.describe(run.id)

    async def _rehearsal(self, run_id: str) -> tuple[Run, Routine]:
        run = await self._journal.runs.get(run_id)
        if run.trigger != REHEARSAL:
            raise NotFound(f"run {run.id} is no rehearsal; agentctl rehearse ROUTINE makes one")
        try:
            return run, Routine.restore(await self._journal.runs.get_definition(run.definition))
        except ValueError:
            raise Refused(
                f"the definition of run {run.id} cannot be read by this version, or was forgotten"
            ) from None

    def _routine(self, name: str) -> Routine:
        if name not in self._engine.routines:
            raise NotFound(
                f"there is no routine {name!r} to rehearse; agentctl list shows those there are"
            )
        return self._engine.routines[name]


def rehearsed_calls(steps: Sequence[Step]) -> list[RehearsedCall]:
    """Return the calls of a rehearsal that were not done, in order."""
    return [
        RehearsedCall(call=str(step.call_id), tool=step.body["tool"], text=effect)
        for step in steps
        if step.kind is StepKind.RESULT
        and (effect := step.body.get("would") or _effect_in_text(step.body))
    ]


def _effect_in_text(body: Json) -> str:
    """Return what a call would have done where an older version recorded it in the text only."""
    is_held = body["ok"] and body["text"].startswith(("[rehearsal: this was not done", "[演练"))
    return str(body["text"].partition("] ")[2]) if is_held else ""


def describe_deliveries(run: Run, routine: Routine, zone: str) -> list[str]:
    """Return a line for each target that the report would be sent to."""
    report = Report(
        run=run.id,
        routine=routine.name,
        slot=run.slot,
        status=run.status,
        text=run.report or "",
        scheduled_zone=routine.timezone or zone,
    )
    lines = []
    for delivery in routine.deliver:
        if run.status.value in delivery.on:
            path = f": {fill_path(delivery.path, report)}" if delivery.path else ""
            lines.append(f"would send the report to {delivery.to}{path}")
    return lines
