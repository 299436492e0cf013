"""What a channel is, and which deliveries the end of a run asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from daemon.models import Delivery, Json, Receipt, Run, Status

T = TypeVar("T")


class Channel(Protocol):
    """One way to reach people."""

    async def send(self, delivery: Delivery) -> Receipt:
        """Bring a report to its target and return the proof, or raise DeliveryFailed.

        May be called again for a delivery that did arrive, if we died before that was written down:
        `delivery.id` is the same then, and the second time must do no harm.
        """


class DeliveryProgress:
    """How far deliveries that take several messages have come, so that a retry does not repeat what
    arrived.

    Kept by the process only: after a crash in between the first parts come again, which is better
    than never.
    """

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}

    def left(self, delivery: Delivery, messages: Sequence[T]) -> Iterator[T]:
        """Yield what is still to be sent; to ask for the next one says that this one has
        arrived.
        """
        for number, message in enumerate(messages):
            if number < self._sent.get(delivery.id, 0):
                continue
            yield message
            self._sent[delivery.id] = number + 1
        self._sent.pop(delivery.id, None)


class DeliveryRule(Protocol):
    """What a routine's `[[deliver]]` says."""

    @property
    def to(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def on(self) -> Collection[str]: ...


# What a dead man's switch is told of each end; whoever cancels a run knows. A closed gate is a sign
# of life.
_PINGS = {Status.SUCCEEDED: "success", Status.SKIPPED: "success", Status.CANCELLED: None}


def deliveries_for(
    run: Run, wanted: Iterable[DeliveryRule], *, ping: str | None = None
) -> list[tuple[str, Json]]:
    """Return (target, options) for every place that is to hear of this end.

    The options freeze what the report's reader wants to know of the run. Whether a silent run is
    sent is the outbox's.
    """
    facts = {
        "trigger": run.trigger,
        "started": run.started and run.started.isoformat(),
        "ended": run.ended and run.ended.isoformat(),
        "detail": run.detail,
    }
    known = {key: fact for key, fact in facts.items() if fact}
    pings = (
        [(ping, {"ping": how} | known)] if ping and (how := _PINGS.get(run.status, "fail")) else []
    )
    return pings + [
        (place.to, ({"path": place.path} if place.path else {}) | known)
        for place in wanted
        if run.status.value in place.on
    ]
