"""Meter calls to a model: reserve the most that a call may cost, and record what it did cost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from daemon.errors import ProviderError, StoreFull
from daemon.models import Chunk, Json, LLMMessage, LLMResponse, Usage
from daemon.providers import DelegatingProvider, LLMProvider
from daemon.providers.budget import DEFAULT_ANSWER, BudgetLedger, Reservation, RunBudget
from daemon.providers.pricing import Rates
from daemon.store.records import Called, Spent
from daemon.tokens import estimate

if TYPE_CHECKING:
    import asyncio

# Our estimates of tokens are multiplied by it, as they may be too low.
_MARGIN = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class _MeteredCall:
    """One call under way."""

    at: datetime
    """When it began: it counts for the day and month of that moment."""
    reservation: Reservation | None = None
    number: int | None = None
    """The number of its row in the journal, if its reservation was written."""
    size: int = 0
    """Tokens of its input, estimated."""


class MeteredProvider(DelegatingProvider):
    """A provider whose calls are paid from a budget. One per attempt of a run.

    Raises OverBudget, which is not a ProviderError, as neither a retry nor another provider would
    help.
    """

    def __init__(
        self, inner: LLMProvider, *, budget_ledger: BudgetLedger, account: RunBudget
    ) -> None:
        super().__init__(inner)
        self._budget_ledger = budget_ledger
        self._prices = budget_ledger.prices
        self._account = account
        self._counted_prefix = (0, 0)
        """(number of messages, their tokens) of the last answered request, as its vendor counted.
        """
        self._sent_max_tokens: int | None = None
        """The limit sent with the last request, if a cap applied to it."""
        self._is_shortened = False
        """Whether a cap has made that limit smaller than was asked for."""

    def larger_max_tokens(self, max_tokens: int | None) -> int | None:
        # The cap would cut a repeated answer as well.
        return (
            None
            if self._is_shortened
            else self.inner.larger_max_tokens(max_tokens or self._sent_max_tokens)
        )

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        call, kw = await self._reserve(messages, functions, kw)
        try:
            response = await self.inner.chat(messages, functions, temperature=temperature, **kw)
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
        **kw: Any,
    ) -> AsyncIterator[Chunk]:
        call, kw = await self._reserve(messages, functions, kw)
        response: LLMResponse | None = None
        try:
            async with aclosing(
                self.inner.chat_stream(messages, functions, temperature=temperature, **kw)
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
        self, messages: Sequence[LLMMessage], functions: Sequence[Json] | None, kw: Json
    ) -> tuple[_MeteredCall, Json]:
        start = self._budget_ledger.clock.now()
        if not self._budget_ledger.has_caps(self._account, include_tokens=True):
            return _MeteredCall(at=start), kw
        has_money_caps = self._budget_ledger.has_caps(self._account)
        size = self._estimate_request(messages, functions)
        rates = await self._prices.load(self.name, self.model_name) if has_money_caps else None
        max_tokens = kw.get("max_tokens") or self.inner.max_tokens
        reservation, number = await self._reserve_row(
            start, rates, size=size, max_tokens=max_tokens, in_journal=has_money_caps
        )
        self._sent_max_tokens, self._is_shortened = (
            reservation.max_tokens,
            reservation.max_tokens < (max_tokens or DEFAULT_ANSWER),
        )
        return _MeteredCall(at=start, reservation=reservation, number=number, size=size), kw | {
            "max_tokens": reservation.max_tokens
        }

    async def _reserve_row(
        self,
        start: datetime,
        rates: Rates | None,
        *,
        size: int,
        max_tokens: int | None,
        in_journal: bool,
    ) -> tuple[Reservation, int | None]:
        """Reserve what a call may cost. With `in_journal` the reservation is also written as a row,
        whose number is returned.
        """
        while True:
            reservation = await self._budget_ledger.reserve(
                self._account, rates, input_tokens=size, max_tokens=max_tokens
            )
            if (
                not in_journal
            ):  # a cap on a run's tokens needs no row: only this process counts them
                return reservation, None
            usage = Usage(input=size, output=reservation.max_tokens)
            row = self._row(start, Called.ASKED, usage, reservation.cost if rates else None)
            number = None
            try:
                number = await self._budget_ledger.spending.reserve(row, reservation.limits)
            finally:
                if number is None:
                    self._budget_ledger.settle(reservation, self._account, start, cost=0, tokens=0)
            if number is not None:  # else another process has spent in between: read totals again
                return reservation, number

    async def _record_answer(
        self, call: _MeteredCall, response: LLMResponse, messages: int
    ) -> None:
        usage = response.usage
        self._counted_prefix = messages + 1, usage.input + usage.output
        rates = await self._prices.load(self.name, self.model_name)
        self._write(call, Called.ANSWERED, usage, rates.cost(usage) if rates else None)

    def _record_failure(
        self,
        call: _MeteredCall,
        error: BaseException,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
    ) -> None:
        if isinstance(error, ProviderError) and not error.unsure:
            self._write(call, Called.FAILED, Usage(), 0)
        elif call.reservation is not None:
            # The vendor may have answered and may charge for it, so the whole reservation counts.
            usage = Usage(input=call.size, output=call.reservation.max_tokens)
            self._write(call, Called.UNKNOWN, usage, call.reservation.cost)
        else:
            self._write(
                call, Called.UNKNOWN, Usage(input=self._estimate_request(messages, functions)), None
            )

    def _write(self, call: _MeteredCall, outcome: Called, usage: Usage, cost: int | None) -> None:
        self._budget_ledger.settle(
            call.reservation, self._account, call.at, cost=cost or 0, tokens=usage.total
        )
        write = self._budget_ledger.spending.record(
            self._row(call.at, outcome, usage, cost), call.number
        )
        write.add_done_callback(_raise_unexpected)

    def _row(self, at: datetime, outcome: Called, usage: Usage, cost: int | None) -> Spent:
        return Spent(
            at=at,
            run=self._account.run,
            routine=self._account.routine,
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
        counted, tokens = self._counted_prefix
        if counted > len(messages):
            counted, tokens = 0, 0
        estimated = sum(_estimate_message(message) for message in messages[counted:])
        if not counted and functions:
            estimated += estimate(json.dumps(functions, ensure_ascii=False))
        return tokens + int(estimated * _MARGIN)


def _estimate_message(message: LLMMessage) -> int:
    calls = sum(estimate(str(call.arguments)) for call in message.tool_calls)
    # 8 for the role and the like; an image has at most 1600.
    return estimate(message.content) + calls + 8 + 1600 * len(message.images)


def _raise_unexpected(write: asyncio.Future[None]) -> None:
    """Raise the error of a row that could not be written; not that of a full disk, which the next
    write of the run meets as well.
    """
    if not write.cancelled() and (error := write.exception()) and not isinstance(error, StoreFull):
        raise error
