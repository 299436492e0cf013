"""One incident per provider that does not answer, however many runs notice it.

When a vendor fails, a run goes on with the next provider of its chain, or reports gathered facts
without a model. The run does not fail, so nobody would be alerted; the incident alerts people. It
is closed when the provider answers a run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from daemon.definitions.config.live import LiveConfig
from daemon.store.incidents import IncidentRepository
from daemon.system.coalescing_queue import CoalescingQueue

if TYPE_CHECKING:
    from daemon.delivery.outbox import Outbox


_SUBJECT_PREFIX = "provider "
_RETRY = 30.0  # seconds, after a write that the journal refused
# Seconds after which an answer of a provider has its incident looked for again, where other
# processes may have opened it.
_LOOK_UP_PERIOD = 60.0
_ADVICE = (
    "Runs go on meanwhile with what stands behind it in their chain: another model, or `offline`, "
    "which lays the facts out. `agentctl runs` shows who answered each."
)


class ModelOutages:
    """Opens and closes the incidents of providers. Its methods return at once; a queue writes."""

    def __init__(
        self,
        incidents: IncidentRepository,
        outbox: Outbox,
        *,
        settings: LiveConfig,
        shared: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `shared`, other processes of the database open and close these incidents, too. `now`
        returns seconds.
        """
        self._incidents = incidents
        self._settings = settings
        self._is_shared, self._now = shared, now
        self._outbox = outbox
        self._reasons: dict[str, str | None] = {}
        """By the name of a provider why it failed, or None if it has answered since; there until
        its incident is written.
        """
        self._open_subjects: set[str] | None = None
        """The subjects of open incidents; None until they were read."""
        self._look_ups: dict[str, float] = {}
        """When it was last read whether a provider has an incident."""
        self._queue = CoalescingQueue("model outages", self._write, retry=_RETRY)

    def record_failure(self, provider: str, reason: str) -> None:
        """Open an incident, as a run had to go on without this provider."""
        self._reasons[provider] = reason
        self._queue.add(provider)

    def record_answer(self, provider: str) -> None:
        """Close the incident of a provider, if it has one, as it has answered a run."""
        is_open = self._open_subjects is None or _SUBJECT_PREFIX + provider in self._open_subjects
        if is_open or provider in self._reasons or self._is_look_up_due(provider):
            self._reasons[provider] = None
            self._queue.add(provider)

    def _is_look_up_due(self, provider: str) -> bool:
        """Tell whether another process may have opened an incident of a provider since the last
        look.
        """
        last_look_up = self._look_ups.get(provider)
        return self._is_shared and (
            last_look_up is None or self._now() - last_look_up >= _LOOK_UP_PERIOD
        )

    async def close(self) -> None:
        """Write what is still in the queue."""
        await self._queue.finish()

    async def _write(self, providers: Sequence[str]) -> None:
        if self._open_subjects is None or self._is_shared:
            self._open_subjects = await self._incidents.get_open_subjects()
            self._look_ups.update(dict.fromkeys(providers, self._now()))
        for provider in providers:
            if provider not in self._reasons:  # written before another one of its batch failed
                continue
            subject, reason = _SUBJECT_PREFIX + provider, self._reasons[provider]
            if reason is not None:
                # A fixed cause, so that a timeout and then a 503 of one outage are one incident.
                await self._incidents.report(
                    subject, reason, cause="does not answer", advice=_ADVICE
                )
                self._open_subjects.add(subject)
            elif subject in self._open_subjects:
                await self._incidents.resolve(subject, zone=self._settings.zone.key)
                self._open_subjects.discard(subject)
            # what was recorded meanwhile is in the queue again
            if self._reasons[provider] == reason:
                del self._reasons[provider]
        self._outbox.wake()
