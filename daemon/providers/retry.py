"""Retry calls of a model. No other place repeats one: the retries of the SDKs are turned off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from daemon.errors import Retryable, TransportError
from daemon.models import Chunk, Json, LLMMessage, LLMResponse
from daemon.providers.base import LLMProvider

log = structlog.get_logger()

# Seconds of a pause that we choose. One that the vendor asks for may be longer.
_MAX_PAUSE = 60.0


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
    not_retried: tuple[type[Retryable], ...] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[float, float], float] = random.uniform,
    **options: Any,
) -> LLMResponse:
    """Call a model up to `attempts` times, as long as the error is Retryable.

    `deadline` is a time of the event loop's clock. A pause is random, up to `backoff` seconds,
    doubled each time (when everyone's cron fires at 09:00, equal pauses would end together again).
    A pause that the vendor asks for is kept. If a pause would not end before the deadline, the
    error is raised at once, with the vendor's pause in `retry_after`, so that the run can be
    suspended until then. `on_retry` is called with (attempt, pause, error).

    Errors of the classes in `not_retried` are raised at once, as another provider is asked instead.

    With `on_chunk` the answer is streamed, and `on_chunk` called with each chunk as it arrives.
    After a retry the answer begins anew.
    """
    loop = asyncio.get_running_loop()
    for attempt in range(1, attempts + 1):
        try:
            if on_chunk is None:
                return await provider.chat(messages, functions, **options)
            return await _stream(provider, messages, functions, on_chunk, options)
        except Retryable as error:
            pause = _choose_pause(error, attempt, backoff, jitter)
            if (
                attempt == attempts
                or isinstance(error, not_retried)
                or loop.time() + pause >= deadline
            ):
                raise
            log.warning(
                "provider.retry_scheduled", attempt=attempt, pause=round(pause, 3), error=str(error)
            )
            if on_retry:
                on_retry(attempt, pause, error)
        await sleep(pause)
    raise ValueError(f"attempts must be at least 1, not {attempts}")


async def _stream(
    provider: LLMProvider,
    messages: Sequence[LLMMessage],
    functions: Sequence[Json] | None,
    on_chunk: Callable[[Chunk], None],
    options: Json,
) -> LLMResponse:
    response: LLMResponse | None = None
    async for chunk in provider.chat_stream(messages, functions, **options):
        response = chunk.response or response
        if chunk.delta or chunk.thinking:
            on_chunk(chunk)
    if response is None:
        raise TransportError("the stream held no answer")
    return response


def _choose_pause(
    error: Retryable, attempt: int, backoff: float, jitter: Callable[[float, float], float]
) -> float:
    if error.retry_after is not None:
        # Never earlier than the vendor asked for, and not all clients in the same instant.
        return error.retry_after + jitter(0.0, min(1.0, backoff))
    return jitter(0.0, min(_MAX_PAUSE, backoff * 2 ** (attempt - 1)))
