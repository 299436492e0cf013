"""Messages on their way into runs under way.

The journal keeps them; here lies what the runs of this process have not taken in yet, so that a run
which nobody speaks to costs nothing. A run that was interrupted hears again what its steps do not
say it has heard.
"""

from __future__ import annotations

from collections.abc import Iterable

from daemon.store.journal import RunMessage


class Inbox:
    """What runs were told and have not heard."""

    def __init__(self) -> None:
        self._messages: dict[str, dict[int, RunMessage]] = {}

    def put(self, messages: Iterable[RunMessage]) -> None:
        """Lay messages ready; one that lies there already is the same one."""
        for message in messages:
            self._messages.setdefault(message.run, {})[message.id] = message

    def holds(self, run: str) -> bool:
        """Tell whether something waits to be heard by a run."""
        return run in self._messages

    def take(self, run: str, received: frozenset[int] | set[int] = frozenset()) -> list[RunMessage]:
        """Take out what a run has not heard, in the order it was said."""
        if run not in self._messages:
            return []
        messages = self._messages.pop(run)
        return [messages[number] for number in sorted(messages) if number not in received]
