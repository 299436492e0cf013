"""What the parts of the journal have in common."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from daemon.store.database import Database
from daemon.store.rows import to_microseconds


class Repository:
    """Some tables of the database, and the clock by which things are written down in them."""

    def __init__(self, db: Database, *, clock: Callable[[], datetime]) -> None:
        self._db = db
        self._clock = clock

    @property
    def shared(self) -> bool:
        """Whether other processes write here as well."""
        return self._db.shared

    def _now(self) -> int:
        return to_microseconds(self._clock())
