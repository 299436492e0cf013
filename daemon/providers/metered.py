"""The meter: every call to a model goes through one, whoever makes it."""

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
from daemon.providers.budget import MOST, BudgetLedger, Reservation, RunBudget
from daemon.providers.pricing import Rates
from daemon.store.spending import Called, Spent
from daemon.tokens import estimate

if TYPE_CHECKING:
    import asyncio

# What an estimate may be too low by, before a vendor has counted.
_MARGIN = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class _MeteredCall:
    """One call under way."""

    at: datetime
    held: Reservation | None = None
    number: int | None = None
    """Of its row, if one was written before."""
    size: int = 0


class MeteredProvider(DelegatingProvider):
    """A provider whose calls are paid for: what one may cost is set aside before it, what it did is
    written down.

    Raises OverBudget, which is no ProviderError: asking again, or asking somebody else, is not what
    a cap is for.
    """

    def __init__(
        self, inner: LLMProvider, *, budget_ledger: BudgetLedger, account: RunBudget
    ) -> None:
        super().__init__(inner)
        self._budget_ledger, self._prices, self._account = (
            budget_ledger,
            budget_ledger.prices,
            account,
        )
        self._counted = (0, 0)
        """How many messages the vendor has counted, and to how many tokens they came."""
        self._sent: int | None = None
        """How long the last answer was let to be, where a cap is in force."""
        self._shortened = False

    def longer(self, max_tokens: int | None) -> int | None:
        # an answer that a cap has made short will not get longer by being asked for again
        return None if self._shortened else self.inner.longer(max_tokens or self._sent)

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        call, kw = await self._begin(messages, functions, kw)
        try:
            response = await self.inner.chat(messages, functions, temperature=temperature, **kw)
        except BaseException as error:
            self._failed(call, error, messages, functions)
            raise
        await self._answered(call, response, len(messages))
        return response

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> AsyncIterator[Chunk]:
        call, kw = await self._begin(messages, functions, kw)
        response: LLMResponse | None = None
        try:
            async with aclosing(
                self.inner.chat_stream(messages, functions, temperature=temperature, **kw)
            ) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    if chunk.response is not None:
                        response = chunk.response
                        await self._answered(call, response, len(messages))
                    yield chunk
        except BaseException as error:
            if response is None:
                self._failed(call, error, messages, functions)
            raise

    async def _begin(
        self, messages: Sequence[LLMMessage], functions: Sequence[Json] | None, kw: Json
    ) -> tuple[_MeteredCall, Json]:
        now = self._budget_ledger.clock.now()
        if not self._budget_ledger.capped(self._account, by_tokens=True):
            return _MeteredCall(at=now), kw
        capped = self._budget_ledger.capped(self._account)
        size = self._size(messages, functions)
        rates = await self._prices.soon(self.name, self.model_name) if capped else None
        wanted = kw.get("max_tokens") or self.inner.max_tokens
        held, number = await self._set_aside(now, rates, size=size, wanted=wanted, written=capped)
        self._sent, self._shortened = held.max_tokens, held.max_tokens < (wanted or MOST)
        return _MeteredCall(at=now, held=held, number=number, size=size), kw | {
            "max_tokens": held.max_tokens
        }

    async def _set_aside(
        self, now: datetime, rates: Rates | None, *, size: int, wanted: int | None, written: bool
    ) -> tuple[Reservation, int | None]:
        """Set aside what the call may come to; `written`, in a row of the journal, whose number is
        returned as well.
        """
        while True:
            held = await self._budget_ledger.hold(self._account, rates, size=size, wanted=wanted)
            if not written:  # a run's tokens are counted by the run; the journal's row is of money
                return held, None
            usage = Usage(input=size, output=held.max_tokens)
            row = self._row(now, Called.ASKED, usage, held.cost if rates else None)
            number = None
            try:
                number = await self._budget_ledger.journal.reserve(row, held.limits)
            finally:
                if number is None:
                    self._budget_ledger.settle(held, self._account, now, cost=0, tokens=0)
            if number is not None:  # else another process was first
                return held, number

    async def _answered(self, call: _MeteredCall, response: LLMResponse, messages: int) -> None:
        usage = response.usage
        self._counted = messages + 1, usage.input + usage.output
        rates = await self._prices.soon(self.name, self.model_name)
        self._write(call, Called.ANSWERED, usage, rates.cost(usage) if rates else None)

    def _failed(
        self,
        call: _MeteredCall,
        error: BaseException,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
    ) -> None:
        if isinstance(error, ProviderError) and not error.unsure:
            self._write(call, Called.FAILED, Usage(), 0)
        elif call.held is not None:
            # the vendor may have worked, and may charge for it: until somebody knows better all of
            # it is spent
            usage = Usage(input=call.size, output=call.held.max_tokens)
            self._write(call, Called.UNKNOWN, usage, call.held.cost)
        else:
            self._write(call, Called.UNKNOWN, Usage(input=self._size(messages, functions)), None)

    def _write(self, call: _MeteredCall, outcome: Called, usage: Usage, cost: int | None) -> None:
        self._budget_ledger.settle(
            call.held, self._account, call.at, cost=cost or 0, tokens=usage.total
        )
        written = self._budget_ledger.journal.spend(
            self._row(call.at, outcome, usage, cost), call.number
        )
        written.add_done_callback(_heard)

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

    def _size(self, messages: Sequence[LLMMessage], functions: Sequence[Json] | None) -> int:
        """Return how many tokens a request is likely to have: what the vendor has counted, the rest
        estimated.
        """
        known, tokens = self._counted
        if known > len(messages):
            known, tokens = 0, 0
        rest = sum(_size_of(message) for message in messages[known:])
        if not known and functions:
            rest += estimate(json.dumps(functions, ensure_ascii=False))
        return tokens + int(rest * _MARGIN)


def _size_of(message: LLMMessage) -> int:
    calls = sum(estimate(str(call.arguments)) for call in message.tool_calls)
    return (
        estimate(message.content) + calls + 8 + 1600 * len(message.images)
    )  # a picture comes to so many at most


def _heard(written: asyncio.Future[None]) -> None:
    """Hear of a row that could not be written: a full disk shows itself in the next write of the
    run.
    """
    if (
        not written.cancelled()
        and (error := written.exception())
        and not isinstance(error, StoreFull)
    ):
        raise error
