"""Retries of model calls: when, how often, and with which delays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from daemon.errors import (
    BadRequest,
    Overloaded,
    ProviderError,
    Retryable,
    TransportError,
    Unavailable,
)
from daemon.providers.retry import ask
from daemon.providers.scripted import ScriptedProvider
from tests.providers.calls import user


class Pauses(list[float]):
    """A clock for pauses: it only notes them."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def attempt(
    *lines: Any, deadline: float = 1e9, attempts: int = 3, backoff: float = 1.0
) -> tuple[Any, Pauses]:
    pauses, provider = Pauses(), ScriptedProvider(lines)
    try:
        answer: Any = await ask(
            provider,
            [user("hi")],
            deadline=deadline,
            attempts=attempts,
            backoff=backoff,
            sleep=pauses,
            jitter=lambda low, high: high,  # the longest of the pauses that could be drawn
        )
        answer = answer.content
    except ProviderError as error:
        answer = error
    assert provider.remaining == 0
    return answer, pauses


async def test_temporary_errors_are_retried_with_growing_delays() -> None:
    assert await attempt(TransportError("a"), Unavailable("b"), "well") == ("well", [1.0, 2.0])


async def test_permanent_error_is_not_retried() -> None:
    answer, pauses = await attempt(BadRequest("no"))
    assert (type(answer), pauses) == (BadRequest, [])


async def test_last_error_is_raised() -> None:
    answer, pauses = await attempt(TransportError("a"), TransportError("b"), Unavailable("c"))
    assert str(answer) == "c"
    assert len(pauses) == 2


async def test_a_retry_policy_of_one_attempt_never_retries() -> None:
    answer, pauses = await attempt(TransportError("a"), attempts=1)
    assert (str(answer), pauses) == ("a", [])


async def test_retry_waits_for_the_retry_after_of_the_vendor() -> None:
    assert await attempt(Overloaded("busy", retry_after=30), "well") == ("well", [31.0])


async def test_a_retry_beyond_the_deadline_of_the_run_is_not_awaited() -> None:
    soon = asyncio.get_running_loop().time() + 20
    answer, pauses = await attempt(Overloaded("busy", retry_after=30), deadline=soon)
    assert isinstance(answer, Retryable)
    assert (answer.retry_after, pauses) == (30, [])


async def test_retry_delays_are_at_most_a_minute() -> None:
    _, pauses = await attempt(*[TransportError("x")] * 6, "well", attempts=7, backoff=30)
    assert pauses == [30, 60, 60, 60, 60, 60]


async def test_retry_delays_are_random() -> None:
    all_pauses: set[float] = set()
    for _ in range(5):
        pauses = Pauses()
        await ask(
            ScriptedProvider([TransportError("x"), "well"]),
            [user("hi")],
            deadline=1e9,
            backoff=9,
            sleep=pauses,
        )
        all_pauses.update(pauses)
    assert len(all_pauses) == 5
    assert all(0 <= pause <= 9 for pause in all_pauses)


async def test_each_retry_is_reported(log_lines: list[dict[str, Any]]) -> None:
    retries: list[tuple[int, str]] = []
    await ask(
        ScriptedProvider([Overloaded("busy"), "well"]),
        [user("hi")],
        deadline=1e9,
        backoff=0.0,
        on_retry=lambda number, pause, error: retries.append((number, str(error))),
    )
    assert retries == [(1, "busy")]
    assert [(line["event"], line["attempt"], line["error"]) for line in log_lines] == [
        ("provider.retry_scheduled", 1, "busy")
    ]


async def test_request_reaches_the_model_unchanged() -> None:
    provider = ScriptedProvider(["hello"])
    functions = [{"name": "shell", "description": "", "parameters": {}}]
    await ask(
        provider,
        [user("hi")],
        functions,
        deadline=1e9,
        temperature=0.5,
        max_tokens=9,
        routine="daily",
    )
    (call,) = provider.calls
    assert call.functions is functions
    assert (call.temperature, call.options) == (0.5, {"max_tokens": 9, "routine": "daily"})


async def test_zero_attempts_are_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await ask(ScriptedProvider([]), [user("hi")], deadline=1e9, attempts=0)


async def test_watcher_receives_the_streamed_answer() -> None:
    pieces: list[str] = []
    provider = ScriptedProvider(["all is well"])
    answer = await ask(
        provider, [user("hi")], deadline=1e9, on_chunk=lambda chunk: pieces.append(chunk.delta)
    )
    assert (answer.content, "".join(pieces)) == ("all is well", "all is well")
