"""Replays of the runs in the daemon's journal, as the API asks for them; another model or another
prompt is really asked, and paid for.
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
from daemon.runs.replay.cassette import Cassette, load_cassette
from daemon.runs.replay.compare import ReplayChange, ReplayResult
from daemon.runs.replay.folder import format_files
from daemon.runs.replay.play import replay

if TYPE_CHECKING:
    from daemon.providers import LLMProvider
    from daemon.runs.services import RunServices


class Replays:
    """Replays and freezes the runs of this daemon's journal."""

    def __init__(self, services: RunServices) -> None:
        self._services = services

    async def replay(
        self,
        run_id: str,
        *,
        model: str | None = None,
        prompt: str | None = None,
        policy: str | None = None,
    ) -> Json:
        """Replay a run, with at most one thing changed; return how it compares, as JSON.

        Raises NotFound, and Refused for a run that cannot be replayed.
        """
        if sum(value is not None for value in (model, prompt, policy)) > 1:
            raise Refused(
                "one thing at a time: --model, --prompt or --policy, or who knows what made the "
                "difference"
            )
        cassette = await self._load_cassette(run_id)
        if model is None and prompt is None:
            change = ReplayChange(policy=None if policy is None else self._parse_policy(policy))
            # in a thread with an event loop of its own: a long run takes seconds of CPU
            result = await asyncio.to_thread(asyncio.run, replay(cassette, change))
        else:
            result = await self._ask_models(cassette, model, prompt)
        return result.as_json(self._services.secrets.redact)

    async def freeze(self, run_id: str, folder: str) -> Mapping[str, str]:
        """Return the files of a frozen run, by name: see folder.py."""
        cassette = await self._load_cassette(run_id)
        return await asyncio.to_thread(
            format_files, cassette, self._services.secrets.redact, folder=folder
        )

    async def _load_cassette(self, run_id: str) -> Cassette:
        language = self._services.settings.config.agent.language
        return await load_cassette(
            self._services.journal,
            run_id,
            workspace=str(self._services.workspace),
            language=language,
        )

    def _parse_policy(self, text: str) -> Policy:
        return Policy.read(
            text,
            workspace=self._services.workspace,
            tools=self._services.registry.names(),
            name="--policy",
        )

    async def _ask_models(
        self, cassette: Cassette, model: str | None, prompt: str | None
    ) -> ReplayResult:
        """Ask models again; what they use counts against the caps of their routine."""
        services = self._services
        if cassette.prompt is None:
            raise Refused(f"run {cassette.run.id} never came to ask a model")
        routine = Routine.restore(cassette.definition)
        chain = (
            services.settings.providers.chain(routine)
            if model is None
            else [self._provider_named(model, routine)]
        )
        budget = RunBudget(run=new_id(), routine=routine.name, budget=routine.run.budget)
        metered_providers: Sequence[LLMProvider] = [
            provider
            if provider.kind == "offline"
            else MeteredProvider(provider, budget_ledger=services.budget_ledger, run_budget=budget)
            for provider in chain
        ]
        result = await replay(
            cassette,
            ReplayChange(
                models=metered_providers, prompt=prompt, current_policy=services.settings.policy
            ),
        )
        spending = services.journal.spending
        await spending.wait_until_written()
        _, tokens = await spending.get_total_of_run(budget.run)
        # by the prices of the models that answered, of which one may be a fallback
        cost = await spending.get_cost_of_run(budget.run) if tokens else 0.0
        return replace(result, cost=cost)

    def _provider_named(self, model: str, routine: Routine) -> LLMProvider:
        """Return a provider by its name, by `name/model`, or another model of the routine's own."""
        settings = self._services.settings
        config, providers = settings.config, settings.providers
        provider_name, _, model_name = model.partition("/")
        try:
            if model in config.provider_names:
                return providers.get(model)
            if provider_name in config.provider_names and model_name:
                return providers.get(provider_name, model_name)
            return providers.get(routine.run.provider or config.provider, model)
        except ConfigError as error:
            raise Refused(str(error)) from None
