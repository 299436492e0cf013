"""What was asked of memory last, with what it answered: a routine asks the same each time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Set
from typing import Any, NamedTuple

# So many answers, of some 5 kB each: those of as many routines.
_MOST = 256


class Question(NamedTuple):
    """All that an answer depends on besides what is kept, who asks, and when."""

    text: str
    limit: int
    per_run: int | None = None
    per_routine: int | None = None
    key: str = ""
    """Of an item that is told with what is found."""
    tokens: int = 0
    """So long may be what is told."""


class _Answer(NamedTuple):
    """What a question was answered with."""

    told: Any
    runs: Set[str]
    """Those whose texts were weighed for it: to one of them itself, the answer would be another."""


class Lately:
    """Answers to the last few questions, until something is written that any question might find.

    All of them are then forgotten, as how much each word of a text counts depends on what else there is. Of what other
    processes write it knows nothing: where a database is shared, nobody should ask here.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self.turns = 0
        """How often something was written: what was looked up before the last time is not worth keeping."""

    def turn(self) -> None:
        """Forget everything: from now on a question may find something else."""
        self.turns += 1
        self._answers.clear()

    def get(self, asked: Hashable, exclude_run: str | None) -> Any | None:
        """Return what the question was answered with; None if it has to be looked up."""
        answer = self._answers.get(asked)
        if answer is None or exclude_run in answer.runs:
            return None
        self._answers.move_to_end(asked)
        return answer.told

    def keep(self, asked: Hashable, exclude_run: str | None, turns: int, told: Any, runs: Set[str]) -> None:
        """Remember an answer that began to be looked up at `turns`, if nothing has been written since."""
        if turns != self.turns or exclude_run in runs:
            return
        self._answers[asked] = _Answer(told, runs)
        if len(self._answers) > _MOST:
            self._answers.popitem(last=False)
