"""Messages of people to runs under way.

The journal keeps them. The inbox holds those that the runs of this process have not received yet,
so that a run without messages reads nothing. A run that was interrupted receives those again that
are not among its steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from daemon.store.journal import RunMessage


class Inbox:
    """The messages that runs have not received yet, by run."""

    def __init__(self) -> None:
        self._messages: dict[str, dict[int, RunMessage]] = {}

    def put(self, messages: Iterable[RunMessage]) -> None:
        """Add messages; one that is there already is the same one."""
        for message in messages:
            self._messages.setdefault(message.run, {})[message.id] = message

    def holds(self, run: str) -> bool:
        """Return whether there are messages for a run."""
        return run in self._messages

    def take(self, run: str, received: frozenset[int] | set[int] = frozenset()) -> list[RunMessage]:
        """Take out the messages to a run, oldest first, but for those in `received`."""
        if run not in self._messages:
            return []
        messages = self._messages.pop(run)
        return [messages[number] for number in sorted(messages) if number not in received]
