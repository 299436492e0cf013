"""What a channel is, how far it has come with a delivery, and which deliveries the end of a run
asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from daemon.models import Delivery, Json, Receipt, Run, Status

T = TypeVar("T")


class Channel(Protocol):
    """One way to reach people."""

    async def send(self, delivery: Delivery) -> Receipt:
        """Bring a report to its target and return what the target answered.

        Raises DeliveryFailed. May be called again for a delivery that did arrive, if the process
        died before the receipt was written: `delivery.id` is the same then, and the second call
        must do no harm.
        """


class DeliveryProgress:
    """Which messages of a delivery have been sent, so that a retry sends only the others.

    For deliveries that take several messages: parts of a long report, one mail per recipient. In
    memory only: after a crash messages that had arrived are sent again, which is better than never.
    """

    def __init__(self) -> None:
        self._sent: dict[int, set[int]] = {}
        """Numbers of messages, by the id of their delivery."""

    def unsent(self, delivery: Delivery, messages: Sequence[T]) -> Iterator[tuple[int, T]]:
        """Yield (number, message) for each message that is still to be sent, in order."""
        for number, message in enumerate(messages):
            if number not in self._sent.get(delivery.id, ()):
                yield number, message

    def mark_sent(self, delivery: Delivery, number: int) -> None:
        """Skip the message of this number from now on."""
        self._sent.setdefault(delivery.id, set()).add(number)

    def forget(self, delivery: Delivery) -> None:
        """Drop the progress of a delivery that is not tried again."""
        self._sent.pop(delivery.id, None)


class DeliveryRule(Protocol):
    """A `[[deliver]]` table of a routine file."""

    @property
    def to(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def on(self) -> Collection[str]: ...


# What a dead man's switch is sent for each status; "fail" for every other one. Nothing if a person
# cancelled the run, as that person knows. A closed gate (skipped) is a sign of life.
_PINGS = {Status.SUCCEEDED: "success", Status.SKIPPED: "success", Status.CANCELLED: None}


def deliveries_for(
    run: Run, rules: Iterable[DeliveryRule], *, ping: str | None = None
) -> list[tuple[str, Json]]:
    """Return (target, options) for each delivery that the end of `run` asks for.

    `ping` is the target of the routine's dead man's switch. The options hold the facts of the run
    that the report's reader is told, as they are now. Deliveries of a quiet run are asked for as
    well: the journal marks them as not to be sent.
    """
    facts = {
        "trigger": run.trigger,
        "started": run.started and run.started.isoformat(),
        "ended": run.ended and run.ended.isoformat(),
        "detail": run.detail,
    }
    shared_options = {key: fact for key, fact in facts.items() if fact}
    deliveries: list[tuple[str, Json]] = []
    if ping and (outcome := _PINGS.get(run.status, "fail")):
        deliveries.append((ping, {"ping": outcome, **shared_options}))
    for rule in rules:
        if run.status.value in rule.on:
            path = {"path": rule.path} if rule.path else {}
            deliveries.append((rule.to, {**path, **shared_options}))
    return deliveries
