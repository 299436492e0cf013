"""The outbox: takes deliveries from the journal, hands them to their channels, writes down how it
went.

It sleeps until the next delivery is due or `wake` is called. Each target has a queue of its own, so
that one that hangs holds up nobody else; within a target reports go one by one, the oldest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from daemon.delivery.channels.base import Channel
from daemon.errors import DaemonError, DeliveryFailed
from daemon.models import Delivery
from daemon.system.clock import wait_until

if TYPE_CHECKING:
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

_FIRST_WAIT = timedelta(seconds=30)
_LONGEST_WAIT = timedelta(hours=1)
_PATIENCE = timedelta(hours=24)
# So many attempts in a row, within some four minutes, are no hiccup any more.
_IN_TROUBLE = 3
# A channel that says nothing for so long is taken to have failed; what it knows of its own limits
# is shorter.
_SEND_LIMIT = 120.0


def wait_after(attempts: int) -> timedelta | None:
    """Return how long to wait after so many failed attempts; None once a day has been spent on it.

    The wait doubles from 30 s to 1 h. It counts attempts, not the clock, so that a machine that was
    off for a week still gives a report its full day. No jitter: nobody else has this target at the
    same second.
    """
    waits, spent = _FIRST_WAIT, timedelta()
    for _ in range(attempts - 1):
        spent += waits
        waits = min(waits * 2, _LONGEST_WAIT)
    return waits if spent + waits <= _PATIENCE else None


class Outbox:
    """Sends what is due; `run` is the background task, `flush` one round of it."""

    def __init__(
        self,
        *,
        journal: Journal,
        channel: Callable[[str], Channel],
        clock: Clock,
        redact: Callable[[str], str] = str,
        count: Callable[[str, str], None] = lambda target, outcome: None,
    ) -> None:
        """`channel` finds the way to a target, or raises DeliveryFailed; `count` is told of each
        attempt.
        """
        self._count = count
        self._journal, self._clock, self._channel, self._redact = journal, clock, channel, redact
        self._bell = asyncio.Event()
        self._busy: set[str] = set()

    def wake(self) -> None:
        """Look at once: something was put in, or the clock was set."""
        self._bell.set()

    async def run(self) -> None:
        """Send until cancelled; a delivery cut off by that is sent again at the next start."""
        async with asyncio.TaskGroup() as queues:
            while True:
                self._bell.clear()
                upcoming = await self._journal.next_delivery()
                now = self._clock.now()
                await self._start_due(queues, now)
                # what is due already is under way, and its queue rings when it is done
                is_to_come = upcoming is not None and (upcoming > now or not self._busy)
                await wait_until(upcoming if is_to_come else None, self._bell, self._clock)

    async def flush(self) -> None:
        """Try everything that is due now, once."""
        async with asyncio.TaskGroup() as queues:
            await self._start_due(queues, self._clock.now())

    async def _start_due(self, queues: asyncio.TaskGroup, now: datetime) -> None:
        due: dict[str, list[Delivery]] = {}
        # as it was before we ask: a queue that ends meanwhile may have sent what the answer still
        # calls due
        busy = frozenset(self._busy)
        for delivery in await self._journal.due_deliveries(now):
            if delivery.target not in busy:
                due.setdefault(delivery.target, []).append(delivery)
        for target, deliveries in due.items():
            self._busy.add(target)
            queues.create_task(self._send_all(target, deliveries), name=f"deliveries to {target}")

    async def _send_all(self, target: str, deliveries: list[Delivery]) -> None:
        try:
            for delivery in deliveries:
                await self._send(delivery)
        except DaemonError as error:
            # it could not be written down, so it is still due; not at once, or a full disk would
            # keep us running hot
            log.error("delivery.unrecorded", target=target, error=str(error))  # noqa: TRY400 - no traceback helps here
            await asyncio.sleep(_FIRST_WAIT.total_seconds())
        finally:
            self._busy.discard(target)
            self.wake()

    async def _send(self, delivery: Delivery) -> None:
        try:
            async with asyncio.timeout(_SEND_LIMIT):
                receipt = await self._channel(delivery.target).send(delivery)
        except TimeoutError:
            await self._failed(delivery, f"no answer within {_SEND_LIMIT:g} s")
        except DeliveryFailed as error:
            await self._failed(delivery, str(error), retry=error.retry, after=error.after or 0)
        except Exception as error:
            log.exception(
                "delivery.crashed", delivery=delivery.id, run=delivery.run, target=delivery.target
            )
            await self._failed(delivery, f"{type(error).__name__}: {error}")
        else:
            # shielded: what has arrived must not be sent again because we were told to stop in this
            # moment
            await asyncio.shield(self._journal.delivered(delivery.id, receipt.detail))
            self._count(delivery.target, "delivered")
            log.info(
                "delivery.arrived",
                delivery=delivery.id,
                run=delivery.run,
                routine=delivery.routine,
                target=delivery.target,
                receipt=receipt.detail,
            )

    async def _failed(
        self, delivery: Delivery, error: str, *, retry: bool = True, after: float = 0
    ) -> None:
        """Write down that it did not arrive, and when to try again, if ever; not sooner than the
        target wants it.
        """
        wait, error = wait_after(delivery.attempts + 1) if retry else None, self._redact(error)
        asked = timedelta(seconds=min(after, _PATIENCE.total_seconds()))
        again = self._clock.now() + max(wait, asked) if wait else None
        await self._journal.delivery_failed(delivery.id, error, again)
        self._count(delivery.target, "put_off" if again else "failed")
        say, event = (
            (log.warning, "delivery.retry_scheduled") if again else (log.error, "delivery.failed")
        )
        say(
            event,
            delivery=delivery.id,
            run=delivery.run,
            routine=delivery.routine,
            target=delivery.target,
            error=error,
            attempts=delivery.attempts + 1,
            again=again and again.isoformat(),
        )
        if not again or delivery.attempts + 1 >= _IN_TROUBLE:
            await self._raise_alarm(delivery, error)

    async def _raise_alarm(self, delivery: Delivery, error: str) -> None:
        """Say elsewhere that this target takes nothing; where there is no elsewhere, the log and
        `status` say it.
        """
        advice = (
            "What goes there is kept and tried again for a day. `agentctl deliveries` shows it."
        )
        # one cause, however the failures of an outage differ: a timeout now, then a reset
        cause, subject = "takes nothing", f"target {delivery.target}"
        unheard = await self._journal.trouble(
            subject, error, delivery=delivery.id, cause=cause, advice=advice
        )
        if unheard:
            log.error(
                "incident.undeliverable",
                incident=unheard.id,
                subject=unheard.subject,
                error=unheard.detail,
            )
        self.wake()
