"""Asking again: the only place where a call to a model is repeated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from daemon.errors import Retryable, Transport
from daemon.models import Chunk, Json, LLMMessage, LLMResponse
from daemon.providers.base import LLMProvider

log = structlog.get_logger()

# Beyond a minute it is better to give the place to another run and come back.
_LONGEST_PAUSE = 60.0


async def ask(
    provider: LLMProvider,
    messages: Sequence[LLMMessage],
    functions: Sequence[Json] | None = None,
    *,
    deadline: float,
    attempts: int = 3,
    backoff: float = 1.0,
    on_retry: Callable[[int, float, Retryable], None] | None = None,
    on_chunk: Callable[[Chunk], None] | None = None,
    but_not: tuple[type[Retryable], ...] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[float, float], float] = random.uniform,
    **kw: Any,
) -> LLMResponse:
    """Ask up to `attempts` times, for as long as only passing faults stand in the way.

    `deadline` is in the event loop's time. A pause is drawn between nothing and `backoff`, doubled
    each time (when everyone's cron fires at 09:00, equal pauses would all end together again); a
    vendor that names its own is obeyed. A pause that would not end before the deadline is not
    begun: the error flies on with the vendor's wish in `retry_after`, so that the run can be put
    off until then. `on_retry` hears of the attempt, the pause and the error.

    `but_not` are faults that somebody else is to be asked about at once.

    With `on_chunk` somebody watches: the answer is streamed, and each piece of it handed over as it
    comes. After a retry the answer begins anew.
    """
    loop = asyncio.get_running_loop()
    for attempt in range(1, attempts + 1):
        try:
            if on_chunk is None:
                return await provider.chat(messages, functions, **kw)
            return await _watched(provider, messages, functions, on_chunk, kw)
        except Retryable as error:
            pause = _pause(error, attempt, backoff, jitter)
            if attempt == attempts or isinstance(error, but_not) or loop.time() + pause >= deadline:
                raise
            log.warning(
                "provider.retry_scheduled", attempt=attempt, pause=round(pause, 3), error=str(error)
            )
            if on_retry:
                on_retry(attempt, pause, error)
        await sleep(pause)
    raise ValueError(f"attempts must be at least 1, not {attempts}")


async def _watched(
    provider: LLMProvider,
    messages: Sequence[LLMMessage],
    functions: Sequence[Json] | None,
    on_chunk: Callable[[Chunk], None],
    kw: Json,
) -> LLMResponse:
    response: LLMResponse | None = None
    async for chunk in provider.chat_stream(messages, functions, **kw):
        response = chunk.response or response
        if chunk.delta or chunk.thinking:
            on_chunk(chunk)
    if response is None:
        raise Transport("the stream held no answer")
    return response


def _pause(
    error: Retryable, attempt: int, backoff: float, jitter: Callable[[float, float], float]
) -> float:
    if error.retry_after is not None:
        # never earlier than asked, and not all at the same instant
        return error.retry_after + jitter(0.0, min(1.0, backoff))
    return jitter(0.0, min(_LONGEST_PAUSE, backoff * 2 ** (attempt - 1)))
