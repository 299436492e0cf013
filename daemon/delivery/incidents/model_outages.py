"""Models that do not answer, though runs go on without them: an incident each, however many runs
notice.

A run whose vendor fails is answered by the next of its chain, or lays out facts only. That is no
failure of the run, so nobody would hear of it; here it becomes an incident of the provider, which
is over when it answers a run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from daemon.definitions.config.live import LiveConfig
from daemon.store.journal import Journal
from daemon.system.coalescing_queue import CoalescingQueue

log = structlog.get_logger()

OF = "provider "
_RETRY = 30.0  # seconds, after a journal that could not be written
ADVICE = (
    "Runs go on meanwhile with what stands behind it in their chain: another model, or `offline`, "
    "which lays the facts "
    "out. `agentctl runs` shows who answered each."
)


class Outages:
    """Keeps the incidents of providers; whoever tells of one waits for nothing."""

    def __init__(self, journal: Journal, *, settings: LiveConfig, wake: Callable[[], None]) -> None:
        self._journal, self._settings, self._wake = journal, settings, wake
        self._reasons: dict[str, str] = {}
        self._down: set[str] | None = None
        """The subjects of open incidents; None until the journal was asked."""
        self._errands = CoalescingQueue("outages", self._settle, retry=_RETRY)

    def failed(self, provider: str, reason: str) -> None:
        """Take note that a run had to go on without a provider."""
        self._reasons[provider] = reason
        self._errands.add(provider)

    def answered(self, provider: str) -> None:
        """Take note that a provider has answered a run."""
        if self._down is None or OF + provider in self._down or provider in self._reasons:
            self._reasons.pop(provider, None)
            self._errands.add(provider)

    async def close(self) -> None:
        """Write down what is still to be written."""
        await self._errands.finish()

    async def _settle(self, providers: Sequence[str]) -> None:
        if self._down is None:
            known = await self._journal.incidents(limit=1000)
            self._down = {each.subject for each in known}
        for name in providers:
            reason = self._reasons.pop(name, None)
            if reason is None:
                if OF + name in self._down:
                    await self._journal.well(OF + name, zone=self._settings.zone.key)
                    self._down.discard(OF + name)
                continue
            self._down.add(OF + name)
            # one cause, however the failures of an outage differ: a timeout now, then a 503
            unheard = await self._journal.trouble(
                OF + name, reason, cause="does not answer", advice=ADVICE
            )
            if unheard:
                log.error(
                    "incident.undeliverable",
                    incident=unheard.id,
                    subject=unheard.subject,
                    error=unheard.detail,
                )
        self._wake()
