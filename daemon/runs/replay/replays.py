"""Runs played again for whoever asks over the socket; another model or another prompt is really
asked, and paid for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from daemon.definitions.routines.routine import Routine
from daemon.errors import ConfigError, Refused
from daemon.models import Json, new_id
from daemon.policy.policy import Policy
from daemon.providers.budget import RunBudget
from daemon.providers.metered import MeteredProvider
from daemon.runs.replay.cassette import Cassette, recorded
from daemon.runs.replay.folder import files_of
from daemon.runs.replay.outcome import ReplayChange, ReplayResult
from daemon.runs.replay.play import play

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.providers import LLMProvider
    from daemon.runs.context import RunServices


class Replays:
    """Plays the runs of this daemon's journal."""

    def __init__(self, rooms: RunServices, workspace: Path) -> None:
        self._rooms, self._workspace = rooms, workspace

    async def replay(
        self,
        run_id: str,
        *,
        model: str | None = None,
        prompt: str | None = None,
        policy: str | None = None,
    ) -> Json:
        """Play a run again, with at most one thing changed, and tell how it compares."""
        if sum(each is not None for each in (model, prompt, policy)) > 1:
            raise Refused(
                (  # noqa: UP034
                    "one thing at a time: --model, --prompt or --policy, or who knows what made the "  # noqa: E501
                    "difference"
                )
            )
        cassette = await self._cassette(run_id)
        if model is None and prompt is None:
            wish = (
                ReplayChange(policy=self._policy(policy)) if policy is not None else ReplayChange()
            )
            # in a thread, and a loop, of its own: it waits for nobody, and a long run is some work
            outcome = await asyncio.to_thread(asyncio.run, play(cassette, wish))
        else:
            outcome = await self._asked(cassette, model, prompt)
        return outcome.as_json(self._rooms.secrets.redact)

    async def frozen(self, run_id: str, folder: str) -> Mapping[str, str]:
        """Return the files of a run as a regression case."""
        cassette = await self._cassette(run_id)
        return await asyncio.to_thread(
            files_of, cassette, self._rooms.secrets.redact, folder=folder
        )

    async def _cassette(self, run_id: str) -> Cassette:
        language = self._rooms.config.agent.language
        return await recorded(
            self._rooms.journal, run_id, workspace=str(self._workspace), language=language
        )

    def _policy(self, text: str) -> Policy:
        return Policy.read(
            text, workspace=self._workspace, tools=self._rooms.registry.names(), name="--policy"
        )

    async def _asked(
        self, cassette: Cassette, model: str | None, prompt: str | None
    ) -> ReplayResult:
        """Ask models again; what they use counts against the caps of their routine."""
        rooms = self._rooms
        if cassette.frozen is None:
            raise Refused(f"run {cassette.run.id} never came to ask a model")
        routine = Routine.restore(cassette.definition)
        chain = rooms.providers.chain(routine) if model is None else [self._named(model, routine)]
        account = RunBudget(run=new_id(), routine=routine.name, budget=routine.run.budget)
        metered: Sequence[LLMProvider] = [
            each
            if each.kind == "offline"
            else MeteredProvider(each, budget_ledger=rooms.budget_ledger, account=account)
            for each in chain
        ]
        outcome = await play(
            cassette, ReplayChange(models=metered, prompt=prompt, by_now=rooms.policy)
        )
        rates = await rooms.budget_ledger.prices.soon(chain[0].name, chain[0].model_name)
        free = chain[0].kind == "offline" or not outcome.asked.total
        return replace(
            outcome, cost=0.0 if free else rates.cost(outcome.asked) / 1e9 if rates else None
        )

    def _named(self, model: str, routine: Routine) -> LLMProvider:
        """Return a provider by its name, by `name/model`, or another model of the routine's own."""
        config = self._rooms.config
        name, _, rest = model.partition("/")
        try:
            if model in config.provider_names:
                return self._rooms.providers.get(model)
            if name in config.provider_names and rest:
                return self._rooms.providers.get(name, rest)
            return self._rooms.providers.get(routine.run.provider or config.provider, model)
        except ConfigError as error:
            raise Refused(str(error)) from None
