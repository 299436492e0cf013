"""What a run needs of the place it is written down in: the seam at which another database can take
SQLite's place.

The promises hang on four properties, whatever the database: a slot is given once (a unique row), a
write names the fence of its owner, a step is written only behind all steps before it, and what is
durable has outlived a power loss before its caller hears of it. Where daemons share a store, its
own clock measures the leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from daemon.models import ApprovalRequest, Json, Reason, Run, Step
from daemon.store.seen_items import Sightings
from daemon.store.slots import Claim


class RunStore(Protocol):
    """Slots are claimed, runs taken, lived and let go of; journal.Journal is the one on SQLite."""

    @property
    def shared(self) -> bool:
        """Whether others take runs from here as well."""

    async def open_slots(self, claims: Sequence[Claim]) -> list[Run | None]:
        """Give each claim its slot and a queued run; None where the slot is taken."""

    async def take(self, run_id: str, *, owner: str, takeover: bool = False) -> Run | None:
        """Make a queued run ours, under a new fence, or one whose owner is dead."""

    def begin(self, run_id: str, *, owner: str) -> Run | None:
        """Make a run ours that was opened here just now, without waiting for the record."""

    async def sure(self, run: Run) -> None:
        """Wait until a run that was begun is ours for certain."""

    def append(
        self,
        run: Run,
        *steps: Step,
        durable: bool = False,
        lazily: bool = False,
        active: float | None = None,
    ) -> asyncio.Future[list[Step]]:
        """Write steps down, in order."""

    async def suspend(
        self, run: Run, *, not_before: datetime | None = None, detail: str | None = None
    ) -> Run:
        """Let go of a run, to be resumed."""

    async def park(
        self, run: Run, petitions: Sequence[ApprovalRequest], *, patience: timedelta, detail: str
    ) -> Run:
        """Let go of a run until a person has answered."""

    async def end(
        self,
        run: Run,
        deliveries: Sequence[tuple[str, Json]] = (),
        *,
        reason: Reason = Reason.GATE,
        zone: str = "UTC",
        found: Sightings | None = None,
    ) -> Run:
        """Write down how a run ended, together with its deliveries."""

    async def recover(self, owner: str) -> list[Run]:
        """Queue the runs of the dead; return all that are queued."""

    async def request_cancel(self, run_id: str) -> Run:
        """Cancel a run that waits, ask one that runs to stop."""

    async def get(self, run_id_or_prefix: str) -> Run:
        """Return a run."""

    async def steps(self, run_id: str) -> list[Step]:
        """Return what a run did."""

    async def active(self, routine: str | None = None) -> list[Run]:
        """Return the runs that have not ended, of one routine or all."""

    async def definition(self, hash_: str) -> str:
        """Return the definition that a run keeps."""
