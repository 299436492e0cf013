"""What a channel is, and how far it has come with a delivery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from daemon.models import Delivery, Receipt

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
        self._sent_numbers: dict[int, set[int]] = {}
        """Numbers of messages, by the id of their delivery."""

    def remaining(self, delivery: Delivery, messages: Sequence[T]) -> Iterator[tuple[int, T]]:
        """Yield (number, message) for each message that is still to be sent, in order."""
        for number, message in enumerate(messages):
            if number not in self._sent_numbers.get(delivery.id, ()):
                yield number, message

    def mark_done(self, delivery: Delivery, number: int) -> None:
        """Skip the message of this number from now on."""
        self._sent_numbers.setdefault(delivery.id, set()).add(number)

    def clear(self, delivery: Delivery) -> None:
        """Drop the progress of a delivery that is not tried again."""
        self._sent_numbers.pop(delivery.id, None)
