"""The outbox: which deliveries the end of a run asks for, and how they are sent.

Due deliveries are taken from the journal, sent through their channels, and their result is written.

It sleeps until the next delivery is due or `wake` is called. Each target has a task of its own, so
a target that hangs delays no other; within a target reports are sent one by one, the oldest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from daemon.delivery.channels.base import Channel
from daemon.errors import (
    DaemonError,
    DatabaseAway,
    DeliveryFailed,
    NotFound,
    RecipientRemoved,
    StoreDamaged,
    StoreFull,
    TargetAbsent,
)
from daemon.models import Delivery, Json, Run, Status
from daemon.system.clock import wait_until
from daemon.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

_FIRST_WAIT = timedelta(seconds=30)
_LONGEST_WAIT = timedelta(hours=1)
_RETRY_PERIOD = timedelta(hours=24)
# An incident is opened after this many failures in a row: at the soonest 90 seconds after the
# first.
_ATTEMPTS_BEFORE_INCIDENT = 3
# Seconds. A channel that has not returned by then has failed; channels have shorter timeouts.
_SEND_LIMIT = 120.0


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
    run: Run,
    rules: Iterable[DeliveryRule],
    *,
    ping: str | None = None,
    chat: str | None = None,
    verbatim: bool = False,
    delay: timedelta = timedelta(),
) -> list[tuple[str, Json]]:
    """Return (target, options) for each delivery that the end of `run` asks for.

    `ping` is the target of the routine's dead man's switch. `chat` is the target of the chat in
    which a person started the run: it gets the report, whatever the rules say. `verbatim`: the
    report is the output of programs and no Markdown. `delay` is by how much `spread` put off the
    start. The options hold what the reader of the report is told of the run, as it is now.
    Deliveries of a silent run are asked for as well: the journal marks them as not to be sent.
    """
    details = {
        "trigger": run.trigger,
        "started": run.started and run.started.isoformat(),
        "ended": run.ended and run.ended.isoformat(),
        "detail": run.detail,
    }
    shared_options: Json = {key: value for key, value in details.items() if value}
    if verbatim:
        shared_options["verbatim"] = True
    if delay:
        shared_options["delay"] = delay.total_seconds()
    deliveries: list[tuple[str, Json]] = []
    if ping and (outcome := _PINGS.get(run.status, "fail")):
        deliveries.append((ping, {"ping": outcome, **shared_options}))
    for rule in rules:
        if run.status.value in rule.on:
            path = {"path": rule.path} if rule.path else {}
            deliveries.append((rule.to, {**path, **shared_options}))
    if chat and all(target != chat for target, _ in deliveries):
        deliveries.append((chat, shared_options))
    return deliveries


def _subject_of(delivery: Delivery) -> dict[str, str]:
    """Return what a log line says a delivery is about; a notice of no routine has its kind."""
    subject = {"run": delivery.run, "routine": delivery.routine}
    return subject if delivery.routine else {**subject, "notice": delivery.content}


def wait_after(attempts: int) -> timedelta | None:
    """Return how long to wait after `attempts` failures; None once the waits amount to a day.

    The wait doubles from 30 s to 1 h. Attempts count, not the clock, so that a report still gets
    its full day of retries on a machine that was off for a week. No jitter: no other client retries
    this target in the same second.
    """
    wait, total = _FIRST_WAIT, timedelta()
    for _ in range(attempts - 1):
        total += wait
        wait = min(wait * 2, _LONGEST_WAIT)
    return wait if total + wait <= _RETRY_PERIOD else None


class Outbox:
    """Sends due deliveries. `run` is the background task; `flush` sends once, for `agentd once`."""

    def __init__(
        self,
        *,
        journal: Journal,
        channel: Callable[[str], Channel],
        clock: Clock,
        redact: Callable[[str], str] = str,
        metrics: Metrics | None = None,
    ) -> None:
        """`channel` returns the channel of a target by its name, or raises DeliveryFailed.
        `metrics` counts the attempts.
        """
        self._journal = journal
        self._channel = channel
        self._clock = clock
        self._redact = redact
        self._metrics = metrics or Metrics()
        self._wake_event = asyncio.Event()
        self._busy: set[str] = set()
        self._absent_targets: set[str] = set()
        """Targets that this machine does not have; the log has a note of each."""
        self._unwritten_receipts: dict[int, str] = {}
        """Receipts that the journal has not taken yet, by delivery: these are not sent again."""

    def wake(self) -> None:
        """Check for due deliveries at once: one was added, or the clock was set."""
        self._wake_event.set()

    async def run(self) -> None:
        """Send until cancelled. A delivery that the cancellation interrupts is sent again at the
        next start.
        """
        async with asyncio.TaskGroup() as queues:
            while True:
                self._wake_event.clear()
                now = self._clock.now()
                await self._start_due(queues, now)
                # The task of a busy target wakes this one when it ends.
                next_due = await self._journal.outbox.get_next_due(busy=frozenset(self._busy))
                if next_due is not None and next_due <= now:
                    next_due = now + _FIRST_WAIT  # its row is damaged: it cannot be sent
                await wait_until(next_due, self._wake_event, self._clock)

    async def flush(self) -> None:
        """Send everything that is due now, once, and wait for it."""
        async with asyncio.TaskGroup() as queues:
            await self._start_due(queues, self._clock.now())

    async def _start_due(self, queues: asyncio.TaskGroup, now: datetime) -> None:
        """Start to send what is due to targets that are not busy."""
        by_target: dict[str, list[Delivery]] = {}
        # Copied before the journal is asked: a task that ends meanwhile may have sent a delivery
        # that the answer still has as due.
        busy = frozenset(self._busy)
        for delivery in await self._journal.outbox.find_due(now):
            if delivery.target not in busy:
                by_target.setdefault(delivery.target, []).append(delivery)
        for target, deliveries in by_target.items():
            self._busy.add(target)
            queues.create_task(self._send_all(target, deliveries), name=f"deliveries to {target}")

    async def _send_all(self, target: str, deliveries: list[Delivery]) -> None:
        try:
            for number, delivery in enumerate(deliveries):
                # while the ones before were sent, a person may have dropped it, or the question in
                # it was answered
                if number and not await self._journal.outbox.is_pending(delivery.id):
                    continue
                await self._send(delivery)
        except DaemonError as error:
            # The result was not written, so the delivery is still due. Wait, or a full disk would
            # make this a busy loop.
            log.error("delivery.unrecorded", target=target, error=str(error))  # noqa: TRY400 - no traceback helps here
            await asyncio.sleep(_FIRST_WAIT.total_seconds())
        finally:
            self._busy.discard(target)
            self.wake()

    async def _send(self, delivery: Delivery) -> None:
        if delivery.id in self._unwritten_receipts:  # the disk was full when it had arrived
            await asyncio.shield(self._record_arrival(delivery))
            return
        try:
            async with asyncio.timeout(_SEND_LIMIT):
                receipt = await self._channel(delivery.target).send(delivery)
        except TimeoutError:
            await self._record_failure(delivery, f"no answer within {_SEND_LIMIT:g} s")
        except (TargetAbsent, RecipientRemoved) as error:
            await self._leave_out(delivery, error)
        except DeliveryFailed as error:
            await self._record_failure(
                delivery, str(error), retry=error.retry, retry_after=error.after or 0
            )
        except Exception as error:
            is_of_journal = isinstance(error, (StoreFull, DatabaseAway))
            if is_of_journal and not isinstance(error, StoreDamaged):
                raise  # a chat writes its messages to the journal: its target is not at fault
            log.exception(
                "delivery.crashed", delivery=delivery.id, run=delivery.run, target=delivery.target
            )
            await self._record_failure(delivery, f"{type(error).__name__}: {error}")
        else:
            proof = self._redact(receipt.detail)
            # Logged before it is recorded: whoever sees the record finds the line, and its time is
            # that of the arrival.
            log.info(
                "delivery.arrived",
                delivery=delivery.id,
                **_subject_of(delivery),
                target=delivery.target,
                receipt=proof,
            )
            self._unwritten_receipts[delivery.id] = proof
            # Shielded, or a report that has arrived would be sent again after a stop in this
            # moment.
            await asyncio.shield(self._record_arrival(delivery))

    async def _record_arrival(self, delivery: Delivery) -> None:
        """Write the receipt of a delivery that has arrived."""
        proof = self._unwritten_receipts[delivery.id]
        try:
            await self._journal.outbox.mark_delivered(delivery.id, proof)
        except NotFound:  # it was deleted with its run
            self._unwritten_receipts.pop(delivery.id, None)
            raise
        self._unwritten_receipts.pop(delivery.id, None)
        self._metrics.count_delivery(delivery.target, "delivered")

    async def _leave_out(self, delivery: Delivery, reason: TargetAbsent | RecipientRemoved) -> None:
        """Leave out a delivery that nobody can or may get: it is never sent, and nothing is wrong.
        An alert or a question to a target that this machine does not have goes to another one.
        """
        write, other_targets = log.warning, []
        if isinstance(reason, TargetAbsent):
            if delivery.target in self._absent_targets:
                write = log.debug
            self._absent_targets.add(delivery.target)
            alert_targets = self._journal.incidents.settings.to
            other_targets = [name for name in alert_targets if name not in self._absent_targets]
        await self._journal.outbox.leave_out(delivery.id, f"left out: {reason}", other_targets[:1])
        write(
            "delivery.left_out",
            delivery=delivery.id,
            **_subject_of(delivery),
            target=delivery.target,
            reason=str(reason),
        )

    async def _record_failure(
        self, delivery: Delivery, error: str, *, retry: bool = True, retry_after: float = 0
    ) -> None:
        """Write a failure and when to retry, if at all; `retry_after` is the shortest wait in
        seconds that the target asked for.
        """
        error = self._redact(error)
        next_attempt = None
        if retry and (wait := wait_after(delivery.attempts + 1)):
            requested_wait = timedelta(seconds=min(retry_after, _RETRY_PERIOD.total_seconds()))
            next_attempt = self._clock.now() + max(wait, requested_wait)
        if not await self._journal.outbox.mark_failed(delivery.id, error, next_attempt):
            return  # a person has dropped it meanwhile
        self._metrics.count_delivery(delivery.target, "put_off" if next_attempt else "failed")
        write = log.warning if next_attempt else log.error
        write(
            "delivery.retry_scheduled" if next_attempt else "delivery.failed",
            delivery=delivery.id,
            **_subject_of(delivery),
            target=delivery.target,
            error=error,
            attempts=delivery.attempts + 1,
            again=next_attempt and next_attempt.isoformat(),
        )
        if not next_attempt or delivery.attempts + 1 >= _ATTEMPTS_BEFORE_INCIDENT:
            await self._open_incident(delivery, error)

    async def _open_incident(self, delivery: Delivery, error: str) -> None:
        """Open the incident of a target that accepts nothing, which alerts people through another
        target.
        """
        advice = (
            "What goes there is kept and tried again for a day. `agentctl deliveries` shows it."
        )
        # A fixed cause, so that a timeout and then a reset of one outage are one incident.
        cause, subject = "takes nothing", f"target {delivery.target}"
        await self._journal.incidents.report(
            subject, error, delivery=delivery.id, cause=cause, advice=advice
        )
        self.wake()
