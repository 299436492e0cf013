"""Meter calls to a model: reserve the most that a call may cost, and record what it did cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from daemon.errors import Fenced, ProviderError, StoreFull
from daemon.models import Chunk, Json, LLMMessage, LLMResponse, Usage
from daemon.providers import DelegatingProvider, LLMProvider
from daemon.providers.budget import DEFAULT_ANSWER, BudgetLedger, Reservation, RunBudget
from daemon.providers.pricing import Rates
from daemon.providers.token_counts import estimate_messages
from daemon.store.records import CallOutcome, ModelCall

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, kw_only=True, slots=True)
class _MeteredCall:
    """One call under way."""

    at: datetime
    """When it began: it counts for the day and month of that moment."""
    reservation: Reservation | None = None
    row_id: int | None = None
    """The id of its row in the journal, if its reservation was written."""
    input_tokens: int = 0
    """Estimated."""


class MeteredProvider(DelegatingProvider):
    """A provider whose calls are paid from a budget. One per attempt of a run.

    Raises OverBudget, which is not a ProviderError, as neither a retry nor another provider would
    help.
    """

    def __init__(
        self, inner: LLMProvider, *, budget_ledger: BudgetLedger, run_budget: RunBudget
    ) -> None:
        super().__init__(inner)
        self._budget_ledger = budget_ledger
        self._prices = budget_ledger.prices
        self._run_budget = run_budget
        self._counted_prefix = (0, 0)
        """(number of messages, their tokens) of the last answered request, as its vendor counted.
        """
        self._sent_max_tokens: int | None = None
        """The limit sent with the last request, if a cap applied to it."""
        self._is_shortened = False
        """Whether a cap has made that limit smaller than was asked for."""

    def larger_max_tokens(self, max_tokens: int | None) -> int | None:
        if self._is_shortened:  # the cap would cut a repeated answer as well
            return None
        return self.inner.larger_max_tokens(max_tokens or self._sent_max_tokens)

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        call, options = await self._reserve(messages, functions, options)
        try:
            response = await self.inner.chat(
                messages, functions, temperature=temperature, **options
            )
        except BaseException as error:
            self._record_failure(call, error, messages, functions)
            raise
        await self._record_answer(call, response, len(messages))
        return response

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk]:
        call, options = await self._reserve(messages, functions, options)
        response: LLMResponse | None = None
        try:
            async with aclosing(
                self.inner.chat_stream(messages, functions, temperature=temperature, **options)
            ) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    if chunk.response is not None:
                        response = chunk.response
                        await self._record_answer(call, response, len(messages))
                    yield chunk
        except BaseException as error:
            if response is None:
                self._record_failure(call, error, messages, functions)
            raise

    async def _reserve(
        self, messages: Sequence[LLMMessage], functions: Sequence[Json] | None, options: Json
    ) -> tuple[_MeteredCall, Json]:
        """Reserve what a call may cost. Return the call, and its `options` with the limit on the
        answer that the caps allow. Raises OverBudget.
        """
        start = self._budget_ledger.clock.now()
        if not self._budget_ledger.has_caps(self._run_budget, include_tokens=True):
            return _MeteredCall(at=start), options
        has_money_caps = self._budget_ledger.has_caps(self._run_budget)
        input_tokens = self._estimate_request(messages, functions)
        rates = await self._prices.load(self.name, self.model_name) if has_money_caps else None
        max_tokens = options.get("max_tokens") or self.inner.max_tokens
        reservation, row_id = await self._reserve_row(
            start,
            rates,
            input_tokens=input_tokens,
            max_tokens=max_tokens,
            in_journal=has_money_caps,
        )
        self._sent_max_tokens = reservation.max_tokens
        self._is_shortened = reservation.max_tokens < (max_tokens or DEFAULT_ANSWER)
        call = _MeteredCall(
            at=start, reservation=reservation, row_id=row_id, input_tokens=input_tokens
        )
        return call, options | {"max_tokens": reservation.max_tokens}

    async def _reserve_row(
        self,
        start: datetime,
        rates: Rates | None,
        *,
        input_tokens: int,
        max_tokens: int | None,
        in_journal: bool,
    ) -> tuple[Reservation, int | None]:
        """Reserve what a call may cost. With `in_journal` the reservation is also written as a row,
        whose id is returned.
        """
        while True:
            reservation = await self._budget_ledger.reserve(
                self._run_budget, rates, input_tokens=input_tokens, max_tokens=max_tokens
            )
            if not in_journal:
                # a cap on a run's tokens needs no row: only this process counts them
                return reservation, None
            usage = Usage(input=input_tokens, output=reservation.max_tokens)
            row = self._row(start, CallOutcome.ASKED, usage, reservation.cost if rates else None)
            row_id = None
            try:
                row_id = await self._budget_ledger.spending.reserve(row, reservation.limits)
            finally:
                if row_id is None:
                    self._budget_ledger.settle(
                        reservation, self._run_budget, start, cost=0, tokens=0
                    )
            if row_id is not None:  # else another process has spent in between: read totals again
                return reservation, row_id

    async def _record_answer(
        self, call: _MeteredCall, response: LLMResponse, message_count: int
    ) -> None:
        usage = response.usage
        self._counted_prefix = message_count + 1, usage.input + usage.output
        rates = await self._prices.load(self.name, self.model_name)
        self._write(call, CallOutcome.ANSWERED, usage, rates.cost(usage) if rates else None)
        await self._budget_ledger.warn(self._run_budget)

    def _record_failure(
        self,
        call: _MeteredCall,
        error: BaseException,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
    ) -> None:
        is_refused = isinstance(error, ProviderError) and not error.unsure
        # the journal does not take the run's writes, so nobody was asked (runs/leased_provider.py)
        if is_refused or isinstance(error, (Fenced, StoreFull)):
            self._write(call, CallOutcome.FAILED, Usage(), 0)
        elif call.reservation is not None:
            # The vendor may have answered and may charge for it, so the whole reservation counts.
            usage = Usage(input=call.input_tokens, output=call.reservation.max_tokens)
            self._write(call, CallOutcome.UNKNOWN, usage, call.reservation.cost)
        else:
            self._write(
                call,
                CallOutcome.UNKNOWN,
                Usage(input=self._estimate_request(messages, functions)),
                None,
            )

    def _write(
        self, call: _MeteredCall, outcome: CallOutcome, usage: Usage, cost: int | None
    ) -> None:
        self._budget_ledger.settle(
            call.reservation, self._run_budget, call.at, cost=cost or 0, tokens=usage.total
        )
        write = self._budget_ledger.spending.record(
            self._row(call.at, outcome, usage, cost), call.row_id
        )
        write.add_done_callback(_raise_unexpected)

    def _row(self, at: datetime, outcome: CallOutcome, usage: Usage, cost: int | None) -> ModelCall:
        return ModelCall(
            at=at,
            run=self._run_budget.run,
            routine=self._run_budget.routine,
            provider=self.name,
            model=self.model_name,
            outcome=outcome,
            usage=usage,
            cost=cost,
        )

    def _estimate_request(
        self, messages: Sequence[LLMMessage], functions: Sequence[Json] | None
    ) -> int:
        """Return how many tokens a request has: as counted by the vendor up to its last answer,
        the remaining messages estimated.
        """
        prefix_length, tokens = self._counted_prefix
        if prefix_length > len(messages):
            prefix_length, tokens = 0, 0
        return tokens + estimate_messages(
            messages[prefix_length:], None if prefix_length else functions
        )


def _raise_unexpected(write: asyncio.Future[None]) -> None:
    """Raise the error of a row that could not be written; not that of a full disk, which the next
    write of the run meets as well.
    """
    if not write.cancelled() and (error := write.exception()) and not isinstance(error, StoreFull):
        raise error
